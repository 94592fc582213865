import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erfinv

from thalweg.core.random import _erf_inv, log_uniform, normal


@pytest.mark.parametrize("shape", [(), (1,), (7,), (50, 2), (3, 4, 5), (1001,), (0, 3)])
@pytest.mark.parametrize("seed", [0, 12345])
def test_the_numbers_are_those_of_jax_random(shape, seed):
    key = jax.random.key(seed)
    # in the tails jax's own are off by 6e-6
    assert np.allclose(normal(key, shape), jax.random.normal(key, shape), rtol=1e-5, atol=1e-7)
    assert np.array_equal(jnp.exp(log_uniform(key, shape)), jnp.exp(jnp.log(jax.random.uniform(key, shape))))


def test_the_inverse_of_the_error_function_is_right_to_the_last_float():
    ends = np.nextafter(np.float32([-1, 1]), np.float32(0))
    x = np.concatenate([np.linspace(-1, 1, 100_001, dtype=np.float32)[1:-1], ends, np.float32([1e-30, -1e-7])])
    right = erfinv(x.astype(np.float64))
    assert np.allclose(_erf_inv(jnp.asarray(x)), right, rtol=4e-7, atol=0)


def test_other_generators_and_types_fall_back_to_jax_random():
    other = jax.random.key(0, impl="rbg")
    assert np.array_equal(normal(other, (5,)), jax.random.normal(other, (5,)))
    half = jnp.dtype(jnp.float16)
    assert np.array_equal(normal(jax.random.key(0), (5,), half), jax.random.normal(jax.random.key(0), (5,), half))
    assert np.allclose(normal(jax.random.PRNGKey(3), (5,)), jax.random.normal(jax.random.PRNGKey(3), (5,)), rtol=1e-6)
