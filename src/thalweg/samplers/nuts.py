"""The no-U-turn sampler for a population of chains.

All chains double their trees in lockstep: the step number is the same for all chains, so the bookkeeping of a tree is
scalar, and the random numbers and gradients of a step are computed in one block. A chain that has made a U-turn waits
for the others; what it computes meanwhile belongs to a subtree that is discarded anyway.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import HasMassMatrix, Info, norm, over_chains, positive, select, whole_number
from thalweg.core.random import fold_in, log_uniform, split
from thalweg.samplers.hamiltonian import (
    DIVERGED,
    as_inverse,
    draw_momenta,
    init_with_gradient,
    kinetic,
    mass_matrix,
    velocities,
)
from thalweg.samplers.states import GradientState, gradient_state
from thalweg.spaces import on_reals

# in the first part of a warm-up trees have at most 2^6 leapfrog steps
_SHORT = 6


class NUTS(HasMassMatrix):
    r"""The no-U-turn sampler: HMC whose trajectory doubles until it makes a U-turn, with multinomial choice of its end.

    A trajectory of ``2^j`` leapfrog steps is doubled, in a random direction of time, until it or one of its subtrees
    has ends that move towards each other: ``vᵀM⁻¹ρ ≤ 0`` with the momentum v at an end and ρ the sum of all momenta
    between (minus half of those at both ends). The next point is one of the trajectory with probability proportional to
    ``exp(-H)``, with a bias towards the newer half. Exactly invariant; up to ``2^max_doublings`` gradient evaluations
    per kernel step, and all chains wait for the one with the longest trajectory. References: Hoffman and Gelman (2014),
    JMLR 15; Betancourt (2017), arXiv:1701.02434; Phan et al. (2019), arXiv:1912.11554, for trees without recursion.

    Args:
        step_size: ε > 0.
        mass_matrix: a scalar, a diagonal ``(d,)`` or a dense ``(d, d)`` matrix over the flattened point (on constrained
            spaces, over its real coordinates).
        max_doublings: the longest trajectory has ``2^max_doublings`` leapfrog steps.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> kernel = tw.samplers.NUTS(0.4)
    >>> energy = tw.energies.Gaussian(jnp.zeros(2), jnp.eye(2))
    >>> tw.sample(energy, kernel, jnp.zeros((2, 2)), key=jax.random.key(0), draws=10).draws.shape
    (2, 10, 2)
    """

    step_size: Array = eqx.field(converter=lambda value: positive("step_size", value, scalar=True))
    mass_matrix: Array = eqx.field(converter=mass_matrix, default=1.0)
    max_doublings: int = eqx.field(
        static=True,
        converter=lambda value: whole_number("max_doublings", value, hint="10 allows 1024 steps a draw"),
        default=10,
    )

    takes_per_chain_energies = True
    target_acceptance = 0.8

    def init(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> GradientState:
        return init_with_gradient("NUTS", energy, x)

    def retarget(self, energy: Any, state: GradientState) -> GradientState:
        return gradient_state(energy, state.position, state.coordinates)

    def get_step_size(self) -> Array:
        return self.step_size

    def with_step_size(self, step_size: Array) -> "NUTS":
        return eqx.tree_at(lambda kernel: kernel.step_size, self, step_size)

    def shortened(self) -> "NUTS":
        return NUTS(self.step_size, self.mass_matrix, min(self.max_doublings, _SHORT))

    def with_mass_matrix(self, mass_matrix: Array) -> "NUTS":
        return eqx.tree_at(lambda kernel: kernel.mass_matrix, self, mass_matrix)

    def step(self, key: PRNGKeyArray, energy: Any, state: GradientState) -> tuple[GradientState, Info]:
        inverse = as_inverse(self.mass_matrix, state.position)
        key_momenta, key_leaves, key_trees = split(key, 3)
        momenta = draw_momenta(key_momenta, state.position, inverse, self.step_size)
        initial_energy = state.energy + kinetic(inverse, momenta)
        target = on_reals(energy, state.coordinates)
        context = _Context(target, self.step_size, inverse, initial_energy, key_leaves, self.max_doublings)
        here = _End(state.position, momenta, state.gradient)
        chains = len(momenta)
        tree = _Tree(
            left=here,
            right=here,
            chosen=state,
            log_weight=jnp.zeros(chains, momenta.dtype),
            summed=momenta,
            going=jnp.ones(chains, bool),
            divergent=jnp.zeros(chains, bool),
            accepted=jnp.zeros(chains, momenta.dtype),
            steps=jnp.zeros(chains, int),
            depth=jnp.zeros((), int),
        )
        more = lambda tree: (tree.depth < self.max_doublings) & jnp.any(tree.going)
        tree = lax.while_loop(more, lambda tree: _double(key_trees, context, tree), tree)
        acceptance = tree.accepted / tree.steps
        return tree.chosen, Info(acceptance, jax.vmap(norm)(state.gradient), tree.divergent)


class _End(NamedTuple):
    """One end of every chain's trajectory; momenta are flat, ``(chains, d)``."""

    x: Array
    momenta: Array
    gradient: Array


class _Tree(NamedTuple):
    left: _End
    right: _End
    chosen: GradientState
    log_weight: Array  # log Σ exp(H_start - H) over the trajectory
    summed: Array  # momenta, for the turns
    going: Array
    divergent: Array
    accepted: Array
    steps: Array
    depth: Array


class _Half(NamedTuple):
    """The new half of a tree while it grows; ``kept_*`` are the momenta (and their sums) for later U-turn checks."""

    end: _End
    chosen: GradientState
    log_weight: Array
    summed: Array
    kept_momenta: Array  # (max_doublings, chains, d)
    kept_sums: Array
    going: Array
    divergent: Array
    accepted: Array
    steps: Array
    number: Array


class _Context(NamedTuple):
    """What is constant while a tree grows."""

    energy: Any
    step_size: Array
    inverse: Array
    initial_energy: Array  # H at the start
    key: PRNGKeyArray
    doublings: int

    def has_turned(self, first: Array, last: Array, summed: Array) -> Array:
        between = velocities(self.inverse, summed - (first + last) / 2)
        return (jnp.sum(first * between, axis=1) <= 0) | (jnp.sum(last * between, axis=1) <= 0)


def _double(key: PRNGKeyArray, context: _Context, tree: _Tree) -> _Tree:
    """The tree doubled, on a random side for every chain."""
    log_side, log_merge = log_uniform(fold_in(key, tree.depth), (2, len(tree.going)))
    forward = log_side < jnp.log(0.5)
    half = _grow(context, tree, forward)
    whole = half.going
    take = whole & (log_merge < half.log_weight - tree.log_weight)
    to_right, to_left = whole & forward, whole & ~forward
    summed = tree.summed + half.summed
    left, right = select(to_left, half.end, tree.left), select(to_right, half.end, tree.right)
    return _Tree(
        left=left,
        right=right,
        chosen=select(take, half.chosen, tree.chosen),
        log_weight=jnp.logaddexp(tree.log_weight, half.log_weight),
        summed=summed,
        going=whole & ~context.has_turned(left.momenta, right.momenta, summed),
        divergent=tree.divergent | half.divergent,
        accepted=half.accepted,
        steps=half.steps,
        depth=tree.depth + 1,
    )


def _grow(context: _Context, tree: _Tree, forward: Array) -> _Half:
    """``2^depth`` leapfrog steps from one end of the tree; fewer if every chain has made a U-turn or diverged."""
    signed = jnp.where(forward, context.step_size, -context.step_size)[:, None]
    length = 1 << tree.depth
    nothing = jnp.zeros((context.doublings, *tree.summed.shape), tree.summed.dtype)
    start = _Half(
        end=select(forward, tree.right, tree.left),
        chosen=tree.chosen,
        log_weight=jnp.full_like(tree.log_weight, -jnp.inf),
        summed=jnp.zeros_like(tree.summed),
        kept_momenta=nothing,
        kept_sums=nothing,
        going=tree.going,
        divergent=jnp.zeros_like(tree.going),
        accepted=tree.accepted,
        steps=tree.steps,
        number=jnp.zeros((), int),
    )
    more = lambda half: (half.number < length) & jnp.any(half.going)
    # every leaf of the whole tree has its own number, which is folded into its random key
    return lax.while_loop(more, lambda half: _step(context, half, signed, length + half.number), start)


def _step(context: _Context, half: _Half, signed: Array, leaf: Array) -> _Half:
    end, energies = _leapfrog(context, half.end, signed)
    gained = context.initial_energy - energies - kinetic(context.inverse, end.momenta)
    gained = jnp.where(jnp.isnan(gained), -jnp.inf, gained)
    log_weight = jnp.logaddexp(half.log_weight, gained)
    take = log_uniform(fold_in(context.key, leaf), gained.shape) < gained - log_weight
    summed = half.summed + end.momenta
    divergent = half.going & (gained < -DIVERGED)
    kept_momenta, kept_sums, has_turned = _check_turns(context, half, end.momenta, summed)
    return _Half(
        end=end,
        chosen=select(take, GradientState(end.x, energies, end.gradient, half.chosen.coordinates), half.chosen),  # pyright: ignore[reportCallIssue]
        log_weight=log_weight,
        summed=summed,
        kept_momenta=kept_momenta,
        kept_sums=kept_sums,
        going=half.going & ~divergent & ~has_turned,
        divergent=half.divergent | divergent,
        accepted=half.accepted + jnp.where(half.going, jnp.exp(jnp.minimum(gained, 0)), 0),
        steps=half.steps + half.going,
        number=half.number + 1,
    )


def _leapfrog(context: _Context, end: _End, signed: Array) -> tuple[_End, Array]:
    flat = lambda gradient: gradient.reshape(gradient.shape[0], -1)
    momenta = end.momenta - 0.5 * signed * flat(end.gradient)
    x = end.x + (signed * velocities(context.inverse, momenta)).reshape(end.x.shape)
    energies, gradient = over_chains(lambda energy, z: jax.value_and_grad(energy)(z), context.energy, x)
    energies = jnp.where(jnp.isfinite(energies), energies, jnp.inf)
    return _End(x, momenta - 0.5 * signed * flat(gradient), gradient), energies


def _check_turns(context: _Context, half: _Half, momenta: Array, summed: Array) -> tuple[Array, Array, Array]:
    """Whether a subtree that ends with this step has made a U-turn, and the momenta kept for later checks.

    The first leaf of every incomplete subtree is kept: as many as there are ones in the binary step number. An even
    step starts a subtree; an odd step ends as many subtrees as its number has trailing ones.
    """
    last = lax.population_count(half.number >> 1)
    even = half.number % 2 == 0

    # an odd step writes back the same values: a branch would copy the whole arrays
    kept_momenta = half.kept_momenta.at[last].set(jnp.where(even, momenta, half.kept_momenta[last]))
    kept_sums = half.kept_sums.at[last].set(jnp.where(even, summed, half.kept_sums[last]))
    ended = jnp.where(even, 0, lax.population_count((~half.number & (half.number + 1)) - 1))

    def check(number, has_turned):
        place = last - number
        first, before = kept_momenta[place], kept_sums[place]
        return has_turned | context.has_turned(first, momenta, summed - before + first)

    return kept_momenta, kept_sums, lax.fori_loop(0, ended, check, jnp.zeros_like(half.going))
