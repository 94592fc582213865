"""Tables with categories and missing values: read as coordinates for training, and written back as a table."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from thalweg.core.files import write_whole
from thalweg.data.bounds import require_file
from thalweg.data.cells import drop_columns, read_cells
from thalweg.data.columns import Cell, Columns, fit_columns


class EncodedTable(NamedTuple):
    """A table as coordinates: `x` (rows, coordinates) float32, and the `columns`, which decode them.

    >>> from thalweg.data import EncodedTable, fit_columns
    >>> rows = [["1.5", "red"], ["2.5", "blue"], ["3.5", "red"]]
    >>> columns = fit_columns(rows, ["size", "colour"])
    >>> EncodedTable(columns.encode(rows), columns).x.shape
    (3, 2)
    """

    x: np.ndarray
    columns: Columns


def read_table(
    path: str | Path, *, drop: Sequence[str] = (), delimiter: str | None = None, seed: int = 0
) -> EncodedTable:
    """Read a CSV table with numbers, categories and missing values as coordinates on which an energy can be trained.

    Every column of numbers is mapped to a standard normal through its quantiles, categories become dequantised codes,
    and a missing cell gets the column's median or most frequent name (see `thalweg.data.columns`). `columns.decode`
    converts coordinates back to rows of the original columns. Columns of dates, free text or row numbers are a
    ValueError; `drop` leaves columns out. `seed` is that of the dequantisation noise.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "pets.csv"
    ...     _ = file.write_text("age,weight,kind\\n3,4.5,cat\\n11,,dog\\n1,20.0,dog\\n7,5.25,rabbit\\n")
    ...     table = read_table(file)
    >>> table.x.shape
    (4, 5)
    >>> table.columns.decode(table.x)
    [[3, 4.5, 'cat'], [11, 5.25, 'dog'], [1, 20.0, 'dog'], [7, 5.25, 'rabbit']]
    """
    place = require_file(path, "a CSV file")
    names, rows = drop_columns(*read_cells(place, delimiter), drop, place)
    columns = fit_columns(rows, names, name=str(place))
    return EncodedTable(columns.encode(rows, seed=seed), columns)


def write_csv(path: Path, names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Path:
    """Write rows under a header; None becomes an empty cell.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_csv(Path(folder) / "t.csv", ["a", "b"], [[1, "x"], [None, "y, z"]]).read_text()
    'a,b\\n1,x\\n,"y, z"\\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return write_whole(path, text.getvalue().encode("utf-8"))
