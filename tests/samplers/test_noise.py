import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thalweg.samplers.noise import log_uniform, normal


@pytest.mark.parametrize("shape", [(), (1,), (7,), (50, 2), (3, 4, 5), (1001,), (0, 3)])
@pytest.mark.parametrize("seed", [0, 12345])
def test_the_numbers_are_those_of_jax_random(shape, seed):
    key = jax.random.key(seed)
    assert np.allclose(normal(key, shape), jax.random.normal(key, shape), rtol=1e-6, atol=1e-7)
    assert np.array_equal(jnp.exp(log_uniform(key, shape)), jnp.exp(jnp.log(jax.random.uniform(key, shape))))


def test_other_generators_and_types_fall_back_to_jax_random():
    other = jax.random.key(0, impl="rbg")
    assert np.array_equal(normal(other, (5,)), jax.random.normal(other, (5,)))
    half = jnp.dtype(jnp.float16)
    assert np.array_equal(normal(jax.random.key(0), (5,), half), jax.random.normal(jax.random.key(0), (5,), half))
    assert np.allclose(normal(jax.random.PRNGKey(3), (5,)), jax.random.normal(jax.random.PRNGKey(3), (5,)), rtol=1e-6)
