"""Kernels on finite spaces: held to exact transition matrices, and their draws to the target."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import exact


def random_couplings(key, sites):
    weights = 0.5 * jax.random.normal(key, (sites, sites))
    return jnp.triu(weights, 1) + jnp.triu(weights, 1).T


KEYS = jax.random.split(jax.random.key(3), 3)
TARGETS = {
    "random spins": tw.energies.Ising(random_couplings(KEYS[0], 10), 0.3 * jax.random.normal(KEYS[1], (10,))),
    "random bits": tw.energies.Ising(random_couplings(KEYS[2], 8), -0.2, tw.Binary(8)),
    "lattice with field": tw.energies.Ising(tw.energies.Grid((3, 4), 0.4, periodic=False), 0.2),
    "categories": tw.energies.Potts(
        tw.energies.Graph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)], 0.7), 3, [0.5, 0.0, -0.4]
    ),
}
LADDER = [1.0, 2.0, 4.0]


class Change(tw.samplers.Proposal):
    """A site, the first as often as all others together, set to a level that is drawn unevenly."""

    levels: tuple[int, ...]

    def chances(self):
        return jnp.arange(1.0, len(self.levels) + 1) / sum(range(len(self.levels) + 1))

    def propose(self, key, x):
        key_site, key_level = jax.random.split(key)
        site = jax.random.choice(key_site, len(x), p=jnp.where(jnp.arange(len(x)) == 0, len(x) - 1.0, 1.0))
        level = jax.random.categorical(key_level, jnp.log(self.chances()))
        return x.at[site].set(jnp.array(self.levels, x.dtype)[level])

    def log_ratio(self, x, proposed):
        chance = lambda x: jnp.sum(jnp.log(self.chances())[jnp.searchsorted(jnp.array(self.levels), x)])
        return chance(x) - chance(proposed)


KERNELS = {
    "Gibbs": lambda energy: tw.samplers.Gibbs(),
    "Gibbs random": lambda energy: tw.samplers.Gibbs("random"),
    "GibbsWithGradients": lambda energy: tw.samplers.GibbsWithGradients(),
    "MetropolisHastings": lambda energy: tw.samplers.MetropolisHastings(Change(energy.space.levels)),
    "ParallelTempering over Gibbs": lambda energy: tw.samplers.ParallelTempering(tw.samplers.Gibbs(), LADDER),
    "ParallelTempering over GibbsWithGradients": lambda energy: tw.samplers.ParallelTempering(
        tw.samplers.GibbsWithGradients(), LADDER
    ),
}


@pytest.mark.parametrize("target", ["random spins", "lattice with field", "categories"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_exact_kernels_leave_the_target_as_it_is(key, kernel, target):
    energy = TARGETS[target]
    steps = 3 if "Tempering" in kernel else 5
    verdict = tw.check_sampler(KERNELS[kernel](energy), energy, key=key, chains=14_000, steps=steps)
    assert verdict.passed, verdict
    assert verdict.detectable < 0.1


def test_blocks_are_drawn_as_one():
    """A lattice has two colours, a complete graph as many as sites."""
    assert len(TARGETS["lattice with field"].blocks) == 2
    assert len(TARGETS["random spins"].blocks) == 10


@pytest.mark.slow
@pytest.mark.parametrize("target", ["random bits", "categories"])
@pytest.mark.parametrize("kernel", ["Gibbs", "Gibbs random", "GibbsWithGradients"])
def test_the_matrix_is_that_of_the_code(key, kernel, target):
    """Where one step from one state ends, 100 000 times, against the row of the matrix."""
    energy = TARGETS[target]
    kernel = KERNELS[kernel](energy)
    matrix = np.asarray(kernel.transition_matrix(energy))
    assert np.allclose(matrix.sum(axis=1), 1, atol=1e-5)
    number, count = 37, 100_000
    start = jnp.broadcast_to(energy.space.states(number, 1), (count, *energy.space.shape))
    step = eqx.filter_jit(lambda kernel, energy, x: kernel.step(key, energy, kernel.init(key, energy, x))[0].x)
    ends = jax.jit(jax.vmap(energy.space.index))(step(kernel, energy, start))
    seen = np.bincount(np.asarray(ends), minlength=energy.space.size)
    expected = count * matrix[number]
    assert np.all(seen[expected == 0] == 0)
    z = (seen - expected)[expected > 5] / np.sqrt(expected * (1 - matrix[number]))[expected > 5]
    assert np.max(np.abs(z)) < 5.5


@pytest.mark.parametrize("target", ["random bits", "categories"])
def test_a_sweep_is_the_product_of_the_exact_block_updates(target):
    energy = TARGETS[target]
    whole = np.eye(energy.space.size)
    for block in energy.blocks:
        whole = whole @ np.asarray(exact.gibbs_matrix(energy, block))
    assert np.allclose(whole, tw.samplers.Gibbs().transition_matrix(energy), atol=1e-5)


class OnOff(tw.core.HasConditionals):
    """A user's own conditionals: independent bits, drawn without a sweep of its own."""

    logits: jax.Array
    blocks: np.ndarray
    space = tw.Binary(3)

    def __call__(self, x):
        return -jnp.dot(self.logits, x.astype(float))

    def resample(self, key, x, block):
        up = jax.random.bernoulli(key, jax.nn.sigmoid(self.logits), x.shape)
        return jnp.where(block, up.astype(x.dtype), x)

    def scaled(self, factor):
        return OnOff(self.logits * factor, self.blocks)


@pytest.mark.parametrize("scan", ["systematic", "random"])
def test_a_users_own_conditionals(key, scan):
    energy = OnOff(jnp.array([0.5, -1.0, 2.0]), np.eye(3, dtype=bool))
    verdict = tw.check_sampler(tw.samplers.Gibbs(scan), energy, key=key, chains=5000, steps=3)
    assert verdict.passed, verdict
    kernel = tw.samplers.ParallelTempering(tw.samplers.Gibbs(scan), LADDER)
    assert tw.sample(energy, kernel, jnp.zeros((4, 3), int), key=key, draws=2).draws.shape == (4, 2, 3)


@pytest.mark.parametrize("kernel", [tw.samplers.Gibbs(), tw.samplers.Gibbs("random"), tw.samplers.GibbsWithGradients()])
def test_an_energy_for_each_chain(key, kernel):
    """Chain i at temperature i: as many chains of each as tell their laws apart."""
    chains, energy = 30_000, TARGETS["categories"]
    temperatures = jnp.tile(jnp.array([1.0, 5.0]), chains // 2)
    bound = tw.core.PerChain(tw.tempered, energy, temperatures, energy.space)
    key_start, *keys = jax.random.split(key, 5)
    starts = [exact.sample(tw.tempered(energy, t), (chains // 2,), key=key_start) for t in (1.0, 5.0)]
    x = jnp.stack(starts, axis=1).reshape(chains, -1)

    @jax.jit
    def run(x):
        state = kernel.init(key, bound, x)
        for step_key in keys:
            state, _ = kernel.step(step_key, bound, state)
        return state.x

    moved = run(x)
    for number, temperature in enumerate((1.0, 5.0)):
        law = exact.marginals(tw.tempered(energy, temperature))
        seen = jnp.mean(moved[number::2, :, None] == jnp.arange(3), axis=0)
        assert float(jnp.max(jnp.abs(seen - law) / jnp.sqrt(law * (1 - law) / (chains / 2)))) < 5


def test_a_state_continues_on_a_changed_energy(key):
    energy, kernel = TARGETS["random bits"], tw.samplers.GibbsWithGradients()
    x = energy.space.noise(key, (6,))
    warm = tw.tempered(energy, 3.0)
    state = kernel.retarget(warm, kernel.init(key, energy, x))
    again = kernel.init(key, warm, x)
    assert all(jnp.array_equal(a, b) for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(again), strict=True))
    assert all(leaf.shape[0] == 6 for leaf in jax.tree.leaves(state))
    gibbs = tw.samplers.Gibbs()
    assert jnp.array_equal(gibbs.retarget(warm, gibbs.init(key, energy, x)).x, x)


@pytest.mark.parametrize("kind", [jnp.uint8, bool, jnp.int8, jnp.float32])
@pytest.mark.parametrize("kernel", [tw.samplers.Gibbs(), tw.samplers.GibbsWithGradients()])
def test_starts_of_any_kind_of_number(key, kernel, kind):
    energy = TARGETS["random bits"]
    init = energy.space.noise(key, (4,)).astype(kind)
    draws = tw.sample(energy, kernel, init, key=key, draws=20).draws
    assert draws.dtype == jnp.int32
    assert set(np.unique(draws).tolist()) == {0, 1}


@pytest.mark.slow
def test_swap_rates_are_reported_and_a_tuned_ladder_evens_them_out(key):
    energy, init = TARGETS["lattice with field"], jnp.ones((200, 12), int)
    uneven = tw.samplers.ParallelTempering(tw.samplers.Gibbs(), [1.0, 1.1, 1.2, 30.0])
    tuned = tw.samplers.tune_ladder(energy, tw.samplers.Gibbs(), init, key=key, hottest=30.0, rungs=4, steps=50)
    # the settings of the pilot runs, whose compiled program serves again
    settings = {"key": key, "draws": 1, "burn_in": 25, "thin": 50}
    rates, even = (tw.sample(energy, kernel, init, **settings).stats["swap_rate"] for kernel in (uneven, tuned))
    assert rates.shape == (200, 3)
    rates, even = rates.mean(axis=0), even.mean(axis=0)
    assert float(rates.max() - rates.min()) > 0.3
    assert float(even.max() - even.min()) < 0.1
    assert float(even.min()) > float(rates.min())


@pytest.mark.slow
def test_clamped_spins_follow_the_exact_conditional(key):
    energy = TARGETS["random spins"]
    mask = jnp.arange(10) < 4
    values = jnp.array([1, -1, -1, 1, 0, 0, 0, 0, 0, 0])
    clamped = tw.clamp(energy, mask, values)
    for kernel in (tw.samplers.Gibbs(), tw.samplers.GibbsWithGradients()):
        verdict = tw.check_sampler(kernel, clamped, key=key, chains=10_000, steps=3)
        assert verdict.passed, verdict
    chains = tw.sample(clamped, tw.samplers.Gibbs(), jnp.ones((50, 10), int), key=key, draws=3)
    assert chains.draws.shape == (50, 3, 10)
    assert jnp.all(chains.draws[..., :4] == values[:4])
    marginal = exact.marginals(clamped)[:, 1]
    states = energy.space.states(0, 1024)
    agree = jnp.all(states[:, :4] == values[:4], axis=1)
    law = exact.probabilities(energy) * agree
    assert jnp.allclose(marginal, (law / law.sum()) @ (states[:, 4:] == 1), atol=1e-5)


@pytest.mark.slow
def test_annealing_finds_the_ground_state(key):
    energy = TARGETS["random spins"]
    states = energy.space.states(0, 1024)
    lowest = float(jnp.min(jax.vmap(energy)(states)))
    for inner in (tw.samplers.Gibbs(), tw.samplers.GibbsWithGradients()):
        kernel = tw.samplers.SimulatedAnnealing(inner, hot=5.0, cold=0.02, steps=400)
        chains = tw.sample(energy, kernel, jnp.ones((20, 10), int), key=key, draws=1, burn_in=400)
        assert float(jnp.min(chains.energies(energy))) == pytest.approx(lowest, abs=1e-4)
        assert float(jnp.mean(chains.energies(energy) < lowest + 1e-3)) > 0.5


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda key: tw.samplers.Gibbs("diagonal"), "expected scan to be"),
        (lambda key: tw.samplers.ParallelTempering(tw.samplers.Gibbs(), [2.0, 1.0]), "temperatures rising from 1"),
        (lambda key: tw.samplers.ParallelTempering(tw.samplers.Gibbs(), [1.0]), "at least two temperatures"),
        (lambda key: tw.samplers.SimulatedAnnealing(tw.samplers.Gibbs(), hot=1.0, cold=2.0), "expected cold < hot"),
        (
            lambda key: tw.sample(
                tw.energies.Banana(), tw.samplers.GibbsWithGradients(), jnp.ones((1, 2)), key=key, draws=1
            ),
            "expected a Binary, Spin or Categorical space for GibbsWithGradients",
        ),
        (
            lambda key: tw.samplers.GibbsWithGradients().init(
                key, tw.as_energy(lambda x: 0.0, tw.Product(tw.Binary(2), tw.Spin(2))), (jnp.ones((1, 2), int),) * 2
            ),
            "got a product.*PerPart",
        ),
        (
            lambda key: tw.samplers.Gibbs().init(
                key, tw.as_energy(lambda x: 0.0, tw.Product(tw.Binary(2), tw.Spin(2))), (jnp.ones((1, 2), int),) * 2
            ),
            "several parts.*PerPart",
        ),
        (lambda key: tw.samplers.GibbsWithGradients().init(key, jnp.sum, jnp.ones((1, 2), int)), "got None"),
        (lambda key: tw.samplers.Gibbs().init(key, tw.energies.Banana(), jnp.ones((1, 2))), "energy with conditionals"),
        (lambda key: tw.samplers.Gibbs().init(key, tw.as_score(lambda x: x), jnp.ones((1, 2))), "score network"),
        (
            lambda key: tw.sample(TARGETS["random spins"], tw.samplers.Gibbs(), jnp.zeros((2, 10)), key=key, draws=1),
            "expected points of Spin",
        ),
        (lambda key: tw.clamp(tw.energies.Banana(), jnp.ones(3, bool), jnp.zeros(3)), "mask of the point's shape"),
        (lambda key: tw.clamp(tw.energies.Banana(), jnp.ones(2), jnp.zeros(2)), "expected a boolean mask"),
    ],
)
def test_bad_input_gets_one_sentence(key, make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(key)
