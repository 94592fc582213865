"""Gibbs with gradients: Metropolis-Hastings on discrete spaces with a proposal informed by gradients."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import (
    HasTransitionMatrix,
    Info,
    PerChain,
    Space,
    compiled,
    count_chains,
    over_chains,
    require_energy,
    select,
    space_of,
)
from thalweg.core.random import log_uniform, split
from thalweg.exact.enumeration import MOST_STATES_SQUARED, require_finite
from thalweg.samplers.states import GradientState, refuse_score
from thalweg.spaces import Binary, Categorical, Product, Spin


class GibbsWithGradients(HasTransitionMatrix):
    r"""Propose to change one site, chosen with probability ``∝ exp(d(x)/2)`` where ``d`` is the first-order estimate of
    the change in ``-E``; accept with the exact Metropolis-Hastings ratio.

    On bits and spins ``d_i = -(x'_i - x_i) ∂E/∂x_i`` for the flipped value x'; on categories the energy is taken as a
    function of one-hot rows ``(n, k)``, and ``d_{ic} = -(∂E/∂x_{ic} - ∂E/∂x_{i,now})``. The energy must accept such
    floating-point points and be differentiable there, as every energy written with ``jnp`` is. Exactly invariant; one
    gradient evaluation per step. Reference: Grathwohl et al. (2021), ICML, "Oops I Took A Gradient".

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Ising(tw.energies.Grid((4, 4), weight=0.3), bias=0.1)
    >>> kernel = tw.samplers.GibbsWithGradients()
    >>> chains = tw.sample(energy, kernel, jnp.ones((8, 16), int), key=jax.random.key(0), draws=9)
    >>> bool(jnp.all(chains.stats["acceptance"] > 0.3))
    True
    """

    takes_per_chain_energies = True

    def init(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> GradientState:
        refuse_score("GibbsWithGradients", energy)
        require_energy("GibbsWithGradients", energy)
        space = _space(energy)
        if isinstance(space, Product):
            raise ValueError(
                "expected Binary, Spin or Categorical for GibbsWithGradients, got a product of spaces; "
                "give each part a kernel of its own: tw.samplers.PerPart"
            )
        if not isinstance(space, (Binary, Spin, Categorical)):
            raise ValueError(
                f"expected a Binary, Spin or Categorical space for GibbsWithGradients, got {space}; "
                "use Langevin or HMC on continuous spaces, and give as_energy(function, space) for a plain function"
            )
        return _state_at(energy, space, x.astype(space.dtype))

    def retarget(self, energy: Any, state: GradientState) -> GradientState:
        return _state_at(energy, _space(energy), state.x)

    def step(self, key: PRNGKeyArray, energy: Any, state: GradientState) -> tuple[GradientState, Info]:
        space, chains = _space(energy), count_chains(state.x)
        key_move, key_accept = split(key)
        log_q = _log_proposals(space, state)
        # Gumbel noise: log q + noise is largest at a move with probability q
        move = jnp.argmax(log_q - jnp.log(-log_uniform(key_move, log_q.shape)), axis=-1)
        new, log_accept = _propose(energy, space, state, log_q, move)
        accept = log_uniform(key_accept, (chains,)) < log_accept
        info = Info(acceptance=jnp.exp(jnp.minimum(log_accept, 0)), divergent=~jnp.isfinite(new.energy))
        return select(accept, new, state), info

    def transition_matrix(self, energy: Any) -> Array:
        space = space_of(energy)
        if not isinstance(space, (Binary, Spin, Categorical)):
            raise ValueError(
                f"expected a Binary, Spin or Categorical space for a transition matrix, got {space}; use one"
            )
        return _matrix(energy, require_finite(space, MOST_STATES_SQUARED, "a transition matrix"))


def _space(energy: Any) -> Any:
    """The space of all chains; an energy that differs between chains may have a space only when bound to one."""
    space = space_of(energy)
    return space_of(energy.first()) if space is None and isinstance(energy, PerChain) else space


def _state_at(energy: Any, space: Space, x: Array) -> GradientState:
    def one(energy, point):
        return jax.value_and_grad(energy)(point)

    points = jax.nn.one_hot(x, space.k) if isinstance(space, Categorical) else x.astype(float)
    return GradientState(x, *over_chains(one, energy, points))


def _propose(energy: Any, space: Space, state: GradientState, log_q: Array, move: Array) -> tuple[GradientState, Array]:
    """The chains after one ``move`` each, and the log acceptance ratios; a non-finite energy is never accepted."""
    x, chains = state.x.reshape(len(move), -1), jnp.arange(len(move))
    undo = move
    if isinstance(space, Categorical):
        site, label = move // space.k, move % space.k
        undo = site * space.k + x[chains, site]
        moved = x.at[chains, site].set(label.astype(x.dtype))
    else:
        moved = x.at[chains, move].set(_flip(space, x)[chains, move])
    new = _state_at(energy, space, moved.reshape(state.x.shape))
    log_ratio = _log_proposals(space, new)[chains, undo] - log_q[chains, move]
    log_accept = state.energy - new.energy + log_ratio
    return new, jnp.where(jnp.isfinite(new.energy), log_accept, -jnp.inf)


def _log_proposals(space: Space, state: GradientState) -> Array:
    """The log-probability of every move of every chain: a site to flip, or ``k·site + label`` to set."""
    if isinstance(space, Categorical):
        now = jnp.take_along_axis(state.gradient, state.x[..., None], axis=-1)
        here = jax.nn.one_hot(state.x, space.k, dtype=bool)
        change = jnp.where(here, -jnp.inf, now - state.gradient)
    else:
        change = (state.x - _flip(space, state.x)) * state.gradient
    return jax.nn.log_softmax(change.reshape(count_chains(state.x), -1) / 2)


def _flip(space: Space, x: Array) -> Array:
    return 1 - x if isinstance(space, Binary) else -x


@compiled
def _matrix(energy: Any, space: Any) -> Array:
    states = space.states(0, space.size)

    def row(x):
        start = _state_at(energy, space, x[None])
        log_q = _log_proposals(space, start)[0]
        moves = jnp.arange(len(log_q))
        here, log_qs = jax.tree.map(lambda leaf: jnp.repeat(leaf, len(moves), axis=0), (start, log_q[None]))
        new, log_accept = _propose(energy, space, here, log_qs, moves)
        # a label is never set to itself: the ratio is NaN there and the probability zero
        chances = jnp.where(log_q == -jnp.inf, 0.0, jnp.exp(log_q + jnp.minimum(log_accept, 0)))
        out = jnp.zeros(space.size).at[jax.vmap(space.index)(new.x)].add(chances)
        return out.at[space.index(x)].add(1 - jnp.sum(chances))

    return jax.lax.map(row, states)
