"""Energy landscapes: an energy over one or two coordinates, its score, and chains on it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure

from thalweg.core import ScoreNetwork, require_energy
from thalweg.plot.draws import Coordinate, draws_of, points_of
from thalweg.plot.points import frame, spread
from thalweg.plot.style import LIGHT, WIDTH, Theme, canvas, chain_colours, legend, panel
from thalweg.plot.views import View, find_mass, view

_SPAN = 10.0  # energies further than this above the lowest have the same colour, since they hold almost no mass
_LINE, _MESH, _ARROWS = 501, 161, 21  # nodes along a line, per side of a landscape, per side of a field of arrows
_LEVELS = 10  # bands of colour, of one nat each at the full span
_CHAINS, _STEPS, _DOTS = 4, 300, 1000  # chains drawn, draws of each, points of data


def energy(
    energy: Any,
    data: Any = None,
    *,
    coordinates: Coordinate | Sequence[Coordinate] | None = None,
    at: Any = None,
    limits: Any = None,
    names: Sequence[str] | None = None,
    theme: Theme = LIGHT,
) -> Figure:
    """The landscape of an energy: a curve over one coordinate, a map over two, or a slice of more.

    Energies are drawn relative to the lowest one shown, in nats: a point one nat higher is e times less probable.

    Args:
        energy: an energy of one or two dimensions, or of more with ``coordinates``. A dictionary of energies by name
            is drawn side by side, each relative to its own lowest value.
        data: points ``(n, *event)`` to draw on the landscape (for a slice they only set the limits and ``at``).
        coordinates: the one or two to draw, by index into the flattened point or by tuple.
        at: the point that fixes the other coordinates; by default the data's mean, or the middle of the space.
        limits: ``(low, high)`` for each coordinate drawn; by default where the data are, or the mass of ``exp(-E)``.
        names: the names of all coordinates of a point; by default ``x₁``, ``x₂``, ….
        theme: the colours.

    >>> import thalweg as tw
    >>> figure = tw.plot.energy(tw.energies.Banana())
    >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
    ('x₁', 'x₂')
    """
    if isinstance(energy, Mapping):
        return _side_by_side(energy, data, coordinates, at, limits, names, theme)
    require_energy("plot.energy", energy)
    seen = view("plot.energy", energy, data, coordinates, at, limits, names)
    points = None if data is None or not seen.whole else points_of(data).reshape(-1, len(seen.places))
    title = "Energy" if seen.whole else f"Energy, a slice along {' and '.join(seen.names)}"
    if len(seen.places) == 1:
        figure = canvas(WIDTH, 3.6, theme)
        axes = panel(figure, (1, 1, 1), theme, title=title, x=seen.names[0], y="E(x) − lowest, nats")
        draw_curve(axes, seen, theme)
        if points is not None:
            axes.plot(points[:, 0], np.zeros(len(points)), "|", color=theme.samples, markersize=12, alpha=0.5)
            axes.plot([], [], "|", color=theme.samples, markersize=12, label=f"{len(points)} points of data")
            legend(axes, theme)
        return figure
    figure, axes = _map_canvas(seen, theme, title, room=1.0)
    filled = draw_map(axes, seen, theme)
    _colour_bar(figure, axes, filled, "E(x) − lowest, nats", theme)
    if points is not None:
        shown = spread(points, _DOTS)
        axes.scatter(*shown.T, s=7, color="white", edgecolors="black", linewidths=0.4, label="data")
        _boxed_legend(axes, theme)
    return figure


def _side_by_side(
    energies: Mapping[str, Any],
    data: Any,
    coordinates: Any,
    at: Any,
    limits: Any,
    names: Sequence[str] | None,
    theme: Theme,
) -> Figure:
    """Energies within the same limits: maps in panels side by side, curves in one panel."""
    if not energies:
        raise ValueError('plot.energy: expected at least one energy, got none; give {"name": energy}')
    for model in energies.values():
        require_energy("plot.energy", model)
    first = view("plot.energy", next(iter(energies.values())), data, coordinates, at, limits, names)
    box = np.stack([first.low, first.high], axis=1)
    views = {name: view("plot.energy", model, data, coordinates, at, box, names) for name, model in energies.items()}
    if len(first.places) == 1:
        figure = canvas(WIDTH, 3.6, theme)
        axes = panel(figure, (1, 1, 1), theme, title="Energies", x=first.names[0], y="E(x) − lowest, nats")
        for (name, seen), colour in zip(views.items(), chain_colours(len(views), theme)[0], strict=True):
            draw_curve(axes, seen, theme._replace(data=colour))
            axes.lines[-1].set_label(name)
        legend(axes, theme)
        return figure
    lines = -(-len(views) // 4)
    across = -(-len(views) // lines)
    width, height = first.high - first.low
    tall = float(np.clip(height / width, 0.5, 1.3)) if _is_square(first) else 0.8
    figure = canvas(2.9 * across + 1.0, (2.6 * tall + 0.7) * lines, theme)
    for number, (name, seen) in enumerate(views.items(), start=1):
        axes = panel(figure, (lines, across, number), theme, title=name, x=seen.names[0], y=seen.names[1])
        filled = draw_map(axes, seen, theme, span=_SPAN)
    _colour_bar(figure, figure.axes, filled, "E(x) − lowest, nats", theme)
    return figure


def score(
    model: Any,
    *,
    coordinates: Coordinate | Sequence[Coordinate] | None = None,
    at: Any = None,
    limits: Any = None,
    theme: Theme = LIGHT,
) -> Figure:
    """The score ``∇ log p(x) = -∇E(x)``: a curve over one coordinate, a field of arrows over two.

    Arrows of equal length show the direction of the score, their colour its length. Below them is the energy, darkest
    where it is lowest; a score network has no energy to draw.

    The arguments are those of `energy`; the default limits of a score network are -3 and 3.

    >>> import thalweg as tw
    >>> tw.plot.score(tw.energies.DoubleWell(8.0)).axes[0].get_xlabel()
    'x₁'
    """
    seen = view("plot.score", model, None, coordinates, at, limits)
    slope = "−∂E/∂x" if len(seen.places) == 1 else "length of the score"
    title = "Score" if seen.whole else f"Score, a slice along {' and '.join(seen.names)}"
    if len(seen.places) == 1:
        figure = canvas(WIDTH, 3.6, theme)
        axes = panel(figure, (1, 1, 1), theme, title=title, x=seen.names[0], y=f"score {slope}")
        lines = seen.mesh(_LINE)
        axes.axhline(0, color=theme.muted, linewidth=0.8)
        axes.plot(lines[0], seen.scores(lines)[:, 0], color=theme.data, linewidth=1.8)
        axes.margins(x=0.01)
        return figure
    figure, axes = _map_canvas(seen, theme, title, room=1.0)
    if not isinstance(seen.model, ScoreNetwork):
        draw_map(axes, seen, theme, pale=True)
    margin = (seen.high - seen.low) / (2 * _ARROWS)
    lines = [np.linspace(a, b, _ARROWS) for a, b in zip(seen.low + margin, seen.high - margin, strict=True)]
    field = seen.scores(lines)
    length = np.linalg.norm(field, axis=-1)
    unit = field / np.where(length > 0, length, 1.0)[..., None]
    finite = length[np.isfinite(length)]
    if not len(finite):
        raise ValueError("plot.score: expected a finite score to draw, got none; give limits inside the support")
    spacing = float(np.min(2 * margin))
    # the colour scale ends at the 0.9 quantile, since the longest scores, at the rim, would use up all colours
    arrows = axes.quiver(
        *np.meshgrid(*lines), unit[..., 0], unit[..., 1], np.minimum(length, np.quantile(finite, 0.9)), cmap="viridis",
        angles="xy", scale_units="xy", scale=1.2 / spacing, pivot="mid", width=0.005, headwidth=4.5,
    )  # fmt: skip
    _colour_bar(figure, axes, arrows, slope, theme, extend="max")
    return figure


def chains(
    energy: Any,
    chains: Any,
    *,
    most: int = _CHAINS,
    limits: Any = None,
    theme: Theme = LIGHT,
) -> Figure:
    """Chains on their energy landscape: paths on a map, or, in one dimension, paths over the draws below the curve.

    Args:
        energy: an energy of one or two dimensions.
        chains: `Chains`, or draws ``(chains, draws, *event)``.
        most: how many chains to draw; only the first 300 draws of each are shown.
        limits: ``(low, high)`` for each coordinate; by default where the draws and the mass of ``exp(-E)`` are.
        theme: the colours.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> well, key = tw.energies.DoubleWell(4.0), jax.random.key(0)
    >>> ran = tw.sample(well, tw.samplers.MALA(0.3), jnp.ones((4, 2)), key=key, draws=50)
    >>> tw.plot.chains(well, ran).axes[0].get_title(loc="left")
    'Chains on the energy: 4 chains of 50 draws'
    """
    require_energy("plot.chains", energy)
    seen, draws = chain_view("plot.chains", energy, chains, limits)
    if most < 1:
        raise ValueError(f"expected at least one chain to draw, got most={most}; give for example 4")
    paths = draws[:most, :_STEPS]
    count = f"{len(paths)} of {len(draws)} chains" if len(paths) < len(draws) else f"{len(draws)} chains"
    length = f"their first {_STEPS} draws" if paths.shape[1] < draws.shape[1] else f"{draws.shape[1]} draws"
    title = f"Chains on the energy: {count}{', ' if length.startswith('their') else ' of '}{length}"
    colours, alpha = chain_colours(len(paths), theme)
    if len(seen.places) == 1:
        figure = canvas(WIDTH, 5.6, theme)
        grid = figure.add_gridspec(2, 1, height_ratios=[1.0, 1.6])
        above = panel(figure, grid[0], theme, title=title, x=seen.names[0], y="E(x) − lowest, nats")
        draw_curve(above, seen, theme)
        below = panel(figure, grid[1], theme, x=seen.names[0], y="draw", sharex=above)
        for path, colour in zip(paths, colours, strict=True):
            below.plot(path[:, 0], np.arange(1, len(path) + 1), "-", color=colour, linewidth=0.9, alpha=alpha)
        below.invert_yaxis()
        above.set_xlim(seen.low[0], seen.high[0])
        return figure
    figure, axes = _map_canvas(seen, theme, title, room=0.0)
    draw_map(axes, seen, theme, pale=True)
    for path, colour in zip(paths, colours, strict=True):
        axes.plot(*path.T, ".-", color=colour, linewidth=0.7, markersize=2.5, alpha=0.75 * alpha)
    ends = {"start": ("o", paths[:, 0]), "end": ("s", paths[:, -1])}
    for name, (marker, points) in ends.items():
        axes.scatter(
            *points.T, s=42, marker=marker, c=colours, edgecolors=theme.ink, linewidths=1.0, zorder=3, label=name
        )
    _boxed_legend(axes, theme)
    return figure


def chain_view(what: str, energy: Any, chains: Any, limits: Any) -> tuple[View, np.ndarray]:
    """The view of an energy that shows these chains, and their draws ``(chains, draws, 1 or 2)``."""
    draws = draws_of(chains, least=2)
    flat = draws.reshape(*draws.shape[:2], -1).astype(float)
    if flat.shape[2] not in (1, 2):
        raise ValueError(
            f"{what}: expected draws of one or two dimensions, got {flat.shape[2]}; draw a slice of the energy by "
            "tw.plot.energy(energy, coordinates=(0, 1)), and the draws by tw.plot.samples"
        )
    low, high = frame(flat.reshape(-1, flat.shape[2]))
    at = np.zeros(draws.shape[2:])
    seen = view(what, energy, None, None, at, np.stack([low, high], axis=1) if limits is None else limits)
    if limits is None:
        # also show the modes that the chains have not found, unless the chains would become too small to see
        least, most = find_mass(seen)
        if np.all(most - least < 10 * (high - low)):
            seen = seen._replace(low=np.minimum(low, least), high=np.maximum(high, most))
    return seen, flat


def draw_curve(axes: Axes, seen: View, theme: Theme = LIGHT) -> None:
    """Draw the energy along one coordinate, relative to its lowest value."""
    lines = seen.mesh(_LINE)
    values = _above_lowest(seen.energies(lines))
    axes.plot(lines[0], values, color=theme.data, linewidth=1.8)
    top = min(float(np.nanmax(values)), max(2 * _SPAN, 1.5 * float(np.nanquantile(values, 0.75)))) or 1.0
    axes.set_ylim(-0.06 * top, 1.05 * top)
    axes.set_xlim(seen.low[0], seen.high[0])


def draw_map(axes: Axes, seen: View, theme: Theme = LIGHT, pale: bool = False, span: float | None = None) -> Any:
    """Draw the energy over two coordinates in bands of colour up to ``span``; ``pale`` if more is drawn on top."""
    lines = seen.mesh(_MESH)
    values = _above_lowest(seen.energies(lines))
    highest = float(np.nanmax(values))
    span = span or min(_SPAN, highest) or 1.0
    levels = np.linspace(0, span, _LEVELS + 1)
    extend = "max" if highest > span else "neither"
    cmap: str | Colormap = _pale_colours(theme) if pale else "viridis"
    filled = axes.contourf(*lines, values, levels=levels, cmap=cmap, extend=extend)
    axes.set_xlim(seen.low[0], seen.high[0])
    axes.set_ylim(seen.low[1], seen.high[1])
    if _is_square(seen):
        axes.set_aspect("equal")
    axes.grid(False)
    return filled


def _above_lowest(values: np.ndarray) -> np.ndarray:
    if np.isnan(values).all():
        raise ValueError("expected a finite energy to draw, got none; give limits inside the energy's support")
    return values - np.nanmin(values)


def _pale_colours(theme: Theme) -> LinearSegmentedColormap:
    """A colour map from a tint of the ink, for low energies, to the colour of the paper."""
    ink, paper = np.array(to_rgb(theme.ink)), np.array(to_rgb(theme.paper))
    return LinearSegmentedColormap.from_list("pale", [0.45 * ink + 0.55 * paper, paper])


def _is_square(seen: View) -> bool:
    """Whether both coordinates can be drawn at the same scale."""
    width, height = seen.high - seen.low
    return bool(0.3 < height / width < 3)


def _map_canvas(seen: View, theme: Theme, title: str, room: float) -> tuple[Figure, Axes]:
    """A figure with the aspect ratio of the limits, and with ``room`` inches for a colour bar."""
    width, height = seen.high - seen.low
    tall = float(np.clip(height / width, 0.5, 1.3)) if _is_square(seen) else 0.8
    figure = canvas(6.0 + room, 5.6 * tall + 0.7, theme)
    return figure, panel(figure, (1, 1, 1), theme, title=title, x=seen.names[0], y=seen.names[1])


def _colour_bar(figure: Figure, axes: Axes | list[Axes], drawn: Any, label: str, theme: Theme, **options: Any) -> None:
    bar = figure.colorbar(drawn, ax=axes, shrink=0.8, **options)
    bar.set_label(label, fontsize=9.5, color=theme.ink)
    bar.ax.tick_params(labelsize=8.5, colors=theme.muted, labelcolor=theme.ink)


def _boxed_legend(axes: Axes, theme: Theme) -> None:
    """Add a legend with a background, which can be read on a map."""
    axes.legend(
        fontsize=8.5, labelcolor=theme.ink, facecolor=theme.paper, edgecolor=theme.grid, framealpha=0.85, loc="best"
    )
