"""The exponential family on symmetric positive-definite matrices: Wishart."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import is_concrete, key_and_shape
from thalweg.energies.exponential_base import AbstractExponentialFamily, as_pair, as_parameter, one_point, refuse_where
from thalweg.spaces import PositiveDefinite


class Wishart(AbstractExponentialFamily):
    r"""``E(X) = -½(ν - n - 1) log det X + ½ tr(V⁻¹X)`` on ``PositiveDefinite(n)``.

    ``log Z = ½νn log 2 + ½ν log det V + log Γ_n(½ν)``, Γ_n the multivariate gamma function; the integral runs over the
    lower triangle of X. ``θ = (½(ν - n - 1), -½V⁻¹)``, ``T(X) = (log det X, X)``, ``h = 1``.

    The trained arrays are ``log_excess``, ``log(ν - n + 1)``, and ``factor``, ``(n, n)``: below the diagonal it holds
    the Cholesky factor L of ``V = LLᵀ``, on the diagonal ``log L_ii``; entries above the diagonal are not used.

    Args:
        degrees: ν > n - 1, a number.
        scale: V, ``(n, n)``, symmetric positive definite.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Wishart(4.0, jnp.array([[1.0, 0.5], [0.5, 1.0]]))
    >>> energy.mean.round(3).tolist()
    [[4.0, 2.0], [2.0, 4.0]]
    >>> energy.sample(jax.random.key(0), (5,)).shape
    (5, 2, 2)
    """

    log_excess: Array
    factor: Array

    def __init__(self, degrees: Any, scale: Any):
        degrees, scale = as_parameter("degrees", degrees), as_parameter("scale", scale)
        if degrees.ndim or scale.ndim != 2 or scale.shape[0] != scale.shape[1]:
            raise ValueError(
                f"expected degrees of shape () and a scale of shape (n, n), got {degrees.shape} and {scale.shape}; "
                "give a number and a square matrix"
            )
        n = len(scale)
        if is_concrete(degrees):
            numbers = np.asarray(degrees)
            refuse_where(numbers <= n - 1, numbers, f"degrees > n - 1 = {n - 1}", "raise them")
        if is_concrete(scale):
            matrix = np.asarray(scale, float)
            smallest = np.linalg.eigvalsh(matrix).min()
            if not smallest > 0 or not np.allclose(matrix, matrix.T, rtol=1e-4):
                raise ValueError(
                    f"expected a symmetric positive-definite scale, got one with smallest eigenvalue {smallest:.3g}; "
                    "check it, or add a little to its diagonal"
                )
        root = jnp.linalg.cholesky(scale)
        self.log_excess = jnp.log(degrees - (n - 1))
        self.factor = jnp.fill_diagonal(root, jnp.log(jnp.diag(root)), inplace=False)

    @classmethod
    def from_natural(cls, natural: Any) -> "Wishart":
        first, second = as_pair(natural)
        second = as_parameter("theta_2", second)
        return cls(2 * as_parameter("theta_1", first) + second.shape[-1] + 1, -0.5 * jnp.linalg.inv(second))

    @property
    def _n(self) -> int:
        return self.factor.shape[0]

    @property
    def _root(self) -> Array:
        """L, lower triangular, with ``LLᵀ = V``."""
        return jnp.tril(self.factor, -1) + jnp.diag(jnp.exp(jnp.diag(self.factor)))

    @property
    def _precision(self) -> Array:
        """``V⁻¹``."""
        inverse = solve_triangular(self._root, jnp.eye(self._n, dtype=self.factor.dtype), lower=True)
        return inverse.T @ inverse

    @property
    def _halves(self) -> Array:
        """``½(ν - i)`` for i from 0 to n - 1, ``(n,)``: the arguments of the multivariate gamma function."""
        return (jnp.exp(self.log_excess) + jnp.arange(self._n - 1, -1, -1)) / 2

    @property
    def space(self) -> PositiveDefinite:  # pyright: ignore[reportIncompatibleVariableOverride]
        return PositiveDefinite(self._n)  # pyright: ignore[reportCallIssue]

    @property
    def degrees(self) -> Array:
        """ν, a number."""
        return jnp.exp(self.log_excess) + (self._n - 1)

    @property
    def scale(self) -> Array:
        """V, ``(n, n)``."""
        root = self._root
        return root @ root.T

    @property
    def natural(self) -> tuple[Array, Array]:
        """``(½(ν - n - 1), -½V⁻¹)``."""
        return jnp.exp(self.log_excess) / 2 - 1, -0.5 * self._precision

    @property
    def log_z(self) -> Array:
        log_det = 2 * jnp.sum(jnp.diag(self.factor))
        log_gamma = self._n * (self._n - 1) / 4 * math.log(math.pi) + jnp.sum(gammaln(self._halves))
        return self.degrees / 2 * (self._n * math.log(2) + log_det) + log_gamma

    @property
    def mean(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``νV``."""
        return self.degrees * self.scale

    @property
    def variance(self) -> Array:
        """``ν(V_ij² + V_ii V_jj)``, ``(n, n)``."""
        scale, diagonal = self.scale, jnp.diag(self.scale)
        return self.degrees * (scale**2 + jnp.outer(diagonal, diagonal))

    @property
    def covariance(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``Cov(X_ij, X_kl) = ν(V_ik V_jl + V_il V_jk)``, ``(n, n, n, n)``."""
        scale = self.scale
        return self.degrees * (jnp.einsum("ik,jl->ijkl", scale, scale) + jnp.einsum("il,jk->ijkl", scale, scale))

    @property
    def mean_statistics(self) -> tuple[Array, Array]:
        """``(Σ_i ψ(½(ν - i)) + n log 2 + log det V, νV)``, i from 0 to n - 1, ψ the digamma function."""
        log_det = 2 * jnp.sum(jnp.diag(self.factor))
        return jnp.sum(digamma(self._halves)) + self._n * math.log(2) + log_det, self.mean

    def sufficient(self, x: Array) -> tuple[Array, Array]:
        return 2 * jnp.sum(jnp.log(jnp.diag(jnp.linalg.cholesky(x)))), x

    def _inside(self, x: Array) -> Array:
        # the Cholesky factor is NaN if the matrix is not positive definite. It is used instead of the eigenvalues that
        # `PositiveDefinite` checks, although near a singular matrix rounding can make it fail where they do not: with
        # both in one program a batch of 1.8 million matrices never returned on two cores (jax 0.10)
        size = jnp.sqrt(jnp.abs(jnp.diag(x)))
        symmetric = jnp.all(jnp.abs(x - x.T) <= 1e-5 * jnp.outer(size, size))
        return symmetric & jnp.all(jnp.isfinite(jnp.linalg.cholesky(x)))

    def score(self, x: Array) -> Array:
        """``½(ν - n - 1)X⁻¹ - ½V⁻¹`` inside the support: the gradient in all n² entries, as if each were free."""
        first, second = self.natural
        return first * jnp.linalg.inv(one_point(self.space, x)) + second

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        """By Bartlett's decomposition: ``X = LAAᵀLᵀ``, ``A_ii² ~ χ²(ν - i)``, ``A_ij ~ N(0, 1)`` below the diagonal."""
        key, shape = key_and_shape(key, shape)
        key_diagonal, key_below = jax.random.split(key)
        below = jnp.tril(jax.random.normal(key_below, (*shape, self._n, self._n)), -1)
        diagonal = jnp.sqrt(2 * jax.random.gamma(key_diagonal, self._halves, (*shape, self._n)))
        factor = self._root @ (below + diagonal[..., None] * jnp.eye(self._n))
        x = factor @ factor.swapaxes(-1, -2)
        # as in PositiveDefinite.from_real, the diagonal is raised by a few units in the last place: rounding of the
        # product could make it indefinite
        return x * (1 + 4 * (self._n + 1) * jnp.finfo(x.dtype).eps * jnp.eye(self._n))
