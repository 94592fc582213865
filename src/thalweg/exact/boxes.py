"""Measuring a density in the boxes of a mesh: its mass, the estimated error, and mass the nodes may have missed.

Each box carries a tensor Gauss-Legendre rule with 8 nodes per dimension. Code that does not depend on the energy is
compiled once for all energies; only `_measures` is compiled for each energy.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from thalweg.core import Space, compiled, is_concrete
from thalweg.exact.streaming import as_float, log_density

NODES = 8
# how many boxes are measured in one call, by dimension
BATCH = {1: 128, 2: 128, 3: 32}


def nodes_of(space: Space, low: Array, high: Array) -> tuple[Array, Array]:
    """Nodes ``(boxes, 8^d, *event)`` of boxes ``(boxes, d)``, and their log weights ``(boxes, 8^d)``."""
    dimensions = low.shape[-1]
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    grid = np.array(list(itertools.product(nodes, repeat=dimensions)))
    grid_weights = np.array([math.prod(row) for row in itertools.product(weights / 2, repeat=dimensions)])
    points = ((low + high) / 2)[:, None] + ((high - low) / 2)[:, None] * jnp.asarray(grid, low.dtype)
    log_volume = jnp.sum(jnp.log(high - low), axis=-1, keepdims=True)
    log_weights = log_volume + jnp.log(jnp.asarray(grid_weights, low.dtype))
    return points.reshape(*points.shape[:2], *space.shape), log_weights


def _unresolved(values: Array, dimensions: int) -> Array:
    """The estimated relative error of the rule along each dimension ``(…, d)``, from values ``(…, 8^d)`` at the nodes.

    Along each dimension, ``t`` is the size of the Legendre coefficients 6 and 7, ``h`` that of 2 and 3. A smooth
    density has ``t ≪ h`` and a rule of 8 nodes, exact to degree 15, errs by less than ``t²/h``; a kink or a jump has
    ``t ≈ h`` and the rule errs by about ``t``.
    """
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    coefficients = (np.arange(NODES) + 0.5) * np.polynomial.legendre.legvander(nodes, NODES - 1) * weights[:, None]
    coefficients, weights = jnp.asarray(coefficients, values.dtype), jnp.asarray(weights / 2, values.dtype)
    cube = values.reshape(*values.shape[:-1], *(NODES,) * dimensions)

    def mean_over(array, axes):
        for _ in range(axes):
            array = array @ weights
        return array

    mean = mean_over(cube, dimensions)
    errors = []
    for axis in range(dimensions):
        sizes = jnp.abs(jnp.moveaxis(cube, axis - dimensions, -1) @ coefficients)
        head, tail = (mean_over(jnp.max(sizes[..., pair], axis=-1), dimensions - 1) for pair in ([2, 3], [6, 7]))
        errors.append(tail * tail / jnp.where(tail > 0, jnp.maximum(head, tail), 1.0))
    return jnp.stack(errors, axis=-1) / jnp.where(mean > 0, mean, 1.0)[..., None]


def _log_growth(f: Callable[[Array], PyTree], x: Array) -> Array:
    """``log √(1 + ‖f(x)‖²)``: smooth, and as large as ``f``."""
    numbers = jnp.concatenate([jnp.ones(1), *(as_float(leaf).reshape(-1) for leaf in jax.tree.leaves(f(x)))])
    # relative to the largest, whose square may overflow in single precision
    largest = jnp.max(jnp.abs(numbers))
    return jnp.log(largest) + 0.5 * jnp.log(jnp.sum((numbers / largest) ** 2))


def _summits(log_p: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """The estimated maximum ``(boxes, d)`` of log densities ``(boxes, 8^d)``, and its width ``(boxes, d)``.

    Along each axis a parabola through the highest node and its neighbours gives the position and the Gaussian width.
    This finds a mode narrower than the distance between nodes, or the neck of a funnel, that lies between the nodes.
    """
    dimensions = low.shape[-1]
    nodes = jnp.asarray(np.polynomial.legendre.leggauss(NODES)[0], log_p.dtype)

    def top(values, place):
        place = jnp.clip(place, 1, NODES - 2) + jnp.arange(-1, 2)
        x, y = nodes[place], values[place]
        left, right = (y[1] - y[0]) / (x[1] - x[0]), (y[2] - y[1]) / (x[2] - x[1])
        bend = 2 * (right - left) / (x[2] - x[0])
        guess = jnp.where(bend < 0, (x[0] + x[1]) / 2 - left / bend, jnp.sign(left + right))
        width = jnp.where(bend < 0, math.sqrt(2 * math.pi) / jnp.sqrt(-bend), 2.0)
        # just inside the box: at its edge a density may be singular
        return jnp.clip(guess, -0.9999, 0.9999), jnp.minimum(width, 2.0)

    def one(values):
        cube = values.reshape((NODES,) * dimensions)
        place = jnp.unravel_index(jnp.argmax(values), cube.shape)
        lines = [cube[(*place[:axis], slice(None), *place[axis + 1 :])] for axis in range(dimensions)]
        return [jnp.stack(sides) for sides in zip(*map(top, lines, place), strict=True)]

    tops, widths = jax.vmap(one)(log_p)
    return (low + high) / 2 + (high - low) / 2 * tops, (high - low) / 2 * widths


@compiled
def _measures(energy: Any, f: Callable | None, floor: Array, points: Array) -> Array:
    """``(points, measures)``: ``log p`` and, if there is an ``f`` to average, ``log p√(1+‖f‖²)``.

    ``f`` is ignored where ``log p`` is at or below ``floor``.
    """

    def measures(x):
        log_p = log_density(energy, x)
        grown = [] if f is None else [log_p + jnp.where(log_p > floor, _log_growth(f, x), 0.0)]
        return jnp.stack([log_p, *grown])

    return jax.vmap(measures)(points)


@compiled
def _place_nodes(space: Space, low: Array, high: Array) -> tuple[Array, Array]:
    points, log_weights = nodes_of(space, low, high)
    return points.reshape(-1, *space.shape), log_weights


@compiled
def _guess(log_measures: Array, low: Array, high: Array, hint: Array) -> tuple[Array, Array]:
    """Two estimates per box, ``(2, boxes, d)``, of where the density is highest, and their widths.

    One comes from the box's own nodes, the other is the ``hint`` of its parent, moved to the nearest point inside.
    """
    tops, widths = _summits(log_measures[:, 0].reshape(len(low), -1), low, high)
    # just inside the box: at its edge a density may be singular
    margin = 1e-4 * (high - low)
    nearest = jnp.clip(hint[:, 0], low + margin, high - margin)
    return jnp.stack([tops, nearest]), jnp.stack([widths, jnp.minimum(hint[:, 1], high - low)])


@compiled
def _assess(log_measures: Array, log_weights: Array, summits: Array, tops: Array, widths: Array) -> tuple[Array, ...]:
    """For each box: the log mass of every measure ``(boxes, measures)``, the same including mass that may lie between
    the nodes, the estimated relative errors ``(boxes, measures, d)``, and the better of the two summits with its width
    ``(boxes, 2, d)``.
    """
    log_measures = jnp.moveaxis(log_measures.reshape(*log_weights.shape, -1), -1, 1)
    peaks = jnp.max(log_measures, axis=-1)
    values = jnp.exp(log_measures - jnp.where(jnp.isneginf(peaks), 0.0, peaks)[..., None])
    log_mass = jax.nn.logsumexp(log_measures + log_weights[:, None], axis=-1)
    # a summit is only an estimate: if it is NaN or infinite, the nodes alone decide
    summits = summits.reshape(2, *log_mass.shape)
    summits = jnp.where(summits < jnp.inf, summits, -jnp.inf)
    better = jnp.argmax(summits[..., 0], axis=0), jnp.arange(len(log_mass))
    summit, top, width = summits[better], tops[better], widths[better]
    missed = summit > peaks + 1
    hidden = jnp.where(missed, summit + jnp.sum(jnp.log(width), axis=-1, keepdims=True), -jnp.inf)
    unresolved = _unresolved(values, width.shape[-1]) + missed[..., None]
    return log_mass, jnp.logaddexp(log_mass, hidden), unresolved, jnp.stack([top, width], axis=1)


def measure_boxes(
    energy: Any, f: Callable | None, space: Space, floor: float, low: np.ndarray, high: np.ndarray, hint: np.ndarray
) -> tuple[Array, ...] | None:
    """The results of `_assess` for at most one batch of boxes; ``None`` while JAX is tracing the energy."""
    dtype = jnp.result_type(float)
    size, dimensions = BATCH[low.shape[1]], low.shape[1]
    # boxes are repeated up to the batch size that everything is compiled for
    lows, highs = (jnp.asarray(np.resize(side, (size, dimensions)), dtype) for side in (low, high))
    hints = jnp.asarray(np.resize(hint, (size, 2, dimensions)), dtype)
    points, log_weights = _place_nodes(space, lows, highs)
    log_measures = _measures(energy, f, jnp.asarray(floor, dtype), points)
    if not is_concrete(log_measures):
        return None
    tops, widths = _guess(log_measures, lows, highs, hints)
    summits = _measures(energy, f, jnp.asarray(floor, dtype), tops.reshape(-1, *space.shape))
    return _assess(log_measures, log_weights, summits, tops, widths)
