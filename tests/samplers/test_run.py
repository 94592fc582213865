import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.samplers import advance
from thalweg.samplers import run as chain_loop


def quadratic(x):
    return 0.5 * jnp.sum(x**2)


def test_draws_are_chains_by_draws_by_event_and_reproducible(key):
    init = jnp.zeros((3, 2))
    first = tw.sample(quadratic, tw.samplers.Langevin(0.1), init, key=key, draws=5, burn_in=2, thin=3)
    again = tw.sample(quadratic, tw.samplers.Langevin(0.1), init, key=key, draws=5, burn_in=2, thin=3)
    other = tw.sample(quadratic, tw.samplers.Langevin(0.1), init, key=jax.random.key(1), draws=5, burn_in=2, thin=3)
    assert first.draws.shape == (3, 5, 2)
    assert jnp.array_equal(first.draws, again.draws)
    assert not jnp.any(first.draws == other.draws)
    assert not jnp.any(first.draws[0] == first.draws[1])


@pytest.mark.slow
@pytest.mark.parametrize("burn_in, thin", [(0, 1), (7, 1), (3, 4)])
def test_the_progress_bar_does_not_change_the_chain(key, burn_in, thin, monkeypatch):
    # a small block lets a short chain cross several of them
    monkeypatch.setattr(chain_loop, "_BLOCK", 3)
    settings = {"key": key, "draws": 103, "burn_in": burn_in, "thin": thin}
    kernel, init = tw.samplers.MALA(0.5), jnp.zeros((2, 1))
    energy = lambda x: 0.5 * jnp.sum(x**2)  # a new function, so nothing compiled with another block serves it
    plain = tw.sample(energy, kernel, init, **settings)
    shown = tw.sample(energy, kernel, init, **settings, progress=True)
    assert jnp.array_equal(plain.draws, shown.draws)
    assert jnp.allclose(plain.stats["acceptance"], shown.stats["acceptance"])


def test_thinning_keeps_every_nth_state_of_a_deterministic_chain(key):
    descent = tw.samplers.Langevin(0.2, noise_scale=0.0)  # x ← 0.9 x
    chains = tw.sample(quadratic, descent, jnp.ones((1, 1)), key=key, draws=4, burn_in=2, thin=3)
    assert jnp.allclose(chains.draws[0, :, 0], 0.9 ** jnp.array([5.0, 8.0, 11.0, 14.0]), rtol=1e-5)


def test_advance_takes_as_many_steps_as_asked_across_blocks(key, monkeypatch):
    monkeypatch.setattr(chain_loop, "_BLOCK", 10)
    descent = tw.samplers.Langevin(0.2, noise_scale=0.0)
    for steps in (1, 10, 25):
        start = descent.init(key, quadratic, jnp.ones((1, 1)))
        count = lambda info: {"count": jnp.ones(1, int), "one": jnp.ones(1)}
        state, metrics = advance(quadratic, descent, start, key=key, steps=steps, measure=count)
        assert metrics["count"] == steps
        assert metrics["one"] == 1
        assert jnp.allclose(state.x, 0.9**steps, rtol=1e-5)


def test_nothing_recompiles_for_another_step_size_weight_or_start(key):
    class Scaled(eqx.Module):
        scale: jax.Array

        def __call__(self, x):
            traces.append(1)
            return self.scale * jnp.sum(x**2)

    traces = []
    for scale, step_size, start in ((1.0, 0.1, 0.0), (2.0, 0.2, 1.0), (3.0, 0.05, -1.0)):
        energy = Scaled(jnp.array(scale))
        for kernel in (tw.samplers.Langevin(step_size), tw.samplers.HMC(step_size, steps=round(scale) + 2)):
            tw.sample(energy, kernel, jnp.full((2, 2), start), key=key, draws=3)
        traced = len(traces) if scale == 1.0 else traced
    assert len(traces) == traced


def test_memory_does_not_grow_with_the_length_of_the_chain(key):
    kernel = tw.samplers.Langevin(0.1)

    def scratch(burn_in):
        run = jax.jit(lambda key, x: chain_loop._run(key, x, kernel, quadratic, burn_in, 1, 1))
        return run.lower(key, jnp.zeros((100, 2))).compile().memory_analysis().temp_size_in_bytes

    assert scratch(1_000_000) == scratch(10_000_000)


def test_energies_are_those_of_the_draws(key):
    chains = tw.sample(quadratic, tw.samplers.MALA(0.5), jnp.zeros((2, 3)), key=key, draws=4)
    assert jnp.allclose(chains.energies(quadratic), 0.5 * jnp.sum(chains.draws**2, axis=-1))


def test_summary_tells_mixed_from_unmixed_chains(key):
    kernel = tw.samplers.HMC(0.5, steps=5)
    mixed = tw.sample(quadratic, kernel, jnp.zeros((4, 2)), key=key, draws=1000, burn_in=50).summary()
    assert mixed.mixed
    assert "have mixed" in mixed.verdict
    assert np.all(np.abs(mixed.mean) < 5 * mixed.mcse)
    assert np.all(np.abs(mixed.sd - 1) < 0.1)
    two_wells = lambda x: 40 * jnp.sum((x**2 - 1) ** 2)
    starts = jnp.array([[-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
    stuck = tw.sample(two_wells, tw.samplers.MALA(0.01), starts, key=key, draws=1000).summary()
    assert not stuck.mixed
    assert "NOT mixed" in str(stuck)


def test_summary_says_when_chains_ran_off(key):
    wild = tw.sample(lambda x: jnp.sum(x**4), tw.samplers.Langevin(1.0), jnp.full((2, 1), 5.0), key=key, draws=50)
    assert "non-finite" in wild.summary().verdict


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"draws": 0}, "expected draws to be a whole number >= 1, got 0"),
        ({"burn_in": -1}, "expected burn_in to be a whole number >= 0, got -1"),
        ({"init": jnp.zeros(())}, "got a scalar"),
        ({"init": jnp.zeros((0, 2))}, "expected at least one point in init"),
        ({"init": jnp.zeros((4, 3))}, r"expected init of shape \(n, 2\), got \(4, 3\)"),
        ({"init": jnp.zeros((4, 2), int)}, "expected floating-point numbers in init"),
        ({"init": jnp.full((4, 2), jnp.nan)}, r"non-finite one in chain 0 at x = \[nan nan\]"),
        ({"energy": tw.as_energy(lambda x: x, tw.Real(2))}, "expected an energy to return a scalar"),
        ({"energy": tw.as_score(lambda x: x[:1], tw.Real(2))}, "expected a score of the point's shape"),
    ],
)
def test_bad_input_gets_one_sentence(key, change, sentence):
    settings = {
        "energy": tw.as_energy(quadratic, tw.Real(2)),
        "kernel": tw.samplers.Langevin(0.1),
        "init": jnp.zeros((4, 2)),
        "key": key,
        "draws": 2,
    }
    with pytest.raises(ValueError, match=sentence):
        tw.sample(**{**settings, **change})


def test_a_bad_start_is_said_with_the_chain_that_has_it(key):
    init = jnp.array([[1.0], [2.0], [-3.0]])
    with pytest.raises(ValueError, match=r"chain 2 at x = \[-3.\]"):
        tw.sample(lambda x: jnp.sum(x - jnp.log(x)), tw.samplers.MALA(0.1), init, key=key, draws=2)
