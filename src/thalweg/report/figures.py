"""The figures of a report: functions of arrays that return a `matplotlib.figure.Figure`; `png` encodes a figure.

None of them uses ``pyplot``, so they have no global state and may be called from any thread.
"""

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from thalweg import plot
from thalweg.plot.points import as_colour, gap_of, is_image, mosaic, spread
from thalweg.plot.style import DARK, LIGHT, WIDTH, Theme, canvas, legend, panel, picture, png
from thalweg.report.curves import class_shares, energy_histograms, training_curves

__all__ = [
    "DARK",
    "LIGHT",
    "Theme",
    "canvas",
    "chain_trace",
    "class_shares",
    "energy_histograms",
    "legend",
    "panel",
    "png",
    "sample_grid",
    "training_curves",
]

_FRAMES, _CHAINS = 12, 6  # frames and chains shown


def sample_grid(
    samples: Any,
    data: Any = None,
    *,
    most: int = 96,
    limits: tuple[float, float] = (-1.0, 1.0),
    theme: Theme = LIGHT,
) -> Figure:
    """Samples, with the data beside them: `thalweg.plot.samples`, with pixel values from -1 to 1.

    >>> figure = sample_grid(np.zeros((10, 8, 8, 1)))
    >>> len(figure.axes)
    1
    """
    return plot.samples(samples, data, most=most, limits=limits, theme=theme)


def chain_trace(
    energy_trace: Any,
    steps: Any,
    path: Any = None,
    *,
    energy_data: Any = None,
    limits: tuple[float, float] = (-1.0, 1.0),
    theme: Theme = LIGHT,
) -> Figure:
    """Chains from their start: the energy of each, and their states along the way.

    Args:
        energy_trace: ``(chains, frames)``.
        steps: the number of kernel steps at each frame, ``(frames,)``.
        path: ``(frames, chains, *event)``, the states; images, points of the plane and of the line are drawn.
        energy_data: energies of data; the middle nine tenths are shaded for comparison.
        limits: the pixel values of black and white.
        theme: the colours.

    >>> figure = chain_trace(np.zeros((3, 5)), np.arange(5), np.zeros((5, 3, 8, 8, 1)))
    >>> [axes.get_xlabel() for axes in figure.axes]
    ['step of the chain', 'step of the chain']
    """
    trace, frames = np.atleast_2d(np.asarray(energy_trace, float)), np.asarray(steps)
    if trace.ndim != 2 or trace.shape[1] != len(frames):
        raise ValueError(
            f"expected an energy trace (chains, frames) with {len(frames)} frames, got {trace.shape}; transpose it"
        )
    states = None if path is None else np.asarray(path)
    if states is not None and len(states) != len(frames):
        raise ValueError(f"expected {len(frames)} frames in path, got {len(states)}; the leading axis is the frames")
    below = 0.0 if states is None else _height(states)
    figure = canvas(WIDTH, 3.0 + below, theme)
    grid = figure.add_gridspec(2, 1, height_ratios=[3.0, below]) if below else figure.add_gridspec(1, 1)
    axes = panel(figure, grid[0], theme, title="Energy along the chain", x="step of the chain", y="energy E(x)")
    if energy_data is not None:
        low, high = np.quantile(np.asarray(energy_data), (0.05, 0.95))
        axes.axhspan(low, high, color=theme.data, alpha=0.18, linewidth=0, label="middle nine tenths of the data")
    axes.plot(frames, trace.T, color=theme.samples, linewidth=0.8, alpha=0.4)
    middle = np.median(trace, axis=0)
    axes.plot(frames, middle, color=theme.samples, linewidth=2.0, label=f"median of {len(trace)} chains")
    legend(axes, theme)
    if states is not None and below:
        draw = _filmstrip if is_image(states.shape[2:]) else _journey
        draw(figure, grid[1], states, frames, limits, theme)
    return figure


def _height(states: np.ndarray) -> float:
    """The height in inches of the panel of states; zero if points have too many coordinates to draw."""
    event = states.shape[2:]
    if is_image(event):
        return WIDTH / _FRAMES * min(_CHAINS, states.shape[1]) * event[0] / event[1] + 0.7
    return 3.4 if math.prod(event) <= 2 else 0.0


def _filmstrip(
    figure: Figure, place: Any, states: np.ndarray, frames: np.ndarray, limits: tuple[float, float], theme: Theme
) -> None:
    """One row of images per chain, one column per frame."""
    chosen = spread(np.arange(len(frames)), _FRAMES)
    shown = np.moveaxis(states[chosen][:, :_CHAINS], 0, 1)
    chains, count, height, width = shown.shape[:4]
    axes = panel(figure, place, theme, title="The first chains on their way", x="step of the chain", y="chain")
    sheet = mosaic(as_colour(shown.reshape(chains * count, *shown.shape[2:]), limits), count)
    picture(axes, sheet)
    gap = gap_of(height)
    axes.set_xticks(np.arange(count) * (width + gap) + width / 2 - 0.5, [str(step) for step in frames[chosen]])
    axes.set_yticks(np.arange(chains) * (height + gap) + height / 2 - 0.5, [str(i + 1) for i in range(chains)])
    axes.tick_params(length=0)


def _journey(
    figure: Figure, place: Any, states: np.ndarray, frames: np.ndarray, limits: tuple[float, float], theme: Theme
) -> None:
    """The paths of points on the line or in the plane."""
    flat = states.reshape(len(states), states.shape[1], -1)
    plane = flat.shape[2] == 2
    x, y = ("x₁", "x₂") if plane else ("step of the chain", "x")
    axes = panel(figure, place, theme, title="The first chains on their way", x=x, y=y)
    for chain in np.moveaxis(flat, 0, 1)[:_CHAINS]:
        horizontal, vertical = (chain[:, 0], chain[:, 1]) if plane else (frames, chain[:, 0])
        axes.plot(horizontal, vertical, color=theme.muted, linewidth=0.8, alpha=0.6)
        axes.plot(horizontal[0], vertical[0], "o", color=theme.data, markersize=4)
        axes.plot(horizontal[-1], vertical[-1], "o", color=theme.samples, markersize=5)
    if plane:
        axes.set_aspect("equal", adjustable="datalim")
    axes.plot([], [], "o", color=theme.data, label="start")
    axes.plot([], [], "o", color=theme.samples, label="end")
    legend(axes, theme)
