"""Plots of classifiers and detectors: the reliability diagram and ROC curves."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from thalweg.plot.style import LIGHT, Theme, canvas, chain_colours, legend, panel

_SIDE = 4.6  # inches


def reliability(table: Any, *, theme: Theme = LIGHT) -> Figure:
    """The reliability diagram: accuracy over confidence per bin, and how many rows each bin has.

    Bars that end on the dashed diagonal belong to a calibrated classifier; bars below it to one that is too sure. The
    thin lines are two standard errors of a proportion around the accuracy.

    Args:
        table: what `thalweg.evaluate.reliability` returns.
        theme: the colours.

    >>> import numpy as np
    >>> import thalweg as tw
    >>> p = np.random.default_rng(0).dirichlet(np.ones(3), size=200)
    >>> tw.plot.reliability(tw.evaluate.reliability(p, p.argmax(axis=1), bins=10)).axes[0].get_ylabel()
    'accuracy'
    """
    edges, count, confidence, accuracy = _columns(table, ("edges", "count", "confidence", "accuracy"), "table")
    if not len(edges) - 1 == len(count) == len(confidence) == len(accuracy) or count.sum() <= 0:
        raise ValueError(
            f"table: expected edges and one count, confidence and accuracy per bin, got lengths {len(edges)}, "
            f"{len(count)}, {len(confidence)} and {len(accuracy)}; give what thalweg.evaluate.reliability returns"
        )
    filled = count > 0
    share = count / count.sum()
    error = float(share[filled] @ np.abs(accuracy - confidence)[filled])
    figure = canvas(_SIDE, _SIDE + 1.2, theme)
    grid = figure.add_gridspec(2, 1, height_ratios=[3.2, 1])
    title = f"Reliability of {int(count.sum())} rows, ECE {error:.3f}"
    axes = panel(figure, grid[0], theme, title=title, y="accuracy")
    widths = np.diff(edges)
    axes.bar(
        edges[:-1][filled], accuracy[filled], widths[filled], align="edge", color=theme.data, alpha=0.55,
        edgecolor=theme.paper, linewidth=0.8, label="accuracy in the bin",
    )  # fmt: skip
    spread = 2 * np.sqrt(accuracy * (1 - accuracy) / np.where(filled, count, 1))[filled]
    low, high = np.maximum(accuracy[filled] - spread, 0), np.minimum(accuracy[filled] + spread, 1)
    axes.vlines(confidence[filled], low, high, color=theme.ink, linewidth=1.0)
    axes.plot(
        confidence[filled],
        accuracy[filled],
        "o",
        color=theme.ink,
        markersize=3.5,
        label="accuracy ± 2 SE, at the mean confidence",
    )
    axes.plot([0, 1], [0, 1], color=theme.muted, linewidth=1.2, linestyle="--", label="calibrated")
    start = float(min(edges[:-1][filled].min(), 1 - 1e-3))
    axes.set_xlim(start, 1)
    axes.set_ylim(0, 1)
    axes.tick_params(labelbottom=False)
    legend(axes, theme, loc="best")
    below = panel(figure, grid[1], theme, x="confidence (top probability)", y="share of rows")
    below.bar(
        edges[:-1], share, widths, align="edge", color=theme.muted, alpha=0.7, edgecolor=theme.paper, linewidth=0.8
    )
    below.set_xlim(start, 1)
    return figure


def roc(curves: Any, *, theme: Theme = LIGHT) -> Figure:
    """ROC curves: the share of outside points that is flagged over the share of inside points that is.

    The dashed diagonal is chance. The dotted line is where 95 % of the inside points are accepted: there a curve has
    the height ``1 - FPR95``.

    Args:
        curves: what `thalweg.evaluate.roc_curve` returns, or a dictionary of up to four of them by name.
        theme: the colours.

    >>> import numpy as np
    >>> import thalweg as tw
    >>> scores = np.random.default_rng(0).normal(size=(2, 100))
    >>> tw.plot.roc(tw.evaluate.roc_curve(scores[0], scores[1] + 2)).axes[0].get_xlabel()
    'share of inside points flagged'
    """
    named = curves if isinstance(curves, Mapping) else {"": curves}
    colours, _ = chain_colours(4, theme)
    if not 1 <= len(named) <= len(colours):
        raise ValueError(f"curves: expected between 1 and {len(colours)}, got {len(named)}; draw several figures")
    figure = canvas(_SIDE, _SIDE, theme)
    axes = panel(
        figure, (1, 1, 1), theme, title="Inside against outside", x="share of inside points flagged",
        y="share of outside points flagged",
    )  # fmt: skip
    for (name, curve), colour in zip(named.items(), colours, strict=False):
        inside, outside = _columns(curve, ("inside", "outside"), "curves")
        if len(inside) != len(outside) or len(inside) < 2 or not (inside[-1] == outside[-1] == 1):
            raise ValueError(
                "curves: expected shares of inside and outside points that end at 1, got others; "
                "give what thalweg.evaluate.roc_curve returns"
            )
        area = float(np.sum(np.diff(inside) * (outside[1:] + outside[:-1]) / 2))
        label = f"{name}, AUROC {area:.3f}" if name else f"AUROC {area:.3f}"
        axes.plot(inside, outside, color=colour, linewidth=1.8, label=label)
    axes.plot([0, 1], [0, 1], color=theme.muted, linewidth=1.2, linestyle="--", label="chance")
    axes.axvline(0.05, color=theme.muted, linewidth=1.0, linestyle=":", label="95 % of the inside accepted")
    axes.set_xlim(-0.01, 1)
    axes.set_ylim(0, 1.01)
    axes.set_aspect("equal")
    legend(axes, theme, loc="lower right")
    return figure


def _columns(table: Any, names: tuple[str, ...], what: str) -> list[np.ndarray]:
    """The named fields of a table as arrays of one axis; raises if it is another object."""
    try:
        columns = [np.asarray(getattr(table, name), float) for name in names]
    except (AttributeError, TypeError, ValueError):
        columns = []
    if not columns or any(column.ndim != 1 for column in columns):
        source = "reliability" if what == "table" else "roc_curve"
        raise ValueError(
            f"{what}: expected {', '.join(names)} as arrays, got {type(table).__name__}; give what "
            f"thalweg.evaluate.{source} returns"
        )
    return columns
