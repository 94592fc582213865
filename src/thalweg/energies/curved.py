"""Targets that are hard for samplers (banana, funnel, wells, ring), with exact log Z, samples and moments."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import HasLogZ, HasSampler, HasSmoothing, check_point, finite, key_and_shape, positive, whole_number
from thalweg.energies.analytic import HasMoments
from thalweg.spaces import Real
from thalweg.spaces.continuous import real_space


class Banana(HasLogZ, HasSampler, HasMoments):
    r"""A bent Gaussian in the plane: ``x_1 ~ N(0, s²)``, ``x_2 | x_1 ~ N(b(x_1² - s²), 1)``.

    ``E(x) = x_1²/2s² + ½(x_2 - b(x_1² - s²))²``, ``log Z = log(2πs)``. Reference: Haario et al. (1999), Comp. Stat. 14,
    with b = 0.03 and s = 10.

    Args:
        curvature: b.
        scale: s > 0.

    >>> import jax, thalweg as tw
    >>> tw.energies.Banana().sample(jax.random.key(0), (3,)).shape
    (3, 2)
    """

    curvature: Array = eqx.field(converter=lambda value: _number("curvature", finite("curvature", value)), default=0.5)
    scale: Array = eqx.field(converter=lambda value: _number("scale", positive("scale", value)), default=2.0)

    @property
    def space(self) -> Real:  # pyright: ignore[reportIncompatibleVariableOverride]
        return real_space(2)

    @property
    def log_z(self) -> Array:
        return jnp.log(2 * jnp.pi * self.scale)

    @property
    def mean(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Zero, ``(2,)``."""
        return jnp.zeros(2)

    @property
    def covariance(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``diag(s², 1 + 2b²s⁴)``: the coordinates are dependent but uncorrelated."""
        return jnp.diag(jnp.stack([self.scale**2, 1 + 2 * self.curvature**2 * self.scale**4]))

    def _ridge(self, first: Array) -> Array:
        return self.curvature * (first**2 - self.scale**2)

    def __call__(self, x: Array) -> Array:
        check_point(x, self.space.shape)
        return 0.5 * (x[0] / self.scale) ** 2 + 0.5 * (x[1] - self._ridge(x[0])) ** 2

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        noise = jax.random.normal(key, (*shape, 2))
        first = self.scale * noise[..., 0]
        return jnp.stack([first, noise[..., 1] + self._ridge(first)], axis=-1)


class Funnel(HasLogZ, HasSampler, HasMoments):
    r"""Neal's funnel: ``v ~ N(0, s²)``, ``x_i | v ~ N(0, e^v)``; the point is ``(v, x_1, …, x_{d-1})``.

    ``E = v²/2s² + ½e^{-v}Σx_i² + ½(d-1)v``, ``log Z = ½d log 2π + log s``. Reference: Neal (2003), Ann. Stat. 31.

    Args:
        dim: d ≥ 2.
        scale: s > 0.

    >>> import jax, thalweg as tw
    >>> tw.energies.Funnel(5).sample(jax.random.key(0), (3,)).shape
    (3, 5)
    """

    dim: int = eqx.field(
        static=True, converter=lambda value: whole_number("dim", value, 2, "Neal's funnel has 10"), default=2
    )
    scale: Array = eqx.field(converter=lambda value: _number("scale", positive("scale", value)), default=3.0)

    @property
    def space(self) -> Real:  # pyright: ignore[reportIncompatibleVariableOverride]
        return real_space(self.dim)

    @property
    def log_z(self) -> Array:
        return 0.5 * self.dim * math.log(2 * math.pi) + jnp.log(self.scale)

    @property
    def mean(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Zero, ``(d,)``."""
        return jnp.zeros(self.dim)

    @property
    def covariance(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``diag(s², e^{s²/2}, …)``."""
        rest = jnp.broadcast_to(jnp.exp(self.scale**2 / 2), (self.dim - 1,))
        return jnp.diag(jnp.concatenate([self.scale[None] ** 2, rest]))

    def __call__(self, x: Array) -> Array:
        check_point(x, self.space.shape)
        v, rest = x[0], x[1:]
        return 0.5 * (v / self.scale) ** 2 + 0.5 * jnp.exp(-v) * jnp.sum(rest**2) + 0.5 * (self.dim - 1) * v

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        noise = jax.random.normal(key, (*shape, self.dim))
        v = self.scale * noise[..., :1]
        return jnp.concatenate([v, jnp.exp(v / 2) * noise[..., 1:]], axis=-1)


class DoubleWell(HasLogZ, HasSampler, HasMoments):
    r"""``E(x) = h Σ_i (x_i² - 1)²``: wells at every corner of {-1, 1}^d, barriers of height h.

    ``log Z = d·log( (π/2) e^{-h/2} [I_{-1/4}(h/2) + I_{1/4}(h/2)] )``, computed to a relative 1e-6 for any h.

    Args:
        barrier: h > 0.
        dim: d.

    >>> import jax, thalweg as tw
    >>> tw.energies.DoubleWell(2.0).sample(jax.random.key(0), (3,)).shape
    (3, 2)
    """

    barrier: Array = eqx.field(converter=lambda value: _number("barrier", positive("barrier", value)), default=2.0)
    dim: int = eqx.field(static=True, converter=lambda value: whole_number("dim", value), default=2)

    @property
    def space(self) -> Real:  # pyright: ignore[reportIncompatibleVariableOverride]
        return real_space(self.dim)

    def _half_line(self) -> tuple[Array, Array]:
        """Nodes ``x > 0`` of a Gauss rule along one coordinate, and their log weights ``log w - h(x² - 1)²``.

        This integral gives the Bessel functions of order ±1/4, and the rule is differentiable in h.
        """
        nodes, weights = np.polynomial.legendre.leggauss(128)
        # the density is below e^-40 where |x² - 1| > reach
        reach = jnp.sqrt(40 / jax.lax.stop_gradient(self.barrier))
        low, high = jnp.sqrt(jnp.maximum(1 - reach, 0)) - 1, jnp.sqrt(1 + reach) - 1
        # x is measured from the bottom of the well, because 1 + u would lose the digits of a narrow well
        u = (low + high) / 2 + (high - low) / 2 * jnp.asarray(nodes, float)
        return 1 + u, jnp.log(jnp.asarray(weights, float) * (high - low) / 2) - self.barrier * (u * (u + 2)) ** 2

    @property
    def log_z(self) -> Array:
        return self.dim * (math.log(2) + jax.nn.logsumexp(self._half_line()[1]))

    @property
    def mean(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Zero, ``(d,)``."""
        return jnp.zeros(self.dim)

    @property
    def covariance(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``E[x²]`` of one coordinate times the identity."""
        nodes, log_weights = self._half_line()
        return jnp.eye(self.dim) * jnp.sum(jax.nn.softmax(log_weights) * nodes**2)

    def __call__(self, x: Array) -> Array:
        check_point(x, self.space.shape)
        return self.barrier * jnp.sum((x**2 - 1) ** 2)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        """By rejection: for x ≥ 0, ``(x² - 1)² ≥ (x - 1)²``, so ``N(1, 1/2h)`` lies above the density of ``|x|``."""
        key, shape = key_and_shape(key, shape)
        size = (*shape, self.dim)
        key_sign, key_loop = jax.random.split(key)

        def propose(carry):
            key, x, pending = carry
            key, key_place, key_accept = jax.random.split(key, 3)
            shift = jax.random.normal(key_place, size) / jnp.sqrt(2 * self.barrier)
            y = 1 + shift
            log_accept = -self.barrier * shift**2 * y * (y + 2)
            # tested as a rejection, so that with a NaN barrier the loop ends, with NaN, instead of running forever
            rejected = (y < 0) | (jnp.log(jax.random.uniform(key_accept, size)) > log_accept)
            return key, jnp.where(pending, y, x), pending & rejected

        start = (key_loop, jnp.zeros(size), jnp.ones(size, bool))
        _, x, _ = jax.lax.while_loop(lambda carry: jnp.any(carry[2]), propose, start)
        return x * jax.random.rademacher(key_sign, size, dtype=x.dtype)


class Ring(HasLogZ, HasSampler, HasMoments, HasSmoothing):
    r"""A circle with Gaussian noise: ``x = r(cos φ, sin φ) + s·ε``, φ uniform, ``ε ~ N(0, I)``.

    ``E(x) = (‖x‖ - r)²/2s² - log(e^{-t}I_0(t))`` with ``t = ‖x‖r/s²``, ``log Z = log 2πs²``; I_0, the modified Bessel
    function, is the integral over φ.

    Args:
        radius: r > 0.
        scale: s > 0.

    >>> import jax, thalweg as tw
    >>> tw.energies.Ring().sample(jax.random.key(0), (3,)).shape
    (3, 2)
    """

    radius: Array = eqx.field(converter=lambda value: _number("radius", positive("radius", value)), default=2.0)
    scale: Array = eqx.field(converter=lambda value: _number("scale", positive("scale", value)), default=0.4)

    @property
    def space(self) -> Real:  # pyright: ignore[reportIncompatibleVariableOverride]
        return real_space(2)

    @property
    def log_z(self) -> Array:
        return jnp.log(2 * jnp.pi * self.scale**2)

    @property
    def mean(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Zero, ``(2,)``."""
        return jnp.zeros(2)

    @property
    def covariance(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``(r²/2 + s²)I``."""
        return jnp.eye(2) * (self.radius**2 / 2 + self.scale**2)

    def __call__(self, x: Array) -> Array:
        check_point(x, self.space.shape)
        # the norm has no derivative at the centre; adding the smallest number gives it the right one, zero
        length = jnp.sqrt(jnp.sum(x**2) + jnp.finfo(x.dtype).tiny)
        gap = (length - self.radius) / self.scale
        return 0.5 * gap**2 - jnp.log(jax.scipy.special.i0e(length * self.radius / self.scale**2))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        key_angle, key_noise = jax.random.split(key)
        angle = jax.random.uniform(key_angle, shape, maxval=2 * jnp.pi)
        circle = self.radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)
        return circle + self.scale * jax.random.normal(key_noise, (*shape, 2))

    def smoothed(self, sigma: Array | float) -> "Ring":
        """The same circle with ``s² + σ²`` in place of s²."""
        return Ring(self.radius, jnp.sqrt(self.scale**2 + sigma**2))  # pyright: ignore[reportCallIssue]


def _number(name: str, value: Array) -> Array:
    if value.ndim:
        raise ValueError(f"expected {name} to be one number, got shape {value.shape}; give a scalar")
    return value
