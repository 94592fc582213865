"""Draws as numpy arrays, and the names of their coordinates."""

import math
from typing import Any

import numpy as np

from thalweg.samplers.chains import Chains

Coordinate = int | tuple[int, ...]

_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def draws_of(chains: Any, least: int = 8) -> np.ndarray:
    """The draws ``(chains, draws, *event)`` of a `Chains` or an array; a ValueError if there are fewer than ``least``.

    >>> draws_of(np.zeros((4, 100, 2))).shape
    (4, 100, 2)
    """
    draws = one_array(chains)
    if draws.ndim < 2 or draws.shape[0] < 1 or draws.shape[1] < least:
        raise ValueError(
            f"expected draws (chains, draws, *event), at least {least} draws, got {draws.shape}; sample more"
        )
    return draws


def points_of(points: Any, name: str = "samples") -> np.ndarray:
    """Points ``(n, *event)``, at least one; the draws of a `Chains` are pooled."""
    array = one_array(points)
    if isinstance(points, Chains):
        array = array.reshape(-1, *array.shape[2:])
    if array.ndim == 0 or len(array) == 0:
        raise ValueError(f"{name}: expected at least one row, got an array of shape {array.shape}; give (n, ...)")
    return array


def one_array(points: Any) -> np.ndarray:
    """Points or draws as one array; a ValueError if they are a tree of several arrays."""
    draws = points.draws if isinstance(points, Chains) else points
    if isinstance(draws, (dict, tuple)):
        raise ValueError(
            f"expected draws in one array, got a {type(draws).__name__} of arrays; give one of them, such as "
            "chains.draws['x']"
        )
    array = np.asarray(draws)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"expected an array of numbers, got one of {array.dtype}; give (n, ...)")
    return array


def place_of(event: tuple[int, ...], coordinate: Coordinate) -> int:
    """The index of a coordinate in the flattened point.

    >>> place_of((4, 5), (3, 1)), place_of((4, 5), 16)
    (16, 16)
    """
    size = math.prod(event)
    if isinstance(coordinate, tuple):
        inside = len(coordinate) == len(event) and all(0 <= i < n for i, n in zip(coordinate, event, strict=True))
        place = int(np.ravel_multi_index(coordinate, event)) if inside and event else 0
    else:
        inside, place = 0 <= coordinate < size, coordinate
    if not inside:
        raise ValueError(
            f"expected a coordinate below {size}, or an index in the event {event}, got {coordinate}; count from 0"
        )
    return place


def name_of(event: tuple[int, ...], place: int) -> str:
    """The name of a coordinate: ``x₂``, ``x[3,1]`` in an image, ``x`` if it is the only one.

    >>> name_of((2,), 1), name_of((4, 5), 16), name_of((), 0)
    ('x₂', 'x[3,1]', 'x')
    """
    if math.prod(event) == 1:
        return "x"
    index = ",".join(str(int(i)) for i in np.unravel_index(place, event))
    return f"x[{index}]" if len(event) > 1 else "x" + str(place + 1).translate(_SUBSCRIPTS)
