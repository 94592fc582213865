"""The evaluation of a run in its report: the table with intervals, and pictures."""

from collections.abc import Iterator
from html import escape
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from thalweg import plot
from thalweg.report import figures
from thalweg.report.files import Folder
from thalweg.report.intervals import as_interval, energies_of_two, interval_figure
from thalweg.report.numbers import finite_number, format_number
from thalweg.report.sections import picture, placeholder, section

_HEADS = ("metric", "value", "interval", "method", "remark")
_LIKELIHOOD = "log_likelihood"


class _Curve(NamedTuple):
    """A ROC curve."""

    inside: np.ndarray
    outside: np.ndarray


def evaluation_section(folder: Folder) -> str:
    """The section ``Evaluation``: a sentence on the log-likelihood, all numbers with intervals, and pictures."""
    rows = list(_rows(folder.results))
    if not rows:
        words = "Not evaluated yet: thalweg evaluate computes the test log-likelihood and other numbers with intervals."
        return placeholder("Evaluation", words)
    words = " ".join(each for each in (_say_likelihood(rows), _say_age(folder.results)) if each)
    return section("Evaluation", words, _table(rows), _intervals(rows), *_pictures(folder))


def likelihood_tile(results: dict[str, Any]) -> tuple[str, str, str] | None:
    """Title, value and interval of the log-likelihood, for the head of the page; None if it is not known."""
    row = _find_likelihood(list(_rows(results)))
    if row is None or finite_number(row.get("value")) is None:
        return None
    value, interval = _numbers(row)
    return _title(row), value, f"{interval}, nats per row" if interval else "nats per row"


def _entries(results: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The stored metrics by name; what is damaged is left out."""
    block = results.get("evaluation")
    metrics = block.get("metrics") if isinstance(block, dict) else None
    for name, entry in metrics.items() if isinstance(metrics, dict) else ():
        if isinstance(entry, dict) and isinstance(entry.get("rows"), list):
            yield name, entry


def _rows(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for _, entry in _entries(results):
        yield from (row for row in entry["rows"] if isinstance(row, dict))


def _find_likelihood(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((row for row in rows if row.get("name") == _LIKELIHOOD), None)


def _title(row: dict[str, Any]) -> str:
    trained = "training rows" in str(row.get("method"))
    return "Log-likelihood of training rows" if trained else "Test log-likelihood"


def _say_likelihood(rows: list[dict[str, Any]]) -> str:
    row = _find_likelihood(rows)
    if row is None:
        return ""
    if finite_number(row.get("value")) is None:
        return f"No test log-likelihood: {row.get('remark')}."
    value, interval = _numbers(row)
    level = finite_number(row.get("confidence"))
    within = "" if level is None or not interval else f", {100 * level:g} % interval {interval}"
    remark = str(row.get("remark") or "")
    said = f" {remark[0].upper()}{remark[1:]}." if remark else ""
    return f"{_title(row)}: {value} nats per row{within}; {row.get('method')}.{said}"


def _say_age(results: dict[str, Any]) -> str:
    """A sentence if the run was trained further since it was evaluated."""
    then, now = results["evaluation"].get("updates"), results.get("updates")
    if not isinstance(now, int) or then == now:
        return ""
    return f"These are the numbers after {then} updates; the run now has {now}: evaluate it again."


def _table(rows: list[dict[str, Any]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in _HEADS)
    body = "".join(
        f"<tr><th>{escape(first)}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in rest)}</tr>"
        for first, *rest in map(_cells, rows)
    )
    return f'<div class="wide"><table class="evaluation"><tr>{head}</tr>{body}</table></div>'


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    value, interval = _numbers(row)
    chance = finite_number(row.get("p_value"))
    found = ", ".join(each for each in (interval, "" if chance is None else f"p = {chance:.2g}") if each)
    return str(row.get("name")), value, found, str(row.get("method") or ""), str(row.get("remark") or "")


def _numbers(row: dict[str, Any]) -> tuple[str, str]:
    """The value and the interval of a row as text."""
    return format_number(*(finite_number(row.get(name)) for name in ("value", "low", "high")))


def _intervals(rows: list[dict[str, Any]]) -> str:
    known = [(each, row) for row in rows if (each := as_interval(row)) is not None]
    if not known:
        return ""
    level = finite_number(known[0][1].get("confidence")) or 0.95
    drawn = [each for each, _ in known]
    return picture("Intervals", lambda theme: interval_figure(drawn, level, theme=theme))


def _pictures(folder: Folder) -> Iterator[str]:
    """ROC curves and energies of other data, and the reliability diagram, of the metrics that are stored."""
    for name, entry in _entries(folder.results):
        arrays = _arrays(folder, name, entry.get("digest"))
        if {"roc_inside", "roc_outside", "inside", "outside"} <= arrays.keys():
            yield _draw_detection(name, arrays)
        if {"edges", "count", "confidence", "accuracy"} <= arrays.keys():
            yield _draw_reliability(arrays)


def _arrays(folder: Folder, name: str, digest: Any) -> dict[str, np.ndarray]:
    """The arrays of a metric, if they are those of its stored rows."""
    found = {each.rpartition("/")[2]: array for each, array in folder.evaluation.items() if each.startswith(f"{name}/")}
    return found if str(found.get("digest")) == digest else {}


def _draw_detection(name: str, arrays: dict[str, np.ndarray]) -> str:
    other = name.partition(" ")[2]
    curve = _Curve(arrays["roc_inside"], arrays["roc_outside"])
    inside, outside = arrays["inside"], arrays["outside"]

    def histograms(theme: figures.Theme) -> Figure:
        return energies_of_two(inside, outside, other, theme=theme)

    drawn = picture(f"Energies against {other}", histograms)
    return drawn + picture(
        f"ROC curve against {other}", lambda theme: plot.roc({other: curve}, theme=theme), narrow=True
    )


class _Table(NamedTuple):
    """The bins of a reliability diagram."""

    edges: np.ndarray
    count: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray


def _draw_reliability(arrays: dict[str, np.ndarray]) -> str:
    table = _Table(*(arrays[name] for name in _Table._fields))
    return picture("Reliability diagram", lambda theme: plot.reliability(table, theme=theme), narrow=True)
