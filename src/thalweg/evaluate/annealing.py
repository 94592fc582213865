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
_COLD = 50  # moves at falling temperatures by which the chains of the third run come to low energies
_MORE = 0.3  # nats by which that run must exceed the others' interval, beyond three standard errors, to be mentioned
_UNSURE = 0.3  # the largest standard error of a direction that is believed
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
    """What the rounds of one model found, group by group, ``(groups,)``: log Z forward, backward, bridged, and
    backward from low energies, from the first round alone."""

    forward: np.ndarray
    backward: np.ndarray
    bridged: np.ndarray
    cold: np.ndarray
    overlap: float
    complete: bool
    rungs: int
    roots: float


def _round(
    kernel: Kernel, path: Path, ladder: Any, key: PRNGKeyArray, samples: PyTree, first: Array
) -> tuple[Array, ...]:
    """One round: forward, backward from the last points or from samples, and the bridge; the first round also backward
    from low energies."""
    keys = split(key, 4)
    draws = path.draw(keys[0], GROUPS * SIZE)

    # a loop over the runs, so that a run is compiled once
    def run(x, now):
        key, number, extra, cold = now
        given = number == 1
        start = x if samples is None else jax.tree.map(lambda a, b: jnp.where(given, a, b), samples, x)
        skipped = (number == 2) & ~first
        steps = ladder._replace(count=jnp.where(skipped, 0, ladder.count))
        passed = travel(kernel, path, steps, key, start, GROUPS, number > 0, jnp.where(skipped, 0, extra), cold)
        last = jax.tree.map(lambda a, b: jnp.where(number == 0, a, b), passed.x, x)
        return last, (passed.log_ratio, passed.works, passed.roots)

    where = (keys[1:], jnp.arange(3), jnp.array([0, _EXTRA, _COLD + _EXTRA]), jnp.array([0, 0, _COLD]))
    _, (log_ratio, works, roots) = jax.lax.scan(run, draws, where)
    ahead, back = (jax.tree.map(lambda leaf, place=place: leaf[place], works) for place in (0, 1))
    bridged = bridge(ahead, back, ladder.count, GROUPS)
    start = path.log_z_base
    each = start + bridged.log_ratio + bridged.deviations
    # backward runs never enter where the energy is infinite, so the mass of the base there is left out for them
    inside = jnp.log(jnp.mean(jnp.isfinite(ahead.work[0]).reshape(GROUPS, SIZE), axis=-1))
    log_z = (start + log_ratio[0], start - log_ratio[1] + inside, each, start - log_ratio[2] + inside)
    return *log_z, bridged.overlap, jnp.median(roots[0])


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
        ladder = program(pilot, many)(kernel, path, keys[int(fine)], *settings)[0].shortened()
        advance()
        begun, found = time.monotonic(), []
        moved = np.max(np.sum(np.asarray(ladder.moves), axis=-1))
        spent = GROUPS * SIZE * (2 * cost * float(moved) + cost * _EXTRA + 6 * float(np.max(np.asarray(ladder.count))))
        while True:
            round_keys = _numbered(keys[2], len(found) + 1000 * fine, many)
            first = constant(not found, key, many)
            one = program(_round, many)(kernel, path, ladder, round_keys, samples, first)
            found.append(jax.tree.map(np.asarray, one))
            advance()
            rounds = _collect(found, ladder, many, samples is not None)
            worst = max(float(np.std(each.bridged) / np.sqrt(each.bridged.size)) for each in rounds)
            poor = any(is_poor(each) for each in rounds)
            if (poor and not fine) or not budget.allows(len(found), begun, spent * len(found), worst):
                break
        if fine or not poor:
            return rounds
        fine = True


def _numbered(key: Array, number: int, many: bool) -> Array:
    return jax.vmap(lambda key: jax.random.fold_in(key, number))(key) if many else jax.random.fold_in(key, number)


def _collect(found: list[tuple[np.ndarray, ...]], ladder: Any, many: bool, shared: bool) -> list[Rounds]:
    """The groups of all rounds together, model by model.

    If a group starts backward from the same samples in every round (``shared``), its rounds are not independent, so
    they are averaged first.
    """
    lift = (lambda leaf: leaf) if many else (lambda leaf: np.asarray(leaf)[None])
    columns = [[lift(one[place]) for one in found] for place in range(6)]
    groups = [np.concatenate(column, axis=-1) for column in columns[:3]]
    if shared:
        backward, bridged = (np.stack(column) for column in columns[1:3])
        groups[1] = np.log(len(found)) - np.logaddexp.reduce(-backward, axis=0)
        groups[2] = np.mean(bridged, axis=0)
    cold, overlap, roots = columns[3][0], np.min(columns[4], axis=0), np.median(columns[5], axis=0)
    complete, count = lift(np.asarray(ladder.betas)[..., -1] >= 1), lift(np.asarray(ladder.count))
    rows = zip(*groups, cold, overlap, complete, count, roots, strict=True)
    return [
        Rounds(ahead, back, bridged, low, float(least), bool(reached), int(rungs), float(descent))
        for ahead, back, bridged, low, least, reached, rungs, descent in rows
    ]


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
    """How many standard errors the two directions are apart, beyond a hundredth of a nat.

    A standard error above `_UNSURE` is not believed: the mean of so few numbers of such spread is mostly too small.
    """
    (ahead, ahead_error), (back, back_error) = directions(rounds)
    if not np.isfinite(ahead - back):
        return float("inf")
    error = float(np.clip(np.hypot(ahead_error, back_error), 1e-9, _UNSURE))
    return max(abs(ahead - back) - 0.01, 0.0) / error


def is_poor(rounds: Rounds) -> bool:
    """Whether the two directions disagree, or the groups differ so much that a few of them make the mean."""
    even = float(np.std(rounds.forward)) <= _UNEVEN  # not so if a group has lost all its chains
    return disagreement(rounds) > 3 or not even


def summarise(rounds: Rounds, confidence: float) -> Estimate:
    """The estimate of one model: the bridge, with an interval that the distance of the two directions widens."""
    (ahead, ahead_error), (back, back_error) = directions(rounds)
    count = rounds.bridged.size
    reach = float(stdtrit(count - 1, (1 + confidence) / 2))
    value = float(np.mean(rounds.bridged))
    # a distance beyond its own noise means that the bridge, which lies between the two, has a bias too
    excess = max(abs(ahead - back) - float(np.hypot(ahead_error, back_error)), 0.0)
    rounding = abs(value) * float(np.finfo(rounds.forward.dtype).eps)
    error = float(np.linalg.norm([np.std(rounds.bridged, ddof=1) / np.sqrt(count), excess / 3, rounding]))
    low, high = value - reach * error, value + reach * error
    parts = {
        name: Estimate(middle, middle - reach * each, middle + reach * each, confidence, f"{name} annealing")
        for name, middle, each in (("forward", ahead, ahead_error), ("reverse", back, back_error))
    }
    warnings = []
    if not (rounds.complete and np.isfinite(value)):
        low, high = -np.inf, np.inf
        warnings.append("the path did not reach the model; give samples of the model, or a base density nearer to it")
    else:
        if is_poor(rounds):
            low = min(low, *(part.low for part in parts.values()))
            high = max(high, *(part.high for part in parts.values()))
            error = max(error, (high - low) / (2 * reach))
        if disagreement(rounds) > 3:
            warnings.append(
                f"the two directions disagree by {abs(ahead - back):.2f} nats, so the interval holds both; the chains "
                "mix slowly: give samples of the model or a larger budget"
            )
        elif np.std(rounds.forward) > _VERY_UNEVEN:
            warnings.append(
                f"the groups of chains differ by {np.std(rounds.forward):.1f} nats, so there may be modes that none "
                "found; give samples of the model or a larger budget"
            )
        elif rounds.overlap < 0.1:
            warnings.append("two neighbouring rungs hardly overlap; give samples of the model or a larger budget")
        if rounds.roots < 2:
            warnings.append(
                "the last chains of most groups descend from one draw of the base, so a few chains decide the value; "
                "give samples of the model or a larger budget"
            )
        cold, cold_error = _log_mean(-rounds.cold)
        more = -cold - 3 * cold_error - high
        if more > _MORE:
            parts["cold"] = Estimate(-cold, -cold - reach * cold_error, -cold + reach * cold_error, confidence, "cold")
            warnings.append(
                f"chains that start at low energies find {-cold - value:.2f} nats more, as at a first-order transition "
                "or where chains do not mix, so the interval holds both; give samples of the model"
            )
            high = max(high, parts["cold"].high)
            error = max(error, (high - low) / (2 * reach))
    warning = "; ".join(warnings) or None
    bound = ahead - float(np.log(1 / (1 - confidence)))
    method = f"annealing over {rounds.rungs} rungs, both directions bridged"
    return Estimate(value, low, high, confidence, method, 1 / max(error, 1e-9) ** 2, warning, error, bound, parts)
