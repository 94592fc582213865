"""The data of a training, checked against the model's spaces, and its batches, a function of the update's number."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from thalweg.core import ConditionalEnergy, ScoreNetwork, Space, is_concrete, space_of
from thalweg.data import Dataset, Table, check_array
from thalweg.spaces import Discrete, Product, Real, as_points


def check_data(energy: Any, data: PyTree) -> tuple[PyTree, int]:
    """The data as numpy arrays of their space's dtype, and the number of rows; a ValueError if they are not in it.

    Args:
        energy: the model, whose spaces the data must be in; a model without a space takes any tree of arrays.
        data: points ``(rows, *event)`` as arrays, nested lists or frames of numbers (pandas, polars), ``(x, c)`` for a
            `ConditionalEnergy`, or a `Dataset` or `Table`, whose training rows are used.

    >>> import numpy as np, thalweg as tw
    >>> from thalweg.train.data import check_data
    >>> x, rows = check_data(tw.as_energy(lambda x: x[0], tw.Binary(2)), np.ones((5, 2), np.uint8))
    >>> x.dtype, rows
    (dtype('int32'), 5)
    """
    space, conditional = space_of(energy), isinstance(energy, ConditionalEnergy)
    if isinstance(energy, ScoreNetwork) and isinstance(space, Discrete):
        raise ValueError(f"expected a continuous space for a score network, got {space}; use an energy")
    if isinstance(data, (Dataset, Table)):
        data = _training_rows(data, conditional)
    elif isinstance(data, (tuple, list)) and conditional:
        data = type(data)(_without_frames(part) for part in data)
    else:
        data = _without_frames(data)
    if isinstance(energy, ConditionalEnergy) and isinstance(data, (tuple, list)):
        if len(data) != 2:
            raise ValueError(f"expected data (x, c) for a conditional energy, got {len(data)} parts; give both")
        checked = (_points(space, data[0], "data"), _points(energy.condition_space, data[1], "conditions"))
    else:
        checked = _points(space, data, "data")
    counts = [len(leaf) for leaf in jax.tree.leaves(checked)]
    if len(set(counts)) > 1:
        raise ValueError(f"expected the same number of rows in all data, got {counts}; align them")
    return checked, counts[0]


def _training_rows(data: Dataset | Table, conditional: bool) -> PyTree:
    x, y = (data.x, data.y) if isinstance(data, Table) else (data.x_train, data.y_train)
    if not conditional:
        return x
    if y is None:
        raise ValueError("expected labels in the data set of a conditional energy, got none; give data=(x, c)")
    return x, y


def _without_frames(data: Any) -> Any:
    """A frame as floats ``(rows, columns)``, a column as an array; anything else unchanged."""
    if isinstance(data, (jax.Array, np.ndarray)) or not hasattr(data, "to_numpy"):
        return data
    if not hasattr(data, "columns"):
        return _column(getattr(data, "name", None), data)
    names = list(data.columns)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"expected columns of different names, got {twice!r} twice; rename one of them")
    if not names:
        raise ValueError("expected a frame with columns of numbers, got one without columns; check where it was read")
    columns = [_column(name, data[name]) for name in names]
    return np.stack(columns, axis=1).astype(np.result_type(np.float32, *columns))


def _column(name: Any, column: Any) -> np.ndarray:
    values = np.asarray(column.to_numpy())
    if values.dtype.kind not in "fiub":
        raise ValueError(
            f"expected columns of numbers, got {name!r} of {column.dtype}; leave that column out or make it numbers"
        )
    return values


def _points(space: Space | None, data: PyTree, name: str) -> PyTree:
    if data is None or (isinstance(data, (tuple, list, dict)) and not data):
        raise ValueError(f"expected {name} of shape (rows, *event), got nothing; give an array")
    if space is not None and not isinstance(space, Product) and _is_tree(data):
        raise ValueError(
            f"expected {name} as one array (rows, *event) for a model on {space}, got a {type(data).__name__} of "
            f"{len(data)} arrays; give one, or train p(x|c) on (x, c) with tw.core.as_conditional(energy)"
        )
    if isinstance(space, Real) and isinstance(data, (tuple, list)):
        data = _as_floats(data)
    if isinstance(space, Real) or (space is None and not _is_tree(data)):
        data = check_array(data, event_shape=None if space is None else space.shape, integers=space is None, name=name)
    # arrays on a device are copied to the host to be checked: no point may be NaN, whatever the space
    device = lambda leaf: isinstance(leaf, jax.Array) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    data = jax.tree.map(lambda leaf: np.asarray(leaf) if device(leaf) else leaf, data)
    return jax.tree.map(np.asarray, as_points(space, data, name))


def _as_floats(rows: Any) -> Any:
    """A nested list of numbers as floats; anything else is left for the check to refuse."""
    try:
        array = np.asarray(rows)
    except ValueError:  # rows of unequal length
        return rows
    return array.astype(np.float32) if array.dtype.kind in "iub" else array


def _is_tree(data: Any) -> bool:
    """Whether data are several arrays rather than one array or a list of rows."""
    if isinstance(data, dict):
        return True
    return isinstance(data, (tuple, list)) and any(isinstance(part, (jax.Array, np.ndarray, dict)) for part in data)


def check_concrete(**given: PyTree) -> None:
    """Raise a ValueError for traced arrays: training needs concrete values."""
    for name, tree in given.items():
        try:
            leaves = jax.tree.leaves(tree)
        except ValueError as problem:  # of keys that cannot be sorted, such as 1 and "a"
            raise ValueError(
                f"expected {name} as a tree that JAX can take apart, got dictionary keys of different kinds; "
                "name them all by words"
            ) from problem
        if not all(map(is_concrete, leaves)):
            raise ValueError(
                f"expected numbers in {name} that can be looked at, got traced ones, as inside jax.vmap or jax.jit; "
                "call fit outside, and train many seeds in one program with tw.train.fit_many(..., keys=keys)"
            )


class Batches:
    """Batches of rows without replacement, epoch by epoch; a batch depends only on the key and the update's number."""

    def __init__(self, data: PyTree, rows: int, size: int, key: PRNGKeyArray):
        self._data, self._rows, self._size = data, rows, size
        self._seed = np.asarray(jax.random.key_data(key)).ravel().tolist()
        self._epoch, self._order = -1, np.arange(0)

    def at(self, step: int) -> PyTree:
        """The batch of update number ``step``."""
        epoch, place = divmod(step, self._rows // self._size)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, np.random.default_rng([*self._seed, epoch]).permutation(self._rows)
        chosen = self._order[place * self._size : (place + 1) * self._size]
        return jax.tree.map(lambda leaf: leaf[chosen], self._data)
