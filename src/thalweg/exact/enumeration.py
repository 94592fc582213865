"""Exact sums, samples and transition matrices on finite spaces, by enumerating every state.

States are numbered as `Finite.states` lists them; the last coordinate changes fastest. Matrices act on row vectors of
probabilities: ``T[i, j] = T(state j | state i)``, so ``p @ T`` is one step and ``p @ T = p`` is invariance.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import Space, check_function, check_scalar, compiled, is_concrete, key_and_shape, real
from thalweg.exact import streaming
from thalweg.exact.key_first import accept_key_first
from thalweg.spaces import Finite

MOST_STATES = 2**25
MOST_STATES_LISTED = 2**20
MOST_STATES_SQUARED = 2**12
# blocks of 2^14 states keep a 25-unit machine in cache; a block computes at most 2^22 numbers
_BLOCK = 2**14
_BLOCK_NUMBERS = 2**22


def require_finite(space: Space, most: int = MOST_STATES, purpose: str = "enumeration") -> Finite:
    """``space`` itself; raises if it is not finite or has too many states for the purpose."""
    if not isinstance(space, Finite):
        raise ValueError(
            f"expected a finite space for {purpose}, got {space}; use Binary, Spin or Categorical, "
            "or log_z and expectation, which integrate over Real, Positive and Interval"
        )
    if space.size > most:
        raise ValueError(
            f"expected at most {most} states for {purpose}, got {space.size} on {space}; "
            "use fewer coordinates or a sampler"
        )
    return space


def _blocks(energy: Any, space: Finite, count: int = _BLOCK) -> tuple[streaming.Block, Array]:
    # a multiple of 64 if possible: see the rows in `streaming.average`
    count = min(count, space.size if space.size < 64 else 64 * math.ceil(space.size / 64))

    def block(start):
        states = space.states(start, count)
        log_weights = jax.vmap(lambda x: streaming.log_density(energy, x))(states)
        # the last block may run past the last state, where the numbering starts again at zero
        return states, jnp.where(start + jnp.arange(count) < space.size, log_weights, -jnp.inf)

    return block, jnp.arange(0, space.size, count)


@compiled
def log_z(energy: Any, space: Finite) -> Array:
    """``log Σₓ exp(-E(x))`` over all states."""
    return streaming.log_sum(*_blocks(energy, space))


@compiled
def expectation(energy: Any, f: Callable[[Array], PyTree], space: Finite) -> PyTree:
    """``Σₓ p(x) f(x)`` over all states."""
    count = max(1, min(_BLOCK, _BLOCK_NUMBERS // streaming.output_size(f, space)))
    return streaming.average(*_blocks(energy, space, count), f)


def _prepare(energy: Callable, space: Space | None, most: int, purpose: str) -> tuple[Any, Finite]:
    energy, known = streaming.prepare(energy, space)
    listed = require_finite(known, most, purpose)
    streaming.require_scalar(energy, listed)
    return energy, listed


class _OneHot(eqx.Module):
    space: Finite

    def __call__(self, x: Array) -> Array:
        return x[..., None] == jnp.array(self.space.levels)


def marginals(energy: Callable[[Array], Array], space: Space | None = None) -> Array:
    """``p(x_k = level)`` for each coordinate ``k`` and level: shape ``(*space.shape, levels)``.

    >>> import jax.numpy as jnp, numpy as np, thalweg as tw
    >>> from thalweg import exact
    >>> np.asarray(exact.marginals(lambda x: -jnp.log(3.0) * x[0], space=tw.Binary(2)), float).round(3).tolist()
    [[0.25, 0.75], [0.5, 0.5]]
    """
    energy, listed = _prepare(energy, space, MOST_STATES, "marginals")
    return expectation(energy, _OneHot(listed), listed)


def probabilities(energy: Callable[[Array], Array], space: Space | None = None) -> Array:
    """``p(x)`` of every state, in the order of `Finite.states`: shape ``(space.size,)``, at most 2^20 states.

    >>> import jax.numpy as jnp, numpy as np, thalweg as tw
    >>> from thalweg import exact
    >>> np.asarray(exact.probabilities(lambda x: -jnp.log(3.0) * x[0], space=tw.Binary(1)), float).round(3).tolist()
    [0.25, 0.75]
    """
    energy, listed = _prepare(energy, space, MOST_STATES_LISTED, "a list of all probabilities")
    return jnp.exp(_log_probabilities(energy, listed))


@compiled
def _log_probabilities(energy: Any, space: Finite) -> Array:
    block, starts = _blocks(energy, space)
    log_weights = jax.lax.map(lambda start: block(start)[1], starts).reshape(-1)[: space.size]
    return log_weights - streaming.log_sum(block, starts)


@accept_key_first
def sample(
    energy: Callable[[Array], Array], shape: tuple[int, ...] = (), *, key: Any, space: Space | None = None
) -> Array:
    """Independent exact samples ``(*shape, *space.shape)``, by inverting the distribution function over all states.

    Memory: one number per state. A block of states is drawn first, then a state within it, each with its own uniform
    number, so single precision resolves states down to a share of about 1e-7 of their block.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> from thalweg import exact
    >>> exact.sample(lambda x: -50.0 * x.sum(), (2,), key=jax.random.key(0), space=tw.Spin(3)).tolist()
    [[1, 1, 1], [1, 1, 1]]
    """
    energy, listed = _prepare(energy, space, MOST_STATES, "exact sampling")
    key, shape = key_and_shape(key, shape)
    samples, log_total = _sample(key, energy, shape, listed)
    if is_concrete(log_total) and not np.isfinite(log_total):
        raise ValueError(
            f"expected an energy that is a number on every state and finite on one, got log Z = {log_total}; "
            "look for NaN or for constraints that no state meets"
        )
    return samples


@compiled
def _sample(key: PRNGKeyArray, energy: Any, shape: tuple[int, ...], space: Finite) -> tuple[Array, Array]:
    block, starts = _blocks(energy, space)
    peaks, sums = streaming.log_sums(block, starts)

    def cumulate(entry):
        start, peak = entry
        return jnp.cumsum(jnp.exp(block(start)[1] - peak))

    cumulative = jax.lax.map(cumulate, (starts, peaks))
    count = cumulative.shape[1]
    which_key, within_key = jax.random.split(key)
    log_masses = peaks + jnp.log(sums)
    masses = jnp.cumsum(jnp.exp(log_masses - jnp.max(log_masses)))
    # 1 - u lies in (0, 1], so that a search for the first number >= it ends on a state of positive probability
    which = jnp.searchsorted(masses, (1 - jax.random.uniform(which_key, shape)) * masses[-1])
    level = (1 - jax.random.uniform(within_key, shape)) * cumulative[which, -1]

    def halve(_, ends):
        # invariant: cumulative[below] < level <= cumulative[above]
        below, above = ends
        middle = (below + above) // 2
        reached = cumulative[which, middle] >= level
        open_ = above - below > 1
        return jnp.where(open_ & ~reached, middle, below), jnp.where(open_ & reached, middle, above)

    ends = (jnp.full(shape, -1), jnp.full(shape, count - 1))
    _, within = jax.lax.fori_loop(0, count.bit_length(), halve, ends)
    numbers = (starts[which] + within).reshape(-1)
    samples = jax.vmap(lambda number: space.states(number, 1)[0])(numbers).reshape(*shape, *space.shape)
    return samples, jax.nn.logsumexp(log_masses)


def transition_matrix(log_kernel: Callable[[Array, Array], Array], space: Space) -> Array:
    """The matrix ``T[i, j] = T(state j | state i)`` of a kernel given as ``log_kernel(new, x) = log T(new | x)``.

    Raises if a row does not sum to one.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> from thalweg import exact
    >>> stay = lambda new, x: jnp.log(jnp.where(jnp.all(new == x), 0.75, 0.25))
    >>> exact.transition_matrix(stay, tw.Binary(1)).round(2).tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    """
    check_function("log_kernel(new, x) -> log T(new | x)", log_kernel, "lambda new, x: jnp.log(0.25)")
    listed = require_finite(space, MOST_STATES_SQUARED, "a transition matrix")
    point = jax.ShapeDtypeStruct(listed.shape, listed.dtype)
    value = lambda new: real("the value of log_kernel", log_kernel(new, new))
    check_scalar(value, jax.ShapeDtypeStruct((1, *point.shape), point.dtype))
    matrix = jnp.exp(_log_matrix(log_kernel, listed))
    if is_concrete(matrix):
        sums = np.asarray(matrix).sum(1)
        worst = int(np.argmax(np.abs(sums - 1)))
        if not np.allclose(sums, 1, atol=1e-4):
            raise ValueError(
                f"expected a kernel whose probabilities sum to one from every state, got {sums[worst]:.6g} "
                f"from state {worst}; normalise log_kernel(new, x) over new"
            )
    return matrix


@compiled
def _log_matrix(log_kernel: Callable[[Array, Array], Array], space: Finite) -> Array:
    states = space.states(0, space.size)
    return jax.lax.map(lambda x: jax.vmap(lambda new: log_kernel(new, x))(states), states)


def gibbs_matrix(energy: Callable[[Array], Array], block: Any, space: Space | None = None) -> Array:
    """The kernel that redraws the coordinates in ``block``: ``T(x' | x) = p(x'_block | rest of x)·[x'_rest = x_rest]``.

    Args:
        energy: the energy, whose space (or ``space``) is finite.
        block: boolean, of the point's shape: the coordinates to redraw together.
        space: where x lives, if the energy has no space.

    At a state where every value of the block has zero probability the conditional does not exist; the kernel stays.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> pair = tw.energies.Ising(jnp.array([[0.0, 0.0], [0.0, 0.0]]))
    >>> tw.exact.gibbs_matrix(pair, jnp.array([True, False]))[0].tolist()
    [0.5, 0.0, 0.5, 0.0]
    """
    energy, listed = _prepare(energy, space, MOST_STATES_SQUARED, "a transition matrix")
    block = jnp.asarray(block) if real("block", block).shape == listed.shape else np.asarray(block)
    if block.shape != listed.shape or block.dtype != bool:
        raise ValueError(
            f"expected a boolean block of shape {listed.shape}, got {block.dtype} of shape {block.shape}; "
            "mark the coordinates to redraw with True"
        )
    return _gibbs_matrix(energy, block, listed)


@compiled
def _gibbs_matrix(energy: Any, block: Array, space: Finite) -> Array:
    states = space.states(0, space.size)
    log_p = _log_probabilities(energy, space)
    rest = jax.vmap(lambda x: space.index(jnp.where(block, space.levels[0], x)))(states)
    log_rows = jnp.where(rest[:, None] == rest, log_p, -jnp.inf)
    empty = jnp.all(jnp.isneginf(log_rows), axis=1, keepdims=True)
    return jnp.where(empty, jnp.eye(space.size), jax.nn.softmax(jnp.where(empty, 0.0, log_rows), axis=1))


def metropolis_matrix(
    energy: Callable[[Array], Array], log_proposal: Callable[[Array, Array], Array], space: Space | None = None
) -> Array:
    """Metropolis-Hastings: ``q(x'|x) min(1, p(x')q(x|x') / p(x)q(x'|x))`` off the diagonal, the remainder on it.

    Args:
        energy: the energy, whose space (or ``space``) is finite.
        log_proposal: ``log_proposal(new, x) = log q(new | x)``, normalised over ``new``.
        space: where x lives, if the energy has no space.

    Reference: Hastings (1970), Biometrika 57.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> pair = tw.energies.Ising(jnp.zeros((2, 2)))
    >>> tw.exact.metropolis_matrix(pair, lambda new, x: jnp.log(0.25))[0].tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    energy, listed = _prepare(energy, space, MOST_STATES_SQUARED, "a transition matrix")
    log_q = jnp.log(transition_matrix(log_proposal, listed))
    return _metropolis_matrix(energy, log_q, listed)


@compiled
def _metropolis_matrix(energy: Any, log_q: Array, space: Finite) -> Array:
    log_p = _log_probabilities(energy, space)
    # q(x'|x)·min(1, ratio) = min(q(x'|x), p(x')q(x|x')/p(x)), in which q(x'|x) = 0 needs no division
    backward = log_p - log_p[:, None] + log_q.T
    # from a state of zero probability every proposal is accepted: -inf - -inf is no ratio
    backward = jnp.where(jnp.isneginf(log_p)[:, None], jnp.inf, backward)
    moves = jnp.exp(jnp.minimum(log_q, backward))
    moves = jnp.where(jnp.eye(space.size, dtype=bool), 0.0, moves)
    return moves + jnp.diag(1 - jnp.sum(moves, axis=1))
