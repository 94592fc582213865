"""The rows of an evaluation: a number with its interval, or the reason why there is none."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thalweg.core import Estimate, shorten_signatures
from thalweg.core.html import html_table
from thalweg.report.numbers import format_number


class Row(NamedTuple):
    """One number of an evaluation.

    ``metric`` is the name that was asked for, ``name`` that of the number, since a metric may have several. ``value``
    is None if the metric could not be computed; ``remark`` then says why, and else what else to know. ``low`` and
    ``high`` are None if there is no interval, ``p_value`` is that of a test. ``ideal`` is the value of a perfect model,
    if it is known. ``kept`` is the date of an earlier call whose result was reused.

    >>> from thalweg.runs import Row
    >>> print(Row("mmd", "mmd", 0.5, 0.25, 0.75, 0.95, "permutations"))
    mmd  0.50  [0.25, 0.75]  permutations
    """

    metric: str
    name: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    method: str = ""
    remark: str = ""
    ess: float | None = None
    standard_error: float | None = None
    p_value: float | None = None
    ideal: float | None = None
    seconds: float = 0.0
    kept: str = ""

    @property
    def computed(self) -> bool:
        """Whether there is a number."""
        return self.value is not None

    def __str__(self) -> str:
        return "  ".join(cell for cell in cells(self) if cell)


class Computed(NamedTuple):
    """What a metric returns: its rows, and arrays for the pictures of the report, by name."""

    rows: Sequence[Row]
    arrays: Mapping[str, np.ndarray] = {}


class Evaluation(NamedTuple):
    """What `evaluate` returns: the rows, the run folder and the number of updates of the model.

    ``evaluation["log_likelihood"]`` is the row of that name.

    >>> from pathlib import Path
    >>> from thalweg.runs import Evaluation, Row
    >>> evaluation = Evaluation(Path("runs/mine"), 100, (Row("mmd", "mmd", 0.5),))
    >>> evaluation["mmd"].value
    0.5
    """

    folder: Path
    updates: int
    rows: tuple[Row, ...]

    def __getitem__(self, name: Any) -> Any:
        if not isinstance(name, str):
            return tuple.__getitem__(self, name)
        found = [row for row in self.rows if name in (row.name, row.metric)]
        if not found:
            names = ", ".join(row.name for row in self.rows)
            raise KeyError(f"expected one of {names}, got {name!r}; evaluate it first")
        return found[0]

    def __str__(self) -> str:
        return "\n".join(str(row) for row in self.rows)

    def _repr_html_(self) -> str:
        return html_table([cells(row) for row in self.rows], HEADS, title=f"Evaluation of {self.folder.name}")


HEADS = ("metric", "value", "interval", "method", "remark")


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """The cells of a row of the table.

    >>> cells(Row("mmd", "mmd", remark="needs samples"))
    ('mmd', '', '', '', 'needs samples')
    """
    value, interval = format_number(row.value, row.low, row.high)
    chance = "" if row.p_value is None else f"p = {row.p_value:.2g}"
    return row.name, value, ", ".join(each for each in (interval, chance) if each), row.method, row.remark


def from_estimate(metric: str, name: str, estimate: Estimate, *, remark: str = "", ideal: float | None = None) -> Row:
    """A row of an estimate; its warning goes to the remark.

    >>> from_estimate("ood", "auroc", Estimate(0.5, 0.25, 0.75, 0.95, "ranks", warning="few rows")).remark
    'few rows'
    """
    said = "; ".join(each for each in (estimate.warning, remark) if each)
    row = Row(metric, name, float(estimate.value), method=estimate.method, remark=said, ideal=ideal)
    if math.isfinite(estimate.low) and math.isfinite(estimate.high):
        row = row._replace(low=float(estimate.low), high=float(estimate.high), confidence=estimate.confidence)
    return row._replace(ess=_float(estimate.ess), standard_error=_float(estimate.standard_error))


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def from_test(
    metric: str, result: Any, words: str, *, estimate: Estimate | None = None, ideal: float | None = None
) -> Row:
    """A row of a `tw.evaluate.TestResult`: its statistic and its p-value; ``words`` say what was tested.

    ``estimate`` is the statistic with its interval, if it has one.
    """
    value = float(result.statistic)
    row = Row(metric, metric, value) if estimate is None else from_estimate(metric, metric, estimate)
    return row._replace(method=f"{words}, {result.method}", p_value=result.p_value, ideal=ideal)


def to_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows for JSON; ``kept`` is not stored."""
    return [{key: value for key, value in row._asdict().items() if key != "kept"} for row in rows]


def from_json(values: Sequence[Mapping[str, Any]], kept: str) -> tuple[Row, ...]:
    """The rows that `to_json` wrote; a ValueError if they are damaged.

    >>> from_json(to_json([Row("mmd", "mmd", 0.5)]), "today")[0].kept
    'today'
    """
    try:
        return tuple(Row(**{**value, "kept": kept}) for value in values)
    except TypeError as problem:
        raise ValueError("expected the rows of an evaluation, got others; evaluate again with --fresh") from problem


shorten_signatures(globals(), ["Evaluation", "Row"])
