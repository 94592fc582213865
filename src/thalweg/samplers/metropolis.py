"""Metropolis kernels that need no gradient."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Info, Kernel, State, positive
from thalweg.samplers.lift import require_energy
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
        proposal = state.x + self.scale * jax.random.normal(key_move, state.x.shape, state.x.dtype)
        return metropolis(key_accept, energy, state, proposal, jnp.zeros(state.energy.shape))


def metropolis(
    key: PRNGKeyArray, energy: Any, state: EnergyState, proposal: Array, log_ratio: Array
) -> tuple[EnergyState, Info]:
    """Accept ``proposal`` with probability ``min(1, exp(E(x) - E(x') + log_ratio))``, chain by chain.

    ``log_ratio = log q(x|x') - log q(x'|x)``, ``(chains,)``, is the Hastings correction, zero for symmetric proposals.
    """
    proposed = jax.vmap(energy)(proposal)
    finite = jnp.isfinite(proposed)
    # comparing with a NaN is false, so a non-finite proposal is rejected without touching its value
    log_accept = jnp.where(finite, state.energy - proposed + log_ratio, -jnp.inf)
    accept = jnp.log(jax.random.uniform(key, log_accept.shape)) < log_accept
    spread = accept.reshape(-1, *[1] * (proposal.ndim - 1))
    new = EnergyState(jnp.where(spread, proposal, state.x), jnp.where(accept, proposed, state.energy))
    return new, Info(acceptance=jnp.exp(jnp.minimum(log_accept, 0)), divergent=~finite)
