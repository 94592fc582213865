"""Read numpy files and CSV tables of numbers; pickled arrays are refused, and errors name the row and column."""

import math
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thalweg.data.bounds import MOST_BYTES, MOST_UNPACKED, check_member, require_file
from thalweg.data.cells import MISSING, drop_columns, is_text, number, read_cells
from thalweg.data.checks import check_array

_MOST_ARRAYS = 1000


class Table(NamedTuple):
    """A CSV table: `x` (rows, columns) float32, the columns' names, and optionally labels and class names.

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
        return _read_array(stream, str(place), place.stat().st_size, MOST_BYTES)


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
            members = archive.infolist()
            names = [_array_name(member, place) for member in members]
            if len(set(names)) < len(names) or len(names) > _MOST_ARRAYS:
                raise ValueError(
                    f"{place}: expected at most {_MOST_ARRAYS} arrays of different names, got {len(names)} of which "
                    f"{len(set(names))} differ; save it again"
                )
            left, arrays = MOST_UNPACKED, {}
            for name, member in zip(names, members, strict=True):
                with archive.open(check_member(member, place, left)) as stream:
                    arrays[name] = _read_array(stream, f"{place}: {name}", member.file_size, left)
                left -= member.file_size
            return arrays
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ValueError(
            f"{place}: expected a complete .npz file, got a damaged one ({error}); get it again"
        ) from error


def _array_name(member: zipfile.ZipInfo, place: Path) -> str:
    name = member.filename.removesuffix(".npy")
    if (
        not name.isprintable()
        or not 0 < len(name) <= 200
        or any(mark in name for mark in ("\\", ".."))
        or name[0] == "/"
    ):
        raise ValueError(f"{place}: expected arrays with plain names, got {member.filename[:80]!r}; save it again")
    return name


def _read_array(stream: Any, name: str, size: int, most: int) -> np.ndarray:
    """Read one array from a file of ``size`` bytes; checks its header against the size before allocating memory."""
    try:
        version = np.lib.format.read_magic(stream)
        readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in readers:
            raise ValueError(f"version {version}")
        shape, _, dtype = readers[version](stream)
        claimed, there = math.prod(shape) * dtype.itemsize, size - stream.tell()
        if dtype.hasobject:
            raise ValueError("Object arrays, which are pickles")
        if dtype.itemsize == 0 or claimed != there:
            raise ValueError(f"{there} bytes for {dtype} values of shape {shape}")
        if claimed > most:
            raise ValueError(f"{claimed / 1e6:.0f} MB where {most / 1e6:.0f} MB are the limit")
        stream.seek(0)
        return np.lib.format.read_array(stream, allow_pickle=False)
    except (ValueError, EOFError, MemoryError, OverflowError, SyntaxError, TypeError, tokenize.TokenError) as error:
        raise ValueError(
            f"{name}: expected a complete numpy array of numbers, got none ({str(error).rstrip('.')}); save it again"
        ) from error


def read_csv(
    path: str | Path, *, label: str | int | None = None, delimiter: str | None = None, drop: Sequence[str] = ()
) -> Table:
    """Read a CSV table of numbers; a header is detected, columns without one are called 0, 1, ….

    `label` is the name or index of the column of labels, which is not part of `x`: whole numbers are kept, anything
    else becomes classes 0, 1, … in sorted order. `delimiter` is by default the most frequent of comma, semicolon and
    tab. The first line is a header if some column has text there and a number below it, or if all its cells are text.
    A missing value, NaN or text in a column of numbers is a ValueError that names the row (counted from 1, without the
    header) and column; `read_table` accepts missing values and text. Columns named in `drop` are left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "t.csv"
    ...     _ = file.write_text("width,height,kind\\n1,2.5,cat\\n3,4.5,dog\\n")
    ...     read_csv(file, label="kind")  # doctest: +NORMALIZE_WHITESPACE
    Table(x=array([[1. , 2.5], [3. , 4.5]], dtype=float32), columns=('width', 'height'),
          y=array([0, 1], dtype=int32), classes=('cat', 'dog'))
    """
    place = require_file(path, "a CSV file")
    columns, rows = drop_columns(*read_cells(place, delimiter), drop, place)
    position = None if label is None else _position(label, columns, place)
    kept = [i for i in range(len(columns)) if i != position]
    if not kept:
        raise ValueError(f"{place}: expected a column of numbers beside the labels, got none; check the file")
    x = np.stack([_numbers([row[i] for row in rows], columns[i], place) for i in kept], axis=1)
    names = tuple(columns[i] for i in kept)
    if position is None:
        return Table(x, names)
    return Table(x, names, *_labels([row[position] for row in rows], columns[position], place))


def _position(label: str | int, columns: tuple[str, ...], place: Path) -> int:
    if isinstance(label, int) and -len(columns) <= label < len(columns):
        return label % len(columns)
    if label in columns:
        return columns.index(str(label))
    raise ValueError(f"{place}: expected a label column among {', '.join(columns)}, got {label!r}; choose one of these")


def _numbers(cells: list[str], column: str, place: Path) -> np.ndarray:
    try:
        with np.errstate(over="ignore"):  # a number too large for float32 is found below
            values = np.array(cells, dtype=np.float32)
        if np.isfinite(values).all():
            return values
    except ValueError:
        pass  # the cell is found below
    for row, cell in enumerate(cells, start=1):
        value = number(cell)
        if value is None or not abs(value) <= float(np.finfo(np.float32).max):
            got = "a missing value" if cell.lower() in MISSING else repr(cell)
            fix = (
                "name the column as the label or remove it" if is_text(cell) else "fill in the value or remove the row"
            )
            raise ValueError(f"{place}: expected a number in row {row}, column {column!r}, got {got}; {fix}")
    raise AssertionError("a column that numpy cannot read has a cell that float cannot")


def _labels(cells: list[str], column: str, place: Path) -> tuple[np.ndarray, tuple[str, ...] | None]:
    for row, cell in enumerate(cells, start=1):
        if cell.lower() in MISSING:
            raise ValueError(
                f"{place}: expected a label in row {row}, column {column!r}, got a missing value; "
                "fill it in or remove the row"
            )
    numbers = [number(cell) for cell in cells]
    if all(each is not None and each.is_integer() and abs(each) < 2**31 for each in numbers):
        return np.array(numbers).astype(np.int32), None
    classes, codes = np.unique(np.array(cells), return_inverse=True)
    return codes.astype(np.int32), tuple(str(name) for name in classes)


class Standardiser(NamedTuple):
    """``z = (x - mean) / scale``, the map to zero mean and unit variance, fitted to training rows; `inverse` undoes it.

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
    """Fit the mean and standard deviation (n in the denominator) of each coordinate of `x` (rows, *event).

    A constant coordinate is divided by one, so it becomes zero.

    >>> to_unit = standardise(np.array([[1.0, 5.0], [3.0, 5.0]]))
    >>> to_unit(np.array([[1.0, 5.0], [5.0, 5.0]]))
    array([[-1.,  0.],
           [ 3.,  0.]], dtype=float32)
    """
    rows = np.asarray(check_array(x, integers=True), dtype=np.float64)
    spread = rows.std(axis=0)
    constant = rows.max(axis=0) == rows.min(axis=0)  # exact, while rounding may leave a deviation of 1e-17
    return Standardiser(rows.mean(axis=0), np.where(constant, 1.0, spread))
