"""The packed sampler's mean energies against Kaufman's and Onsager's exact ones."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.exact.onsager import kaufman_energy, magnetisation, onsager_energy
from thalweg.samplers.checkerboard import Checkerboard


def chain_energies(key, shape, temperature, x, burn_in, draws, thin):
    """Energies per site in units of the coupling, ``(chains, draws)``; sums of whole numbers are exact."""
    energy, kernel = tw.energies.Ising(tw.energies.Grid(shape, 1 / temperature)), Checkerboard()

    @eqx.filter_jit
    def run(key, energy, x):
        def one(state, key):
            state, _ = tw.samplers.advance(energy, kernel, state, key=key, steps=thin)
            grid = state.x.reshape(-1, *shape)
            return state, sum(jnp.sum(grid * jnp.roll(grid, 1, axis), axis=(1, 2)) for axis in (1, 2))

        key_burn, key_keep = jax.random.split(key)
        state, _ = tw.samplers.advance(energy, kernel, kernel.init(key, energy, x), key=key_burn, steps=burn_in)
        return jax.lax.scan(one, state, jax.random.split(key_keep, draws))[1]

    return -np.asarray(run(key, energy, x), np.float64).T / (shape[0] * shape[1])


def independent_starts(key, chains, shape):
    """Half the chains ordered and half disordered, so that too short a burn-in shows."""
    x = jax.random.rademacher(key, (chains, shape[0] * shape[1]), jnp.int32)
    return jnp.where(jnp.arange(chains)[:, None] % 2 == 0, 1, x)


def agrees_with(energies, exact):
    """Within four standard errors, those of the independent chains' means."""
    means = energies.mean(axis=1)
    error = means.std(ddof=1) / np.sqrt(len(means))
    assert abs(means.mean() - exact) < 4 * error, (
        f"{(means.mean() - exact) / error:+.2f} standard errors of {error:.2g}"
    )
    return error


def test_energy_on_a_small_torus_is_kaufmans(key):
    x = independent_starts(key, 64, (32, 32))
    energies = chain_energies(key, (32, 32), 2.269, x, burn_in=4000, draws=200, thin=20)
    assert agrees_with(energies, kaufman_energy((32, 32), 2.269)) < 0.003


@pytest.mark.parametrize("temperature", [1.8, 2.1])
def test_magnetisation_of_a_small_torus_is_yangs(key, temperature):
    # at these temperatures correlations reach over a few sites, so 64 × 64 is as good as infinite
    energy, kernel = tw.energies.Ising(tw.energies.Grid((64, 64), 1 / temperature)), Checkerboard()
    key_start, key_run = jax.random.split(key)
    state = kernel.init(key_start, energy, jnp.ones((32, 64 * 64), jnp.int32))
    chains = tw.sample(energy, kernel, state, key=key_run, draws=20, burn_in=300, thin=20)
    means = np.abs(np.asarray(chains.draws, np.float64).mean(axis=-1))
    assert agrees_with(means, magnetisation(temperature)) < 1e-3


@pytest.mark.slow
def test_energy_on_a_larger_torus_is_kaufmans(key):
    x = independent_starts(key, 64, (64, 64))
    energies = chain_energies(key, (64, 64), 2.269, x, burn_in=30_000, draws=1000, thin=50)
    assert agrees_with(energies, kaufman_energy((64, 64), 2.269)) < 0.001


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [2.0, 3.0])
def test_energy_on_a_large_torus_is_onsagers(key, temperature):
    # from order: below the critical temperature a disordered start would leave walls between domains for long
    x = jnp.ones((1, 1024 * 1024), jnp.int32)
    energies = chain_energies(key, (1024, 1024), temperature, x, burn_in=2000, draws=100, thin=100)
    # draws 100 sweeps apart are independent at these temperatures
    assert agrees_with(energies.T, onsager_energy(temperature)) < 3e-4
