"""Noise around given points: ``sample(key, x)`` of a batch, ``log_prob(y, x)`` of one pair."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Module, check_instance, is_concrete, positive
from thalweg.noise.independent import as_levels


class Jitter(Module):
    r"""``p(y|x) = N(y; x, σ²I)``.

    Args:
        sigma: σ > 0; one number, or one for each coordinate.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> noise = tw.noise.Jitter(0.5)
    >>> noise.sample(jax.random.key(0), jnp.zeros((4, 2))).shape
    (4, 2)
    """

    sigma: Array = eqx.field(converter=lambda value: positive("sigma", value))

    def sample(self, key: PRNGKeyArray, x: Array) -> Array:
        return x + self.sigma * jax.random.normal(key, x.shape, x.dtype)

    def log_prob(self, y: Array, x: Array) -> Array:
        return jnp.sum(-0.5 * ((y - x) / self.sigma) ** 2 - jnp.log(self.sigma) - 0.5 * math.log(2 * math.pi))


class Flips(Module):
    r"""Every site of x changes with probability q to one of its k - 1 other levels, all equally likely:

    ``log p(y|x) = m log(q/(k-1)) + (n - m) log(1 - q)`` if y differs from x in m of n sites.

    Args:
        probability: q, strictly between 0 and 1.
        levels: the k values a site can take, in increasing order.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> noise = tw.noise.Flips(0.1, levels=(-1, 1))
    >>> noise.sample(jax.random.key(0), jnp.ones((4, 3), int)).shape
    (4, 3)
    """

    probability: Array
    levels: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, probability: float | Array, levels: tuple[int, ...] = (0, 1)):
        self.probability, self.levels = positive("probability", probability), as_levels(levels)
        if is_concrete(self.probability) and not np.all(np.asarray(self.probability) < 1):
            raise ValueError(f"expected a probability below 1, got {probability}; 0.1 changes one site in ten")

    def sample(self, key: PRNGKeyArray, x: Array) -> Array:
        key_where, key_which = jax.random.split(key)
        levels = jnp.array(self.levels, x.dtype)
        turns = jax.random.randint(key_which, x.shape, 1, len(self.levels))
        other = levels[(jnp.searchsorted(levels, x) + turns) % len(self.levels)]
        return jnp.where(jax.random.bernoulli(key_where, self.probability, x.shape), other, x)

    def log_prob(self, y: Array, x: Array) -> Array:
        changed = jnp.log(self.probability / (len(self.levels) - 1))
        return jnp.sum(jnp.where(y == x, jnp.log1p(-self.probability), changed))


class Unconditional(Module):
    """Noise that does not depend on x: ``p(y|x) = p(y)``.

    Args:
        density: a density with ``sample(key, shape)`` and ``log_prob(x)``.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> noise = tw.noise.Unconditional(tw.energies.Gaussian(jnp.zeros(2), 1.0))
    >>> noise.sample(jax.random.key(0), jnp.ones((4, 2))).shape
    (4, 2)
    """

    density: Any

    def __check_init__(self):
        check_instance("a density", self.density, ("sample", "log_prob"), "tw.energies.Gaussian(mean, covariance)")

    def sample(self, key: PRNGKeyArray, x: Array) -> Array:
        return self.density.sample(key, x.shape[:1])

    def log_prob(self, y: Array, x: Array) -> Array:
        return self.density.log_prob(y)
