"""A kernel for energies with latent variables: alternating steps of x given z and of z given x."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import Energy, Info, Kernel, PerChain, Space, State, count_chains, given, space_of
from thalweg.core.random import split
from thalweg.samplers.run import advance, metrics_with_gradient
from thalweg.samplers.single_chain import init_chains, retarget_chains, step_chains

Posterior = Callable[[PRNGKeyArray, Any, Any], Any]


class Latents(State):
    """The state of latent values drawn from their posterior: only the values."""

    x: PyTree


class LatentState(State):
    """The states of both kernels: of the points and of their latent values."""

    points: Any
    latents: Any

    @property
    def x(self) -> tuple[PyTree, PyTree]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The positions of the chains: ``(x, z)``."""
        return self.points.x, self.latents.x


class LatentChains(Kernel):
    r"""One step moves x by ``kernel`` on ``x ↦ E(x, z)``, then z by a draw from ``p(z|x)`` or by ``latent_kernel`` on
    ``z ↦ E(x, z)``.

    Each half leaves ``p(x, z)`` invariant if its kernel does. Both states are kept, and retargeted after the other
    variable has moved. `init` takes x alone and draws an initial z for it.

    Args:
        kernel: for x.
        latent_kernel: for z; ``None`` if there is a posterior.
        posterior: ``posterior(key, energy, x) -> z`` for one point.
        latent: the space of z.
        latent_steps: the number of steps of ``latent_kernel`` from noise to the initial z.
    """

    kernel: Any
    latent_kernel: Any
    posterior: Posterior | None
    latent: Space = eqx.field(static=True)
    latent_steps: int = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> LatentState:
        key_latents, key_points = split(key)
        latents, _ = self.initial_latents(key_latents, energy, x)
        points = init_chains(self.kernel, key_points, _given_latents(energy, latents.x), x)
        return _state(points, latents)

    def retarget(self, energy: Any, state: LatentState) -> LatentState:
        # each half of a step retargets its own state first
        return state

    def step(self, key: PRNGKeyArray, energy: Any, state: LatentState) -> tuple[LatentState, Info]:
        key_points, key_latents = split(key)
        bound = _given_latents(energy, state.latents.x)
        points = retarget_chains(self.kernel, bound, state.points)
        points, info = step_chains(self.kernel, key_points, bound, points)
        if self.posterior is not None:
            return _state(points, Latents(self.draw_posterior(key_latents, energy, points.x))), info
        bound = self._given_points(energy, points.x)
        latents = retarget_chains(self.latent_kernel, bound, state.latents)
        latents, _ = step_chains(self.latent_kernel, key_latents, bound, latents)
        return _state(points, latents), info

    def initial_latents(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> tuple[Any, dict[str, Array]]:
        """The state of an initial z for every x, and the metrics of its chain."""
        if self.posterior is not None:
            return Latents(self.draw_posterior(key, energy, x)), {}
        key_noise, key_init, key_chain = split(key, 3)
        bound = self._given_points(energy, x)
        z = self.latent.noise(key_noise, (count_chains(x),))
        state = init_chains(self.latent_kernel, key_init, bound, z)
        measure, steps = metrics_with_gradient, self.latent_steps
        return advance(bound, self.latent_kernel, state, key=key_chain, steps=steps, measure=measure)

    def draw_posterior(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> PyTree:
        """One exact draw of z for every x."""
        draw: Any = self.posterior
        return jax.vmap(lambda key, x: draw(key, energy, x))(jax.random.split(key, count_chains(x)), x)

    def _given_points(self, energy: Any, x: PyTree) -> PerChain:
        return PerChain(_BindPoint(self.latent), energy, x, self.latent)


def _state(points: Any, latents: Any) -> LatentState:
    return LatentState(points=points, latents=latents)  # pyright: ignore[reportCallIssue]


def _given_latents(energy: Any, z: PyTree) -> PerChain:
    return PerChain(given, energy, z, space_of(energy))


class _GivenPoint(Energy):
    """``z ↦ E(x, z)``."""

    energy: Any
    point: PyTree
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: PyTree) -> Array:
        return self.energy(self.point, x)


class _BindPoint(eqx.Module):
    space: Space = eqx.field(static=True)

    def __call__(self, energy: Any, x: PyTree) -> _GivenPoint:
        return _GivenPoint(energy, x, self.space)
