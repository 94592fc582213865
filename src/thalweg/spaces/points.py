"""Checking and converting the points a user gives, and refusing gradients on spaces without them."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from thalweg.core import Space, is_concrete, space_of
from thalweg.spaces.checks import HasInside
from thalweg.spaces.continuous import Continuous, Positive, Real
from thalweg.spaces.discrete import Counts, Discrete, Finite
from thalweg.spaces.product import Product


def as_points(space: Space | None, x: Any, name: str = "init") -> Any:
    """``x`` as points ``(n, *event)`` of ``space``, in its dtype; a tree of such arrays for a `Product`.

    Floating-point numbers of any width are converted, as are whole numbers of any kind on a discrete space. Anything
    that is not points of the space raises an error that mentions ``name``. Inside a traced function only shapes and
    types can be checked. A floating-point JAX array on `Real` is not checked for NaN here: a sampler checks the energy
    of its starts. Without ``space``, any tree of arrays with one common leading axis is accepted.

    >>> import numpy as np, thalweg as tw
    >>> from thalweg.spaces import as_points
    >>> as_points(tw.Spin(2), np.array([[True, True]])).dtype
    dtype('int32')
    >>> as_points(tw.Spin(2), np.zeros((3, 2)))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: expected points of Spin(shape=(2,)) in init, got [0 0] in row 0, column 0; start for example ...
    """
    if space is not None and not isinstance(space, Space):
        raise ValueError(f"expected a space such as tw.Real(2), got {space!r:.80}; give an instance of one")
    # the common case, without a call to the device
    if isinstance(x, jax.Array) and (space is None or isinstance(space, Real)):
        right = x.dtype == jax.dtypes.canonicalize_dtype(float) and x.ndim and x.shape[0]
        if right and (space is None or x.shape[1:] == space.shape):
            return x
    if isinstance(space, Product):
        points = _product(space, x, name)
        _same_rows(points, name)
        return points
    return _unknown(x, name) if space is None else _leaf(space, x, name)


def _product(space: Product, x: Any, name: str) -> Any:
    if space.names is None:
        if not isinstance(x, (tuple, list)) or len(x) != len(space.parts):
            raise ValueError(
                f"expected a tuple of {len(space.parts)} arrays in {name}, one for each part of the product, got "
                f"{_describe(x)}; give one array (n, *event) for each part"
            )
        labels = [f"{name}[{number}]" for number in range(len(space.parts))]
    else:
        if not isinstance(x, Mapping) or set(x) != set(space.names):
            got = f"the keys {sorted(map(str, x))}" if isinstance(x, Mapping) else _describe(x)
            raise ValueError(
                f"expected a dictionary with the keys {list(space.names)} in {name}, got {got:.150}; "
                "give one array (n, *event) for each"
            )
        labels = [f"{name}[{key!r}]" for key in space.names]

    def one(part, value, label):
        return _product(part, value, label) if isinstance(part, Product) else _leaf(part, value, label)

    return space.join([one(*row) for row in zip(space.parts, space.split(x), labels, strict=True)])


def _unknown(x: Any, name: str) -> Any:
    if isinstance(x, (list, tuple)) and x and all(isinstance(leaf, (int, float)) for leaf in jax.tree.leaves(x)):
        return _leaf(None, x, name)  # a list of rows is an array
    try:
        leaves, form = jax.tree.flatten(x, is_leaf=lambda node: node is None)
    except (TypeError, ValueError):
        raise ValueError(
            f"expected a tree of arrays in {name}, got one whose keys cannot be sorted; use strings as keys"
        ) from None
    if not leaves:
        raise ValueError(f"expected at least one array in {name}, got {_describe(x)}; give points (n, *event)")
    points = jax.tree.unflatten(form, [_leaf(None, leaf, name) for leaf in leaves])
    _same_rows(points, name)
    return points


def _same_rows(points: Any, name: str) -> None:
    rows = sorted({leaf.shape[0] for leaf in jax.tree.leaves(points)})
    if len(rows) > 1:
        raise ValueError(
            f"expected the same number of points in all parts of {name}, got {', '.join(map(str, rows))}; "
            "the leading axis of every part counts the points"
        )


def _leaf(space: Space | None, x: Any, name: str) -> Array:
    """Check and convert one array of points."""
    given = x if isinstance(x, jax.Array) else _host(x, name)
    _check_shape(space, given, name)
    dtype = given.dtype
    whole = jnp.issubdtype(dtype, jnp.integer) or dtype == np.bool_
    if not whole and not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"expected real numbers in {name}, got {dtype}; give floating-point or whole numbers")
    if isinstance(space, Continuous) and whole:
        raise ValueError(f"expected floating-point numbers in {name}, got {dtype}; convert with {name}.astype(float)")
    natural = jnp.dtype("int32") if whole else jax.dtypes.canonicalize_dtype(float)
    wanted = natural if space is None else space.dtype
    if not is_concrete(given) or (isinstance(given, jax.Array) and (space is None or isinstance(space, Real))):
        if whole and is_concrete(given):
            _whole_numbers(np.asarray(given), name)
        return jnp.asarray(given, wanted)
    rows = np.asarray(given)
    if jnp.issubdtype(wanted, jnp.integer):
        rows = _whole_numbers(rows, name)
    with np.errstate(over="ignore"):
        rows = rows.astype(wanted)
    _check_inside(space, rows, name)
    return given.astype(wanted) if isinstance(given, jax.Array) else jnp.asarray(rows)


def _host(x: Any, name: str) -> np.ndarray:
    """``x``, which is not a JAX array, as a numpy array of numbers."""
    if isinstance(x, np.ma.MaskedArray) or (
        isinstance(x, (list, tuple)) and any(isinstance(row, np.ma.MaskedArray) for row in x)
    ):
        raise ValueError(f"expected plain numbers in {name}, got a masked array; fill it or leave its masked rows out")
    try:
        array = np.asarray(x)
    except Exception:  # a foreign object's conversion may raise anything
        raise ValueError(
            f"expected arrays of numbers in {name}, got {_describe(x)} that is no array; give points (n, *event)"
        ) from None
    if array.dtype.kind in "OSUVMm" and not jnp.issubdtype(array.dtype, jnp.number):
        raise ValueError(f"expected arrays of numbers in {name}, got {_describe(x)}; give points (n, *event)")
    return array


def _check_shape(space: Space | None, x: Array | np.ndarray, name: str) -> None:
    event = "*event" if space is None else ", ".join(map(str, space.shape))
    if x.ndim == 0:
        raise ValueError(
            f"expected {name} of shape (n, {event}), got a scalar; add a leading axis that counts the points: "
            f"{name}[None]"
        )
    if space is not None and x.shape[1:] != space.shape:
        raise ValueError(
            f"expected {name} of shape (n, {event}), got {x.shape}; the leading axis counts the points (a sampler's "
            "chains), the others are one point's"
        )
    if x.shape[0] == 0:
        raise ValueError(f"expected at least one point in {name}, got none; give an array of shape (n, {event})")


def _whole_numbers(rows: np.ndarray, name: str) -> np.ndarray:
    """``rows`` itself; raises unless every number is whole and fits 32 bits."""
    if rows.dtype.kind not in "biu":
        rows = rows.astype(float)  # 2^31 - 1 is no number of single precision
    limits = np.iinfo(np.int32)
    small = (rows >= limits.min) & (rows <= limits.max)
    bad = ~small | (rows != np.floor(rows)) if rows.dtype.kind == "f" else ~small
    if bad.any():
        place = np.unravel_index(int(np.argmax(bad)), rows.shape)
        column = f", column {place[1]}" if rows.ndim == 2 else ""
        what = "whole numbers" if np.isfinite(rows[place]) and small[place] else "whole numbers below 2^31"
        raise ValueError(
            f"expected {what} in {name}, got {rows[place]} in row {place[0]}{column}; "
            "give the labels or counts themselves"
        )
    return rows


def _check_inside(space: Space | None, rows: np.ndarray, name: str) -> None:
    if isinstance(space, HasInside):
        inside = space.inside(rows, np)
    elif space is not None:
        inside = np.asarray(jax.vmap(space.contains)(jnp.asarray(rows)))
    else:
        inside = np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
    if not inside.all():
        worst = int(np.argmin(inside))
        point = " ".join(np.array2string(rows[worst], threshold=8, precision=4).split())
        what = "finite numbers" if space is None else f"points of {space}"
        hint = "start for example at space.noise(...)" if name == "init" else "correct it, or use another space"
        raise ValueError(
            f"expected {what} in {name}, got {point:.120} in row {worst}{_column(space, rows[worst])}; {hint}"
        )


def _column(space: Space | None, row: Any) -> str:
    """The first column of a row that lies outside the space, for a message; nothing where that is no single one."""
    if row.ndim != 1:
        return ""
    bad = ~np.isfinite(row)
    if isinstance(space, Finite):
        bad = ~np.isin(row, space.levels)
    elif isinstance(space, (Counts, Positive)):
        bad |= row < 0
    return f", column {int(np.argmax(bad))}" if bad.any() else ""


def _describe(x: Any) -> str:
    if isinstance(x, (str, bytes)):
        return f"the text {x!r:.40}"
    if x is None:
        return "None"
    if isinstance(x, (jax.Array, np.ndarray)):
        return f"an array of {x.dtype} {x.shape}"
    kind = type(x).__name__
    return f"a {kind} of {len(x)}" if isinstance(x, (tuple, list, Mapping)) else f"a {kind}"


def require_gradient(name: str, space: Space | None, x: PyTree) -> None:
    """Raise if the space has no gradients or the points are whole numbers; ``name`` is the method, for the message."""
    for part in _parts(space):
        if isinstance(part, Discrete):
            where = "" if part is space else " in a product"
            raise ValueError(
                f"expected a continuous space for {name}, got {part}{where}, which has no gradients; "
                "use a kernel for discrete spaces (Gibbs, GibbsWithGradients)"
            )
    for leaf in jax.tree.leaves(x):
        dtype = jnp.result_type(leaf)
        if not jnp.issubdtype(dtype, jnp.floating):
            raise ValueError(f"expected floating-point numbers for {name}, got {dtype}; convert with x.astype(float)")


def _parts(space: Space | None) -> list[Space | None]:
    return [leaf for part in space.parts for leaf in _parts(part)] if isinstance(space, Product) else [space]


def point_space(model: Any, x: PyTree) -> Space:
    """The space of a model's points; if the model has none, the space is read from a batch ``(n, *event)``.

    An array of floating-point numbers is read as R^shape, and a tree of such arrays as their product. Whole numbers
    could belong to any discrete space, so for them the model must have a space.

    >>> import jax.numpy as jnp
    >>> from thalweg.spaces import point_space
    >>> point_space(jnp.sum, jnp.zeros((5, 2))).shape
    (2,)
    """
    space = space_of(model)
    return _read_space(x) if space is None else space


def _read_space(x: PyTree) -> Space:
    if isinstance(x, Mapping):
        return Product(**{str(name): _read_space(part) for name, part in x.items()})
    if isinstance(x, (tuple, list)):
        return Product(*map(_read_space, x))
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(
            f"expected a model that knows its space for points of type {x.dtype}, got one that does not; "
            "give it one by tw.as_energy(function, space)"
        )
    return Real(x.shape[1:])
