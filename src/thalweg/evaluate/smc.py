"""Sequential Monte Carlo along a path of energies: forward from the base, backward from samples, and their bridge.

A path is a family of energies ``U_β``, with ``U_0`` the energy of a base density that can be sampled and ``U_1`` the
model. A pilot run chooses the ladder ``0 = β_0 < … < β_T = 1``, the step sizes and the number of moves; the estimates
come from new runs on the ladder fixed by then, so that ``Ẑ`` of a forward run is unbiased at any mixing.
"""

import abc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from thalweg.core import Kernel, Module, Tunable, energies
from thalweg.core.random import split

MOST_RUNGS = 2000  # of a ladder; a path that needs more ends before it reaches the model
_ROOM = (32, 128, 512, MOST_RUNGS)  # lengths of padded ladders: few, so that few programs are compiled
_FORGOTTEN = 0.2  # moves go on until the slope dU/dβ of a chain correlates with its start by less than this


class Path(Module):
    """A family of energies from a base density to a model."""

    @abc.abstractmethod
    def at(self, beta: Array) -> Any:
        """The energy ``U_β`` of one point, as kernels take it."""

    @abc.abstractmethod
    def cooled(self, factor: Array) -> Any:
        """``factor · U_1``: the model at the temperature ``1/factor``, as kernels take it."""

    @abc.abstractmethod
    def draw(self, key: PRNGKeyArray, count: int) -> PyTree:
        """Independent points of the base, ``(count, *event)``."""

    @property
    @abc.abstractmethod
    def log_z_base(self) -> Array:
        """``log ∫ exp(-U_0)``."""


class Ladder(NamedTuple):
    """The rungs of a path, padded to `MOST_RUNGS`: at rung t the inverse temperature, the step size and the moves."""

    betas: Float[Array, " rungs"]
    step_sizes: Float[Array, " rungs"]
    moves: Int[Array, " rungs"]
    count: Int[Array, ""]

    def shortened(self) -> "Ladder":
        """The same ladder, or stack of ladders, with less padding, since a run costs memory for every rung it may
        have."""
        longest = int(jnp.max(self.count))
        room = next(each for each in _ROOM if each >= longest) + 1
        return Ladder(self.betas[..., :room], self.step_sizes[..., :room], self.moves[..., :room], self.count)


class Works(NamedTuple):
    """For every rung and chain the difference of energies to the next rung, and the log weight of the chain there,
    among the chains of all groups."""

    work: Float[Array, "rungs chains"]
    log_weight: Float[Array, "rungs chains"]


def slopes(path: Path, beta: Array, x: PyTree) -> Array:
    """``dU_β/dβ`` at every point."""
    return jax.jvp(lambda beta: energies(path.at(beta), x), (beta,), (jnp.ones_like(beta),))[1]


def systematic(key: PRNGKeyArray, log_weights: Array) -> Array:
    """The ancestors of systematic resampling, ``(chains,)``."""
    count = len(log_weights)
    steps = jnp.cumsum(jax.nn.softmax(log_weights))
    places = (jnp.arange(count) + jax.random.uniform(key)) / count
    return jnp.clip(jnp.searchsorted(steps, places * steps[-1]), 0, count - 1)


def take(tree: PyTree, chains: Array) -> PyTree:
    """Some chains of a state."""
    return jax.tree.map(lambda leaf: leaf[chains], tree)


def _tuned(kernel: Kernel, step_size: Array) -> Kernel:
    return kernel.with_step_size(step_size) if isinstance(kernel, Tunable) else kernel


def _acceptance(kernel: Kernel, info: Any) -> Array:
    """The mean acceptance of a step; of a kernel without one, its target, so that nothing is tuned."""
    known = info.acceptance
    return jnp.asarray(getattr(kernel, "target_acceptance", 1.0)) if known is None else jnp.mean(known)


def lay_ladder(
    kernel: Kernel, path: Path, key: PRNGKeyArray, chains: int, keep: Float[Array, ""], most_moves: Int[Array, ""]
) -> tuple[Ladder, PyTree]:
    """The pilot run: each rung keeps the relative effective sample size at ``keep``. Returns the ladder and the points
    of the last rung.

    At each rung the step size follows the acceptance, and moves are made until the slope of the chains is forgotten.
    Reference: Zhou, Johansen and Aston (2016), JCGS 25(3), for the conditional effective sample size.
    """
    first = jnp.asarray(kernel.get_step_size(), float) if isinstance(kernel, Tunable) else jnp.ones(())
    target = getattr(kernel, "target_acceptance", 1.0)

    def climbing(now):
        return (now["rung"] < MOST_RUNGS) & (now["beta"] < 1)

    def move(now):
        step_key, key = split(now["key"])
        energy, tuned = path.at(now["beta"]), _tuned(kernel, now["step_size"])
        state, info = tuned.step(step_key, energy, now["state"])
        factor = jnp.exp(1.0 * (_acceptance(kernel, info) - target))
        slope = slopes(path, now["beta"], state.x)
        return now | {
            "key": key,
            "state": state,
            "step_size": now["step_size"] * factor,
            "moves": now["moves"] + 1,
            "memory": _correlation(now["start"], slope),
        }

    def climb(now):
        resample_key, key = split(now["key"])
        x = now["state"].x
        slope = slopes(path, now["beta"], x)
        beta = _next_beta(now["beta"], slope, keep)
        log_weights = _finite_difference(energies(path.at(now["beta"]), x), energies(path.at(beta), x))
        ancestors = systematic(resample_key, log_weights)
        state = kernel.retarget(path.at(beta), take(now["state"], ancestors))
        start = slopes(path, beta, state.x)
        inner = {"key": key, "state": state, "step_size": now["step_size"], "beta": beta, "start": start}
        inner |= {"moves": jnp.zeros((), int), "memory": jnp.ones(())}
        inner = jax.lax.while_loop(lambda i: (i["moves"] < most_moves) & (i["memory"] > _FORGOTTEN), move, inner)
        rung = now["rung"] + 1
        return {
            "key": inner["key"],
            "state": inner["state"],
            "step_size": inner["step_size"],
            "beta": beta,
            "rung": rung,
            "betas": now["betas"].at[rung].set(beta),
            "step_sizes": now["step_sizes"].at[rung].set(inner["step_size"]),
            "moves": now["moves"].at[rung].set(inner["moves"]),
        }

    draw_key, init_key, key = split(key, 3)
    state = kernel.init(init_key, path.at(jnp.zeros(())), path.draw(draw_key, chains))
    now = {
        "key": key,
        "state": state,
        "step_size": first,
        "beta": jnp.zeros(()),
        "rung": jnp.zeros((), int),
        "betas": jnp.ones(MOST_RUNGS + 1).at[0].set(0.0),
        "step_sizes": jnp.full(MOST_RUNGS + 1, first),
        "moves": jnp.zeros(MOST_RUNGS + 1, int),
    }
    now = jax.lax.while_loop(climbing, climb, now)
    betas = jnp.where(jnp.arange(MOST_RUNGS + 1) > now["rung"], now["beta"], now["betas"])
    return Ladder(betas, now["step_sizes"], now["moves"], now["rung"]), now["state"].x


def _correlation(before: Array, after: Array) -> Array:
    """The correlation of two values of every chain, clipped, since a few chains far out must not decide it."""

    def centred(values):
        values = values - jnp.mean(values)
        most = 2 * jnp.std(values)
        values = jnp.clip(values, -most, most)
        return values - jnp.mean(values)

    first, second = centred(before), centred(after)
    spread = jnp.sqrt(jnp.sum(first**2) * jnp.sum(second**2))
    varies = jnp.std(before) > 1e-5 * (1 + jnp.max(jnp.abs(before)))
    return jnp.where(varies, jnp.sum(first * second) / jnp.maximum(spread, 1e-30), 0.0)


def _next_beta(beta: Array, slope: Array, keep: Array) -> Array:
    """The largest next β whose weights ``exp(-Δβ·slope)`` keep the relative effective sample size."""
    alive = slope < _HUGE

    def kept(step):
        log_weights = jnp.where(alive, -step * slope, -jnp.inf)
        weights = jnp.exp(log_weights - jnp.max(log_weights))
        return jnp.sum(weights) ** 2 / (jnp.sum(weights**2) * jnp.sum(alive))

    def halve(_, bracket):
        low, high = bracket
        middle = jnp.where(low > 0, jnp.sqrt(low * high), 0.5 * high * 1e-3)
        enough = kept(middle) >= keep
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    room = 1 - beta
    low, _ = jax.lax.fori_loop(0, 40, halve, (jnp.zeros(()), room))
    return jnp.where(kept(room) >= keep, 1.0, jnp.minimum(beta + jnp.maximum(low, 1e-7), 1.0))


_HUGE = 1e20  # an energy above this is read as infinite


def _finite_difference(before: Array, after: Array) -> Array:
    """``before - after``, ``-inf`` where the energy is infinite after or not a number."""
    gained = before - after
    return jnp.where(jnp.isnan(gained) | (after > _HUGE), -jnp.inf, gained)


class Pass(NamedTuple):
    """One run along the ladder: ``log (Z_end/Z_start)`` of each group, the works, the last points, equally weighted,
    and from how many first points of each group they descend."""

    log_ratio: Float[Array, " groups"]
    works: Works
    x: PyTree
    roots: Int[Array, " groups"]


def travel(
    kernel: Kernel,
    path: Path,
    ladder: Ladder,
    key: PRNGKeyArray,
    x: PyTree,
    groups: int,
    backward: Bool[Array, ""],
    extra: Int[Array, ""],
    cold: Int[Array, ""],
) -> Pass:
    """Groups of chains from one end of the ladder to the other.

    A backward run first makes ``extra`` moves on the model. The first ``cold`` of them are made at temperatures that
    fall to 1/32, and after them only the eighth of each group with the lowest energies goes on.

    Forward, from draws of the base, ``exp(log_ratio)`` is an unbiased estimate of ``Z_1/Z_0`` from each group;
    backward, from samples of the model, one of ``Z_0/Z_1``. Chains are resampled within their group where its effective
    sample size falls below one half. Reference: Del Moral, Doucet and Jasra (2006), JRSS B 68(3); without resampling
    this is annealed importance sampling, Neal (2001); backward, Grosse, Ancha and Roy (2016), NeurIPS.
    """
    chains = jax.tree.leaves(x)[0].shape[0]
    size = chains // groups
    offsets = jnp.arange(groups)[:, None] * size
    rung_at = lambda number: jnp.where(backward, ladder.count - number, number)

    def moved(state, rung, key, count):
        tuned, energy = _tuned(kernel, ladder.step_sizes[rung]), path.at(ladder.betas[rung])
        one = lambda number, state: tuned.step(jax.random.fold_in(key, number), energy, state)[0]
        return jax.lax.fori_loop(0, count, one, state)

    def rung_by_rung(number, now):
        state, log_weights, log_ratio, work, weight, origin = now
        here, there = rung_at(number), rung_at(number + 1)
        resample_key, move_key = split(jax.random.fold_in(key, number))
        before, after = (energies(path.at(ladder.betas[rung]), state.x) for rung in (here, there))
        gained = _finite_difference(before, after)
        work = work.at[number].set(-gained)
        weight = weight.at[number].set((log_weights + log_ratio[:, None]).reshape(-1))
        log_weights = log_weights + gained.reshape(groups, size)
        poor = _ess(log_weights) < 0.5 * size
        ancestors = jax.vmap(systematic)(split(resample_key, groups), log_weights)
        ancestors = jnp.where(poor[:, None], ancestors, jnp.arange(size)) + offsets
        log_ratio = log_ratio + jnp.where(poor, _log_mean(log_weights), 0.0)
        log_weights = jnp.where(poor[:, None], 0.0, log_weights)
        ancestors = ancestors.reshape(-1)
        state = kernel.retarget(path.at(ladder.betas[there]), take(state, ancestors))
        state = moved(state, there, move_key, ladder.moves[there])
        return state, log_weights, log_ratio, work, weight, origin[ancestors]

    def prepare(number, state):
        factor = jnp.where(number < cold, 2.0 ** (1 + 4 * number / jnp.maximum(cold, 1)), 1.0)
        tuned, energy = _tuned(kernel, ladder.step_sizes[rung_at(0)] / jnp.sqrt(factor)), path.cooled(factor)
        state, _ = tuned.step(jax.random.fold_in(extra_key, number), energy, kernel.retarget(energy, state))
        order = jnp.argsort(energies(path.at(jnp.ones(())), state.x).reshape(groups, size), axis=-1)
        lowest = order[:, jnp.arange(size) % max(size // 8, 1)]
        return take(state, (jnp.where(number == cold - 1, lowest, jnp.arange(size)) + offsets).reshape(-1))

    init_key, extra_key, key = split(key, 3)
    state = kernel.init(init_key, path.at(ladder.betas[rung_at(0)]), x)
    state = jax.lax.fori_loop(0, extra, prepare, state)
    empty = jnp.zeros((len(ladder.betas) - 1, chains))
    now = (state, jnp.zeros((groups, size)), jnp.zeros(groups), empty, empty, jnp.arange(chains))
    state, log_weights, log_ratio, work, weight, origin = jax.lax.fori_loop(0, ladder.count, rung_by_rung, now)
    keys = split(jax.random.fold_in(key, ladder.count), groups)
    ancestors = (jax.vmap(systematic)(keys, log_weights) + offsets).reshape(-1)
    present = jnp.zeros(chains, bool).at[origin[ancestors]].set(True)
    roots = jnp.sum(present.reshape(groups, size), axis=-1)
    return Pass(log_ratio + _log_mean(log_weights), Works(work, weight), take(state.x, ancestors), roots)


def _ess(log_weights: Array) -> Array:
    """``(Σw)²/Σw²`` of every row."""
    weights = jax.nn.softmax(log_weights, axis=-1)
    return 1 / jnp.sum(weights**2, axis=-1)


def _log_mean(log_weights: Array) -> Array:
    return jax.nn.logsumexp(log_weights, axis=-1) - jnp.log(log_weights.shape[-1])


class Bridge(NamedTuple):
    """``log Z_1 - log Z_0`` from both directions: the value, the deviation of each group, and the smallest overlap."""

    log_ratio: Float[Array, ""]
    deviations: Float[Array, " groups"]
    overlap: Float[Array, ""]


def bridge(forward: Works, backward: Works, count: Int[Array, ""], groups: int) -> Bridge:
    """The optimal bridge between every two neighbouring rungs, summed over the ladder.

    The ratio r of two neighbours solves ``E_t[ρ/(1+ρ)] = E_{t+1}[1/(1+ρ)]`` with ``ρ = exp(-W)/r``, over the chains of
    all groups; the deviation of a group is what one Newton step towards its own solution adds. Twice the mean of
    ``ρ/(1+ρ)`` is the overlap of the two rungs, 1 where they are equal. Reference: Bennett (1976), J. Comp. Phys. 22.
    """
    rungs, chains = forward.work.shape
    size = chains // groups
    places = jnp.arange(rungs)

    def grouped(works, places):
        weight = jax.nn.softmax(works.log_weight[places], axis=-1)
        return works.work[places].reshape(rungs, groups, size), weight.reshape(rungs, groups, size)

    # the backward run makes the step t+1 → t as its step T-1-t
    ahead, ahead_weight = grouped(forward, places)
    back, back_weight = grouped(backward, jnp.clip(count - 1 - places, 0, rungs - 1))

    def excess_and_slope(ratio):
        ratio = ratio[:, None, None]
        near, far = jax.nn.sigmoid(-ahead - ratio), jax.nn.sigmoid(ratio - back)
        excess = jnp.sum(ahead_weight * near - back_weight * far, axis=-1)
        slope = jnp.sum(ahead_weight * near * (1 - near) + back_weight * far * (1 - far), axis=(-1, -2))
        return excess, jnp.maximum(slope, 1e-6), 2 * jnp.sum(ahead_weight * near, axis=(-1, -2))

    def improve(_, ratio):
        excess, slope, _ = excess_and_slope(ratio)
        return ratio + jnp.clip(jnp.sum(excess, axis=-1) / slope, -2.0, 2.0)

    # between the estimates of the two directions
    log_mean = lambda values, weights: jax.nn.logsumexp(values, axis=(-1, -2), b=weights)
    start = 0.5 * (log_mean(-ahead, ahead_weight) - log_mean(-back, back_weight))
    ratio = jax.lax.fori_loop(0, 30, improve, jnp.where(jnp.isfinite(start), start, 0.0))
    excess, slope, overlap = excess_and_slope(ratio)
    # at the solution both means are half the overlap; a group that is heavier ahead than back has no part in it
    shares = jnp.sum(ahead_weight, axis=-1) - jnp.sum(back_weight, axis=-1)
    excess = excess - 0.5 * overlap[:, None] * shares
    used = places < count
    # the jackknife leaves one group out of G, whose part then counts G/(G-1) times
    deviations = groups**2 / (groups - 1) * jnp.sum(jnp.where(used[:, None], excess / slope[:, None], 0.0), axis=0)
    return Bridge(jnp.sum(jnp.where(used, ratio, 0.0)), deviations, jnp.min(jnp.where(used, overlap, 1.0)))
