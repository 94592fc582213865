"""Annealed estimates of log Z: rounds of runs in both directions on a fixed ladder, and their bridge."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree
from scipy.special import stdtrit

from thalweg.core import Estimate, Kernel
from thalweg.core.random import split
from thalweg.evaluate.real_paths import GROUPS, SIZE, constant, pilot, program, split_keys
from thalweg.evaluate.smc import Path, bridge, travel

_EXTRA = 50  # moves on the model before a backward run
_MOST_ROUNDS = 4  # without a budget
_ENOUGH = 0.1  # without a budget, rounds end at this standard error
_FINE, _MANY_MOVES = 0.95, 100  # of the finer ladder that is tried where the first one does not serve
# the standard deviation of log Ẑ over groups at which the finer ladder is tried, and at which modes may be missing
_UNEVEN, _VERY_UNEVEN = 0.5, 1.0


class Budget(NamedTuple):
    """How much may be spent: seconds, evaluations of the energy or its gradient, or neither."""

    seconds: float | None = None
    evaluations: float | None = None

    def allows(self, rounds: int, begun: float, spent: float, error: float) -> bool:
        """Whether one more round as long as those before it fits."""
        if self.seconds is not None and (time.monotonic() - begun) * (rounds + 1) / rounds > self.seconds:
            return False
        if self.evaluations is not None and spent * (rounds + 1) / rounds > self.evaluations:
            return False
        given = self.seconds is not None or self.evaluations is not None
        return given or (rounds < _MOST_ROUNDS and error > _ENOUGH)


class Rounds(NamedTuple):
    """What the rounds of one model found, group by group, ``(groups,)``: log Z forward, backward and bridged."""

    forward: np.ndarray
    backward: np.ndarray
    bridged: np.ndarray
    overlap: float
    complete: bool
    rungs: int
    roots: float


def _round(kernel: Kernel, path: Path, ladder: Any, key: PRNGKeyArray, samples: PyTree) -> tuple[Array, ...]:
    """One round: forward, backward from the last points or from samples, and the bridge."""
    keys = split(key, 3)
    draws = path.draw(keys[0], GROUPS * SIZE)

    # a loop over the two directions, so that the run is compiled once
    def direction(x, now):
        key, backward, extra = now
        passed = travel(kernel, path, ladder, key, x, GROUPS, backward, extra)
        return (passed.x if samples is None else samples), (passed.log_ratio, passed.works, passed.roots)

    where = (keys[1:], jnp.array([False, True]), jnp.array([0, _EXTRA]))
    _, (log_ratio, works, roots) = jax.lax.scan(direction, draws, where)
    ahead, back = (jax.tree.map(lambda leaf, place=place: leaf[place], works) for place in (0, 1))
    bridged = bridge(ahead, back, ladder.count, GROUPS)
    start = path.log_z_base
    each = start + bridged.log_ratio + bridged.deviations
    return start + log_ratio[0], start - log_ratio[1], each, bridged.overlap, jnp.median(roots[0])


def anneal(
    kernel: Kernel,
    path: Path,
    key: Array,
    samples: PyTree | None,
    most_moves: int,
    budget: Budget,
    cost: float,
    many: bool,
    advance: Callable[[], None],
) -> list[Rounds]:
    """Rounds on a ladder chosen by a pilot run, for each model, until the budget is spent.

    If the two directions disagree, or the groups differ much, the ladder is laid again with smaller steps and more
    moves, once. ``key`` is one key, or one for each model; ``cost`` is the number of evaluations of one move of one
    chain.
    """
    keys = split_keys(key, 3, many)
    fine = False
    while True:
        keep, moves = (_FINE, max(_MANY_MOVES, most_moves)) if fine else (0.9, most_moves)
        settings = constant(keep, key, many), constant(moves, key, many)
        ladder, _ = program(pilot, many)(kernel, path, keys[int(fine)], *settings)
        advance()
        begun, found = time.monotonic(), []
        spent = 2 * GROUPS * SIZE * cost * float(np.max(np.sum(np.asarray(ladder.moves), axis=-1)))
        while True:
            round_keys = _numbered(keys[2], len(found) + 1000 * fine, many)
            found.append(jax.tree.map(np.asarray, program(_round, many)(kernel, path, ladder, round_keys, samples)))
            advance()
            rounds = _collect(found, ladder, many)
            worst = max(float(np.std(each.bridged) / np.sqrt(each.bridged.size)) for each in rounds)
            poor = any(is_poor(each) for each in rounds)
            if (poor and not fine) or not budget.allows(len(found), begun, spent * len(found), worst):
                break
        if fine or not poor:
            return rounds
        fine = True


def _numbered(key: Array, number: int, many: bool) -> Array:
    return jax.vmap(lambda key: jax.random.fold_in(key, number))(key) if many else jax.random.fold_in(key, number)


def _collect(found: list[tuple[np.ndarray, ...]], ladder: Any, many: bool) -> list[Rounds]:
    """The groups of all rounds together, model by model."""
    lift = (lambda leaf: leaf) if many else (lambda leaf: np.asarray(leaf)[None])
    columns = [[lift(one[place]) for one in found] for place in range(5)]
    groups = [np.concatenate(column, axis=-1) for column in columns[:3]]
    overlap, roots = np.min(columns[3], axis=0), np.median(columns[4], axis=0)
    complete, count = lift(np.asarray(ladder.betas)[..., -1] >= 1), lift(np.asarray(ladder.count))
    rows = zip(*groups, overlap, complete, count, roots, strict=True)
    return [Rounds(*row[:3], float(row[3]), bool(row[4]), int(row[5]), float(row[6])) for row in rows]


def _log_mean(values: np.ndarray) -> tuple[float, float]:
    """The log of the mean of ``exp(values)`` and its standard error by the delta method."""
    top = float(np.max(values))
    if not np.isfinite(top):
        return top, float("inf")
    weights = np.exp(values - top)
    mean = float(np.mean(weights))
    return top + float(np.log(mean)), float(np.std(weights, ddof=1) / mean / np.sqrt(len(values)))


def directions(rounds: Rounds) -> tuple[tuple[float, float], tuple[float, float]]:
    """The value and standard error of each direction: of Z forward, of 1/Z backward."""
    backward, error = _log_mean(-rounds.backward)
    return _log_mean(rounds.forward), (-backward, error)


def disagreement(rounds: Rounds) -> float:
    """How many standard errors the two directions are apart, beyond a hundredth of a nat."""
    (ahead, ahead_error), (back, back_error) = directions(rounds)
    if not np.isfinite(ahead - back):
        return float("inf")
    return max(abs(ahead - back) - 0.01, 0.0) / max(float(np.hypot(ahead_error, back_error)), 1e-9)


def is_poor(rounds: Rounds) -> bool:
    """Whether the two directions disagree, or the groups differ so much that a few of them make the mean."""
    return disagreement(rounds) > 3 or float(np.std(rounds.forward)) > _UNEVEN


def summarise(rounds: Rounds, confidence: float) -> Estimate:
    """The estimate of one model: the bridge, with an interval that the distance of the two directions widens."""
    (ahead, ahead_error), (back, back_error) = directions(rounds)
    count = rounds.bridged.size
    reach = float(stdtrit(count - 1, (1 + confidence) / 2))
    value = float(np.mean(rounds.bridged))
    # a distance beyond its own noise means that the bridge, which lies between the two, has a bias too
    excess = max(abs(ahead - back) - float(np.hypot(ahead_error, back_error)), 0.0)
    error = float(np.hypot(np.std(rounds.bridged, ddof=1) / np.sqrt(count), excess / 3))
    low, high = value - reach * error, value + reach * error
    parts = {
        name: Estimate(middle, middle - reach * each, middle + reach * each, confidence, f"{name} annealing")
        for name, middle, each in (("forward", ahead, ahead_error), ("reverse", back, back_error))
    }
    warning = None
    if not (rounds.complete and np.isfinite(value)):
        low, high = -np.inf, np.inf
        warning = "the path did not reach the model; give samples of the model, or a base density nearer to it"
    elif is_poor(rounds):
        low = min(low, *(part.low for part in parts.values()))
        high = max(high, *(part.high for part in parts.values()))
        error = max(error, (high - low) / (2 * reach))
        if disagreement(rounds) > 3:
            warning = (
                f"the two directions disagree by {abs(ahead - back):.2f} nats, so the interval holds both; the chains "
                "mix slowly: give samples of the model or a larger budget"
            )
        elif np.std(rounds.forward) > _VERY_UNEVEN:
            warning = (
                f"the groups of chains differ by {np.std(rounds.forward):.1f} nats, so there may be modes that none "
                "found; give samples of the model or a larger budget"
            )
    elif rounds.overlap < 0.1:
        warning = "two neighbouring rungs hardly overlap; give samples of the model or a larger budget"
    bound = ahead - float(np.log(1 / (1 - confidence)))
    method = f"annealing over {rounds.rungs} rungs, both directions bridged"
    return Estimate(value, low, high, confidence, method, 1 / max(error, 1e-9) ** 2, warning, error, bound, parts)
