"""The dual of maximum entropy on finitely many points: ``A(η) - η·μ``, convex, minimised by Newton's method.

``A(η) = log Σ_i w_i exp(η·f_i)`` over points with features ``f_i`` and weights ``w_i`` (1 for the states of a finite
space, the weights of a quadrature rule otherwise). Its gradient is ``E_η[f] - μ``, its Hessian the covariance of f.
Everything is in double precision.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

# features ``(count, k)`` and log weights ``(count,)`` of all points, one block at a time; read once for each evaluation
Blocks = Callable[[], Iterable[tuple[np.ndarray, np.ndarray]]]

_STEPS = 200
_TOLERANCE = 1e-10
# means this close to the edge of what is possible, relative to the range of the features, have no finite η
_EDGE = 1e-9


class Unattainable(Exception):
    """No density has these means: ``η·f(x) ≤ η·μ`` for the direction ``args[0]`` and every point x."""


class Dual(NamedTuple):
    """The dual at a point: its value ``A(η) - η·μ``, ``E_η[f]``, the covariance of f, and ``max_i η·(f_i - μ)``."""

    value: float
    means: np.ndarray
    covariance: np.ndarray
    slack: float


def evaluate(blocks: Blocks, means: np.ndarray, natural: np.ndarray) -> Dual:
    """The dual at ``natural`` for the means μ."""
    total, first, second = 0.0, np.zeros_like(means), np.zeros((len(means),) * 2)
    top = slack = -np.inf
    for features, log_weights in blocks():
        centred = features - means
        exponents = centred @ natural
        slack = max(slack, exponents.max())
        exponents = exponents + log_weights
        peak = max(top, exponents.max())
        # what was summed with another peak before
        shrink = np.exp(top - peak)
        weights = np.exp(exponents - peak)
        total = shrink * total + weights.sum()
        first = shrink * first + weights @ centred
        second = shrink * second + (weights[:, None] * centred).T @ centred
        top = peak
    mean = first / total
    return Dual(float(top + np.log(total)), means + mean, second / total - np.outer(mean, mean), float(slack))


def solve(blocks: Blocks, means: np.ndarray) -> tuple[np.ndarray, Dual]:
    """``(η, the dual there)`` at the minimum; raises `Unattainable` where there is none.

    Where features depend on each other linearly η is not unique, and the smallest is returned.
    """
    low, high = np.full(len(means), np.inf), np.full(len(means), -np.inf)
    for features, _ in blocks():
        low, high = np.minimum(low, features.min(axis=0)), np.maximum(high, features.max(axis=0))
    # in units in which every feature has a range of one
    scale = np.where(high > low, high - low, np.maximum(np.abs(high), 1.0))
    scaled = lambda: ((features / scale, log_weights) for features, log_weights in blocks())
    target = means / scale
    natural = np.zeros(len(means))
    now = evaluate(scaled, target, natural)
    for _ in range(_STEPS):
        gradient = now.means - target
        _refuse_edge(now, natural, scale)
        spread, directions = np.linalg.eigh(now.covariance)
        known = directions[:, spread > 1e-13 * max(spread[-1], 1e-300)]
        # along the other directions the features do not vary: another mean there is out of reach
        apart = known @ (known.T @ gradient) - gradient
        _refuse_edge(evaluate(scaled, target, apart), apart, scale)
        if np.abs(gradient).max() < _TOLERANCE:
            return natural / scale, _rescale(now, scale)
        step = -known @ ((known.T @ gradient) / spread[-known.shape[1] :])
        natural, now = _search(scaled, target, natural, now, step)
    raise RuntimeError(f"maximum entropy: no convergence in {_STEPS} steps, means off by {np.abs(gradient).max():.2g}")


def _search(
    blocks: Blocks, target: np.ndarray, natural: np.ndarray, now: Dual, step: np.ndarray
) -> tuple[np.ndarray, Dual]:
    """The step, halved until the dual falls enough."""
    slope, size = (now.means - target) @ step, 1.0
    while size > 1e-12:
        trial = evaluate(blocks, target, natural + size * step)
        # at the bottom the value no longer resolves the decrease, and the whole step is right
        if trial.value <= now.value + 1e-4 * size * slope or -slope < 1e-12:
            return natural + size * step, trial
        size /= 2
    raise RuntimeError("maximum entropy: Newton's method makes no progress, though the dual is convex")


def _refuse_edge(dual: Dual, direction: np.ndarray, scale: np.ndarray) -> None:
    """Raise if no point is further along ``direction`` than the wanted means, but for rounding; ``dual`` is there."""
    length = float(np.linalg.norm(direction))
    if length > 1e-8 and dual.slack < _EDGE * length:
        raise Unattainable(direction / length / scale)


def _rescale(dual: Dual, scale: np.ndarray) -> Dual:
    return dual._replace(means=dual.means * scale, covariance=dual.covariance * np.outer(scale, scale))
