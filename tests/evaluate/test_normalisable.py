"""Energies that fall without end in some direction are found; those that grow in all are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.evaluate.normalisable import find_escape


def narrow(x):
    """Falls only within a cone around (1, …, 1), whose share of the directions of R^20 is about 1e-9."""
    return 3.0 * jnp.sqrt(jnp.sum(x**2) + 1.0) - 3.5 * jnp.sum(x) / jnp.sqrt(x.size)


@pytest.mark.parametrize("energy", [lambda x: x.sum(), lambda x: 0.0 * x.sum(), lambda x: -jnp.sum(x**2), narrow])
def test_a_direction_of_escape_is_found(energy):
    found = find_escape(energy, (20,), 2.0, key=jax.random.key(0))
    assert found is not None and np.linalg.norm(found) == pytest.approx(1, abs=1e-5)
    assert energy(2e4 * found) <= energy(2e3 * found)


@pytest.mark.parametrize("energy", [lambda x: jnp.abs(x).sum(), lambda x: 0.5 * jnp.sum(x**2)])
def test_energies_that_grow_have_none(energy):
    assert find_escape(energy, (20,), 1.0, key=jax.random.key(0)) is None


def test_a_network_escapes_and_a_confined_one_does_not():
    network = tw.energies.ConvNet("digits", 0.1, key=jax.random.key(1))
    assert find_escape(network, (8, 8, 1), 6.0, key=jax.random.key(0)) is not None
    assert find_escape(tw.energies.confined(network), (8, 8, 1), 6.0, key=jax.random.key(0)) is None
