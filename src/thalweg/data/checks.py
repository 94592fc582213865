"""`Dataset`, and the checks of data and labels."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from thalweg.core import finite, flag, static_number, typed_key, whole_number
from thalweg.spaces.checks import as_shape


class Dataset(NamedTuple):
    """Training rows and test rows `(rows, *event)`, with labels; labels and test rows may be None.

    >>> Dataset(np.zeros((3, 2), np.float32)).x_test is None
    True
    """

    x_train: np.ndarray
    y_train: np.ndarray | None = None
    x_test: np.ndarray | None = None
    y_test: np.ndarray | None = None


def check_array(
    x: Any, *, event_shape: tuple[int, ...] | None = None, integers: bool = False, name: str = "data"
) -> np.ndarray | jax.Array:
    """Return `x`, shape `(rows, *event)`, unchanged if a model can be fitted to it; else raise a ValueError.

    Refused are arrays without rows, NaN and infinity, masked arrays, integers (unless `integers=True`, for binary,
    spin, categorical and count data), and rows of another shape than `event_shape`, if given.

    >>> check_array(np.ones((3, 2), np.float32), event_shape=(2,)).shape
    (3, 2)
    >>> check_array(np.array([[1.0], [np.nan]]))
    Traceback (most recent call last):
    ValueError: data: expected finite numbers, got nan at index (1, 0) (1 of 2 values); remove or fill in those rows
    """
    array = x if isinstance(x, (np.ndarray, jax.Array)) else _as_array(x, name)
    if isinstance(array, np.ma.MaskedArray):
        raise ValueError(f"{name}: expected plain numbers, got a masked array; fill it or leave its masked rows out")
    if array.ndim == 0:
        raise ValueError(f"{name}: expected an array (rows, ...), got a single number; give it as an array of one row")
    if array.size == 0:
        raise ValueError(
            f"{name}: expected at least one row, got an empty array of shape {array.shape}; check where it was read"
        )
    flag("integers", integers)
    whole = jnp.issubdtype(array.dtype, jnp.integer) or array.dtype == np.bool_
    if whole and not integers:
        raise ValueError(
            f"{name}: expected floats, got {array.dtype}; scale images with thalweg.data.scale_pixels, "
            "or convert with .astype('float32')"
        )
    if not whole and not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"{name}: expected real numbers, got {array.dtype}; convert with .astype('float32')")
    if event_shape is not None and tuple(array.shape[1:]) != as_shape(event_shape):
        raise ValueError(
            f"{name}: expected rows of shape {tuple(event_shape)}, that is an array (rows, "
            f"{', '.join(map(str, event_shape))}), got {array.shape}; reshape the data or change the model"
        )
    if not whole:
        _check_finite(np.asarray(array), name)
    return array


def _as_array(x: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(x)
    except ValueError as error:  # rows of unequal length
        raise ValueError(f"{name}: expected rows of one shape, got ragged ones; make them equal ({error})") from error
    except Exception as error:  # whatever the conversion of a foreign object raises
        raise ValueError(f"{name}: expected an array, got {type(x).__name__}; give numbers in rows") from error


def _check_finite(array: np.ndarray, name: str) -> None:
    fine = np.isfinite(array)
    if fine.all():
        return
    index = tuple(int(i) for i in np.argwhere(~fine)[0])
    raise ValueError(
        f"{name}: expected finite numbers, got {float(array[index])} at index {index} "
        f"({int((~fine).sum())} of {array.size} values); remove or fill in those rows"
    )


def check_labels(y: Any, rows: int, *, name: str = "labels") -> np.ndarray:
    """Return labels as an array; a ValueError unless there is one label per row.

    >>> check_labels([0, 1, 1], 3)
    array([0, 1, 1])
    """
    rows = whole_number("rows", rows, 0)
    labels = _as_array(y, name)
    if labels.ndim == 0 or len(labels) != rows:
        raise ValueError(
            f"{name}: expected one label per row, that is {rows}, got shape {labels.shape}; "
            "check that labels and data come from the same split"
        )
    return labels


def hold_out(x: np.ndarray, y: np.ndarray | None = None, *, fraction: float, key: jax.Array) -> Dataset:
    """Split rows at random into training and test rows, with their labels.

    `round(fraction * rows)` rows become test rows; at least one row must remain on each side.

    >>> split = hold_out(np.arange(10.0), np.arange(10), fraction=0.2, key=jax.random.key(0))
    >>> len(split.x_train), len(split.x_test), bool((split.x_test == split.y_test).all())
    (8, 2, True)
    """
    x = _as_array(x, "x")
    if x.ndim == 0:
        raise ValueError("x: expected rows (rows, *event), got a single value; give an array of them")
    rows = len(x)
    y = None if y is None else check_labels(y, rows, name="y")
    held = round(static_number("fraction", fraction, finite) * rows)
    key = typed_key(key)
    if not 0 < held < rows:
        raise ValueError(
            f"fraction: expected one that leaves rows on both sides, got {fraction} of {rows} rows; "
            "choose a number between 0 and 1 such as 0.2"
        )
    order = np.asarray(jax.random.permutation(key, rows))
    test, train = order[:held], order[held:]
    if y is None:
        return Dataset(x[train], None, x[test], None)
    labels = check_labels(y, rows)
    return Dataset(x[train], labels[train], x[test], labels[test])
