"""Operations on a population of chains: energies that differ from chain to chain, selection, norms."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from thalweg.core.contracts import ScoreNetwork, Space


class PerChain(eqx.Module):
    """An energy that differs from chain to chain: chain i has ``bind(model, parameters[i])``, on ``space``.

    For chains with one condition each, ``bind`` is `given`; for one part of a mixed point it fixes the other parts.
    It is not a function of one point: evaluate it by `over_chains`.
    """

    bind: Callable[[Any, Any], Any]
    model: Any
    parameters: PyTree
    space: Space | None = eqx.field(static=True, default=None)

    def at(self, parameter: PyTree) -> Any:
        """The energy of one chain."""
        return self.bind(self.model, parameter)

    def first(self) -> Any:
        """The energy of the first chain, which has the structure of all of them."""
        return self.at(jax.tree.map(lambda leaf: leaf[0], self.parameters))

    def take(self, chains: Any) -> "PerChain":
        """The energies of some chains, given by index or slice."""
        return self._with(jax.tree.map(lambda leaf: leaf[chains], self.parameters))

    def tile(self, count: int) -> "PerChain":
        """The energies of all chains repeated ``count`` times: for ``count`` populations one after another."""
        return self._with(jax.tree.map(lambda leaf: jnp.concatenate([leaf] * count), self.parameters))

    def repeat(self, count: int) -> "PerChain":
        """The energy of every chain ``count`` times in a row: for ``count`` points per chain."""
        return self._with(jax.tree.map(lambda leaf: jnp.repeat(leaf, count, axis=0), self.parameters))

    def _with(self, parameters: PyTree) -> "PerChain":
        return PerChain(self.bind, self.model, parameters, self.space)


def over_chains(function: Callable[..., PyTree], energy: Any, *arrays: PyTree) -> PyTree:
    """``function(energy, *arrays)`` for every chain, with its own energy and its own rows of ``arrays``.

    >>> import jax.numpy as jnp
    >>> from thalweg.core import over_chains
    >>> over_chains(lambda energy, x: energy(x), jnp.sum, jnp.ones((3, 2))).tolist()
    [2.0, 2.0, 2.0]
    """
    if isinstance(energy, PerChain):
        return jax.vmap(lambda parameter, *own: function(energy.at(parameter), *own))(energy.parameters, *arrays)
    return jax.vmap(lambda *own: function(energy, *own))(*arrays)


def energies(energy: Any, x: PyTree) -> Array:
    """The energy of every chain, ``(chains,)``."""
    return over_chains(lambda energy, point: energy(point), energy, x)


def tile(energy: Any, count: int) -> Any:
    """``energy`` for ``count`` populations one after another."""
    return energy.tile(count) if isinstance(energy, PerChain) else energy


def repeat(energy: Any, count: int) -> Any:
    """``energy`` for ``count`` points in a row per chain."""
    return energy.repeat(count) if isinstance(energy, PerChain) else energy


def model_of(model: Any) -> Any:
    """The model itself; for a `PerChain`, the model that all chains share."""
    return model_of(model.model) if isinstance(model, PerChain) else model


def is_score(model: Any) -> bool:
    """Whether a model is a score network, possibly inside a `PerChain`."""
    return isinstance(model_of(model), ScoreNetwork)


def select(chains: Bool[Array, " chains"], new: PyTree, old: PyTree) -> PyTree:
    """``new`` for the selected chains and ``old`` for the others, in every array of a state."""
    return jax.tree.map(lambda a, b: jnp.where(chains.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old)


def concatenate(*points: PyTree) -> PyTree:
    """Several populations joined along the chain axis."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *points)


def count_chains(x: PyTree) -> int:
    """The number of chains in points ``(chains, *event)``."""
    return jax.tree.leaves(x)[0].shape[0]


def norm(gradient: PyTree) -> Array:
    """``‖g‖₂`` over all leaves of one chain's gradient."""
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
