"""Every public kernel keeps every promise of the contract; a kernel without a row fails."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import samplers as ts
from thalweg.core import Kernel, PerChain
from thalweg.samplers.single_chain import init_chains, retarget_chains, step_chains

KERNELS = {
    name
    for name in ts.__all__
    if isinstance(getattr(ts, name), type) and issubclass(getattr(ts, name), Kernel) and name != "Kernel"
}


class Target(NamedTuple):
    """A family of laws, one for each value of ``shift``: their energies, and exact samples at any temperature."""

    energy: Callable[[Any], Any]
    sample: Callable[[Any, Any, Any, float], Any]  # (key, count, shift, temperature), shift (count,) or one number
    space: Any
    start: Callable[[int], Any]


def column(shift):
    return jnp.reshape(shift, (-1, 1))


GAUSS = Target(
    lambda shift: tw.as_energy(Shifted(jnp.asarray(shift)), tw.Real(2)),
    lambda key, n, shift, heat: column(shift) + jnp.sqrt(heat) * jax.random.normal(key, (n, 2)) * SPREAD,
    tw.Real(2),
    lambda n: jnp.linspace(-1.0, 1.0, 2 * n).reshape(n, 2),
)
SPREAD = jnp.array([1.0, 0.7])


class Shifted(eqx.Module):
    shift: jax.Array

    def __call__(self, x):
        return 0.5 * jnp.sum(((x - self.shift) / SPREAD) ** 2)


def enumerated(energy):
    """Exact samples of a finite target at several shifts, by the probabilities of all its states."""

    def sample(key, n, shift, heat):
        shift = np.broadcast_to(np.asarray(shift, float), (n,))
        space = energy(0.0).space
        states, uniform = np.asarray(space.states(0, space.size)), np.asarray(jax.random.uniform(key, (n,)), float)
        x = np.zeros((n, *space.shape), int)
        for value in np.unique(shift):
            law = np.exp(-np.asarray(jax.vmap(energy(float(value)))(states), float) / heat)
            chosen = np.searchsorted(np.cumsum(law / law.sum()), uniform[shift == value])
            x[shift == value] = states[np.minimum(chosen, len(states) - 1)]
        return jnp.asarray(x)

    return sample


def finite(energy):
    space = energy(0.0).space
    return Target(energy, enumerated(energy), space, lambda n: space.noise(jax.random.key(5), (n,)))


EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
SPINS = finite(lambda shift: tw.energies.Ising(tw.energies.Graph(EDGES, [0.8, -0.5, 0.4, 0.3, 0.6]), 0.2 + shift))
TORUS = finite(lambda shift: tw.energies.Ising(tw.energies.Grid((4, 4), weight=0.2), 0.1 + shift))
LABELS = finite(
    lambda shift: tw.energies.Potts(tw.energies.Graph(EDGES[:3], 0.7), 3, jnp.array([0.0, 0.3, 0.1]) + shift)
)
BITS = finite(lambda shift: tw.energies.Ising(tw.energies.Graph(EDGES, 0.5), 0.2 + shift, tw.Binary(4)))
MIXED_SPACE = tw.Product(tw.Real(1), tw.Binary(2))


class Mixed(eqx.Module):
    """``x | b ~ N(Σb, T)`` and independent bits with ``p(b = 1) = σ(shift/T)``."""

    shift: jax.Array

    def __call__(self, x):
        return 0.5 * jnp.sum((x[0] - jnp.sum(x[1])) ** 2) - self.shift * jnp.sum(x[1])


def sample_mixed(key, n, shift, heat):
    key_bits, key_real = jax.random.split(key)
    bits = jax.random.bernoulli(key_bits, jax.nn.sigmoid(column(shift) / heat), (n, 2)).astype(int)
    return bits.sum(axis=1, keepdims=True) + jnp.sqrt(heat) * jax.random.normal(key_real, (n, 1)), bits


MIXED = Target(
    lambda shift: tw.as_energy(Mixed(jnp.asarray(shift)), MIXED_SPACE),
    sample_mixed,
    MIXED_SPACE,
    lambda n: (jnp.zeros((n, 1)), jnp.zeros((n, 2), int)),
)
SIGMA, EPSILON, TAU = 0.5, 0.3, 0.4
# one noise level: Langevin on N(shift, 1 + σ²), of which the chain makes a variance of its own
NOISY = Target(
    lambda shift: NoisyScore(jnp.asarray(shift)),
    lambda key, n, shift, heat: (
        column(shift) + jnp.sqrt((1 + SIGMA**2) / (1 - EPSILON / (4 * (1 + SIGMA**2)))) * jax.random.normal(key, (n, 2))
    ),
    None,
    GAUSS.start,
)
# Langevin's own law is wider than the target's: 1/(1 - τ/4)
ROUND = Target(
    lambda shift: tw.as_energy(Round(jnp.asarray(shift)), tw.Real(2)),
    lambda key, n, shift, heat: (
        column(shift) + jnp.sqrt(heat / (1 - TAU / (4 * heat))) * jax.random.normal(key, (n, 2))
    ),
    tw.Real(2),
    GAUSS.start,
)


class NoisyScore(eqx.Module):
    shift: jax.Array

    def __call__(self, x, sigma):
        return 0.5 * jnp.sum((x - self.shift) ** 2) / (1 + sigma**2)


class Round(eqx.Module):
    shift: jax.Array

    def __call__(self, x):
        return 0.5 * jnp.sum((x - self.shift) ** 2)


class Walk(ts.Proposal):
    """A step of the given width in every real coordinate of a point."""

    width: Any = eqx.field(converter=jnp.asarray)

    def propose(self, key, x):
        leaves, form = jax.tree.flatten(x)
        keys = jax.random.split(key, len(leaves))
        move = lambda key, leaf: leaf + self.width * jax.random.normal(key, leaf.shape, leaf.dtype)
        return jax.tree.unflatten(form, [move(*pair) for pair in zip(keys, leaves, strict=True)])

    def log_ratio(self, x, proposed):
        return jnp.zeros(())


class Row(NamedTuple):
    """A kernel at numbers that suit its target, and the same with other numbers, which must compile nothing."""

    kernel: Any
    other: Any
    target: Target = GAUSS
    samples: bool = True  # whether its draws have a law; an optimiser's have none
    inside: bool = True  # whether it may run inside tempering and annealing
    trees: bool = False  # whether points may be any trees


WIDE, WIDER = tw.energies.Gaussian(jnp.zeros(2), 4 * jnp.eye(2)), tw.energies.Gaussian(jnp.ones(2), 5 * jnp.eye(2))
ROWS = {
    "HMC": Row(ts.HMC(0.5, steps=3), ts.HMC(0.4, steps=2), trees=True),
    "MALA": Row(ts.MALA(0.5), ts.MALA(0.3), trees=True),
    "NUTS": Row(ts.NUTS(0.6, max_doublings=3), ts.NUTS(0.5, max_doublings=3), trees=True),
    "RandomWalk": Row(ts.RandomWalk(0.8), ts.RandomWalk(0.5), trees=True),
    "Langevin": Row(ts.Langevin(TAU), ts.Langevin(0.2), ROUND, trees=True),
    "UnderdampedLangevin": Row(ts.UnderdampedLangevin(0.3, 2.0), ts.UnderdampedLangevin(0.2), trees=True),
    "GradientDescent": Row(ts.GradientDescent(0.5, 0.1), ts.GradientDescent(0.2), samples=False, trees=True),
    "MetropolisHastings": Row(ts.MetropolisHastings(Walk(0.8)), ts.MetropolisHastings(Walk(0.5)), trees=True),
    "Independence": Row(ts.Independence(WIDE), ts.Independence(WIDER)),
    "AnnealedLangevin": Row(
        ts.AnnealedLangevin([SIGMA], 5, EPSILON), ts.AnnealedLangevin([0.4], 5, 0.1), NOISY, inside=False
    ),
    "Gibbs": Row(ts.Gibbs(), ts.Gibbs(), SPINS),
    "GibbsWithGradients": Row(ts.GibbsWithGradients(), ts.GibbsWithGradients(), SPINS),
    "Checkerboard": Row(ts.Checkerboard(), ts.Checkerboard(), TORUS),
    "PerPart": Row(
        ts.PerPart(ts.HMC(0.8, steps=2), ts.GibbsWithGradients()),
        ts.PerPart(ts.HMC(0.5, steps=3), ts.GibbsWithGradients()),
        MIXED,
    ),
    "ParallelTempering": Row(
        ts.ParallelTempering(ts.HMC(0.5, steps=3), [1.0, 2.0, 4.0]),
        ts.ParallelTempering(ts.HMC(0.4, steps=2), [1.0, 3.0, 5.0]),
        inside=False,
        trees=True,
    ),
    "SimulatedAnnealing": Row(
        ts.SimulatedAnnealing(ts.HMC(0.5, steps=3), 1.0001, 1.0, 5),
        ts.SimulatedAnnealing(ts.HMC(0.4, steps=2), 1.1, 0.9, 5),
        inside=False,
        trees=True,
    ),
}
SAMPLING = [name for name, row in ROWS.items() if row.samples]
INSIDE = [name for name, row in ROWS.items() if row.samples and row.inside]
TREES = [name for name, row in ROWS.items() if row.trees]
CHAINS = 3000
# these have each kind of state: positions alone, energies, gradients, velocities, spins
QUICK = {"RandomWalk", "HMC", "UnderdampedLangevin", "Gibbs", "GibbsWithGradients"}


def quick_first(names):
    """All names, those outside `QUICK` as slow tests."""
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]


def test_every_public_kernel_has_a_row():
    assert set(ROWS) == KERNELS


def exact(row, kernel, shift=0.0):
    """Exact samplers for `check_sampler`: one, or one for each temperature of a ladder."""
    at = lambda heat: lambda key, shape: row.target.sample(key, shape[0], shift, float(heat))
    return [at(heat) for heat in kernel.temperatures] if isinstance(kernel, ts.ParallelTempering) else at(1.0)


def assert_law(key, kernel, row, energy=None, shift=0.0, chains=CHAINS, steps=8):
    energy = row.target.energy(shift) if energy is None else energy
    if isinstance(kernel, ts.AnnealedLangevin):  # a model of (x, σ): its law is checked at its level
        kernel, energy = ts.Langevin(EPSILON), over_level(energy)
    settings = dict(exact=exact(row, kernel, shift), chains=chains, steps=steps)
    verdict = tw.check_sampler(kernel, energy, key=key, **settings)
    assert verdict.passed, verdict


def over_level(energy):
    return energy if isinstance(energy, PerChain) else tw.given(energy, SIGMA)


@pytest.mark.parametrize("name", SAMPLING)
def test_alone_the_law_stays(key, name):
    assert_law(key, ROWS[name].kernel, ROWS[name])


def test_annealed_langevin_is_langevin_at_its_last_level(key):
    row = ROWS["AnnealedLangevin"]
    x = row.target.sample(jax.random.key(1), 4000, 0.0, 1.0)
    end = tw.sample(row.target.energy(0.0), row.kernel, x, key=key, draws=1, thin=20).draws[:, 0]
    wanted = (1 + SIGMA**2) / (1 - EPSILON / (4 * (1 + SIGMA**2)))
    assert abs(end.var() - wanted) < 4 * wanted * np.sqrt(2 / end.size)


def test_an_optimiser_ends_at_the_minimum(key):
    row = ROWS["GradientDescent"]
    ended = tw.sample(row.target.energy(2.0), row.kernel, row.target.start(3), key=key, draws=1, thin=100)
    np.testing.assert_allclose(ended.draws, 2.0, atol=1e-3)


@pytest.mark.parametrize("name", quick_first(INSIDE))
def test_inside_tempering_the_law_stays(key, name):
    row = ROWS[name]
    row = row._replace(target=GAUSS) if name == "Langevin" else row
    kernel = ts.Langevin(0.02) if name == "Langevin" else row.kernel  # its bias must not be detected
    assert_law(key, ts.ParallelTempering(kernel, [1.0, 2.0, 4.0]), row, steps=6)


class AlwaysSwaps(ts.ParallelTempering):
    """Neighbours swap whenever they are tried, even pairs and odd pairs in turn, whatever their energies."""

    def _energies(self, energy, inner):
        return jnp.zeros(jax.tree.leaves(inner)[0].shape[:2])


@pytest.mark.parametrize("name", ["HMC", "Gibbs"])
def test_swaps_that_are_always_made_are_caught(key, name):
    row = ROWS[name]
    kernel = AlwaysSwaps(row.kernel, [1.0, 2.0, 4.0])
    settings = dict(exact=exact(row, kernel), chains=CHAINS, steps=6)
    verdict = tw.check_sampler(kernel, row.target.energy(0.0), key=key, **settings)
    assert not verdict.passed, verdict


@pytest.mark.parametrize("name", quick_first(INSIDE))
def test_inside_annealing_the_law_stays(key, name):
    assert_law(key, ts.SimulatedAnnealing(ROWS[name].kernel, 1.0001, 1.0, 5), ROWS[name])


@pytest.mark.parametrize("outer", [lambda k: ts.ParallelTempering(k, [1.0, 2.0]), lambda k: ts.SimulatedAnnealing(k)])
@pytest.mark.parametrize("name", ["ParallelTempering", "SimulatedAnnealing", "AnnealedLangevin"])
def test_a_kernel_that_changes_the_target_itself_is_refused_inside_another(name, outer):
    with pytest.raises(ValueError, match=f"got {name}, which changes temperatures or noise levels itself"):
        outer(ROWS[name].kernel)


@pytest.mark.parametrize("name", ROWS)
def test_a_chain_in_two_pieces_is_the_chain_in_one(key, name):
    row = ROWS[name]
    energy, x = row.target.energy(0.3), row.target.start(4)

    @jax.jit
    def run(state, keys):
        return jax.lax.scan(lambda s, k: (step_chains(row.kernel, k, energy, s)[0], None), state, keys)[0]

    # the same keys again and again, which JAX's check of keys would not let pass
    keys = lambda: jax.random.split(jax.random.clone(key), 6)
    start = jax.jit(lambda k: init_chains(row.kernel, k, energy, x))(jax.random.key(3))
    whole = run(run(start, keys()[:3]), keys()[3:])
    saved = jax.tree.map(np.array, jax.device_get(run(start, keys()[:3])))
    again = retarget_chains(row.kernel, energy, jax.tree.map(jnp.asarray, saved))
    assert type(again) is type(start)
    ends = zip(jax.tree.leaves(whole), jax.tree.leaves(run(again, keys()[3:])), strict=True)
    for one, two in ends:  # every array of the state, momenta and counts too
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wrap", ["alone", "ParallelTempering", "SimulatedAnnealing"])
def test_a_run_in_twenty_pieces_has_the_variance_of_one(key, wrap):
    kernel = ts.UnderdampedLangevin(0.2, 0.5)
    if wrap == "ParallelTempering":
        kernel = ts.ParallelTempering(kernel, [1.0, 2.0])
    if wrap == "SimulatedAnnealing":
        kernel = ts.SimulatedAnnealing(kernel, 1.0001, 1.0, 5)
    now, energy = (
        jax.random.normal(jax.random.key(1), (3000, 1)),
        tw.as_energy(lambda x: 0.5 * jnp.sum(x**2), tw.Real(1)),
    )
    for piece in jax.random.split(key, 20):
        chains = tw.sample(energy, kernel, now, key=piece, draws=1, thin=5)
        now = chains.state
    assert abs(chains.draws.var() - 1.0) < 5 * np.sqrt(2 / 3000)


@pytest.mark.parametrize("name", quick_first(ROWS))
def test_under_vmap_and_jit_as_one_by_one(key, name):
    """`vmap` over a parameter of the energy, under `jit`, gives what a loop in Python does."""
    row = ROWS[name]
    start = row.target.start(3)
    run = lambda shift: tw.sample(row.target.energy(shift), row.kernel, start, key=jax.random.key(2), draws=4).draws
    shifts = jnp.array([0.0, 0.5])
    together = jax.jit(jax.vmap(run))(shifts)
    for place, shift in enumerate(shifts):
        alone = run(shift)
        for one, two in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
            np.testing.assert_allclose(one, two[place], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", quick_first(SAMPLING))
def test_chains_with_an_energy_each_have_a_law_each(key, name):
    row = ROWS[name]
    if name == "AnnealedLangevin":
        pytest.skip("its energies differ by condition already")
    shifts = jnp.tile(jnp.array([0.0, 0.7]), CHAINS // 2)
    space = None if row.target in (SPINS, TORUS) else row.target.space  # a matrix is of one energy
    energy = PerChain(lambda _, shift: row.target.energy(shift), None, shifts, space)
    assert_law(key, row.kernel, row, energy, shifts)


class OnTree(eqx.Module):
    """``a ~ N(0, I₂)`` and ``b ~ N(1, 1)``."""

    def __call__(self, x):
        a, b = (x["a"], x["b"]) if isinstance(x, dict) else x
        return 0.5 * jnp.sum(a**2) + 0.5 * (b - 1) ** 2


@pytest.mark.parametrize("form", [dict, tuple])
@pytest.mark.parametrize("name", TREES)
def test_points_may_be_trees(key, name, form):
    kernel = ROWS[name].kernel
    x = {"a": jnp.zeros((3, 2)), "b": jnp.zeros(3)}
    x = x if form is dict else (x["a"], x["b"])
    draws = jax.eval_shape(lambda key: tw.sample(OnTree(), kernel, x, key=key, draws=5).draws, key)
    assert jax.tree.map(lambda leaf: leaf.shape, draws) == jax.tree.map(lambda leaf: (3, 5, *leaf.shape[1:]), x)


@pytest.mark.parametrize("name", [name for name in TREES if ROWS[name].samples and name != "Langevin"])
@pytest.mark.slow
def test_on_trees_the_law_stays(key, name):
    kernel = ROWS[name].kernel

    def sample(heat):
        def draw(key, shape):
            first, second = jax.random.split(key)
            root = jnp.sqrt(heat)
            return {
                "a": root * jax.random.normal(first, (*shape, 2)),
                "b": 1 + root * jax.random.normal(second, shape),
            }

        return draw

    laws = [sample(heat) for heat in kernel.temperatures] if name == "ParallelTempering" else sample(1.0)
    verdict = tw.check_sampler(kernel, OnTree(), key=key, exact=laws, chains=CHAINS, steps=8)
    assert verdict.passed, verdict


@pytest.mark.parametrize("name", ROWS)
def test_every_array_has_the_chains_as_its_leading_axis(key, name):
    row = ROWS[name]
    energy = row.target.energy(0.0)

    def run(key):
        key_init, key_step = jax.random.split(key)
        state = init_chains(row.kernel, key_init, energy, row.target.start(7))
        return state, step_chains(row.kernel, key_step, energy, state)

    for leaf in jax.tree.leaves(jax.eval_shape(run, key)):
        assert leaf.shape[:1] == (7,)


@pytest.mark.parametrize("name", ROWS)
def test_other_numbers_compile_nothing(key, name):
    row, compilations = ROWS[name], []
    key_first, key_second = jax.random.split(key)
    start, energy, other = row.target.start(3), row.target.energy(0.0), row.target.energy(0.4)
    jax.block_until_ready(tw.sample(energy, row.kernel, start, key=key_first, draws=4).draws)
    listen = lambda event, *_, **__: compilations.append(event) if "backend_compile" in event else None
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        jax.block_until_ready(tw.sample(other, row.other, start, key=key_second, draws=4).draws)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert not compilations


@pytest.mark.parametrize("name", ROWS)
def test_float32_starts_work_in_double_precision(name):
    row = ROWS[name]
    start = jax.tree.map(np.asarray, row.target.start(3))
    with jax.enable_x64(True):
        kernel, energy = jax.tree.map(lambda leaf: leaf, (row.kernel, row.target.energy(0.1)))
        run = lambda key: tw.sample(energy, kernel, start, key=key, draws=2).draws
        draws = jax.tree.leaves(jax.eval_shape(run, jax.random.key(0)))
        real = [leaf.dtype for leaf in draws if jnp.issubdtype(leaf.dtype, jnp.floating)]
        assert all(dtype == jnp.float64 for dtype in real)
