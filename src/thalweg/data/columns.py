"""Encode the columns of a table as coordinates for a continuous energy, and decode samples as rows of the table.

A column of numbers is standardised through its quantiles: the value at rank p becomes ``Φ⁻¹(p)``, so that every column
has mean 0 and standard deviation 1 whatever its tails. Decoding applies ``Φ`` and the quantiles, and so stays within
the column's range. Tied values, whole numbers and two categories divide the interval of p by frequency, and a row gets
a random rank within its share (dequantisation: Theis, van den Oord and Bethge 2016). Three or more categories get one
coordinate each; the row's category is the largest (argmax: Hoogeboom et al. 2021).

The coordinates of all columns are then rotated to their principal axes and divided by the standard deviation along
each. A standard normal then already has the right columns and correlations, and an energy learns the rest.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from thalweg.data.kinds import column_kind, is_missing, value_of

Cell = str | float | int | None
_MOST_LEVELS = 256  # of a column of whole numbers
_FEW_LEVELS = 32  # of any other column of numbers
_KNOTS = 513
_MOST_COORDINATES = 1000
_LEAST_VARIANCE = 0.01
_MARGIN = 0.15  # of a share of ranks left empty at either end, where a smooth energy can change
_APART, _NOISE = 1.25, 0.35  # mean and noise of the coordinates of three or more categories


class Column(NamedTuple):
    """One column: its name, its kind, the value that fills missing cells, and how many were missing.

    | kind | ``values`` | ``ranks`` | coordinates |
    |---|---|---|---|
    | constant | the one value | | 0 |
    | number | quantiles | none: evenly spaced from 0 to 1 | 1 |
    | levels | the values in order | the cumulative shares, from 0 to 1 | 1 |
    | category | the names | | as many as names |

    ``decimals`` is the number of decimals written back; None if the values are names.

    >>> from thalweg.data import fit_columns
    >>> fit_columns([["red"], ["blue"], ["green"]] * 2, ["colour"]).columns[0].kind
    'category'
    """

    name: str
    kind: str
    values: tuple[Cell, ...]
    ranks: tuple[float, ...] = ()
    decimals: int | None = None
    fill: Cell = None
    missing: int = 0

    @property
    def width(self) -> int:
        """The number of coordinates of the column."""
        return {"constant": 0, "category": len(self.values)}.get(self.kind, 1)


class Columns(NamedTuple):
    """The columns of a table in order, fitted by `fit_columns`.

    >>> rows = [["1", "a"], ["2", "b"], ["4", "a"], ["", "b"]]
    >>> columns = fit_columns(rows, ["size", "kind"])
    >>> x = columns.encode(rows)
    >>> x.shape, x.dtype
    ((4, 2), dtype('float32'))
    >>> columns.decode(x)
    [[1, 'a'], [2, 'b'], [4, 'a'], [2, 'b']]
    >>> Columns.from_json(columns.to_json()) == columns
    True
    """

    columns: tuple[Column, ...]
    mean: tuple[float, ...]
    axes: tuple[tuple[float, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def width(self) -> int:
        """The number of coordinates of a row."""
        return sum(column.width for column in self.columns)

    def encode(self, rows: Sequence[Sequence[Cell]], *, seed: int = 0) -> np.ndarray:
        """Encode rows of cells as coordinates ``(rows, width)`` float32; ``seed`` is that of the dequantisation."""
        random = np.random.default_rng(seed)
        for number, row in enumerate(rows, start=1):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"row {number}: expected {len(self.columns)} cells ({', '.join(self.names)}), got {len(row)}; "
                    "give all columns in this order"
                )
        scores = _scores(self.columns, rows, random)
        return ((scores - np.array(self.mean)) @ np.array(self.axes)).astype(np.float32)

    def decode(self, x: np.ndarray) -> list[list[Cell]]:
        """Decode coordinates ``(rows, width)`` as rows of cells; numbers are within the range of their column."""
        points = np.asarray(x, np.float64)
        if points.ndim != 2 or points.shape[1] != self.width:
            raise ValueError(
                f"expected points of shape (rows, {self.width}), got {points.shape}; encode the rows first"
            )
        if not np.isfinite(points).all():
            raise ValueError("expected finite points, got some that are not; train anew with a smaller step size")
        points = np.linalg.solve(np.array(self.axes).T, points.T).T + np.array(self.mean)
        cells, start = [], 0
        for column in self.columns:
            cells.append(_decode(column, points[:, start : start + column.width]))
            start += column.width
        return [list(row) for row in zip(*cells, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """The columns as plain values for JSON."""
        columns = [column._asdict() for column in self.columns]
        return {"version": 1, "columns": columns, "mean": self.mean, "axes": self.axes}

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> "Columns":
        """The columns that `to_json` wrote; anything else is a ValueError."""
        try:
            if tree["version"] != 1:
                raise ValueError(f"version {tree['version']}")
            made = (Column(**{**each, "values": tuple(each["values"])}) for each in tree["columns"])
            columns = tuple(each._replace(ranks=tuple(each.ranks)) for each in made)
            return cls(columns, tuple(tree["mean"]), tuple(map(tuple, tree["axes"])))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"expected the columns of a table as to_json gives them, got something else ({error}); train anew"
            ) from error


def fit_columns(rows: Sequence[Sequence[Cell]], names: Sequence[str], *, name: str = "table") -> Columns:
    """Fit the kind, the scale and the categories of every column to rows of cells, given as text or as values.

    A cell is missing if it is empty, None, NaN or a common marker (``NA``, ``?``, …). It is filled with the median in a
    column of numbers, else with the most frequent name. A constant column has no coordinates and is written back as it
    was. Dates, free text, columns of too many names and columns that count the rows are a ValueError. ``name`` is what
    messages call the table.

    >>> fit_columns([["3", "2020-01-31"], ["4", "2020-02-29"]], ["size", "day"])
    Traceback (most recent call last):
    ValueError: table: expected numbers or categories in column 'day', got dates such as '2020-01-31' in row 1; leave \
the column out with drop=["day"] (--set data.drop='["day"]'), or write the days since a first one in its place
    """
    if not rows or not names:
        raise ValueError(f"{name}: expected at least one row and one column, got an empty table; check the file")
    twice = [each for place, each in enumerate(names) if each in names[:place]]
    if twice:
        raise ValueError(f"{name}: expected columns of different names, got {twice[0]!r} twice; rename one")
    columns = tuple(_fit([row[i] for row in rows], each, name) for i, each in enumerate(names))
    width = sum(column.width for column in columns)
    if not 0 < width <= _MOST_COORDINATES:
        problem, fix = ("none", "check the file") if width == 0 else (str(width), "drop columns of many categories")
        raise ValueError(
            f"{name}: expected columns of more than one value with 1 to {_MOST_COORDINATES} coordinates in all, "
            f"got {problem}; {fix}"
        )
    scores = _scores(columns, rows, np.random.default_rng(0))
    mean, axes = _principal_axes(scores)
    return Columns(columns, tuple(mean.tolist()), tuple(map(tuple, axes.tolist())))


def describe(column: Column) -> str:
    """A description of a column for the screen.

    >>> describe(fit_columns([["1"], ["2"], [""], ["4"]], ["age"]).columns[0])
    'whole numbers from 1 to 4; 1 missing, set to the median 2'
    """
    values = column.values
    if column.kind == "constant":
        one = "nothing but missing cells" if values[0] is None else f"always {values[0]}"
        gaps = f"; {column.missing} missing, set to it" if column.missing and values[0] is not None else ""
        return f"{one}, kept aside and written back as it is{gaps}"
    if column.decimals is None:
        shown = ", ".join(map(str, values[:6])) + (", …" if len(values) > 6 else "")
        what = f"{len(values)} categories: {shown}"
    else:
        what = f"{'whole ' if column.decimals == 0 else ''}numbers from {values[0]:g} to {values[-1]:g}"
    which = "the most frequent" if column.decimals is None else "the median"
    fill = f"{column.fill:g}" if isinstance(column.fill, float) else column.fill
    return what + (f"; {column.missing} missing, set to {which} {fill}" if column.missing else "")


def _scores(columns: tuple[Column, ...], rows: Sequence[Sequence[Cell]], random: np.random.Generator) -> np.ndarray:
    """The coordinates of all columns, before the rotation."""
    parts = [
        _encode(column, _fill_missing(column, [row[i] for row in rows]), random) for i, column in enumerate(columns)
    ]
    return np.concatenate(parts, axis=1)


def _principal_axes(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean, and the map to principal axes of variance 1; axes with almost no variance are not scaled up to 1."""
    mean = scores.mean(axis=0)
    variances, axes = np.linalg.eigh((scores - mean).T @ (scores - mean) / len(scores))
    return mean, axes / np.sqrt(np.maximum(variances, _LEAST_VARIANCE))


def _fit(cells: list[Cell], name: str, table: str) -> Column:
    kind = column_kind(cells, name, table)
    missing = sum(map(is_missing, cells))
    present = [value_of(cell, kind.numeric) for cell in cells if not is_missing(cell)]
    if not present:
        return Column(name, "constant", (None,), missing=missing)
    values, counts = np.unique(np.array(present), return_counts=True)
    if not kind.numeric:
        fill = str(values[np.argmax(counts)])
        names = tuple(map(str, values))
        if len(names) == 1:
            return Column(name, "constant", names, fill=fill, missing=missing)
        if len(names) > 2:
            return Column(name, "category", names, fill=fill, missing=missing)
        return Column(name, "levels", names, _shares(cells, names, fill), fill=fill, missing=missing)
    # the lower of two middle values, which occurs in the column
    fill = float(np.quantile(np.array(present, float), 0.5, method="lower"))
    filled = np.array([fill if is_missing(cell) else value_of(cell, True) for cell in cells], float)
    if len(values) == 1:
        one = _round_cell(float(values[0]), kind.decimals)
        return Column(name, "constant", (one,), decimals=kind.decimals, fill=one, missing=missing)
    if len(values) <= (_MOST_LEVELS if kind.decimals == 0 else _FEW_LEVELS):
        levels = tuple(map(float, values))
        ranks = tuple(float(r) for r in np.searchsorted(np.sort(filled), [*levels[1:]]) / len(filled))
        return Column(name, "levels", levels, (0.0, *ranks, 1.0), kind.decimals, fill, missing)
    knots = np.quantile(filled, np.linspace(0, 1, min(_KNOTS, len(filled))))
    return Column(name, "number", tuple(map(float, knots)), (), kind.decimals, fill, missing)


def _shares(cells: list[Cell], names: tuple[str, ...], fill: str) -> tuple[float, ...]:
    first = sum((fill if is_missing(cell) else str(cell).strip()) == names[0] for cell in cells)
    return (0.0, first / len(cells), 1.0)


def _fill_missing(column: Column, cells: Sequence[Cell]) -> list[Any]:
    """The values of the cells, missing ones filled; a ValueError names the row of a cell that does not fit."""
    numeric = column.decimals is not None
    known = None if numeric or column.kind == "constant" else set(column.values)
    values = []
    for row, cell in enumerate(cells, start=1):
        value = column.fill if is_missing(cell) else value_of(cell, numeric)
        if value is None and numeric and column.kind != "constant":
            raise ValueError(f"row {row}, column {column.name!r}: expected a number, got {cell!r}; correct the cell")
        if known is not None and value not in known:
            raise ValueError(
                f"row {row}, column {column.name!r}: expected one of {', '.join(map(str, column.values))}, "
                f"got {cell!r}; correct the cell"
            )
        values.append(value)
    return values


def _encode(column: Column, values: list[Any], random: np.random.Generator) -> np.ndarray:
    count = len(values)
    if column.kind == "constant":
        return np.zeros((count, 0))
    if column.kind == "category":
        return _encode_category(np.array([column.values.index(value) for value in values]), column.width, random)
    place = random.uniform(_MARGIN, 1 - _MARGIN, count)
    if column.kind == "levels":
        if column.decimals is None:
            level = np.array([column.values.index(value) for value in values])
        else:  # a value between two levels is rounded to the nearer one
            known = np.array(column.values, float)
            level = np.argmin(np.abs(known - np.array(values, float)[:, None]), axis=1)
        ranks = np.array(column.ranks)
        rank = ranks[level] + place * (ranks[level + 1] - ranks[level])
    else:
        rank = _rank(np.array(values, float), np.array(column.values, float), place)
        edge = 0.01 / max(len(column.values), 100)  # keeps the ends of the range a few deviations away, not infinite
        rank = np.clip(rank, edge, 1 - edge)
    return ndtri(rank)[:, None]


def _rank(values: np.ndarray, knots: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Ranks by linear interpolation between quantiles; a value equal to several quantiles gets a rank among theirs."""
    ranks = np.linspace(0, 1, len(knots))
    inside = np.clip(values, knots[0], knots[-1])
    first = np.searchsorted(knots, inside, "left")
    last = np.searchsorted(knots, inside, "right") - 1
    tied = last > first
    between = ranks[np.minimum(first, len(knots) - 1)] + place * (ranks[last] - ranks[np.minimum(first, last)])
    return np.where(tied, between, np.interp(inside, knots, ranks))


def _encode_category(codes: np.ndarray, width: int, random: np.random.Generator) -> np.ndarray:
    """Noise about +apart for the row's category and -apart for the others; the row's category is always the largest."""
    noise = _NOISE * np.clip(random.standard_normal((len(codes), width)), -3, 3)
    own = np.arange(width) == codes[:, None]
    return np.where(own, _APART, -_APART) + noise


def _decode(column: Column, z: np.ndarray) -> list[Cell]:
    if column.kind == "constant":
        return [column.values[0]] * len(z)
    if column.kind == "category":
        return [column.values[code] for code in np.argmax(z, axis=1)]
    rank = np.clip(ndtr(z[:, 0]), 0.0, math.nextafter(1.0, 0.0))
    if column.kind == "levels":
        level = np.clip(np.searchsorted(np.array(column.ranks), rank, "right") - 1, 0, len(column.values) - 1)
        chosen = [column.values[code] for code in level]
        return chosen if column.decimals is None else [_round_cell(each, column.decimals) for each in chosen]
    knots = np.array(column.values, float)
    numbers = np.interp(rank, np.linspace(0, 1, len(knots)), knots)
    return [_round_cell(float(number), column.decimals) for number in numbers]


def _round_cell(value: Any, decimals: int | None) -> Cell:
    return round(float(value)) if decimals == 0 else round(float(value), decimals or 0)
