"""The restricted Boltzmann machine against sums over all its states, for every pair of unit types."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import integrate, stats

import thalweg as tw
from thalweg import energies as te

KEY = jax.random.key(7)


def numbers(seed, *shape, scale=0.7):
    return scale * np.random.default_rng(seed).normal(size=shape)


VISIBLE = {
    "bernoulli": lambda: te.BernoulliUnits(numbers(1, 4)),
    "spin": lambda: te.SpinUnits(numbers(1, 4)),
    "categorical": lambda: te.CategoricalUnits(numbers(1, 3, 3)),
    "gaussian": lambda: te.GaussianUnits(numbers(1, 2), [0.6, 1.4]),
    "replicated softmax": lambda: te.ReplicatedSoftmaxUnits(numbers(1, 3), length=3),
}
HIDDEN = {
    "bernoulli": lambda: te.BernoulliUnits(numbers(2, 3)),
    "spin": lambda: te.SpinUnits(numbers(2, 3)),
    "gaussian": lambda: te.GaussianUnits(numbers(2, 3), 0.8),
    "relu": lambda: te.ReLUUnits(numbers(2, 3)),
}
PAIRS = list(itertools.product(VISIBLE, HIDDEN))
FINITE = ("bernoulli", "spin", "categorical")


def machine(visible, hidden):
    visible, hidden = VISIBLE[visible](), HIDDEN[hidden]()
    scale = 0.2 if isinstance(visible, te.GaussianUnits) else 0.7
    return te.RBM(visible, hidden, numbers(3, visible.features, hidden.features, scale=scale))


def points(rbm):
    """All visible points of a finite machine, else some."""
    if isinstance(rbm.space, tw.spaces.Finite):
        return rbm.space.states(0, rbm.space.size)
    if isinstance(rbm.space, tw.Counts):
        return jnp.array([v for v in itertools.product(range(4), repeat=3) if sum(v) == 3])
    return jnp.asarray(numbers(5, 6, 2))


def sum_over_hidden(rbm, v):
    """``-log Σ_h exp(-E(v, h))`` from the joint energy: a sum over states, or an integral of one unit at a time."""
    if isinstance(rbm.hidden.space, tw.spaces.Finite):
        states = rbm.hidden.space.states(0, rbm.hidden.space.size)
        return -jax.nn.logsumexp(jnp.array([-rbm(v, h) for h in states]))
    # given v the units are independent: E(v, h) = E(v, 0) + Σ_j e_j(h_j)
    zero = jnp.zeros(3)
    grid = np.linspace(0 if isinstance(rbm.hidden, te.ReLUUnits) else -14, 14, 4001)
    total = float(rbm(v, zero))
    for j in range(3):
        one = jax.vmap(lambda value, j=j: rbm(v, zero.at[j].set(value)) - rbm(v, zero))(jnp.asarray(grid))
        total -= np.log(integrate.simpson(np.exp(-np.asarray(one, np.float64)), x=grid))
    return total


@pytest.mark.parametrize(("visible", "hidden"), PAIRS)
def test_free_energy_sums_the_joint_energy_over_hidden_units(visible, hidden):
    rbm = machine(visible, hidden)
    for v in points(rbm)[:5]:
        np.testing.assert_allclose(rbm(v), sum_over_hidden(rbm, v), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("visible", "hidden"), PAIRS)
def test_log_z_is_the_sum_over_visible_points(visible, hidden):
    rbm = machine(visible, hidden)
    if (visible not in FINITE and hidden == "relu") or (visible, hidden) == ("replicated softmax", "gaussian"):
        assert rbm.exact_log_z() is None
        return
    if visible == "gaussian":
        # through a function, so that the machine's own log Z is not used
        expected = tw.exact.log_z(lambda v: rbm(v), tw.Real(2))
    else:
        expected = jax.nn.logsumexp(-jax.vmap(rbm)(points(rbm)))
    np.testing.assert_allclose(rbm.log_z, expected, rtol=1e-5)


@pytest.mark.parametrize(("visible", "hidden"), PAIRS)
def test_conditionals_are_the_joint_normalised(visible, hidden):
    rbm = machine(visible, hidden)
    v = points(rbm)[2]
    h = rbm.posterior(v).sample(KEY)
    assert bool(rbm.hidden.space.contains(h))
    np.testing.assert_allclose(rbm.posterior(v).log_prob(h), rbm(v) - rbm(v, h), rtol=1e-4, atol=1e-5)
    everything = points(rbm)
    if visible != "gaussian":
        log_p = jax.vmap(rbm.likelihood(h).log_prob)(everything)
        np.testing.assert_allclose(log_p, jax.nn.log_softmax(-jax.vmap(lambda v: rbm(v, h))(everything)), atol=1e-4)


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("visible", FINITE)
def test_gibbs_and_tempering_leave_the_machine_invariant(visible, hidden):
    rbm = machine(visible, hidden)
    tempering = tw.samplers.ParallelTempering(tw.samplers.Gibbs(), [1.0, 2.0, 5.0])
    for kernel, seed in ((tw.samplers.Gibbs(), 1), (tempering, 2)):
        verdict = tw.check_sampler(kernel, rbm, key=jax.random.key(seed), chains=20_000, steps=5)
        assert verdict.passed, verdict


def test_a_machine_at_another_temperature_without_its_accept_step_is_another_distribution():
    """The free energy of E/T is not F/T: the check sees it."""
    rbm = machine("bernoulli", "bernoulli")
    laws = [tw.tempered(rbm, 3.0), rbm.heated(jnp.array(1 / 3))[0]]
    p, q = (tw.exact.probabilities(lambda v, law=law: law(v), tw.Binary(4)) for law in laws)
    assert float(jnp.sum(jnp.abs(p - q))) > 0.01
    np.testing.assert_allclose(jax.vmap(laws[0])(points(rbm)), jax.vmap(rbm)(points(rbm)) / 3.0, rtol=1e-6)


def test_log_z_of_a_large_machine_sums_the_smaller_layer_and_refuses_two_large_ones():
    small = te.RBM(60, te.BernoulliUnits(numbers(1, 8)), numbers(2, 60, 8))
    turned = te.RBM(te.BernoulliUnits(numbers(1, 8)), 60, numbers(2, 60, 8).T)
    np.testing.assert_allclose(small.log_z, turned.log_z, rtol=1e-6)
    np.testing.assert_allclose(tw.exact.log_z(small), small.log_z)
    large = te.RBM(26, 26, 0.0)
    assert large.exact_log_z() is None
    np.testing.assert_allclose(large.log_z_uncoupled(), 52 * np.log(2), rtol=1e-6)
    with pytest.raises(ValueError, match="expected a layer of at most 25 discrete units"):
        _ = large.log_z


def test_two_gaussian_layers_have_an_infinite_z_once_training_makes_them_so():
    rbm = machine("gaussian", "gaussian")
    assert bool(jnp.isfinite(rbm.log_z))
    grown = eqx.tree_at(lambda rbm: rbm.weights, rbm, 10 * rbm.weights)
    assert float(grown.log_z) == float("inf")


def test_clamped_units_keep_their_values_and_the_others_their_conditional():
    rbm = machine("bernoulli", "bernoulli")
    held = tw.clamp(rbm, np.array([True, False, False, True]), np.array([1, 0, 0, 1]))
    for kernel in (tw.samplers.Gibbs(), tw.samplers.ParallelTempering(tw.samplers.Gibbs(), [1.0, 3.0])):
        verdict = tw.check_sampler(kernel, held, key=KEY, chains=20_000, steps=5)
        assert verdict.passed, verdict


@pytest.mark.parametrize(("visible", "hidden"), PAIRS)
def test_closed_form_gradients_equal_autodiff(visible, hidden):
    """``∂F/∂W = -T(v) E[T(h) | v]ᵀ`` and ``∂F/∂b = -T(v)·∂θ/∂b + …``; the means are the slopes of the normalisers."""
    rbm = machine(visible, hidden)
    v = points(rbm)[1]
    slopes = jax.grad(lambda rbm: rbm(v))(rbm)
    means = rbm.hidden_means(v[None])[0]
    statistics = rbm.visible.statistics(v)
    np.testing.assert_allclose(slopes.weights, -np.outer(statistics, means), rtol=1e-5, atol=1e-5)
    length = float(rbm.visible.weight(v))
    hidden_bias = -length * means / rbm.hidden.slope
    if hidden == "gaussian":  # (h - c)²/2σ² also depends on c by itself
        hidden_bias = hidden_bias + rbm.hidden.bias / rbm.hidden.scale**2
    np.testing.assert_allclose(slopes.hidden.bias, hidden_bias, rtol=1e-5, atol=1e-5)
    visible_bias = -statistics.reshape(rbm.visible.bias.shape)
    if visible == "gaussian":
        scale = rbm.visible.scale
        visible_bias = -(v - rbm.visible.bias) / scale**2
        # E = (v - b)²/2σ² - vᵀWh/σ, so ∂F/∂log σ = -(v - b)²/σ² + vᵀW E[h]/σ
        log_scale = -((v - rbm.visible.bias) ** 2) / scale**2 + v * (rbm.weights @ means) / scale
        np.testing.assert_allclose(slopes.visible.log_scale, log_scale, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(slopes.visible.bias, visible_bias, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("hidden", HIDDEN)
def test_the_sweep_of_gaussian_visible_units_leaves_their_law(hidden):
    """Chains that start at exact draws of (v, h), by composition through a long run of the pair, do not drift."""
    rbm = machine("gaussian", hidden)
    settings = dict(key=jax.random.key(3), draws=1, burn_in=60)
    start = (jnp.zeros((20_000, 2)), rbm.hidden.space.noise(jax.random.key(1), (20_000,)))
    visible, latent = tw.sample(rbm.joint, tw.samplers.Gibbs(), start, **settings).draws
    mean, covariance = tw.exact.moments(lambda v: rbm(v), tw.Real(2))
    for draws in (visible[:, 0], rbm.sweep(jax.random.key(5), visible[:, 0])):
        np.testing.assert_allclose(draws.mean(0), mean, atol=5 * np.sqrt(np.diag(covariance).max() / 20_000))
        np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.06 * float(jnp.max(covariance)))
    means = rbm.hidden_means(visible[:, 0]).mean(0)
    np.testing.assert_allclose(rbm.hidden.statistics(latent[:, 0]).mean(0), means, atol=0.06)


@pytest.mark.parametrize(("visible", "hidden"), [pair for pair in PAIRS if set(pair) <= {"bernoulli", "spin"}])
def test_the_joint_energy_is_swept_and_tempered_without_an_accept_step(visible, hidden):
    rbm = machine(visible, hidden)
    pair = tw.tempered(rbm.joint, 3.0)
    assert tw.space_of(pair).shape == ((4,), (3,))
    states = [(v, h) for v in points(rbm) for h in rbm.hidden.space.states(0, 8)]
    weights = np.asarray([float(-pair(state)) for state in states])
    np.testing.assert_allclose(weights, [-float(rbm(*state)) / 3 for state in states], rtol=1e-5)
    chosen = np.random.default_rng(0).choice(len(states), 20_000, p=np.exp(weights) / np.exp(weights).sum())
    start = tuple(jnp.stack([states[i][part] for i in range(len(states))])[chosen] for part in (0, 1))
    exact = lambda key, shape: start
    verdict = tw.check_sampler(tw.samplers.Gibbs(), pair, key=KEY, chains=20_000, steps=5, exact=exact)
    assert verdict.passed, verdict


def test_rectified_units_draw_a_truncated_normal_also_far_in_the_tail():
    """The distribution function of the draws is uniform: P(x > t) = Φ(θ - t)/Φ(θ)."""
    for theta in (-30.0, -8.0, -4.0, -1.0, 0.0, 3.0):
        x = np.asarray(te.ReLUUnits(1).sample(jax.random.key(2), jnp.full((20_000, 1), theta)), np.float64)[:, 0]
        share = np.exp(stats.norm.logcdf(theta - x) - stats.norm.logcdf(theta))
        assert stats.kstest(share, "uniform").pvalue > 1e-4, theta
        assert np.all(x > 0)


def test_word_counts_keep_the_length_of_a_document_and_their_law():
    rbm = machine("replicated softmax", "bernoulli")
    states = points(rbm)
    for law in (rbm, tw.tempered(rbm, 2.0)):
        p = np.asarray(jax.nn.softmax(-jax.vmap(law)(states)), np.float64)
        start = states[np.random.default_rng(0).choice(len(states), 20_000, p=p / p.sum())]
        swept = np.asarray(law.sweep(KEY, start))
        assert np.all(swept.sum(1) == 3)
        counts = [np.mean(np.all(swept == np.asarray(state), axis=1)) for state in states]
        np.testing.assert_allclose(counts, p, atol=5 * np.sqrt(0.25 / 20_000))
    held = rbm.sweep(KEY, start, np.array([False, True, True]))
    assert bool(jnp.all(held[:, 0] == start[:, 0])) and bool(jnp.any(held != start)) and bool(jnp.all(held.sum(1) == 3))
    clamped = tw.clamp(rbm, np.array([True, False, False]), np.array([1, 0, 0]))
    again = tw.sample(clamped, tw.samplers.Gibbs(), states[states[:, 0] == 1], key=KEY, draws=5).draws
    assert bool(jnp.all(again[..., 0] == 1)) and bool(jnp.all(again.sum(-1) == 3))
    with pytest.raises(ValueError, match="expected the number of words"):
        te.RBM(te.ReplicatedSoftmaxUnits(3), 2, 0.0).exact_log_z()


def test_from_data_guesses_the_units_and_starts_at_the_data_s_means():
    generator = np.random.default_rng(0)
    rows = {
        "BernoulliUnits": generator.integers(0, 2, (500, 4)),
        "SpinUnits": generator.choice([-1, 1], (500, 4)),
        "CategoricalUnits": generator.integers(0, 5, (500, 4)),
        "ReplicatedSoftmaxUnits": generator.poisson(20, (500, 4)),
        "GaussianUnits": generator.normal(3.0, 2.0, (500, 4)),
    }
    for name, data in rows.items():
        rbm = te.RBM.from_data(data, 3, key=KEY)
        assert type(rbm.visible).__name__ == name
        free = te.RBM(rbm.visible, 3, 0.0)
        statistics = free.visible.statistics(tw.spaces.as_points(free.space, data))
        weight = jnp.mean(free.visible.weight(jnp.asarray(data)))
        means = free.visible.mean(free.visible.natural, weight)
        np.testing.assert_allclose(means, statistics.mean(0), rtol=0.02, atol=2e-3)
    chosen = te.RBM.from_data(rows["CategoricalUnits"], 3, key=KEY, visible=te.CategoricalUnits(4, k=6))
    assert chosen.weights.shape == (24, 3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: te.RBM(4, 3), "expected weights or a key"),
        (lambda: te.RBM(4, 3, np.zeros((3, 4))), r"expected weights of shape \(4, 3\)"),
        (lambda: te.RBM(te.ReLUUnits(4), 3, 0.0), "expected visible units, one of BernoulliUnits"),
        (lambda: te.RBM(4, te.CategoricalUnits(3, k=2), 0.0), "expected hidden units, one of BernoulliUnits"),
        (lambda: te.RBM(te.GaussianUnits(2), te.GaussianUnits(2), 2.0), "singular values below 1"),
        (lambda: te.RBM(4.5, 3, 0.0), "expected the number of visible units to be a whole number"),
        (lambda: te.RBM.from_data(np.zeros((3, 2, 2)), 3, key=KEY), "flatten pictures"),
        (lambda: te.RBM.from_data([["a"]], 3, key=KEY), "expected data as numbers"),
        (lambda: te.RBM(4, 3, 0.0)(jnp.zeros(5)), r"expected one point of shape \(4,\)"),
        (lambda: te.RBM(4, 3, 0.0)(jnp.zeros(4), jnp.zeros(2)), r"expected one point of shape \(3,\)"),
        (
            lambda: te.RBM.from_data([[1, 2], [3, 9]], 2, key=KEY, visible=te.CategoricalUnits(2, k=6)),
            r"expected points of Categorical.* in data, got \[3 9\] in row 1, column 1; correct it",
        ),
        (
            lambda: te.RBM.from_data([[1, 0], [1, 0.5]], 2, key=KEY, visible=te.BernoulliUnits(2)),
            "expected whole numbers in data, got 0.5 in row 1, column 1",
        ),
        (lambda: te.CategoricalUnits(np.zeros(3)), r"expected biases \(units, labels\)"),
        (lambda: te.GaussianUnits(3, [1.0, -1.0, 1.0]), "expected scale > 0"),
        (lambda: tw.samplers.Gibbs().transition_matrix(te.RBM(4, 3, 0.0)), "expected an energy with full conditionals"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("visible", ["bernoulli", "spin", "categorical", "gaussian"])
def test_missing_units_are_left_out_of_the_machine(visible):
    """The machine of the observed units is the one built from their biases and weights alone."""
    rbm = machine(visible, "bernoulli")
    count = rbm.visible.units
    mask = np.arange(count) != 1
    kept = rbm.visible.bias[mask]
    units = te.GaussianUnits(kept, rbm.visible.scale[mask]) if visible == "gaussian" else type(rbm.visible)(kept)
    part = te.RBM(units, rbm.hidden, rbm.weights[np.asarray(rbm.visible.spread(jnp.asarray(mask)))])
    given = tw.given(rbm.masked, jnp.asarray(mask, int))
    v = points(rbm)[3]
    np.testing.assert_allclose(given(v), part(v[mask]), rtol=1e-5)
    np.testing.assert_allclose(given.log_z, part.log_z, rtol=1e-5)
    wide = te.RBM(rbm.visible, te.GaussianUnits(3), 0.1 * rbm.weights)
    narrow = te.RBM(units, te.GaussianUnits(3), 0.1 * part.weights)
    np.testing.assert_allclose(tw.given(wide.masked, jnp.asarray(mask, int)).log_z, narrow.log_z, rtol=1e-5)
    start = jnp.stack([v] * 5)
    swept = given.sweep(KEY, start)
    assert bool(jnp.all(swept[:, 1] == start[:, 1])) and bool(jnp.any(swept != start))


def test_a_machine_learns_from_rows_with_missing_units():
    """Two units always agree and the third is never observed: its weights stay, the pair is learned."""
    data = np.random.default_rng(0).integers(0, 2, (400, 3))
    data[:, 1] = data[:, 0]
    mask = np.tile([1, 1, 0], (400, 1))
    start = te.RBM(3, 2, 0.1 * numbers(3, 3, 2))
    objective = tw.objectives.MaximumLikelihood(tw.samplers.Gibbs(), 5, tw.samplers.from_data())
    settings = dict(optimizer=optax.sgd(0.5), steps=300, batch_size=200, key=KEY)
    run = tw.fit(start.masked, (data, mask), objective, **settings)
    learned = run.energy.rbm
    assert bool(jnp.all(learned.weights[2] == start.weights[2]))
    pair = tw.given(run.energy, jnp.array([1, 1, 0]))
    p = jnp.exp(jnp.array([-pair(jnp.array([a, b, 0])) - pair.log_z for a in (0, 1) for b in (0, 1)]))
    np.testing.assert_allclose(p.sum(), 1, rtol=1e-5)
    assert float(p[0] + p[3]) > 0.9
