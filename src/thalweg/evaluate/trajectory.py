r"""A population of weighted chains that follows a changing energy, and log Z along the way.

From one energy to the next the chains go along ``U_β = (1 - β) E_0 + β E_1`` in steps of β chosen so that the weights
``exp(-Δβ (E_1 - E_0))`` stay even. (A Boltzmann machine goes along its weights, ``θ_β = (1 - β) θ_0 + β θ_1``, so that
its own Gibbs sweeps can be used.) At each step the chains are weighted, resampled where few of them carry the weight,
and moved by a kernel that leaves ``exp(-U_β)`` invariant. The mean weight estimates the ratio of the normalisers. The
first energy is that of a base density whose log Z is 0. The chains form independent groups, which give the error.

References: Del Moral, Doucet and Jasra (2006), JRSS B 68(3); along a training: Béreux, Decelle, Furtlehner, Rosset and
Seoane (2025), ICLR.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from thalweg.core import Energy, Estimate, Kernel, Module, Space, Tunable, compiled, energies
from thalweg.core.random import fold_in, split, uniform
from thalweg.energies import RBM
from thalweg.evaluate.intervals import student_quantile
from thalweg.evaluate.smc import systematic, take
from thalweg.samplers import HMC, Gibbs, GibbsWithGradients
from thalweg.spaces import Coordinates, Finite, Real, coordinates_of, to_real

MOST_RUNGS = 1000
_MOVES = 3
_KEPT = 0.9  # the relative effective sample size that one step in β leaves
_WIDENED = 1.5  # the base is wider than the points it is fitted to by this factor
_LEAST = 0.1  # the least scale of a coordinate of the base, relative to their mean
_EVEN = 0.1  # the share of even frequencies in a base of sites
_INFINITE = 1e20  # an energy above this is read as infinite, since 0·∞ is not a number


class GaussianBase(Energy):
    """``N(mean, scale²)`` of real coordinates, normalised."""

    mean: Array
    scale: Array

    @property
    def space(self) -> Space:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Real(self.mean.shape)

    def __call__(self, x: Array) -> Array:
        return jnp.sum(0.5 * ((x - self.mean) / self.scale) ** 2 + jnp.log(self.scale) + 0.5 * math.log(2 * math.pi))

    def sample(self, key: PRNGKeyArray, count: int) -> Array:
        """Independent points, ``(count, *event)``."""
        return self.mean + self.scale * jax.random.normal(key, (count, *self.mean.shape))


class SitesBase(Energy):
    """Independent sites, normalised: ``log_probs`` is ``(*event, levels)``.

    As `GibbsWithGradients` needs, it also takes real numbers in place of bits and spins, and one-hot rows in place of
    labels.
    """

    log_probs: Array
    space: Finite = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        if x.shape != self.log_probs.shape:
            low, high = self.space.levels[0], self.space.levels[-1]
            two = len(self.space.levels) == 2
            share = (x - low) / (high - low)
            x = jnp.stack([1 - share, share], axis=-1) if two else jax.nn.one_hot(x, len(self.space.levels))
        return -jnp.sum(x * self.log_probs)

    def sample(self, key: PRNGKeyArray, count: int) -> Array:
        """Independent points, ``(count, *event)``."""
        which = jax.random.categorical(key, self.log_probs, shape=(count, *self.log_probs.shape[:-1]))
        return jnp.array(self.space.levels, self.space.dtype)[which]


class Between(Energy):
    """``(1 - β) E_0 + β E_1``."""

    first: Any
    second: Any
    beta: Array
    space: Space = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        ends = [jnp.asarray(energy(x), float) for energy in (self.first, self.second)]
        first, second = (jnp.where(value < _INFINITE, value, _INFINITE) for value in ends)
        return (1 - self.beta) * first + self.beta * second


class LinearPath(Module):
    """``U_β = (1 - β) E_0 + β E_1``."""

    first: Any
    second: Any
    space: Space = eqx.field(static=True)

    def at(self, beta: Array) -> Between:
        """``U_β``."""
        return Between(self.first, self.second, beta, self.space)  # pyright: ignore[reportCallIssue, reportArgumentType]

    def slopes(self, beta: Array, x: PyTree) -> Array:
        """``dU_β/dβ`` at every point."""
        return energies(self.second, x) - energies(self.first, x)

    def rises(self, beta: Array, after: Array, x: PyTree, slopes: Array) -> Array:
        """``U_after - U_β`` at every point."""
        return (after - beta) * slopes


class WeightPath(Module):
    """``U_β = E(x; (1 - β) θ_0 + β θ_1)``: energies of one type, with all abilities of that type."""

    first: Any
    second: Any

    def at(self, beta: Array) -> Any:
        """``U_β``."""
        first, second = (eqx.filter(each, eqx.is_inexact_array) for each in (self.first, self.second))
        between = jax.tree.map(lambda a, b: (1 - beta) * a + beta * b, first, second)
        return eqx.combine(between, self.second)

    def slopes(self, beta: Array, x: PyTree) -> Array:
        """``dU_β/dβ`` at every point."""
        return jax.jvp(lambda beta: energies(self.at(beta), x), (beta,), (jnp.ones_like(beta),))[1]

    def rises(self, beta: Array, after: Array, x: PyTree, slopes: Array) -> Array:
        """``U_after - U_β`` at every point."""
        return energies(self.at(after), x) - energies(self.at(beta), x)


class Population(NamedTuple):
    """Weighted chains in independent groups: the state of the kernel, with the chains of a group side by side, log
    weights, and the log Z of each group up to its last resampling. ``step_size`` is that of a tunable kernel."""

    state: Any
    log_weights: Float[Array, "groups chains"]
    log_z: Float[Array, " groups"]
    step_size: Array

    def group_log_z(self) -> np.ndarray:
        """The estimate of each group, ``(groups,)``; its exponential is unbiased up to the choice of the steps of β and
        of the step size, which are made from the same chains."""
        return np.asarray(self.log_z + _log_mean(self.log_weights), float)


def fit_base(energy: Any, space: Space, points: PyTree) -> tuple[Any, Coordinates | None]:
    """A base density for an energy and points ``(rows, *event)``, and the real coordinates it lives on.

    For a restricted Boltzmann machine it is the machine with its own biases and without weights. On a finite space
    these are independent sites with nine tenths of the points' frequencies and one tenth of even
    ones; on a continuous space independent normal coordinates with their means, and 1.5 times their standard deviations
    (at least a tenth of the mean one).
    """
    if isinstance(energy, RBM) and isinstance(space, (Finite, Real)):
        return eqx.tree_at(lambda machine: machine.weights, energy, jnp.zeros_like(energy.weights)), None
    if isinstance(space, Finite):
        frequencies = jnp.mean(points[..., None] == jnp.array(space.levels), axis=0)
        log_probs = jnp.log((1 - _EVEN) * frequencies + _EVEN / len(space.levels))
        return SitesBase(log_probs, space), None  # pyright: ignore[reportCallIssue, reportArgumentType]
    coordinates = coordinates_of("trajectory log Z", _OfSpace(space), points)
    z = to_real(coordinates, points)
    scale = jnp.std(z, axis=0)
    least = jnp.maximum(_LEAST * jnp.mean(scale), 1e-3)  # a coordinate may be constant in the points
    base = GaussianBase(jnp.mean(z, axis=0), _WIDENED * jnp.maximum(scale, least))  # pyright: ignore[reportCallIssue]
    return base, coordinates


class _OfSpace(NamedTuple):
    space: Space


def default_kernel(base: Any) -> tuple[Kernel, int]:
    """The kernel for chains from a base, and the number of its steps at each step of β.

    `HMC` with the scales of the base; on a finite space `GibbsWithGradients`, as many steps as there are sites; for a
    machine its Gibbs sweeps.
    """
    if isinstance(base, GaussianBase):
        return HMC(0.3, steps=8, mass_matrix=1 / base.scale.reshape(-1) ** 2), _MOVES
    if isinstance(base, RBM):
        return Gibbs(), _MOVES
    return GibbsWithGradients(), math.prod(base.space.shape)


def make_path(base: Any, first: Any, second: Any) -> LinearPath | WeightPath:
    """The path between two energies of chains that began at a base."""
    if isinstance(base, RBM):
        return WeightPath(first, second)  # pyright: ignore[reportCallIssue]
    return LinearPath(first, second, base.space)  # pyright: ignore[reportCallIssue, reportArgumentType]


def begin(kernel: Kernel, base: Any, key: PRNGKeyArray, groups: int, chains: int) -> Population:
    """Groups of ``chains`` chains each at independent points of the base."""
    key_draw, key_init = jax.random.split(key)
    if isinstance(base, RBM):
        key_noise, key_draw = jax.random.split(key_draw)
        # without weights a single sweep forgets where it began
        x, log_z = base.sweep(key_draw, base.space.noise(key_noise, (groups * chains,))), base.log_z_uncoupled()
    else:
        x, log_z = base.sample(key_draw, groups * chains), 0.0
    state = kernel.init(key_init, base, x)
    step_size = kernel.get_step_size() if isinstance(kernel, Tunable) else 1.0
    return Population(state, jnp.zeros((groups, chains)), jnp.full(groups, log_z), jnp.asarray(step_size, float))


def follow(
    kernel: Kernel, path: LinearPath | WeightPath, key: PRNGKeyArray, old: Population, moves: int
) -> tuple[Population, bool]:
    """The population of ``exp(-E_0)`` carried to ``exp(-E_1)``, and whether it got there in `MOST_RUNGS` steps of β.

    Args:
        kernel: makes the moves, and must leave its target invariant; the step size of a tunable one follows its
            acceptance.
        path: from E_0 to E_1, both of the chains' real coordinates or, on a finite space, of their points.
        key: random key.
        old: the population.
        moves: the number of kernel steps at each step of β.
    """
    new, reached = _follow(kernel, path, key, old, moves)
    return new, bool(reached)


@compiled
def _follow(kernel: Any, path: Any, key: PRNGKeyArray, old: Population, moves: int) -> tuple[Population, Array]:
    groups, size = old.log_weights.shape
    offsets = jnp.arange(groups)[:, None] * size

    def climb(now):
        rung, beta, population = now
        key_rung = fold_in(key, rung)
        key_resample, key_move = split(key_rung)
        x = population.state.x
        slopes = _with_infinity(path.slopes(beta, x))
        step = _largest_step(population.log_weights.reshape(-1), slopes, 1 - beta)
        after = jnp.where(step >= 1 - beta, 1.0, beta + step)
        rises = _with_infinity(path.rises(beta, after, x, slopes))
        log_weights = population.log_weights - rises.reshape(groups, size)
        poor = _relative_ess(log_weights) < 0.5
        ancestors = jax.vmap(systematic)(split(key_resample, groups), log_weights)
        ancestors = (jnp.where(poor[:, None], ancestors, jnp.arange(size)) + offsets).reshape(-1)
        log_z = population.log_z + jnp.where(poor, _log_mean(log_weights), 0.0)
        log_weights = jnp.where(poor[:, None], 0.0, log_weights)
        energy = path.at(after)
        state = kernel.retarget(energy, take(population.state, ancestors))
        state, step_size = _move(kernel, energy, key_move, state, population.step_size, moves)
        return rung + 1, after, Population(state, log_weights, log_z, step_size)

    def climbing(now):
        return (now[0] < MOST_RUNGS) & (now[1] < 1)

    _, beta, new = jax.lax.while_loop(climbing, climb, (jnp.zeros((), int), jnp.zeros(()), old))
    return new, beta >= 1


def _move(kernel: Any, energy: Any, key: PRNGKeyArray, state: Any, step_size: Array, moves: int) -> tuple[Any, Array]:
    """The chains after some kernel steps, and the step size, which follows the acceptance.

    Each step has a size drawn between 0.8 and 1.2 times it, so that trajectories do not come back to where they began.
    """

    def one(number, now):
        state, step_size = now
        key_size, key_step = split(fold_in(key, number))
        if not isinstance(kernel, Tunable):
            return kernel.step(key_step, energy, state)[0], step_size
        tuned = kernel.with_step_size(step_size * (0.8 + 0.4 * uniform(key_size, ())))
        state, info = tuned.step(key_step, energy, state)
        target = kernel.target_acceptance
        accepted = target if info.acceptance is None else jnp.mean(info.acceptance)
        return state, step_size * jnp.exp(0.5 * (accepted - target))

    return jax.lax.fori_loop(0, moves, one, (state, step_size))


def _with_infinity(rises: Array) -> Array:
    """Infinity where an energy is as good as infinite or not a number."""
    return jnp.where(rises < _INFINITE, rises, jnp.inf)


def _largest_step(log_weights: Array, slopes: Array, room: Array) -> Array:
    """The largest step of β, up to ``room``, that leaves the relative effective sample size at `_KEPT` or above.

    Chains where the new energy is infinite are lost with any step, and do not count.
    """
    weights = jnp.where(slopes < jnp.inf, jax.nn.softmax(log_weights), 0.0)
    excess = jnp.where(slopes < jnp.inf, slopes - jnp.min(slopes), 0.0)

    def enough(step):
        new = weights * jnp.exp(-step * excess)
        return jnp.sum(new) ** 2 >= _KEPT * jnp.sum(weights) * jnp.sum(new**2 / jnp.maximum(weights, 1e-30))

    def halve(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        return jnp.where(enough(middle), middle, low), jnp.where(enough(middle), high, middle)

    low, high = jax.lax.fori_loop(0, 30, halve, (jnp.zeros(()), room))
    return jnp.where(enough(room), room, jnp.where(low > 0, low, high))


def _relative_ess(log_weights: Array) -> Array:
    weights = jax.nn.softmax(log_weights, axis=-1)
    return 1 / (jnp.sum(weights**2, axis=-1) * log_weights.shape[-1])


def _log_mean(log_weights: Array) -> Array:
    return jax.nn.logsumexp(log_weights, axis=-1) - math.log(log_weights.shape[-1])


def join_groups(group_log_z: np.ndarray, confidence: float) -> Estimate:
    """``log Z`` from independent groups: the logarithm of the mean of their Ẑ, with Student's interval of that mean by
    the delta method.

    >>> estimate = join_groups(np.log([1.0, 2.0, 3.0]), 0.95)
    >>> round(math.exp(estimate.value), 3), round(estimate.standard_error, 3)
    (2.0, 0.289)
    """
    count = len(group_log_z)
    top = float(np.max(group_log_z))
    if not math.isfinite(top):
        return Estimate(math.nan, math.nan, math.nan, confidence, "trajectory", warning="no chain has a finite energy")
    weights = np.exp(group_log_z - top)
    value = top + math.log(float(np.mean(weights)))
    error = float(np.std(weights, ddof=1) / np.mean(weights)) / math.sqrt(count)
    side = student_quantile(confidence, count - 1) * error
    ess = float(np.sum(weights) ** 2 / np.sum(weights**2))
    return Estimate(value, value - side, value + side, confidence, f"trajectory of {count} groups", ess, None, error)
