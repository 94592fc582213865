"""Integrals in one to three dimensions, on a mesh of boxes that refines itself where the density lives.

Each box carries a tensor Gauss-Legendre rule of 8 nodes a dimension. The last two Legendre coefficients of the density
along each dimension say whether the box resolves it; if not, the box is cut in two across that dimension. Where the
domain is open, slabs are added until the outermost ones are empty.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from scipy.special import logsumexp

from thalweg.core import Energy, Space, is_concrete
from thalweg.exact import streaming
from thalweg.spaces import Interval, Positive, Real

Bounds = tuple[Any, Any]

MOST_DIMENSIONS = 3
# the largest number of nodes a mesh may have unless the caller says otherwise, by dimension
POINTS = {1: 2**14, 2: 2**18, 3: 2**22}
_NODES = 8
_FIRST_BOXES = {1: 64, 2: 16, 3: 8}
_BATCH = {1: 128, 2: 128, 3: 32}
_BLOCK_NUMBERS = 2**22
# an open side starts here and is refused where the density still has mass this far out
_START, _END = 50.0, 1e9
# flattened densities are resolved to this share first, so that a narrow mode between coarse nodes still shows
_TEMPERATURES, _ROUGH = (16.0, 4.0), 1e-2
_NEGLIGIBLE = 1e-13


class Domain(NamedTuple):
    """The box to integrate over, ``(dimensions,)`` each; an infinite side is to be found."""

    low: np.ndarray
    high: np.ndarray


class Mesh(NamedTuple):
    """Boxes ``(boxes, dimensions)`` that cover where the density lives; ``log_mass`` is each one's, where known."""

    low: np.ndarray
    high: np.ndarray
    log_mass: np.ndarray | None


def domain(space: Space, bounds: Bounds | None) -> Domain:
    """The limits of ``space``, cut to ``bounds`` where given; refused where quadrature cannot work."""
    if not isinstance(space, (Real, Positive, Interval)):
        raise ValueError(
            f"expected a Finite, Real, Positive or Interval space, got {space}; exact answers exist on these alone"
        )
    dimensions = math.prod(space.shape)
    if dimensions > MOST_DIMENSIONS:
        raise ValueError(
            f"expected at most {MOST_DIMENSIONS} dimensions for quadrature, got {dimensions} on {space}; "
            "estimate by sampling instead"
        )
    limits = {Real: (-np.inf, np.inf), Positive: (0.0, np.inf)}
    low, high = (space.low, space.high) if isinstance(space, Interval) else limits[type(space)]
    box = Domain(np.full(dimensions, low), np.full(dimensions, high))
    if bounds is None:
        return box
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise ValueError(f"expected bounds=(low, high), got {bounds!r}; give two numbers or two arrays")
    given = []
    for side in bounds:
        side = np.asarray(side, dtype=float)
        if side.shape not in ((), space.shape):
            raise ValueError(
                f"expected bounds of shape {space.shape} or plain numbers, got shape {side.shape}; give one per coordinate"
            )
        given.append(np.broadcast_to(side, space.shape).reshape(dimensions))
    if not all(np.all(given[0] < given[1]) & np.all(given[0] >= box.low) & np.all(given[1] <= box.high) for _ in (0,)):
        raise ValueError(
            f"expected bounds low < high inside ({low}, {high}), got {bounds}; cut them to the space {space}"
        )
    return Domain(*given)


def _rule(dimensions: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes ``(8^d, d)`` in [-1, 1]^d and their weights ``(8^d,)``, which sum to one."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    grid = np.array(list(itertools.product(nodes, repeat=dimensions)))
    return grid, np.array([math.prod(row) for row in itertools.product(weights / 2, repeat=dimensions)])


def _tails() -> np.ndarray:
    """``(2, 8)``: takes values at the nodes to their two highest Legendre coefficients."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    values = np.polynomial.legendre.legvander(nodes, _NODES - 1)
    degrees = np.arange(_NODES)
    return ((2 * degrees + 1) / 2 * values * weights[:, None]).T[-2:]


def _points(space: Space, low: Array, high: Array) -> tuple[Array, Array]:
    """Nodes ``(boxes, 8^d, *event)`` of boxes ``(boxes, d)``, and their log weights ``(boxes, 8^d)``."""
    grid, weights = _rule(low.shape[-1])
    middle, half = (low + high) / 2, (high - low) / 2
    points = middle[:, None] + half[:, None] * jnp.asarray(grid, low.dtype)
    log_volume = jnp.sum(jnp.log(high - low), axis=-1, keepdims=True)
    return points.reshape(*points.shape[:2], *space.shape), log_volume + jnp.log(jnp.asarray(weights, low.dtype))


def _log_growth(f: Callable[[Array], PyTree], x: Array) -> Array:
    """``log √(1 + ‖f(x)‖²)``: smooth, and as large as ``f``."""
    squares = sum(jnp.sum(streaming.as_float(leaf) ** 2) for leaf in jax.tree.leaves(f(x)))
    return 0.5 * jnp.log1p(squares)


@eqx.filter_jit
def _survey(energy: Energy, f: Callable | None, space: Space, low: Array, high: Array) -> tuple[Array, Array]:
    """Per box and measure: the log of its mass, and per dimension how much the rule fails to resolve it.

    The measures are ``p^(1/16)``, ``p^(1/4)``, ``p``, and, where an ``f`` is to be averaged, ``p·√(1+‖f‖²)``.
    """
    dimensions = low.shape[-1]
    points, log_weights = _points(space, low, high)
    log_p = jax.vmap(jax.vmap(lambda x: streaming.log_density(energy, x)))(points)
    measures = [log_p / temperature for temperature in (*_TEMPERATURES, 1.0)]
    if f is not None:
        log_growth = jax.vmap(jax.vmap(lambda x: _log_growth(f, x)))(points)
        measures.append(jnp.where(jnp.isneginf(log_p), -jnp.inf, log_p + log_growth))
    log_measures = jnp.stack(measures, axis=1)
    log_mass = jax.nn.logsumexp(log_measures + log_weights[:, None], axis=-1)
    peaks = jnp.max(log_measures, axis=-1, keepdims=True)
    values = jnp.exp(log_measures - jnp.where(jnp.isneginf(peaks), 0.0, peaks))
    weights = jnp.asarray(np.polynomial.legendre.leggauss(_NODES)[1] / 2, low.dtype)
    tails = jnp.asarray(_tails(), low.dtype)
    cube = values.reshape(*values.shape[:2], *(_NODES,) * dimensions)
    ratios = []
    for dimension in range(dimensions):
        along = jnp.max(jnp.abs(jnp.tensordot(jnp.moveaxis(cube, 2 + dimension, -1), tails, (-1, 1))), axis=-1)
        for _ in range(dimensions - 1):
            along = along @ weights
        ratios.append(along)
    mean = cube
    for _ in range(dimensions):
        mean = mean @ weights
    return log_mass, jnp.stack(ratios, axis=-1) / jnp.where(mean > 0, mean, 1.0)[..., None]


def _split_evenly(low: np.ndarray, high: np.ndarray, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One box cut into a grid, evenly in ``asinh(x)``: fine near zero, and by ratios far out."""
    edges = [
        np.sinh(np.linspace(np.arcsinh(a), np.arcsinh(b), n + 1)) for a, b, n in zip(low, high, parts, strict=True)
    ]
    for side, a, b in zip(edges, low, high, strict=True):
        side[0], side[-1] = a, b
    lows = np.array(list(itertools.product(*(side[:-1] for side in edges))))
    return lows, np.array(list(itertools.product(*(side[1:] for side in edges))))


class _Builder:
    """The mesh while it grows: boxes, and what the survey said of each."""

    def __init__(self, energy: Energy, f: Callable | None, space: Space, box: Domain, points: int, tolerance: float):
        self.energy, self.f, self.space = energy, f, space
        self.dimensions = len(box.low)
        self.most_boxes = points // _NODES**self.dimensions
        self.tolerance = tolerance
        self.open = [~np.isfinite(box.low), ~np.isfinite(box.high)]
        self.low = np.where(self.open[0], np.minimum(-_START, np.where(self.open[1], 0, box.high) - _START), box.low)
        self.high = np.where(self.open[1], np.maximum(_START, np.where(self.open[0], 0, box.low) + _START), box.high)
        parts = np.full(self.dimensions, _FIRST_BOXES[self.dimensions])
        self.lows, self.highs = np.empty((2, 0, self.dimensions))
        self.log_mass, self.ratios = None, None
        self.add(*_split_evenly(self.low, self.high, parts))
