"""Figures of the slides."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from thalweg import exact
from thalweg.energies import two_bumps as two_bumps_energy
from thalweg.experiments.compare import beside, histogram_distance, ks_distance, mixing, mixture_cdf
from thalweg.plot.traces import draw_running_mean, draw_trace
from thalweg.report.figures import LIGHT, canvas, legend, panel
from thalweg.samplers import RandomWalk, sample
from thalweg.samplers.diagnostics import summarise

_LOW, _HIGH = -8.0, 14.0
_CHAINS, _DRAWS, _BURN_IN, _THIN, _SCALE = 100, 1000, 500, 5, 4.0

# 3exp(-(x+2)²/2) + exp(-(x-4)²/8) = 5√(2π) · [0.6 N(x; -2, 1) + 0.4 N(x; 4, 4)]
_LOG_Z = math.log(5 * math.sqrt(2 * math.pi))
_EDGES = np.linspace(_LOW, _HIGH, 89)
_EXACT = {"mean": 0.4, "variance": 10.84, "first_mass": 0.6}


def two_bumps(key: PRNGKeyArray, progress: bool = False) -> tuple[Figure, dict[str, Any]]:
    """The density ``p̃(x) = 3exp(-(x+2)²/2) + exp(-(x-4)²/8)`` of the slides, ``Z = 5√(2π)``: normalised, sampled twice.

    Numbers: ``log_z`` in closed form and by quadrature; ``mean``, ``variance`` (about the exact mean) and the two
    ``masses``, exactly, by quadrature, and from exact samples and random-walk chains with the Monte Carlo standard
    error of each; R-hat and effective sample size of the chains. The mass of the first bump is the mean over samples
    of ``3exp(-(x+2)²/2) / p̃(x)``, which needs no boundary between the bumps.

    >>> figure, numbers = two_bumps(jax.random.key(0))
    >>> numbers["masses"]["exact"]
    [0.6, 0.4]
    """
    key_exact, key_start, key_chains = jax.random.split(key, 3)
    energy = two_bumps_energy()

    def statistics(x: Array) -> Array:
        first = jnp.exp(math.log(3) - (x[0] + 2) ** 2 / 2 + energy(x))
        return jnp.stack([x[0], (x[0] - _EXACT["mean"]) ** 2, first])

    independent = energy.sample(key_exact, (_CHAINS * _DRAWS,))
    start = jax.random.uniform(key_start, (_CHAINS, 1), minval=-10.0, maxval=10.0)
    options = {"draws": _DRAWS, "burn_in": _BURN_IN, "thin": _THIN, "progress": progress}
    chains = sample(energy, RandomWalk(_SCALE), start, key=key_chains, **options)
    summary = summarise(jax.vmap(jax.vmap(statistics))(chains.draws), chains.stats)
    values = np.asarray(jax.vmap(statistics)(independent), np.float64)
    errors = values.std(axis=0, ddof=1) / math.sqrt(len(values))
    integrals = np.asarray(exact.expectation(energy, statistics))

    def compared(i: int, name: str) -> dict[str, float]:
        return {
            "exact": _EXACT[name],
            "quadrature": float(integrals[i]),
            "exact_samples": float(values[:, i].mean()),
            "exact_samples_error": float(errors[i]),
            "chains": float(summary.mean[i]),
            "chains_error": float(summary.mcse[i]),
        }

    first = compared(2, "first_mass")
    # the second mass is one minus the first, with the same error
    masses = {name: [value, value] if "error" in name else [value, 1 - value] for name, value in first.items()}
    numbers = {
        "log_z": {"exact": _LOG_Z, "quadrature": float(exact.log_z(energy))},
        "masses": masses,
        "mean": compared(0, "mean"),
        "variance": compared(1, "variance"),
        "samples": len(values),
        "chains": {
            "kernel": f"RandomWalk({_SCALE:g})",
            "chains": _CHAINS,
            "draws": _DRAWS,
            "burn_in": _BURN_IN,
            "thin": _THIN,
            "acceptance": summary.acceptance,
            "rhat": float(summary.rhat.max()),
            "ess_bulk": float(summary.ess_bulk.min()),
            "verdict": summary.verdict,
        },
    }
    return _figure(energy, np.asarray(independent).ravel(), np.asarray(chains.draws).ravel(), numbers), numbers


def _figure(energy: Any, independent: np.ndarray, drawn: np.ndarray, numbers: dict[str, Any]) -> Figure:
    figure = canvas(11, 6.6)
    grid = np.linspace(_LOW, _HIGH, 800)
    energies = np.asarray(jax.vmap(energy)(jnp.asarray(grid, jnp.float32)[:, None]))
    unnormalised, density = np.exp(-energies), np.exp(-energies - _LOG_Z)

    axes = panel(figure, (2, 2, 1), title="The density, before and after normalisation", x="x", y="density")
    axes.plot(grid, unnormalised, color=LIGHT.muted, linewidth=1.6, label="p̃(x), area Z = 5√(2π) ≈ 12.53")
    axes.fill_between(grid, density, color=LIGHT.data, alpha=0.25, linewidth=0)
    axes.plot(grid, density, color=LIGHT.data, linewidth=1.8, label="p(x) = p̃(x)/Z, area 1")
    legend(axes)
    axes = panel(figure, (2, 2, 3), title="Its energy, E(x) = -log p̃(x)", x="x", y="energy E(x)")
    axes.plot(grid, energies, color=LIGHT.ink, linewidth=1.6)

    share, rhat = numbers["masses"], numbers["chains"]["rhat"]
    title = f"{len(independent):_} exact samples".replace("_", " ")
    _histogram(figure, (2, 2, 2), grid, density, independent, title, share["exact_samples"])
    title = f"{_CHAINS} random-walk chains, {_DRAWS} draws each, R-hat {rhat:.3f}"
    _histogram(figure, (2, 2, 4), grid, density, drawn, title, share["chains"])
    for axes in figure.axes:
        axes.set_xlim(_LOW, _HIGH)
    return figure


def _histogram(
    figure: Figure, place: Any, grid: np.ndarray, density: np.ndarray, x: np.ndarray, title: str, masses: list[float]
) -> Axes:
    axes = panel(figure, place, title=title, x="x", y="density")
    edges = _EDGES
    counts, _ = np.histogram(x, edges)
    label = f"histogram; masses {masses[0]:.3f} and {masses[1]:.3f}"
    heights = counts / (len(x) * np.diff(edges))
    axes.stairs(heights, edges, fill=True, color=LIGHT.samples, alpha=0.45, label=label)
    axes.plot(grid, density, color=LIGHT.data, linewidth=1.8, label="p(x); masses 0.6 and 0.4")
    legend(axes)
    return axes


def mh_example(
    key: PRNGKeyArray, progress: bool = False, *, chains: int = 4, draws: int = 100_000
) -> tuple[Figure, dict[str, Any]]:
    """The slides' Metropolis-Hastings run on the same density: ``N(x, 1)`` proposed, 1e3 burn-in, 1e5 samples.

    The first chain is that of the slides; three more from other starts check its convergence. Numbers: the mean and the
    masses of the bumps, exact, from one chain and from all chains, with Monte Carlo standard errors; total variation of
    the histogram and Kolmogorov-Smirnov distance to the exact distribution, and those of as many independent samples.

    >>> figure, numbers = mh_example(jax.random.key(0), draws=2000)
    >>> numbers["mean"]["exact"]
    0.4
    """
    key_exact, key_start, key_chains = jax.random.split(key, 3)
    energy = two_bumps_energy()
    start = jax.random.uniform(key_start, (chains, 1), minval=-5.0, maxval=5.0)
    ran = sample(energy, RandomWalk(1.0), start, key=key_chains, draws=draws, burn_in=1000, progress=progress)
    independent = np.asarray(energy.sample(key_exact, (draws,)), float).ravel()
    summary, column = ran.summary(), np.asarray(ran.draws, float)[..., 0]
    in_first = _first_share(column)
    of_share = summarise(jnp.asarray(in_first)[..., None], ran.stats)
    cdf = mixture_cdf([0.6, 0.4], [-2.0, 4.0], [1.0, 2.0])
    sets = {"chain": column[0], "chains": column, "exact_samples": independent}
    numbers = {
        "kernel": "RandomWalk(1)",
        "chains": chains,
        "draws": draws,
        "burn_in": 1000,
        **mixing(summary),
        "mean": beside(_EXACT["mean"], column, float(summary.mcse[0]), independent),
        "first_mass": beside(_EXACT["first_mass"], in_first, float(of_share.mcse[0]), _first_share(independent)),
        "total_variation": {name: histogram_distance(x, _EDGES, cdf) for name, x in sets.items()},
        "ks": {name: ks_distance(x, cdf) for name, x in sets.items()},
    }
    figure = canvas(11, 5.4)
    grid = figure.add_gridspec(2, 2, width_ratios=[1.25, 1.0])
    x = np.linspace(_LOW, _HIGH, 800)
    density = np.exp(-np.asarray(jax.vmap(energy)(jnp.asarray(x, jnp.float32)[:, None])) - _LOG_Z)
    title = f"One chain of {draws:_} draws, proposal N(x, 1)".replace("_", " ")
    share = numbers["first_mass"]["chain"]
    _histogram(figure, grid[:, 0], x, density, column[0], title, [share, 1 - share]).set_xlim(_LOW, _HIGH)
    shown = min(draws, 5000)
    note = f"the chain's first {shown:_} draws".replace("_", " ")
    draw_trace(figure, grid[0, 1], column[:1, :shown], "x", note=note)
    draw_running_mean(figure, grid[1, 1], column, "x", true_mean=_EXACT["mean"])
    return figure, numbers


def _first_share(x: np.ndarray) -> np.ndarray:
    """The probability that a point belongs to the first bump."""
    first = 3 * np.exp(-((x + 2) ** 2) / 2)
    return first / (first + np.exp(-((x - 4) ** 2) / 8))
