"""Curves and histograms of a run's numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from thalweg.plot.draws import points_of
from thalweg.plot.points import bins, histogram
from thalweg.plot.style import LIGHT, WIDTH, Theme, canvas, legend, panel

Series = np.ndarray | Sequence[float] | tuple[np.ndarray, np.ndarray]

# for each panel: its title, its vertical axis, and the metrics in it
_TOGETHER = (
    ("Loss", "loss", ("loss", "energy_gap")),
    ("Mean energy", "energy", ("energy_data", "energy_samples")),
    ("Gradient norm along the chains", "mean ‖∇E(x)‖", ("gradient_norm",)),
    ("Acceptance", "acceptance probability", ("acceptance",)),
)


def training_curves(
    history: Mapping[str, Series], evaluations: Mapping[str, Series] | None = None, *, theme: Theme = LIGHT
) -> Figure:
    """Every metric over the updates: single values faint, their running mean strong; evaluations as dots.

    Metrics of an objective that never change get no panel; their values are listed below the figure. Evaluations
    ``NAME_low`` and ``NAME_high`` are drawn as an error band around ``NAME``.

    Args:
        history: maps a metric's name to its values, one per update (``Run.history``), or to ``(updates, values)``.
        evaluations: the same for the numbers that callbacks returned.
        theme: the colours.

    >>> figure = training_curves({"loss": [3.0, 2.0, 1.0], "gradient_norm": [0.1, 0.2, 0.2]})
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['loss', 'mean ‖∇E(x)‖']
    """
    lines = {name: _series(series) for name, series in history.items()}
    dots = {name: _series(series) for name, series in (evaluations or {}).items()}
    if not lines and not dots:
        raise ValueError("history: expected at least one metric to draw, got none; train for an update first")
    bands = {name: (dots[f"{name}_low"], dots[f"{name}_high"]) for name in dots if _has_band(name, dots)}
    ends = {f"{name}_{end}" for name in bands for end in ("low", "high")}
    dots = {name: dots[name] for name in dots if name not in ends}
    grouped = [name for *_, names in _TOGETHER for name in names]
    panels = [(title, label, [name for name in names if name in lines]) for title, label, names in _TOGETHER]
    panels = [each for each in panels if each[2]]
    others = [name for name in lines if name not in grouped]
    still = [name for name in others if _is_constant(lines[name][1])] if panels or dots else []
    panels += [(_words(name).capitalize(), _words(name), [name]) for name in others if name not in still]
    total = len(panels) + len(dots)
    rows, columns = -(-total // 2), min(total, 2)
    figure = canvas(WIDTH, 2.7 * rows, theme)
    for number, (title, label, names) in enumerate(panels, start=1):
        axes = panel(figure, (rows, columns, number), theme, title=title, x="update", y=label)
        _curves(axes, {name: lines[name] for name in names}, theme)
    for number, (name, (updates, values)) in enumerate(dots.items(), start=len(panels) + 1):
        title = f"{_words(name).capitalize()} (evaluation)"
        axes = panel(figure, (rows, columns, number), theme, title=title, x="update", y=_words(name))
        axes.plot(updates, values, "o-", color=theme.held_out, markersize=4, linewidth=1.4)
        if name in bands:
            (places, low), (_, high) = bands[name]
            axes.fill_between(places, low, high, color=theme.held_out, alpha=0.25, linewidth=0)
    if still:
        constants = ", ".join(f"{_words(name)} {round(lines[name][1].mean(), 5) + 0.0:g}" for name in still)
        figure.supxlabel(f"unchanged throughout: {constants}", fontsize=8.5, color=theme.muted)
    return figure


def _has_band(name: str, series: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> bool:
    """Whether both ends of an interval around ``name`` are there, at the same updates."""
    ends = [series.get(f"{name}_{end}") for end in ("low", "high")]
    return all(end is not None and np.array_equal(end[0], series[name][0]) for end in ends)


def _is_constant(values: np.ndarray) -> bool:
    """Whether numbers differ only by rounding errors."""
    return len(values) > 1 and bool(np.ptp(values) <= 2e-6 * max(1.0, float(np.abs(values).mean())))


def _curves(axes: Axes, lines: dict[str, tuple[np.ndarray, np.ndarray]], theme: Theme) -> None:
    names = {name: _words(name) for name in lines} | {"energy_data": "data", "energy_samples": "samples"}
    together, gap = list(lines), "energy_gap" in lines
    if "loss" in lines and gap and _are_equal(lines["loss"][1], lines["energy_gap"][1]):
        lines = {"loss": lines["loss"]}
        names["loss"] = "loss = energy gap"
    colours = {"energy_samples": theme.samples, "energy_gap": theme.extra}
    for name, (updates, values) in lines.items():
        colour = colours.get(name, theme.data)
        window = len(values) // 50
        axes.plot(updates, values, color=colour, linewidth=0.8 if window > 1 else 1.6, alpha=0.35 if window > 1 else 1)
        if window > 1:
            mean = np.convolve(values, np.full(window, 1 / window), mode="valid")
            middle = np.convolve(updates, np.full(window, 1 / window), mode="valid")
            axes.plot(middle, mean, color=colour, linewidth=1.8)
        axes.plot([], [], color=colour, linewidth=1.8, label=names[name])
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if len(together) > 1:
        legend(axes, theme, loc="best")
    if gap:
        axes.set_title("an energy gap is no convergence signal", loc="right", fontsize=8.5, color=theme.muted)


def _are_equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and np.allclose(a, b, equal_nan=True)


def energy_histograms(data: Any, samples: Any, held_out: Any = None, *, theme: Theme = LIGHT) -> Figure:
    """Histograms of the energies of data, held-out data and samples; if the model fits, they agree.

    >>> energy_histograms(np.zeros(10), np.ones(10)).axes[0].get_xlabel()
    'energy E(x)'
    """
    sets = {"data": data, "samples": samples} | ({} if held_out is None else {"held_out": held_out})
    values = {name: points_of(x, f"energies of {_words(name)}").ravel() for name, x in sets.items()}
    names = {"data": "training data", "samples": "samples", "held_out": "held-out data"}
    figure = canvas(WIDTH, 3.4, theme)
    axes = panel(figure, (1, 1, 1), theme, title="Energies", x="energy E(x)", y="density")
    edges = bins(*values.values())
    for name, x in values.items():
        histogram(axes, x, edges, getattr(theme, name), f"{len(x)} {names[name]}", filled=name == "data")
    legend(axes, theme)
    return figure


def class_shares(shares: Sequence[float], labels: Sequence[Any], *, theme: Theme = LIGHT) -> Figure:
    """The share of the samples that a classifier assigns to each class; the dashed line is an even share.

    >>> class_shares([0.5, 0.5], ["cat", "dog"]).axes[0].get_ylabel()
    'share of samples'
    """
    figure = canvas(WIDTH, 2.6, theme)
    axes = panel(figure, (1, 1, 1), theme, title="Classes of the samples", x="class", y="share of samples")
    axes.bar(np.arange(len(shares)), shares, color=theme.samples, width=0.7)
    axes.axhline(1 / len(shares), color=theme.ink, linewidth=1.2, linestyle="--", label="an even share")
    axes.set_xticks(np.arange(len(shares)), [str(label) for label in labels])
    axes.grid(False, axis="x")
    axes.set_ylim(0, 1.25 * max(shares))
    legend(axes, theme)
    return figure


def _series(series: Series) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(series, tuple):
        return np.asarray(series[0]), np.asarray(series[1], float)
    values = np.asarray(series, float)
    return np.arange(1, len(values) + 1), values


def _words(name: str) -> str:
    return name.replace("_", " ")
