"""The exponential family on numbers between 0 and 1: Beta, Dirichlet."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln, digamma, gammaln
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import key_and_shape
from thalweg.energies.exponential_base import (
    AbstractExponentialFamily,
    above_zero,
    as_one_shape,
    as_pair,
    as_parameter,
    as_positive,
    one_point,
)
from thalweg.spaces import Interval, Simplex


class Beta(AbstractExponentialFamily):
    r"""``E(x) = -Σ_i [(a_i - 1) log x_i + (b_i - 1) log(1 - x_i)]`` on ``Interval(0, 1)``.

    ``log Z = Σ_i log B(a_i, b_i)``, B the beta function. ``θ = (a - 1, b - 1)``,
    ``T(x) = (log x, log(1 - x))``, ``h = 1``. The trained arrays are ``log_a`` and ``log_b``.

    Args:
        a: > 0, of any shape.
        b: > 0; the event's shape is the one both parameters broadcast to.

    >>> import thalweg as tw
    >>> energy = tw.energies.Beta(2.0, 3.0)
    >>> round(float(energy.mean), 4), round(float(energy.variance), 4)
    (0.4, 0.04)
    """

    log_a: Array
    log_b: Array

    def __init__(self, a: Any, b: Any):
        a, b = as_one_shape(a=as_positive("a", a), b=as_positive("b", b))
        self.log_a, self.log_b = jnp.log(a), jnp.log(b)

    @classmethod
    def from_natural(cls, natural: Any) -> "Beta":
        first, second = as_pair(natural)
        return cls(as_parameter("theta_1", first) + 1, as_parameter("theta_2", second) + 1)

    @property
    def space(self) -> Interval:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Interval(0.0, 1.0, self.log_a.shape)

    @property
    def a(self) -> Array:
        """The first parameter, of the event's shape."""
        return jnp.exp(self.log_a)

    @property
    def b(self) -> Array:
        """The second parameter, of the event's shape."""
        return jnp.exp(self.log_b)

    @property
    def natural(self) -> tuple[Array, Array]:
        """``(a - 1, b - 1)``."""
        return jnp.expm1(self.log_a), jnp.expm1(self.log_b)

    @property
    def log_z(self) -> Array:
        return jnp.sum(betaln(self.a, self.b))

    @property
    def mean(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``a/(a + b)``."""
        return jax.nn.sigmoid(self.log_a - self.log_b)

    @property
    def variance(self) -> Array:
        """``ab/((a + b)²(a + b + 1))``."""
        return self.mean * jax.nn.sigmoid(self.log_b - self.log_a) / (self.a + self.b + 1)

    @property
    def mean_statistics(self) -> tuple[Array, Array]:
        """``(ψ(a) - ψ(a + b), ψ(b) - ψ(a + b))``, ψ the digamma function."""
        both = digamma(self.a + self.b)
        return digamma(self.a) - both, digamma(self.b) - both

    def sufficient(self, x: Array) -> tuple[Array, Array]:
        return jnp.log(x), jnp.log1p(-x)

    def score(self, x: Array) -> Array:
        """``(a - 1)/x - (b - 1)/(1 - x)`` inside the support."""
        x = one_point(self.space, x)
        return jnp.expm1(self.log_a) / x - jnp.expm1(self.log_b) / (1 - x)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        x = jax.random.beta(key, self.a, self.b, (*shape, *self.log_a.shape))
        # rounding can reach either end, and both lie outside
        return jnp.minimum(above_zero(x), np.nextafter(np.ones((), x.dtype), 0))


class Dirichlet(AbstractExponentialFamily):
    r"""``E(x) = -Σ_i (α_i - 1) log x_i``, ``log Z = Σ_i log Γ(α_i) - log Γ(Σ_i α_i)`` on ``Simplex(n)``.

    ``θ = α - 1``, ``T(x) = log x``, ``h = 1``. The trained array is ``log_concentration``. The integral runs over the
    first ``n - 1`` coordinates.

    Args:
        concentration: α > 0, ``(n,)``.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Dirichlet(jnp.array([1.0, 2.0, 2.0]))
    >>> [round(float(share), 4) for share in energy.mean]
    [0.2, 0.4, 0.4]
    >>> energy.sample(jax.random.key(0), (5,)).shape
    (5, 3)
    """

    log_concentration: Array

    def __init__(self, concentration: Any):
        concentration = as_positive("concentration", concentration)
        if concentration.ndim != 1:
            raise ValueError(
                f"expected a concentration of shape (n,), got {concentration.shape}; give one number per coordinate"
            )
        self.log_concentration = jnp.log(concentration)

    @classmethod
    def from_natural(cls, natural: Any) -> "Dirichlet":
        return cls(as_parameter("natural", natural) + 1)

    @property
    def space(self) -> Simplex:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Simplex(self.log_concentration.size)  # pyright: ignore[reportCallIssue]

    @property
    def concentration(self) -> Array:
        """α, ``(n,)``."""
        return jnp.exp(self.log_concentration)

    @property
    def natural(self) -> Array:
        """``α - 1``."""
        return jnp.expm1(self.log_concentration)

    @property
    def log_z(self) -> Array:
        return jnp.sum(gammaln(self.concentration)) - gammaln(jnp.sum(self.concentration))

    @property
    def mean(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``α/Σα``."""
        return jax.nn.softmax(self.log_concentration)

    @property
    def variance(self) -> Array:
        """``m(1 - m)/(Σα + 1)``, m the mean."""
        return self.mean * (1 - self.mean) / (jnp.sum(self.concentration) + 1)

    @property
    def covariance(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``(diag(m) - mmᵀ)/(Σα + 1)``, m the mean; it has rank ``n - 1``."""
        mean = self.mean
        return (jnp.diag(mean) - jnp.outer(mean, mean)) / (jnp.sum(self.concentration) + 1)

    @property
    def mean_statistics(self) -> Array:
        """``ψ(α) - ψ(Σα)``, ψ the digamma function."""
        return digamma(self.concentration) - digamma(jnp.sum(self.concentration))

    def sufficient(self, x: Array) -> Array:
        return jnp.log(x)

    def score(self, x: Array) -> Array:
        """``(α - 1)/x`` inside the support: the gradient in all n coordinates, as if each were free."""
        return self.natural / one_point(self.space, x)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        return above_zero(jax.random.dirichlet(key, self.concentration, shape))
