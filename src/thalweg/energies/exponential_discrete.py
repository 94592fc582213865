"""The exponential family on whole numbers: Bernoulli, Poisson."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import is_concrete, key_and_shape
from thalweg.energies.exponential_base import AbstractExponentialFamily, as_parameter, as_positive, refuse_where
from thalweg.spaces import Binary, Counts

# up to this rate the entropy of a Poisson is a sum over this many counts, above it a series
_SUMMED_RATE = 32.0
_SUMMED_COUNTS = 128


class Bernoulli(AbstractExponentialFamily):
    r"""``E(x) = -Σ_i θ_i x_i``, ``log Z = Σ_i log(1 + e^{θ_i})``, ``θ = log(p/(1 - p))`` on `Binary`.

    ``T(x) = x``, ``h = 1``. The trained array is ``logit``, θ. Points are whole numbers; the energy also accepts
    floating-point zeros and ones, where it has a gradient, for samplers that use gradients on discrete spaces.

    Args:
        probability: p of a one, strictly between 0 and 1, of any shape, which becomes the event's shape.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Bernoulli(jnp.array([0.5, 0.25]))
    >>> round(float(jnp.exp(energy.log_prob(jnp.array([1, 0])))), 4)
    0.375
    >>> energy.sample(jax.random.key(0), (5,)).dtype
    dtype('int32')
    """

    logit: Array

    def __init__(self, probability: Any):
        probability = as_positive("probability", probability)
        if is_concrete(probability):
            numbers = np.asarray(probability)
            refuse_where(numbers >= 1, numbers, "every probability < 1", "leave both values possible")
        self.logit = jnp.log(probability) - jnp.log1p(-probability)

    @classmethod
    def from_natural(cls, natural: Any) -> "Bernoulli":
        # not through the probability, which rounds to one if θ is large
        logit = as_parameter("natural", natural)
        return eqx.tree_at(lambda energy: energy.logit, cls(jnp.full_like(logit, 0.5)), logit)

    @property
    def space(self) -> Binary:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Binary(self.logit.shape)

    @property
    def probability(self) -> Array:
        """p, of the event's shape."""
        return jax.nn.sigmoid(self.logit)

    @property
    def natural(self) -> Array:
        """``log(p/(1 - p))``."""
        return self.logit

    @property
    def log_z(self) -> Array:
        return jnp.sum(jax.nn.softplus(self.logit))

    @property
    def mean(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """p."""
        return self.probability

    @property
    def variance(self) -> Array:
        """``p(1 - p)``."""
        return jax.nn.sigmoid(self.logit) * jax.nn.sigmoid(-self.logit)

    @property
    def mean_statistics(self) -> Array:
        """p."""
        return self.probability

    @property
    def entropy(self) -> Array:
        """``-Σ p log p + (1 - p) log(1 - p)``."""
        up, down = jax.nn.log_sigmoid(self.logit), jax.nn.log_sigmoid(-self.logit)
        return -jnp.sum(jnp.exp(up) * up + jnp.exp(down) * down)

    def sufficient(self, x: Array) -> Array:
        return x

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        return jax.random.bernoulli(key, self.probability, (*shape, *self.logit.shape)).astype(self.space.dtype)


class Poisson(AbstractExponentialFamily):
    r"""``E(x) = Σ_i log x_i! - x_i log λ_i``, ``log Z = Σ_i λ_i`` on `Counts`.

    ``θ = log λ``, ``T(x) = x``, ``h(x) = 1/x!``. The trained array is ``log_rate``, θ.

    Args:
        rate: λ > 0, of any shape, which becomes the event's shape.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Poisson(2.0)
    >>> round(float(jnp.exp(energy.log_prob(jnp.array(3)))), 4)
    0.1804
    """

    log_rate: Array

    def __init__(self, rate: Any):
        self.log_rate = jnp.log(as_positive("rate", rate))

    @classmethod
    def from_natural(cls, natural: Any) -> "Poisson":
        return cls(jnp.exp(as_parameter("natural", natural)))

    @property
    def space(self) -> Counts:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Counts(self.log_rate.shape)

    @property
    def rate(self) -> Array:
        """λ, of the event's shape."""
        return jnp.exp(self.log_rate)

    @property
    def natural(self) -> Array:
        """``log λ``."""
        return self.log_rate

    @property
    def log_z(self) -> Array:
        return jnp.sum(self.rate)

    @property
    def mean(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """λ."""
        return self.rate

    @property
    def variance(self) -> Array:
        """λ."""
        return self.rate

    @property
    def mean_statistics(self) -> Array:
        """λ."""
        return self.rate

    @property
    def entropy(self) -> Array:
        """``λ(1 - log λ) + E[log x!]``, to a relative 1e-5.

        A sum over x up to λ = 32; above that the series ``½ log 2πeλ - 1/12λ - 1/24λ² - 19/360λ³``. Reference: Evans
        and Boersma (1988), SIAM Review 30.
        """
        switch = math.log(_SUMMED_RATE)
        below = self.log_rate < switch
        # each branch is kept within its own range, so that the unused one brings no NaN into the gradient
        small, large = jnp.where(below, self.log_rate, switch), jnp.where(below, switch, self.log_rate)
        counts = np.arange(_SUMMED_COUNTS, dtype=small.dtype)
        log_factorials = np.array([math.lgamma(count + 1) for count in range(_SUMMED_COUNTS)], small.dtype)
        log_p = counts * small[..., None] - jnp.exp(small)[..., None] - log_factorials
        summed = -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)
        r = jnp.exp(-large)
        series = 0.5 * (math.log(2 * math.pi * math.e) + large) - r / 12 - r**2 / 24 - 19 * r**3 / 360
        return jnp.sum(jnp.where(below, summed, series))

    def sufficient(self, x: Array) -> Array:
        return x

    def log_base(self, x: Array) -> Array:
        """``-Σ log x!``."""
        return -jnp.sum(gammaln(x + 1))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        return jax.random.poisson(key, self.rate, (*shape, *self.log_rate.shape)).astype(self.space.dtype)
