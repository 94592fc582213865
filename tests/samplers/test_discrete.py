"""Kernels on finite spaces: held to exact transition matrices, and their draws to the target."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import exact
from thalweg.core import Info
from thalweg.samplers.langevin import Position


def random_couplings(key, sites):
    weights = 0.5 * jax.random.normal(key, (sites, sites))
    return jnp.triu(weights, 1) + jnp.triu(weights, 1).T


KEY = jax.random.key(3)
TARGETS = {
    "random spins": tw.energies.Ising(random_couplings(KEY, 10), 0.3 * jax.random.normal(KEY, (10,))),
    "random bits": tw.energies.Ising(random_couplings(KEY, 8), -0.2, tw.Binary(8)),
    "lattice with field": tw.energies.Ising(tw.energies.Grid((3, 4), 0.4, periodic=False), 0.2),
    "categories": tw.energies.Potts(
        tw.energies.Graph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)], 0.7), 3, [0.5, 0.0, -0.4]
    ),
}
KERNELS = {
    "Gibbs": tw.samplers.Gibbs(),
    "Gibbs random": tw.samplers.Gibbs("random"),
    "GibbsWithGradients": tw.samplers.GibbsWithGradients(),
}
TEMPERED = {
    "Gibbs": tw.samplers.ParallelTempering(tw.samplers.Gibbs(), [1.0, 2.0, 4.0]),
    "GibbsWithGradients": tw.samplers.ParallelTempering(tw.samplers.GibbsWithGradients(), [1.0, 2.0, 4.0]),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_exact_kernels_leave_the_target_as_it_is(key, kernel, target):
    verdict = tw.check_sampler(KERNELS[kernel], TARGETS[target], key=key, chains=20_000, steps=5)
    assert verdict.passed, verdict
    assert verdict.detectable < 0.1


class WrongRung(tw.samplers.ParallelTempering):
    """Swaps by the energies of the rung below."""

    def _energies(self, energy, inner):
        return jnp.roll(super()._energies(energy, inner), 1, axis=0)


@pytest.mark.parametrize("kernel, target", [("Gibbs", "random spins"), ("GibbsWithGradients", "categories")])
def test_tempered_kernels_keep_the_coldest_rung_at_the_target(key, kernel, target):
    """All rungs start at the coldest law, so the hot ones are given the steps to reach their own."""
    settings = {"key": key, "chains": 20_000, "steps": 80}
    verdict = tw.check_sampler(TEMPERED[kernel], TARGETS[target], **settings)
    assert verdict.passed, verdict
    wrong = tw.check_sampler(WrongRung(TEMPERED[kernel].kernel, [1.0, 2.0, 4.0]), TARGETS[target], **settings)
    assert not wrong.passed, wrong


@pytest.mark.parametrize("target", ["random bits", "categories"])
@pytest.mark.parametrize("kernel", ["Gibbs", "Gibbs random", "GibbsWithGradients"])
def test_the_matrix_is_that_of_the_code(key, kernel, target):
    """Where one step from one state ends, 100 000 times, against the row of the matrix."""
    kernel, energy = KERNELS[kernel], TARGETS[target]
    matrix = np.asarray(kernel.transition_matrix(energy))
    assert np.allclose(matrix.sum(axis=1), 1, atol=1e-5)
    number, count = 37, 100_000
    start = jnp.broadcast_to(energy.space.states(number, 1), (count, *energy.space.shape))
    ends = jax.vmap(energy.space.index)(kernel.step(key, energy, kernel.init(energy, start))[0].x)
    seen = np.bincount(np.asarray(ends), minlength=energy.space.size)
    expected = count * matrix[number]
    assert np.all(seen[expected == 0] == 0)
    z = (seen - expected)[expected > 5] / np.sqrt(expected * (1 - matrix[number]))[expected > 5]
    assert np.max(np.abs(z)) < 5.5


def test_a_sweep_is_the_product_of_the_exact_block_updates():
    energy = TARGETS["lattice with field"]
    whole = np.eye(energy.space.size)
    for block in energy.blocks:
        whole = whole @ np.asarray(exact.gibbs_matrix(energy, block))
    assert np.allclose(whole, tw.samplers.Gibbs().transition_matrix(energy), atol=1e-5)


class MeanNotDraw(tw.samplers.Gibbs):
    """Sets every site to its likelier value."""

    def step(self, key, energy, state):
        best = jax.vmap(lambda x: jnp.array(energy.space.levels)[jnp.argmax(energy.logits(x), axis=-1)])(state.x)
        pick = jax.random.bernoulli(key, 0.1, state.x.shape)
        return Position(jnp.where(pick, best, state.x)), Info()


class NoHastings(tw.samplers.GibbsWithGradients):
    def _propose(self, energy, state, move):
        new, _ = super()._propose(energy, state, move)
        return new, state.energy - new.energy


@pytest.mark.parametrize("kernel", [MeanNotDraw(), NoHastings()])
def test_the_check_catches_wrong_kernels(key, kernel):
    verdict = tw.check_sampler(kernel, TARGETS["random spins"], key=key, chains=20_000, steps=5)
    assert not verdict.passed, verdict


def test_the_check_catches_a_wrong_matrix(key):
    class Wrong(tw.samplers.Gibbs):
        def transition_matrix(self, energy):
            return super().transition_matrix(tw.tempered(energy, 1.01))

    verdict = tw.check_sampler(Wrong(), TARGETS["random bits"], key=key, chains=2000, steps=2)
    assert not verdict.passed
    assert "πT ≠ π" in verdict.text


def test_swap_rates_are_reported_and_a_tuned_ladder_evens_them_out(key):
    energy, init = TARGETS["random spins"], jnp.ones((500, 10), int)
    uneven = tw.samplers.ParallelTempering(tw.samplers.Gibbs(), [1.0, 1.1, 1.2, 30.0])
    rates = tw.sample(energy, uneven, init, key=key, draws=50, burn_in=20).stats["swap_rate"]
    tuned = tw.samplers.tune_ladder(tw.samplers.Gibbs(), energy, init, key=key, hottest=30.0, rungs=4, steps=50)
    even = tw.sample(energy, tuned, init, key=key, draws=50, burn_in=20).stats["swap_rate"]
    assert rates.shape == (3,)
    assert float(rates.max() - rates.min()) > 0.3
    assert float(even.max() - even.min()) < 0.1
    assert float(even.min()) > float(rates.min())


def test_clamped_spins_follow_the_exact_conditional(key):
    energy = TARGETS["random spins"]
    mask = jnp.arange(10) < 4
    values = jnp.array([1, -1, -1, 1, 0, 0, 0, 0, 0, 0])
    clamped = tw.clamp(energy, mask, values)
    for kernel in (tw.samplers.Gibbs(), tw.samplers.GibbsWithGradients()):
        verdict = tw.check_sampler(kernel, clamped, key=key, chains=20_000, steps=5)
        assert verdict.passed, verdict
    chains = tw.sample(clamped, tw.samplers.Gibbs(), jnp.ones((50, 10), int), key=key, draws=3)
    assert chains.draws.shape == (50, 3, 10)
    assert jnp.all(chains.draws[..., :4] == values[:4])
    marginal = exact.marginals(clamped)[:, 1]
    states = energy.space.states(0, 1024)
    agree = jnp.all(states[:, :4] == values[:4], axis=1)
    law = exact.probabilities(energy) * agree
    assert jnp.allclose(marginal, (law / law.sum()) @ (states[:, 4:] == 1), atol=1e-5)


def test_annealing_finds_the_ground_state(key):
    energy = TARGETS["random spins"]
    states = energy.space.states(0, 1024)
    lowest = float(jnp.min(jax.vmap(energy)(states)))
    for inner in (tw.samplers.Gibbs(), tw.samplers.GibbsWithGradients()):
        kernel = tw.samplers.SimulatedAnnealing(inner, hot=5.0, cold=0.02, steps=1000)
        chains = tw.sample(energy, kernel, jnp.ones((20, 10), int), key=key, draws=1, burn_in=1000)
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
                tw.as_energy(jnp.sum, tw.Binary(2)), tw.samplers.Gibbs(), jnp.ones((1, 2), int), key=key, draws=1
            ),
            "expected an energy with conditionals for Gibbs",
        ),
        (
            lambda key: tw.sample(
                tw.energies.Banana(), tw.samplers.GibbsWithGradients(), jnp.ones((1, 2)), key=key, draws=1
            ),
            "expected a Binary, Spin or Categorical space for GibbsWithGradients",
        ),
        (lambda key: tw.clamp(tw.energies.Banana(), jnp.ones(2, bool), jnp.zeros(2)), "leaves something free"),
        (lambda key: tw.clamp(tw.energies.Banana(), jnp.ones(3, bool), jnp.zeros(3)), "mask of the point's shape"),
        (lambda key: tw.clamp(tw.energies.Banana(), jnp.ones(2), jnp.zeros(2)), "expected a boolean mask"),
    ],
)
def test_bad_input_gets_one_sentence(key, make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(key)
