"""Energies made from other energies: at another temperature, or with noise added to their points."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, PyTree

from thalweg.core import (
    ConditionalEnergy,
    Energy,
    HasConditionals,
    HasSmoothing,
    HasSweep,
    PerChain,
    Space,
    positive,
    require_energy,
    space_of,
)
from thalweg.energies.clamped import Clamped, clamp, refuse_latent
from thalweg.spaces import Positive

__all__ = ["Clamped", "clamp", "smoothed", "tempered"]


class _Tempered(Energy):
    energy: Any
    temperature: Array

    @property
    def space(self) -> Space | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return space_of(self.energy)

    def __call__(self, x: PyTree) -> Array:
        return self.energy(x) / self.temperature


class _TemperedConditional(ConditionalEnergy):
    energy: ConditionalEnergy
    temperature: Array

    @property
    def space(self) -> Space | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.energy.space

    @property
    def condition_space(self) -> Space | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.energy.condition_space

    def __call__(self, x: PyTree, c: PyTree) -> Array:
        return self.energy(x, c) / self.temperature


class _BindTempered(eqx.Module):
    bind: Callable[[Any, Any], Any]
    temperature: Array

    def __call__(self, model: Any, parameter: PyTree) -> Any:
        return tempered(self.bind(model, parameter), self.temperature)


def tempered(energy: Any, temperature: float | Array) -> Any:
    """The energy ``E(x) / T``: flatter for T > 1, sharper for T < 1.

    T is an array leaf, so a ladder or a schedule of temperatures does not recompile anything. Abilities that hold at
    any temperature are kept: full conditionals, clamped coordinates, conditions, energies that differ between chains.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> float(tw.tempered(lambda x: jnp.sum(x**2), 4.0)(jnp.array([2.0])))
    1.0
    """
    require_energy("tempered", energy)
    temperature = positive("temperature", temperature)
    if temperature.ndim:
        raise ValueError(f"expected one temperature, got shape {temperature.shape}; use jax.vmap for several")
    if isinstance(energy, PerChain):
        return PerChain(_BindTempered(energy.bind, temperature), energy.model, energy.parameters, energy.space)
    if isinstance(energy, (HasConditionals, HasSweep)):
        return energy.scaled(1 / temperature)
    if isinstance(energy, Clamped):
        return eqx.tree_at(lambda clamped: clamped.energy, energy, tempered(energy.energy, temperature))
    if isinstance(energy, ConditionalEnergy):
        return _TemperedConditional(energy, temperature)  # pyright: ignore[reportCallIssue]
    refuse_latent("tempered", energy)
    return _Tempered(energy, temperature)  # pyright: ignore[reportCallIssue]


class _Smoothed(ConditionalEnergy):
    energy: HasSmoothing

    @property
    def space(self) -> Space | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.energy.space

    @property
    def condition_space(self) -> Space:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Positive(())

    def __call__(self, x: Array, c: Array | float) -> Array:
        return self.energy.smoothed(positive("sigma", c))(x)


def smoothed(energy: Any) -> ConditionalEnergy:
    """The exact energy ``E(x, σ)`` of ``x + σ·ε`` with ``x ~ p``, which noise-conditional models learn.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> noisy = tw.energies.smoothed(tw.energies.Gaussian(jnp.zeros(1), jnp.ones(1)))
    >>> bool(abs(noisy(jnp.array([2.0]), 1.0) - 1.0) < 1e-6)
    True
    """
    if not isinstance(energy, HasSmoothing):
        raise ValueError(
            f"expected an energy that stays in closed form with noise on its points, got {energy!r:.60}; "
            "use Gaussian, GaussianMixture or Ring"
        )
    return _Smoothed(energy)  # pyright: ignore[reportCallIssue]
