"""Noise-contrastive estimation against its formulas, its identities and exact sums."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg import objectives
from thalweg.core import Energy
from thalweg.experiments.thesis_methods import divergence, target
from thalweg.objectives import BregmanRatio, ConditionalNCE, RankNCE

NOISE = tw.energies.Gaussian(jnp.array([0.3, -0.4]), jnp.array([[2.0, -0.3], [-0.3, 1.5]]))
MODEL = tw.energies.Gaussian(jnp.array([0.5, -1.0]), jnp.array([[1.0, 0.4], [0.4, 0.7]]))
BATCH = 0.3 + jax.random.normal(jax.random.key(5), (48, 2))
SPINS = tw.energies.Ising(jnp.array([[0.0, 0.6, -0.4], [0.6, 0.0, 0.5], [-0.4, 0.5, 0.0]]), jnp.array([0.3, -0.2, 0.1]))


@eqx.filter_jit
def evaluate(objective, energy, params, state, batch, key):
    """The loss, its gradient in the energy and the params, and the metrics."""

    @eqx.filter_value_and_grad(has_aux=True)
    def loss(pair):
        return objective.loss(key, pair[0], pair[1], state, batch)

    (value, step), gradient = loss((energy, params))
    return value, gradient, step.metrics


def started(objective, key, energy=MODEL, batch=BATCH):
    params, state = objective.init(key, energy, batch)
    return evaluate(objective, energy, params, state, batch, key)


def assert_same(first, second, rtol=1e-5):
    """To ``rtol`` of the largest number of each array."""
    left, right = (jax.tree.leaves(eqx.filter(tree, eqx.is_array)) for tree in (first, second))
    assert len(left) == len(right) > 0
    for one, other in zip(left, right, strict=True):
        assert np.max(np.abs(other)) > 0
        assert np.allclose(one, other, rtol=rtol, atol=rtol * np.max(np.abs(other)))


@eqx.filter_jit
def ratios(energy, x):
    """G without log Z."""
    return -jax.vmap(energy)(x) - jax.vmap(NOISE.log_prob)(x)


@pytest.mark.parametrize("nu", [0.25, 1.0, 3.0])
def test_nce_is_its_formula_and_the_logistic_bregman_ratio(nu, key):
    nce = objectives.NCE(NOISE, nu)
    value, gradient, told = started(nce, key)
    count = round(48 / nu)

    def by_hand(pair):
        energy, params = pair
        y = NOISE.sample(key, (count,))
        data, noise = (ratios(energy, x) - params.log_z for x in (BATCH, y))
        return jnp.mean(jnp.log1p(jnp.exp(-data) / nu)) + jnp.mean(jnp.log1p(nu * jnp.exp(noise))) / nu

    pair = (MODEL, nce.init(key, MODEL, BATCH)[0])
    right, slope = eqx.filter_jit(eqx.filter_value_and_grad(by_hand))(pair)
    assert float(value) == pytest.approx(float(right), rel=1e-5)
    assert_same(gradient, slope)
    other, bregman, _ = started(BregmanRatio(objectives.Logistic(), NOISE, nu), key)
    assert float(other) == pytest.approx(float(value), rel=1e-5)
    assert_same(bregman, gradient)
    assert told["log_z"] == pair[1].log_z == MODEL.log_z
    assert told["data_outside"] == told["not_finite"] == 0
    y = NOISE.sample(key, (count,))
    said = [ratios(MODEL, x) - MODEL.log_z + jnp.log(nu) for x in (BATCH, y)]
    share = (np.mean(said[0] > 0) * nu + np.mean(said[1] < 0)) / (1 + nu)
    assert float(told["accuracy"]) == pytest.approx(float(share), abs=1e-5)


def test_rank_of_two_is_one_softplus_and_conditional_noise_that_ignores_x(key):
    value, gradient, _ = started(RankNCE(NOISE, candidates=2), key)

    def by_hand(energy, y):
        return jnp.mean(jax.nn.softplus(ratios(energy, y) - ratios(energy, BATCH)))

    formula = eqx.filter_jit(eqx.filter_value_and_grad(by_hand))
    right, slope = formula(MODEL, NOISE.sample(jax.random.split(key)[0], (48,)))
    assert float(value) == pytest.approx(float(right), rel=1e-5)
    assert_same(gradient[0], slope)
    other, conditional, _ = started(ConditionalNCE(noise=tw.noise.Unconditional(NOISE)), key)
    right, slope = formula(MODEL, NOISE.sample(key, (48,)))
    assert float(other) == pytest.approx(float(right), rel=1e-5)
    assert_same(conditional[0], slope)


def test_rank_is_a_cross_entropy_over_log_ratios_and_priors(key):
    priors = jnp.array([0.5, 0.3, 0.2])
    value, _, told = started(RankNCE(NOISE, 3, priors), key)
    key_noise, key_place = jax.random.split(key)
    y = NOISE.sample(key_noise, (96,)).reshape(48, 2, 2)
    g_data, g_noise = np.asarray(ratios(MODEL, BATCH)), np.asarray(jax.vmap(lambda y: ratios(MODEL, y))(y))
    place = np.asarray(jax.random.categorical(key_place, jnp.log(priors), shape=(48, 1)))[:, 0]
    losses = []
    for row in range(48):
        # the data point at its place; the noise point whose place it takes goes to the first
        g = np.array([np.nan, *g_noise[row]])
        g[0], g[place[row]] = g[place[row]], g_data[row]
        logits = g + np.log(priors)
        losses.append(np.log(np.exp(logits).sum()) - logits[place[row]])
    assert len(set(place.tolist())) == 3
    assert float(value) == pytest.approx(np.mean(losses), rel=1e-5)
    even, _, _ = started(RankNCE(NOISE, 3), key)
    assert abs(float(even) - float(value)) > 1e-3
    assert 0 < told["accuracy"] < 1


class Shifted(Energy):
    """An energy and a constant, which is a parameter too."""

    inner: Energy
    constant: jax.Array

    @property
    def space(self):
        return self.inner.space

    def __call__(self, x):
        return self.inner(x) + self.constant


@pytest.mark.parametrize("objective", [ConditionalNCE(0.5), RankNCE(NOISE, 4)], ids=["conditional", "rank"])
def test_log_z_does_not_matter(objective, key):
    params, state = objective.init(key, MODEL, BATCH)
    assert params is None
    values, gradients = [], []
    for constant in (0.0, 4.0):
        value, gradient, _ = evaluate(objective, Shifted(MODEL, jnp.array(constant)), None, state, BATCH, key)
        values.append(float(value))
        gradients.append(gradient[0].inner)
        assert abs(float(gradient[0].constant)) < 1e-6
    assert values[0] == pytest.approx(values[1], rel=1e-5)
    assert_same(*gradients)


CHECKED = {
    "nce": (objectives.NCE(NOISE, 0.5), MODEL),
    "nce, fixed noise": (objectives.NCE(NOISE, fixed=1000), MODEL),
    "rank": (RankNCE(NOISE, 4, [0.4, 0.3, 0.2, 0.1]), MODEL),
    "nce, fitted noise": (objectives.NCE(), MODEL),
    "nce on spins": (objectives.NCE(tw.noise.IndependentBernoulli([0.6, 0.5, 0.4], (-1, 1))), SPINS),
    "rank on spins": (RankNCE(tw.noise.IndependentBernoulli([0.6, 0.5, 0.4], (-1, 1)), 3), SPINS),
}
SLOW = ("nce, fixed noise", "nce, fitted noise", "rank on spins", "nce on spins")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in CHECKED])
def test_the_truth_is_where_the_loss_is_smallest(name, key):
    objective, energy = CHECKED[name]
    verdict = tw.check_objective(objective, key=key, energy=energy, batches=200)
    assert verdict.passed, verdict.text
    assert verdict.detectable < 0.25


def test_fixed_noise_stays_what_it_was_drawn(key):
    objective = objectives.NCE(NOISE, fixed=48)
    params, state = objective.init(key, MODEL, BATCH)
    assert np.allclose(state.log_probs, jax.vmap(NOISE.log_prob)(state.points), rtol=1e-5)
    keys = jax.random.split(key)
    first, second = (evaluate(objective, MODEL, params, state, BATCH, k)[0] for k in keys)
    assert float(first) == pytest.approx(float(second), rel=1e-6)  # all points, in another order
    fresh = [
        evaluate(objectives.NCE(NOISE), MODEL, params, state._replace(points=None, log_probs=None), BATCH, k)[0]
        for k in keys
    ]
    assert abs(float(fresh[0]) - float(fresh[1])) > 1e-4


@pytest.mark.slow
def test_log_z_starts_at_the_truth_where_that_is_known(key):
    spins = tw.exact.sample(SPINS, (50,), key=key)
    params, _ = objectives.NCE().init(key, SPINS, spins)
    assert float(params.log_z) == pytest.approx(float(tw.exact.log_z(SPINS)), rel=1e-5)
    unknown = Shifted(MODEL, jnp.array(3.0))
    params, _ = objectives.NCE(NOISE).init(key, unknown, BATCH)
    # the mean of 1000 importance weights
    assert float(params.log_z) == pytest.approx(float(MODEL.log_z) - 3.0, abs=0.15)
    # and all later batches share the noise that the first was fitted to
    params, state = objectives.NCE().init(key, MODEL, BATCH)
    assert np.allclose(state.fitted.mean, BATCH.mean(axis=0), atol=1e-5)
    assert np.isfinite(evaluate(objectives.NCE(), MODEL, params, state, BATCH + 1.0, key)[0])


@pytest.mark.slow
def test_images_and_intervals_get_noise_of_their_own(key):
    images = jax.random.normal(key, (12, 3, 3, 1))
    energy = tw.as_energy(lambda x: jnp.sum(x**2), tw.Real((3, 3, 1)))
    params, state = objectives.NCE().init(key, energy, images)
    value, _ = eqx.filter_jit(objectives.NCE(nu=0.5).loss)(key, energy, params, state, images)
    assert np.isfinite(value)
    inside = tw.as_energy(lambda x: jnp.sum(x**2), tw.Interval(-1.0, 1.0, shape=2))
    _, state = objectives.NCE().init(key, inside, jnp.zeros((4, 2)))
    assert isinstance(state.fitted, tw.noise.Uniform)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "within"), [(2, 0.02), (16, 0.2)])
def test_log_z_of_a_gaussian_is_learned(d, within, key):
    """Started at the data's mean and variances: from far away the loss is flat, and little is learned."""
    truth = target(jax.random.key(d), d)
    data = truth.sample(key, (50_000,))
    noise = tw.noise.fit_mixture(data[:20_000], 2, key=key)
    energy = tw.energies.Gaussian(data.mean(axis=0), jnp.diag(data.var(axis=0)))
    optimizer = optax.adam(optax.cosine_decay_schedule(0.01, 1000))
    run = tw.fit(energy, data, objectives.NCE(noise, 0.5), optimizer=optimizer, steps=1000, batch_size=1000, key=key)
    assert float(run.params.log_z) == pytest.approx(float(truth.log_z), abs=within)
    assert float(run.energy.log_z) == pytest.approx(float(run.params.log_z), abs=within)
    # as many numbers are learned as a Gaussian has, each at the price of half a nat over the number of rows, and a half
    # as much again for the noise
    assert divergence(truth, run.energy) < 4 * (d * (d + 3) / 2) / 50_000


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda key: objectives.NCE(nu=-1.0), "expected nu > 0, got -1.0"),
        (lambda key: objectives.NCE(fixed=10).init(key, MODEL, BATCH), "expected at least 48 fixed noise points"),
        (lambda key: objectives.NCE(lambda x: x).init(key, MODEL, BATCH), "without sample"),
        (lambda key: objectives.NCE(SPINS).init(key, MODEL, BATCH), "got a Ising without sample"),
        (
            lambda key: objectives.NCE(tw.noise.flow(3, key=key, layers=1)).init(key, MODEL, BATCH),
            r"expected noise on points of shape \(2,\), as the data have, got Transformed on points of shape \(3,\)",
        ),
        (
            lambda key: RankNCE(tw.noise.Uniform(-1.0, 1.0, 2)).init(key, MODEL, jnp.array([[0.0, 0.0], [0.5, 2.0]])),
            r"none at 1 of 2 points: point 1 = \[0.5 2. \] \(log_prob -inf\)",
        ),
        (lambda key: RankNCE(candidates=1), "expected candidates to be a whole number >= 2, got 1"),
        (lambda key: RankNCE(candidates=3, priors=[0.5, 0.5]), "expected one prior for each of 3 candidates"),
        (lambda key: RankNCE(candidates=2, priors=[0.0, 1.0]), "expected every prior > 0"),
        (
            lambda key: objectives.NCE().init(key, tw.as_energy(jnp.sum, tw.Counts(2)), jnp.ones((3, 2), int)),
            r"expected noise for NCE on Counts.*which has no default",
        ),
    ],
)
def test_bad_input_gets_one_sentence(make, sentence, key):
    with pytest.raises(ValueError, match=sentence):
        make(key)


class Recorded(eqx.Module):
    """Noise of two parts that says which part a point is of."""

    def sample(self, key, shape):
        which = jax.random.categorical(key, jnp.log(jnp.array([0.6, 0.4])), shape=(*shape, 1))
        return which.astype(float)

    def log_prob(self, x):
        return jnp.sum(jnp.log(jnp.where(x == 0, 0.6, 0.4)))


def test_places_are_independent_of_mixture_noise(key):
    """The loss depends on place and noise; with one key for both their correlation over rows was 0.59."""
    rows, priors = 4000, jnp.array([0.6, 0.4])
    key_noise, key_place = jax.random.split(key)
    which = Recorded().sample(key_noise, (rows,))[:, 0]
    place = jax.random.categorical(key_place, jnp.log(priors), shape=(rows, 1))[:, 0]
    # a correlation of independent rows is N(0, 1/rows); 5 of them
    assert abs(np.corrcoef(which, place)[0, 1]) < 5 / rows**0.5
    # and these are the keys in use: the loss is what they give by hand
    batch, energy = jnp.zeros((rows, 1)), tw.as_energy(lambda x: 0.7 * jnp.sum(x), tw.Real(1))
    objective = RankNCE(Recorded(), 2, priors)
    value, _ = jax.jit(lambda key: objective.loss(key, energy, None, None, batch))(key)
    g = -0.7 * which - jnp.log(jnp.where(which == 0, 0.6, 0.4)), jnp.full(rows, -jnp.log(0.6))
    log_priors = jnp.log(priors)[place], jnp.log(priors)[1 - place]
    right = jnp.mean(jax.nn.softplus(g[0] + log_priors[1] - g[1] - log_priors[0]))
    assert float(value) == pytest.approx(float(right), rel=1e-5)
