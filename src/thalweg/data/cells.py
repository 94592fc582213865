"""Read the cells of a CSV file as text: encoding, delimiter and header; errors name the line."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from thalweg.data.bounds import read_bounded
from thalweg.data.kinds import MISSING

__all__ = ["MISSING", "drop_columns", "is_text", "number", "read_cells"]

_MOST_BYTES = 2**28
_MOST_CELLS = 20_000_000


def read_cells(place: Path, delimiter: str | None = None) -> tuple[tuple[str, ...], list[list[str]]]:
    """The names of the columns and the rows of cells; columns without a header are called 0, 1, ….

    The delimiter is the most frequent of comma, semicolon and tab in the first line. The first line is a header if some
    column has text there and a number below it, or if all its cells are text.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "t.csv"
    ...     _ = file.write_text("size;kind\\n1;cat\\n;dog\\n")
    ...     read_cells(file)
    (('size', 'kind'), [['1', 'cat'], ['', 'dog']])
    """
    content = read_bounded(place, _MOST_BYTES, "take fewer rows, or save the numbers as .npy")
    text = _decode(content, place)
    rows = _rows(text, delimiter or max(",;\t", key=text.partition("\n")[0].count), place)
    if rows and _has_header(rows):
        names, rows = tuple(cell or str(i) for i, cell in enumerate(rows[0])), rows[1:]
    else:
        names = tuple(str(i) for i in range(len(rows[0]))) if rows else ()
    if not rows:
        raise ValueError(f"{place}: expected at least one row of numbers, got an empty table; check the file")
    return names, rows


def drop_columns(
    names: tuple[str, ...], rows: list[list[str]], drop: Sequence[str], place: Path
) -> tuple[tuple[str, ...], list[list[str]]]:
    """The names and rows without the columns in ``drop``; an unknown name is a ValueError."""
    if not drop:
        return names, rows
    for each in drop:
        if each not in names:
            raise ValueError(f"{place}: expected columns to drop among {', '.join(names)}, got {each!r}; correct it")
    kept = [i for i, name in enumerate(names) if name not in drop]
    if not kept:
        raise ValueError(f"{place}: expected at least one column that is not dropped, got none; drop fewer")
    return tuple(names[i] for i in kept), [[row[i] for i in kept] for row in rows]


def _decode(content: bytes, place: Path) -> str:
    try:
        return content.decode("utf-8-sig")  # spreadsheets write a byte order mark
    except UnicodeDecodeError as error:
        start = error.start + 3 * content.startswith(b"\xef\xbb\xbf")
        line = content.count(b"\n", 0, start) + 1
        before = content[content.rfind(b"\n", 0, start) + 1 : start]
        column = max(before.count(mark) for mark in (b",", b";", b"\t")) + 1
        kind = "UTF-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "another encoding"
        raise ValueError(
            f"{place}: expected text in UTF-8, got other bytes ({kind}: 0x{content[start]:02x} in line {line}, "
            f"column {column}); save the table as UTF-8"
        ) from error


def _rows(text: str, delimiter: str, place: Path) -> list[list[str]]:
    rows: list[list[str]] = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        for row in reader:
            if not row:
                continue  # a blank line, most often the last
            if rows and len(row) != len(rows[0]):
                raise ValueError(
                    f"{place}, line {reader.line_num}: expected {len(rows[0])} cells as in the first line, "
                    f"got {len(row)}; correct the line, or give the delimiter"
                )
            rows.append([cell.strip() for cell in row])
            if len(rows) * len(row) > _MOST_CELLS:
                raise ValueError(
                    f"{place}: expected at most {_MOST_CELLS} cells, got more by line {reader.line_num}; "
                    "take fewer rows, or save the numbers as .npy"
                )
    except csv.Error as error:
        raise ValueError(
            f"{place}, line {reader.line_num}: expected a line of a CSV table, got a broken one ({error}); correct it"
        ) from error
    return rows


def number(cell: str) -> float | None:
    """A cell as a number, which may be NaN or infinite; None if it is not a number."""
    try:
        return float(cell)
    except ValueError:
        return None


def is_text(cell: str) -> bool:
    """Whether a cell is neither a number nor missing."""
    return number(cell) is None and cell.lower() not in MISSING


def _has_header(rows: list[list[str]]) -> bool:
    first = [is_text(cell) for cell in rows[0]]
    if all(first):
        return True
    return len(rows) > 1 and any(t and number(cell) is not None for t, cell in zip(first, rows[1], strict=True))
