"""Spins in words against the law of Gibbs sampling, bit for bit and in its averages."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.samplers.checkerboard import Checkerboard, PackedSpins, random_words

FALSE_ALARM = 4.9  # standard errors: one in a million


def torus(shape, weight=0.3, bias=0.0, space=None):
    return tw.energies.Ising(tw.energies.Grid(shape, weight), bias, space)


def neighbours_up(x, shape):
    """How many of each site's four neighbours are up, ``(chains, sites)``."""
    grid = (np.asarray(x) > 0).reshape(-1, *shape).astype(int)
    total = sum(np.roll(grid, shift, axis) for axis in (1, 2) for shift in (-1, 1))
    return total.reshape(len(x), -1)


def even_sites(shape):
    return (np.indices(shape).sum(axis=0) % 2 == 0).reshape(-1)


def some_words(seed, size):
    return jnp.stack(list(itertools.islice(random_words(seed, size), 32)))


KEY = jax.random.key(0)
start = eqx.filter_jit(lambda energy, x: Checkerboard().init(KEY, energy, x))
sweep = eqx.filter_jit(lambda key, energy, state: Checkerboard().step(key, energy, state)[0])


def spins(key, chains, shape):
    return jax.random.rademacher(key, (chains, shape[0] * shape[1]), jnp.int32)


# all words full, transposed, half full, odd number of strips, the smallest
SHAPES = [(64, 6), (4, 128), (32, 32), (12, 10), (4, 4)]


@pytest.mark.parametrize("shape", SHAPES)
def test_packing_is_undone(key, shape):
    x = spins(key, 3, shape)
    state = start(torus(shape), x)
    assert state.x.dtype == x.dtype
    np.testing.assert_array_equal(state.x, x)
    # a further axis in front, as under tempering
    stacked = PackedSpins(jnp.stack([state.even, state.even]), jnp.stack([state.odd, state.odd]), state.layout)
    np.testing.assert_array_equal(stacked.x, jnp.stack([x, x]))


@pytest.mark.parametrize("shape", [(64, 6), (4, 128), (12, 10)])
@pytest.mark.parametrize("bias", [0.0, -0.15])
def test_a_sweep_is_gibbs_bit_for_bit(key, shape, bias):
    """Every site against ``u < p_n`` with neighbours counted and probabilities computed the long way."""
    energy, before = torus(shape, 0.37, bias), spins(key, 3, shape)
    state = start(energy, before)
    after = np.asarray(sweep(key, energy, state).x)
    seeds, layout, even = jax.random.bits(key, (2, 3), jnp.uint32), state.layout, even_sites(shape)
    uniforms = []
    for seed in seeds:
        words = some_words(seed, state.even.size).reshape(32, *state.even.shape)
        bits = np.asarray(layout.unpack(words, words) > 0)
        uniforms.append(np.tensordot(2.0 ** np.arange(-32, 0), bits, axes=1))
    x = np.array(before)
    for colour, u in zip((even, ~even), uniforms, strict=True):
        n = neighbours_up(x, shape)
        p = 1 / (1 + np.exp(-2 * (bias + 0.37 * (2 * n - 4.0))))
        # single precision in the logit; a u that near to p would prove nothing
        sure = colour & (np.abs(u - p) > 1e-6)
        assert sure.sum() > 0.99 * colour.sum() * len(x)
        np.testing.assert_array_equal(after[sure], np.where(u < p, 1, -1)[sure])
        x[:, colour] = after[:, colour]


@pytest.mark.slow
@pytest.mark.parametrize("energy", [torus((4, 4), 0.3, 0.1), torus((4, 4), -0.4, 0.2)], ids=["ferro", "antiferro"])
def test_leaves_the_target_as_it_is(key, energy):
    verdict = tw.check_sampler(Checkerboard(), energy, key=key, chains=20_000, steps=5)
    assert verdict.passed, verdict
    assert verdict.detectable < 0.1


def test_leaves_the_target_as_it_is_on_bits(key):
    energy = torus((4, 4), 0.5, -0.7, tw.Binary(16))
    verdict = tw.check_sampler(Checkerboard(), energy, key=key, chains=20_000, steps=5)
    assert verdict.passed, verdict


def ring_of_lines(energy, shape):
    """Exact samples of a torus with one short side: its lines are a Markov chain on a ring."""
    width, length = min(shape), max(shape)
    lines = np.array(list(itertools.product([-1, 1], repeat=width)))
    weight, bias = float(energy.coupling.weight), float(energy.bias[0])
    alone = np.exp(weight * (lines * np.roll(lines, 1, axis=1)).sum(axis=1) + bias * lines.sum(axis=1))
    transfer = np.exp(weight * lines @ lines.T) * alone
    powers = [np.eye(len(lines))]
    for _ in range(length):
        powers.append(powers[-1] @ transfer / transfer.max())

    def sample(key, shape_of_chains):
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        chains = shape_of_chains[0]

        def draw(weights):
            cumulative = weights.cumsum(axis=1)
            picked = generator.random(chains)[:, None] * cumulative[:, -1:] > cumulative
            return picked.sum(axis=1)

        first = draw(np.broadcast_to(np.diag(powers[length]), (chains, len(lines))))
        drawn = [first]
        for number in range(1, length):
            drawn.append(draw(transfer[drawn[-1]] * powers[length - number][:, first].T))
        grid = lines[np.stack(drawn, axis=1)]  # (chains, length, width)
        grid = grid if shape[0] == length else np.swapaxes(grid, 1, 2)
        return jnp.asarray(grid.reshape(chains, -1), jnp.int32)

    return sample


@pytest.mark.parametrize("shape", [(64, 4), (4, 64)])
def test_leaves_the_target_as_it_is_with_full_words(key, shape):
    energy = torus(shape, 0.35, 0.05)
    exact = ring_of_lines(energy, shape)
    verdict = tw.check_sampler(Checkerboard(), energy, key=key, exact=exact, chains=10_000, steps=5)
    assert verdict.passed, verdict


class TooCold(Checkerboard):
    def step(self, key, energy, state):
        return super().step(key, energy.scaled(jnp.asarray(1.1)), state)


def test_a_wrong_kernel_is_seen(key):
    verdict = tw.check_sampler(TooCold(), torus((4, 4), 0.3, 0.1), key=key, chains=20_000, steps=5)
    assert not verdict.passed, verdict


def z_scores(bits):
    """Of fair coins, ``(…, count)``: the mean of each row in standard errors from a half."""
    return (bits.mean(axis=-1) - 0.5) * 2 * np.sqrt(bits.shape[-1])


def test_conditional_frequencies(key):
    """Each of the five probabilities that a field tells apart, from one sweep of half a million spins."""
    shape, weight, bias = (64, 128), 0.2, 0.13
    energy = torus(shape, weight, bias)
    x = spins(key, 64, shape)
    after = np.asarray(sweep(key, energy, start(energy, x)).x)
    even = even_sites(shape)
    for colour, around in ((even, x), (~even, after)):
        n = neighbours_up(around, shape)[:, colour]
        up = after[:, colour] > 0
        for level in range(5):
            p = 1 / (1 + np.exp(-2 * (bias + weight * (2 * level - 4))))
            trials = np.sum(n == level)
            z = (up[n == level].mean() - p) / np.sqrt(p * (1 - p) / trials)
            assert trials > 1000
            assert abs(z) < FALSE_ALARM


def test_random_words_look_random(key):
    """Frequencies of single bits and of agreement between neighbours: in a word, a round, a stream and a seed."""
    size = 4096
    seeds = jax.random.bits(key, (2, 3), jnp.uint32)
    seeds = jnp.concatenate([seeds, seeds[:1] ^ jnp.array([[1, 0, 0]], jnp.uint32)])  # and one that differs in a bit
    words = np.stack([np.asarray(some_words(seed, size)) for seed in seeds])
    bits = (words[..., None] >> np.arange(32, dtype=np.uint32)) & 1  # (seeds, rounds, streams, places)
    scores = [z_scores(np.moveaxis(bits, 2, -1)).ravel(), z_scores(bits.reshape(1, -1)).ravel()]
    for axis in range(4):
        for distance in (1, 2, 8, 1024):
            if distance < bits.shape[axis]:
                agree = np.roll(bits, distance, axis) == bits
                scores.append(z_scores(agree.reshape(1, -1)))
                scores.append(z_scores(np.moveaxis(agree, 2, -1)).ravel())
    scores = np.concatenate([score.ravel() for score in scores])
    # of some 30,000 scores none beyond what one run in a thousand shows, and their spread that of fair coins
    assert np.abs(scores).max() < 6.0
    assert np.mean(scores**2) == pytest.approx(1.0, abs=0.1)


def test_another_temperature_compiles_nothing(key):
    traced = []

    class Counted(Checkerboard):
        def step(self, key, energy, state):
            traced.append(None)
            return super().step(key, energy, state)

    x = spins(key, 2, (4, 4))
    tw.sample(torus((4, 4), 0.2), Counted(), x, key=key, draws=2)
    once = len(traced)
    tw.sample(torus((4, 4), 0.5, bias=0.3), Counted(), x, key=key, draws=2)
    assert len(traced) == once


@pytest.mark.slow
def test_under_tempering(key):
    kernel = tw.samplers.ParallelTempering(Checkerboard(), [1.0, 1.5])
    verdict = tw.check_sampler(kernel, torus((4, 4), 0.3, 0.1), key=key, chains=10_000, steps=4)
    assert verdict.passed, verdict


def test_certain_spins_stay(key):
    """Couplings so strong that no spin of an ordered lattice turns over: thresholds at the ends do not wrap round."""
    energy = torus((64, 6), 50.0)
    for level in (-1, 1):
        x = jnp.full((3, 64 * 6), level, jnp.int32)
        state = start(energy, x)
        for number in range(20):
            state = sweep(jax.random.fold_in(key, number), energy, state)
        np.testing.assert_array_equal(state.x, x)


GRID = tw.energies.Grid


@pytest.mark.parametrize(
    ("energy", "words"),
    [
        (torus((3, 4)), "even sides"),
        (tw.energies.Ising(GRID((4, 4), 0.3, periodic=False)), "open borders"),
        (tw.energies.Ising(jnp.zeros((16, 16))), "got Matrix; use Gibbs"),
        (tw.energies.Potts(GRID((4, 4)), k=3), "got Potts; use Gibbs"),
        (torus((4, 4), bias=jnp.arange(16.0)), "same bias at every site"),
        (tw.as_energy(torus((3, 4)), tw.Spin(12)), "even sides"),
        (tw.tempered(torus((3, 4)), 2.0), "even sides"),
        (tw.tempered(torus((4, 4), bias=jnp.arange(16.0)), 2.0), "same bias at every site"),
        (tw.clamp(torus((4, 4)), jnp.arange(16) < 1, jnp.ones(16, int)), "expected an energy Ising"),
        (tw.as_energy(lambda x: jnp.sum(x), tw.Spin(16)), "expected an energy Ising"),
    ],
)
def test_refusals(energy, words):
    sites = energy.space.shape[0]
    with pytest.raises(ValueError, match=words):
        Checkerboard().init(KEY, energy, jnp.ones((2, sites), jnp.int32))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda kernel: kernel,
        lambda kernel: tw.samplers.ParallelTempering(kernel, [1.0, 2.0]),
        lambda kernel: tw.samplers.SimulatedAnnealing(kernel, steps=5),
    ],
)
def test_refuses_an_unequal_bias_before_a_run(key, wrap):
    energy = torus((4, 4), bias=jnp.arange(16.0))
    with pytest.raises(ValueError, match=r"^expected the same bias at every site .*; use Gibbs, which takes any bias$"):
        tw.sample(energy, wrap(Checkerboard()), jnp.ones((2, 16), jnp.int32), key=key, draws=2)
    with pytest.raises(ValueError, match="same bias at every site"):
        tw.check_sampler(wrap(Checkerboard()), energy, key=key)


def test_refuses_an_unequal_bias_inside_a_callers_jit(key):
    x = jnp.ones((2, 16), jnp.int32)
    run = jax.jit(lambda bias: start(torus((4, 4), bias=bias), x).x)
    with pytest.raises(Exception, match="same bias at every site"):
        jax.block_until_ready(run(jnp.arange(16.0)))


def test_refuses_a_point_of_another_shape():
    with pytest.raises(ValueError, match=r"\(chains, 16\)"):
        Checkerboard().init(KEY, torus((4, 4)), jnp.ones((2, 4, 4), jnp.int32))
