"""Plots of samples: images in a grid, points in the plane, numbers in histograms."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from thalweg.core import whole_number
from thalweg.plot.draws import name_of, points_of
from thalweg.plot.points import bins, draw_mosaic, frame, histogram, is_image, scatter, spread
from thalweg.plot.style import LIGHT, WIDTH, Theme, canvas, legend, panel

_NOUNS = {"samples": "samples", "data": "real ones"}
_COLUMNS = 24  # histograms on a page, at most


def samples(
    samples: Any,
    data: Any = None,
    *,
    names: Sequence[str] | None = None,
    most: int = 96,
    columns: int | None = None,
    limits: tuple[float, float] | None = None,
    theme: Theme = LIGHT,
) -> Figure:
    """Samples, with data beside them: images in a grid, points in the plane, otherwise a histogram for each column.

    Args:
        samples: ``(n, *event)``, or `Chains`, whose draws are pooled. Events (height, width), (height, width, 1) and
            (height, width, 3) are images. Of other events with more than two coordinates, the first 24 are drawn.
        data: real points of the same shape, or None.
        names: the names of the columns; by default ``x₁``, ``x₂``, ….
        most: how many images to show.
        columns: the number of columns in the grid of images; by default 16, or 8 with data.
        limits: the pixel values of black and white; by default 0 and 1 if all values are in that range, and -1 and 1
            otherwise.
        theme: the colours.

    >>> len(samples(np.zeros((10, 8, 8, 1))).axes), len(samples(np.random.default_rng(0).normal(size=(50, 5))).axes)
    (1, 5)
    """
    x, real = points_of(samples), None if data is None else points_of(data, "data")
    if real is not None and real.shape[1:] != x.shape[1:]:
        raise ValueError(
            f"expected data of the samples' shape {x.shape[1:]}, got {real.shape[1:]}; compare like with like"
        )
    sets = {"samples": x} if real is None else {"samples": x, "data": real}
    if is_image(x.shape[1:]):
        across = 16 // len(sets) if columns is None else whole_number("columns", columns)
        return _images(sets, most, across, _shades(sets) if limits is None else limits, theme)
    event = x.shape[1:]
    flat = {name: points.reshape(len(points), -1) for name, points in sets.items()}
    width = flat["samples"].shape[1]
    if names is not None and len(names) != width:
        raise ValueError(f"expected a name for each of {width} columns, got {len(names)}; give as many")
    labels = [name_of(event, place) for place in range(width)] if names is None else list(names)
    return _plane(flat, labels, theme) if width == 2 else _histograms(flat, labels, theme)


def _shades(sets: dict[str, np.ndarray]) -> tuple[float, float]:
    inside = all(points.min() >= 0 and points.max() <= 1 for points in sets.values())
    return (0.0, 1.0) if inside else (-1.0, 1.0)


def _images(sets: dict[str, np.ndarray], most: int, columns: int, limits: tuple[float, float], theme: Theme) -> Figure:
    shown = {name: spread(images, most // len(sets)) for name, images in sets.items()}
    columns = min(columns, max(len(images) for images in shown.values()))
    lines = max(-(-len(images) // columns) for images in shown.values())
    tall = next(iter(sets.values())).shape[1] / next(iter(sets.values())).shape[2]
    figure = canvas(WIDTH, WIDTH / len(sets) / columns * lines * tall + 0.4, theme)
    for number, (name, images) in enumerate(shown.items(), start=1):
        title = f"{len(images)} of {len(sets[name])} {_NOUNS[name]}"
        axes = panel(figure, (1, len(sets), number), theme, title=title)
        draw_mosaic(axes, images, columns, limits)
        axes.set_facecolor(theme.muted)  # shows between the images, whose edges may be as white as the paper
    return figure


def _histograms(sets: dict[str, np.ndarray], names: list[str], theme: Theme) -> Figure:
    count = min(len(names), _COLUMNS)
    across = min(count, 3)
    lines = -(-count // across)
    figure = canvas(WIDTH, 3.6 if count == 1 else 2.4 * lines + 0.3, theme)
    for place in range(count):
        title = " and ".join(sets).capitalize() if count == 1 else names[place]
        axes = panel(figure, (lines, across, place + 1), theme, title=title, x=names[place], y="density")
        columns = {name: x[:, place].astype(float) for name, x in sets.items()}
        edges = bins(*columns.values(), most=60 if count == 1 else 30)
        for name, x in columns.items():
            label = f"{len(x)} {_NOUNS[name]}"
            histogram(axes, x, edges, getattr(theme, name), label, filled=name == "samples", tell_outside=count == 1)
        if count == 1:
            legend(axes, theme)
    if count > 1:
        figure.legend(
            *figure.axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=len(sets), fontsize=8.5,
            labelcolor=theme.ink, frameon=False,
        )  # fmt: skip
    if len(names) > count:
        figure.supxlabel(f"the first {count} of {len(names)} columns", fontsize=8.5, color=theme.muted)
    return figure


def _plane(sets: dict[str, np.ndarray], names: list[str], theme: Theme) -> Figure:
    low, high = frame(*sets.values())
    tall = float(np.clip((high[1] - low[1]) / (high[0] - low[0]), 0.4, 1.2))
    width = WIDTH / 2
    figure = canvas(width * len(sets), width * tall + 0.5, theme)
    for number, (name, x) in enumerate(sets.items(), start=1):
        axes = panel(figure, (1, len(sets), number), theme, title=f"{len(x)} {_NOUNS[name]}", x=names[0], y=names[1])
        scatter(axes, x, low, high, getattr(theme, name), theme)
    return figure
