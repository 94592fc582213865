"""Sums over more points than fit in memory, one block of points at a time: log Σ w and Σ w f / Σ w.

A block function maps one entry of ``blocks`` to ``(points, log_weights)``, of shapes ``(count, *event)`` and
``(count,)``. Enumeration and quadrature differ only in that function.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from thalweg.core import Space, as_energy, check_scalar, space_of

Block = Callable[[Any], tuple[Array, Array]]


def prepare(energy: Callable[[Array], Array], space: Space | None) -> tuple[Any, Space]:
    """The energy and its space; raises if there is no space."""
    energy = as_energy(energy, space)
    known = space_of(energy)
    if known is None:
        raise ValueError(
            "expected a space to sum or integrate over, got an energy that carries none; "
            "give one, for example space=Binary(8) or space=Real(2)"
        )
    return energy, known


def require_scalar(energy: Any, space: Space) -> None:
    """Raise if the energy does not return one number for one point."""
    check_scalar(energy, jax.ShapeDtypeStruct((1, *space.shape), space.dtype))


def log_density(energy: Any, x: Array) -> Array:
    """``-E(x)`` in floating point, also if the energy returns whole numbers."""
    return -jnp.asarray(energy(x), dtype=jnp.result_type(float))


def log_sums(block: Block, blocks: PyTree) -> tuple[Array, Array]:
    """For each block the largest log weight and ``Σ exp(log w - largest)``; differentiable in the weights."""

    # recomputing a block in the backward pass keeps the memory of a gradient at one block
    @jax.checkpoint
    def one(entry):
        _, log_weights = block(entry)
        peak = jax.lax.stop_gradient(jnp.max(log_weights))
        # a block of zero probability has the peak -inf, and -inf - -inf would be NaN
        return peak, jnp.sum(jnp.exp(log_weights - jnp.where(jnp.isneginf(peak), 0.0, peak)))

    return jax.lax.map(one, blocks)


def log_sum(block: Block, blocks: PyTree) -> Array:
    """``log Σ w`` over all points of all blocks."""
    peaks, sums = log_sums(block, blocks)
    top = jnp.max(peaks)
    top = jnp.where(jnp.isneginf(top), 0.0, top)
    return top + jnp.log(jnp.sum(sums * jnp.exp(peaks - top)))


def average(block: Block, blocks: PyTree, f: Callable[[Array], PyTree]) -> PyTree:
    """``Σ w f / Σ w`` over all points of all blocks, for every leaf that ``f`` returns.

    Points of zero weight are ignored, whatever ``f`` is there. The running sums are compensated (Kahan summation), so
    that thousands of blocks lose no digits in single precision.
    """
    reference = jax.lax.stop_gradient(log_sum(block, blocks))

    def values_at(points):
        return jax.vmap(lambda x: jax.tree.map(as_float, f(x)))(points)

    def block_sums(entry):
        points, log_weights = block(entry)
        weights = jnp.exp(log_weights - reference)

        # one long inner product in single precision loses two digits; rows of 64, then their sum, lose none
        rows = weights.reshape(-1, math.gcd(len(weights), 64))

        def total(values):
            values = values.reshape(*rows.shape, *values.shape[1:])
            alive = rows.reshape(*rows.shape, *(1,) * (values.ndim - 2)) > 0
            products = jnp.einsum("rc,rc...->r...", rows, jnp.where(alive, values, 0), precision="highest")
            return jnp.sum(products, axis=0)

        return jnp.sum(weights), jax.tree.map(total, values_at(points))

    @jax.checkpoint
    def add(carry, entry):
        sums, lost = carry
        terms = jax.tree.map(jnp.subtract, block_sums(entry), lost)
        grown = jax.tree.map(jnp.add, sums, terms)
        lost = jax.tree.map(lambda new, old, term: (new - old) - term, grown, sums, terms)
        return (grown, lost), None

    first = jax.tree.map(lambda leaf: leaf[0], blocks)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(block_sums, first))
    ((weight, sums), _), _ = jax.lax.scan(add, (zeros, zeros), blocks)
    return jax.tree.map(lambda total: total / weight, sums)


def as_float(value: Any) -> Array:
    """A number or array in floating point, so that booleans and counts can be averaged."""
    array = jnp.asarray(value)
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(jnp.result_type(float))


def output_size(f: Callable[[Array], PyTree], space: Space) -> int:
    """How many numbers ``f`` returns for one point, which limits how many points fit in a block."""
    shapes = eqx.filter_eval_shape(
        lambda x: jax.tree.map(jnp.asarray, f(x)), jax.ShapeDtypeStruct(space.shape, space.dtype)
    )
    return max(1, sum(leaf.size for leaf in jax.tree.leaves(shapes)))
