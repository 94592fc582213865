"""Gradient-informed sampling of discrete energies."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import HasTransitionMatrix, Info
from thalweg.samplers.lift import GradientState, LiftedKernel, require_energy
from thalweg.spaces import Binary, Categorical, Space, Spin


class GibbsWithGradients(LiftedKernel, HasTransitionMatrix):
    r"""Propose to change one site, chosen with probability ``∝ exp(d(x)/2)`` where ``d`` is the first-order estimate of
    the change in ``-E``; accept with the exact Metropolis-Hastings ratio.

    On bits and spins ``d_i = -(x'_i - x_i) ∂E/∂x_i`` for the flipped value x'; on categories the energy is taken as a
    function of one-hot rows ``(n, k)``, and ``d_{ic} = -(∂E/∂x_{ic} - ∂E/∂x_{i,now})``. The energy must be
    differentiable when given such floating-point points, as every energy written with ``jnp`` is. Exactly invariant;
    one gradient evaluation per step. Reference: Grathwohl et al. (2021), ICML, Oops I Took A Gradient.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Ising(tw.energies.Grid((4, 4), weight=0.3), bias=0.1)
    >>> kernel = tw.samplers.GibbsWithGradients()
    >>> chains = tw.sample(energy, kernel, jnp.ones((8, 16), int), key=jax.random.key(0), draws=9)
    >>> bool(jnp.all(chains.stats["acceptance"] > 0.3))
    True
    """

    def init_one(self, energy: Any, x: Array) -> GradientState:
        model = require_energy("GibbsWithGradients", energy)
        if not isinstance(model.space, (Binary, Spin, Categorical)):
            raise ValueError(
                f"expected a Binary, Spin or Categorical space for GibbsWithGradients, got {model.space}; "
                "use Langevin or HMC on continuous spaces, and give as_energy(function, space) for a plain function"
            )
        return _at(model, model.space, x)

    def step_one(self, key: PRNGKeyArray, energy: Any, state: GradientState) -> tuple[GradientState, Info]:
        key_move, key_accept = jax.random.split(key)
        move = jax.random.categorical(key_move, _log_proposal(energy.space, state))
        new, log_accept = self._propose(energy, state, move)
        accept = jnp.log(jax.random.uniform(key_accept)) < log_accept
        kept = jax.tree.map(lambda a, b: jnp.where(accept, a, b), new, state)
        info = Info(acceptance=jnp.exp(jnp.minimum(log_accept, 0)), divergent=~jnp.isfinite(new.energy))
        return kept, info

    def _propose(self, energy: Any, state: GradientState, move: Array) -> tuple[GradientState, Array]:
        """The state after ``move``, and the log of the accept ratio; a non-finite energy is never accepted."""
        space = energy.space
        new = _at(energy, space, _apply(space, state.x, move))
        undo = move
        if isinstance(space, Categorical):
            site = move // space.k
            undo = site * space.k + state.x.reshape(-1)[site]
        log_ratio = _log_proposal(space, new)[undo] - _log_proposal(space, state)[move]
        log_accept = state.energy - new.energy + log_ratio
        return new, jnp.where(jnp.isfinite(new.energy), log_accept, -jnp.inf)

    def transition_matrix(self, energy: Any) -> Array:
        return _matrix(self, energy)


def _at(energy: Any, space: Space, x: Array) -> GradientState:
    point = jax.nn.one_hot(x, space.k) if isinstance(space, Categorical) else x.astype(float)
    value, gradient = jax.value_and_grad(energy)(point)
    return GradientState(x, value, gradient)


def _log_proposal(space: Space, state: GradientState) -> Array:
    """The log-probability of every move: a site to flip, or ``k·site + label`` to set."""
    if isinstance(space, Categorical):
        now = jnp.take_along_axis(state.gradient, state.x[..., None], axis=-1)
        here = jax.nn.one_hot(state.x, space.k, dtype=bool)
        change = jnp.where(here, -jnp.inf, now - state.gradient)
    else:
        change = (state.x - _flipped(space, state.x)) * state.gradient
    return jax.nn.log_softmax(change.reshape(-1) / 2)


def _apply(space: Space, x: Array, move: Array) -> Array:
    flat = x.reshape(-1)
    if isinstance(space, Categorical):
        flat = flat.at[move // space.k].set((move % space.k).astype(x.dtype))
    else:
        flat = flat.at[move].set(_flipped(space, flat)[move])
    return flat.reshape(x.shape)


def _flipped(space: Space, x: Array) -> Array:
    return 1 - x if isinstance(space, Binary) else -x


@eqx.filter_jit
def _matrix(kernel: GibbsWithGradients, energy: Any) -> Array:
    space = energy.space
    states = space.states(0, space.size)

    def row(x):
        state = _at(energy, space, x)
        log_q = _log_proposal(space, state)

        def one(move):
            new, log_accept = kernel._propose(energy, state, move)
            # setting a label to itself is never proposed; its ratio is not a number, its probability zero
            chance = jnp.where(log_q[move] == -jnp.inf, 0.0, jnp.exp(log_q[move] + jnp.minimum(log_accept, 0)))
            return space.index(new.x), chance

        targets, chances = jax.vmap(one)(jnp.arange(len(log_q)))
        out = jnp.zeros(space.size).at[targets].add(chances)
        return out.at[space.index(x)].add(1 - jnp.sum(chances))

    return jax.lax.map(row, states)
