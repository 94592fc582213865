"""Unadjusted Langevin dynamics, with and without momentum, and its noise-free limit."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Info, Kernel, State, as_model, is_concrete, positive, score
from thalweg.samplers.lift import norm
from thalweg.samplers.noise import normal
from thalweg.spaces import require_gradient


class Position(State):
    """Chains that carry nothing but where they are."""

    x: Array


class Langevin(Kernel):
    r"""Unadjusted Langevin dynamics, ``x ← x - (τ/2) ∇E(x) + s·ε`` with ``ε ~ N(0, I)``.

    ``s = √τ`` unless ``noise_scale`` decouples it: the thesis's setting, a gradient coefficient of 1 with noise 0.005,
    is ``Langevin(step_size=2, noise_scale=0.005)``. There is no accept step, so the chain has a bias of first order in
    τ: on N(0, 1) its own stationary variance is ``1 / (1 - τ/4)``. Takes an energy or a score network, and evaluates
    its gradient once per step. Reference: Roberts and Tweedie (1996), Bernoulli 2(4).

    Args:
        step_size: τ > 0.
        noise_scale: s ≥ 0, by default √τ.
        clip_x: ``(low, high)``, every coordinate kept between them after each step.
        clip_gradient: every component of the gradient kept within ± this.

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

    def __init__(
        self,
        step_size: float | Array,
        noise_scale: float | Array | None = None,
        clip_x: tuple[float, float] | None = None,
        clip_gradient: float | None = None,
    ):
        self.step_size = positive("step_size", step_size)
        # zero noise is gradient descent, so only negative scales are refused
        if isinstance(noise_scale, (int, float)) and noise_scale < 0:
            raise ValueError(f"expected noise_scale >= 0, got {noise_scale}; leave it out for √step_size")
        self.noise_scale = jnp.sqrt(self.step_size) if noise_scale is None else jnp.asarray(noise_scale, float)
        if clip_x is not None and not clip_x[0] < clip_x[1]:
            raise ValueError(f"expected clip_x=(low, high) with low < high, got {clip_x}; swap them")
        self.clip_x = None if clip_x is None else jnp.asarray(clip_x, float)
        self.clip_gradient = None if clip_gradient is None else positive("clip_gradient", clip_gradient)

    def init(self, energy: Any, x: Array) -> Position:
        require_gradient("Langevin", as_model(energy).space, x)
        return Position(x)

    def step(self, key: PRNGKeyArray, energy: Any, state: Position) -> tuple[Position, Info]:
        gradient = -jax.vmap(lambda point: score(energy, point))(state.x)
        drift = gradient if self.clip_gradient is None else jnp.clip(gradient, -self.clip_gradient, self.clip_gradient)
        x = state.x - 0.5 * self.step_size * drift + self.noise_scale * normal(key, state.x.shape, state.x.dtype)
        if self.clip_x is not None:
            x = jnp.clip(x, self.clip_x[0], self.clip_x[1])
        return Position(x), Info(gradient_norm=jax.vmap(norm)(gradient))


class Moving(State):
    """Chains with a velocity."""

    x: Array
    velocity: Array


class UnderdampedLangevin(Kernel):
    r"""Langevin dynamics with momentum, ``dx = v dt``, ``dv = -∇E(x) dt - γ v dt + √(2γ) dW``, by the BAOAB splitting:
    half a kick, half a drift, the exact Ornstein-Uhlenbeck step of v, half a drift, half a kick.

    No accept step: its bias is of second order in the step size (on a Gaussian the positions have none at all). Takes
    an energy or a score network. Reference: Leimkuhler and Matthews (2013), Appl. Math. Res. Express.

    Args:
        step_size: h > 0, a time step.
        friction: γ > 0.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> kernel = tw.samplers.UnderdampedLangevin(0.3)
    >>> chains = tw.sample(tw.energies.Banana(), kernel, jnp.zeros((8, 2)), key=jax.random.key(0), draws=10)
    >>> chains.draws.shape
    (8, 10, 2)
    """

    step_size: Array = eqx.field(converter=lambda value: positive("step_size", value))
    friction: Array = eqx.field(converter=lambda value: positive("friction", value), default=1.0)

    def init(self, energy: Any, x: Array) -> Moving:
        require_gradient("UnderdampedLangevin", as_model(energy).space, x)
        # a velocity at rest is drawn to its own law by the first steps
        return Moving(x, jnp.zeros_like(x))

    def step(self, key: PRNGKeyArray, energy: Any, state: Moving) -> tuple[Moving, Info]:
        half = self.step_size / 2
        force = jax.vmap(lambda point: score(energy, point))
        velocity = state.velocity + half * force(state.x)
        x = state.x + half * velocity
        keep = jnp.exp(-self.friction * self.step_size)
        noise = normal(key, x.shape, x.dtype)
        velocity = keep * velocity + jnp.sqrt(1 - keep**2) * noise
        x = x + half * velocity
        last = force(x)
        return Moving(x, velocity + half * last), Info(gradient_norm=jax.vmap(norm)(last))


class GradientDescent(Kernel):
    r"""Downhill: ``v ← m v - (τ/2)∇E(x)``, ``x ← x + v``; Langevin without its noise, with momentum m.

    An optimiser in the form of a kernel: it finds modes and samples nothing.

    Args:
        step_size: τ > 0, in Langevin's convention.
        momentum: m in [0, 1).

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> kernel = tw.samplers.GradientDescent(0.2, momentum=0.5)
    >>> bowl, init = lambda x: jnp.sum((x - 3) ** 2), jnp.zeros((1, 1))
    >>> chains = tw.sample(bowl, kernel, init, key=jax.random.key(0), draws=1, burn_in=99)
    >>> bool(abs(chains.draws[0, 0, 0] - 3) < 1e-4)
    True
    """

    step_size: Array = eqx.field(converter=lambda value: positive("step_size", value))
    momentum: Array = eqx.field(converter=lambda value: _momentum(value), default=0.0)

    def init(self, energy: Any, x: Array) -> Moving:
        require_gradient("GradientDescent", as_model(energy).space, x)
        return Moving(x, jnp.zeros_like(x))

    def step(self, key: PRNGKeyArray, energy: Any, state: Moving) -> tuple[Moving, Info]:
        downhill = jax.vmap(lambda point: score(energy, point))(state.x)
        velocity = self.momentum * state.velocity + 0.5 * self.step_size * downhill
        return Moving(state.x + velocity, velocity), Info(gradient_norm=jax.vmap(norm)(downhill))


def _momentum(value: Any) -> Array:
    array = jnp.asarray(value, float)
    if is_concrete(array) and not 0 <= float(array) < 1:
        raise ValueError(f"expected momentum in [0, 1), got {value}; 0.9 is usual")
    return array
