"""Checks of the arguments that define a space, and the base class of spaces that check points in numpy or JAX."""

import abc
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from thalweg.core import Space


class HasInside(Space):
    """A space that can check many points at once, with numpy outside compiled code or with jax.numpy inside it."""

    @abc.abstractmethod
    def inside(self, x: Any, xp: Any) -> Any:
        """Which of the points ``(..., *shape)`` lie in the space, ``(...,)``; ``xp`` is ``numpy`` or ``jax.numpy``."""

    def contains(self, x: Array) -> Array:
        return self.inside(x, jnp)

    def _every(self, good: Any, xp: Any) -> Any:
        """Whether all coordinates of each point are good."""
        return xp.all(good, axis=tuple(range(-len(self.shape), 0)))


def as_shape(shape: Any) -> tuple[int, ...]:
    """A shape from one positive whole number or several."""
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if not all(_is_whole(size) and size >= 1 for size in sizes):
        raise ValueError(
            f"expected a shape of positive sizes, got {sizes}; give for example Real(2) or Real((28, 28, 1))"
        )
    if math.prod(sizes) >= 2**31:
        raise ValueError(f"expected a shape of fewer than 2^31 numbers, got {sizes}; a point has to fit the memory")
    return tuple(int(size) for size in sizes)


def as_size(size: Any) -> int:
    """A positive whole number."""
    if not _is_whole(size) or size < 1:
        raise ValueError(f"expected a size n >= 1, got {size!r:.60}; give a positive whole number")
    if size >= 2**31:
        raise ValueError(f"expected a size n below 2^31, got {size}; a point has to fit the memory")
    return int(size)


def as_labels(k: Any) -> int:
    """A number of labels, at least two."""
    if not _is_whole(k) or k < 2:
        raise ValueError(f"expected k >= 2 labels, got {k!r:.60}; a site with one label is a constant")
    if k >= 2**31:
        raise ValueError(f"expected fewer than 2^31 labels, got {k}; a label has to fit 32 bits")
    return int(k)


def as_bound(bound: Any) -> float:
    """One end of an interval: a finite real number."""
    if not isinstance(bound, (int, float, np.number, np.ndarray, Array)) or isinstance(bound, bool) or np.ndim(bound):
        raise ValueError(f"expected a number as a bound of an interval, got {bound!r}; give for example 0.0")
    if np.iscomplexobj(bound) or not math.isfinite(bound):
        raise ValueError(f"expected a finite bound of an interval, got {bound}; use Positive or Real for open ends")
    return float(bound)


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
