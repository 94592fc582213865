"""The random numbers of ``jax.random``, generated faster on CPUs.

On CPUs JAX compiles the twenty rounds of its generator as a loop, which cannot be fused with the code that uses the
numbers. Unrolled, the same rounds give the same numbers in a half to a fifth of the time.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PRNGKeyArray, PyTree

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_FEW = 64


def _threefry(key: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """Threefry-2x32 of the counter ``(high, low)``. Reference: Salmon et al. (2011), Parallel Random Numbers."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    high, low = high + keys[0], low + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            high = high + low
            low = high ^ ((low << np.uint32(rotation)) | (low >> np.uint32(32 - rotation)))
        high, low = high + keys[(group + 1) % 3], low + keys[(group + 2) % 3] + np.uint32(group + 1)
    return high, low


def _bits(key: PRNGKeyArray, shape: tuple[int, ...]) -> Array | None:
    """32 random bits per number, equal to ``jax.random.bits``; ``None`` if the key belongs to another generator."""
    words, count = _words(key), int(np.prod(shape, dtype=np.int64))
    if words is None or count >= 2**32:
        return None
    low = lax.iota(np.uint32, count)
    first, second = _threefry(words, jnp.zeros_like(low), low)
    return (first ^ second).reshape(shape)


def split(key: PRNGKeyArray, count: int = 2) -> Array:
    """The keys of ``jax.random.split(key, count)``, computed without a loop; for use inside a step.

    >>> import jax
    >>> from thalweg.core.random import split
    >>> key = jax.random.key(0)
    >>> bool((split(key, 3) == jax.random.split(jax.random.clone(key), 3)).all())
    True
    """
    words = _words(key)
    if words is None:
        return jax.random.split(key, count)
    low = lax.iota(np.uint32, count)
    return _as_key(jnp.stack(_threefry(words, jnp.zeros_like(low), low), axis=-1), key)


def fold_in(key: PRNGKeyArray, number: Array | int) -> PRNGKeyArray:
    """The key of ``jax.random.fold_in(key, number)``, computed without a loop.

    >>> import jax
    >>> from thalweg.core.random import fold_in
    >>> key = jax.random.key(0)
    >>> bool(fold_in(key, 7) == jax.random.fold_in(jax.random.clone(key), 7))
    True
    """
    words = _words(key)
    if words is None:
        return jax.random.fold_in(key, number)
    folded = jnp.stack(_threefry(words, jnp.zeros((), np.uint32), jnp.asarray(number).astype(np.uint32)))
    return _as_key(folded, key)


def _words(key: PRNGKeyArray) -> Array | None:
    """The two words of a threefry key in JAX's partitionable counting; ``None`` for any other key.

    JAX's key-reuse check sees only JAX's own functions, so they are used while it is on.
    """
    config: Any = jax.config
    if not config.jax_threefry_partitionable or config.jax_debug_key_reuse:
        return None
    words = jax.random.key_data(key)
    return words if words.shape == (2,) else None


def _as_key(words: Array, key: PRNGKeyArray) -> Array:
    """Words as keys of the same kind as ``key``: typed or raw."""
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return jax.random.wrap_key_data(words, impl=jax.random.key_impl(key)) if typed else words


def _unit(bits: Array) -> Array:
    """Numbers in [0, 1) from the upper 23 bits, as the mantissa of a float in [1, 2)."""
    return lax.bitcast_convert_type((bits >> np.uint32(9)) | np.uint32(0x3F800000), np.float32) - np.float32(1)


# polynomials in w - 5/2 for w < 5 and in √w - 3 beyond; the highest power first
_CENTRE = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06),
    *(0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
_TAILS = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844),
    *(0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)


def _erf_inv(x: Array) -> Array:
    """The inverse error function of float32 numbers in (-1, 1), within 3e-7; ``lax.erf_inv`` errs by 6e-6 in the tails.

    The same polynomials in ``w = -log(1 - x²)``, computed as ``(1 - x)(1 + x)``, which loses no digits near ±1, so that
    no ``log1p`` is needed. Reference: Giles (2012), GPU Computing Gems, "Approximating the erfinv function".
    """
    w = -jnp.log((1 - x) * (1 + x))
    centre, tails = w - np.float32(2.5), jnp.sqrt(w) - np.float32(3)
    return x * jnp.where(w < 5, _horner(_CENTRE, centre), _horner(_TAILS, tails))


def _horner(coefficients: tuple[float, ...], x: Array) -> Array:
    value = jnp.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + np.float32(coefficient)
    return value


def normal(key: PRNGKeyArray, shape: tuple[int, ...], dtype: jnp.dtype | None = None) -> Array:
    """The numbers of ``jax.random.normal(key, shape)`` up to rounding, which is smaller here in the tails.

    >>> import jax, jax.numpy as jnp
    >>> from thalweg.core.random import normal
    >>> key = jax.random.key(0)
    >>> bool(jnp.allclose(normal(key, (3, 5)), jax.random.normal(jax.random.clone(key), (3, 5)), rtol=1e-5))
    True
    """
    dtype = jnp.dtype(jnp.result_type(float) if dtype is None else dtype)
    bits = _bits(key, shape) if dtype == np.float32 else None
    if bits is None:
        return jax.random.normal(key, shape, dtype)
    lowest = np.nextafter(np.float32(-1), np.float32(0))
    unit = jnp.maximum(lowest, _unit(bits) * (np.float32(1) - lowest) + lowest)
    return np.float32(np.sqrt(2)) * _erf_inv(unit)


def materialize(holds: Array, make: Callable[[], PyTree]) -> PyTree:
    """``make()``, computed once for all its readers; ``holds`` is always true, but the compiler does not know that.

    On CPUs XLA recomputes cheap operations in every loop that reads their result, and each operation of threefry is
    cheap. The result of a branch is stored instead. A branch costs more than recomputing a few numbers, so small
    results are returned directly.
    """
    like = jax.eval_shape(make)
    if sum(leaf.size for leaf in jax.tree.leaves(like)) < _FEW:
        return make()
    return lax.cond(jnp.all(holds), make, lambda: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like))


def uniform(key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
    """The numbers of ``jax.random.uniform(key, shape)``, in [0, 1).

    >>> import jax
    >>> from thalweg.core.random import uniform
    >>> key = jax.random.key(0)
    >>> bool((uniform(key, (5,)) == jax.random.uniform(jax.random.clone(key), (5,))).all())
    True
    """
    bits = _bits(key, shape) if jnp.result_type(float) == np.float32 else None
    return jax.random.uniform(key, shape) if bits is None else _unit(bits)


def log_uniform(key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
    """``log u`` with ``u = jax.random.uniform(key, shape)``, for an accept step."""
    bits = _bits(key, shape) if jnp.result_type(float) == np.float32 else None
    return jnp.log(jax.random.uniform(key, shape) if bits is None else _unit(bits))


def distinct(key: PRNGKeyArray, size: int, count: int) -> Array:
    """``count`` distinct indices below ``size``, every subset equally likely.

    These are the first ``count`` swaps of a Fisher-Yates shuffle: a full shuffle sorts, and sorting a buffer of 10 000
    takes longer than a step of a small network.
    """
    places = jnp.arange(count)
    others = jax.random.randint(key, (count,), places, size)

    def exchange(place, order):
        here, there = order[place], order[others[place]]
        return order.at[place].set(there).at[others[place]].set(here)

    return lax.fori_loop(0, count, exchange, jnp.arange(size))[:count]
