"""Energies with some coordinates held at given values."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import (
    ConditionalEnergy,
    Energy,
    HasConditionals,
    HasLogits,
    HasSweep,
    LatentEnergy,
    PerChain,
    Space,
    finite,
    is_concrete,
    require_energy,
    space_of,
)
from thalweg.spaces import (
    Binary,
    Categorical,
    Counts,
    Discrete,
    Finite,
    Interval,
    Positive,
    Product,
    Real,
    Spin,
    as_points,
)


class Clamped(Energy):
    """An energy with some coordinates held at given values, as a function of the others: see `clamp`."""

    energy: Any
    values: Array
    free: tuple[int, ...] = eqx.field(static=True)

    @property
    def space(self) -> Space | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The space of the free coordinates."""
        return _resize(space_of(self.energy), len(self.free))

    @property
    def mask(self) -> np.ndarray:
        """Boolean, of the full point's shape: which coordinates are held."""
        held = np.ones(self.values.size, bool)
        held[list(self.free)] = False
        return held.reshape(self.values.shape)

    def __call__(self, x: Array) -> Array:
        return self.energy(self.complete(x))

    def complete(self, x: Array) -> Array:
        """The full point with the given free coordinates ``(free,)``; in a full point the held coordinates are reset.

        On `Categorical` also from one-hot rows ``(free, k)``, in which energies have gradients.
        """
        space, shape = space_of(self.energy), self.values.shape
        if not isinstance(x, (jax.Array, np.ndarray)):
            raise ValueError(f"expected one point as an array, got {type(x).__name__}; give its free coordinates")
        if not any(jnp.issubdtype(x.dtype, kind) for kind in (jnp.floating, jnp.integer, np.bool_)):
            raise ValueError(f"expected one point of real numbers, got {x.dtype}; give floating-point or whole numbers")
        if jnp.issubdtype(x.dtype, jnp.integer) and jnp.issubdtype(self.values.dtype, jnp.floating):
            raise ValueError(
                f"expected floating-point points, as the held values are, got {x.dtype}; convert with x.astype(float)"
            )
        free, flat = np.array(self.free), self.values.reshape(-1).astype(x.dtype)
        if isinstance(space, Categorical) and x.shape in ((len(free), space.k), (*shape, space.k)):
            rows = jax.nn.one_hot(self.values.reshape(-1), space.k, dtype=x.dtype)
            x = x.reshape(-1, space.k)
            x = x[free] if len(x) != len(free) else x
            return rows.at[free].set(x).reshape(*shape, space.k)
        if x.shape == shape:
            x = self.reduce(x)
        if x.shape != free.shape:
            raise ValueError(
                f"expected one point of {len(free)} free coordinates or of shape {shape}, got {x.shape}; "
                "batch by jax.vmap(energy)(points)"
            )
        return flat.at[free].set(x).reshape(shape)

    def reduce(self, x: Array) -> Array:
        """The free coordinates ``(free,)`` of a full point."""
        return x.reshape(-1)[np.array(self.free)]


class _ClampedConditionals(Clamped, HasConditionals):
    """A clamped energy whose full conditionals are those of the unclamped energy."""

    @property
    def blocks(self) -> np.ndarray:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The blocks of the unclamped energy, restricted to the free coordinates."""
        blocks = np.asarray(self.energy.blocks)
        blocks = blocks.reshape(len(blocks), -1)[:, list(self.free)]
        return blocks[blocks.any(axis=1)]

    def resample(self, key: PRNGKeyArray, x: Array, block: Any) -> Array:
        whole = self._spread(block)
        return jax.vmap(self.reduce)(self.energy.resample(key, jax.vmap(self.complete)(x), whole))

    def sweep(self, key: PRNGKeyArray, x: Array, blocks: Any = None) -> Array:
        whole = self._spread(self.blocks if blocks is None else blocks)
        return jax.vmap(self.reduce)(self.energy.sweep(key, jax.vmap(self.complete)(x), whole))

    def scaled(self, factor: Array) -> "_ClampedConditionals":
        return eqx.tree_at(lambda clamped: clamped.energy, self, self.energy.scaled(factor))

    def _spread(self, blocks: Any) -> Any:
        """Blocks ``(..., free)`` over the full point; concrete blocks stay a numpy array."""
        free, shape = list(self.free), (*np.shape(blocks)[:-1], self.values.size)
        if is_concrete(blocks):
            whole = np.zeros(shape, bool)
            whole[..., free] = np.asarray(blocks)
        else:
            whole = jnp.zeros(shape, bool).at[..., np.array(free)].set(blocks)
        return whole.reshape(*shape[:-1], *self.values.shape)


class _ClampedLogits(_ClampedConditionals, HasLogits):
    def logits(self, x: Array) -> Array:
        whole = self.energy.logits(self.complete(x))
        return whole.reshape(-1, whole.shape[-1])[np.array(self.free)]


class _ClampedSweep(Clamped, HasSweep):
    """A clamped energy that is swept by the unclamped energy, with only the free coordinates redrawn."""

    def sweep(self, key: PRNGKeyArray, x: Array, free: Any = None) -> Array:
        whole = ~self.mask
        if free is not None:
            whole = jnp.asarray(whole).reshape(-1).at[np.array(self.free)].set(free).reshape(whole.shape)
        return jax.vmap(self.reduce)(self.energy.sweep(key, jax.vmap(self.complete)(x), whole))

    def scaled(self, factor: Array) -> "_ClampedSweep":
        return eqx.tree_at(lambda clamped: clamped.energy, self, self.energy.scaled(factor))


def clamp(energy: Any, mask: Any, values: Any) -> Clamped:
    """``p(x_free | x_held = values)``: the energy with the coordinates of ``mask`` held at ``values``.

    It is an energy of the free coordinates alone, so every sampler works on it unchanged; `tw.sample` takes starts and
    returns draws of the full shape, with the held coordinates exactly at their values. Use it for inpainting, denoising
    and missing values.

    Args:
        energy: any energy of points that are one array.
        mask: boolean, of the point's shape, True where a coordinate is held; at least one must be free.
        values: of the point's shape; only the held entries are read.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Gaussian(jnp.zeros(2), jnp.array([[1.0, 0.8], [0.8, 1.0]]))
    >>> held = tw.clamp(energy, jnp.array([True, False]), jnp.array([2.0, 0.0]))
    >>> chains = tw.sample(held, tw.samplers.MALA(0.5), jnp.zeros((500, 2)), key=jax.random.key(0), draws=1, burn_in=50)
    >>> bool(jnp.all(chains.draws[..., 0] == 2.0)), bool(abs(chains.draws[..., 1].mean() - 1.6) < 0.2)
    (True, True)
    """
    require_energy("clamp", energy)
    refuse_latent("clamp", energy)
    if isinstance(energy, (PerChain, ConditionalEnergy)):
        raise ValueError(
            "expected an energy of one point for clamp, got one with a condition; clamp tw.given(energy, c)"
        )
    space = space_of(energy)
    if isinstance(space, Product) or isinstance(values, dict) or isinstance(mask, dict):
        raise ValueError(
            "expected points that are one array for clamp, got points of several parts; "
            "write a function of the free parts that puts the held ones in"
        )
    held = _as_mask(mask, values, space)
    free = tuple(np.flatnonzero(~held.reshape(-1)).tolist())
    _resize(space, len(free))
    kept = _as_values(space, held, values)
    if isinstance(energy, HasLogits):
        return _ClampedLogits(energy, kept, free)  # pyright: ignore[reportCallIssue]
    kind = _ClampedConditionals if isinstance(energy, HasConditionals) else Clamped
    kind = _ClampedSweep if isinstance(energy, HasSweep) else kind
    return kind(energy, kept, free)  # pyright: ignore[reportCallIssue]


def _as_mask(mask: Any, values: Any, space: Space | None) -> np.ndarray:
    if not is_concrete(mask) or isinstance(mask, np.ma.MaskedArray):
        raise ValueError("expected a mask of plain booleans, got a traced or masked one; give a numpy array")
    try:
        held, shape = np.asarray(mask), np.shape(values)
    except ValueError:
        raise ValueError("expected arrays as mask and values, got ragged rows; give one entry per coordinate") from None
    if held.dtype != bool or held.shape != shape:
        raise ValueError(
            f"expected a boolean mask of the values' shape {shape}, got {held.dtype} of shape {held.shape}; "
            "True marks the coordinates to hold"
        )
    if space is not None and held.shape != space.shape:
        raise ValueError(
            f"expected a mask of the point's shape {space.shape}, got {held.shape}; one entry per coordinate"
        )
    if held.all():
        raise ValueError("expected a mask that leaves something free, got one that holds every coordinate; unmark some")
    return held


def _as_values(space: Space | None, held: np.ndarray, values: Any) -> Array:
    """The held values in the space's dtype, with a valid value in the free places, which are never read."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError("expected values without masked entries, got a masked array; fill them, and hold by `mask`")
    kind = jnp.result_type(values) if not is_concrete(values) else np.asarray(values).dtype
    if not (jnp.issubdtype(kind, jnp.integer) or jnp.issubdtype(kind, jnp.floating) or jnp.issubdtype(kind, jnp.bool_)):
        raise ValueError(f"expected real numbers as held values, got {kind}; give an array of the point's shape")
    if isinstance(space, Discrete) or (space is None and not jnp.issubdtype(kind, jnp.floating)):
        inside = space.levels[0] if isinstance(space, Finite) else 0
        if not is_concrete(values):
            return jnp.where(held, values, inside).astype(jnp.int32)
        # counts that must add up to a total do so only with the free ones
        checked = Counts(space.shape) if isinstance(space, Counts) else space
        return as_points(checked, np.where(held, np.asarray(values), np.int64(inside))[None], "values")[0]
    inside = 1.0 if isinstance(space, Positive) else 0.0
    if isinstance(space, Interval):
        inside = (space.low + space.high) / 2
    kept = finite("values", jnp.where(held, jnp.asarray(values, jnp.result_type(float)), inside))
    if is_concrete(kept):
        as_points(space, np.asarray(kept)[None], "values")
    return kept


def _resize(space: Space | None, size: int) -> Space | None:
    """The same kind of space with ``size`` coordinates; raises for spaces whose coordinates depend on each other."""
    match space:
        case None:
            return None
        case Real():
            return Real(size)
        case Positive():
            return Positive(size)
        case Interval(low=low, high=high):
            return Interval(low=low, high=high, shape=size)
        case Binary():
            return Binary(size)
        case Spin():
            return Spin(size)
        case Categorical(k=k):
            return Categorical(size, k)
        case Counts():
            return Counts(size)
    raise ValueError(
        f"expected a space whose coordinates are free of each other, got {space}; clamp an energy on Real, Binary, …"
    )


def refuse_latent(name: str, energy: Any) -> None:
    """Raise for a latent energy, which is not a function of one point."""
    if isinstance(energy, LatentEnergy):
        raise ValueError(
            f"{name}: expected an energy of one point, got the latent energy {type(energy).__name__}; "
            "use tw.energies.marginal(energy) where its free energy is known"
        )
