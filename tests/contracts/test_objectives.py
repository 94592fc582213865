"""Every public objective keeps every promise of the contract; a name without a row fails."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg import objectives as to
from thalweg import samplers as ts
from thalweg.core import ConditionalEnergy, Energy, LatentEnergy, Objective, Space

PUBLIC = {
    name: getattr(to, name)
    for name in to.__all__
    if isinstance(getattr(to, name), type) and issubclass(getattr(to, name), Objective)
}


class Bowl(Energy):
    """``N(centre, 1)`` up to its constant."""

    centre: jax.Array
    space: Space = eqx.field(static=True, default=tw.Real(2))

    def __call__(self, x):
        return 0.5 * jnp.sum((x - self.centre) ** 2)


class Follows(ConditionalEnergy):
    """``x ~ N(Wc, 1)``."""

    weights: jax.Array
    space: Space = eqx.field(static=True, default=tw.Real(2))
    condition_space: Space = eqx.field(static=True, default=tw.Real(2))

    def __call__(self, x, c):
        return 0.5 * jnp.sum((x - self.weights @ c) ** 2)


class Labels(ConditionalEnergy):
    """Two spins that lean to ``Wc``."""

    weights: jax.Array
    space: Space = eqx.field(static=True, default=tw.Spin(2))
    condition_space: Space = eqx.field(static=True, default=tw.Real(2))

    def __call__(self, x, c):
        return -jnp.dot(self.weights @ c, x)


class Factor(LatentEnergy):
    """``x = w·z + N(0, 1)`` with ``z ~ N(0, 1)``."""

    weight: jax.Array
    space: Space = eqx.field(static=True, default=tw.Real(2))
    latent_space: Space = eqx.field(static=True, default=tw.Real(1))

    def __call__(self, x, z):
        return 0.5 * jnp.sum((x - self.weight * z) ** 2) + 0.5 * jnp.sum(z**2)


class Blurred(tw.core.ScoreNetwork):
    """The score of ``N(centre, 1 + σ²)``."""

    centre: jax.Array
    space: Space = eqx.field(static=True, default=tw.Real(2))

    def __call__(self, x, sigma):
        return (self.centre - x) / (1 + sigma**2)


BOWL, SPINS = lambda c: Bowl(jnp.full(2, c)), lambda c: tw.energies.Ising(c * (jnp.ones((2, 2)) - jnp.eye(2)), 0.1)
MACHINE = lambda c: tw.energies.RBM(tw.energies.SpinUnits(2), 3, c)
LINKED = lambda c: tw.energies.BoltzmannMachine(2, 1, c * (jnp.ones((3, 3)) - jnp.eye(3)))
WALK, SWEEPS = ts.MALA(0.5), to.MaximumLikelihood(ts.Gibbs(), 1, ts.persistent())
# the objective, the same with other numbers (or itself), and the model it trains
ROWS = {
    "NCE": (to.NCE(), to.NCE(), BOWL),
    "AdaBregman": (to.AdaBregman(to.Logistic(), 1, WALK, 2), to.AdaBregman(to.Logistic(), 1, ts.MALA(0.3), 2), BOWL),
    "AdaNCE": (to.AdaNCE(1, WALK, 2), to.AdaNCE(1, ts.MALA(0.3), 2), BOWL),
    "AdversarialNCE": (to.AdversarialNCE(), to.AdversarialNCE(), BOWL),
    "BoltzmannLikelihood": (to.BoltzmannLikelihood(), to.BoltzmannLikelihood(), LINKED),
    "BregmanRatio": (to.BregmanRatio(), to.BregmanRatio(), BOWL),
    "Centred": (to.Centred(SWEEPS), to.Centred(SWEEPS, rate=0.1), MACHINE),
    "ConditionalNCE": (to.ConditionalNCE(1.0), to.ConditionalNCE(0.5), BOWL),
    "DenoisingScoreMatching": (to.DenoisingScoreMatching(0.5), to.DenoisingScoreMatching(0.3), BOWL),
    "ExactLikelihood": (to.ExactLikelihood(), to.ExactLikelihood(), SPINS),
    "ExplicitScoreMatching": (to.ExplicitScoreMatching(BOWL(1.0)), to.ExplicitScoreMatching(BOWL(2.0)), BOWL),
    "FiniteDifferenceScoreMatching": (to.FiniteDifferenceScoreMatching(), to.FiniteDifferenceScoreMatching(), BOWL),
    "FlowNCE": (to.FlowNCE(), to.FlowNCE(), BOWL),
    "HutchinsonScoreMatching": (to.HutchinsonScoreMatching(), to.HutchinsonScoreMatching(), BOWL),
    "ImplicitScoreMatching": (to.ImplicitScoreMatching(), to.ImplicitScoreMatching(), BOWL),
    "LatentLikelihood": (to.LatentLikelihood(), to.LatentLikelihood(), lambda c: Factor(jnp.full(2, c))),
    "MaximumLikelihood": (to.MaximumLikelihood(WALK, 2), to.MaximumLikelihood(ts.MALA(0.3), 2), BOWL),
    "NoiseConditionalScoreMatching": (
        to.NoiseConditionalScoreMatching([1.0, 0.5]),
        to.NoiseConditionalScoreMatching([2.0, 0.4]),
        lambda c: Blurred(jnp.full(2, c)),
    ),
    "PseudoLikelihood": (to.PseudoLikelihood(), to.PseudoLikelihood(), SPINS),
    "RankNCE": (to.RankNCE(), to.RankNCE(), BOWL),
    "RatioMatching": (to.RatioMatching(), to.RatioMatching(), SPINS),
    "RegularisedScoreMatching": (to.RegularisedScoreMatching(0.1), to.RegularisedScoreMatching(0.2), BOWL),
    "Sparse": (to.Sparse(SWEEPS, 0.1, 1.0), to.Sparse(SWEEPS, 0.2, 2.0), MACHINE),
    "SlicedScoreMatching": (to.SlicedScoreMatching(), to.SlicedScoreMatching(), BOWL),
}
# of each family one is left to the quick tests; flows take seconds to compile
QUICK = {"NCE", "MaximumLikelihood", "DenoisingScoreMatching", "ImplicitScoreMatching", "PseudoLikelihood", "AdaNCE"}
QUICK |= {"ExactLikelihood", "NoiseConditionalScoreMatching"}
POINTS = np.asarray(jax.random.normal(jax.random.key(1), (64, 2)))
SIGNS = np.where(POINTS > 0, 1, -1)
CONDITIONS = np.asarray(jax.random.normal(jax.random.key(2), (64, 2)))


def fit(energy, objective, data, seed=0, steps=2):
    settings = dict(optimizer=optax.adam(1e-2), steps=steps, batch_size=16, key=jax.random.key(seed))
    return tw.fit(energy, data, objective, **settings)


def data_of(energy):
    binary = isinstance(tw.space_of(energy), tw.Binary)
    return (SIGNS + 1) // 2 if binary else SIGNS if isinstance(tw.space_of(energy), tw.Spin) else POINTS


def test_every_public_objective_has_a_row():
    assert set(ROWS) == set(PUBLIC)


SLOW = {name: [pytest.mark.slow] for name in ROWS if name not in QUICK}


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, [])) for name in ROWS])
def test_a_second_fit_compiles_nothing(name):
    """Other weights, other numbers of the objective, a new optimiser and other data of the same shapes."""
    first, second, model = ROWS[name]
    one, two = model(0.1), model(0.2)
    data, compilations = data_of(one), []
    run = fit(one, first, data)
    listen = lambda event, *_, **__: compilations.append(event) if "backend_compile" in event else None
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        again = fit(two, second, np.ascontiguousarray(data[::-1]), seed=1)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert not compilations
    assert type(run.energy) is type(one) and jax.tree.structure(again.energy) == jax.tree.structure(two)
    assert all(np.isfinite(values).all() for values in again.history.values())


def conditional_model(objective):
    """A model of (x, c) on a space that the objective takes."""
    spins = isinstance(objective, tw.core.DiscreteObjective | to.ExactLikelihood)
    return Labels(jnp.zeros((2, 2))) if spins else Follows(jnp.zeros((2, 2)))


LEARNS = [name for name in ROWS if PUBLIC[name].conditional]


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in LEARNS]
)
def test_a_conditional_objective_learns_from_pairs(name):
    """The points follow the conditions, ``x ≈ c``: an objective that looks at them raises the diagonal of W."""
    objective = ROWS[name][0]
    if name == "ExplicitScoreMatching":
        objective = to.ExplicitScoreMatching(Follows(jnp.eye(2)))
    model = conditional_model(objective)
    near = np.where(CONDITIONS > 0, 1, -1) if isinstance(model, Labels) else CONDITIONS + 0.1 * POINTS
    run = fit(model, objective, (near, CONDITIONS), steps=20)
    assert type(run.energy) is type(model)
    assert np.all(np.diag(np.asarray(run.energy.weights)) > 0.1)


@pytest.mark.parametrize("name", [name for name in ROWS if not PUBLIC[name].conditional])
def test_the_others_refuse_a_conditional_energy_by_name(name):
    if name == "NoiseConditionalScoreMatching":
        pytest.skip("its models are of (x, σ) themselves")
    with pytest.raises(ValueError, match=f"{name}.*conditional energy Follows|conditional energy Follows.*{name}"):
        fit(Follows(jnp.zeros((2, 2))), ROWS[name][0], (POINTS, CONDITIONS))
