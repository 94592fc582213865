"""Paths of energies from a base density to a model: Gaussian mixtures on R^d, independent sites on finite spaces."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from thalweg.core import Energy, Info, Module, Space, Tunable, select, space_of
from thalweg.core.random import log_uniform, normal, split, uniform
from thalweg.evaluate.smc import Path
from thalweg.samplers.hamiltonian import hamiltonian_step
from thalweg.samplers.states import GradientState, gradient_state
from thalweg.spaces import Coordinates, to_real

_INFINITE = 1e30  # stands for an infinite energy, since 0·∞ is not a number


class Mixture(Module):
    """A mixture of Gaussians, ``Σ_k w_k N(m_k, L_k L_kᵀ)``; the factors are lower triangular, or diagonals.

    ``inverses`` are those of the factors: products with them are much faster than solving for a population.
    """

    log_weights: Float[Array, " components"]
    means: Float[Array, "components d"]
    factors: Array
    inverses: Array

    def log_prob(self, y: Float[Array, " d"]) -> Array:
        """The log density at one point."""
        away = y - self.means
        if self.factors.ndim == 3:
            white, scales = jnp.einsum("kij,kj->ki", self.inverses, away), jax.vmap(jnp.diag)(self.inverses)
        else:
            white, scales = away * self.inverses, self.inverses
        logs = self.log_weights - 0.5 * jnp.sum(white**2, -1) + jnp.sum(jnp.log(scales), -1)
        return jax.nn.logsumexp(logs) - 0.5 * len(y) * math.log(2 * math.pi)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        """Independent points, ``(*shape, d)``."""
        key_component, key_noise = split(key)
        which = jax.random.categorical(key_component, self.log_weights, shape=shape)
        noise = normal(key_noise, (*shape, self.means.shape[-1]))
        if self.factors.ndim == 2:
            return self.means[which] + self.factors[which] * noise
        # every component's product for every point: a few products of matrices, where gathering factors is slow
        every = self.means + jnp.einsum("kij,...j->...ki", self.factors, noise)
        return jnp.take_along_axis(every, which[..., None, None], axis=-2)[..., 0, :]


def mixture(log_weights: Array, means: Array, factors: Array) -> Mixture:
    """A `Mixture` from its weights (normalised here), means and factors."""
    if factors.ndim == 3:
        unit = jnp.broadcast_to(jnp.eye(means.shape[-1]), factors.shape)
        inverses = jax.scipy.linalg.solve_triangular(factors, unit, lower=True)
    else:
        inverses = 1 / factors
    return Mixture(jax.nn.log_softmax(log_weights), means, factors, inverses)


class Affine(Module):
    """``E(shift + C y) - log |det C|`` as an energy of y, with C lower triangular or a diagonal."""

    energy: Any
    shift: Array
    factor: Array

    def point(self, y: Array) -> Array:
        """The point at y."""
        return self.shift + (self.factor @ y if self.factor.ndim == 2 else self.factor * y)

    def inverse(self, z: Array) -> Array:
        """The y of a point."""
        away = z - self.shift
        if self.factor.ndim == 2:
            return jax.scipy.linalg.solve_triangular(self.factor, away, lower=True)
        return away / self.factor

    def __call__(self, y: Array) -> Array:
        scales = jnp.diag(self.factor) if self.factor.ndim == 2 else self.factor
        return self.energy(self.point(y)) - jnp.sum(jnp.log(scales))


class Flat(Module):
    """An energy of flat vectors, from one of arrays of another shape."""

    energy: Any
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, z: Array) -> Array:
        return self.energy(z.reshape(self.shape))


class UserBase(Module):
    """A density of points, as one of flat real vectors."""

    density: Any
    coordinates: Coordinates | None
    shape: tuple[int, ...] = eqx.field(static=True)

    def log_prob(self, y: Array) -> Array:
        """The log density at one vector, with the volume of the coordinates."""
        z = y.reshape(self.shape)
        if self.coordinates is None:
            return self.density.log_prob(z)
        return self.density.log_prob(self.coordinates.from_real(z)) + self.coordinates.log_det(z)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        """Independent vectors, ``(*shape, d)``, for a shape of one number."""
        return to_real(self.coordinates, self.density.sample(key, shape)).reshape(*shape, -1)


class Interpolated(Energy):
    """``U_β(y) = -(1 - β) log p₀(y) + β E(y)`` on R^d."""

    energy: Any
    base: Any
    beta: Array

    @property
    def space(self) -> Space | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return None

    def __call__(self, y: Array) -> Array:
        value = jnp.asarray(self.energy(y), float)
        value = jnp.where(value < _INFINITE, value, _INFINITE)
        return self.beta * value - (1 - self.beta) * self.base.log_prob(y)


class Scaled(Energy):
    """``factor · E(x)``, with a large number in place of infinity."""

    energy: Any
    factor: Array

    @property
    def space(self) -> Space | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return space_of(self.energy)

    def __call__(self, x: Array) -> Array:
        value = jnp.asarray(self.energy(x), float)
        return self.factor * jnp.where(value < _INFINITE, value, _INFINITE)


class GaussianPath(Path):
    """The path ``p₀^(1-β) p^β`` from a mixture of Gaussians to an energy on R^d."""

    energy: Any
    base: Any

    def at(self, beta: Array) -> Interpolated:
        return Interpolated(self.energy, self.base, beta)  # pyright: ignore[reportCallIssue]

    def cooled(self, factor: Array) -> Interpolated:
        return Interpolated(Scaled(self.energy, factor), self.base, jnp.ones(()))  # pyright: ignore[reportCallIssue]

    def draw(self, key: PRNGKeyArray, count: int) -> Array:
        return self.base.sample(key, (count,))

    @property
    def log_z_base(self) -> Array:
        return jnp.zeros(())


class Trajectories(Tunable):
    """The default moves on R^d: a step of HMC, then a proposal from the base.

    The number of leapfrog steps is random, and every second trajectory has a step size shortened by a random factor
    between 1 and 1/20, since one step size does not serve a density with several scales (a funnel, a spike). The
    proposal from the base carries chains between modes that the base knows. Exactly invariant.
    """

    step_size: Array
    steps: int = eqx.field(static=True, default=4)

    target_acceptance = 0.8

    def init(self, key: PRNGKeyArray, energy: Any, x: Array) -> GradientState:
        return gradient_state(energy, x, None)

    def retarget(self, energy: Any, state: GradientState) -> GradientState:
        return gradient_state(energy, state.position, None)

    def get_step_size(self) -> Array:
        return self.step_size

    def with_step_size(self, step_size: Array) -> "Trajectories":
        return Trajectories(step_size, self.steps)

    def step(self, key: PRNGKeyArray, energy: Interpolated, state: GradientState) -> tuple[GradientState, Info]:
        key_length, key_short, key_moves, key_jump = split(key, 4)
        lengths = jax.random.randint(key_length, (2,), 1, 2 * self.steps + 1)
        sizes = self.step_size * jnp.stack([jnp.ones(()), 20.0 ** -uniform(key_short, ())])
        unit = jnp.ones(state.position.shape[-1])

        # a loop, so that the trajectory is compiled once
        def one(state, now):
            key, size, length = now
            state, info = hamiltonian_step(key, energy, state, size, unit, length)
            return state, info

        state, info = jax.lax.scan(one, state, (split(key_moves), sizes, lengths))
        return self._jump(key_jump, energy, state), jax.tree.map(lambda leaf: leaf[0], info)

    def _jump(self, key: PRNGKeyArray, energy: Interpolated, state: GradientState) -> GradientState:
        key_draw, key_accept = split(key)
        chains = len(state.position)
        new = gradient_state(energy, energy.base.sample(key_draw, (chains,)), None)
        log_prob = jax.vmap(energy.base.log_prob)
        gained = state.energy - new.energy + log_prob(state.position) - log_prob(new.position)
        accept = log_uniform(key_accept, (chains,)) < jnp.where(jnp.isnan(gained), -jnp.inf, gained)
        return select(accept, new, state)
