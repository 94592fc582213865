"""Integrals over Real, Positive and Interval spaces of at most three dimensions."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from thalweg.core import Space, compiled, real, whole_number
from thalweg.exact import mesh, streaming
from thalweg.exact.boxes import NODES, nodes_of
from thalweg.spaces import Interval, Positive, Real

MOST_DIMENSIONS = 3
# the default for the largest number of nodes of a mesh, by dimension
POINTS = {1: 2**14, 2: 2**18, 3: 2**23}
_BLOCK_NODES = 2**13
_BLOCK_NUMBERS = 2**22
# boxes with a smaller share of the mass are left out of the sums
_NEGLIGIBLE = 1e-13


class Plan(NamedTuple):
    """How to integrate: the limits ``(d,)``, which may be infinite, the largest number of nodes, and the tolerance."""

    low: np.ndarray
    high: np.ndarray
    points: int
    tolerance: float


def plan(space: Space, bounds: Any, points: int | None, tolerance: float) -> Plan:
    """The plan for ``space``; raises if quadrature does not work there."""
    if not isinstance(space, (Real, Positive, Interval)):
        raise ValueError(
            f"expected a Finite, Real, Positive or Interval space, got {space}; only these are summed or integrated"
        )
    dimensions = math.prod(space.shape)
    if dimensions > MOST_DIMENSIONS:
        raise ValueError(
            f"expected at most {MOST_DIMENSIONS} dimensions for quadrature, got {dimensions} on {space}; "
            "estimate by sampling instead"
        )
    points = POINTS[dimensions] if points is None else whole_number("points", points)
    if points < NODES**dimensions:
        raise ValueError(f"expected points >= {NODES**dimensions} in {dimensions} dimensions, got {points}; raise it")
    if real("tolerance", tolerance).shape != () or not 0 < tolerance < 1:
        raise ValueError(f"expected a tolerance between 0 and 1, got {tolerance}; the default is 1e-6")
    if isinstance(space, Interval):
        least, most = space.low, space.high
    else:
        least, most = (0.0 if isinstance(space, Positive) else -math.inf), math.inf
    if bounds is not None and not (isinstance(bounds, (tuple, list)) and len(bounds) == 2):
        raise ValueError(f"expected bounds=(low, high), got {bounds!r:.80}; give two numbers or two arrays")
    low, high = (least, most) if bounds is None else bounds
    low, high = (np.asarray(side, dtype=float) for side in (low, high))
    for side in (low, high):
        if side.shape not in ((), space.shape):
            raise ValueError(
                f"expected bounds that are numbers or of shape {space.shape}, got shape {side.shape}; "
                "give one number per coordinate"
            )
    if not (np.all(low < high) and np.all(low >= least) and np.all(high <= most)):
        raise ValueError(f"expected bounds with {least} <= low < high <= {most}, got {bounds}; stay inside {space}")
    low, high = (np.broadcast_to(side, space.shape).reshape(dimensions).copy() for side in (low, high))
    return Plan(low, high, points, tolerance)


class Mesh(NamedTuple):
    """Boxes in blocks ``(blocks, boxes, d)``, and their total log mass if it is known from building the mesh."""

    low: Array
    high: Array
    log_z: float | None


def build_mesh(energy: Any, f: Callable | None, space: Space, how: Plan) -> Mesh:
    """A mesh that resolves ``exp(-E)``, and ``exp(-E)·f`` if ``f`` is given."""
    boxes = mesh.adapt(energy, f, space, *how)
    log_z = None
    if boxes is not None:
        totals = np.logaddexp.reduce(boxes.log_mass, axis=0)
        log_z = float(totals[0])
        keep = np.exp(boxes.log_mass - totals).max(1) > _NEGLIGIBLE
        low, high = boxes.low[keep], boxes.high[keep]
    elif np.isfinite([how.low, how.high]).all():
        low, high = mesh.even_grid(how.low, how.high, how.points)
    else:
        raise ValueError(
            "expected finite bounds inside jit, grad or vmap, where the mesh cannot adapt to the density, "
            f"got ({how.low.tolist()}, {how.high.tolist()}); give bounds=(low, high)"
        )
    numbers = 1 if f is None else streaming.output_size(f, space)
    dimensions = low.shape[1]
    count = max(1, min(_BLOCK_NODES, _BLOCK_NUMBERS // numbers) // NODES**dimensions)
    # the number of blocks is a power of two, so that meshes of similar size share one compiled sum; it is filled up
    # with boxes of zero volume at a point where the energy is finite
    blocks = 2 ** math.ceil(math.log2(math.ceil(len(low) / count)))
    empty = np.broadcast_to((low[0] + high[0]) / 2, (blocks * count - len(low), dimensions))
    low, high = (np.concatenate([side, empty]).reshape(blocks, count, dimensions) for side in (low, high))
    return Mesh(jnp.asarray(low, jnp.result_type(float)), jnp.asarray(high, jnp.result_type(float)), log_z)


def _block(energy: Any, space: Space) -> streaming.Block:
    def block(entry):
        points, log_weights = nodes_of(space, *entry)
        points = points.reshape(-1, *space.shape)
        log_p = jax.vmap(lambda x: streaming.log_density(energy, x))(points)
        return points, log_p + log_weights.reshape(-1)

    return block


@compiled
def _log_z(energy: Any, space: Space, low: Array, high: Array) -> Array:
    return streaming.log_sum(_block(energy, space), (low, high))


def log_z(energy: Any, space: Space, built: Mesh) -> Array:
    """``log ∫ exp(-E(x)) dx`` over a mesh."""
    known = built.log_z
    return _log_z(energy, space, built.low, built.high) if known is None else jnp.asarray(known, jnp.result_type(float))


@compiled
def average(energy: Any, f: Callable[[Array], PyTree], space: Space, low: Array, high: Array) -> PyTree:
    """``∫ p(x) f(x) dx`` over the boxes of a mesh."""
    return streaming.average(_block(energy, space), (low, high), f)
