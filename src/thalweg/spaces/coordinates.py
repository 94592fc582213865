"""Real coordinates of points, in which gradient kernels move and score matching works.

A point of R^d is its own coordinate vector. A tree of arrays becomes one flat vector; a point of a constrained space
(`Positive`, `Simplex`, …) is mapped to R^d by the space's bijection ``x = x(z)``, where its density is
``p(x(z)) |det dx/dz|``. A chain in z that keeps this density invariant keeps p invariant, and never leaves the support.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from thalweg.core import PerChain, ScoreNetwork, Space, over_chains, score, space_of
from thalweg.spaces.continuous import Real
from thalweg.spaces.points import require_gradient


class Coordinates(eqx.Module):
    """The map between one point of a space (or a tree of real arrays) and its flat vector ``(d,)``."""

    space: Space | None = eqx.field(static=True)
    structure: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def to_real(self, x: PyTree) -> Array:
        """The coordinates z of one point x."""
        if self.space is not None:
            return self.space.to_real(x)  # pyright: ignore[reportAttributeAccessIssue]
        return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(x)])

    def from_real(self, z: Array) -> PyTree:
        """The point x with coordinates z."""
        if self.space is not None:
            return self.space.from_real(z)  # pyright: ignore[reportAttributeAccessIssue]
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])[:-1]
        parts = [part.reshape(shape) for part, shape in zip(jnp.split(z, ends), self.shapes, strict=True)]
        return jax.tree.unflatten(self.structure, parts)

    def log_det(self, z: Array) -> Array:
        """``log |det dx/dz|``."""
        return jnp.zeros(()) if self.space is None else self.space.log_det(z)  # pyright: ignore[reportAttributeAccessIssue]


def coordinates_of(name: str, energy: Any, x: PyTree) -> Coordinates | None:
    """The coordinate map of chains at ``x``; ``None`` for arrays on R^d; raises on spaces without gradients.

    ``name`` is the kernel or objective that asks, for the message.
    """
    space = space_of(energy)
    require_gradient(name, space, x)
    if isinstance(x, (jax.Array, np.ndarray)) and (space is None or isinstance(space, Real)):
        return None
    leaves, structure = jax.tree.flatten(x)
    return Coordinates(space, structure, tuple(leaf.shape[1:] for leaf in leaves))


def to_real(coordinates: Coordinates | None, x: PyTree) -> Array:
    """The coordinates of all chains."""
    return x if coordinates is None else jax.vmap(coordinates.to_real)(x)


def from_real(coordinates: Coordinates | None, z: Array) -> PyTree:
    """The points of all chains."""
    return z if coordinates is None else jax.vmap(coordinates.from_real)(z)


class _OnReals(eqx.Module):
    energy: Any
    coordinates: Coordinates
    volume: bool = eqx.field(static=True)

    def __call__(self, z: Array) -> Array:
        energy = self.energy(self.coordinates.from_real(z))
        return energy - self.coordinates.log_det(z) if self.volume else energy


class _ScoreOnReals(ScoreNetwork):
    network: Any
    coordinates: Coordinates
    volume: bool = eqx.field(static=True)
    space: Space | None = eqx.field(static=True, default=None)

    def __call__(self, x: Array) -> Array:
        point, pull_back = jax.vjp(self.coordinates.from_real, x)
        pulled = pull_back(self.network(point))[0]
        return pulled + jax.grad(self.coordinates.log_det)(x) if self.volume else pulled


class _BindOnReals(eqx.Module):
    bind: Any
    coordinates: Coordinates
    volume: bool = eqx.field(static=True)

    def __call__(self, model: Any, parameter: PyTree) -> Any:
        return on_reals(self.bind(model, parameter), self.coordinates, self.volume)


def on_reals(model: Any, coordinates: Coordinates | None, volume: bool = True) -> Any:
    """The energy of z, ``E(x(z)) - log |det dx/dz|``; the model itself if points are their own coordinates.

    A score network becomes ``(dx/dz)ᵀ s(x) + ∇_z log |det dx/dz|``. Without ``volume`` the determinant is left out:
    ``E(x(z))`` has the same minima as E.
    """
    if coordinates is None:
        return model
    if isinstance(model, PerChain):
        return PerChain(_BindOnReals(model.bind, coordinates, volume), model.model, model.parameters)
    if isinstance(model, ScoreNetwork):
        return _ScoreOnReals(model, coordinates, volume)  # pyright: ignore[reportCallIssue]
    return _OnReals(model, coordinates, volume)


def scores_on_reals(model: Any, coordinates: Coordinates | None, z: Array) -> Array:
    """``∇_z log p(z)`` of every chain."""
    return over_chains(score, on_reals(model, coordinates), z)
