"""The units of a Boltzmann machine: what every type of unit can do."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Module, Space, finite, whole_number


class AbstractUnits(Module):
    """A layer of units, independent of each other given the other layer.

    Their distribution given the other layer is ``p(x | θ) = exp(T(x)·θ - B(x) - A(θ))``: the statistics ``T`` couple to
    the other layer, the natural parameter ``θ`` is the bias plus what the other layer adds. Methods take a batch of any
    leading shape. Statistics and natural parameters are ``(..., features)``; ``B`` and ``A`` are ``(..., units)``, one
    number for each independent unit.
    """

    bias: eqx.AbstractVar[Array]

    @property
    @abc.abstractmethod
    def space(self) -> Space:
        """Where the units live."""

    @property
    def units(self) -> int:
        """The number of independent units."""
        return self.bias.shape[-1]

    @property
    def features(self) -> int:
        """The number of statistics: rows (or columns) of the weights."""
        return self.bias.size

    @property
    def natural(self) -> Array:
        """The natural parameter without the other layer, ``(features,)``."""
        return self.bias

    @property
    def slope(self) -> Array | float:
        """The derivative of the bias in the natural parameter: σ of Gaussian units, otherwise 1."""
        return 1.0

    @property
    def constant(self) -> Array:
        """The part of the units' energy that depends on parameters alone, ``(units,)``."""
        return jnp.zeros(self.units)

    def statistics(self, x: Array) -> Array:
        """``T(x)``, ``(..., features)``."""
        return x.astype(self.bias.dtype)

    def base(self, x: Array) -> Array:
        """``B(x)``, ``(..., units)``."""
        return jnp.zeros((*x.shape[: -len(self.space.shape)], self.units), self.bias.dtype)

    @abc.abstractmethod
    def log_normaliser(self, natural: Array, weight: Array | float = 1.0) -> Array:
        """``A(θ) = log Σ_x exp(T(x)·θ - B(x))`` (an integral for real x), ``(..., units)``."""

    @abc.abstractmethod
    def mean(self, natural: Array, weight: Array | float = 1.0) -> Array:
        """``E[T(x)]``, ``(..., features)``."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, natural: Array, weight: Array | float = 1.0) -> Array:
        """Draws of x, one for each natural parameter, in the dtype of the space."""

    def weight(self, x: Array) -> Array:
        """How many times the biases of the other layer count: the length of a document, otherwise 1."""
        return jnp.ones(x.shape[: -len(self.space.shape)], self.bias.dtype)

    def spread(self, mask: Array) -> Array:
        """A mask of units ``(..., units)`` over their features, ``(..., features)``."""
        return mask

    def scaled(self, factor: Array) -> tuple["AbstractUnits", Array]:
        """The units of ``factor`` times their energy, and by what their statistics are multiplied.

        The quadratic term of real units keeps its form: σ changes, or x itself (`rescaled`).
        """
        return eqx.tree_at(lambda units: units.bias, self, self.bias * factor), jnp.ones(())

    def rescaled(self, x: Array, root: Array) -> Array:
        """``x`` as a point of `scaled` units; ``root`` is what their statistics are multiplied by."""
        return x

    def redraw(self, key: PRNGKeyArray, natural: Array, x: Array, free: Array | None = None) -> Array:
        """``x`` with its units, or those of the mask ``free`` ``(..., units)``, drawn anew."""
        drawn = self.sample(key, natural, self.weight(x)).astype(x.dtype)
        return drawn if free is None else jnp.where(free, drawn, x)

    @abc.abstractmethod
    def fitted(self, statistics: Array) -> "AbstractUnits":
        """The same units with biases for which, without the other layer, the means are those of the data."""


def biases_of(bias: Any) -> Array:
    """Biases ``(n,)`` from an array, or zeros from a number of units."""
    if np.ndim(bias) == 0:
        return jnp.zeros(whole_number("the number of units", bias))
    biases = finite("bias", bias)
    if biases.ndim != 1:
        raise ValueError(f"expected biases (units,), got shape {biases.shape}; give one for each unit")
    return biases


def shares_of(statistics: Array) -> Array:
    """The share of ones of every column, kept away from 0 and 1 as if half a row of each had been added."""
    rows = statistics.shape[0]
    return (jnp.sum(statistics, axis=0) + 0.5) / (rows + 1)
