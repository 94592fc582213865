"""The spaces points live in, and the refusals of samplers that do not fit them."""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Space


def _shape(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(size < 1 for size in sizes):
        raise ValueError(
            f"expected a shape of positive sizes, got {sizes}; give for example Real(2) or Real((28, 28, 1))"
        )
    return sizes


class Continuous(Space):
    """A space of real numbers: gradients exist."""

    @property
    def dtype(self) -> Any:
        return jnp.result_type(float)


class Discrete(Space):
    """A space of whole numbers: no gradients, and `score` has no meaning."""

    @property
    def dtype(self) -> Any:
        return jnp.dtype("int32")


class Finite(Discrete):
    """A discrete space that can be listed: every coordinate takes one of ``levels``."""

    @property
    @abc.abstractmethod
    def levels(self) -> tuple[int, ...]:
        """The values a coordinate can take, rising."""

    @property
    def size(self) -> int:
        """The number of states."""
        return len(self.levels) ** math.prod(self.shape)

    def states(self, start: Array | int, count: int) -> Array:
        """States number ``start`` to ``start + count``, ``(count, *shape)``, the last coordinate turning fastest.

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

    def contains(self, x: Array) -> Array:
        return jnp.all(jnp.isin(x, jnp.array(self.levels)))

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        return jax.random.choice(key, jnp.array(self.levels, dtype=self.dtype), (*shape, *self.shape))


class Real(Continuous):
    """R^shape: ``Real(2)`` is the plane, ``Real((28, 28, 1))`` a grey image, ``Real(())`` the line of plain numbers.

    >>> import thalweg as tw
    >>> tw.Real(2).shape
    (2,)
    """

    shape: tuple[int, ...] = eqx.field(static=True, converter=_shape, default=())

    def contains(self, x: Array) -> Array:
        return jnp.all(jnp.isfinite(x))

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        return jax.random.normal(key, (*shape, *self.shape))


class Positive(Continuous):
    """Numbers above zero."""

    shape: tuple[int, ...] = eqx.field(static=True, converter=_shape, default=())

    def contains(self, x: Array) -> Array:
        return jnp.all(jnp.isfinite(x) & (x > 0))

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        # the generator can return an exact zero, which lies outside
        return jnp.maximum(jax.random.exponential(key, (*shape, *self.shape)), jnp.finfo(self.dtype).tiny)


class Interval(Continuous):
    """Numbers between ``low`` and ``high``.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> bool(tw.Interval(-1.0, 1.0, shape=2).contains(jnp.array([0.0, 1.5])))
    False
    """

    low: float = eqx.field(static=True, converter=float, default=0.0)
    high: float = eqx.field(static=True, converter=float, default=1.0)
    shape: tuple[int, ...] = eqx.field(static=True, converter=_shape, default=())

    def __check_init__(self):
        if not self.low < self.high:
            raise ValueError(f"expected low < high, got ({self.low}, {self.high}); swap them")

    def contains(self, x: Array) -> Array:
        return jnp.all((x > self.low) & (x < self.high))

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        points = jax.random.uniform(key, (*shape, *self.shape), minval=self.low, maxval=self.high)
        # rounding can reach either end, and both lie outside
        low, high = jnp.asarray(self.low, points.dtype), jnp.asarray(self.high, points.dtype)
        return jnp.clip(points, jnp.nextafter(low, high), jnp.nextafter(high, low))


class Simplex(Continuous):
    """Vectors of ``n`` positive numbers that sum to one."""

    n: int = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return (self.n,)

    def contains(self, x: Array) -> Array:
        return jnp.all(x > 0) & (jnp.abs(jnp.sum(x) - 1) < 1e-5)

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        return jax.random.dirichlet(key, jnp.ones(self.n), shape)


class PositiveDefinite(Continuous):
    """Symmetric positive-definite ``n × n`` matrices."""

    n: int = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return (self.n, self.n)

    def contains(self, x: Array) -> Array:
        return jnp.allclose(x, x.T, atol=1e-5) & jnp.all(jnp.linalg.eigvalsh(x) > 0)

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        factor = jax.random.normal(key, (*shape, self.n, self.n + 1))
        return factor @ factor.swapaxes(-1, -2) / self.n


class Counts(Discrete):
    """Whole numbers from zero up."""

    shape: tuple[int, ...] = eqx.field(static=True, converter=_shape, default=())

    def contains(self, x: Array) -> Array:
        return jnp.all((x >= 0) & (x == jnp.round(x)))

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        return jax.random.poisson(key, 1.0, (*shape, *self.shape)).astype(self.dtype)


class Binary(Finite):
    """{0, 1}^n."""

    shape: tuple[int, ...] = eqx.field(static=True, converter=_shape)

    @property
    def levels(self) -> tuple[int, ...]:
        return (0, 1)


class Spin(Finite):
    """{-1, +1}^n."""

    shape: tuple[int, ...] = eqx.field(static=True, converter=_shape)

    @property
    def levels(self) -> tuple[int, ...]:
        return (-1, 1)


class Categorical(Finite):
    """{0, …, k-1}^n: ``n`` sites that each take one of ``k`` labels."""

    shape: tuple[int, ...] = eqx.field(static=True, converter=_shape)
    k: int = eqx.field(static=True)

    def __check_init__(self):
        if self.k < 2:
            raise ValueError(f"expected k >= 2 labels, got {self.k}; a site with one label is a constant")

    @property
    def levels(self) -> tuple[int, ...]:
        return tuple(range(self.k))


class Product(Space):
    """Points that are tuples, one part from each space: ``Product(Real(2), Binary(3))``."""

    parts: tuple[Space, ...]

    def __init__(self, *parts: Space):
        if not parts:
            raise ValueError("expected at least one space, got none; write Product(Real(2), Binary(3))")
        self.parts = parts

    @property
    def shape(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return tuple(part.shape for part in self.parts)

    @property
    def dtype(self) -> Any:
        return tuple(part.dtype for part in self.parts)

    def contains(self, x: Any) -> Array:
        return jnp.all(jnp.array([part.contains(value) for part, value in zip(self.parts, x, strict=True)]))

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Any:
        keys = jax.random.split(key, len(self.parts))
        return tuple(part.noise(k, shape) for part, k in zip(self.parts, keys, strict=True))


def require_gradient(name: str, space: Space | None, x: Array) -> None:
    """Refuse a gradient-based method by name where the space has no gradients or the numbers are whole."""
    if isinstance(space, Discrete):
        raise ValueError(
            f"expected a continuous space for {name}, got {space}, which has no gradients; "
            "use a kernel for discrete spaces (Gibbs, GibbsWithGradients)"
        )
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(f"expected floating-point numbers for {name}, got {x.dtype}; convert with x.astype(float)")
