"""Energies made of energies: tempering, clamping and blurring."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Energy, HasConditionals, HasLogits, HasSmoothing, Space, as_energy, positive
from thalweg.spaces import Binary, Categorical, Counts, Interval, Positive, Real, Spin


class _Tempered(Energy):
    energy: Energy
    temperature: Array
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return self.energy(x) / self.temperature


def tempered(energy: Any, temperature: float | Array) -> Energy:
    """The energy ``E(x) / T``: flatter above T = 1, sharper below; the one place where a temperature exists.

    T is an array leaf, so a ladder or a schedule of temperatures does not recompile anything.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> float(tw.tempered(lambda x: jnp.sum(x**2), 4.0)(jnp.array([2.0])))
    1.0
    """
    energy, temperature = as_energy(energy), positive("temperature", temperature)
    if isinstance(energy, HasConditionals):
        return energy.scaled(1 / temperature)
    return _Tempered(energy=energy, temperature=temperature, space=energy.space)


class _Smoothed(Energy):
    energy: HasSmoothing
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: Array, sigma: Array | float) -> Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.energy.smoothed(sigma)(x)


def smoothed(energy: HasSmoothing) -> Energy:
    """The noise-conditional energy ``E(x, σ)`` of ``x + σ·ε`` with ``x ~ p``: what a noise-conditional model learns.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> noisy = tw.energies.smoothed(tw.energies.Gaussian(jnp.zeros(1), jnp.ones(1)))
    >>> bool(abs(noisy(jnp.array([2.0]), 1.0) - 1.0) < 1e-6)
    True
    """
    return _Smoothed(energy=energy, space=energy.space)


class Clamped(Energy):
    """An energy with some coordinates held at given values, as a function of the others: see `clamp`."""

    energy: Energy
    values: Array
    free: tuple[int, ...] = eqx.field(static=True)
    space: Space | None = eqx.field(static=True)

    @property
    def mask(self) -> np.ndarray:
        """Boolean, of the full point's shape: which coordinates are held."""
        held = np.ones(self.values.size, bool)
        held[list(self.free)] = False
        return held.reshape(self.values.shape)

    def __call__(self, x: Array) -> Array:
        return self.energy(self.complete(x))

    def complete(self, x: Array) -> Array:
        """The full point of free coordinates ``(free,)``; a full point has its held coordinates put right."""
        flat = self.values.reshape(-1).astype(x.dtype)
        if x.shape == self.values.shape:
            x = self.reduce(x)
        return flat.at[np.array(self.free)].set(x).reshape(self.values.shape)

    def reduce(self, x: Array) -> Array:
        """The free coordinates ``(free,)`` of a full point."""
        return x.reshape(-1)[np.array(self.free)]


class _ClampedConditionals(Clamped, HasConditionals):
    """A clamped energy whose full conditionals are those of the whole one."""

    blocks: Array

    def resample(self, key: PRNGKeyArray, x: Array, block: Array) -> Array:
        whole = jnp.zeros(self.values.size, bool).at[np.array(self.free)].set(block).reshape(self.values.shape)
        return self.reduce(self.energy.resample(key, self.complete(x), whole))  # pyright: ignore[reportAttributeAccessIssue]

    def scaled(self, factor: Array) -> "_ClampedConditionals":
        whole = self.energy.scaled(factor)  # pyright: ignore[reportAttributeAccessIssue]
        return type(self)(energy=whole, values=self.values, free=self.free, space=self.space, blocks=self.blocks)


class _ClampedLogits(_ClampedConditionals, HasLogits):
    def logits(self, x: Array) -> Array:
        whole = self.energy.logits(self.complete(x))  # pyright: ignore[reportAttributeAccessIssue]
        return whole.reshape(-1, whole.shape[-1])[np.array(self.free)]


def clamp(energy: Any, mask: Any, values: Any) -> Clamped:
    """``p(x_free | x_held = values)``: the energy with the coordinates of ``mask`` held at ``values``.

    It is an energy of the free coordinates alone, so every sampler works on it unchanged; `tw.sample` takes starts and
    gives draws of the full shape, with the held coordinates exactly at their values. Inpainting, denoising and missing
    ratings are all this.

    Args:
        energy: any energy.
        mask: boolean, of the point's shape, True where the coordinate is held; it must leave something free.
        values: of the point's shape; only the held entries are read.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Gaussian(jnp.zeros(2), jnp.array([[1.0, 0.8], [0.8, 1.0]]))
    >>> held = tw.clamp(energy, jnp.array([True, False]), jnp.array([2.0, 0.0]))
    >>> chains = tw.sample(held, tw.samplers.MALA(0.5), jnp.zeros((500, 2)), key=jax.random.key(0), draws=1, burn_in=50)
    >>> bool(jnp.all(chains.draws[..., 0] == 2.0)), bool(abs(chains.draws[..., 1].mean() - 1.6) < 0.2)
    (True, True)
    """
    energy = as_energy(energy)
    held, values = np.asarray(mask), jnp.asarray(values)
    if held.dtype != bool or held.shape != values.shape:
        raise ValueError(
            f"expected a boolean mask of the values' shape {values.shape}, got {held.dtype} of shape {held.shape}; "
            "True marks the coordinates to hold"
        )
    if energy.space is not None and held.shape != energy.space.shape:
        raise ValueError(
            f"expected a mask of the point's shape {energy.space.shape}, got {held.shape}; one entry per coordinate"
        )
    if held.all():
        raise ValueError("expected a mask that leaves something free, got one that holds every coordinate; unmark some")
    free = tuple(np.flatnonzero(~held.reshape(-1)).tolist())
    space = _of_size(energy.space, len(free))
    if not isinstance(energy, HasConditionals):
        return Clamped(energy=energy, values=values, free=free, space=space)
    blocks = np.asarray(energy.blocks).reshape(len(energy.blocks), -1)[:, list(free)]
    kind = _ClampedLogits if isinstance(energy, HasLogits) else _ClampedConditionals
    blocks = jnp.asarray(blocks[blocks.any(axis=1)])
    return kind(energy=energy, values=values, free=free, space=space, blocks=blocks)


def _of_size(space: Space | None, size: int) -> Space | None:
    """The same kind of space for ``size`` coordinates; spaces whose coordinates are tied together cannot be cut."""
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
