"""A decorator that still accepts the key as first argument, as in the first release, with a deprecation warning."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def accept_key_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function(*arguments, key=key)`` that also accepts the deprecated call ``function(key, *arguments)``.

    >>> import jax
    >>> from thalweg.exact.key_first import accept_key_first
    >>> accept_key_first(lambda count, *, key: count)(3, key=jax.random.key(0))
    3
    """

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if arguments and _is_key(arguments[0]):
            name = function.__name__
            warnings.warn(
                f"{name}(key, ...) is now {name}(..., key=key); the old order will go in the next release",
                DeprecationWarning,
                stacklevel=2,
            )
            return function(*arguments[1:], key=arguments[0], **named)
        return function(*arguments, **named)

    return call


def _is_key(value: Any) -> bool:
    if not isinstance(value, (jax.Array, np.ndarray)):
        return False
    return jnp.issubdtype(value.dtype, jax.dtypes.prng_key) or (value.dtype == np.uint32 and value.ndim == 1)
