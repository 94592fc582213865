"""Nested sampling of log Z by blackjax: a second method, where annealing meets a first-order transition.

The live points are ordered by ``L(y) = p̃(y)/p₀(y)`` over a base p₀. While the volume of the region ``L > ℓ`` shrinks,
the share of a narrow spike in it grows, whereas at every temperature it may stay too small to be met.
"""

from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from thalweg.core.random import split

_LIVE, _DELETED = 400, 40
_MOST_STEPS = 2000
_SIMULATIONS = 64
# the run ends when the live points hold less than exp(-6) of the mass found, and the volume has shrunk so far that a
# spike with one twentieth of the base's width in every dimension would have been met
_LEFT = -6.0


class Nested(NamedTuple):
    """``log Z`` for each of many simulated sequences of shrinking volumes, and whether the run came to its end."""

    log_z: Float[Array, " simulations"]
    complete: Array


def nested_log_z(energy: Any, base: Any, key: PRNGKeyArray) -> Nested:
    """``log ∫ exp(-E)`` by nested slice sampling over the base.

    The error of the shrinking volumes is found by simulating them; reference: Skilling (2006), Bayesian Analysis 1(4),
    and Yallup et al. (2025) for the sampler of blackjax.
    """
    size = base.means.shape[-1]

    def log_likelihood(y):
        value = -jnp.asarray(energy(y), float) - base.log_prob(y)
        return jnp.where(jnp.isfinite(value), value, -1e30)

    sampler = blackjax.nss(
        logprior_fn=base.log_prob,
        loglikelihood_fn=log_likelihood,
        num_delete=_DELETED,
        num_inner_steps=max(5, 2 * size),
    )
    key_start, key_loop, key_weights = split(key, 3)
    state = sampler.init(base.sample(key_start, (_LIVE,)))  # pyright: ignore[reportCallIssue]
    last_rows = _LIVE // _DELETED
    dead = jnp.full((_MOST_STEPS + last_rows, _DELETED), -jnp.inf)

    def going(now):
        number, state, _ = now
        integrator = state.integrator
        unfinished = (integrator.logZ_live - integrator.logZ > _LEFT) | (integrator.logX > -10 - 1.5 * size)
        return (number < _MOST_STEPS) & unfinished

    def shrink(now):
        number, state, dead = now
        state, info = sampler.step(jax.random.fold_in(key_loop, number), state)
        return number + 1, state, dead.at[number].set(jnp.sort(info.particles.loglikelihood))  # pyright: ignore[reportAttributeAccessIssue]

    number, state, dead = jax.lax.while_loop(going, shrink, (0, state, dead))
    # the points still alive close the sequence
    alive = jnp.sort(state.particles.loglikelihood).reshape(last_rows, _DELETED)
    rows = jnp.arange(len(dead))
    dead = dead.at[number + jnp.arange(last_rows)].set(alive)
    live = _LIVE - _DELETED * jnp.maximum(rows - number, 0)[:, None] - jnp.arange(_DELETED)
    return Nested(_simulate(key_weights, dead.reshape(-1), jnp.maximum(live.reshape(-1), 1)), number < _MOST_STEPS)  # pyright: ignore[reportArgumentType]


def _simulate(key: PRNGKeyArray, log_likelihood: Array, live: Array) -> Array:
    """``log Σ L_i (X_{i-1} - X_i)`` for simulated volumes: ``X_i/X_{i-1}`` is the largest of ``live_i`` uniforms."""

    def one(key):
        steps = jnp.log(jax.random.uniform(key, live.shape, minval=1e-30)) / live
        after = jnp.cumsum(steps)
        shells = after - steps + jnp.log(-jnp.expm1(steps))
        return jax.nn.logsumexp(shells + log_likelihood)

    return jax.lax.map(one, split(key, _SIMULATIONS))
