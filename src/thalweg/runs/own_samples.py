"""Samples in the format of the user's data: a table with the original columns, or pictures."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from thalweg.core.files import write_json, write_whole
from thalweg.data import Columns, read_table
from thalweg.data.columns import Cell
from thalweg.data.mixed_tables import write_csv
from thalweg.plot.points import is_image
from thalweg.report.figures import LIGHT, canvas, legend, panel, png, sample_grid
from thalweg.runs.files import COLUMNS, PICTURE, TABLE
from thalweg.runs.settings import NONE
from thalweg.train.evaluation import spread_rows

_MOST_PANELS = 24
_MOST_BARS = 12
_MOST_ROWS = 5000


def keep_columns(config: Mapping[str, Any], folder: Path) -> Columns | None:
    """The columns of a run on a table, from its folder; if they are not there yet, fit them and write them first.

    None unless the run is on a table with standardised columns.
    """
    options = config.get("data", {})
    if options.get("standardise") is not True:
        return None
    path = folder / COLUMNS
    if path.exists():
        try:
            return Columns.from_json(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as problem:
            raise ValueError(f"{path}: {problem}") from problem
    delimiter = None if options["delimiter"] == NONE else options["delimiter"]
    columns = read_table(options["name"], drop=options["drop"], delimiter=delimiter).columns
    write_json(path, columns.to_json())
    return columns


def write_own_samples(config: Mapping[str, Any], folder: Path, x: Any, data: np.ndarray) -> None:
    """Write ``samples/samples.png`` for images or a table, and for a table also ``samples/samples.csv``.

    Args:
        config: the configuration of the run.
        folder: the run folder.
        x: samples ``(chains, *event)``.
        data: real points to draw beside them.
    """
    columns = keep_columns(config, folder)
    if columns is not None:
        rows = columns.decode(x)
        write_csv(folder / TABLE, columns.names, rows)
        figure = draw_columns(columns, rows, columns.decode(data[:_MOST_ROWS]))
    elif isinstance(x, np.ndarray) and is_image(x.shape[1:]):
        figure = sample_grid(x, data[spread_rows(len(data), len(x))])
    else:
        return
    write_whole(folder / PICTURE, png(figure))


def draw_columns(columns: Columns, samples: Sequence[Sequence[Cell]], data: Sequence[Sequence[Cell]]) -> Figure:
    """Every column, samples against data: histograms for numbers, bars for categories."""
    drawn = [(i, column) for i, column in enumerate(columns.columns) if column.kind != "constant"][:_MOST_PANELS]
    across = min(4, len(drawn))
    down = -(-len(drawn) // across)
    figure = canvas(3.0 * across, 2.2 * down + 0.3)
    grid = figure.add_gridspec(down, across)
    for place, (i, column) in enumerate(drawn):
        axes = panel(figure, grid[divmod(place, across)], title=column.name[:30])
        sides = {"data": [row[i] for row in data], "samples": [row[i] for row in samples]}
        if column.decimals is None:
            _draw_bars(axes, column.values, sides)
        else:
            _draw_histogram(axes, sides)
        axes.tick_params(labelsize=7)
        axes.set_yticks([])
        if place == 0:
            legend(axes)
    return figure


def _draw_bars(axes: Any, names: Sequence[Cell], sides: Mapping[str, list[Cell]]) -> None:
    often = sorted(names, key=lambda name: -sides["data"].count(name))[:_MOST_BARS]
    for number, (side, cells) in enumerate(sides.items()):
        shares = [cells.count(name) / len(cells) for name in often]
        axes.bar(np.arange(len(often)) + 0.4 * number - 0.2, shares, 0.4, color=_colour(side), label=side)
    axes.set_xticks(range(len(often)), [str(name)[:8] for name in often], rotation=30 if len(often) > 4 else 0)


def _draw_histogram(axes: Any, sides: Mapping[str, list[Cell]]) -> None:
    real = np.array(sides["data"], float)
    edges = np.histogram_bin_edges(real, bins=min(30, max(2, len(np.unique(real)))))
    for side, cells in sides.items():
        style = {"histtype": "stepfilled", "alpha": 0.35} if side == "data" else {"histtype": "step", "linewidth": 1.6}
        axes.hist(np.array(cells, float), edges, density=True, color=_colour(side), label=side, **style)


def _colour(side: str) -> str:
    return LIGHT.data if side == "data" else LIGHT.samples
