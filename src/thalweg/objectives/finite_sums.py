"""``log Z`` as a sum over all states of a finite space or of a product of finite spaces."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from thalweg.core import Energy, PerChain, Space, over_chains
from thalweg.exact import enumeration
from thalweg.exact.streaming import log_sum
from thalweg.spaces import Finite, Product

# the number of states in memory at once, over all rows
_STATES = 2**18
_BLOCK = 2**14


def is_finite(space: Space | None) -> bool:
    """Whether a space has finitely many states: it is `Finite`, or a product of finite spaces."""
    if isinstance(space, Product):
        return all(map(is_finite, space.parts))
    return isinstance(space, Finite)


def count_states(space: Any) -> int:
    """The number of states."""
    return math.prod(map(count_states, space.parts)) if isinstance(space, Product) else space.size


def states_at(space: Any, numbers: Int[Array, " count"]) -> PyTree:
    """The states with the given numbers; the last part of a product changes fastest.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> from thalweg.objectives.finite_sums import states_at
    >>> bits, label = states_at(tw.Product(tw.Binary(1), tw.Categorical((), 3)), jnp.arange(6))
    >>> bits[:, 0].tolist(), label.tolist()
    ([0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2])
    """
    if not isinstance(space, Product):
        return jax.vmap(lambda number: space.states(number, 1)[0])(numbers)
    parts = []
    for part in reversed(space.parts):
        parts.append(states_at(part, numbers % count_states(part)))
        numbers = numbers // count_states(part)
    return space.join(parts[::-1])


def log_z_sums(model: Any, space: Any) -> Float[Array, "..."]:
    """``log Σₓ exp(-E(x))``, a scalar; ``(rows,)`` for an energy that differs from row to row."""
    if not isinstance(model, PerChain):
        return _log_z(model, space)
    rows = jax.tree.leaves(model.parameters)[0].shape[0]
    at_once = max(1, _STATES // min(_BLOCK, count_states(space)))
    if rows <= at_once:
        return over_chains(lambda energy: _log_z(energy, space), model)
    return jax.lax.map(lambda parameter: _log_z(model.at(parameter), space), model.parameters, batch_size=at_once)


def _log_z(energy: Any, space: Any) -> Array:
    if isinstance(space, Finite) and isinstance(energy, Energy):
        return enumeration.log_z(energy, space)
    size = count_states(space)
    count = min(_BLOCK, size)

    def block(start):
        numbers = start + jnp.arange(count)
        states = states_at(space, numbers % size)
        log_weights = -jax.vmap(energy)(states).astype(jnp.result_type(float))
        return states, jnp.where(numbers < size, log_weights, -jnp.inf)

    return log_sum(block, jnp.arange(0, size, count))
