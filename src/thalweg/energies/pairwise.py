"""The base class of energies with pairwise couplings: Gibbs updates of a population of chains, block by block."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import HasConditionals, is_concrete
from thalweg.energies.couplings import AbstractCoupling, LocalField

# with at most this many blocks the sweep is unrolled; with more it is a loop
_FEW_BLOCKS = 8


class AbstractPairwise(HasConditionals):
    """An energy with pairwise couplings: a site's conditional depends on the others only through ``Σ_j W_kj v_j``.

    Here ``v`` is a site's numerical value: a spin itself, a label as a one-hot row. A population is stored with the
    sites first, ``(sites, chains, ...)``, so that the field of one site is one row of W times the population.
    """

    coupling: eqx.AbstractVar[AbstractCoupling]

    @abc.abstractmethod
    def _to_values(self, x: Array) -> Array:
        """Chains ``(chains, sites)`` as numerical values ``(sites, chains, ...)``."""

    @abc.abstractmethod
    def _to_points(self, values: Array) -> Array:
        """The inverse of `_to_values`."""

    @abc.abstractmethod
    def _noise(self, key: PRNGKeyArray, sites: int, chains: int) -> Array:
        """The random numbers to draw ``sites`` sites in every chain, ``(sites, chains, ...)``."""

    @abc.abstractmethod
    def _draw(self, noise: Array, field: Array, sites: Any) -> Array:
        """The values of ``sites`` drawn from their conditionals, given the field there."""

    @property
    def blocks(self) -> np.ndarray:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Boolean ``(blocks, sites)``: the colours of the coupling's graph."""
        return self.coupling.colours()

    def scaled(self, factor: Array) -> Any:
        # these energies are linear in all their parameters
        return jax.tree.map(lambda leaf: leaf * factor if eqx.is_inexact_array(leaf) else leaf, self)

    def resample(self, key: PRNGKeyArray, x: Array, block: Any) -> Array:
        if is_concrete(block) and np.ndim(block) == 1:
            return self.sweep(key, x, np.asarray(block)[None])
        values, every = self._to_values(x), np.arange(self.coupling.sites)
        drawn = self._draw(self._noise(key, len(every), len(x)), self.coupling.field(values), every)
        block = jnp.asarray(block)
        chosen = block[:, None] if block.ndim == 1 else block.T
        return self._to_points(_where(chosen, drawn, values)).astype(x.dtype)

    def sweep(self, key: PRNGKeyArray, x: Array, blocks: Any = None) -> Array:
        blocks = self.blocks if blocks is None else blocks
        if not is_concrete(blocks):
            return super().sweep(key, x, blocks)
        members = [np.flatnonzero(block) for block in np.asarray(blocks)]
        members = [sites for sites in members if len(sites)]
        values, local = self._to_values(x), self.coupling.local_field()
        if local is None:
            values = self._sweep_whole(key, values, members)
        elif len(members) <= _FEW_BLOCKS:
            values = self._sweep_few(local, key, values, members)
        else:
            values = self._sweep_many(local, key, values, members)
        return self._to_points(values).astype(x.dtype)

    # each of these generates the random numbers of a sweep at once, one row for every site it draws

    def _sweep_whole(self, key: PRNGKeyArray, values: Array, members: list[np.ndarray]) -> Array:
        """For couplings that compute the field at all sites at once: only the sites of the block are updated."""
        sites, chains = values.shape[:2]
        inside = np.stack([np.isin(np.arange(sites), block) for block in members])
        # disjoint blocks share one row of random numbers per site
        shared = inside.sum(axis=0).max() <= 1
        noise = self._noise(key, sites if shared else len(members) * sites, chains)

        # a loop, because XLA would otherwise recompute the draws of one block for every neighbour in the next block
        def one(values, now):
            rows, inside = now
            drawn = self._draw(noise if rows is None else rows, self.coupling.field(values), np.arange(sites))
            return _where(inside[:, None], drawn, values), None

        rows = None if shared else noise.reshape(len(members), sites, *noise.shape[1:])
        return jax.lax.scan(one, values, (rows, jnp.asarray(inside)))[0]

    def _sweep_few(self, local: LocalField, key: PRNGKeyArray, values: Array, members: list[np.ndarray]) -> Array:
        """A few blocks, unrolled, with the field computed at each block's sites only."""
        count, start = self.coupling.sites, 0
        noise = self._noise(key, sum(map(len, members)), values.shape[1])
        for sites in members:
            inside, place = np.zeros((count, 1), bool), np.zeros(count, np.int32)
            inside[sites], place[sites] = True, np.arange(len(sites))
            drawn = self._draw(noise[start : start + len(sites)], local(values, sites), sites)
            values = _where(inside, drawn[place], values)
            start += len(sites)
        return values

    def _sweep_many(self, local: LocalField, key: PRNGKeyArray, values: Array, members: list[np.ndarray]) -> Array:
        """Many blocks, in a loop over their lists of sites, which are padded to one width."""
        count, width = self.coupling.sites, max(map(len, members))
        noise = self._noise(key, len(members) * width, values.shape[1])
        # the padding is read as the last site and never written
        sites = np.full((len(members), width), count)
        for number, block in enumerate(members):
            sites[number, : len(block)] = block

        def one(values, now):
            sites, noise = now
            known = jnp.minimum(sites, count - 1)
            drawn = self._draw(noise, local(values, known), known)
            if width == 1:
                return jax.lax.dynamic_update_slice_in_dim(values, drawn, sites[0], 0), None
            return values.at[sites].set(drawn, mode="drop"), None

        return jax.lax.scan(one, values, (jnp.asarray(sites), noise.reshape(*sites.shape, *noise.shape[1:])))[0]


def _where(chosen: Any, drawn: Array, values: Array) -> Array:
    """``drawn`` at the selected sites and chains, ``values`` at the others."""
    return jnp.where(chosen.reshape(*chosen.shape, *[1] * (values.ndim - 2)), drawn, values)
