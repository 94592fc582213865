"""A mesh of boxes that refines itself where a density lives, in one to three dimensions.

Each box carries a tensor Gauss-Legendre rule of 8 nodes a dimension. The last two Legendre coefficients of the density
along each dimension say whether the box resolves it; if not, the box is cut in two across that dimension. Where a side
of the domain is open, slabs are added until the outermost one is empty.
"""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from thalweg.core import Energy, Space, is_concrete
from thalweg.exact.streaming import as_float, log_density

NODES = 8
_FIRST_PARTS = {1: 64, 2: 16, 3: 8}
_BATCH = {1: 128, 2: 128, 3: 32}
# an open side starts here, and is refused where the density still has mass this far out
_START, _END = 50.0, 1e8


class Boxes(NamedTuple):
    """Boxes ``(boxes, d)`` and what `_survey` said of them, for ``p`` and, where there is one, for ``p·f``."""

    low: np.ndarray
    high: np.ndarray
    log_mass: np.ndarray
    log_possible: np.ndarray
    unresolved: np.ndarray


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
    """``(…, 8^d)`` values at the nodes of a box to ``(…, d)``: how far the rule may be off, relative to the mean.

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
    # in units of the largest, whose square may be beyond the range of single precision
    largest = jnp.max(jnp.abs(numbers))
    return jnp.log(largest) + 0.5 * jnp.log(jnp.sum((numbers / largest) ** 2))


def _summits(log_p: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """A guess ``(boxes, d)`` at where ``(boxes, 8^d)`` log densities are highest, and how wide ``(boxes, d)`` they are.

    Along each axis the parabola through the highest node and its neighbours has its top and its Gaussian width there.
    A mode narrower than the distance between nodes, or the neck of a funnel, shows here though no node sees it.
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


@eqx.filter_jit
def _survey(energy: Energy, f: Callable | None, space: Space, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Per box and measure: the log of its mass ``(boxes, measures)``, of the mass it may have (the same shape), and
    what the rule leaves unresolved ``(boxes, measures, d)``.

    The measures are ``p`` and, where an ``f`` is to be averaged, ``p·√(1+‖f‖²)``.
    """

    def measure(x):
        log_p = log_density(energy, x)
        # where p is zero f does not count, whatever it is there
        grown = [] if f is None else [jnp.where(jnp.isneginf(log_p), -jnp.inf, log_p + _log_growth(f, x))]
        return jnp.stack([log_p, *grown])

    points, log_weights = nodes_of(space, low, high)
    log_measures = jnp.moveaxis(jax.vmap(jax.vmap(measure))(points), -1, 1)
    peaks = jnp.max(log_measures, axis=-1)
    values = jnp.exp(log_measures - jnp.where(jnp.isneginf(peaks), 0.0, peaks)[..., None])
    log_mass = jax.nn.logsumexp(log_measures + log_weights[:, None], axis=-1)
    tops, widths = _summits(log_measures[:, 0], low, high)
    summits = jax.vmap(measure)(tops.reshape(-1, *space.shape))
    # a summit is a hint and no node: where it is not a number, or a singularity, the nodes alone speak
    missed = (summits > peaks + 1) & (summits < jnp.inf)
    hidden = jnp.where(missed, summits + jnp.sum(jnp.log(widths), axis=-1, keepdims=True), -jnp.inf)
    return log_mass, jnp.logaddexp(log_mass, hidden), _unresolved(values, low.shape[-1]) + missed[..., None]


def _grid(low: np.ndarray, high: np.ndarray, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One box cut into ``parts`` a dimension, evenly in ``asinh(x)``: fine near zero, by ratios far out."""
    edges = []
    for a, b, count in zip(low, high, parts, strict=True):
        inner = np.sinh(np.linspace(np.arcsinh(a), np.arcsinh(b), count + 1))[1:-1]
        edges.append(np.concatenate([[a], inner, [b]]))
    lows = np.array(list(itertools.product(*(side[:-1] for side in edges))))
    return lows, np.array(list(itertools.product(*(side[1:] for side in edges))))


def even_grid(low: np.ndarray, high: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Equal boxes over a bounded domain, with at most ``points`` nodes: what can be laid without seeing the density."""
    dimensions = len(low)
    parts = max(1, int(points ** (1 / dimensions) * (1 + 1e-9)) // NODES)
    edges = np.linspace(low, high, parts + 1).T
    lows = np.array(list(itertools.product(*edges[:, :-1])))
    return lows, np.array(list(itertools.product(*edges[:, 1:])))


def _batch(low: np.ndarray, high: np.ndarray) -> list[Array]:
    """Boxes repeated up to the one number that `_survey` is compiled for."""
    shape = (_BATCH[low.shape[1]], low.shape[1])
    return [jnp.asarray(np.resize(side, shape), jnp.result_type(float)) for side in (low, high)]


def _look(energy: Energy, f: Callable | None, space: Space, low: np.ndarray, high: np.ndarray) -> Boxes:
    """The boxes with their survey."""
    size = _BATCH[low.shape[1]]
    surveys = []
    for start in range(0, len(low), size):
        survey = _survey(energy, f, space, *_batch(low[start : start + size], high[start : start + size]))
        surveys.append([np.asarray(field, float) for field in survey])
    boxes = Boxes(low, high, *(np.concatenate(field)[: len(low)] for field in zip(*surveys, strict=True)))
    bad = ~(boxes.log_mass < np.inf).all(1)
    if bad.any():
        first = int(np.argmax(bad))
        raise ValueError(
            f"expected numbers above -inf, got NaN or -inf from the energy (or NaN or inf from f) between "
            f"{low[first].tolist()} and {high[first].tolist()}; give bounds that leave this out"
        )
    return boxes


def _join(first: Boxes, second: Boxes) -> Boxes:
    return Boxes(*(np.concatenate(pair) for pair in zip(first, second, strict=True)))


def _log_total(log_mass: np.ndarray) -> np.ndarray:
    """The log of each measure's mass, ``(measures,)``."""
    total = np.logaddexp.reduce(log_mass, axis=0)
    if np.isneginf(total).any():
        raise ValueError(
            "expected an energy that is finite somewhere, got +inf at every node; give bounds around the finite part"
        )
    return total


def _refine(look: Callable, boxes: Boxes, tolerance: float, most: int) -> Boxes:
    """Boxes cut in two until the estimated error of every measure is below ``tolerance`` of its mass."""
    while True:
        shares = np.exp(boxes.log_possible - _log_total(boxes.log_possible))
        error = shares * np.minimum(boxes.unresolved.max(2), 1)
        left = error.sum(0).max()
        if left <= tolerance:
            return boxes
        # a box a few floating-point steps wide has no room for another 8 nodes
        edge = np.maximum(np.abs(boxes.low), np.abs(boxes.high))
        room = boxes.high - boxes.low > np.maximum(64 * jnp.finfo(jnp.result_type(float)).eps * edge, 1e-30)
        worst = np.where(room.any(1), error.max(1), 0)
        # the largest errors first: while they hide unseen depths, the shares of the others mean little
        cut = (worst * len(boxes.low) > 0.1 * tolerance) & (worst > 0.03 * worst.max())
        if not cut.any() or len(boxes.low) + cut.sum() > most:
            raise ValueError(
                f"expected a density that {most} boxes of {NODES}^d nodes resolve to a relative {tolerance:.2g}, got "
                f"an estimated error of {left:.2g}; raise points or tolerance, give bounds, or check that exp(-E) has "
                "a finite integral"
            )
        axis = np.argmax(np.where(room, (shares[..., None] * boxes.unresolved).max(1), 0)[cut], axis=1)[:, None]
        low, high = boxes.low[cut], boxes.high[cut]
        # half way in asinh(x), as in `_grid`
        ends = [np.arcsinh(np.take_along_axis(side, axis, 1)) for side in (low, high)]
        lower_high, upper_low = high.copy(), low.copy()
        for side in (lower_high, upper_low):
            np.put_along_axis(side, axis, np.sinh((ends[0] + ends[1]) / 2), 1)
        children = look(np.concatenate([low, upper_low]), np.concatenate([lower_high, high]))
        boxes = _join(Boxes(*(field[~cut] for field in boxes)), children)


def _heavy_sides(boxes: Boxes, ends: np.ndarray, tolerance: float) -> np.ndarray:
    """``(2, d)``: whether the boxes at the lower and upper end of each coordinate hold more than a little mass."""
    shares = np.exp(boxes.log_mass - _log_total(boxes.log_mass)).max(1)
    return np.stack([shares @ (boxes.low == ends[0]), shares @ (boxes.high == ends[1])]) > 0.1 * tolerance


def adapt(
    energy: Energy,
    f: Callable | None,
    space: Space,
    low: np.ndarray,
    high: np.ndarray,
    points: int,
    tolerance: float,
) -> Boxes | None:
    """The mesh for ``p ∝ exp(-E)`` and for ``p·f`` over ``[low, high]``, whose infinite sides are found.

    ``None`` while a function of the energy is being traced: a mesh that depends on the density needs its numbers.
    """
    dimensions = len(low)
    parts = np.full(dimensions, _FIRST_PARTS[dimensions])
    ends, outward = np.stack([low, high]), np.array([[-1.0], [1.0]])
    open_sides = np.isinf(ends)
    # an open side starts 50 beyond zero, or beyond the other side where that one is given
    other = np.where(open_sides[::-1], 0.0, ends[::-1])
    ends = np.where(open_sides, outward * (np.maximum(outward * other, 0) + _START), ends)

    def look(lows, highs):
        return _look(energy, f, space, lows, highs)

    lows, highs = _grid(ends[0], ends[1], parts)
    if not is_concrete(_survey(energy, f, space, *_batch(lows, highs))[0]):
        return None
    boxes = look(lows, highs)
    refined = False
    while not refined:
        heavy = open_sides & _heavy_sides(boxes, ends, tolerance)
        for side, axis in np.argwhere(heavy):
            slab, face = ends.copy(), ends[side, axis]
            if abs(face) > _END:
                raise ValueError(
                    f"expected mass that ends somewhere, got some beyond x = {face:.2g} in coordinate {axis}; "
                    "exp(-E) or exp(-E)·f has no finite integral: check the sign of the energy, or give bounds"
                )
            ends[side, axis] = np.sinh(np.arcsinh(face) + outward[side, 0])
            slab[side, axis], slab[1 - side, axis] = ends[side, axis], face
            boxes = _join(boxes, look(*_grid(slab[0], slab[1], np.where(np.arange(dimensions) == axis, 1, parts))))
        if not heavy.any():
            boxes = _refine(look, boxes, tolerance, points // NODES**dimensions)
            # what refining brings to light may reach further out
            refined = not (open_sides & _heavy_sides(boxes, ends, tolerance)).any()
    return boxes
