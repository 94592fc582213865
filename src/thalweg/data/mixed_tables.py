"""Tables with categories and missing values: read as coordinates to train on, and written back as a table."""

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
    """A table as coordinates: `x` (rows, coordinates) float32, and the `columns` that decode them.

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
    """Read a CSV table with numbers, categories and missing values as coordinates that an energy can be trained on.

    Every column of numbers becomes a standard normal through its own quantiles, categories become dequantised codes,
    and a missing cell is the column's median or most frequent name (see `thalweg.data.columns`). `columns.decode` gives
    rows of the original columns back. Dates, free text and row numbers are refused by name; `drop` leaves columns out.
    `seed` places tied values.

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
    """Write rows under a header; an empty cell stands for None.

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
