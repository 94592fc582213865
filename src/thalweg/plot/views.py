"""A view of an energy: one or two of its coordinates, within limits, evaluated on a mesh."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from thalweg.core import ScoreNetwork, Space, check_scalar, compiled, require_model, score, space_of
from thalweg.plot.draws import Coordinate, name_of, place_of, points_of
from thalweg.plot.points import frame
from thalweg.spaces import Product, is_continuous

_BLOCK = 2048  # points evaluated together
_FAR, _SEARCH, _ROUNDS = 1000.0, 65, 8  # the search for the mass: how far out, nodes per side, number of meshes


class View(NamedTuple):
    """One or two coordinates of a model's points between ``low`` and ``high`` ``(1 or 2,)``.

    The other coordinates are those of the point ``at``; ``whole`` is True if there are no others.
    """

    model: Any
    at: np.ndarray
    places: tuple[int, ...]
    names: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray
    whole: bool

    def mesh(self, nodes: int) -> list[np.ndarray]:
        """The nodes along each coordinate."""
        return [np.linspace(low, high, nodes) for low, high in zip(self.low, self.high, strict=True)]

    def energies(self, lines: Sequence[np.ndarray]) -> np.ndarray:
        """The energy on the mesh of these lines, ``(n,)`` or ``(n₂, n₁)``; NaN where it is not finite."""
        values = np.asarray(_energies(self.model, jnp.asarray(self.at), self.places, _rows(lines)), float)
        return np.where(np.isfinite(values), values, np.nan).reshape([len(line) for line in lines[::-1]])

    def scores(self, lines: Sequence[np.ndarray]) -> np.ndarray:
        """The components of the score along the shown coordinates, on the mesh; their axis is the last."""
        values = np.asarray(_scores(self.model, jnp.asarray(self.at), self.places, _rows(lines)), float)
        return np.where(np.isfinite(values), values, np.nan).reshape([*(len(line) for line in lines[::-1]), -1])


def view(
    what: str,
    model: Any,
    data: Any = None,
    coordinates: Coordinate | Sequence[Coordinate] | None = None,
    at: Any = None,
    limits: Any = None,
    names: Sequence[str] | None = None,
) -> View:
    """The view of a model that `energy`, `score` and `chains` draw; ``what`` is the caller's name, for messages."""
    require_model(what, model)
    space, box = space_of(model), _as_limits(limits)
    _check_space(what, space)
    rows = None if data is None else points_of(data, "data")
    event = _event(what, space, rows, at, box)
    if coordinates is None:
        if math.prod(event) > 2 or math.prod(event) == 0:
            raise ValueError(
                f"{what}: expected points of one or two dimensions, got {math.prod(event)}; choose two of them by "
                "coordinates=(0, 1)"
            )
        places = tuple(range(math.prod(event)))
    else:
        listed = [coordinates] if isinstance(coordinates, int) else list(coordinates)
        places = tuple(place_of(event, each) for each in listed)
        if len(places) not in (1, 2) or len(set(places)) != len(places):
            raise ValueError(f"expected one or two different coordinates, got {coordinates}; write coordinates=(0, 1)")
    point = _point(space, event, rows, at)
    check_scalar(model, jax.ShapeDtypeStruct((1, *event), point.dtype))
    if names is not None and len(names) != math.prod(event):
        raise ValueError(f"expected a name for each of {math.prod(event)} coordinates, got {len(names)}; give as many")
    labels = tuple(name_of(event, place) if names is None else names[place] for place in places)
    seen = View(model, point, places, labels, np.zeros(0), np.zeros(0), len(places) == math.prod(event))
    if box is None:
        if rows is not None:
            box = frame(rows.reshape(len(rows), -1)[:, list(places)].astype(float))
        elif isinstance(model, ScoreNetwork):
            box = (np.full(len(places), -3.0), np.full(len(places), 3.0))
        else:
            box = find_mass(seen)
    elif len(box[0]) != len(places):
        raise ValueError(
            f"expected limits for {len(places)} coordinates, got {len(box[0])}; give (low, high) for each of them"
        )
    return seen._replace(low=box[0], high=box[1])


def _check_space(what: str, space: Space | None) -> None:
    if isinstance(space, Product):
        raise ValueError(f"{what}: expected points in one array, got {space}; clamp or write it as one array")
    if space is not None and not is_continuous(space):
        raise ValueError(f"{what}: expected a continuous space, got {space}; draw its samples by tw.plot.samples")


def _as_limits(limits: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """``(low, high)``, or one such pair for each coordinate, as two arrays."""
    if limits is None:
        return None
    try:
        pairs = np.atleast_2d(np.asarray(limits, float))
    except (TypeError, ValueError):
        pairs = np.zeros(0)
    if pairs.ndim != 2 or pairs.shape[-1] != 2 or not (np.isfinite(pairs).all() and (pairs[:, 0] < pairs[:, 1]).all()):
        raise ValueError(
            f"expected limits (low, high) for each coordinate, got {limits!r:.60}; write ((-3, 3), (0, 5))"
        )
    return pairs[:, 0], pairs[:, 1]


def _event(
    what: str, space: Space | None, rows: np.ndarray | None, at: Any, box: tuple[np.ndarray, np.ndarray] | None
) -> tuple[int, ...]:
    """The shape of a point, from the space, the data or ``at``, which must agree, or else from the limits."""
    known = {
        "the energy's space": None if space is None else tuple(space.shape),
        "data": None if rows is None else rows.shape[1:],
        "at": None if at is None else np.shape(at),
    }
    shapes = {name: shape for name, shape in known.items() if shape is not None}
    if len(set(shapes.values())) > 1:
        said = ", ".join(f"{shape} in {name}" for name, shape in shapes.items())
        raise ValueError(f"{what}: expected points of one shape, got {said}; give points of the energy's own shape")
    if shapes:
        return next(iter(shapes.values()))
    if box is None:
        raise ValueError(
            f"{what}: expected an energy that knows its space, got a plain function; give limits=((-3, 3), (-3, 3)), "
            "or tw.as_energy(function, tw.Real(2))"
        )
    return (len(box[0]),)


def _point(space: Space | None, event: tuple[int, ...], rows: np.ndarray | None, at: Any) -> np.ndarray:
    """The point that fixes the other coordinates: the given one, the data's mean, or the middle of the space."""
    if at is not None:
        return np.asarray(at, np.float32)
    if rows is not None:
        return rows.astype(float).mean(axis=0).astype(np.float32)
    if space is None:
        return np.zeros(event, np.float32)
    return np.asarray(space.from_real(jnp.zeros(space.dimension)))  # pyright: ignore[reportAttributeAccessIssue]


def find_mass(seen: View) -> tuple[np.ndarray, np.ndarray]:
    """Limits that contain nearly all the mass of ``exp(-E)`` over the shown coordinates.

    Starts from a mesh that is fine near zero and reaches far out, and repeatedly shrinks it to the cells that hold all
    but 0.002 of the mass on each side.
    """
    count = len(seen.places)
    line = np.sinh(np.linspace(-np.arcsinh(_FAR), np.arcsinh(_FAR), _SEARCH))
    lines = [line] * count
    low, high = np.full(count, -_FAR), np.full(count, _FAR)
    for _ in range(_ROUNDS):
        values = seen.energies(lines)
        if np.isnan(values).all():
            raise ValueError("expected a finite energy to draw, got none; give limits inside the energy's support")
        volume = np.ones(())
        for line in lines[::-1]:
            volume = np.multiply.outer(volume, np.gradient(line))
        mass = np.nan_to_num(np.exp(np.nanmin(values) - values)) * volume
        for place, line in enumerate(lines):
            side = mass if count == 1 else mass.sum(axis=place)
            share = np.cumsum(side) / side.sum()
            first, last = int(np.searchsorted(share, 0.002)), int(np.searchsorted(share, 0.998))
            low[place], high[place] = line[max(first - 1, 0)], line[min(last + 1, len(line) - 1)]
        lines = [np.linspace(a, b, _SEARCH) for a, b in zip(low, high, strict=True)]
    margin = 0.1 * (high - low)
    return low - margin, high + margin


def _rows(lines: Sequence[np.ndarray]) -> Array:
    mesh = np.meshgrid(*lines)
    return jnp.asarray(np.stack([side.ravel() for side in mesh], axis=-1), jnp.float32)


def _insert(at: Array, places: tuple[int, ...], values: Array) -> Array:
    return at.reshape(-1).at[jnp.asarray(places)].set(values.astype(at.dtype)).reshape(at.shape)


@compiled
def _energies(model: Any, at: Array, places: tuple[int, ...], rows: Array) -> Array:
    space = space_of(model)

    def one(values):
        x = _insert(at, places, values)
        inside = True if space is None else space.contains(x)
        return jnp.where(inside, model(x), jnp.inf)

    return jax.lax.map(one, rows, batch_size=_BLOCK)


@compiled
def _scores(model: Any, at: Array, places: tuple[int, ...], rows: Array) -> Array:
    space = space_of(model)

    def one(values):
        x = _insert(at, places, values)
        inside = True if space is None else space.contains(x)
        return jnp.where(inside, score(model, x).reshape(-1)[jnp.asarray(places)], jnp.nan)

    return jax.lax.map(one, rows, batch_size=_BLOCK)
