"""Metropolis-Hastings kernels without gradients: random walk, independence sampler, and user-defined proposals."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import (
    Info,
    Kernel,
    Module,
    Tunable,
    check_instance,
    count_chains,
    energies,
    positive,
    select,
    space_of,
)
from thalweg.core.random import log_uniform, normal
from thalweg.samplers.states import EnergyState, energy_state, refuse_score
from thalweg.spaces import Real, coordinates_of, on_reals, to_real


class RandomWalk(Tunable):
    r"""Random-walk Metropolis: propose ``x' = x + scale·ε``, accept with probability ``min(1, exp(E(x) - E(x')))``.

    Exactly invariant; one energy evaluation per step, no gradients. On constrained spaces it moves in real coordinates.
    A proposal with a non-finite energy is rejected and counted as a divergence.
    Reference: Metropolis et al. (1953), J. Chem. Phys. 21.

    Args:
        scale: the proposal's standard deviation, a scalar or one per coordinate (broadcast to the point's shape, or on
            constrained spaces to its real coordinates ``(d,)``).

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> chains = tw.sample(tw.energies.two_bumps(), tw.samplers.RandomWalk(2.0), jnp.zeros((4, 1)),
    ...                    key=jax.random.key(0), draws=100)
    >>> chains.draws.shape
    (4, 100, 1)
    """

    scale: Array = eqx.field(converter=lambda value: positive("scale", value))

    takes_per_chain_energies = True
    target_acceptance = 0.234

    def init(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> EnergyState:
        refuse_score("RandomWalk", energy)
        coordinates = coordinates_of("RandomWalk", energy, x)
        return energy_state(energy, to_real(coordinates, x), coordinates)

    def retarget(self, energy: Any, state: EnergyState) -> EnergyState:
        return energy_state(energy, state.position, state.coordinates)

    def get_step_size(self) -> Array:
        return self.scale

    def with_step_size(self, step_size: Array) -> "RandomWalk":
        return eqx.tree_at(lambda kernel: kernel.scale, self, step_size)

    def step(self, key: PRNGKeyArray, energy: Any, state: EnergyState) -> tuple[EnergyState, Info]:
        key_move, key_accept = jax.random.split(key)
        x = state.position
        if _broadcast(self.scale.shape, x.shape) != x.shape:
            raise ValueError(
                f"expected a scale that fits points of shape {x.shape[1:]}, got {self.scale.shape}; give one number, "
                "or one for each coordinate"
            )
        proposal = x + self.scale * normal(key_move, x.shape, x.dtype)
        return metropolis(key_accept, energy, state, proposal, jnp.zeros(state.energy.shape))


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The common shape, None where there is none."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


class Proposal(Module):
    """A proposal distribution ``q(x' | x)`` and its Hastings correction.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> class Reflect(tw.samplers.Proposal):  # x' = -x, both ways alike
    ...     def propose(self, key, x):
    ...         return -x
    ...     def log_ratio(self, x, proposed):
    ...         return jnp.zeros(())
    >>> kernel, energy = tw.samplers.MetropolisHastings(Reflect()), lambda x: jnp.sum(x**2)
    >>> tw.sample(energy, kernel, jnp.ones((1, 1)), key=jax.random.key(0), draws=3).draws.ravel().tolist()
    [-1.0, 1.0, -1.0]
    """

    @abc.abstractmethod
    def propose(self, key: PRNGKeyArray, x: Array) -> Array:
        """A proposal from the point ``x``, of the same shape and dtype."""

    @abc.abstractmethod
    def log_ratio(self, x: Array, proposed: Array) -> Array:
        """``log q(x | x') - log q(x' | x)``, a scalar; zero for a symmetric proposal."""


class MetropolisHastings(Kernel):
    r"""Metropolis-Hastings with any proposal: accept ``x' ~ q(·|x)`` with probability
    ``min(1, exp(E(x) - E(x')) q(x|x') / q(x'|x))``.

    Exactly invariant on any space: proposals outside it are rejected.
    Reference: Hastings (1970), Biometrika 57.

    Args:
        proposal: an object with ``propose(key, x)`` and ``log_ratio(x, proposed)`` for one point: see `Proposal`.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> class Scale(tw.samplers.Proposal):  # multiply by a log-normal factor: q(x|x')/q(x'|x) = x'/x
    ...     def propose(self, key, x):
    ...         return x * jnp.exp(0.5 * jax.random.normal(key, x.shape))
    ...     def log_ratio(self, x, proposed):
    ...         return jnp.sum(jnp.log(proposed) - jnp.log(x))
    >>> exponential = tw.as_energy(lambda x: jnp.sum(x), tw.Positive(1))
    >>> kernel = tw.samplers.MetropolisHastings(Scale())
    >>> exact = lambda key, shape: jax.random.exponential(key, (*shape, 1))
    >>> tw.check_sampler(kernel, exponential, key=jax.random.key(0), exact=exact).passed
    True
    """

    proposal: Proposal

    takes_per_chain_energies = True

    def __check_init__(self):
        check_instance("a proposal", self.proposal, ("propose", "log_ratio"), "a subclass of tw.samplers.Proposal")

    def init(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> EnergyState:
        refuse_score("MetropolisHastings", energy)
        return energy_state(energy, x, None)

    def retarget(self, energy: Any, state: EnergyState) -> EnergyState:
        return energy_state(energy, state.position, None)

    def step(self, key: PRNGKeyArray, energy: Any, state: EnergyState) -> tuple[EnergyState, Info]:
        key_move, key_accept = jax.random.split(key)
        keys = jax.random.split(key_move, count_chains(state.position))
        proposed = jax.vmap(self.proposal.propose)(keys, state.position)
        _require_like(state.position, proposed)
        log_ratio = jax.vmap(self.proposal.log_ratio)(state.position, proposed)
        return metropolis(key_accept, energy, state, proposed, log_ratio)


class Independence(Kernel):
    r"""The independence sampler: Metropolis-Hastings with proposals from a fixed density q, accepted with probability
    ``min(1, [p(x') q(x)] / [p(x) q(x')])``.

    Works well if q covers p; where ``p/q`` is large the chain gets stuck. Reference: Tierney (1994), Ann. Stat. 22.

    Args:
        density: any object with ``sample(key, shape)`` and ``log_prob(x)``: an analytic energy, a flow.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> wide = tw.energies.Gaussian(jnp.zeros(1), 36.0)
    >>> chains = tw.sample(tw.energies.two_bumps(), tw.samplers.Independence(wide), jnp.zeros((4, 1)),
    ...                    key=jax.random.key(0), draws=200)
    >>> bool(jnp.all(chains.stats["acceptance"] > 0.3))
    True
    """

    density: Any

    takes_per_chain_energies = True

    def __check_init__(self):
        check_instance("a density", self.density, ("sample", "log_prob"), "tw.energies.Gaussian([0.0], [1.0])")

    def init(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> EnergyState:
        refuse_score("Independence", energy)
        return energy_state(energy, x, None)

    def retarget(self, energy: Any, state: EnergyState) -> EnergyState:
        return energy_state(energy, state.position, None)

    def step(self, key: PRNGKeyArray, energy: Any, state: EnergyState) -> tuple[EnergyState, Info]:
        key_move, key_accept = jax.random.split(key)
        proposed = self.density.sample(key_move, (count_chains(state.position),))
        _require_like(state.position, proposed)
        log_prob = jax.vmap(self.density.log_prob)
        return metropolis(key_accept, energy, state, proposed, log_prob(state.position) - log_prob(proposed))


def _require_like(x: PyTree, proposed: PyTree) -> None:
    like = lambda points: jax.tree.map(lambda leaf: (leaf.shape[1:], leaf.dtype.name), points)
    if jax.tree.structure(x) != jax.tree.structure(proposed) or like(x) != like(proposed):
        raise ValueError(
            f"expected a proposal of the point's shape and type {like(x)}, got {like(proposed)}; return a point like x"
        )


def metropolis(
    key: PRNGKeyArray, energy: Any, state: EnergyState, proposal: PyTree, log_ratio: Array
) -> tuple[EnergyState, Info]:
    """Accept ``proposal`` with probability ``min(1, exp(E(x) - E(x') + log_ratio))``, for every chain.

    ``log_ratio = log q(x|x') - log q(x'|x)``, ``(chains,)``, is the Hastings correction, zero for symmetric proposals.
    """
    if log_ratio.shape != state.energy.shape:
        raise ValueError(
            f"expected log_ratio to be a scalar for one point, got shape {log_ratio.shape[1:]}; sum over the point"
        )
    proposed = energies(on_reals(energy, state.coordinates), proposal)
    space = space_of(energy)
    finite = jnp.isfinite(proposed)
    inside = jnp.ones_like(finite)
    if state.coordinates is None and space is not None and not isinstance(space, Real):
        inside = jax.vmap(space.contains)(proposal)
    # comparisons with NaN are false, so a non-finite proposal is rejected
    log_accept = jnp.where(finite & inside, state.energy - proposed + log_ratio, -jnp.inf)
    accept = log_uniform(key, log_accept.shape) < log_accept
    new = select(accept, EnergyState(proposal, proposed, state.coordinates), state)  # pyright: ignore[reportCallIssue]
    return new, Info(acceptance=jnp.exp(jnp.minimum(log_accept, 0)), divergent=inside & ~finite)
