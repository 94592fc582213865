"""Kernel states: positions in real coordinates, with energies and gradients there."""

import abc
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from thalweg.core import State, energies, is_score, model_of, over_chains
from thalweg.spaces import Coordinates, from_real, on_reals


class AbstractRealState(State):
    """Chains at real coordinates ``position``, ``(chains, *event)`` or ``(chains, d)``; ``x`` are the points."""

    position: eqx.AbstractVar[Any]
    coordinates: eqx.AbstractVar[Coordinates | None]

    @property
    def x(self) -> PyTree:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The positions of the chains, as points of the space."""
        # without coordinates the positions are the points themselves, which may be trees
        return self.position if self.coordinates is None else from_real(self.coordinates, self.position)


class AbstractEnergyState(AbstractRealState):
    """A state that caches the energy at its position, and can rescale it when the energy is multiplied by a factor."""

    energy: eqx.AbstractVar[Array]

    @abc.abstractmethod
    def scaled(self, factor: Array) -> "AbstractEnergyState":
        """The same chains with the energy of chain i multiplied by ``factor[i]``; only valid without coordinates."""


def scale_leading(array: Array, factor: Array) -> Array:
    """``array`` ``(chains, ...)`` times one factor per chain."""
    return array * factor.reshape(-1, *[1] * (array.ndim - 1))


class Position(AbstractRealState):
    """The positions of the chains, and nothing else."""

    position: Any
    coordinates: Coordinates | None = eqx.field(static=True, default=None)


class EnergyState(AbstractEnergyState):
    """The positions of the chains and the energies there; in real coordinates ``E - log |det dx/dz|``."""

    position: Any
    energy: Array
    coordinates: Coordinates | None = eqx.field(static=True, default=None)

    def scaled(self, factor: Array) -> "EnergyState":
        return EnergyState(self.position, self.energy * factor)  # pyright: ignore[reportCallIssue]


class GradientState(AbstractEnergyState):
    """The positions of the chains with energies and gradients, so that neither is computed twice."""

    position: Array
    energy: Array
    gradient: Array
    coordinates: Coordinates | None = eqx.field(static=True, default=None)

    def scaled(self, factor: Array) -> "GradientState":
        return GradientState(self.position, self.energy * factor, scale_leading(self.gradient, factor))  # pyright: ignore[reportCallIssue]


def energy_state(energy: Any, position: PyTree, coordinates: Coordinates | None) -> EnergyState:
    """The state of chains at real coordinates ``position``."""
    return EnergyState(position, energies(on_reals(energy, coordinates), position), coordinates)  # pyright: ignore[reportCallIssue]


def gradient_state(energy: Any, position: Array, coordinates: Coordinates | None) -> GradientState:
    """The state of chains at real coordinates ``position``, with the gradient there."""

    def one(energy, z):
        return jax.value_and_grad(energy)(z)

    values, gradients = over_chains(one, on_reals(energy, coordinates), position)
    return GradientState(position, values, gradients, coordinates)  # pyright: ignore[reportCallIssue]


def refuse_score(name: str, model: Any) -> None:
    """Raise for a score network; ``name`` is the adjusted kernel, for the message."""
    if is_score(model):
        raise ValueError(
            f"{name}: expected an energy, got the score network {type(model_of(model)).__name__}: a vector field has "
            "no energy; use an unadjusted kernel (Langevin), which takes both"
        )
