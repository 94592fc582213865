"""Bits with third-order interactions beside the pairwise ones."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import HasLogits, finite
from thalweg.core.random import uniform
from thalweg.energies.couplings import Matrix
from thalweg.energies.lattice import Ising
from thalweg.energies.structure import Structure, colours_of_mask
from thalweg.spaces import Binary


class ThirdOrder(HasLogits):
    """``E(x) = -½xᵀWx - bᵀx - Σ_t K_t x_i x_j x_k`` on bits, over a fixed list of triples (i, j, k)."""

    pairs: Ising
    strengths: Array
    triples: Structure = eqx.field(static=True)

    def __init__(self, pairs: Ising, triples: Any, strengths: Any):
        self.pairs = pairs
        self.triples = Structure(_as_triples(triples, pairs.coupling.sites))
        self.strengths = finite("the strengths of triples", strengths)
        if self.strengths.shape not in ((), (len(self.triples.array),)):
            raise ValueError(
                f"expected one strength for each of {len(self.triples.array)} triples, got shape "
                f"{self.strengths.shape}; give as many or one for all"
            )
        self.strengths = jnp.broadcast_to(self.strengths, (len(self.triples.array),))

    @property
    def space(self) -> Binary:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Binary(self.pairs.coupling.sites)

    @property
    def coupling(self) -> Any:
        """The pairwise weights."""
        return self.pairs.coupling

    @property
    def bias(self) -> Array:
        """The biases b."""
        return self.pairs.bias

    @property
    def blocks(self) -> np.ndarray:  # pyright: ignore[reportIncompatibleVariableOverride]
        return colours_of_mask(Structure(links(self)))

    def __call__(self, x: Array) -> Array:
        first, second, third = (x[self.triples.array[:, place]] for place in range(3))
        return self.pairs(x) - jnp.dot(self.strengths, (first * second * third).astype(self.bias.dtype))

    def logits(self, x: Array) -> Array:
        point = x.astype(self.bias.dtype)
        # the energy is linear in each bit, so the difference of its two levels is the slope
        field = -jax.grad(self)(point)
        return field[:, None] * jnp.array([0.0, 1.0])

    def resample(self, key: PRNGKeyArray, x: Array, block: Any) -> Array:
        field = jax.vmap(lambda point: self.logits(point)[:, 1])(x)
        drawn = (uniform(key, x.shape) * (1 + jnp.exp(-field)) < 1).astype(x.dtype)
        return jnp.where(jnp.asarray(block), drawn, x)

    def scaled(self, factor: Array) -> "ThirdOrder":
        return jax.tree.map(lambda leaf: leaf * factor if eqx.is_inexact_array(leaf) else leaf, self)


def links(energy: Any) -> np.ndarray:
    """Boolean ``(n, n)``: which pairs of units occur together in a term of the energy."""
    coupling, sites = energy.coupling, energy.coupling.sites
    everything = ~np.eye(sites, dtype=bool)
    linked = everything if not isinstance(coupling, Matrix) or coupling.mask is None else coupling.mask.array
    if isinstance(energy, ThirdOrder):
        linked = linked.copy()
        for triple in energy.triples.array:
            linked[np.ix_(triple, triple)] = True
    return linked & everything


def _as_triples(triples: Any, sites: int) -> np.ndarray:
    try:
        array: np.ndarray = np.asarray(triples)
    except ValueError:
        raise ValueError("expected triples as whole numbers (t, 3), got ragged rows; give three units each") from None
    if array.ndim != 2 or array.shape[1] != 3 or len(array) == 0 or array.dtype.kind not in "iu":
        raise ValueError(
            f"expected triples as whole numbers (t, 3), got {array.dtype} of shape {array.shape}; give three units each"
        )
    rows = np.sort(array.astype(np.int64), axis=1)
    if np.any(rows[:, 1:] == rows[:, :-1]) or len(np.unique(rows, axis=0)) < len(rows):
        raise ValueError("expected every triple once and of three different units, got others; remove them")
    if rows.min() < 0 or rows.max() >= sites:
        raise ValueError(
            f"expected triples of the units 0 to {sites - 1}, got {rows.min()} to {rows.max()}; number them from 0, "
            "the visible units first"
        )
    return rows
