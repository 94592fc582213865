"""The style of figures: two themes, labelled axes, PNG output. Nothing here changes matplotlib's global settings."""

import io
from typing import Any, NamedTuple

import numpy as np
from matplotlib import figure as matplotlib_figure
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg


class Theme(NamedTuple):
    """Colours by role. The series colours are those of Okabe and Ito (2008), which are safe for colour-blind readers.

    >>> import thalweg as tw
    >>> tw.plot.LIGHT.paper != tw.plot.DARK.paper
    True
    """

    paper: str
    ink: str
    muted: str
    grid: str
    data: str
    held_out: str
    samples: str
    extra: str


LIGHT = Theme("#ffffff", "#1d2330", "#667080", "#e4e7ec", "#0072b2", "#009e73", "#d55e00", "#cc79a7")
DARK = Theme("#181c24", "#e7e9ee", "#9aa4b2", "#2c323d", "#56b4e9", "#2bc49a", "#f0a030", "#dd9fc0")

DPI = 144
WIDTH = 9.0  # inches of a figure as wide as the page


class Figure(matplotlib_figure.Figure):
    """A matplotlib figure that displays itself in a notebook, with any backend and without pyplot."""

    def _repr_png_(self) -> bytes:
        return png(self)


def canvas(width: float | int, height: float | int, theme: Theme = LIGHT) -> Figure:
    """An empty figure, with width and height in inches, laid out so that labels do not overlap."""
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained", facecolor=theme.paper)
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08, wspace=0.04, hspace=0.06)  # pyright: ignore
    return figure


def panel(
    figure: Any, position: Any, theme: Theme = LIGHT, *, title: str = "", x: str = "", y: str = "", **options: Any
) -> Axes:
    """Add axes with a title and labels; ``figure`` may be a subfigure, ``position`` is as for ``add_subplot``.

    >>> figure = canvas(4, 3)
    >>> axes = panel(figure, (1, 1, 1), title="a line", x="step", y="energy")
    >>> axes.get_xlabel(), axes.get_ylabel()
    ('step', 'energy')
    """
    place = position if isinstance(position, tuple) else (position,)
    axes = figure.add_subplot(*place, facecolor=theme.paper, **options)
    axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold", color=theme.ink, pad=8)
    axes.set_xlabel(x, fontsize=9.5, color=theme.ink)
    axes.set_ylabel(y, fontsize=9.5, color=theme.ink)
    axes.tick_params(colors=theme.muted, labelcolor=theme.ink, labelsize=8.5, length=3)
    axes.grid(True, color=theme.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(theme.muted)
    return axes


def legend(axes: Axes, theme: Theme = LIGHT, **options: Any) -> None:
    """Add a legend without a frame."""
    axes.legend(fontsize=8.5, labelcolor=theme.ink, frameon=False, **options)


def chain_colours(chains: int, theme: Theme = LIGHT) -> tuple[list[str], float]:
    """Colours and opacity for chains: one colour each for up to four, else one for all, fainter the more there are.

    >>> len(set(chain_colours(4)[0])), len(set(chain_colours(5)[0]))
    (4, 1)
    """
    several = [theme.data, theme.samples, theme.held_out, theme.extra]
    if chains <= len(several):
        return several[:chains], 1.0
    return [theme.data] * chains, float(np.clip(4 / chains, 0.12, 0.7))


def picture(axes: Axes, pixels: np.ndarray) -> None:
    """Draw an image ``(height, width, 4)`` with values in [0, 1], without interpolation, ticks or frame."""
    axes.imshow(pixels, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def png(figure: matplotlib_figure.Figure) -> bytes:
    """The figure as the bytes of a PNG file.

    >>> png(canvas(2, 1))[1:4]
    b'PNG'
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", facecolor=figure.get_facecolor())
    return buffer.getvalue()
