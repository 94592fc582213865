"""The exponential family with independent coordinates on R or the positive numbers: Normal, Exponential, Gamma."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln
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
from thalweg.spaces import Positive, Real
from thalweg.spaces.continuous import real_space


class Normal(AbstractExponentialFamily):
    r"""``E(x) = Σ_i x_i²/2σ_i² - μ_i x_i/σ_i²``, ``log Z = Σ_i μ_i²/2σ_i² + ½ log 2πσ_i²`` on `Real`.

    ``θ = (μ/σ², -1/2σ²)``, ``T(x) = (x, x²)``, ``h = 1``. The trained arrays are ``mean`` and ``log_variance``. The
    energy is not zero at the mean: if ``|μ|`` is a thousand times σ, `Gaussian` keeps more digits.

    Args:
        mean: μ, of any shape.
        variance: σ² > 0; the event's shape is the one both parameters broadcast to.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Normal(jnp.array([1.0, -1.0]), 0.25)
    >>> energy.score(jnp.array([2.0, 0.0])).round(3).tolist()
    [-4.0, -4.0]
    >>> energy.sample(jax.random.key(0), (5,)).shape
    (5, 2)
    """

    mean: Array
    log_variance: Array

    def __init__(self, mean: Any, variance: Any):
        self.mean, variance = as_one_shape(mean=as_parameter("mean", mean), variance=as_positive("variance", variance))
        self.log_variance = jnp.log(variance)

    @classmethod
    def from_natural(cls, natural: Any) -> "Normal":
        first, second = as_pair(natural)
        variance = -0.5 / as_parameter("theta_2", second)
        return cls(as_parameter("theta_1", first) * variance, variance)

    @property
    def space(self) -> Real:  # pyright: ignore[reportIncompatibleVariableOverride]
        return real_space(self.mean.shape)

    @property
    def variance(self) -> Array:
        """σ², of the event's shape."""
        return jnp.exp(self.log_variance)

    @property
    def natural(self) -> tuple[Array, Array]:
        """``(μ/σ², -1/2σ²)``."""
        precision = jnp.exp(-self.log_variance)
        return self.mean * precision, -0.5 * precision

    @property
    def log_z(self) -> Array:
        scaled = self.mean**2 * jnp.exp(-self.log_variance)
        return 0.5 * jnp.sum(scaled + math.log(2 * math.pi) + self.log_variance)

    @property
    def mean_statistics(self) -> tuple[Array, Array]:
        """``(μ, μ² + σ²)``."""
        return self.mean, self.mean**2 + self.variance

    @property
    def entropy(self) -> Array:
        """``Σ ½ log 2πeσ²``."""
        return 0.5 * jnp.sum(1 + math.log(2 * math.pi) + self.log_variance)

    def sufficient(self, x: Array) -> tuple[Array, Array]:
        return x, x**2

    def log_prob(self, x: Array) -> Array:
        """``-½ Σ (x - μ)²/σ² + log 2πσ²``; ``-E - log Z`` would lose digits far from zero."""
        x = one_point(self.space, x)
        terms = (x - self.mean) ** 2 * jnp.exp(-self.log_variance) + math.log(2 * math.pi) + self.log_variance
        return jnp.where(self._inside(x), -0.5 * jnp.sum(terms), -jnp.inf)

    def score(self, x: Array) -> Array:
        """``-(x - μ)/σ²``."""
        return -(one_point(self.space, x) - self.mean) * jnp.exp(-self.log_variance)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        noise = jax.random.normal(key, (*shape, *self.mean.shape))
        return self.mean + jnp.exp(self.log_variance / 2) * noise


class Exponential(AbstractExponentialFamily):
    r"""``E(x) = Σ_i β_i x_i``, ``log Z = -Σ_i log β_i`` on `Positive`.

    ``θ = -β``, ``T(x) = x``, ``h = 1``. The trained array is ``log_rate``.

    Args:
        rate: β > 0, of any shape, which becomes the event's shape.

    >>> import jax, optax, thalweg as tw
    >>> data = tw.energies.Exponential(3.0).sample(jax.random.key(0), (2000,))
    >>> run = tw.fit(tw.energies.Exponential(0.1), data, tw.objectives.ExactLikelihood(),
    ...              optimizer=optax.adam(0.1), steps=300, batch_size=2000, key=jax.random.key(1))
    >>> bool(abs(run.energy.rate * data.mean() - 1) < 0.01)
    True
    """

    log_rate: Array

    def __init__(self, rate: Any):
        self.log_rate = jnp.log(as_positive("rate", rate))

    @classmethod
    def from_natural(cls, natural: Any) -> "Exponential":
        return cls(-as_parameter("natural", natural))

    @property
    def space(self) -> Positive:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Positive(self.log_rate.shape)

    @property
    def rate(self) -> Array:
        """β, of the event's shape."""
        return jnp.exp(self.log_rate)

    @property
    def natural(self) -> Array:
        """``-β``."""
        return -self.rate

    @property
    def log_z(self) -> Array:
        return -jnp.sum(self.log_rate)

    @property
    def mean(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``1/β``."""
        return jnp.exp(-self.log_rate)

    @property
    def variance(self) -> Array:
        """``1/β²``."""
        return jnp.exp(-2 * self.log_rate)

    @property
    def mean_statistics(self) -> Array:
        """``1/β``."""
        return self.mean

    def sufficient(self, x: Array) -> Array:
        return x

    def score(self, x: Array) -> Array:
        """``-β`` inside the support."""
        return -self.rate + jnp.zeros_like(one_point(self.space, x))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        return above_zero(jax.random.exponential(key, (*shape, *self.log_rate.shape)) * self.mean)


class Gamma(AbstractExponentialFamily):
    r"""``E(x) = Σ_i β_i x_i - (α_i - 1) log x_i``, ``log Z = Σ_i log Γ(α_i) - α_i log β_i`` on `Positive`.

    ``θ = (α - 1, -β)``, ``T(x) = (log x, x)``, ``h = 1``. The trained arrays are ``log_concentration`` and
    ``log_rate``.

    Args:
        concentration: α > 0, the shape parameter, of any shape.
        rate: β > 0; the event's shape is the one both parameters broadcast to.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Gamma(3.0, 2.0)
    >>> round(float(energy.mean), 4), round(float(energy.score(jnp.array(0.5))), 4)
    (1.5, 2.0)
    """

    log_concentration: Array
    log_rate: Array

    def __init__(self, concentration: Any, rate: Any):
        concentration, rate = as_one_shape(
            concentration=as_positive("concentration", concentration), rate=as_positive("rate", rate)
        )
        self.log_concentration, self.log_rate = jnp.log(concentration), jnp.log(rate)

    @classmethod
    def from_natural(cls, natural: Any) -> "Gamma":
        first, second = as_pair(natural)
        return cls(as_parameter("theta_1", first) + 1, -as_parameter("theta_2", second))

    @property
    def space(self) -> Positive:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Positive(self.log_rate.shape)

    @property
    def concentration(self) -> Array:
        """α, of the event's shape."""
        return jnp.exp(self.log_concentration)

    @property
    def rate(self) -> Array:
        """β, of the event's shape."""
        return jnp.exp(self.log_rate)

    @property
    def natural(self) -> tuple[Array, Array]:
        """``(α - 1, -β)``."""
        return jnp.expm1(self.log_concentration), -self.rate

    @property
    def log_z(self) -> Array:
        return jnp.sum(gammaln(self.concentration) - self.concentration * self.log_rate)

    @property
    def mean(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``α/β``."""
        return jnp.exp(self.log_concentration - self.log_rate)

    @property
    def variance(self) -> Array:
        """``α/β²``."""
        return jnp.exp(self.log_concentration - 2 * self.log_rate)

    @property
    def mean_statistics(self) -> tuple[Array, Array]:
        """``(ψ(α) - log β, α/β)``, ψ the digamma function."""
        return digamma(self.concentration) - self.log_rate, self.mean

    def sufficient(self, x: Array) -> tuple[Array, Array]:
        return jnp.log(x), x

    def score(self, x: Array) -> Array:
        """``(α - 1)/x - β`` inside the support."""
        return jnp.expm1(self.log_concentration) / one_point(self.space, x) - self.rate

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        log_x = jax.random.loggamma(key, self.concentration, (*shape, *self.log_rate.shape)) - self.log_rate
        return above_zero(jnp.exp(log_x))
