"""Discrete units of a Boltzmann machine: bits, spins and labels."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import finite, whole_number
from thalweg.core.random import log_uniform, uniform
from thalweg.energies.units import AbstractUnits, biases_of, shares_of
from thalweg.spaces import Binary, Categorical, Spin


class BernoulliUnits(AbstractUnits):
    r"""Units in {0, 1}: ``p(x_i = 1 | θ_i) = σ(θ_i)`` and ``A(θ_i) = log(1 + e^θ_i)``.

    Args:
        bias: the biases ``(n,)``, or the number of units.

    >>> import thalweg as tw
    >>> tw.energies.BernoulliUnits(784).space
    Binary(shape=(784,))
    """

    bias: Array

    def __init__(self, bias: Any):
        self.bias = biases_of(bias)

    @property
    def space(self) -> Binary:
        return Binary(self.units)

    def log_normaliser(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return jax.nn.softplus(natural)

    def mean(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return jax.nn.sigmoid(natural)

    def sample(self, key: PRNGKeyArray, natural: Array, weight: Array | float = 1.0) -> Array:
        # u < σ(θ), with one exponential and no division
        return (uniform(key, natural.shape) * (1 + jnp.exp(-natural)) < 1).astype(self.space.dtype)

    def fitted(self, statistics: Array) -> "BernoulliUnits":
        share = shares_of(statistics)
        return BernoulliUnits(jnp.log(share) - jnp.log1p(-share))


class SpinUnits(AbstractUnits):
    r"""Units in {-1, +1}: ``p(x_i = 1 | θ_i) = σ(2θ_i)`` and ``A(θ_i) = log 2cosh θ_i``.

    Args:
        bias: the biases ``(n,)``, or the number of units.

    >>> import thalweg as tw
    >>> tw.energies.SpinUnits(10).space
    Spin(shape=(10,))
    """

    bias: Array

    def __init__(self, bias: Any):
        self.bias = biases_of(bias)

    @property
    def space(self) -> Spin:
        return Spin(self.units)

    def log_normaliser(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return jnp.logaddexp(natural, -natural)

    def mean(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return jnp.tanh(natural)

    def sample(self, key: PRNGKeyArray, natural: Array, weight: Array | float = 1.0) -> Array:
        up = uniform(key, natural.shape) * (1 + jnp.exp(-2 * natural)) < 1
        return jnp.where(up, 1, -1).astype(self.space.dtype)

    def fitted(self, statistics: Array) -> "SpinUnits":
        share = shares_of((statistics + 1) / 2)
        return SpinUnits((jnp.log(share) - jnp.log1p(-share)) / 2)


class CategoricalUnits(AbstractUnits):
    r"""Units with one of k labels (Potts units, ratings): ``p(x_i = c | θ) = softmax(θ_i)[c]``.

    The statistics are one-hot rows, so the weights have one row for each unit and label. Reference: Salakhutdinov, Mnih
    and Hinton (2007), ICML.

    Args:
        bias: the biases ``(n, k)``, or the number of units.
        k: the number of labels, if ``bias`` is the number of units.

    >>> import thalweg as tw
    >>> tw.energies.CategoricalUnits(10, k=5).features
    50
    """

    bias: Array

    def __init__(self, bias: Any, k: int | None = None):
        if k is not None:
            shape = (
                whole_number("the number of units", bias),
                whole_number("k", k, 2, "a unit with one label is fixed"),
            )
            self.bias = jnp.zeros(shape)
            return
        self.bias = finite("bias", bias)
        if self.bias.ndim != 2 or self.bias.shape[1] < 2:
            raise ValueError(
                f"expected biases (units, labels), got shape {self.bias.shape}; give them, or the numbers of units and "
                "of labels k"
            )

    @property
    def space(self) -> Categorical:
        return Categorical(*self.bias.shape)

    @property
    def units(self) -> int:
        return self.bias.shape[0]

    @property
    def natural(self) -> Array:
        return self.bias.reshape(-1)

    def statistics(self, x: Array) -> Array:
        rows = x if self._is_one_hot(x) else jax.nn.one_hot(x, self.bias.shape[1], dtype=self.bias.dtype)
        return rows.reshape(*rows.shape[:-2], self.features)

    def base(self, x: Array) -> Array:
        leading = x.shape[: -2 if self._is_one_hot(x) else -1]
        return jnp.zeros((*leading, self.units), self.bias.dtype)

    def weight(self, x: Array) -> Array:
        return jnp.ones(x.shape[: -2 if self._is_one_hot(x) else -1], self.bias.dtype)

    def _is_one_hot(self, x: Array) -> bool:
        """Whether points are given as one-hot rows of floats, in which energies have gradients."""
        return x.shape[-2:] == self.bias.shape and jnp.issubdtype(x.dtype, jnp.floating)

    def log_normaliser(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return jax.nn.logsumexp(self._rows(natural), axis=-1)

    def mean(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return jax.nn.softmax(self._rows(natural), axis=-1).reshape(natural.shape)

    def sample(self, key: PRNGKeyArray, natural: Array, weight: Array | float = 1.0) -> Array:
        # Gumbel noise: θ_c + noise_c is largest at c with probability softmax(θ)[c]
        rows = self._rows(natural)
        noise = -jnp.log(-log_uniform(key, rows.shape))
        return jnp.argmax(rows + noise, axis=-1).astype(self.space.dtype)

    def spread(self, mask: Array) -> Array:
        return jnp.repeat(mask, self.bias.shape[1], axis=-1)

    def _rows(self, natural: Array) -> Array:
        return natural.reshape(*natural.shape[:-1], *self.bias.shape)

    def fitted(self, statistics: Array) -> "CategoricalUnits":
        share = shares_of(statistics).reshape(self.bias.shape)
        return CategoricalUnits(jnp.log(share / jnp.sum(share, axis=1, keepdims=True)))
