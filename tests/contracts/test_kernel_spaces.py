"""Every public kernel on every space: right where it is accepted, refused by name where not, and starts are checked."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import energies as te
from thalweg import samplers as ts
from thalweg.core import Kernel

KERNELS = {name for name in ts.__all__ if isinstance(getattr(ts, name), type) and issubclass(getattr(ts, name), Kernel)}
PARTS = {
    "Real": te.Normal(jnp.array([0.5, -1.0]), jnp.array([1.0, 0.5])),
    "Positive": te.Gamma(jnp.array([2.0, 1.5]), 1.0),
    "Interval": te.Beta(jnp.array([2.0]), 1.5),
    "Simplex": te.Dirichlet(jnp.array([1.0, 2.0, 3.0])),
    "PositiveDefinite": te.Wishart(4.0, jnp.array([[1.0, 0.3], [0.3, 0.5]])),
}


class Whole:
    """All continuous spaces in one point: a law of independent parts."""

    space = tw.Product(**{name: part.space for name, part in PARTS.items()})
    energy = tw.as_energy(lambda x: sum(part(x[name]) for name, part in PARTS.items()), space)

    @staticmethod
    def sample(key, shape=()):
        keys = jax.random.split(key, len(PARTS))
        return {name: part.sample(key, shape) for key, (name, part) in zip(keys, PARTS.items(), strict=True)}


GRAPH = te.Graph([(0, 1), (1, 2), (0, 2)], 0.5)
SPACES = {
    **PARTS,
    "Product": Whole.energy,
    "Spin": te.Ising(GRAPH, 0.2),
    "Binary": te.Ising(GRAPH, 0.2, tw.Binary(3)),
    "Categorical": te.Potts(GRAPH, 3, jnp.arange(3) / 4),
    "Counts": te.Poisson(jnp.array([3.0, 1.0])),
}
CONTINUOUS = {*PARTS, "Product"}
FINITE = {"Spin", "Binary", "Categorical"}


class Jump(ts.Proposal):
    """One up or down in every coordinate: a proposal of whole numbers, symmetric on all spaces of them."""

    def propose(self, key, x):
        return x + jax.random.choice(key, jnp.array([-1, 0, 1]), x.shape)

    def log_ratio(self, x, proposed):
        return jnp.zeros(())


# the kernel, the spaces it accepts, and the name that a refusal has
ROWS = {
    "HMC": (ts.HMC(0.2, steps=3), CONTINUOUS, "HMC"),
    "MALA": (ts.MALA(0.1), CONTINUOUS, "MALA"),
    "NUTS": (ts.NUTS(0.3, max_doublings=3), CONTINUOUS, "NUTS"),
    "RandomWalk": (ts.RandomWalk(0.4), CONTINUOUS, "RandomWalk"),
    "Langevin": (ts.Langevin(0.002), CONTINUOUS, "Langevin"),
    "UnderdampedLangevin": (ts.UnderdampedLangevin(0.05), CONTINUOUS, "UnderdampedLangevin"),
    "GradientDescent": (ts.GradientDescent(0.01), CONTINUOUS, "GradientDescent"),
    "MetropolisHastings": (ts.MetropolisHastings(Jump()), {"Counts", "Categorical"}, None),
    "Independence": (ts.Independence(te.Gamma(jnp.ones(2), 0.5)), {"Positive"}, None),
    "AnnealedLangevin": (ts.AnnealedLangevin([1.0, 0.5], 5), {"Real"}, "AnnealedLangevin"),
    "Gibbs": (ts.Gibbs(), FINITE, "Gibbs"),
    "GibbsWithGradients": (ts.GibbsWithGradients(), FINITE, "GibbsWithGradients"),
    "Checkerboard": (ts.Checkerboard(), set(), "Checkerboard"),
    "PerPart": (
        ts.PerPart(**{name: ts.MALA(0.1) if name != "Simplex" else ts.RandomWalk(0.5) for name in PARTS}),
        {"Product"},
        "PerPart",
    ),
    "ParallelTempering": (ts.ParallelTempering(ts.HMC(0.2, steps=3), [1.0, 1.5]), CONTINUOUS, "HMC"),
    "SimulatedAnnealing": (ts.SimulatedAnnealing(ts.HMC(0.2, steps=3), 1.0001, 1.0, 5), CONTINUOUS, "HMC"),
}
# these leave the law of the target invariant; the tempered laws of most spaces have no exact samples
WITH_LAW = {name for name in ROWS if name not in ("GradientDescent", "AnnealedLangevin", "ParallelTempering")}
QUICK = {("HMC", "Simplex"), ("RandomWalk", "Product"), ("Gibbs", "Categorical"), ("GibbsWithGradients", "Binary")}
QUICK |= {("MetropolisHastings", "Counts"), ("Independence", "Positive")}


def pairs(chosen):
    listed = [
        (name, space) for name, (_, accepted, _) in ROWS.items() for space in SPACES if chosen(name, space, accepted)
    ]
    return [pair if pair in QUICK else pytest.param(*pair, marks=pytest.mark.slow) for pair in listed]


def points(space, count, key=1):
    energy = SPACES[space]
    if space == "Product":
        return Whole.sample(jax.random.key(key), (count,))
    if space in FINITE:
        return energy.space.noise(jax.random.key(key), (count,))
    return energy.sample(jax.random.key(key), (count,))


def test_every_public_kernel_has_a_row():
    assert set(ROWS) == KERNELS


@pytest.mark.parametrize("name, space", pairs(lambda name, space, accepted: space in accepted and name in WITH_LAW))
def test_the_law_stays_where_a_kernel_is_accepted(key, name, space):
    exact = Whole.sample if space == "Product" else None
    verdict = tw.check_sampler(ROWS[name][0], SPACES[space], key=key, exact=exact, chains=3000, steps=8)
    assert verdict.passed, verdict


def model_for(name, space):
    energy = SPACES[space]
    if name == "AnnealedLangevin":  # a model of (x, σ)
        return tw.core.as_conditional(lambda x, sigma: energy(x), energy.space)
    return energy


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name][2]])
def test_a_kernel_is_refused_by_name_elsewhere(key, name):
    kernel, accepted, said = ROWS[name]
    for space in set(SPACES) - accepted:
        with pytest.raises(ValueError) as caught:
            tw.sample(model_for(name, space), kernel, points(space, 2), key=jax.random.clone(key), draws=1)
        assert said in str(caught.value) and re.match("expected .+, got .+; .+", str(caught.value)), (
            space,
            caught.value,
        )


@pytest.mark.parametrize("name", ["Langevin", "UnderdampedLangevin", "GradientDescent", "ParallelTempering"])
@pytest.mark.slow
def test_chains_stay_in_their_space(key, name):
    draws = tw.sample(Whole.energy, ROWS[name][0], points("Product", 20), key=key, draws=20).draws
    for part, energy in PARTS.items():
        assert bool(jnp.all(jax.vmap(jax.vmap(energy.space.contains))(draws[part]))), part


@pytest.mark.parametrize("kind", ["uint8", "bool", "int8", "float32"])
@pytest.mark.parametrize("name", ["Gibbs", "GibbsWithGradients"])
def test_starts_of_another_type_are_the_same_starts(key, name, kind):
    kernel, start = ROWS[name][0], np.asarray(points("Binary", 6))
    run = lambda x: tw.sample(SPACES["Binary"], kernel, x, key=jax.random.clone(key), draws=5).draws
    np.testing.assert_array_equal(run(start), run(start.astype(kind)))
    assert run(start.astype(kind)).dtype == jnp.int32


OUTSIDE = {
    "Positive": [-1.0, 1.0],
    "Interval": [1.5],
    "Simplex": [0.5, 0.5, 0.5],
    "PositiveDefinite": [[1.0, 2.0], [2.0, 1.0]],
    "Spin": [0, 1, 1],
    "Binary": [0, 1, 7],
    "Categorical": [0, 1, 3],
    "Counts": [-1, 2],
}


@pytest.mark.parametrize("space", OUTSIDE)
def test_starts_outside_the_space_are_refused(key, space):
    name = next(name for name, (_, accepted, _) in ROWS.items() if space in accepted)
    starts = np.stack([np.asarray(points(space, 1))[0], np.asarray(OUTSIDE[space])])
    with pytest.raises(ValueError, match=f"expected points of {space}.* in init, got .* in row 1"):
        tw.sample(SPACES[space], ROWS[name][0], starts, key=key, draws=1)
