"""Samples as rows of numbers: flattened, checked, and the distances between them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from thalweg.core import Space, compiled
from thalweg.core.random import distinct
from thalweg.spaces import as_points

# the number of rows whose pairwise distances give the default bandwidths
_ROWS = 300
# the number of entries of a kernel matrix that are in memory at once
_ENTRIES = 2**22


def require_rows(x: PyTree, least: int, name: str, purpose: str) -> None:
    """Raise if there are fewer than ``least`` points."""
    rows = len(jax.tree.leaves(x)[0])
    if rows < least:
        many = "one" if rows == 1 else str(rows)
        raise ValueError(f"expected at least {least} {name} for {purpose}, got {many}; draw more")


def as_finite_points(space: Space | None, x: Any, name: str) -> PyTree:
    """``x`` as points of ``space``, see `as_points`; raises if a number is not finite."""
    points = as_points(space, x, name)
    for leaf in jax.tree.leaves(points):
        bad = np.any(~np.isfinite(np.asarray(leaf)).reshape(len(leaf), -1), axis=1)
        if bad.any():
            raise ValueError(
                f"expected finite numbers in {name}, got NaN or infinity in row {int(np.argmax(bad))} "
                f"({int(bad.sum())} of {len(leaf)} rows); remove those rows"
            )
    return points


def flatten(x: PyTree) -> Float[Array, "n d"]:
    """Points ``(n, *event)``, or a tree of such arrays, as rows of floating-point numbers."""
    rows = [jnp.reshape(leaf, (len(leaf), -1)).astype(jnp.result_type(float)) for leaf in jax.tree.leaves(x)]
    return jnp.concatenate(rows, axis=1)


def flat_pair(x: Any, y: Any, least: int, purpose: str) -> tuple[Float[Array, "n d"], Float[Array, "m d"]]:
    """Two sets of samples as rows; raises if their points differ in shape or if one set is too small."""
    for name, samples in (("x", x), ("y", y)):
        if samples is None:
            raise ValueError(f"expected two sets of samples for {purpose}, got None as {name}; give both")
    one, other = as_finite_points(None, x, "x"), as_finite_points(None, y, "y")
    shapes = [jax.tree.map(lambda leaf: leaf.shape[1:], points) for points in (one, other)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"expected two sets of samples of one shape, got points of shapes {shapes[0]} and {shapes[1]}; "
            "compare like with like"
        )
    for name, points in (("x", one), ("y", other)):
        require_rows(points, least, f"samples in {name}", purpose)
    return flatten(one), flatten(other)


def centre(x: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """Rows minus their median, so that little cancels in `squared_distances`, also with outliers."""
    return x - jnp.median(x, axis=0)


def squared_distances(x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """``‖xᵢ - yⱼ‖²`` by matrix products; `centre` the rows first."""
    products = jnp.matmul(x, y.T, precision="highest")
    return jnp.maximum(_norms(x)[:, None] + _norms(y) - 2 * products, 0)


def _norms(x: Float[Array, "n d"]) -> Float[Array, " n"]:
    return jnp.sum(x**2, axis=1)


def distance_quantiles(x: Float[Array, "n d"], quantiles: Any, key: PRNGKeyArray | None = None) -> Array:
    """Quantiles of the distances between different rows, over at most 300 rows; all are 1 if all rows are equal.

    Equal rows are left out: data with many copies would have the median zero. The rows are chosen at random with a
    ``key``, and are evenly spaced without one.
    """
    if len(x) > _ROWS:
        x = x[np.arange(_ROWS) * len(x) // _ROWS] if key is None else x[distinct(key, len(x), _ROWS)]
    return _distance_quantiles(x, jnp.asarray(quantiles))


@compiled
def _distance_quantiles(x: Float[Array, "n d"], quantiles: Array) -> Array:
    x = centre(x)
    pairs = np.triu_indices(len(x), 1)
    # a smaller square is the rounding error of the rows' own squares
    noise = 20 * jnp.finfo(x.dtype).eps * (_norms(x)[:, None] + _norms(x))
    squares = squared_distances(x, x)
    apart = jnp.where(squares > noise, squares, jnp.nan)[pairs]
    found = jnp.sqrt(jnp.nanquantile(apart, quantiles))
    return jnp.where(jnp.isnan(found), 1.0, found)


def row_blocks(rows: int) -> Array:
    """Numbers of rows in blocks ``(blocks, size)``; a block of a kernel matrix fits the memory.

    The last block is filled up with ``rows``, which is the number of no row: gather with ``mode="fill"``.
    """
    size = max(1, min(rows, _ENTRIES // rows))
    blocks = -(-rows // size)
    return jnp.minimum(jnp.arange(blocks * size), rows).reshape(blocks, size)
