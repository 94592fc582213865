"""Figures of an evaluation: numbers with their intervals, and the energies of two sets of data."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from thalweg.plot.points import frame, histogram
from thalweg.plot.style import LIGHT, WIDTH, Theme, canvas, legend, panel
from thalweg.report.numbers import finite_number

_ROW = 0.72  # inches


class Interval(NamedTuple):
    """A number with its interval, and the value of a perfect model, if it is known."""

    name: str
    value: float
    low: float
    high: float
    ideal: float | None = None


def interval_figure(intervals: Sequence[Interval], confidence: float, *, theme: Theme = LIGHT) -> Figure:
    """Numbers with their intervals, one line each with an axis of its own, since their units differ.

    >>> figure = interval_figure([Interval("energy_gap", 0.1, -0.1, 0.3, 0.0)], 0.95)
    >>> len(figure.axes)
    1
    """
    if not intervals:
        raise ValueError("intervals: expected at least one number with an interval to draw, got none; evaluate first")
    figure = canvas(WIDTH, _ROW * len(intervals) + 0.5, theme)
    grid = figure.add_gridspec(len(intervals), 1)
    for place, each in enumerate(intervals):
        axes = panel(figure, grid[place], theme)
        _draw(axes, each, confidence, theme)
        if place == 0:
            # above the first line, so that it hides no number
            legend(axes, theme, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0)
    return figure


def _draw(axes: Axes, each: Interval, confidence: float, theme: Theme) -> None:
    name = each.name.replace("_", " ")
    axes.plot([each.low, each.high], [0, 0], color=theme.data, linewidth=2.4, label=f"{100 * confidence:g} % interval")
    axes.plot([each.value], [0], "o", color=theme.data, markersize=6)
    # drawn for the legend even where it is not known
    at = np.nan if each.ideal is None else each.ideal
    axes.plot([at, at], [-0.8, 0.8], color=theme.held_out, linewidth=1.6, linestyle="--", label="a perfect model")
    shown = [x for x in (each.low, each.high, each.value, each.ideal) if x is not None]
    margin = 0.12 * (max(shown) - min(shown)) or 0.1 * max(1.0, abs(each.value))
    axes.set_xlim(min(shown) - margin, max(shown) + margin)
    axes.set_ylim(-1, 1)
    axes.set_yticks([0], [name])
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.ticklabel_format(axis="x", useOffset=False)  # a number is read at its tick
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def as_interval(row: Any) -> Interval | None:
    """The interval of a row of ``results.json``; None if it has none, or if its number is exact.

    >>> as_interval({"name": "mmd", "value": 0.5, "low": 0.25, "high": 0.75}).low
    0.25
    """
    value, low, high, ideal = (finite_number(row.get(name)) for name in ("value", "low", "high", "ideal"))
    if value is None or low is None or high is None or low == high:
        return None
    return Interval(str(row.get("name")), value, low, high, ideal)


def energies_of_two(inside: np.ndarray, outside: np.ndarray, other: str, *, theme: Theme = LIGHT) -> Figure:
    """Histograms of the energies of rows of the run and of other data.

    Energies of other data are often far higher: the axis ends at twice the range of the run's rows above them, and the
    legend says how many lie beyond.

    >>> energies_of_two(np.arange(30.0), np.full(30, 1e6), "rings").axes[0].get_xlabel()
    'energy E(x)'
    """
    (low, high), (least, most) = np.ravel(frame(inside.reshape(-1, 1))), np.quantile(outside, (0.002, 0.998))
    reach = 2 * (high - low)
    edges = np.linspace(max(min(low, least), low - reach), min(max(high, most), high + reach), 60)
    figure = canvas(WIDTH, 3.4, theme)
    axes = panel(figure, (1, 1, 1), theme, title=f"Energies against {other}", x="energy E(x)", y="density")
    histogram(axes, inside, edges, theme.data, f"{len(inside)} rows of the run", filled=True)
    histogram(axes, outside, edges, theme.samples, f"{len(outside)} rows of {other}", filled=False)
    legend(axes, theme)
    return figure
