"""Unadjusted Langevin dynamics, overdamped and underdamped, and gradient descent as its noise-free limit."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import Info, Kernel, finite, is_concrete, non_negative, norm, over_chains, positive, score
from thalweg.core.random import normal
from thalweg.samplers.states import AbstractRealState, Position
from thalweg.spaces import Coordinates, coordinates_of, on_reals, scores_on_reals, to_real


class Langevin(Kernel):
    r"""Unadjusted Langevin dynamics, ``x ← x - (τ/2) ∇E(x) + s·ε`` with ``ε ~ N(0, I)``.

    ``s = √τ`` unless ``noise_scale`` is given: a gradient coefficient of 1 with noise 0.005 is
    ``Langevin(step_size=2, noise_scale=0.005)``. There is no accept step, so the chain has a bias of first order in τ:
    on N(0, 1) its stationary variance is ``1 / (1 - τ/4)``. Takes an energy or a score network, and evaluates the
    gradient once per step. On constrained spaces the chain moves in real coordinates.
    Reference: Roberts and Tweedie (1996), Bernoulli 2(4).

    Args:
        step_size: τ > 0.
        noise_scale: s ≥ 0; by default √τ.
        clip_x: ``(low, high)``; every coordinate is clipped to this range after each step; on R^d only.
        clip_gradient: every component of the gradient is clipped to ± this value.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> kernel = tw.samplers.Langevin(step_size=0.1)
    >>> init = jnp.zeros((1000, 1))
    >>> chains = tw.sample(lambda x: 0.5 * jnp.sum(x**2), kernel, init, key=jax.random.key(0), draws=1, burn_in=200)
    >>> bool(abs(chains.draws.var() - 1 / (1 - 0.1 / 4)) < 0.15)
    True
    """

    step_size: Array
    noise_scale: Array
    clip_x: Array | None
    clip_gradient: Array | None

    takes_per_chain_energies = True

    def __init__(
        self,
        step_size: float | Array,
        noise_scale: float | Array | None = None,
        clip_x: tuple[float, float] | None = None,
        clip_gradient: float | None = None,
    ):
        self.step_size = positive("step_size", step_size, scalar=True)
        # zero noise is gradient descent, so only a negative scale raises
        self.noise_scale = (
            jnp.sqrt(self.step_size) if noise_scale is None else non_negative("noise_scale", noise_scale, scalar=True)
        )
        self.clip_x = None if clip_x is None else _bounds(clip_x)
        self.clip_gradient = None if clip_gradient is None else positive("clip_gradient", clip_gradient, scalar=True)

    def init(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> Position:
        coordinates = coordinates_of("Langevin", energy, x)
        if coordinates is not None and self.clip_x is not None:
            raise ValueError(
                f"expected arrays on R^d for clip_x, got points of {coordinates.space or 'a tree'}; leave clip_x out"
            )
        return Position(to_real(coordinates, x), coordinates)

    def step(self, key: PRNGKeyArray, energy: Any, state: Position) -> tuple[Position, Info]:
        x = state.position
        gradient = -scores_on_reals(energy, state.coordinates, x)
        drift = gradient if self.clip_gradient is None else jnp.clip(gradient, -self.clip_gradient, self.clip_gradient)
        x = x - 0.5 * self.step_size * drift + self.noise_scale * normal(key, x.shape, x.dtype)
        if self.clip_x is not None:
            x = jnp.clip(x, self.clip_x[0], self.clip_x[1])
        return Position(x, state.coordinates), Info(gradient_norm=jax.vmap(norm)(gradient))


def _below_one(name: str, value: Any) -> Array:
    array = non_negative(name, value)
    if is_concrete(array) and not np.all(np.asarray(array) < 1):
        raise ValueError(f"expected {name} in [0, 1), got {value}; 0.9 is usual")
    return array


def _bounds(clip_x: Any) -> Array:
    bounds = finite("clip_x", clip_x)
    if bounds.shape != (2,) or not np.all(np.diff(bounds) > 0):
        raise ValueError(f"expected clip_x=(low, high) with low < high, got {clip_x}; give two numbers in order")
    return bounds


class VelocityState(AbstractRealState):
    """The positions and velocities of the chains."""

    position: Array
    velocity: Array
    coordinates: Coordinates | None = eqx.field(static=True, default=None)


class UnderdampedLangevin(Kernel):
    r"""Langevin dynamics with momentum, ``dx = v dt``, ``dv = -∇E(x) dt - γ v dt + √(2γ) dW``, by the BAOAB splitting:
    half a step of v, half a step of x, the exact Ornstein-Uhlenbeck step of v, half a step of x, half a step of v.

    There is no accept step: the bias is of second order in the step size (zero for the positions on a Gaussian). Takes
    an energy or a score network. Reference: Leimkuhler and Matthews (2013), Appl. Math. Res. Express.

    Args:
        step_size: h > 0, the time step.
        friction: γ > 0.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> kernel = tw.samplers.UnderdampedLangevin(0.3)
    >>> chains = tw.sample(tw.energies.Banana(), kernel, jnp.zeros((8, 2)), key=jax.random.key(0), draws=10)
    >>> chains.draws.shape
    (8, 10, 2)
    """

    step_size: Array = eqx.field(converter=lambda value: positive("step_size", value, scalar=True))
    friction: Array = eqx.field(converter=lambda value: positive("friction", value, scalar=True), default=1.0)

    takes_per_chain_energies = True

    def init(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> VelocityState:
        coordinates = coordinates_of("UnderdampedLangevin", energy, x)
        position = to_real(coordinates, x)
        return VelocityState(position, normal(key, position.shape, position.dtype), coordinates)  # pyright: ignore[reportCallIssue]

    def retarget(self, energy: Any, state: VelocityState) -> VelocityState:
        return state

    def step(self, key: PRNGKeyArray, energy: Any, state: VelocityState) -> tuple[VelocityState, Info]:
        half = self.step_size / 2
        velocity = state.velocity + half * scores_on_reals(energy, state.coordinates, state.position)
        x = state.position + half * velocity
        keep = jnp.exp(-self.friction * self.step_size)
        velocity = keep * velocity + jnp.sqrt(1 - keep**2) * normal(key, x.shape, x.dtype)
        x = x + half * velocity
        last = scores_on_reals(energy, state.coordinates, x)
        return VelocityState(x, velocity + half * last, state.coordinates), Info(gradient_norm=jax.vmap(norm)(last))  # pyright: ignore[reportCallIssue]


class GradientDescent(Kernel):
    r"""Gradient descent with momentum: ``v ← m v - (τ/2)∇E(x)``, ``x ← x + v``; Langevin without noise.

    An optimiser in the form of a kernel: it finds modes and does not sample. On constrained spaces it descends in real
    coordinates, to minima of the energy itself.

    Args:
        step_size: τ > 0, in the convention of `Langevin`.
        momentum: m in [0, 1).

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> kernel = tw.samplers.GradientDescent(0.2, momentum=0.5)
    >>> bowl, init = lambda x: jnp.sum((x - 3) ** 2), jnp.zeros((1, 1))
    >>> chains = tw.sample(bowl, kernel, init, key=jax.random.key(0), draws=1, burn_in=99)
    >>> bool(abs(chains.draws[0, 0, 0] - 3) < 1e-4)
    True
    """

    step_size: Array = eqx.field(converter=lambda value: positive("step_size", value, scalar=True))
    momentum: Array = eqx.field(converter=lambda value: _below_one("momentum", value), default=0.0)

    takes_per_chain_energies = True

    def init(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> VelocityState:
        coordinates = coordinates_of("GradientDescent", energy, x)
        position = to_real(coordinates, x)
        return VelocityState(position, jnp.zeros_like(position), coordinates)  # pyright: ignore[reportCallIssue]

    def retarget(self, energy: Any, state: VelocityState) -> VelocityState:
        return state

    def step(self, key: PRNGKeyArray, energy: Any, state: VelocityState) -> tuple[VelocityState, Info]:
        # the log-determinant is left out: the result is a minimum of E, not a mode of the density of the coordinates
        downhill = over_chains(score, on_reals(energy, state.coordinates, volume=False), state.position)
        velocity = self.momentum * state.velocity + 0.5 * self.step_size * downhill
        moved = VelocityState(state.position + velocity, velocity, state.coordinates)  # pyright: ignore[reportCallIssue]
        return moved, Info(gradient_norm=jax.vmap(norm)(downhill))
