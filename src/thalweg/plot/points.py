"""Draw sets of points: images as a mosaic, points in the plane as a scatter plot, numbers as a histogram."""

import numpy as np
from matplotlib.axes import Axes

from thalweg.plot.style import Theme, picture

_MOST_POINTS = 5000


def is_image(event: tuple[int, ...]) -> bool:
    """Whether points of this shape are images: (height, width), or (height, width, 1 or 3).

    >>> is_image((8, 8, 1)), is_image((32, 32, 3)), is_image((2,))
    (True, True, False)
    """
    return len(event) == 2 or (len(event) == 3 and event[2] in (1, 3))


def as_colour(images: np.ndarray, limits: tuple[float, float] = (-1.0, 1.0)) -> np.ndarray:
    """Images ``(n, height, width[, 1 or 3])`` as RGBA ``(n, height, width, 4)`` with values in [0, 1].

    ``limits`` are the values of black and white; values outside are clipped.
    """
    pixels = images[..., None] if images.ndim == 3 else images
    shade = np.clip((pixels - limits[0]) / (limits[1] - limits[0]), 0, 1)
    shade = np.broadcast_to(shade, (*shade.shape[:3], 3))
    return np.concatenate([shade, np.ones((*shade.shape[:3], 1))], axis=3)


def gap_of(height: int) -> int:
    """The gap between tiles of this height, in pixels."""
    return max(1, height // 12)


def mosaic(tiles: np.ndarray, columns: int) -> np.ndarray:
    """Tiles ``(n, height, width, 4)`` arranged row by row in one image, with transparent gaps.

    >>> mosaic(np.ones((3, 8, 8, 4)), columns=2).shape
    (17, 17, 4)
    """
    count, height, width, _ = tiles.shape
    gap = gap_of(height)
    lines = -(-count // columns)
    sheet = np.zeros((lines * (height + gap) - gap, columns * (width + gap) - gap, 4))
    for number, tile in enumerate(tiles):
        line, column = divmod(number, columns)
        top, left = line * (height + gap), column * (width + gap)
        sheet[top : top + height, left : left + width] = tile
    return sheet


def draw_mosaic(axes: Axes, images: np.ndarray, columns: int, limits: tuple[float, float]) -> None:
    """Draw images as a mosaic."""
    picture(axes, mosaic(as_colour(images, limits), columns))


def spread(x: np.ndarray, most: int) -> np.ndarray:
    """At most ``most`` evenly spaced rows of ``x``, including the first and the last."""
    return x[np.unique(np.linspace(0, len(x) - 1, min(most, len(x))).round().astype(int))]


def frame(*sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``(low, high)`` per coordinate: the 0.002 to 0.998 quantiles of all sets ``(n, d)``, and a margin.

    With the full range, a few diverged chains would make the others too small to see.
    """
    finite = [x[np.isfinite(x).all(axis=1)] for x in sets]
    if any(len(x) == 0 for x in finite):
        raise ValueError("expected finite numbers to draw, got none at all; take a smaller step size and sample again")
    edges = [np.quantile(x, (0.002, 0.998), axis=0) for x in finite]
    low, high = np.min([each[0] for each in edges], axis=0), np.max([each[1] for each in edges], axis=0)
    margin = 0.08 * np.where(high > low, high - low, 1.0)
    return low - margin, high + margin


def scatter(axes: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, colour: str, theme: Theme) -> None:
    """Draw the first two coordinates of points ``(n, d)`` within a frame, and print how many are outside."""
    shown = spread(x, _MOST_POINTS)[:, :2]
    size = float(np.clip(4000 / len(shown), 2, 20))
    axes.scatter(shown[:, 0], shown[:, 1], s=size, color=colour, alpha=0.5, linewidths=0)
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.set_aspect("equal")
    inside = ((x >= low) & (x <= high))[:, :2].all(axis=1)
    if not inside.all():
        axes.text(
            0.99, 0.99, f"{int((~inside).sum())} outside", transform=axes.transAxes, ha="right", va="top",
            fontsize=8.5, color=theme.muted,
        )  # fmt: skip


def histogram(
    axes: Axes,
    values: np.ndarray,
    edges: np.ndarray,
    colour: str,
    name: str,
    filled: bool,
    tell_outside: bool = True,
) -> None:
    """Draw a density histogram, filled or as an outline; its area is the share of values inside the edges."""
    inside = values[(values >= edges[0]) & (values <= edges[-1])]
    name = name if len(inside) == len(values) or not tell_outside else f"{name} ({len(values) - len(inside)} outside)"
    counts, _ = np.histogram(inside, edges)
    heights = counts / (len(values) * np.diff(edges))
    axes.stairs(heights, edges, color=colour, alpha=0.45 if filled else 1.0, fill=filled, linewidth=1.6, label=name)


def bins(*sets: np.ndarray, most: int = 60) -> np.ndarray:
    """Common bin edges for histograms of several sets of numbers; integers get one bin each, if there is room.

    >>> bins(np.array([0.0, 1.0, 1.0])).tolist()
    [-0.5, 0.5, 1.5]
    """
    low, high = frame(*(x.reshape(-1, 1) for x in sets))
    if high[0] - low[0] < most and all(np.array_equal(x, np.round(x)) for x in sets):
        # a bar for each whole number
        return np.arange(np.ceil(low[0]), np.floor(high[0]) + 2) - 0.5
    fewest = min(x.size for x in sets)
    return np.linspace(low[0], high[0], int(np.clip(2 * fewest ** (1 / 2), 10, most)) + 1)
