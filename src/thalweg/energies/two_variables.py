"""Energies of two variables: as a joint density, with the variables swapped, or with one integrated out."""

from typing import Any

from jaxtyping import Array, PyTree

from thalweg.core import ConditionalEnergy, Energy, HasFreeEnergy, Space
from thalweg.spaces import Product


class _Joint(Energy):
    energy: ConditionalEnergy

    @property
    def space(self) -> Space | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        parts = (self.energy.space, self.energy.condition_space)
        return None if None in parts else Product(*parts)

    def __call__(self, x: PyTree) -> Array:
        if not isinstance(x, (tuple, list)) or len(x) != 2:
            raise ValueError(f"expected one point (x, c) of a joint energy, got a {type(x).__name__}; give a pair")
        return self.energy(x[0], x[1])


class _Swapped(ConditionalEnergy):
    energy: ConditionalEnergy

    @property
    def space(self) -> Space | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.energy.condition_space

    @property
    def condition_space(self) -> Space | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.energy.space

    def __call__(self, x: PyTree, c: PyTree) -> Array:
        return self.energy(c, x)


class _Marginal(Energy):
    energy: HasFreeEnergy

    @property
    def space(self) -> Space | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.energy.space

    def __call__(self, x: PyTree) -> Array:
        return self.energy.free_energy(x)


def joint(energy: Any) -> Energy:
    """``p(x, c) = exp(-E(x, c)) / Z``: a conditional energy read as an energy of the pair ``(x, c)``.

    If both spaces are known, the pairs live in ``Product(space, condition_space)``.

    Args:
        energy: a conditional energy of ``(x, c)``; for a plain function use
            ``tw.as_conditional(function, space, condition_space)``.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> energy = tw.as_conditional(lambda x, c: 0.5 * jnp.sum((x - c) ** 2), tw.Real(1), tw.Real(1))
    >>> both = tw.energies.joint(energy)
    >>> float(both((jnp.ones(1), jnp.zeros(1)))), both.space.shape
    (0.5, ((1,), (1,)))
    """
    return _Joint(_require_conditional("joint", energy))  # pyright: ignore[reportCallIssue]


def swapped(energy: Any) -> ConditionalEnergy:
    """``p(c | x) = exp(-E(x, c)) / Z(x)``: the variable and the condition swapped.

    For example a classifier: trained on pairs ``(c, x)`` it learns the probability of each label given the point.

    Args:
        energy: a conditional energy of ``(x, c)``.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> energy = tw.as_conditional(lambda x, c: c * jnp.sum(x), tw.Real(2), tw.Binary(()))
    >>> float(tw.energies.swapped(energy)(jnp.array(1), jnp.ones(2)))
    2.0
    """
    energy = _require_conditional("swapped", energy)
    return energy.energy if isinstance(energy, _Swapped) else _Swapped(energy)  # pyright: ignore[reportCallIssue]


def marginal(energy: Any) -> Energy:
    """``p(x) = exp(-F(x)) / Z`` with ``F(x) = -log ∫ exp(-E(x, z)) dz``: a latent energy as an energy of x alone.

    Args:
        energy: a latent energy with `free_energy`.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> class Blurred(tw.core.HasFreeEnergy):  # z ~ N(0, 1) up to a constant, x ~ N(z, 1)
    ...     space = tw.Real(())
    ...     latent_space = tw.Real(())
    ...     def __call__(self, x, z):
    ...         return 0.5 * z**2 + 0.5 * (x - z) ** 2
    ...     def free_energy(self, x):
    ...         return x**2 / 4 - 0.5 * jnp.log(jnp.pi)
    >>> energy = tw.energies.marginal(Blurred())
    >>> round(float(energy(2.0) - energy(0.0)), 4)
    1.0
    """
    if not isinstance(energy, HasFreeEnergy):
        raise ValueError(
            f"expected a latent energy with free_energy(x) for marginal, got {_name(energy)}; "
            "write free_energy (HasFreeEnergy), or sample x and z together"
        )
    return _Marginal(energy)  # pyright: ignore[reportCallIssue]


def _require_conditional(name: str, energy: Any) -> Any:
    if not isinstance(energy, ConditionalEnergy):
        raise ValueError(
            f"expected a conditional energy E(x, c) for {name}, got {_name(energy)}; "
            "make one of a function by tw.as_conditional(function)"
        )
    return energy


def _name(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
