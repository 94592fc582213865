"""``p(x | c)``: every objective that says it can learns a Gaussian with mean Wc, or a label's logits, as known in
closed form; the others refuse by name."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import objectives, samplers
from thalweg.core import ConditionalEnergy, Energy, LatentEnergy, Objective, Space
from thalweg.objectives.finite_sums import states_at

WEIGHTS = jnp.array([[1.0, 0.5, -1.0], [0.0, 0.5, 1.0]])


class Linear(ConditionalEnergy):
    """``x ~ N(Wc, 1)``."""

    weights: jax.Array
    space: Space = eqx.field(static=True, default=tw.Real(2))
    condition_space: Space = eqx.field(static=True, default=tw.Real(3))

    def __call__(self, x, c):
        return 0.5 * jnp.sum((x - self.weights @ c) ** 2)


class Label(ConditionalEnergy):
    """A label y with logits ``Wc``: what a linear classifier is."""

    weights: jax.Array
    space: Space = eqx.field(static=True, default=tw.Categorical(1, 3))
    condition_space: Space = eqx.field(static=True, default=tw.Real(2))

    def __call__(self, x, c):
        return -(self.weights @ c)[x[0]]


CONDITIONS = jax.random.normal(jax.random.key(1), (1000, 3))
POINTS = CONDITIONS @ WEIGHTS.T + jax.random.normal(jax.random.key(2), (1000, 2))
# the maximum of the likelihood, by least squares
FITTED = np.linalg.lstsq(np.asarray(CONDITIONS), np.asarray(POINTS), rcond=None)[0].T
LABELS = jax.random.categorical(jax.random.key(3), CONDITIONS[:, :2] @ jnp.array([[1.0, 0.0, -1.0], [0.5, -1.0, 0.5]]))

REAL = {
    "ExplicitScoreMatching": (objectives.ExplicitScoreMatching(Linear(WEIGHTS)), 0.1),
    "ImplicitScoreMatching": (objectives.ImplicitScoreMatching(), 1e-2),
    "RegularisedScoreMatching": (objectives.RegularisedScoreMatching(0.01), 1e-2),
    "HutchinsonScoreMatching": (objectives.HutchinsonScoreMatching(projections=2), 1e-2),
    "SlicedScoreMatching": (objectives.SlicedScoreMatching(projections=2), 0.1),
    "FiniteDifferenceScoreMatching": (objectives.FiniteDifferenceScoreMatching(projections=2), 0.1),
    "DenoisingScoreMatching": (objectives.DenoisingScoreMatching(0.5), 0.1),
    "RankNCE": (objectives.RankNCE(candidates=10), 0.1),
    "ConditionalNCE": (objectives.ConditionalNCE(1.0), 0.15),
    "MaximumLikelihood": (objectives.MaximumLikelihood(samplers.MALA(0.8), 4, samplers.persistent()), 0.1),
    "AdaNCE": (objectives.AdaNCE(2, samplers.MALA(0.8), 4, samplers.ReplayBuffer(3000), anchor=2), 0.1),
    "AdaBregman": (objectives.AdaBregman(objectives.Power(0.2), 1, samplers.MALA(0.8), 4, samplers.from_data()), 0.1),
}
# of each family one is left to the quick tests
SLOW = ("RegularisedScoreMatching", "SlicedScoreMatching", "FiniteDifferenceScoreMatching", "AdaNCE", "AdaBregman")
NOISY = ("RankNCE", "ConditionalNCE")
FINITE = {
    "ExactLikelihood": objectives.ExactLikelihood(),
    "PseudoLikelihood": objectives.PseudoLikelihood(),
    "RatioMatching": objectives.RatioMatching(),
}
REFUSE = {
    "NCE": (objectives.NCE(), "one log Z, .*use RankNCE or ConditionalNCE, in which"),
    "BregmanRatio": (objectives.BregmanRatio(), "one log Z, .*use RankNCE or ConditionalNCE, in which"),
    "FlowNCE": (objectives.FlowNCE(), "use RankNCE or ConditionalNCE, in which"),
    "AdversarialNCE": (objectives.AdversarialNCE(), "use RankNCE or ConditionalNCE, in which"),
    "BoltzmannLikelihood": (objectives.BoltzmannLikelihood(), "got the conditional energy Linear"),
    "Centred": (objectives.Centred(objectives.ExactLikelihood()), "got the conditional energy Linear"),
    "Sparse": (objectives.Sparse(objectives.ExactLikelihood(), 0.1, 1.0), "got the conditional energy Linear"),
    "LatentLikelihood": (objectives.LatentLikelihood(tw.Real(1)), "got the conditional energy Linear"),
    "NoiseConditionalScoreMatching": (objectives.NoiseConditionalScoreMatching(), "expected points that are one array"),
}


def test_every_objective_has_a_row_and_says_what_it_does():
    public = {name: getattr(objectives, name) for name in objectives.__all__}
    public = {name: kind for name, kind in public.items() if isinstance(kind, type) and issubclass(kind, Objective)}
    assert set(REAL) | set(FINITE) | set(REFUSE) == set(public)
    for name, kind in public.items():
        assert kind.conditional == (name not in REFUSE), name


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in REAL])
def test_the_mean_of_a_conditional_gaussian_is_learned(name, key, descend):
    objective, near = REAL[name]
    energy = descend(objective, Linear(jnp.zeros((2, 3))), (POINTS, CONDITIONS), key, steps=150)
    assert isinstance(energy, Linear)
    assert np.max(np.abs(np.asarray(energy.weights) - FITTED)) < near


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MaximumLikelihood", "AdaNCE"])
def test_fit_learns_it_from_pairs(name, key):
    import optax

    run = tw.fit(
        Linear(jnp.zeros((2, 3))),
        (POINTS, CONDITIONS),
        REAL[name][0],
        optimizer=optax.adam(optax.cosine_decay_schedule(0.05, 200)),
        steps=200,
        batch_size=500,
        key=key,
    )
    assert np.max(np.abs(np.asarray(run.energy.weights) - FITTED)) < 0.2


@pytest.mark.parametrize("name", [*FINITE, *(pytest.param(name, marks=pytest.mark.slow) for name in NOISY)])
def test_a_label_is_learned_as_by_logistic_regression(name, key, descend):
    """The probabilities of the labels are those of the cross-entropy's minimum, found here by plain descent."""
    data = (LABELS[:, None], CONDITIONS[:, :2])
    objective = FINITE[name] if name in FINITE else getattr(objectives, name)()
    energy = descend(objective, Label(jnp.zeros((3, 2))), data, key, steps=200)

    def cross_entropy(weights):
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(data[1] @ weights.T), data[0], axis=1))

    step = lambda _, weights: weights - 2.0 * jax.grad(cross_entropy)(weights)
    weights = jax.lax.fori_loop(0, 300, step, jnp.zeros((3, 2)))
    ours, right = (jax.nn.softmax(data[1] @ w.T) for w in (energy.weights, weights))
    near = 5e-3 if name in ("ExactLikelihood", "PseudoLikelihood") else 0.06
    assert np.max(np.abs(ours - right)) < near
    if name == "ExactLikelihood":
        loss, _ = objective.loss(key, energy, None, None, data)
        assert float(loss) == pytest.approx(float(cross_entropy(energy.weights)), rel=1e-5)


class Together(Energy):
    """Bits and a label, together."""

    weights: jax.Array
    space: Space = eqx.field(static=True, default=tw.Product(bits=tw.Binary(3), label=tw.Categorical((), 4)))

    def __call__(self, x):
        return -(self.weights @ x["bits"])[x["label"]]


def test_the_joint_on_a_finite_product_is_summed_exactly(key):
    energy = Together(jax.random.normal(key, (4, 3)))
    states = states_at(energy.space, jnp.arange(32))
    assert len(set(map(tuple, np.column_stack([states["bits"], states["label"]]).tolist()))) == 32
    objective = objectives.ExactLikelihood()
    batch = energy.space.noise(key, (50,))
    assert objective.init(key, energy, batch) == (None, None)
    loss, step = objective.loss(key, energy, None, None, batch)
    log_z = np.log(np.sum(np.exp(-np.asarray(jax.vmap(energy)(states), np.float64))))
    assert float(step.metrics["log_z"]) == pytest.approx(log_z, rel=1e-5)
    assert float(loss) == pytest.approx(float(jnp.mean(jax.vmap(energy)(batch))) + log_z, rel=1e-5)


@pytest.mark.parametrize("name", REFUSE)
def test_the_others_refuse_a_condition_by_name(name, key):
    objective, sentence = REFUSE[name]
    with pytest.raises(ValueError, match=sentence):
        objective.init(key, Linear(WEIGHTS), (POINTS, CONDITIONS))


@pytest.mark.parametrize("name", ["ImplicitScoreMatching", "RankNCE", "ConditionalNCE", "MaximumLikelihood", "AdaNCE"])
def test_conditions_that_do_not_fit_get_a_sentence(name, key):
    objective, energy = REAL[name][0], Linear(WEIGHTS)
    with pytest.raises(ValueError, match=r"expected batches \(x, c\) for the conditional energy Linear"):
        objective.init(key, energy, POINTS)
    with pytest.raises(ValueError, match=r"expected the conditions of shape \(n, 3\)"):
        objective.init(key, energy, (POINTS, CONDITIONS[:, :2]))
    with pytest.raises(ValueError, match="expected one condition for each point, got 5 and 1000 rows"):
        objective.init(key, energy, (POINTS, CONDITIONS[:5]))
    plain = tw.energies.Gaussian(jnp.zeros(2), jnp.ones(2))
    with pytest.raises(ValueError, match="got a tuple of 2; leave the labels out, or give a ConditionalEnergy"):
        objective.init(key, plain, (POINTS, CONDITIONS))


def test_an_integral_for_every_row_is_refused(key):
    with pytest.raises(ValueError, match="expected a finite space of x for ExactLikelihood of a conditional energy"):
        objectives.ExactLikelihood().init(key, Linear(WEIGHTS), (POINTS, CONDITIONS))


def test_a_latent_energy_is_sent_to_its_objective(key):
    class Latent(LatentEnergy):
        space: Space = eqx.field(static=True, default=tw.Real(2))
        latent_space: Space = eqx.field(static=True, default=tw.Real(1))

        def __call__(self, x, z):
            return jnp.sum(x**2) + jnp.sum(z**2)

    with pytest.raises(ValueError, match="for NCE, got the latent energy Latent; use LatentLikelihood"):
        objectives.NCE().init(key, Latent(), POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["HutchinsonScoreMatching", "RankNCE", "MaximumLikelihood"])
def test_the_check_passes_on_pairs(name, key):
    def pairs(key, shape):
        key_c, key_x = jax.random.split(key)
        c = jax.random.normal(key_c, (*shape, 3))
        return c @ WEIGHTS.T + jax.random.normal(key_x, (*shape, 2)), c

    objective = REAL[name][0]
    if name == "MaximumLikelihood":
        objective = objectives.MaximumLikelihood(samplers.MALA(0.8), 2, samplers.from_data())
    verdict = tw.check_objective(objective, key=key, energy=Linear(WEIGHTS), exact=pairs, batches=100)
    assert verdict.passed, verdict.text
