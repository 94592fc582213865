"""The kind of a column: numbers or categories; dates, free text and row numbers are refused."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-", "nat", "<na>"})
MOST_CATEGORIES = 50
_MOST_SHOWN = 40
_MOST_DECIMALS = 9
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_TIME = r"([ t]+\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?\s*(am|pm|z|[+-]\d{2}:?\d{2})?)?"
_DATES = (
    rf"\d{{4}}([-/.])\d{{1,2}}(\1\d{{1,2}})?{_TIME}",  # 2021-03-04, 2021-03
    rf"\d{{1,2}}([-/.])\d{{1,2}}\1(\d{{4}}|\d{{2}}){_TIME}",  # 04/03/2021, 3/14/21
    rf"\d{{1,2}}[- ]{_MONTH}[- ]\d{{2,4}}{_TIME}",  # 4 Mar 2021
    rf"{_MONTH} \d{{1,2}},? \d{{4}}{_TIME}",  # March 4, 2021
    r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?",  # 10:35
)


class Kind(NamedTuple):
    """Whether a column holds numbers, and how many decimals they have; ``decimals`` is None for categories."""

    numeric: bool
    decimals: int | None


def is_missing(cell: Any) -> bool:
    """Whether a cell is empty, None, NaN or a common marker of a missing value.

    >>> [is_missing(cell) for cell in ("", " NA ", None, float("nan"), "0")]
    [True, True, True, True, False]
    """
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def number_of(cell: Any) -> float | None:
    """A cell as a finite number; None if it is not one.

    >>> number_of("1e3"), number_of("12 km"), number_of("inf")
    (1000.0, None, None)
    """
    text = str(cell).strip()
    try:
        number = float(text)
    except ValueError:
        return None
    # float() also accepts underscores, "infinity" and digits of other scripts
    return number if math.isfinite(number) and text.isascii() and "_" not in text else None


def value_of(cell: Any, numeric: bool) -> Any:
    """The value of a cell: a number, or a name without surrounding spaces."""
    return number_of(cell) if numeric else str(cell).strip()


def column_kind(cells: Sequence[Any], column: str, table: str) -> Kind:
    """The kind of a column; a ValueError for columns on which a continuous energy cannot be trained.

    >>> column_kind(["1", "2.50", ""], "price", "shop.csv")
    Kind(numeric=True, decimals=1)
    >>> column_kind([*range(20, 50, 2), "five"], "price", "shop.csv")
    Traceback (most recent call last):
    ValueError: shop.csv: expected a number in row 16, column 'price', as in the others, got 'five'; correct the cell, \
or leave it empty for a missing value
    """
    present = [(row, cell) for row, cell in enumerate(cells, start=1) if not is_missing(cell)]
    if not present:
        return Kind(False, None)
    texts = [str(cell).strip() for _, cell in present]
    dates = [place for place, text in enumerate(texts) if _is_date(text)]
    drop = f'leave the column out with drop=["{column}"] (--set data.drop=\'["{column}"]\')'
    if 2 * len(dates) > len(texts):
        row, cell = present[dates[0]]
        raise ValueError(
            f"{table}: expected numbers or categories in column {column!r}, got dates such as {_quote(cell)} in row "
            f"{row}; {drop}, or write the days since a first one in its place"
        )
    numbers = [number_of(text) for text in texts]
    others = [place for place, number in enumerate(numbers) if number is None]
    if not others:
        _refuse_row_numbers(numbers, column, table, drop)
        _refuse_large(numbers, present, column, table)
        return Kind(True, max(map(_decimals, texts)))
    row, cell = present[others[0]]
    if 2 * len(others) < len(texts) and len(set(texts)) > 10:
        raise ValueError(
            f"{table}: expected a number in row {row}, column {column!r}, as in the others, got {_quote(cell)}; "
            "correct the cell, or leave it empty for a missing value"
        )
    if all(re.fullmatch(r"[+-]?\d*,\d+", texts[place]) for place in others):
        raise ValueError(
            f"{table}: expected decimals with a point in column {column!r}, got {_quote(cell)} in row {row}; "
            "write them with a point"
        )
    different = len(set(texts))
    if different > MOST_CATEGORIES or (different > 10 and 2 * different > len(texts)):
        raise ValueError(
            f"{table}: expected numbers or at most {MOST_CATEGORIES} categories in column {column!r}, got {different} "
            f"different texts such as {_quote(cell)} in row {row}, so names or free text; {drop}"
        )
    return Kind(False, None)


def _is_date(text: str) -> bool:
    short = len(text) <= _MOST_SHOWN and number_of(text) is None
    return short and any(re.fullmatch(pattern, text, re.IGNORECASE) for pattern in _DATES)


def _refuse_row_numbers(numbers: Sequence[float | None], column: str, table: str, drop: str) -> None:
    whole = [number for number in numbers if number is not None]
    if len(whole) >= 10 and all(after - before == 1 for before, after in pairwise(whole)):
        raise ValueError(
            f"{table}: expected measured numbers in column {column!r}, got a count of the rows, "
            f"{whole[0]:g} to {whole[-1]:g}; {drop}"
        )


def _refuse_large(numbers: Sequence[float | None], present: Sequence[tuple[int, Any]], column: str, table: str) -> None:
    for number, (row, cell) in zip(numbers, present, strict=True):
        if number is not None and abs(number) > 1e30:
            raise ValueError(
                f"{table}: expected a number below 1e30 in row {row}, column {column!r}, got {_quote(cell)}; "
                "correct the cell, or leave it empty for a missing value"
            )


def _decimals(text: str) -> int:
    """The number of decimals of a number as written, without trailing zeros."""
    mantissa, _, exponent = text.lower().partition("e")
    fraction = mantissa.partition(".")[2].rstrip("0")
    shift = int(exponent) if exponent else 0
    return min(max(len(fraction) - shift, 0), _MOST_DECIMALS)


def _quote(cell: Any) -> str:
    text = str(cell).strip()
    return repr(text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…")
