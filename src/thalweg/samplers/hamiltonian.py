"""Hamiltonian Monte Carlo and MALA for a population of chains.

The energy is evaluated once per trajectory instead of at every leapfrog step, and one key is used for all chains;
together this halves the time for a large population.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import (
    HasMassMatrix,
    Info,
    Tunable,
    is_concrete,
    norm,
    over_chains,
    positive,
    real,
    select,
    whole_number,
)
from thalweg.core.random import log_uniform, materialize, normal, split
from thalweg.samplers.states import GradientState, gradient_state, refuse_score
from thalweg.spaces import coordinates_of, on_reals, to_real

# a trajectory with a larger energy error than this counts as divergent
DIVERGED = 1000.0


def mass_matrix(value: float | Array) -> Array:
    """A scalar, diagonal or dense mass matrix as an array; raises if it is not positive definite."""
    mass = real("mass_matrix", value)
    if mass.ndim > 2 or (mass.ndim == 2 and mass.shape[0] != mass.shape[1]):
        raise ValueError(f"expected a mass matrix: a scalar, (d,) or (d, d), got shape {mass.shape}; give one of these")
    if is_concrete(mass):
        smallest = np.linalg.eigvalsh(mass)[0] if mass.ndim == 2 else np.min(mass)
        if not (smallest > 0 and np.all(np.isfinite(mass)) and (mass.ndim < 2 or np.allclose(mass, mass.T))):
            raise ValueError(
                f"expected a positive-definite mass matrix, got one with smallest eigenvalue {smallest:.3g}; "
                "use the inverse of the target's covariance, or leave it out"
            )
    return mass


def as_inverse(mass: Array, position: Array) -> Array:
    """The inverse mass matrix: a vector or a matrix over the flattened real coordinates of one chain."""
    size = position[0].size
    if mass.ndim and mass.shape[0] != size:
        raise ValueError(
            f"expected a mass matrix for {size} coordinates, got shape {mass.shape}; match the point's size"
        )
    return jnp.linalg.inv(mass) if mass.ndim == 2 else jnp.broadcast_to(1 / mass, (size,))


def init_with_gradient(name: str, energy: Any, x: PyTree) -> GradientState:
    """The initial state of chains at ``x`` for the adjusted kernel ``name``, with energies and gradients."""
    refuse_score(name, energy)
    coordinates = coordinates_of(name, energy, x)
    return gradient_state(energy, to_real(coordinates, x), coordinates)


class HMC(HasMassMatrix):
    r"""Hamiltonian Monte Carlo: momentum ``v ~ N(0, M)``, ``steps`` leapfrog steps of size ε on
    ``H(x, v) = E(x) + ½ vᵀM⁻¹v``, then accept with probability ``min(1, exp(H(x, v) - H(x', v')))``.

    Exactly invariant; on constrained spaces it moves in real coordinates. A trajectory whose energy error exceeds 1000,
    or whose energy is not finite, is rejected and counted as a divergence. One kernel step costs ``steps`` gradient
    evaluations. Reference: Neal (2011), Handbook of MCMC, ch. 5.

    Args:
        step_size: ε > 0.
        steps: the number of leapfrog steps per kernel step.
        mass_matrix: M as a scalar, a diagonal ``(d,)`` or a dense ``(d, d)`` matrix over the flattened point (on
            constrained spaces, over its real coordinates).

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> kernel = tw.samplers.HMC(0.3, steps=8)
    >>> chains = tw.sample(tw.energies.Funnel(2), kernel, jnp.zeros((8, 2)), key=jax.random.key(0), draws=20)
    >>> chains.stats["divergences"].shape
    (8,)
    """

    step_size: Array = eqx.field(converter=lambda value: positive("step_size", value, scalar=True))
    steps: Array = eqx.field(converter=lambda value: _whole("steps", value), default=10)
    mass_matrix: Array = eqx.field(converter=mass_matrix, default=1.0)

    takes_per_chain_energies = True
    target_acceptance = 0.8

    def init(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> GradientState:
        return init_with_gradient("HMC", energy, x)

    def retarget(self, energy: Any, state: GradientState) -> GradientState:
        return gradient_state(energy, state.position, state.coordinates)

    def get_step_size(self) -> Array:
        return self.step_size

    def with_step_size(self, step_size: Array) -> "HMC":
        return eqx.tree_at(lambda kernel: kernel.step_size, self, step_size)

    def with_mass_matrix(self, mass_matrix: Array) -> "HMC":
        return eqx.tree_at(lambda kernel: kernel.mass_matrix, self, mass_matrix)

    def step(self, key: PRNGKeyArray, energy: Any, state: GradientState) -> tuple[GradientState, Info]:
        inverse = as_inverse(self.mass_matrix, state.position)
        return hamiltonian_step(key, energy, state, self.step_size, inverse, self.steps)


def hamiltonian_step(
    key: PRNGKeyArray,
    energy: Any,
    state: GradientState,
    step_size: Array,
    inverse_mass: Array,
    leapfrog_steps: int | Array,
) -> tuple[GradientState, Info]:
    """New momenta, ``leapfrog_steps`` leapfrog steps and an accept step for all chains.

    The random numbers of all chains are drawn in one block: a key per chain would cost more than the leapfrog steps.
    """
    key_momentum, key_accept = split(key)
    momenta = draw_momenta(key_momentum, state.position, inverse_mass, step_size)
    before = kinetic(inverse_mass, momenta)

    def trajectory(energy, state, momentum):
        return leapfrog(energy, state, momentum, step_size, inverse_mass, leapfrog_steps)

    new, after = over_chains(trajectory, on_reals(energy, state.coordinates), state, momenta)
    gained = state.energy + before - new.energy - kinetic(inverse_mass, after)
    log_accept = jnp.where(jnp.isnan(gained), -jnp.inf, gained)
    accept = log_uniform(key_accept, log_accept.shape) < log_accept
    acceptance = jnp.exp(jnp.minimum(log_accept, 0))
    return select(accept, new, state), Info(acceptance, jax.vmap(norm)(state.gradient), log_accept < -DIVERGED)


def draw_momenta(key: PRNGKeyArray, x: Array, inverse_mass: Array, step_size: Array) -> Array:
    """``v ~ N(0, M)`` for every chain, ``(chains, d)``."""
    shape = (x.shape[0], x[0].size)
    noise = materialize(step_size > 0, lambda: normal(key, shape, x.dtype))
    if inverse_mass.ndim == 2:
        return noise @ jnp.linalg.cholesky(jnp.linalg.inv(inverse_mass)).T
    return noise / jnp.sqrt(inverse_mass)


def velocities(inverse_mass: Array, momenta: Array) -> Array:
    """``M⁻¹v`` of every chain."""
    return momenta @ inverse_mass if inverse_mass.ndim == 2 else momenta * inverse_mass


def kinetic(inverse_mass: Array, momenta: Array) -> Array:
    """``½vᵀM⁻¹v`` of every chain."""
    return 0.5 * jnp.sum(momenta * velocities(inverse_mass, momenta), axis=-1)


def leapfrog(
    energy: Any,
    state: GradientState,
    momentum: Array,
    step_size: Array,
    inverse_mass: Array,
    leapfrog_steps: int | Array,
) -> tuple[GradientState, Array]:
    """``v ← v - (ε/2)∇E(x)``, ``x ← x + εM⁻¹v``, ``v ← v - (ε/2)∇E(x)`` for one chain, ``leapfrog_steps`` times; v is
    flat.

    Reversible: from the end, with the momentum negated, it leads back to the start. The second half-step of the
    momentum is merged with the first half-step of the next, and the energy is evaluated once, at the end.
    """

    def drift(x, v):
        return x + step_size * velocities(inverse_mass, v).reshape(x.shape)

    def inner(_, now):
        x = drift(*now)
        return x, now[1] - step_size * jax.grad(energy)(x).reshape(-1)

    kicked = momentum - 0.5 * step_size * state.gradient.reshape(-1)
    x, v = jax.lax.fori_loop(0, leapfrog_steps - 1, inner, (state.position, kicked))
    x = drift(x, v)
    value, gradient = jax.value_and_grad(energy)(x)
    end = GradientState(x, jnp.where(jnp.isfinite(value), value, jnp.inf), gradient, state.coordinates)  # pyright: ignore[reportCallIssue]
    return end, v - 0.5 * step_size * gradient.reshape(-1)


class MALA(Tunable):
    r"""The Metropolis-adjusted Langevin algorithm: propose ``x' = x - (τ/2)∇E(x) + √τ ε``, accept with probability
    ``min(1, exp(E(x) - E(x')) q(x|x') / q(x'|x))``.

    This is HMC with one leapfrog step of size √τ, and it is computed that way. Exactly invariant for any τ; one
    gradient evaluation per step. A proposal with a non-finite energy, or an energy error above 1000, is rejected and
    counted as a divergence. Reference: Roberts and Tweedie (1996), Bernoulli 2(4).

    Args:
        step_size: τ > 0, in the convention above (blackjax's step size is τ/2).

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> kernel = tw.samplers.MALA(0.3)
    >>> chains = tw.sample(tw.energies.Banana(), kernel, jnp.zeros((8, 2)), key=jax.random.key(0), draws=50)
    >>> bool(jnp.all(chains.stats["acceptance"] > 0.2))
    True
    """

    step_size: Array = eqx.field(converter=lambda value: positive("step_size", value, scalar=True))

    takes_per_chain_energies = True
    target_acceptance = 0.574

    def init(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> GradientState:
        return init_with_gradient("MALA", energy, x)

    def retarget(self, energy: Any, state: GradientState) -> GradientState:
        return gradient_state(energy, state.position, state.coordinates)

    def get_step_size(self) -> Array:
        return self.step_size

    def with_step_size(self, step_size: Array) -> "MALA":
        return eqx.tree_at(lambda kernel: kernel.step_size, self, step_size)

    def step(self, key: PRNGKeyArray, energy: Any, state: GradientState) -> tuple[GradientState, Info]:
        unit = jnp.ones(state.position[0].size, state.position.dtype)
        return hamiltonian_step(key, energy, state, jnp.sqrt(self.step_size), unit, 1)


def _whole(name: str, value: Any) -> Array:
    return jnp.asarray(whole_number(name, value, hint="give for example 10") if is_concrete(value) else value)
