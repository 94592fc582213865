"""Spaces of whole numbers: bits, spins, labels, counts."""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Space
from thalweg.spaces.checks import HasInside, as_labels, as_shape


class Discrete(Space):
    """A space of whole numbers, on which there are no gradients and no score."""

    @property
    def dtype(self) -> Any:
        return jnp.dtype("int32")


class Finite(Discrete, HasInside):
    """A discrete space with finitely many states: every coordinate takes one of ``levels``."""

    @property
    @abc.abstractmethod
    def levels(self) -> tuple[int, ...]:
        """The values a coordinate can take, in increasing order."""

    @property
    def size(self) -> int:
        """The number of states."""
        return len(self.levels) ** math.prod(self.shape)

    def states(self, start: Array | int, count: int) -> Array:
        """States number ``start`` to ``start + count``, ``(count, *shape)``; the last coordinate changes fastest.

        >>> import thalweg as tw
        >>> tw.Binary(2).states(0, 4).tolist()
        [[0, 0], [0, 1], [1, 0], [1, 1]]
        """
        numbers = jnp.asarray(start) + jnp.arange(count)
        # powers are taken on 32-bit integers, which reach past the 2^25 states that enumeration allows
        powers = [min(len(self.levels) ** place, 2**31 - 1) for place in range(math.prod(self.shape))]
        digits = numbers[:, None] // jnp.array(powers[::-1], dtype=numbers.dtype) % len(self.levels)
        return jnp.array(self.levels, dtype=self.dtype)[digits].reshape(count, *self.shape)

    def index(self, x: Array) -> Array:
        """The number of one state: the inverse of `states`."""
        digits = jnp.searchsorted(jnp.array(self.levels), x.reshape(-1))
        powers = [min(len(self.levels) ** place, 2**31 - 1) for place in range(math.prod(self.shape))]
        return jnp.sum(digits * jnp.array(powers[::-1], dtype=digits.dtype))

    def inside(self, x: Any, xp: Any) -> Any:
        return self._every(xp.isin(x, xp.array(self.levels)), xp)

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        return jax.random.choice(key, jnp.array(self.levels, dtype=self.dtype), (*shape, *self.shape))


class Counts(Discrete, HasInside):
    """{0, 1, 2, …}^n: counts.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> bool(tw.Counts(2).contains(jnp.array([3, -1])))
    False
    """

    shape: tuple[int, ...] = eqx.field(static=True, converter=as_shape, default=())

    def inside(self, x: Any, xp: Any) -> Any:
        return self._every((x >= 0) & (x == xp.round(x)), xp)

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        return jax.random.poisson(key, 1.0, (*shape, *self.shape)).astype(self.dtype)


class Binary(Finite):
    """{0, 1}^n: bits.

    >>> import thalweg as tw
    >>> tw.Binary(3).size
    8
    """

    shape: tuple[int, ...] = eqx.field(static=True, converter=as_shape)

    @property
    def levels(self) -> tuple[int, ...]:
        return (0, 1)


class Spin(Finite):
    """{-1, +1}^n: spins.

    >>> import thalweg as tw
    >>> tw.Spin(2).levels
    (-1, 1)
    """

    shape: tuple[int, ...] = eqx.field(static=True, converter=as_shape)

    @property
    def levels(self) -> tuple[int, ...]:
        return (-1, 1)


class Categorical(Finite):
    """{0, …, k-1}^n: ``n`` sites that each take one of ``k`` labels.

    >>> import thalweg as tw
    >>> tw.Categorical(4, k=3).size
    81
    """

    shape: tuple[int, ...] = eqx.field(static=True, converter=as_shape)
    k: int = eqx.field(static=True, converter=as_labels)

    @property
    def levels(self) -> tuple[int, ...]:
        return tuple(range(self.k))
