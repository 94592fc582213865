"""Recall of stored patterns: a population of probes goes down an energy of spins to its fixed points.

A unit takes the sign of its field ``h_i = Σ_j W_ij x_j + b_i`` and stays as it is where the field is zero, so a change
of one unit by ``Δx`` changes the energy by ``-Δx·h_i < 0``. A field below the rounding error of its sum counts as zero.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray

from thalweg.core import compiled, is_concrete

# units whose fields are computed by one matrix product; inside a block the fields are corrected unit by unit
_BLOCK = 32


class Recall(NamedTuple):
    """Where probes have gone: see `Hopfield.recall` and `ModernHopfield.recall`.

    ``states`` ``(probes, units)``, ``energies`` ``(probes,)``, ``steps`` ``(probes,)``: the number of steps in which
    the probe changed, and ``period`` ``(probes,)``: 1 at a fixed point, 2 in a cycle of two states, 0 if the given
    number of steps was too small to tell.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> memory = tw.energies.hebb(jnp.array([[1, 1, -1, -1, 1], [1, -1, 1, -1, -1]]))
    >>> memory.recall(jnp.array([[1, 1, -1, -1, -1]])).converged.tolist()
    [True]
    """

    states: Array
    energies: Array
    steps: Array
    period: Array

    @property
    def converged(self) -> Array:
        """Boolean ``(probes,)``: whether the probe has reached a fixed point."""
        return self.period == 1


def as_spins(name: str, value: Any, units: int | None = None, *, zero: bool = False) -> Array:
    """``value`` as rows ``(n, units)`` of -1 and 1, and of 0 if ``zero``; says the first row and column that is not."""
    levels = "-1, 0 and 1" if zero else "-1 and 1"
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(f"expected {name} without masked entries, got a masked array; fill them")
    try:
        rows = value if isinstance(value, jax.Array) else np.asarray(value)
        numeric = rows.dtype.kind in "iufb"
    except ValueError:
        raise ValueError(f"expected {name} as rows of {levels}, got ragged rows; give one row per pattern") from None
    if not numeric:
        raise ValueError(f"expected {name} as rows of {levels}, got {rows.dtype}; give numbers")
    wanted = "(n, units)" if units is None else f"(n, {units})"
    if rows.ndim != 2 or 0 in rows.shape or (units is not None and rows.shape[1] != units):
        raise ValueError(f"expected {name} of shape {wanted}, got {rows.shape}; give one row per pattern")
    if is_concrete(rows):
        host = np.asarray(rows, float)
        wrong = ~np.isin(host, (-1, 0, 1) if zero else (-1, 1))
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            hint = "2 * bits - 1 makes them of bits" + (", 0 marks an unknown unit" if zero else "")
            raise ValueError(
                f"expected {name} of {levels}, got {host[row, column]:g} in row {row}, column {column}; {hint}"
            )
    return jnp.asarray(rows, jnp.int32)


def as_held(held: Any, shape: tuple[int, ...]) -> Array:
    """A mask of held units, ``(units,)`` or ``(probes, units)``, as the latter; without one nothing is held."""
    mask = np.zeros(shape[1], bool) if held is None else held
    try:
        mask = mask if isinstance(mask, jax.Array) else np.asarray(mask)
    except ValueError:
        raise ValueError("expected a boolean mask `held`, got ragged rows; give one row per probe") from None
    if mask.dtype != bool or mask.shape not in (shape, shape[1:]):
        raise ValueError(
            f"expected a boolean mask `held` of shape {shape[1:]} or {shape}, got {mask.dtype} of shape {mask.shape}; "
            "True marks the units that keep their values"
        )
    return jnp.broadcast_to(mask, shape)


def _settle(field: Array, x: Array, held: Array, smallest: Array) -> Array:
    """The sign of the field; without a field a unit stays, and an unknown one becomes 1."""
    new = jnp.where(field > smallest, 1.0, jnp.where(field < -smallest, -1.0, jnp.where(x == 0, 1.0, x)))
    return jnp.where(held, x, new)


def _rounding(weights: Array, bias: Array) -> Array:
    """For every unit the size below which a field may be rounding error, ``(units, 1)``."""
    epsilon = jnp.finfo(weights.dtype).eps
    return 8 * epsilon * (jnp.sum(jnp.abs(weights), axis=1) + jnp.abs(bias))[:, None]


@compiled
def settle_asynchronously(
    weights: Float[Array, "units units"],
    bias: Float[Array, " units"],
    probes: Num[Array, "probes units"],
    held: Bool[Array, "probes units"],
    steps: Int[Array, ""],
    key: PRNGKeyArray | None,
) -> tuple[Array, Array, Array]:
    """``(states, steps, period)`` of sweeps in which one unit after another takes the sign of its field.

    A step is one sweep over all units: in their order, or with a key in a new random order each time. The fields of a
    block of units come from one matrix product and are corrected by rank-one updates inside the block, so the result is
    that of one unit after another at the speed of matrix products.
    """
    units = len(weights)
    size = min(_BLOCK, units)
    # units without weights fill the last block
    more = -units % size
    weights, bias = jnp.pad(weights, (0, more)), jnp.pad(bias, (0, more))
    x = jnp.pad(probes.T.astype(weights.dtype), ((0, more), (0, 0)), constant_values=1)
    fixed = jnp.pad(held.T, ((0, more), (0, 0)))
    smallest = _rounding(weights, bias)

    def block(x, sites):
        rows, still, least = weights[sites], fixed[sites], smallest[sites]
        field = jnp.matmul(rows, x, precision="highest") + bias[sites, None]
        inside = rows[:, sites]

        def unit(i, carry):
            now, field = carry
            new = _settle(field[i], now[i], still[i], least[i])
            return now.at[i].set(new), field + inside[:, i, None] * (new - now[i])

        now, _ = jax.lax.fori_loop(0, size, unit, (x[sites], field))
        return x.at[sites].set(now), None

    def sweep(carry):
        x, _, taken, count, key = carry
        order = jnp.arange(units + more)
        if key is not None:
            key, now = jax.random.split(key)
            order = order.at[:units].set(jax.random.permutation(now, units))
        new, _ = jax.lax.scan(block, x, order.reshape(-1, size))
        changed = jnp.any(new != x, axis=0)
        return new, changed, taken + changed, count + 1, key

    nobody = jnp.zeros(probes.shape[0], bool)
    start = (x, ~nobody, nobody.astype(jnp.int32), jnp.zeros((), jnp.int32), key)
    going = lambda carry: jnp.any(carry[1]) & (carry[3] < steps)
    x, changed, taken, _, _ = jax.lax.while_loop(going, sweep, start)
    return x[:units].T.astype(jnp.int32), taken, jnp.where(changed, 0, 1)


@compiled
def settle_synchronously(
    weights: Float[Array, "units units"],
    bias: Float[Array, " units"],
    probes: Num[Array, "probes units"],
    held: Bool[Array, "probes units"],
    steps: Int[Array, ""],
) -> tuple[Array, Array, Array]:
    """``(states, steps, period)`` of steps in which all units take the signs of their fields at once.

    A probe stops at a fixed point and where it meets its last but one state, which is a cycle of two.
    """
    smallest, fixed = _rounding(weights, bias), held.T

    def step(carry):
        x, before, period, taken, count = carry
        field = jnp.matmul(weights, x, precision="highest") + bias[:, None]
        # probes that have ended stay where they are
        new = jnp.where(period == 0, _settle(field, x, fixed, smallest), x)
        still, back = jnp.all(new == x, axis=0), jnp.all(new == before, axis=0)
        taken = taken + ~still
        period = jnp.where(period > 0, period, jnp.where(still, 1, jnp.where(back, 2, 0)))
        return new, x, period, taken, count + 1

    x = probes.T.astype(weights.dtype)
    none = jnp.zeros(probes.shape[0], jnp.int32)
    # a state that no probe can have, so that the first step closes no cycle
    start = (x, jnp.full_like(x, 2.0), none, none, jnp.zeros((), jnp.int32))
    going = lambda carry: jnp.any(carry[2] == 0) & (carry[4] < steps)
    x, _, period, taken, _ = jax.lax.while_loop(going, step, start)
    return x.T.astype(jnp.int32), taken, period
