"""The result of a statistical test: its statistic and its p-value."""

from typing import Any, NamedTuple

from thalweg.core import Estimate
from thalweg.core.html import html_table


class TestResult(NamedTuple):
    """The result of a test, the same for all tests of this package.

    ``statistic`` is the number that was tested, ``p_value`` the probability of one at least as large under the null
    hypothesis (``None`` if none was asked for), ``method`` says what was computed, and ``parts`` are further numbers by
    name, with intervals where they have one.

    >>> from thalweg.evaluate import TestResult
    >>> print(TestResult(0.012, 0.004, "kernel Stein discrepancy"))
    0.012, p = 0.004, kernel Stein discrepancy
    """

    __test__ = False  # pytest would take the name for a test

    statistic: float
    p_value: float | None
    method: str
    parts: dict[str, Any] | None = None

    def __str__(self) -> str:
        chance = "" if self.p_value is None else f", p = {self.p_value:.3g}"
        return f"{self.statistic:.6g}{chance}, {self.method}"

    def _repr_html_(self) -> str:
        rows = [("statistic", f"{self.statistic:.6g}"), ("method", self.method)]
        rows[1:1] = [] if self.p_value is None else [("p-value", f"{self.p_value:.3g}")]
        rows += [(name.replace("_", " "), _words(part)) for name, part in (self.parts or {}).items()]
        return html_table(rows, title="Test")


def _words(part: Any) -> str:
    return f"{part:.6g}" if isinstance(part, float) and not isinstance(part, Estimate) else str(part)
