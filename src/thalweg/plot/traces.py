"""Plots of chains that show whether they have mixed: trace, ranks, autocorrelation, running mean.

Each takes a `Chains` or its draws ``(chains, draws, *event)`` and one ``coordinate``: an index into the flattened
point, or a tuple that indexes the event. To plot a function of the points, give its values ``(chains, draws)`` and its
``name``. The ``draw_`` functions draw the same plots into a panel of a larger figure, from the draws
``(chains, draws)`` of one coordinate and its name.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from thalweg.plot.draws import Coordinate, draws_of, name_of, place_of
from thalweg.plot.points import spread
from thalweg.plot.style import LIGHT, WIDTH, Theme, canvas, chain_colours, legend, panel
from thalweg.samplers.diagnostics import summarise

_MOST_POINTS, _MOST_ROWS = 2000, 8  # points along a line, more than a page has pixels; chains with a row of their own


def trace(chains: Any, coordinate: Coordinate = 0, *, name: str | None = None, theme: Theme = LIGHT) -> Figure:
    """The coordinate over the draws, one line per chain: mixed chains look alike and have no trend.

    Args:
        chains: `Chains` or draws ``(chains, draws, *event)``; a chain that diverged is drawn as far as it is finite.
        coordinate: an index into the flattened point, or a tuple that indexes the event.
        name: what to call the coordinate; by default ``x₁``, ``x₂``, ….
        theme: the colours.

    >>> trace(np.random.default_rng(0).normal(size=(4, 100, 2)), 1).axes[0].get_ylabel()
    'x₂'
    """
    figure = canvas(WIDTH, 3.0, theme)
    draw_trace(figure, (1, 1, 1), *coordinate_of(chains, coordinate, name, finite=False), theme)
    return figure


def rank(chains: Any, coordinate: Coordinate = 0, *, name: str | None = None, theme: Theme = LIGHT) -> Figure:
    """Histograms of the ranks of each chain's draws among all draws, which are uniform for mixed chains.

    The dashed line is the even share. Up to 8 chains have a row each; more are overlaid. Ties, as in discrete spaces,
    are ranked in random order. Reference: Vehtari et al. (2021), Bayesian Analysis 16(2), §4.2.
    The arguments are those of `trace`.

    >>> rank(np.random.default_rng(0).normal(size=(4, 100))).axes[0].get_xlabel()
    'rank among all draws'
    """
    figure = canvas(WIDTH, 3.4, theme)
    draw_ranks(figure, (1, 1, 1), *coordinate_of(chains, coordinate, name), theme)
    return figure


def autocorrelation(
    chains: Any,
    coordinate: Coordinate = 0,
    *,
    lags: int | None = None,
    name: str | None = None,
    theme: Theme = LIGHT,
) -> Figure:
    """The correlation of draws over their lag, averaged over the chains; the band is that of independent draws.

    ``lags`` is the number of lags to show; by default enough to see the correlation vanish. The other arguments are
    those of `trace`.

    >>> autocorrelation(np.random.default_rng(0).normal(size=(4, 100))).axes[0].get_xlabel()
    'lag in draws'
    """
    figure = canvas(WIDTH, 3.0, theme)
    draw_autocorrelation(figure, (1, 1, 1), *coordinate_of(chains, coordinate, name), theme, lags)
    return figure


def running_mean(
    chains: Any,
    coordinate: Coordinate = 0,
    *,
    true_mean: Any = None,
    name: str | None = None,
    theme: Theme = LIGHT,
) -> Figure:
    """The running mean of each chain (faint) and of all chains (strong, ± 2 Monte Carlo standard errors).

    ``true_mean``, of the coordinate or of the whole point, is drawn as a dashed line. The other arguments are those of
    `trace`.

    >>> draws = np.random.default_rng(0).normal(size=(4, 100))
    >>> running_mean(draws, true_mean=0.0).axes[0].get_xlabel()
    'draws per chain'
    """
    figure = canvas(WIDTH, 3.0, theme)
    mean = _mean_of(true_mean, draws_of(chains).shape[2:], coordinate)
    draw_running_mean(figure, (1, 1, 1), *coordinate_of(chains, coordinate, name), theme, mean)
    return figure


def mixing(
    chains: Any, coordinates: Sequence[Coordinate] | None = None, *, true_mean: Any = None, theme: Theme = LIGHT
) -> Figure:
    """Trace, ranks, autocorrelation and running mean of each of ``coordinates`` (by default the first two).

    The other arguments are those of `running_mean`.

    >>> len(mixing(np.random.default_rng(0).normal(size=(4, 100, 3)), [0, 2]).axes)
    8
    """
    event = draws_of(chains).shape[2:]
    chosen = range(min(2, math.prod(event))) if coordinates is None else coordinates
    if len(chosen) == 0:
        raise ValueError("coordinates: expected at least one, got none; give for example [0]")
    figure = canvas(WIDTH, 5.2 * len(chosen), theme)
    grid = figure.add_gridspec(2 * len(chosen), 2)
    for row, coordinate in enumerate(chosen):
        column, name = coordinate_of(chains, coordinate)
        draw_trace(figure, grid[2 * row, 0], column, name, theme)
        draw_ranks(figure, grid[2 * row, 1], column, name, theme)
        draw_autocorrelation(figure, grid[2 * row + 1, 0], column, name, theme)
        mean = _mean_of(true_mean, event, coordinate)
        draw_running_mean(figure, grid[2 * row + 1, 1], column, name, theme, mean)
    return figure


def draw_trace(figure: Figure, place: Any, column: np.ndarray, name: str, theme: Theme = LIGHT, note: str = "") -> None:
    """Draw a trace plot; long chains are thinned to what a page can show."""
    count = "one chain" if len(column) == 1 else f"{len(column)} chains"
    axes = panel(figure, place, theme, title=f"Trace of {name}, {note or count}", x="draw", y=name)
    shown = spread(np.arange(column.shape[1]), _MOST_POINTS)
    colours, alpha = chain_colours(len(column), theme)
    for chain, colour in zip(column, colours, strict=True):
        axes.plot(shown + 1, chain[shown], color=colour, alpha=0.8 * alpha, linewidth=0.6)
    axes.margins(x=0.01)


def draw_ranks(figure: Figure, place: Any, column: np.ndarray, name: str, theme: Theme = LIGHT) -> None:
    """Draw histograms of pooled ranks, one per chain, with the even share as a dashed line."""
    chains, draws = column.shape
    bins = int(np.clip(draws // 5, 1, 20))
    edges = np.linspace(0.5, chains * draws + 0.5, bins + 1)
    counts = np.stack([np.histogram(chain, edges)[0] for chain in pooled_ranks(column)])
    even = draws / bins
    colours, alpha = chain_colours(chains, theme)
    y = "chain" if chains <= _MOST_ROWS else "draws in a bin"
    axes = panel(figure, place, theme, title=f"Ranks of {name}", x="rank among all draws", y=y)
    axes.set_xlim(edges[0], edges[-1])
    if chains > _MOST_ROWS:
        # lines through the middles of the bins, since with so many chains the sides of the bars would hide everything
        axes.plot((edges[:-1] + edges[1:]) / 2, counts.T, color=colours[0], alpha=alpha, linewidth=0.8)
        axes.axhline(even, color=theme.ink, linewidth=1.2, linestyle="--", label="even share")
        axes.set_ylim(0, 1.2 * max(counts.max(), even))
        legend(axes, theme, loc="upper right")
        return
    # a row for each chain, the first on top: bars start at the row's floor, and a row is at least twice the even share
    step = max(2 * even, 1.08 * counts.max())
    floors = step * np.arange(chains)[::-1]
    for floor, heights, colour in zip(floors, counts, colours, strict=True):
        axes.stairs(floor + heights, edges, baseline=floor, fill=True, color=colour, alpha=0.5)
        axes.axhline(floor, color=theme.muted, linewidth=0.6)
        axes.axhline(floor + even, color=theme.ink, linewidth=1.0, linestyle="--")
    axes.lines[-1].set_label("even share")
    axes.set_yticks(floors + even, [str(i + 1) for i in range(chains)])
    axes.set_ylim(0, chains * step)
    axes.grid(False, axis="y")
    legend(axes, theme, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)


def draw_autocorrelation(
    figure: Figure, place: Any, column: np.ndarray, name: str, theme: Theme = LIGHT, lags: int | None = None
) -> None:
    """Draw the autocorrelation, and the band ``±1.96/√n`` for the n draws of all chains together."""
    rho, band = autocorrelations(column), 1.96 / math.sqrt(column.size)
    gone = np.flatnonzero(np.abs(rho) < band)
    if lags is None:
        lags = max(20, 2 * int(gone[0]) if len(gone) else len(rho))
    elif lags < 1:
        raise ValueError(f"lags: expected at least 1, got {lags}; leave it out to have it chosen")
    lags = min(lags, len(rho) - 1)
    axes = panel(figure, place, theme, title=f"Autocorrelation of {name}", x="lag in draws", y="correlation")
    axes.axhspan(-band, band, color=theme.muted, alpha=0.25, linewidth=0, label="±1.96/√n")
    axes.axhline(0, color=theme.muted, linewidth=0.8)
    axes.plot(np.arange(lags + 1), rho[: lags + 1], color=theme.data, linewidth=1.6)
    axes.set_ylim(min(-0.1, 1.1 * float(rho[: lags + 1].min())), 1.05)
    axes.margins(x=0.01)
    legend(axes, theme, loc="upper right")


def draw_running_mean(
    figure: Figure, place: Any, column: np.ndarray, name: str, theme: Theme = LIGHT, true_mean: float | None = None
) -> None:
    """Draw the running means of the chains and of all draws, with a band of two standard errors."""
    chains, draws = column.shape
    number = np.arange(1, draws + 1)
    means = np.cumsum(column, axis=1) / number
    middle = means.mean(axis=0)
    # the error after t draws follows from the one after all of them: it falls as 1/√t
    error = _mcse(column) * np.sqrt(draws / number)
    shown = spread(np.arange(draws), _MOST_POINTS)
    axes = panel(figure, place, theme, title=f"Running mean of {name}", x="draws per chain", y=f"mean of {name}")
    colours, alpha = chain_colours(chains, theme)
    if chains > 1:
        for chain, colour in zip(means, colours, strict=True):
            axes.plot(number[shown], chain[shown], color=colour, alpha=0.6 * alpha, linewidth=0.8)
    low, high = middle - 2 * error, middle + 2 * error
    label = "mean of all chains ± 2 MCSE" if chains > 1 else "mean ± 2 MCSE"
    axes.fill_between(number[shown], low[shown], high[shown], color=theme.data, alpha=0.2, linewidth=0)
    axes.plot(number[shown], middle[shown], color=theme.data, linewidth=1.8, label=label)
    if true_mean is not None:
        axes.axhline(true_mean, color=theme.ink, linewidth=1.2, linestyle="--", label=f"true mean {true_mean:.3g}")
    # the running mean of the first draws varies too much to set the limits
    late = means[:, draws // 20 :]
    sights = [late.min(), late.max(), low[draws // 20], high[draws // 20], *([] if true_mean is None else [true_mean])]
    margin = 0.1 * (max(sights) - min(sights)) or 0.5
    axes.set_ylim(min(sights) - margin, max(sights) + 2 * margin)
    axes.margins(x=0.01)
    legend(axes, theme, loc="upper right")


def pooled_ranks(column: np.ndarray) -> np.ndarray:
    """The rank, from 1, of every draw among those of all chains; equal draws are ranked in random order.

    >>> pooled_ranks(np.array([[0.3, 0.1], [0.2, 0.4]])).tolist()
    [[3, 1], [2, 4]]
    """
    # ranked by position, ties of the first chain would all come before those of the last, and the chains seem to differ
    order = np.lexsort((np.random.default_rng(0).random(column.size), column.ravel()))
    ranks = np.empty(column.size, int)
    ranks[order] = np.arange(1, column.size + 1)
    return ranks.reshape(column.shape)


def autocorrelations(column: np.ndarray) -> np.ndarray:
    """``ρ_k`` for lags ``0 … draws - 1``, by FFT, the autocovariances averaged over the chains.

    Deviations are from the mean of all chains, so ρ does not vanish if chains are in different places.

    >>> bool(autocorrelations(np.array([[1.0, -1.0] * 50]))[1] < -0.9)
    True
    """
    draws = column.shape[1]
    centred = column - column.mean()
    size = 2 ** math.ceil(math.log2(2 * draws))  # twice the length, so that the ends do not wrap around
    power = np.abs(np.fft.rfft(centred, size, axis=1)) ** 2
    covariance = np.fft.irfft(power.mean(axis=0), size)[:draws]
    if not covariance[0] > 0:
        raise ValueError("expected a coordinate that moves, got the same value throughout; it has no autocorrelation")
    return covariance / covariance[0]


def coordinate_of(
    chains: Any, coordinate: Coordinate, name: str | None = None, finite: bool = True
) -> tuple[np.ndarray, str]:
    """The draws ``(chains, draws)`` of one coordinate, and its name."""
    draws = draws_of(chains)
    event = draws.shape[2:]
    place = place_of(event, coordinate)
    column = draws.reshape(*draws.shape[:2], -1)[:, :, place].astype(float)
    if finite and not np.isfinite(column).all():
        raise ValueError(
            f"expected finite draws of coordinate {coordinate}, got others; see plot.trace, take a smaller step size"
        )
    return column, name or name_of(event, place)


def _mean_of(true_mean: Any, event: tuple[int, ...], coordinate: Coordinate) -> float | None:
    if true_mean is None:
        return None
    mean = np.asarray(true_mean, float)
    if mean.ndim and mean.shape != event:
        raise ValueError(f"expected true_mean as a number or of the event's shape {event}, got {mean.shape}")
    return float(np.broadcast_to(mean, event).reshape(-1)[place_of(event, coordinate)])


def _mcse(column: np.ndarray) -> float:
    if np.ptp(column) == 0:
        return 0.0
    # a single chain is split in two, which can be compared with each other
    several = column if len(column) > 1 else column[:, : column.shape[1] // 2 * 2].reshape(2, -1)
    return float(summarise(jnp.asarray(several)[..., None], {}).mcse[0])
