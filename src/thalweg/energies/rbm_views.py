"""Other readings of a restricted Boltzmann machine: at another temperature, as an energy of both layers."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import HasFreeEnergy, HasGiven, HasPosterior, HasSweep, Module, Space, key_and_shape
from thalweg.core.random import log_uniform, split
from thalweg.energies.units import AbstractUnits
from thalweg.energies.units_words import ReplicatedSoftmaxUnits
from thalweg.spaces import Binary, Product


class UnitsDensity(Module):
    """A layer given the other one: independent units, as a density with ``sample``, ``log_prob`` and ``mean``."""

    units: AbstractUnits
    natural: Array
    weight: Array

    @property
    def mean(self) -> Array:
        """The means of the statistics: probabilities of discrete units, means of real ones over their σ."""
        return self.units.mean(self.natural, self.weight)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        """Independent draws, ``(*shape, *event)``."""
        key, shape = key_and_shape(key, shape)
        natural = jnp.broadcast_to(self.natural, (*shape, *self.natural.shape))
        return self.units.sample(key, natural, jnp.broadcast_to(self.weight, shape))

    def log_prob(self, x: Array) -> Array:
        """The log-probability of one value of the layer."""
        normaliser = self.units.log_normaliser(self.natural, self.weight)
        return jnp.dot(self.units.statistics(x), self.natural) - jnp.sum(self.units.base(x) + normaliser)


class ScaledRBM(HasSweep):
    """``factor · F(v)``: a machine at another temperature, see `RBM`."""

    rbm: Any
    factor: Array

    @property
    def space(self) -> Space:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.rbm.space

    def __call__(self, x: Array) -> Array:
        return self.factor * self.rbm(x)

    def sweep(self, key: PRNGKeyArray, x: Array, free: Any = None) -> Array:
        """A sweep of the machine with energy ``factor · E(v, h)``, accepted by Metropolis' rule.

        The sweep is reversible with respect to its own ``exp(-F'(v))``, so the ratio of the proposals is that of their
        densities: the chain moves with probability ``min(1, r(new)/r(old))``, ``r = exp(F' - factor·F)``.
        """
        key_sweep, key_accept = split(key)
        heated = self.rbm.heated(self.factor)[0]
        proposed = heated.sweep(key_sweep, x, free)
        log_ratio = lambda x: heated.free_energies(x) - self.factor * self.rbm.free_energies(x)
        accept = log_uniform(key_accept, x.shape[:1]) < log_ratio(proposed) - log_ratio(x)
        return jnp.where(accept.reshape(-1, *[1] * (x.ndim - 1)), proposed, x)

    def scaled(self, factor: Array) -> "ScaledRBM":
        return ScaledRBM(self.rbm, self.factor * factor)  # pyright: ignore[reportCallIssue]


class JointRBM(HasSweep):
    """``factor · E(v, h)`` as an energy of the pair ``(v, h)``: see `RBM.joint`."""

    rbm: Any
    factor: Array

    @property
    def space(self) -> Product:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Product(self.rbm.visible.space, self.rbm.hidden.space)

    def __call__(self, x: PyTree) -> Array:
        if not isinstance(x, (tuple, list)) or len(x) != 2:
            raise ValueError(f"expected one point (v, h) of both layers, got a {type(x).__name__}; give a pair")
        return self.factor * self.rbm(x[0], x[1])

    def sweep(self, key: PRNGKeyArray, x: PyTree, free: Any = None) -> PyTree:
        """The visible layer given the hidden one, then the hidden layer given the visible one."""
        visible, hidden = x
        free_visible, free_hidden = (None, None) if free is None else free
        key_visible, key_hidden = split(key)
        heated, root = self.rbm.heated(self.factor)
        visible = heated.draw_visible(key_visible, heated.hidden.rescaled(hidden, root), visible, free_visible)
        drawn = heated.hidden.rescaled(heated.draw_hidden(key_hidden, visible), 1 / root).astype(hidden.dtype)
        return visible, drawn if free_hidden is None else jnp.where(free_hidden, drawn, hidden)

    def scaled(self, factor: Array) -> "JointRBM":
        if isinstance(self.rbm.visible, ReplicatedSoftmaxUnits):
            raise ValueError(
                "expected units whose joint energy can be scaled, got ReplicatedSoftmaxUnits, for which the number of "
                "orders of the words cannot; temper the machine itself, tw.tempered(rbm, T)"
            )
        return JointRBM(self.rbm, self.factor * factor)  # pyright: ignore[reportCallIssue]


class MaskedRBM(HasGiven):
    """``p(v | which units are observed)``: see `RBM.masked`."""

    rbm: Any

    @property
    def space(self) -> Space:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.rbm.space

    @property
    def condition_space(self) -> Binary:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Binary(self.rbm.visible.units)

    def given(self, c: Array) -> Any:
        return eqx.tree_at(lambda rbm: rbm.present, self.rbm, c.astype(bool), is_leaf=lambda leaf: leaf is None)


class LatentRBM(HasPosterior, HasFreeEnergy):
    """``E(v, h)`` as a latent energy, whose hidden units `objectives.LatentLikelihood` samples: see `RBM.latent`."""

    rbm: Any

    @property
    def space(self) -> Space:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.rbm.space

    @property
    def latent_space(self) -> Space:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.rbm.hidden.space

    def __call__(self, x: Array, z: Array) -> Array:
        return self.rbm(x, z)

    def posterior(self, x: Array) -> UnitsDensity:
        return self.rbm.posterior(x)

    def free_energy(self, x: Array) -> Array:
        return self.rbm(x)
