"""How many random patterns a Hopfield network holds: the overlap of its fixed points over the load."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure
from scipy.optimize import least_squares, minimize_scalar
from scipy.special import erf
from scipy.stats import norm

from thalweg.core.progress import progress_bar
from thalweg.energies import hebb, pseudo_inverse, storkey
from thalweg.report.figures import LIGHT, canvas, legend, panel

# closer where the overlap falls
_LOADS = (0.05, 0.08, 0.1, 0.11, 0.12, 0.125, 0.13, 0.135, 0.14, 0.145, 0.15, 0.16, 0.18, 0.2)
_NETWORKS = {500: 16, 1000: 8, 2000: 5}
_RULES = {"Hebb": hebb, "Storkey": storkey, "pseudo-inverse": pseudo_inverse}
_RULE_LOADS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_COLOURS = (LIGHT.held_out, LIGHT.samples, LIGHT.data)
_SHOWN = (0.13, 0.15, 0.18)
_STEPS, _RESAMPLES = 1000, 1000
_KEPT = 0.9  # patterns with a larger overlap are retrieved


def hopfield_capacity(
    key: PRNGKeyArray, progress: bool = False, *, scale: str = "small"
) -> tuple[Figure, dict[str, Any]]:
    """Fixed points of Hebb's rule from the stored patterns themselves, over the load ``α = patterns / units``.

    The overlap ``m = ξᵀx/n`` of a pattern with the fixed point that it runs into is near one for small loads. Theory
    (`theory`) has it fall to zero at once where α passes 0.138, from ``m_c = 0.967``; in finite networks the fall is
    gradual, and the fixed points after it keep an overlap of about 0.3. The capacity at a size is the load at which the
    mean overlap is m_c, with a 95% interval from resampled networks. The capacity of large networks is α_c in
    ``Φ(c + (α_c - α)√n/w)``, fitted to the shares of patterns with m > 0.9 at all sizes and loads. All patterns are
    tried, by asynchronous updates.

    Numbers: the capacity from theory, at every size, and from the fit; for every size and load the mean overlap, its
    standard error over networks and the share of patterns with m > 0.9; the same for the three storage rules at the
    smallest size.

    Reference: Amit, Gutfreund and Sompolinsky (1987), Ann. Phys. 173.

    >>> figure, numbers = hopfield_capacity(jax.random.key(0), scale="smoke")
    >>> round(numbers["theory"]["capacity"], 4), round(numbers["theory"]["overlap"], 3)
    (0.1379, 0.967)
    """
    if scale not in ("smoke", "small"):
        raise ValueError(f"expected a scale among smoke, small, got {scale!r}; small takes minutes")
    networks, loads, rule_loads = _NETWORKS, _LOADS, _RULE_LOADS
    if scale == "smoke":
        networks, loads, rule_loads = {100: 4, 200: 2}, _LOADS[::3], _RULE_LOADS[1::4]
    smallest = min(networks)
    key_sizes, key_rules = jax.random.split(key)
    jobs = [(n, load) for n in networks for load in loads]
    tries = {rule: {} for rule in _RULES}
    overlaps: dict[tuple[int, float], list[np.ndarray]] = {}
    with progress_bar("networks", len(jobs) + len(_RULES) * len(rule_loads), shown=progress) as advance:
        for number, (n, load) in enumerate(jobs):
            keys = jax.random.split(jax.random.fold_in(key_sizes, number), networks[n])
            overlaps[n, load] = [_overlaps(each, hebb, n, load) for each in keys]
            advance(1)
        for rule in _RULES:
            for number, load in enumerate(rule_loads):
                keys = jax.random.split(jax.random.fold_in(key_rules, number), 2)  # the same patterns for all rules
                tries[rule][load] = [_overlaps(each, _RULES[rule], smallest, load) for each in keys]
                advance(1)
    limit = theory()
    sizes = []
    for n, count in networks.items():
        means = np.array([[own.mean() for own in overlaps[n, load]] for load in loads])
        rows = [_row(load, overlaps[n, load]) for load in loads]
        sizes.append(
            {"units": n, "networks": count, "capacity": _capacity(loads, means, limit["overlap"]), "rows": rows}
        )
    shares = [(n, load, float(np.mean(own > _KEPT))) for (n, load), every in overlaps.items() for own in every]
    rules = {rule: [_row(load, own) for load, own in tries[rule].items()] for rule in _RULES}
    numbers = {"theory": limit, "sizes": sizes, "fit": _fit(np.array(shares)), "rules": {"units": smallest, **rules}}
    shown = {load: np.concatenate(overlaps[max(networks), load]) for load in _SHOWN if load in loads}
    return _figure(numbers, shown), numbers


def theory() -> dict[str, float]:
    """The capacity of Hebb's rule and the overlap there, for infinitely many units without symmetry breaking.

    The overlap is ``m = erf(y)`` with ``y(√(2α) + 2exp(-y²)/√π) = erf(y)``; the largest α at which this has a solution
    y > 0 is the capacity.

    >>> round(theory()["capacity"], 4)
    0.1379
    """
    # the equation solved for √(2α), and its maximum over y
    root = lambda y: erf(y) / y - 2 / math.sqrt(math.pi) * math.exp(-(y**2))
    best = minimize_scalar(lambda y: -root(y), bounds=(0.1, 4.0), method="bounded", options={"xatol": 1e-10})
    return {"capacity": float(root(best.x) ** 2 / 2), "overlap": float(erf(best.x))}  # pyright: ignore[reportAttributeAccessIssue]


def _overlap_of(load: float) -> float:
    """The overlap that theory has at a load below the capacity."""
    low, high = 1.5, 6.0  # the larger solution for y, on which α falls
    for _ in range(60):
        y = (low + high) / 2
        alpha = (math.erf(y) / y - 2 / math.sqrt(math.pi) * math.exp(-(y**2))) ** 2 / 2
        low, high = (y, high) if alpha > load else (low, y)
    return math.erf(low)


def _overlaps(key: PRNGKeyArray, rule: Any, n: int, load: float) -> np.ndarray:
    """The overlap of every pattern with its fixed point, in one network."""
    patterns = jax.random.rademacher(key, (max(1, round(load * n)), n))
    recall = rule(patterns).recall(patterns, steps=_STEPS)
    if not bool(recall.converged.all()):
        raise RuntimeError(f"{n} units at load {load}: a pattern reached no fixed point in {_STEPS} sweeps")
    return np.mean(np.asarray(recall.states) * np.asarray(patterns), axis=1)


def _row(load: float, overlaps: list[np.ndarray]) -> dict[str, float]:
    means = np.array([own.mean() for own in overlaps])
    kept = float(np.mean([np.mean(own > _KEPT) for own in overlaps]))
    error = float(means.std(ddof=1) / math.sqrt(len(means)))
    return {"load": load, "overlap": float(means.mean()), "error": error, "retrieved": kept}


def _capacity(loads: Sequence[float], means: np.ndarray, overlap: float) -> dict[str, float]:
    """The load at which the mean overlap falls through ``overlap``, from means ``(loads, networks)``."""

    def crossing(rows: np.ndarray) -> float:
        # the first crossing; the first or last load if it lies outside of them
        return float(np.interp(-overlap, -np.minimum.accumulate(rows), loads))

    generator = np.random.default_rng(0)
    count = means.shape[1]
    resampled = [
        crossing(np.take_along_axis(means, generator.integers(count, size=means.shape), axis=1).mean(axis=1))
        for _ in range(_RESAMPLES)
    ]
    return _interval(crossing(means.mean(axis=1)), resampled)


def _fit(rows: np.ndarray) -> dict[str, float]:
    """α_c in ``share = Φ(c + (α_c - α)√n/w)``, from rows ``(n, α, share)``, one for each network."""

    def solve(rows: np.ndarray) -> float:
        n, load, share = rows.T
        errors = lambda p: norm.cdf(p[1] + (p[0] - load) * np.sqrt(n) / p[2]) - share
        return least_squares(errors, [0.14, 1.0, 0.6]).x[0]

    generator = np.random.default_rng(0)
    picks = [np.flatnonzero((rows[:, :2] == place).all(axis=1)) for place in np.unique(rows[:, :2], axis=0)]
    again = [np.concatenate([generator.choice(own, len(own)) for own in picks]) for _ in range(_RESAMPLES // 5)]
    return _interval(solve(rows), [solve(rows[chosen]) for chosen in again])


def _interval(value: float, resampled: list[float]) -> dict[str, float]:
    low, high = np.quantile(resampled, (0.025, 0.975))
    return {"value": float(value), "low": float(low), "high": float(high)}


def _figure(numbers: dict[str, Any], shown: dict[float, np.ndarray]) -> Figure:
    figure = canvas(12, 4.2)
    limit = numbers["theory"]
    fit = numbers["fit"]
    title = f"Hebb's rule: capacity {fit['value']:.3f} ({fit['low']:.3f} to {fit['high']:.3f})"
    axes = panel(figure, (1, 3, 1), title=title, x="load, patterns / units", y="mean overlap of fixed points")
    curve = np.linspace(0.04, limit["capacity"], 200)
    axes.plot([*curve, limit["capacity"], 0.205], [*map(_overlap_of, curve), 0, 0], color=LIGHT.ink, linewidth=1.2,
              label=f"theory, falls at {limit['capacity']:.3f}")  # fmt: skip
    for size, colour in zip(numbers["sizes"], _COLOURS, strict=False):
        rows, held = size["rows"], size["capacity"]
        axes.errorbar(
            [row["load"] for row in rows], [row["overlap"] for row in rows], [1.96 * row["error"] for row in rows],
            color=colour, marker="o", markersize=3.5, linewidth=1.4,
            label=f"n = {size['units']}: {limit['overlap']:.3f} at {held['value']:.3f}",
        )  # fmt: skip
    axes.axhline(limit["overlap"], color=LIGHT.muted, linewidth=0.8, linestyle=":")
    axes.set_ylim(0, 1.03)
    legend(axes, loc="lower left")
    n = numbers["sizes"][-1]["units"]
    axes = panel(figure, (1, 3, 2), title=f"Each pattern, Hebb, n = {n}", x="overlap with its fixed point", y="share")
    edges = np.linspace(0, 1, 41)
    for (load, own), colour in zip(shown.items(), (LIGHT.data, LIGHT.extra, LIGHT.samples), strict=False):
        heights = np.histogram(np.clip(own, 0, 1), edges)[0] / len(own)
        axes.stairs(heights, edges, color=colour, linewidth=1.6, label=f"load {load:g}")
    legend(axes, loc="upper left")
    rules = numbers["rules"]
    title = f"Three rules, n = {rules['units']}"
    axes = panel(figure, (1, 3, 3), title=title, x="load, patterns / units", y="mean overlap of fixed points")
    for rule, colour in zip(_RULES, (LIGHT.data, LIGHT.samples, LIGHT.held_out), strict=True):
        rows = rules[rule]
        axes.plot([row["load"] for row in rows], [row["overlap"] for row in rows], "o-", color=colour, markersize=3.5,
                  linewidth=1.4, label=rule)  # fmt: skip
    axes.set_ylim(0, 1.03)
    legend(axes, loc="lower left")
    return figure
