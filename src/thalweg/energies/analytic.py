"""Targets whose log Z, samples and moments are known exactly: what samplers and objectives are checked on."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Energy, HasLogZ, HasSampler, is_concrete, positive
from thalweg.spaces import Real


class HasMoments(Energy):
    """An energy with exact moments: ``mean`` of the event's shape, ``covariance`` of that shape twice."""

    mean: eqx.AbstractVar[Array]
    covariance: eqx.AbstractVar[Array]


class Gaussian(HasLogZ, HasSampler, HasMoments):
    r"""``E(x) = ½(x - μ)ᵀΣ⁻¹(x - μ)``, ``log Z = ½ log det(2πΣ)``.

    Kept as μ and the whitening W with ``WᵀW = Σ⁻¹``, lower triangular, so that Σ stays positive definite when the
    energy is trained; of a diagonal Σ only the diagonal is kept.

    Args:
        mean: ``(d,)``, or a number for a density on plain numbers.
        covariance: ``(d, d)``, or the diagonal ``(d,)``, or one variance for all.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Gaussian(jnp.zeros(2), jnp.array([[2.0, 0.6], [0.6, 1.0]]))
    >>> energy.sample(jax.random.key(0), (5,)).shape
    (5, 2)
    >>> round(float(energy.log_z), 4)
    2.0852
    """

    mean: Array
    whitening: Array

    def __init__(self, mean: Any, covariance: Any):
        self.mean = _floating(mean)
        covariance = _floating(covariance)
        event = self.mean.shape
        if len(event) > 1 or covariance.shape not in ((), event, event * 2):
            raise ValueError(
                f"expected a mean of shape () or (d,) and a covariance of shape (), (d,) or (d, d), got {event} and "
                f"{covariance.shape}; make the sizes agree"
            )
        self.whitening = _whitening(covariance, event, batch=())

    @property
    def space(self) -> Real:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Real(self.mean.shape)

    @property
    def covariance(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Σ, of the event's shape twice."""
        return _covariance(self.whitening, self.mean)

    @property
    def log_z(self) -> Array:
        return 0.5 * self.mean.size * math.log(2 * math.pi) - _log_det(self.whitening, self.mean)

    def __call__(self, x: Array) -> Array:
        return 0.5 * jnp.sum(_whitened(self.whitening, x - self.mean) ** 2)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        noise = jax.random.normal(key, (*shape, *self.mean.shape))
        root = _root(self.whitening, self.mean)
        return self.mean + (noise * root if root.shape == self.mean.shape else noise @ root.T)


class GaussianMixture(HasLogZ, HasSampler, HasMoments):
    r"""``E(x) = -log Σ_k w_k N(x; μ_k, Σ_k)`` with any positive weights; ``log Z = log Σ_k w_k``.

    Args:
        weights: ``(K,)``, positive; they need not sum to one.
        means: ``(K, d)``, or ``(K,)`` for a density on plain numbers.
        covariances: ``(K, d, d)``, or diagonals ``(K, d)``, or one variance per component ``(K,)``, or one for all.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.GaussianMixture(jnp.array([0.75, 0.25]), jnp.array([[-2.0, 0.0], [2.0, 0.0]]), 0.5)
    >>> [round(float(value), 4) for value in energy.mean]
    [-1.0, 0.0]
    """

    log_weights: Array
    means: Array
    whitenings: Array

    def __init__(self, weights: Any, means: Any, covariances: Any):
        self.means = _floating(means)
        weights, covariances = positive("every weight", weights), _floating(covariances)
        count, event = self.means.shape[:1], self.means.shape[1:]
        if self.means.ndim not in (1, 2) or weights.shape != count:
            raise ValueError(
                f"expected weights (K,) and means (K, d) or (K,), got {weights.shape} and {self.means.shape}; "
                "give one row per component"
            )
        if covariances.shape not in ((), count, count + event, count + event * 2):
            raise ValueError(
                f"expected covariances (K, d, d), (K, d), (K,) or one number for means {self.means.shape}, got "
                f"{covariances.shape}; give one per component"
            )
        if covariances.shape == count:
            covariances = covariances.reshape(*count, *(1,) * len(event))
        self.log_weights = jnp.log(weights)
        self.whitenings = _whitening(covariances, event, batch=count)

    @property
    def space(self) -> Real:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Real(self.means.shape[1:])

    @property
    def weights(self) -> Array:
        """The weights as given, ``(K,)``."""
        return jnp.exp(self.log_weights)

    @property
    def log_z(self) -> Array:
        return jax.nn.logsumexp(self.log_weights)

    @property
    def mean(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``Σ_k w_k μ_k`` with the weights' sum made one."""
        return jnp.tensordot(jax.nn.softmax(self.log_weights), self.means, 1)

    @property
    def covariance(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``Σ_k w_k (Σ_k + (μ_k - m)(μ_k - m)ᵀ)`` with the weights' sum made one, ``m`` the mean."""
        within = jax.vmap(_covariance)(self.whitenings, self.means)
        apart = jax.vmap(lambda shift: jnp.multiply.outer(shift, shift))(self.means - self.mean)
        return jnp.tensordot(jax.nn.softmax(self.log_weights), within + apart, 1)

    def component_log_probs(self, x: Array) -> Array:
        """``log w_k + log N(x; μ_k, Σ_k)`` of one point for every k, with the weights as given, ``(K,)``."""

        def log_prob(mean, whitening):
            log_norm = 0.5 * x.size * math.log(2 * math.pi) - _log_det(whitening, mean)
            return -0.5 * jnp.sum(_whitened(whitening, x - mean) ** 2) - log_norm

        return self.log_weights + jax.vmap(log_prob)(self.means, self.whitenings)

    def __call__(self, x: Array) -> Array:
        return -jax.nn.logsumexp(self.component_log_probs(x))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key_which, key_noise = jax.random.split(key)
        which = jax.random.categorical(key_which, self.log_weights, shape=shape)
        noise = jax.random.normal(key_noise, (*shape, *self.means.shape[1:]))
        roots = jax.vmap(_root)(self.whitenings, self.means)[which]
        return self.means[which] + (noise * roots if roots.ndim == noise.ndim else (roots @ noise[..., None])[..., 0])


def two_bumps() -> GaussianMixture:
    """The unnormalised density ``p̃(x) = 3 exp(-(x+2)²/2) + exp(-(x-4)²/8)`` on R, ``Z = 5√(2π)``.

    The bumps hold 3/5 and 2/5 of the mass. Points have shape ``(1,)``.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.two_bumps()
    >>> bool(jnp.allclose(energy(jnp.array([1.0])), -jnp.log(3 * jnp.exp(-4.5) + jnp.exp(-9 / 8)), rtol=1e-5))
    True
    """
    root = math.sqrt(2 * math.pi)
    return GaussianMixture(jnp.array([3 * root, 2 * root]), jnp.array([[-2.0], [4.0]]), jnp.array([1.0, 4.0]))


class Banana(HasLogZ, HasSampler, HasMoments):
    r"""A bent Gaussian in the plane: ``x_1 ~ N(0, s²)``, ``x_2 | x_1 ~ N(b(x_1² - s²), 1)``.

    ``E(x) = x_1²/2s² + ½(x_2 - b(x_1² - s²))²``, ``log Z = log(2πs)``. Reference: Haario et al. (1999), Comp. Stat. 14
    (whose b = 0.03, s = 10 is a wider picture of the same shape).

    Args:
        curvature: b.
        scale: s > 0.

    >>> import jax, thalweg as tw
    >>> tw.energies.Banana().sample(jax.random.key(0), (3,)).shape
    (3, 2)
    """

    curvature: Array = eqx.field(converter=lambda value: jnp.asarray(value, jnp.result_type(float)), default=0.5)
    scale: Array = eqx.field(converter=lambda value: positive("scale", value), default=2.0)

    @property
    def space(self) -> Real:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Real(2)

    @property
    def log_z(self) -> Array:
        return jnp.log(2 * jnp.pi * self.scale)

    @property
    def mean(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Zero, ``(2,)``."""
        return jnp.zeros(2)

    @property
    def covariance(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``diag(s², 1 + 2b²s⁴)``: bent, yet uncorrelated."""
        return jnp.diag(jnp.stack([self.scale**2, 1 + 2 * self.curvature**2 * self.scale**4]))

    def _ridge(self, first: Array) -> Array:
        return self.curvature * (first**2 - self.scale**2)

    def __call__(self, x: Array) -> Array:
        return 0.5 * (x[0] / self.scale) ** 2 + 0.5 * (x[1] - self._ridge(x[0])) ** 2

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
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

    dim: int = eqx.field(static=True, default=2)
    scale: Array = eqx.field(converter=lambda value: positive("scale", value), default=3.0)

    def __check_init__(self):
        if self.dim < 2:
            raise ValueError(f"expected a funnel of at least 2 dimensions, got {self.dim}; Neal's has 10")

    @property
    def space(self) -> Real:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Real(self.dim)

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
        v, rest = x[0], x[1:]
        return 0.5 * (v / self.scale) ** 2 + 0.5 * jnp.exp(-v) * jnp.sum(rest**2) + 0.5 * (self.dim - 1) * v

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        noise = jax.random.normal(key, (*shape, self.dim))
        v = self.scale * noise[..., :1]
        return jnp.concatenate([v, jnp.exp(v / 2) * noise[..., 1:]], axis=-1)


class DoubleWell(HasLogZ, HasSampler, HasMoments):
    r"""``E(x) = h Σ_i (x_i² - 1)²``: wells at every corner of {-1, 1}^d, barriers of height h.

    ``log Z = d·log( (π/2) e^{-h/2} [I_{-1/4}(h/2) + I_{1/4}(h/2)] )``, right to a relative 1e-6 for any h.

    Args:
        barrier: h > 0.
        dim: d.

    >>> import jax, thalweg as tw
    >>> tw.energies.DoubleWell(2.0).sample(jax.random.key(0), (3,)).shape
    (3, 2)
    """

    barrier: Array = eqx.field(converter=lambda value: positive("barrier", value), default=2.0)
    dim: int = eqx.field(static=True, default=2)

    def __check_init__(self):
        if self.dim < 1:
            raise ValueError(f"expected at least one dimension, got {self.dim}; the usual picture has 2")

    @property
    def space(self) -> Real:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Real(self.dim)

    def _half_line(self) -> tuple[Array, Array]:
        """Nodes ``x > 0`` of a Gauss rule along one coordinate, and their log weights ``log w - h(x² - 1)²``.

        The Bessel functions of order ±1/4 are this integral; the rule has a derivative in h for free.
        """
        nodes, weights = np.polynomial.legendre.leggauss(128)
        # the density is below e^-40 where |x² - 1| > reach
        reach = jnp.sqrt(40 / jax.lax.stop_gradient(self.barrier))
        low, high = jnp.sqrt(jnp.maximum(1 - reach, 0)) - 1, jnp.sqrt(1 + reach) - 1
        # x is counted from the bottom of the well, where 1 + u would round away the digits of a narrow one
        u = (low + high) / 2 + (high - low) / 2 * _floating(nodes)
        return 1 + u, jnp.log(_floating(weights) * (high - low) / 2) - self.barrier * (u * (u + 2)) ** 2

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
        return self.barrier * jnp.sum((x**2 - 1) ** 2)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        """By rejection: for x ≥ 0, ``(x² - 1)² ≥ (x - 1)²``, so ``N(1, 1/2h)`` lies above the density of ``|x|``."""
        size = (*shape, self.dim)
        key_sign, key_loop = jax.random.split(key)

        def propose(carry):
            key, x, pending = carry
            key, key_place, key_accept = jax.random.split(key, 3)
            shift = jax.random.normal(key_place, size) / jnp.sqrt(2 * self.barrier)
            y = 1 + shift
            log_accept = -self.barrier * shift**2 * y * (y + 2)
            # written as a refusal, so that a barrier gone NaN ends the loop, with NaN, instead of never
            refused = (y < 0) | (jnp.log(jax.random.uniform(key_accept, size)) > log_accept)
            return key, jnp.where(pending, y, x), pending & refused

        start = (key_loop, jnp.zeros(size), jnp.ones(size, bool))
        _, x, _ = jax.lax.while_loop(lambda carry: jnp.any(carry[2]), propose, start)
        return x * jax.random.rademacher(key_sign, size, dtype=x.dtype)


def _floating(value: Any) -> Array:
    return jnp.asarray(value, jnp.result_type(float))


def _whitening(covariance: Array, event: tuple[int, ...], batch: tuple[int, ...]) -> Array:
    """W with ``WᵀW = Σ⁻¹`` for each of ``batch`` covariances: lower triangular of a full Σ, else the diagonal."""
    if covariance.ndim < len(batch) + 2:
        return jnp.broadcast_to(1 / jnp.sqrt(positive("every variance", covariance)), batch + event)
    if is_concrete(covariance):
        matrices = np.asarray(covariance, float)
        smallest = np.linalg.eigvalsh(matrices).min() if np.isfinite(matrices).all() else math.nan
        if not smallest > 0 or not np.allclose(matrices, matrices.swapaxes(-1, -2), rtol=1e-4):
            raise ValueError(
                f"expected a symmetric positive-definite covariance, got one with smallest eigenvalue {smallest:.3g}; "
                "check it, or add a little to its diagonal"
            )
    factor = jnp.linalg.cholesky(covariance)
    return jax.scipy.linalg.solve_triangular(factor, jnp.broadcast_to(jnp.eye(event[0]), covariance.shape), lower=True)


# the functions below serve one component: a whitening of the mean's own shape is a diagonal


def _whitened(whitening: Array, x: Array) -> Array:
    return whitening * x if whitening.shape == x.shape else jnp.tril(whitening) @ x


def _root(whitening: Array, mean: Array) -> Array:
    """``W⁻¹``: what turns white noise into noise of covariance Σ."""
    if whitening.shape == mean.shape:
        return 1 / whitening
    return jax.scipy.linalg.solve_triangular(whitening, jnp.eye(mean.size), lower=True)


def _covariance(whitening: Array, mean: Array) -> Array:
    root = _root(whitening, mean)
    if root.ndim == 2:
        return root @ root.T
    return jnp.diag(root**2) if root.ndim == 1 else root**2


def _log_det(whitening: Array, mean: Array) -> Array:
    """``log |det W| = -½ log det Σ``."""
    diagonal = whitening if whitening.shape == mean.shape else jnp.diag(whitening)
    return jnp.sum(jnp.log(jnp.abs(diagonal)))
