"""Checks of numbers and shapes. Each raises one sentence: what was expected, what was given, what to do."""

import inspect
import math
import operator
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PyTree


def is_concrete(value: Any) -> bool:
    """Whether the value of an array is known now. It is not while JAX traces a function.

    >>> import jax, jax.numpy as jnp
    >>> from thalweg.core import is_concrete
    >>> is_concrete(jnp.ones(2)), jax.eval_shape(lambda x: x * is_concrete(x), jnp.ones(2)).shape
    (True, (2,))
    """
    return not isinstance(value, Tracer)


def real(name: str, value: Any, *, scalar: bool = False) -> Array:
    """``value`` as a floating-point array; raises if it is not made of real numbers.

    >>> from thalweg.core import real
    >>> float(real("bias", 2))
    2.0
    """
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(f"expected {name} without masked entries, got a masked array; fill them, or leave them out")
    try:
        if getattr(getattr(value, "dtype", None), "kind", None) in ("m", "M"):  # numpy would count the days
            raise TypeError
        array = jnp.asarray(value, dtype=jnp.result_type(float))
    except Exception:  # whatever the conversion of a foreign object raises
        raise ValueError(
            f"expected {name} to be real numbers, got {_describe(value)}; give a number or an array"
        ) from None
    if jnp.iscomplexobj(value):
        raise ValueError(f"expected {name} to be real numbers, got complex ones; take their real part")
    if scalar and array.ndim:
        raise ValueError(f"expected {name} to be one number, got {_describe(value)}; give a scalar")
    if array.size == 0:
        raise ValueError(f"expected {name} to be real numbers, got none at all; give at least one")
    return array


def finite(name: str, value: Any, *, scalar: bool = False) -> Array:
    """``value`` as a floating-point array; raises if a number is not finite."""
    array = real(name, value, scalar=scalar)
    if is_concrete(array) and not np.all(np.isfinite(array)):
        raise ValueError(f"expected {name} to be finite, got {_describe(value)}; look for NaN and infinity")
    return array


def positive(name: str, value: Any, *, scalar: bool = False) -> Array:
    """``value`` as a floating-point array; raises if a number is not finite or not above zero.

    >>> from thalweg.core import positive
    >>> float(positive("step_size", 0.5))
    0.5
    """
    array = real(name, value, scalar=scalar)
    if is_concrete(array) and not np.all(np.isfinite(array) & (np.asarray(array) > 0)):
        raise ValueError(f"expected {name} > 0, got {_describe(value)}; give a positive number")
    return array


def non_negative(name: str, value: Any, *, scalar: bool = False) -> Array:
    """``value`` as a floating-point array; raises if a number is not finite or is below zero."""
    array = real(name, value, scalar=scalar)
    if is_concrete(array) and not np.all(np.isfinite(array) & (np.asarray(array) >= 0)):
        raise ValueError(f"expected {name} >= 0, got {_describe(value)}; give zero or a positive number")
    return array


def between(name: str, value: Any, low: float, high: float, hint: str, *, scalar: bool = False) -> Array:
    """``value`` as a floating-point array; raises if a number lies outside ``[low, high]``."""
    array = real(name, value, scalar=scalar)
    if is_concrete(array) and not np.all((np.asarray(array) >= low) & (np.asarray(array) <= high)):
        raise ValueError(f"expected {name} between {low:g} and {high:.6g}, got {_describe(value)}; {hint}")
    return array


def static_number(name: str, value: Any, check: Callable[..., Array]) -> float:
    """``value`` as a Python number after ``check`` (`finite`, `positive`, …), also while a function is being traced.

    >>> from thalweg.core import positive, static_number
    >>> static_number("slope", 0.2, positive)
    0.2
    """
    with jax.ensure_compile_time_eval():  # an array made of a plain number is traced otherwise
        check(name, value, scalar=True)
    return float(value)


def whole_number(name: str, value: Any, least: int = 1, hint: str | None = None) -> int:
    """``value`` as an int; raises if it is not a whole number, is below ``least``, or does not fit 32 bits.

    >>> from thalweg.core import whole_number
    >>> whole_number("steps", 20)
    20
    """
    try:
        number = operator.index(value)
        fits = not isinstance(value, (bool, np.bool_)) and least <= number
    except TypeError:
        fits = False
    if fits and number >= 2**31:
        raise ValueError(f"expected {name} to be a whole number below 2^31, got {number}; do it in several runs")
    if not fits:
        say = f"give for example {max(least, 1)}" if hint is None else hint
        raise ValueError(f"expected {name} to be a whole number >= {least}, got {_describe(value)}; {say}")
    return number


def typed_key(key: Any) -> Array:
    """``key`` as one typed random key, also from raw key data; raises if it is not a key.

    >>> import jax
    >>> from thalweg.core import typed_key
    >>> typed_key(jax.random.key(0)).shape
    ()
    """
    dtype = key.dtype if isinstance(key, (jax.Array, np.ndarray)) else None
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ():
        return key
    if dtype == jnp.uint32 and key.ndim == 1:
        return jax.random.wrap_key_data(jnp.asarray(key))
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
        raise ValueError(f"expected one random key, got an array of keys of shape {key.shape}; give one of them")
    raise ValueError(f"expected a random key, got {_describe(key)}; write key=jax.random.key(0)")


def flag(name: str, value: Any) -> bool:
    """``value`` as a bool, refused where it is neither True nor False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"expected {name} to be True or False, got {_describe(value)}; say which")
    return bool(value)


def one_of(name: str, value: Any, options: Sequence[str]) -> str:
    """``value``, refused where it is not one of the words."""
    if not isinstance(value, str) or value not in options:
        words = ", ".join(map(repr, options))
        raise ValueError(f"expected {name} to be one of {words}, got {_describe(value)}; choose one of them")
    return value


def as_path(name: str, value: Any) -> Path:
    """``value`` as a path with ``~`` filled in, refused where it is no text and no path."""
    if not isinstance(value, (str, Path)) or "\0" in str(value):
        raise ValueError(f"expected {name} to be a path, got {_describe(value)}; name a file or folder")
    return Path(value).expanduser()


def key_and_shape(key: Any, shape: Any) -> tuple[Array, tuple[int, ...]]:
    """The arguments of a density's ``sample``, checked: one random key, and a tuple of sizes of at least zero.

    >>> import jax
    >>> from thalweg.core import key_and_shape
    >>> key_and_shape(jax.random.key(0), (5, 2))[1]
    (5, 2)
    """
    key = typed_key(key)
    whole = isinstance(shape, (tuple, list)) and all(
        isinstance(size, (int, np.integer)) and not isinstance(size, bool) and size >= 0 for size in shape
    )
    if not whole:
        raise ValueError(f"expected a shape such as (100,), got {_describe(shape)}; give a tuple of whole numbers >= 0")
    if math.prod(shape) >= 2**31:
        raise ValueError(
            f"expected a shape of fewer than 2^31 points, got {_describe(shape)}; draw them in several calls"
        )
    return key, tuple(int(size) for size in shape)


def check_instance(what: str, value: Any, methods: tuple[str, ...], example: str) -> None:
    """Raise if ``value`` is a class instead of an instance, or lacks one of ``methods``."""
    if isinstance(value, type):
        raise ValueError(f"expected {what}, got the class {value.__name__}; create an instance: {value.__name__}(...)")
    for method in methods:
        # the class is asked first: an equinox module makes a new object for every bound method
        if not callable(getattr(type(value), method, None)) and not callable(getattr(value, method, None)):
            raise ValueError(f"expected {what}, got {_describe(value)} without {method}; give for example {example}")


def check_function(what: str, value: Any, example: str, *arguments: Any) -> None:
    """Refuse a class where a function is wanted, and what cannot be called.

    With ``arguments``, shapes of arrays, also a function that takes other ones or returns something but numbers.
    """
    if isinstance(value, type) or not callable(value):
        raise ValueError(f"expected {what}, got {_describe(value)}; give for example {example}")
    if not arguments:
        return
    try:
        made = jax.tree.leaves(eqx.filter_eval_shape(value, *arguments))
    except TypeError as problem:
        if "positional argument" not in str(problem):
            raise
        raise ValueError(f"expected {what}, got one with other arguments; give for example {example}") from problem
    if not made or not all(isinstance(leaf, (jax.ShapeDtypeStruct, int, float)) for leaf in made):
        raise ValueError(f"expected {what} that returns numbers, got {_describe(made)}; give for example {example}")


def takes(function: Any, count: int) -> bool:
    """Whether a function can be called with ``count`` arguments by position; builtin ones do not always say, and pass.

    >>> from thalweg.core import takes
    >>> takes(lambda x: x, 1), takes(lambda x: x, 2)
    (True, False)
    """
    try:
        signature = inspect.signature(function)
    except ValueError:
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def check_point(x: Any, shape: tuple[int, ...]) -> None:
    """Raise if ``x`` is not one point of ``shape``: a batch in place of a point would silently give a wrong number.

    >>> import jax.numpy as jnp
    >>> from thalweg.core import check_point
    >>> check_point(jnp.zeros(2), (2,))
    """
    dtype = getattr(x, "dtype", None)
    if not isinstance(x, (jax.Array, np.ndarray, np.generic, int, float)) or isinstance(x, np.ma.MaskedArray):
        raise ValueError(
            f"expected one point as an array of shape {shape}, got {_describe(x)}; give numbers in an array"
        )
    if dtype is not None and not any(jnp.issubdtype(dtype, kind) for kind in (jnp.floating, jnp.integer, np.bool_)):
        raise ValueError(f"expected one point of real numbers, got {dtype}; give floating-point or whole numbers")
    if jnp.shape(x) != shape:
        raise ValueError(f"expected one point of shape {shape}, got {jnp.shape(x)}; batch by jax.vmap(energy)(points)")


def point_like(x: PyTree) -> PyTree:
    """The shape and dtype of one point, from a batch of points ``(n, *event)``."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), x)


def _describe(value: Any) -> str:
    """A short description of a value for an error message."""
    if isinstance(value, (jax.Array, np.ndarray)) and jnp.size(value) > 4:
        return f"an array of shape {jnp.shape(value)}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, types.FunctionType):
        return "a lambda" if value.__name__ == "<lambda>" else f"the function {value.__name__}"
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
