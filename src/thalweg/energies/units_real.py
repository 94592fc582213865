"""Real units of a Boltzmann machine: Gaussian and rectified ones."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtri
from jax.scipy.stats import norm
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import positive
from thalweg.core.random import normal, uniform
from thalweg.energies.units import AbstractUnits, biases_of
from thalweg.spaces import Positive, Real

# below this mean a rectified normal is drawn in the tail of the normal distribution
_TAIL = -4.0


class GaussianUnits(AbstractUnits):
    r"""Real units with energy ``(x_i - b_i)²/2σ_i²`` that couple by ``x_i/σ_i``: given the other layer,
    ``x_i ~ N(b_i + σ_i·field_i, σ_i²)``. Both b and σ are trained; σ as its logarithm.

    Args:
        bias: the means b ``(n,)``, or the number of units.
        scale: σ, ``(n,)`` or one number for all.

    >>> import thalweg as tw
    >>> tw.energies.GaussianUnits(5, scale=0.5).scale.tolist()
    [0.5, 0.5, 0.5, 0.5, 0.5]
    """

    bias: Array
    log_scale: Array

    def __init__(self, bias: Any, scale: Any = 1.0):
        self.bias = biases_of(bias)
        scale = positive("scale", scale)
        if scale.shape not in ((), self.bias.shape):
            raise ValueError(f"expected scale of shape {self.bias.shape}, got {scale.shape}; give one for each unit")
        self.log_scale = jnp.broadcast_to(jnp.log(scale), self.bias.shape)

    @property
    def space(self) -> Real:
        return Real(self.units)

    @property
    def scale(self) -> Array:
        """σ, ``(n,)``."""
        return jnp.exp(self.log_scale)

    @property
    def natural(self) -> Array:
        return self.bias / self.scale

    @property
    def slope(self) -> Array:
        return self.scale

    @property
    def constant(self) -> Array:
        return 0.5 * self.natural**2

    def statistics(self, x: Array) -> Array:
        return x / self.scale

    def base(self, x: Array) -> Array:
        return 0.5 * (x / self.scale) ** 2

    def log_normaliser(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return 0.5 * natural**2 + 0.5 * np.log(2 * np.pi) + self.log_scale

    def mean(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return natural

    def sample(self, key: PRNGKeyArray, natural: Array, weight: Array | float = 1.0) -> Array:
        return self.scale * (natural + normal(key, natural.shape))

    def scaled(self, factor: Array) -> tuple["GaussianUnits", Array]:
        root = jnp.sqrt(factor)
        return eqx.tree_at(lambda units: units.log_scale, self, self.log_scale - jnp.log(root)), root

    def fitted(self, statistics: Array) -> "GaussianUnits":
        x = statistics * self.scale
        spread = jnp.std(x, axis=0)
        return GaussianUnits(jnp.mean(x, axis=0), jnp.where(spread > 0, spread, 1.0))


class ReLUUnits(AbstractUnits):
    r"""Rectified units ``x_i ≥ 0`` with energy ``x_i²/2 - b_i x_i``: given the other layer, a normal ``N(θ_i, 1)``
    restricted to positive numbers; ``A(θ_i) = θ_i²/2 + ½log 2π + log Φ(θ_i)``.

    Reference: the one-sided case of the units in Tubiana and Monasson (2017), Phys. Rev. Lett. 118.

    Args:
        bias: the biases ``(n,)``, or the number of units.

    >>> import thalweg as tw
    >>> tw.energies.ReLUUnits(10).space
    Positive(shape=(10,))
    """

    bias: Array

    def __init__(self, bias: Any):
        self.bias = biases_of(bias)

    @property
    def space(self) -> Positive:
        return Positive(self.units)

    def base(self, x: Array) -> Array:
        return 0.5 * x**2

    def log_normaliser(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return 0.5 * natural**2 + 0.5 * np.log(2 * np.pi) + log_ndtr(natural)

    def mean(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return natural + jnp.exp(norm.logpdf(natural) - log_ndtr(natural))

    def sample(self, key: PRNGKeyArray, natural: Array, weight: Array | float = 1.0) -> Array:
        """By inversion: with u uniform, ``P(x > t) = Φ(θ - t)/Φ(θ)`` gives ``x = θ - Φ⁻¹(uΦ(θ))``."""
        log_u = jnp.log1p(-uniform(key, natural.shape))  # never of zero
        near = jnp.maximum(natural, _TAIL)
        direct = near - ndtri(jnp.exp(log_u + log_ndtr(near)))
        return jnp.maximum(
            jnp.where(natural > _TAIL, direct, _draw_tail(natural, log_u)), jnp.finfo(natural.dtype).tiny
        )

    def scaled(self, factor: Array) -> tuple["ReLUUnits", Array]:
        root = jnp.sqrt(factor)
        return eqx.tree_at(lambda units: units.bias, self, self.bias * root), root

    def rescaled(self, x: Array, root: Array) -> Array:
        return x * root

    def fitted(self, statistics: Array) -> "ReLUUnits":
        raise ValueError("expected visible units of data, got ReLUUnits; use them as hidden units")


def _draw_tail(natural: Array, log_u: Array) -> Array:
    """A draw of ``N(θ, 1)`` above 0 for θ far below 0, where Φ(θ) underflows.

    Newton's method solves ``log Φ(-z) = log u + log Φ(θ)`` for ``z = x - θ``; it starts at the solution for the density
    ``z·exp(-z²/2)``.
    """
    far = jnp.minimum(natural, _TAIL)
    target = log_u + log_ndtr(far)
    z = jnp.sqrt(far**2 - 2 * log_u)
    for _ in range(3):
        z = z + (log_ndtr(-z) - target) * jnp.exp(log_ndtr(-z) - norm.logpdf(z))
    return z + far
