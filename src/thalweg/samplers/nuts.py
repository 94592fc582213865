"""The no-U-turn sampler, written for a whole population.

All chains double their trees together: the number of the step is one number for all of them, so that the bookkeeping of
a tree is scalar, and what a step draws and computes is one block. A chain that has turned back waits for the others;
what it computes meanwhile belongs to a half of a tree that is thrown away in any case.
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
    begin_with_gradient,
    draw_momenta,
    kinetic,
    mass_matrix,
    velocities,
)
from thalweg.samplers.states import GradientState, gradient_state
from thalweg.spaces import on_reals

# while a warm-up travels its trees have no more than 2^6 steps
_SHORT = 6


class NUTS(HasMassMatrix):
    r"""The no-U-turn sampler: HMC whose trajectory doubles until it turns back, with multinomial choice of its end.

    A trajectory of ``2^j`` leapfrog steps goes on, in a random direction of time, until it or one of its halves, or a
    half of these, …, has ends that move towards each other: ``vᵀM⁻¹ρ ≤ 0`` with the momentum v at an end and ρ the sum
    of all momenta between (less half of those at both ends). The next point is one of the trajectory's with probability
    proportional to ``exp(-H)``, the newer half being preferred. Exactly invariant; up to ``2^max_doublings`` gradient
    evaluations per draw, which a population pays for its slowest chain. References: Hoffman and Gelman (2014), JMLR 15;
    Betancourt (2017), arXiv:1701.02434; Phan et al. (2019), arXiv:1912.11554, for trees without recursion.

    Args:
        step_size: ε > 0.
        mass_matrix: a scalar, a diagonal ``(d,)`` or a dense ``(d, d)`` matrix over the flattened point (over its real
            coordinates, where the space has a support).
        max_doublings: the longest trajectory is ``2^max_doublings`` steps.

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
        return begin_with_gradient("NUTS", energy, x)

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
        began = state.energy + kinetic(inverse, momenta)
        target = on_reals(energy, state.coordinates)
        around = _Around(target, self.step_size, inverse, began, key_leaves, self.max_doublings)
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
        tree = lax.while_loop(more, lambda tree: _double(key_trees, around, tree), tree)
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
    """The new half of a tree while it grows; ``kept_*`` are the momenta (and their sums) that later turns refer to."""

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


class _Around(NamedTuple):
    """What stays the same while a tree grows."""

    energy: Any
    step_size: Array
    inverse: Array
    began: Array  # H at the start
    key: PRNGKeyArray
    doublings: int

    def turned(self, first: Array, last: Array, summed: Array) -> Array:
        between = velocities(self.inverse, summed - (first + last) / 2)
        return (jnp.sum(first * between, axis=1) <= 0) | (jnp.sum(last * between, axis=1) <= 0)


def _double(key: PRNGKeyArray, around: _Around, tree: _Tree) -> _Tree:
    """The tree and as many steps again, on a side that is drawn for every chain."""
    log_side, log_merge = log_uniform(fold_in(key, tree.depth), (2, len(tree.going)))
    forward = log_side < jnp.log(0.5)
    half = _grow(around, tree, forward)
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
        going=whole & ~around.turned(left.momenta, right.momenta, summed),
        divergent=tree.divergent | half.divergent,
        accepted=half.accepted,
        steps=half.steps,
        depth=tree.depth + 1,
    )


def _grow(around: _Around, tree: _Tree, forward: Array) -> _Half:
    """``2^depth`` steps from an end of the tree, fewer where every chain has turned back or diverged."""
    signed = jnp.where(forward, around.step_size, -around.step_size)[:, None]
    length = 1 << tree.depth
    nothing = jnp.zeros((around.doublings, *tree.summed.shape), tree.summed.dtype)
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
    # every leaf of the whole tree has a number of its own, from which its randomness is made
    return lax.while_loop(more, lambda half: _step(around, half, signed, length + half.number), start)


def _step(around: _Around, half: _Half, signed: Array, leaf: Array) -> _Half:
    end, energies = _leapfrog(around, half.end, signed)
    gained = around.began - energies - kinetic(around.inverse, end.momenta)
    gained = jnp.where(jnp.isnan(gained), -jnp.inf, gained)
    log_weight = jnp.logaddexp(half.log_weight, gained)
    take = log_uniform(fold_in(around.key, leaf), gained.shape) < gained - log_weight
    summed = half.summed + end.momenta
    divergent = half.going & (gained < -DIVERGED)
    kept_momenta, kept_sums, turned = _look_back(around, half, end.momenta, summed)
    return _Half(
        end=end,
        chosen=select(take, GradientState(end.x, energies, end.gradient, half.chosen.coordinates), half.chosen),  # pyright: ignore[reportCallIssue]
        log_weight=log_weight,
        summed=summed,
        kept_momenta=kept_momenta,
        kept_sums=kept_sums,
        going=half.going & ~divergent & ~turned,
        divergent=half.divergent | divergent,
        accepted=half.accepted + jnp.where(half.going, jnp.exp(jnp.minimum(gained, 0)), 0),
        steps=half.steps + half.going,
        number=half.number + 1,
    )


def _leapfrog(around: _Around, end: _End, signed: Array) -> tuple[_End, Array]:
    flat = lambda gradient: gradient.reshape(gradient.shape[0], -1)
    momenta = end.momenta - 0.5 * signed * flat(end.gradient)
    x = end.x + (signed * velocities(around.inverse, momenta)).reshape(end.x.shape)
    energies, gradient = over_chains(lambda energy, z: jax.value_and_grad(energy)(z), around.energy, x)
    energies = jnp.where(jnp.isfinite(energies), energies, jnp.inf)
    return _End(x, momenta - 0.5 * signed * flat(gradient), gradient), energies


def _look_back(around: _Around, half: _Half, momenta: Array, summed: Array) -> tuple[Array, Array, Array]:
    """Whether a subtree that ends with this step has turned, and what later steps must look back at.

    Of the leaves before, as many are kept as there are ones in the number: the first leaf of every subtree that is not
    yet complete. An even step begins a subtree, an odd one ends as many as it has trailing ones.
    """
    last = lax.population_count(half.number >> 1)
    even = half.number % 2 == 0

    # an odd step writes what it finds: a branch would copy all that is kept
    kept_momenta = half.kept_momenta.at[last].set(jnp.where(even, momenta, half.kept_momenta[last]))
    kept_sums = half.kept_sums.at[last].set(jnp.where(even, summed, half.kept_sums[last]))
    ended = jnp.where(even, 0, lax.population_count((~half.number & (half.number + 1)) - 1))

    def look(number, turned):
        place = last - number
        first, before = kept_momenta[place], kept_sums[place]
        return turned | around.turned(first, momenta, summed - before + first)

    return kept_momenta, kept_sums, lax.fori_loop(0, ended, look, jnp.zeros_like(half.going))
