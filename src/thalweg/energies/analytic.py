"""Gaussians and Gaussian mixtures, with exact log Z, samples and moments: the reference targets of the tests."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import (
    Energy,
    HasLogZ,
    HasSampler,
    HasSmoothing,
    check_point,
    finite,
    is_concrete,
    key_and_shape,
    positive,
    real,
)
from thalweg.spaces import Real
from thalweg.spaces.continuous import real_space


class HasMoments(Energy):
    """An energy with exact moments: ``mean`` of the event's shape, ``covariance`` of that shape twice."""

    mean: eqx.AbstractVar[Array]
    covariance: eqx.AbstractVar[Array]


class Gaussian(HasLogZ, HasSampler, HasMoments, HasSmoothing):
    r"""``E(x) = ½(x - μ)ᵀΣ⁻¹(x - μ)``, ``log Z = ½ log det(2πΣ)``.

    Stored as μ and a lower-triangular whitening matrix W with ``WᵀW = Σ⁻¹``, so that Σ stays positive definite when the
    energy is trained; for a diagonal Σ only the diagonal is stored.

    Args:
        mean: ``(d,)``, or a number if points are scalars.
        covariance: ``(d, d)``, or the diagonal ``(d,)``, or one variance for all; by default the identity.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Gaussian(jnp.zeros(2), jnp.array([[2.0, 0.6], [0.6, 1.0]]))
    >>> energy.sample(jax.random.key(0), (5,)).shape
    (5, 2)
    >>> round(float(energy.log_z), 4)
    2.0852
    """

    mean: Array
    whitening: Array

    def __init__(self, mean: Any, covariance: Any = 1.0):
        self.mean, covariance = finite("mean", mean), real("covariance", covariance)
        event = self.mean.shape
        if len(event) > 1 or covariance.shape not in ((), event, event * 2):
            raise ValueError(
                f"expected a mean of shape () or (d,) and a covariance of shape (), (d,) or (d, d), got {event} and "
                f"{covariance.shape}; make the sizes agree"
            )
        self.whitening = _whitening(covariance, event, batch=())

    @property
    def space(self) -> Real:  # pyright: ignore[reportIncompatibleVariableOverride]
        return real_space(self.mean.shape)

    @property
    def covariance(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Σ, of the event's shape twice."""
        return _covariance(self.whitening, self.mean)

    @property
    def log_z(self) -> Array:
        return 0.5 * self.mean.size * math.log(2 * math.pi) - _log_det(self.whitening, self.mean)

    def __call__(self, x: Array) -> Array:
        check_point(x, self.mean.shape)
        return 0.5 * jnp.sum(_whiten(self.whitening, x - self.mean) ** 2)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        noise = jax.random.normal(key, (*shape, *self.mean.shape))
        root = _root(self.whitening, self.mean)
        return self.mean + (noise * root if root.shape == self.mean.shape else noise @ root.T)

    def smoothed(self, sigma: Array | float) -> "Gaussian":
        """``N(μ, Σ + σ²I)``."""
        return Gaussian(self.mean, self.covariance + sigma**2 * _identity(self.mean))


class GaussianMixture(HasLogZ, HasSampler, HasMoments, HasSmoothing):
    r"""``E(x) = -log Σ_k w_k N(x; μ_k, Σ_k)`` with any positive weights; ``log Z = log Σ_k w_k``.

    Args:
        weights: ``(K,)``, positive; they need not sum to one. By default all are ``1/K``.
        means: ``(K, d)``, or ``(K,)`` if points are scalars.
        covariances: ``(K, d, d)``, or diagonals ``(K, d)``, or one variance per component ``(K,)``, or one for all; by
            default the identity.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.GaussianMixture(jnp.array([0.75, 0.25]), jnp.array([[-2.0, 0.0], [2.0, 0.0]]), 0.5)
    >>> [round(float(value), 4) for value in energy.mean]
    [-1.0, 0.0]
    >>> tw.energies.GaussianMixture(means=jnp.array([[-2.0, 0.0], [2.0, 0.0]])).weights.tolist()
    [0.5, 0.5]
    """

    log_weights: Array
    means: Array
    whitenings: Array

    def __init__(self, weights: Any = None, means: Any = None, covariances: Any = 1.0):
        if means is None:
            raise ValueError("expected the means of the components, got none; write GaussianMixture(means=...)")
        self.means = finite("means", means)
        count, event = self.means.shape[:1], self.means.shape[1:]
        equal = jnp.full(count, 1 / max(1, math.prod(count)))
        weights = equal if weights is None else positive("every weight", weights)
        covariances = real("covariances", covariances)
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
        return real_space(self.means.shape[1:])

    @property
    def weights(self) -> Array:
        """The weights as given, ``(K,)``."""
        return jnp.exp(self.log_weights)

    @property
    def covariances(self) -> Array:
        """Σ_k, ``(K, d, d)``."""
        return jax.vmap(_covariance)(self.whitenings, self.means)

    @property
    def log_z(self) -> Array:
        return jax.nn.logsumexp(self.log_weights)

    @property
    def mean(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``Σ_k w_k μ_k`` with normalised weights."""
        return jnp.tensordot(jax.nn.softmax(self.log_weights), self.means, 1)

    @property
    def covariance(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``Σ_k w_k (Σ_k + (μ_k - m)(μ_k - m)ᵀ)`` with normalised weights and the mean m."""
        apart = jax.vmap(lambda shift: jnp.multiply.outer(shift, shift))(self.means - self.mean)
        return jnp.tensordot(jax.nn.softmax(self.log_weights), self.covariances + apart, 1)

    def component_log_probs(self, x: Array) -> Array:
        """``log w_k + log N(x; μ_k, Σ_k)`` of one point for every k, with the weights as given, ``(K,)``."""
        check_point(x, self.means.shape[1:])

        def log_prob(mean, whitening):
            log_norm = 0.5 * mean.size * math.log(2 * math.pi) - _log_det(whitening, mean)
            return -0.5 * jnp.sum(_whiten(whitening, x - mean) ** 2) - log_norm

        return self.log_weights + jax.vmap(log_prob)(self.means, self.whitenings)

    def __call__(self, x: Array) -> Array:
        return -jax.nn.logsumexp(self.component_log_probs(x))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        key_which, key_noise = jax.random.split(key)
        which = jax.random.categorical(key_which, self.log_weights, shape=shape)
        noise = jax.random.normal(key_noise, (*shape, *self.means.shape[1:]))
        roots = jax.vmap(_root)(self.whitenings, self.means)[which]
        return self.means[which] + (noise * roots if roots.ndim == noise.ndim else (roots @ noise[..., None])[..., 0])

    def smoothed(self, sigma: Array | float) -> "GaussianMixture":
        """The mixture with ``Σ_k + σ²I`` in place of every Σ_k."""
        return GaussianMixture(self.weights, self.means, self.covariances + sigma**2 * _identity(self.mean))


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


# the functions below are for one component; a whitening of the mean's own shape is a diagonal matrix


def _whiten(whitening: Array, x: Array) -> Array:
    return whitening * x if whitening.shape == x.shape else jnp.tril(whitening) @ x


def _root(whitening: Array, mean: Array) -> Array:
    """``W⁻¹``, which maps white noise to noise of covariance Σ."""
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


def _identity(mean: Array) -> Array:
    """The identity matrix, of the event's shape twice."""
    return jnp.eye(mean.size).reshape(mean.shape * 2)
