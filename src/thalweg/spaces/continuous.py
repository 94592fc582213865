"""Spaces of real numbers, each with its bijection to R^d and the log-determinant of that bijection."""

import abc
import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Space
from thalweg.spaces.checks import HasInside, as_bound, as_shape, as_size


class Continuous(Space):
    """A space of real numbers: gradients exist, and a bijection maps it to R^d.

    The three methods take ONE point ``x`` or its ``d`` real coordinates ``z``, a flat array. ``from_real`` returns a
    point of the space for every finite ``z``: where ``x`` would overflow or underflow it is clipped to the last number
    inside, and the log-determinant makes the density of ``z`` fall off there.
    """

    @property
    def dtype(self) -> Any:
        return jax.dtypes.canonicalize_dtype(float)

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """The number of free real coordinates, d."""

    @abc.abstractmethod
    def to_real(self, x: Array) -> Array:
        """The real coordinates ``z`` of a point, ``(d,)``: the inverse of `from_real`."""

    @abc.abstractmethod
    def from_real(self, z: Array) -> Array:
        """The point with real coordinates ``z``."""

    @abc.abstractmethod
    def log_det(self, z: Array) -> Array:
        """``log |det ∂x/∂z|``, a scalar, where ``x`` are the point's free coordinates."""


class Real(Continuous, HasInside):
    """R^shape: ``Real(2)`` is the plane, ``Real((28, 28, 1))`` a grey image, ``Real(())`` a scalar.

    >>> import thalweg as tw
    >>> tw.Real(2).shape
    (2,)
    """

    shape: tuple[int, ...] = eqx.field(static=True, converter=as_shape, default=())

    @property
    def dimension(self) -> int:
        return math.prod(self.shape)

    def to_real(self, x: Array) -> Array:
        return jnp.reshape(x, -1)

    def from_real(self, z: Array) -> Array:
        return z.reshape(self.shape)

    def log_det(self, z: Array) -> Array:
        return jnp.zeros((), z.dtype)

    def inside(self, x: Any, xp: Any) -> Any:
        return self._every(xp.isfinite(x), xp)

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        return jax.random.normal(key, (*shape, *self.shape))


@functools.lru_cache(256)
def real_space(shape: int | tuple[int, ...]) -> Real:
    """`Real`, cached by shape: a sampler asks an energy for its space at every call, and making one takes a tenth of
    the time of a short chain.

    >>> from thalweg.spaces.continuous import real_space
    >>> real_space(2) is real_space(2)
    True
    """
    return Real(shape)  # pyright: ignore[reportArgumentType]


class Positive(Continuous, HasInside):
    """Numbers above zero: ``x = e^z``, ``log det = Σz``.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> tw.Positive(2).from_real(jnp.array([0.0, -200.0])).min() > 0
    Array(True, dtype=bool)
    """

    shape: tuple[int, ...] = eqx.field(static=True, converter=as_shape, default=())

    @property
    def dimension(self) -> int:
        return math.prod(self.shape)

    def to_real(self, x: Array) -> Array:
        return jnp.log(x).reshape(-1)

    def from_real(self, z: Array) -> Array:
        low, high = _log_range(z.dtype)
        return jnp.exp(jnp.clip(z, low, high)).reshape(self.shape)

    def log_det(self, z: Array) -> Array:
        return jnp.sum(_reflect(z, _log_range(z.dtype)[1]))

    def inside(self, x: Any, xp: Any) -> Any:
        return self._every(xp.isfinite(x) & (x > 0), xp)

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        # the generator can return an exact zero, which lies outside
        return jnp.maximum(jax.random.exponential(key, (*shape, *self.shape)), jnp.finfo(self.dtype).tiny)


class Interval(Continuous, HasInside):
    """Numbers between ``low`` and ``high``: ``x = low + (high - low)σ(z)``, ``log det = Σ log((high - low)σ(z)σ(-z))``.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> bool(tw.Interval(-1.0, 1.0, shape=2).contains(jnp.array([0.0, 1.5])))
    False
    """

    low: float = eqx.field(static=True, converter=as_bound, default=0.0)
    high: float = eqx.field(static=True, converter=as_bound, default=1.0)
    shape: tuple[int, ...] = eqx.field(static=True, converter=as_shape, default=())

    def __check_init__(self):
        if not self.low < self.high:
            raise ValueError(f"expected low < high, got ({self.low}, {self.high}); swap them")
        first, last = self._ends(self.dtype)
        if not self.low < first <= last < self.high or self.high - self.low > float(np.finfo(self.dtype).max):
            raise ValueError(
                f"expected an interval that {self.dtype} numbers can fill, got ({self.low}, {self.high}); "
                "rescale it, or switch on double precision"
            )

    def _ends(self, dtype: Any) -> tuple[Any, Any]:
        """The first and the last number inside. Subnormal numbers are left out: some devices treat them as zero."""
        tiny = np.finfo(dtype).tiny
        with np.errstate(over="ignore"):
            low, high = np.asarray(self.low, dtype), np.asarray(self.high, dtype)
        first, last = np.nextafter(low, high), np.nextafter(high, low)
        return np.where(low == 0, tiny, first)[()], np.where(high == 0, -tiny, last)[()]

    @property
    def dimension(self) -> int:
        return math.prod(self.shape)

    def to_real(self, x: Array) -> Array:
        return (jnp.log(x - self.low) - jnp.log(self.high - x)).reshape(-1)

    def from_real(self, z: Array) -> Array:
        # measured from the nearer end, so that a small distance keeps its digits
        share = (self.high - self.low) * jax.nn.sigmoid(-jnp.abs(z))
        return jnp.clip(jnp.where(z < 0, self.low + share, self.high - share), *self._ends(z.dtype)).reshape(self.shape)

    def log_det(self, z: Array) -> Array:
        return jnp.sum(math.log(self.high - self.low) + jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z))

    def inside(self, x: Any, xp: Any) -> Any:
        return self._every((x > self.low) & (x < self.high), xp)

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        points = jax.random.uniform(key, (*shape, *self.shape), minval=self.low, maxval=self.high)
        # rounding can reach either end, and both lie outside
        return jnp.clip(points, *self._ends(points.dtype))


class Simplex(Continuous, HasInside):
    """Vectors of ``n`` positive numbers that sum to one; the first ``n - 1`` are the free coordinates.

    By stick-breaking: the k-th number takes the share ``σ(z_k - log(n - k))`` of what the earlier ones left, so that
    ``z = 0`` is the centre. Reference: Stan Reference Manual, "Unit simplex".

    >>> import jax.numpy as jnp, thalweg as tw
    >>> [round(float(share), 4) for share in tw.Simplex(4).from_real(jnp.zeros(3))]
    [0.25, 0.25, 0.25, 0.25]
    """

    n: int = eqx.field(static=True, converter=as_size)

    @property
    def shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return (self.n,)

    @property
    def dimension(self) -> int:
        return self.n - 1

    def _offsets(self, dtype: Any) -> np.ndarray:
        return np.log(np.arange(self.n - 1, 0, -1)).astype(dtype)

    def _logs(self, z: Array) -> tuple[Array, Array]:
        """``log x``, ``(n,)``, and ``log σ(-a)``, the log of the share of the stick that remains after each break."""
        a = z - self._offsets(z.dtype)
        stays = jax.nn.log_sigmoid(-a)
        left = jnp.concatenate([jnp.zeros(1, z.dtype), jnp.cumsum(stays)])
        return left.at[:-1].add(jax.nn.log_sigmoid(a)), stays

    def to_real(self, x: Array) -> Array:
        after = jnp.cumsum(x[::-1])[::-1][1:]
        return jnp.log(x[:-1]) - jnp.log(after) + self._offsets(x.dtype)

    def from_real(self, z: Array) -> Array:
        return jnp.exp(jnp.maximum(self._logs(z)[0], _log_range(z.dtype)[0]))

    def log_det(self, z: Array) -> Array:
        log_x, stays = self._logs(z)
        return jnp.sum(log_x[:-1]) + jnp.sum(stays)

    def inside(self, x: Any, xp: Any) -> Any:
        return self._every(x > 0, xp) & (xp.abs(xp.sum(x, axis=-1) - 1) < 1e-5)

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        return jax.random.dirichlet(key, jnp.ones(self.n), shape)


class PositiveDefinite(Continuous, HasInside):
    """Symmetric positive-definite ``n × n`` matrices; the lower triangle holds the free coordinates.

    By the Cholesky factor: ``x = LLᵀ``, ``L_ii = e^{z_ii}``, ``L_ij = z_ij`` below the diagonal, ``z`` row by row;
    ``log det = n log 2 + Σ_i (n - i + 2) z_ii``, i from 1. Reference: Stan Reference Manual, "Covariance matrices".

    >>> import jax.numpy as jnp, thalweg as tw
    >>> tw.PositiveDefinite(2).to_real(jnp.eye(2)).tolist()
    [0.0, 0.0, 0.0]
    """

    n: int = eqx.field(static=True, converter=as_size)

    @property
    def shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return (self.n, self.n)

    @property
    def dimension(self) -> int:
        return self.n * (self.n + 1) // 2

    def to_real(self, x: Array) -> Array:
        factor = jnp.linalg.cholesky(x)
        diagonal = jnp.diag(factor)
        return (factor + jnp.diag(jnp.log(diagonal) - diagonal))[np.tril_indices(self.n)]

    def from_real(self, z: Array) -> Array:
        low, high = self._log_limits(z.dtype)
        diagonal = jnp.exp(jnp.clip(z[self._diagonal], low, high))
        factor = (
            jnp.zeros(self.shape, z.dtype).at[np.tril_indices(self.n)].set(jnp.clip(z, -np.exp(high), np.exp(high)))
        )
        factor = jnp.fill_diagonal(factor, diagonal, inplace=False)
        # the diagonal is raised by a few units in the last place: rounding of the product could make it indefinite
        guard = 1 + 4 * (self.n + 1) * jnp.finfo(z.dtype).eps
        matrix = factor @ factor.T
        return jnp.fill_diagonal(matrix, guard * jnp.diag(matrix), inplace=False)

    def log_det(self, z: Array) -> Array:
        turned = _reflect(z[self._diagonal], self._log_limits(z.dtype)[1])
        return self.n * math.log(2) + jnp.sum(np.arange(self.n + 1, 1, -1, dtype=z.dtype) * turned)

    @property
    def _diagonal(self) -> np.ndarray:
        """The indices of the diagonal among the coordinates."""
        return np.arange(1, self.n + 1) * np.arange(2, self.n + 2) // 2 - 1

    def _log_limits(self, dtype: Any) -> tuple[Any, Any]:
        """The range of ``log L_ii`` in which ``LLᵀ`` neither overflows nor underflows."""
        low, high = _log_range(dtype)
        return low / 2, (high - math.log(self.n)) / 2

    def inside(self, x: Any, xp: Any) -> Any:
        # a matrix is as positive definite as the one scaled to a unit diagonal, whose rounding errors are small
        diagonal = xp.diagonal(x, axis1=-2, axis2=-1)
        good = xp.all(xp.isfinite(x), axis=(-1, -2)) & xp.all(diagonal > 0, axis=-1)
        scale = xp.sqrt(xp.where(diagonal > 0, diagonal, 1))
        unit = xp.where(good[..., None, None], x / scale[..., :, None] / scale[..., None, :], 0)
        symmetric = xp.all(xp.abs(unit - xp.swapaxes(unit, -1, -2)) < 1e-5, axis=(-1, -2))
        return good & symmetric & xp.all(xp.linalg.eigvalsh(unit) > 0, axis=-1)

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        factor = jax.random.normal(key, (*shape, self.n, self.n + 1))
        return factor @ factor.swapaxes(-1, -2) / self.n


def _log_range(dtype: Any) -> tuple[Any, Any]:
    """The range of z in which ``e^z`` is a normal number, with a margin for rounding."""
    limits = np.finfo(dtype)
    return np.log(limits.tiny) + 1, np.log(limits.max) - 1


def _reflect(z: Array, high: Any) -> Array:
    """``z``, reflected at ``high``: the density falls where ``e^z`` cannot grow further."""
    return jnp.minimum(z, 2 * high - z)
