"""Metropolis-Hastings kernels that need no gradient: random walk, independence, and any proposal of the user's."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import HasLogZ, HasSampler, Info, Kernel, State, positive
from thalweg.samplers.lift import chosen, require_energy
from thalweg.samplers.noise import log_uniform, normal
from thalweg.spaces import require_gradient


class EnergyState(State):
    """Where the chains stand, and the energy there."""

    x: Array
    energy: Array


class RandomWalk(Kernel):
    r"""Random-walk Metropolis: propose ``x' = x + scale·ε``, accept with probability ``min(1, exp(E(x) - E(x')))``.

    Exactly invariant; one energy evaluation per step, no gradients. The noise of all chains is drawn in one block.
    A proposal with a non-finite energy is rejected and counted as a divergence.
    Reference: Metropolis et al. (1953), J. Chem. Phys. 21.

    Args:
        scale: the proposal's standard deviation, a scalar or one per coordinate (broadcast to the point's shape).

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> chains = tw.sample(tw.energies.two_bumps(), tw.samplers.RandomWalk(2.0), jnp.zeros((4, 1)),
    ...                    key=jax.random.key(0), draws=100)
    >>> chains.draws.shape
    (4, 100, 1)
    """

    scale: Array = eqx.field(converter=lambda value: positive("scale", value))

    def init(self, energy: Any, x: Array) -> EnergyState:
        require_gradient("RandomWalk", require_energy("RandomWalk", energy).space, x)
        return EnergyState(x, jax.vmap(energy)(x))

    def step(self, key: PRNGKeyArray, energy: Any, state: EnergyState) -> tuple[EnergyState, Info]:
        key_move, key_accept = jax.random.split(key)
        proposal = state.x + self.scale * normal(key_move, state.x.shape, state.x.dtype)
        return metropolis(key_accept, energy, state, proposal, jnp.zeros(state.energy.shape))


class Proposal(eqx.Module):
    """How to propose one point from another, and the correction for doing so unevenly."""

    @abc.abstractmethod
    def propose(self, key: PRNGKeyArray, x: Array) -> Array:
        """A point proposed from the point ``x``, of its shape and type."""

    @abc.abstractmethod
    def log_ratio(self, x: Array, proposed: Array) -> Array:
        """``log q(x | x') - log q(x' | x)``, a scalar; zero for a symmetric proposal."""


class MetropolisHastings(Kernel):
    r"""Metropolis-Hastings with any proposal: accept ``x' ~ q(·|x)`` with probability
    ``min(1, exp(E(x) - E(x')) q(x|x') / q(x'|x))``.

    Exactly invariant, on any space the proposal keeps to. Reference: Hastings (1970), Biometrika 57.

    Args:
        proposal: an object with ``propose(key, x)`` and ``log_ratio(x, proposed)``, both of one point: see `Proposal`.

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

    def init(self, energy: Any, x: Array) -> EnergyState:
        return EnergyState(x, jax.vmap(require_energy("MetropolisHastings", energy))(x))

    def step(self, key: PRNGKeyArray, energy: Any, state: EnergyState) -> tuple[EnergyState, Info]:
        key_move, key_accept = jax.random.split(key)
        proposed = jax.vmap(self.proposal.propose)(jax.random.split(key_move, state.x.shape[0]), state.x)
        _require_like(state.x, proposed)
        return metropolis(key_accept, energy, state, proposed, jax.vmap(self.proposal.log_ratio)(state.x, proposed))


class Independence(Kernel):
    r"""Metropolis-Hastings that proposes from a fixed density q, whatever the state: accept with probability
    ``min(1, [p(x') q(x)] / [p(x) q(x')])``.

    Good where q covers p; a chain that sits where ``p/q`` is large stays there long. Reference: Tierney (1994).

    Args:
        density: anything with ``sample(key, shape)`` and ``log_prob(x)``: an analytic energy, a flow.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> wide = tw.energies.Gaussian(jnp.zeros(1), 36.0)
    >>> chains = tw.sample(tw.energies.two_bumps(), tw.samplers.Independence(wide), jnp.zeros((4, 1)),
    ...                    key=jax.random.key(0), draws=200)
    >>> bool(jnp.all(chains.stats["acceptance"] > 0.3))
    True
    """

    density: Any

    def __check_init__(self):
        known = isinstance(self.density, HasLogZ) and isinstance(self.density, HasSampler)
        if not known and not all(callable(getattr(self.density, name, None)) for name in ("sample", "log_prob")):
            raise ValueError(
                f"expected a density with sample(key, shape) and log_prob(x), got {type(self.density).__name__}; "
                "give a normalised density such as tw.energies.Gaussian"
            )

    def init(self, energy: Any, x: Array) -> EnergyState:
        return EnergyState(x, jax.vmap(require_energy("Independence", energy))(x))

    def step(self, key: PRNGKeyArray, energy: Any, state: EnergyState) -> tuple[EnergyState, Info]:
        key_move, key_accept = jax.random.split(key)
        proposed = self.density.sample(key_move, state.x.shape[:1])
        _require_like(state.x, proposed)
        log_prob = jax.vmap(self.density.log_prob)
        return metropolis(key_accept, energy, state, proposed, log_prob(state.x) - log_prob(proposed))


def _require_like(x: Array, proposed: Array) -> None:
    if proposed.shape != x.shape or proposed.dtype != x.dtype:
        raise ValueError(
            f"expected a proposal of the point's shape {x.shape[1:]} and type {x.dtype}, got {proposed.shape[1:]} and "
            f"{proposed.dtype}; return an array like x"
        )


def metropolis(
    key: PRNGKeyArray, energy: Any, state: EnergyState, proposal: Array, log_ratio: Array
) -> tuple[EnergyState, Info]:
    """Accept ``proposal`` with probability ``min(1, exp(E(x) - E(x') + log_ratio))``, chain by chain.

    ``log_ratio = log q(x|x') - log q(x'|x)``, ``(chains,)``, is the Hastings correction, zero for symmetric proposals.
    """
    if log_ratio.shape != state.energy.shape:
        raise ValueError(
            f"expected log_ratio to be a scalar for one point, got shape {log_ratio.shape[1:]}; sum over the point"
        )
    proposed = jax.vmap(energy)(proposal)
    finite = jnp.isfinite(proposed)
    # comparing with a NaN is false, so a non-finite proposal is rejected without touching its value
    log_accept = jnp.where(finite, state.energy - proposed + log_ratio, -jnp.inf)
    accept = log_uniform(key, log_accept.shape) < log_accept
    new = chosen(accept, EnergyState(proposal, proposed), state)
    return new, Info(acceptance=jnp.exp(jnp.minimum(log_accept, 0)), divergent=~finite)
