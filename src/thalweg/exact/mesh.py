"""An adaptive mesh of boxes for a density in one to three dimensions.

A box that does not resolve the density is halved along the dimension with the largest error. On an unbounded side of
the domain, slabs are added until the outermost one is empty.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from thalweg.core import Space
from thalweg.exact.boxes import BATCH, NODES, measure_boxes

_FIRST_PARTS = {1: 64, 2: 16, 3: 8}
# where the mesh first ends on an unbounded side, and how far out the density may have mass
_START, _END = 50.0, 1e8


class Boxes(NamedTuple):
    """Boxes ``(boxes, d)`` and the results of `measure_boxes` in them, for ``p`` and, if there is an f, for ``p·f``."""

    low: np.ndarray
    high: np.ndarray
    log_mass: np.ndarray
    log_possible: np.ndarray
    unresolved: np.ndarray
    summit: np.ndarray


def _grid(low: np.ndarray, high: np.ndarray, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One box cut into ``parts`` per dimension, evenly in ``asinh(x)``: linear near zero, logarithmic far out."""
    edges = []
    for a, b, count in zip(low, high, parts, strict=True):
        inner = np.sinh(np.linspace(np.arcsinh(a), np.arcsinh(b), count + 1))[1:-1]
        edges.append(np.concatenate([[a], inner, [b]]))
    lows = np.array(list(itertools.product(*(side[:-1] for side in edges))))
    return lows, np.array(list(itertools.product(*(side[1:] for side in edges))))


def even_grid(low: np.ndarray, high: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Equal boxes over a bounded domain, with at most ``points`` nodes: a mesh that does not depend on the density."""
    dimensions = len(low)
    parts = max(1, int(points ** (1 / dimensions) * (1 + 1e-9)) // NODES)
    edges = np.linspace(low, high, parts + 1).T
    lows = np.array(list(itertools.product(*edges[:, :-1])))
    return lows, np.array(list(itertools.product(*edges[:, 1:])))


def _evaluate(
    energy: Any,
    f: Callable | None,
    space: Space,
    floor: float,
    low: np.ndarray,
    high: np.ndarray,
    hint: np.ndarray | None = None,
) -> Boxes | None:
    """The boxes with their measurements; ``None`` while JAX is tracing. A ``hint`` is the summit of the parent box."""
    hint = np.stack([(low + high) / 2, high - low], axis=1) if hint is None else hint
    batches = []
    for start in range(0, len(low), BATCH[low.shape[1]]):
        part = slice(start, start + BATCH[low.shape[1]])
        measured = measure_boxes(energy, f, space, floor, low[part], high[part], hint[part])
        if measured is None:
            return None
        batches.append([np.asarray(field, float) for field in measured])
    boxes = Boxes(low, high, *(np.concatenate(field)[: len(low)] for field in zip(*batches, strict=True)))
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


def _refine(evaluate: Callable, boxes: Boxes, tolerance: float, most: int) -> Boxes:
    """Halve boxes until the estimated error of every measure is below ``tolerance`` times its mass."""
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
        # the largest errors first: until they are resolved, the shares of the other boxes mean little
        cut = (worst * len(boxes.low) > 0.1 * tolerance) & (worst > 0.03 * worst.max())
        if not cut.any() or len(boxes.low) + cut.sum() > most:
            raise ValueError(
                f"expected a density that {most} boxes of {NODES}^d nodes resolve to a relative {tolerance:.2g}, got "
                f"an estimated error of {left:.2g}; raise points or tolerance, give bounds, or check that exp(-E) has "
                "a finite integral"
            )
        axis = np.argmax(np.where(room, (shares[..., None] * boxes.unresolved).max(1), 0)[cut], axis=1)[:, None]
        low, high = boxes.low[cut], boxes.high[cut]
        # the midpoint in asinh(x), as in `_grid`
        ends = [np.arcsinh(np.take_along_axis(side, axis, 1)) for side in (low, high)]
        lower_high, upper_low = high.copy(), low.copy()
        for side in (lower_high, upper_low):
            np.put_along_axis(side, axis, np.sinh((ends[0] + ends[1]) / 2), 1)
        hint = np.concatenate([boxes.summit[cut]] * 2)
        children = evaluate(np.concatenate([low, upper_low]), np.concatenate([lower_high, high]), hint)
        boxes = _join(Boxes(*(field[~cut] for field in boxes)), children)


def _heavy_sides(boxes: Boxes, ends: np.ndarray, tolerance: float) -> np.ndarray:
    """``(2, d)``: whether the boxes at the lower and upper end of each coordinate hold more than negligible mass."""
    shares = np.exp(boxes.log_mass - _log_total(boxes.log_mass)).max(1)
    return np.stack([shares @ (boxes.low == ends[0]), shares @ (boxes.high == ends[1])]) > 0.1 * tolerance


def _settle(
    evaluate: Callable, boxes: Boxes, ends: np.ndarray, open_sides: np.ndarray, points: int, tolerance: float
) -> tuple[Boxes, np.ndarray]:
    """The refined boxes, with slabs added on ``open_sides`` until no mass is left outside; and the new ends."""
    dimensions = ends.shape[1]
    parts, ends = np.full(dimensions, _FIRST_PARTS[dimensions]), ends.copy()
    refined = False
    while True:
        heavy = open_sides & _heavy_sides(boxes, ends, tolerance)
        if not heavy.any() and refined:
            return boxes, ends
        # refining may reveal mass at the ends, and new slabs may need refining
        refined = not heavy.any()
        if refined:
            boxes = _refine(evaluate, boxes, tolerance, points // NODES**dimensions)
        for side, axis in np.argwhere(heavy):
            slab, face = ends.copy(), ends[side, axis]
            if abs(face) > _END:
                raise ValueError(
                    f"expected mass that ends somewhere, got some beyond x = {face:.2g} in coordinate {axis}; "
                    "exp(-E) or exp(-E)·f has no finite integral: check the sign of the energy, or give bounds"
                )
            ends[side, axis] = np.sinh(np.arcsinh(face) + (1 if side else -1))
            slab[side, axis], slab[1 - side, axis] = ends[side, axis], face
            boxes = _join(boxes, evaluate(*_grid(slab[0], slab[1], np.where(np.arange(dimensions) == axis, 1, parts))))


def adapt(
    energy: Any,
    f: Callable | None,
    space: Space,
    low: np.ndarray,
    high: np.ndarray,
    points: int,
    tolerance: float,
) -> Boxes | None:
    """The adaptive mesh for ``p ∝ exp(-E)`` and ``p·f`` over ``[low, high]``; the extent of infinite sides is found.

    ``None`` while JAX is tracing the energy: an adaptive mesh needs the values of the density.
    """
    dimensions = len(low)
    ends, outward = np.stack([low, high]), np.array([[-1.0], [1.0]])
    open_sides = np.isinf(ends)
    # an unbounded side starts 50 beyond zero, or 50 beyond the other side if that one is given
    other = np.where(open_sides[::-1], 0.0, ends[::-1])
    ends = np.where(open_sides, outward * (np.maximum(outward * other, 0) + _START), ends)
    lows, highs = _grid(ends[0], ends[1], np.full(dimensions, _FIRST_PARTS[dimensions]))
    floor = math.inf
    while True:
        evaluate = functools.partial(_evaluate, energy, f, space, floor)
        boxes = evaluate(lows, highs)
        if boxes is None:
            return None
        boxes, ends = _settle(evaluate, boxes, ends, open_sides, points, tolerance)
        if f is None or floor < math.inf:
            return boxes
        # once p is resolved, the mesh is refined for f where p is at least exp(-104), the smallest number of single
        # precision: below that f has no weight, even if it overflows
        floor = float(_log_total(boxes.log_mass)[0]) - 104
        lows, highs = boxes.low, boxes.high
