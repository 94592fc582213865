"""Arrays in numpy's files and tables in CSV: numbers only, nothing pickled, every gap named by its place."""

import csv
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thalweg.data.checks import check_array
from thalweg.data.formats import require_file

_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-"})


class Table(NamedTuple):
    """A CSV table: `x` (rows, columns) float32, the columns' names, and where asked for labels and their names.

    >>> table = Table(np.zeros((3, 2), np.float32), ("height", "weight"))
    >>> table.x.shape, table.y
    ((3, 2), None)
    """

    x: np.ndarray
    columns: tuple[str, ...]
    y: np.ndarray | None = None
    classes: tuple[str, ...] | None = None


def read_npy(path: str | Path) -> np.ndarray:
    """Read one `.npy` array; arrays of Python objects, which are pickles, are refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder) / "x.npy", np.eye(2))
    ...     read_npy(Path(folder) / "x.npy")
    array([[1., 0.],
           [0., 1.]])
    """
    place = require_file(path, "a .npy file")
    with place.open("rb") as stream:
        return _read_array(stream, str(place))


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """Read all arrays of an `.npz` file by name; arrays of Python objects, which are pickles, are refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "data.npz", x_train=np.zeros((4, 2)), x_test=np.zeros((1, 2)))
    ...     {name: array.shape for name, array in read_npz(Path(folder) / "data.npz").items()}
    {'x_train': (4, 2), 'x_test': (1, 2)}
    """
    place = require_file(path, "an .npz file")
    try:
        with zipfile.ZipFile(place) as archive:
            return {name.removesuffix(".npy"): _member(archive, name, place) for name in archive.namelist()}
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(
            f"{place}: expected a complete .npz file, got a damaged one ({error}); get it again"
        ) from error


def _member(archive: zipfile.ZipFile, name: str, place: Path) -> np.ndarray:
    with archive.open(name) as stream:
        return _read_array(stream, f"{place}: {name.removesuffix('.npy')}")


def _read_array(stream: Any, name: str) -> np.ndarray:
    try:
        return np.lib.format.read_array(stream, allow_pickle=False)
    except (ValueError, EOFError, MemoryError, SyntaxError, tokenize.TokenError) as error:
        raise ValueError(
            f"{name}: expected a complete numpy array of numbers, got none ({str(error).rstrip('.')}); save it again"
        ) from error


def read_csv(path: str | Path, *, label: str | int | None = None, delimiter: str | None = None) -> Table:
    """Read a CSV table of numbers; a header is found by itself, columns without one are called 0, 1, ….

    `label` names (or counts) the column of labels, which is taken out of `x`: whole numbers stay as they are, anything
    else becomes classes 0, 1, … in sorted order. `delimiter` is a comma, semicolon or tab, found by itself. The first
    line is a header if some column has text there and a number below it, or if all of it is text. A missing value, NaN
    or text in a column of numbers is refused by row (data rows count from 1) and column.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "t.csv"
    ...     _ = file.write_text("width,height,kind\\n1,2.5,cat\\n3,4.5,dog\\n")
    ...     read_csv(file, label="kind")  # doctest: +NORMALIZE_WHITESPACE
    Table(x=array([[1. , 2.5], [3. , 4.5]], dtype=float32), columns=('width', 'height'),
          y=array([0, 1], dtype=int32), classes=('cat', 'dog'))
    """
    place = require_file(path, "a CSV file")
    rows = _cells(place, delimiter)
    if rows and _has_header(rows):
        columns, rows = tuple(cell or str(i) for i, cell in enumerate(rows[0])), rows[1:]
    else:
        columns = tuple(str(i) for i in range(len(rows[0]))) if rows else ()
    if not rows:
        raise ValueError(f"{place}: expected at least one row of numbers, got an empty table; check the file")
    position = None if label is None else _position(label, columns, place)
    kept = [i for i in range(len(columns)) if i != position]
    if not kept:
        raise ValueError(f"{place}: expected a column of numbers beside the labels, got none; check the file")
    x = np.stack([_numbers([row[i] for row in rows], columns[i], place) for i in kept], axis=1)
    names = tuple(columns[i] for i in kept)
    if position is None:
        return Table(x, names)
    return Table(x, names, *_labels([row[position] for row in rows], columns[position], place))


def _cells(place: Path, delimiter: str | None) -> list[list[str]]:
    try:
        with place.open(newline="", encoding="utf-8-sig") as stream:  # spreadsheets put a mark before the first cell
            first = stream.readline()
            stream.seek(0)
            separator = delimiter or max(",;\t", key=first.count)
            reader = csv.reader(stream, delimiter=separator, skipinitialspace=True)
            rows: list[list[str]] = []
            for row in reader:
                if not row:
                    continue  # a blank line, most often the last
                if rows and len(row) != len(rows[0]):
                    raise ValueError(
                        f"{place}, line {reader.line_num}: expected {len(rows[0])} cells as in the first line, "
                        f"got {len(row)}; correct the line, or give the delimiter"
                    )
                rows.append([cell.strip() for cell in row])
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{place}: expected text in UTF-8, got other bytes ({error}); save the table as UTF-8"
        ) from error
    except csv.Error as error:
        raise ValueError(f"{place}: expected a CSV table, got something else ({error}); check the file") from error
    return rows


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _is_text(cell: str) -> bool:
    return _number(cell) is None and cell.lower() not in _MISSING


def _has_header(rows: list[list[str]]) -> bool:
    first = [_is_text(cell) for cell in rows[0]]
    if all(first):
        return True
    return len(rows) > 1 and any(t and _number(cell) is not None for t, cell in zip(first, rows[1], strict=True))


def _position(label: str | int, columns: tuple[str, ...], place: Path) -> int:
    if isinstance(label, int) and -len(columns) <= label < len(columns):
        return label % len(columns)
    if label in columns:
        return columns.index(str(label))
    raise ValueError(f"{place}: expected a label column among {', '.join(columns)}, got {label!r}; choose one of these")


def _numbers(cells: list[str], column: str, place: Path) -> np.ndarray:
    try:
        with np.errstate(over="ignore"):  # what is too large for float32 is refused below, by its place
            values = np.array(cells, dtype=np.float32)
        if np.isfinite(values).all():
            return values
    except ValueError:
        pass  # which cell it was is found below
    for row, cell in enumerate(cells, start=1):
        number = _number(cell)
        if number is None or not abs(number) <= float(np.finfo(np.float32).max):
            got = "a missing value" if cell.lower() in _MISSING else repr(cell)
            fix = (
                "name the column as the label or remove it" if _is_text(cell) else "fill in the value or remove the row"
            )
            raise ValueError(f"{place}: expected a number in row {row}, column {column!r}, got {got}; {fix}")
    raise AssertionError("a column that numpy cannot read has a cell that float cannot")


def _labels(cells: list[str], column: str, place: Path) -> tuple[np.ndarray, tuple[str, ...] | None]:
    for row, cell in enumerate(cells, start=1):
        if cell.lower() in _MISSING:
            raise ValueError(
                f"{place}: expected a label in row {row}, column {column!r}, got a missing value; "
                "fill it in or remove the row"
            )
    numbers = [_number(cell) for cell in cells]
    if all(number is not None and number.is_integer() and abs(number) < 2**31 for number in numbers):
        return np.array(numbers).astype(np.int32), None
    classes, codes = np.unique(np.array(cells), return_inverse=True)
    return codes.astype(np.int32), tuple(str(name) for name in classes)


class Standardiser(NamedTuple):
    """``z = (x - mean) / scale``, the map to zero mean and unit spread, learnt from training rows; `inverse` undoes it.

    ``mean`` and ``scale`` are ``(columns,)``; call it on any rows ``(rows, columns)``.

    >>> standardiser = Standardiser(np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    >>> z = standardiser(np.array([[3.0, 2.0]]))
    >>> z.tolist(), standardiser.inverse(z).tolist()
    ([[1.0, 0.0]], [[3.0, 2.0]])
    """

    mean: np.ndarray
    scale: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return ((x - self.mean) / self.scale).astype(np.float32)

    def inverse(self, z: np.ndarray) -> np.ndarray:
        return (z * self.scale + self.mean).astype(np.float32)


def standardise(x: np.ndarray) -> Standardiser:
    """Learn mean and standard deviation (n in the denominator) of each coordinate of `x` (rows, *event).

    A coordinate that never changes is divided by one, so it becomes zero.

    >>> to_unit = standardise(np.array([[1.0, 5.0], [3.0, 5.0]]))
    >>> to_unit(np.array([[1.0, 5.0], [5.0, 5.0]]))
    array([[-1.,  0.],
           [ 3.,  0.]], dtype=float32)
    """
    rows = np.asarray(check_array(x, integers=True), dtype=np.float64)
    spread = rows.std(axis=0)
    constant = rows.max(axis=0) == rows.min(axis=0)  # exactly, where rounding leaves a spread of 1e-17
    return Standardiser(rows.mean(axis=0), np.where(constant, 1.0, spread))
