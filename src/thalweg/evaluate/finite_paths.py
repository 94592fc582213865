"""Paths of energies on finite spaces, from independent sites to a model."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import HasAnnealing, HasConditionals, HasHiddenUnits, HasSweep, Kernel
from thalweg.core.random import uniform
from thalweg.evaluate.paths import Scaled
from thalweg.evaluate.smc import Path
from thalweg.samplers import Gibbs, GibbsWithGradients
from thalweg.spaces import Binary, Categorical, Finite, Spin

_SMOOTHING = 1.0  # added counts of each level when a field is fitted


class SitesPath(Path):
    """From independent sites with a field, ``p₀(x) ∝ exp(Σ field_i x_i)``, to an energy with `HasAnnealing`."""

    energy: Any
    field: Array

    def at(self, beta: Array) -> Any:
        return self.energy.annealed(beta, self.field)

    def cooled(self, factor: Array) -> Any:
        return self.energy.annealed(factor, jnp.zeros_like(self.field))

    def draw(self, key: PRNGKeyArray, count: int) -> Array:
        space = self.energy.space
        if isinstance(space, Categorical):
            return jax.random.categorical(key, self.field, shape=(count, *space.shape)).astype(space.dtype)
        low, high = space.levels
        up = uniform(key, (count, *space.shape)) < jax.nn.sigmoid(self.field * (high - low))
        return jnp.where(up, high, low).astype(space.dtype)

    @property
    def log_z_base(self) -> Array:
        space = self.energy.space
        logits = self.field if isinstance(space, Categorical) else self.field[..., None] * jnp.array(space.levels)
        # at one point, since at β = 0 energy and field differ by a constant
        x = jnp.full(space.shape, space.levels[0], space.dtype)
        own = jnp.sum(logits[..., 0])
        return jnp.sum(jax.nn.logsumexp(logits, axis=-1)) - (self.at(jnp.zeros(()))(x) + own)


class UniformPath(Path):
    """From the uniform distribution on a finite space to an energy: ``U_β = β E``."""

    energy: Any

    def at(self, beta: Array) -> Any:
        swept = isinstance(self.energy, (HasConditionals, HasSweep))
        return self.energy.scaled(beta) if swept else Scaled(self.energy, beta)  # pyright: ignore[reportCallIssue]

    def cooled(self, factor: Array) -> Any:
        return self.at(factor)

    def draw(self, key: PRNGKeyArray, count: int) -> Array:
        return self.energy.space.noise(key, (count,))

    @property
    def log_z_base(self) -> Array:
        space = self.energy.space
        return jnp.asarray(math.prod(space.shape) * math.log(len(space.levels)))


def path_on_sites(energy: Any, samples: Array | None) -> Path:
    """The path to an energy on a finite space, from the uniform distribution, or where the energy allows it from sites
    with its own biases or with the marginals of ``samples``."""
    hidden = energy.hidden if isinstance(energy, HasHiddenUnits) else None  # pyright: ignore[reportAttributeAccessIssue]
    discrete = hidden is None or isinstance(hidden.space, Finite)  # pyright: ignore[reportAttributeAccessIssue]
    if not (isinstance(energy, HasAnnealing) and discrete):
        return UniformPath(energy)
    field = energy.own_field if samples is None else fit_field(samples, energy.space)  # pyright: ignore[reportArgumentType]
    return SitesPath(energy, field)


def fit_field(samples: Array, space: Finite) -> Array:
    """The field of independent sites with the smoothed frequencies of samples ``(n, *event)``."""
    levels = jnp.array(space.levels)
    counts = jnp.sum(samples[..., None] == levels, axis=0) + _SMOOTHING
    logs = jnp.log(counts / jnp.sum(counts, axis=-1, keepdims=True))
    if isinstance(space, Categorical):
        return logs
    return (logs[..., 1] - logs[..., 0]) / (space.levels[1] - space.levels[0])


def kernel_on_sites(energy: Any) -> Kernel:
    """Gibbs sampling where the energy has conditionals or a sweep; otherwise Gibbs with gradients."""
    if isinstance(energy, (HasConditionals, HasSweep)):
        return Gibbs()
    if isinstance(energy.space, (Binary, Spin, Categorical)):
        return GibbsWithGradients()
    raise ValueError(
        f"expected an energy with conditionals, or a Binary, Spin or Categorical space, got {energy.space}; "
        "write `blocks`, `resample` and `scaled` (HasConditionals), or give a kernel"
    )
