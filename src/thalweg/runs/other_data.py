"""Rows of other data for a run: loaded by name or path, and brought to the shape of the run's points."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from thalweg.core import space_of
from thalweg.data import CATALOGUE, check_array, load
from thalweg.data.cells import read_cells
from thalweg.plot.points import is_image
from thalweg.runs.data_tables import data_keys
from thalweg.runs.own_samples import keep_columns
from thalweg.runs.settings import NONE
from thalweg.runs.subject import Rows
from thalweg.train import Run

_TABLES = (".csv", ".tsv")
# settings of the run's data that hold for other data too
_SHARED = ("raw", "label", "delimiter", "drop")


def load_rows(source: Any, run: Run, folder: Path, config: Mapping[str, Any]) -> Rows:
    """The test rows of a data set, or all rows if it has no others, as points of a run.

    A table is encoded as that of the run, and images of another size are resized. The beginning of a name is enough:
    ``fashion`` for ``fashion_mnist``.

    Args:
        source: a name or a path as for `tw.data.load`, or an array ``(n, *event)``.
        run: the run.
        folder: its folder.
        config: its configuration.
    """
    event = _event(run)
    if not isinstance(source, (str, Path)):
        x = check_array(source, event_shape=event, integers=True, name="data")
        return Rows(np.asarray(x), None, f"{len(x)} given rows", "given")
    name = _full_name(str(source))
    short = Path(name).name
    if Path(name).suffix.lower() in _TABLES:
        encoded = _encode_table(Path(name).expanduser(), config, folder)
        if encoded is not None:
            return Rows(encoded, None, f"{len(encoded)} rows of {short}", short)
    data = load(name, **_options(name, event, config.get("data", {})))
    test = data.x_test is not None
    x, y = (data.x_test, data.y_test) if test else (data.x_train, data.y_train)
    assert x is not None
    words = f"{len(x)} {'test rows' if test else 'rows'} of {short}"
    return _fitted(x, y, event, words, short)


def _fitted(x: np.ndarray, y: np.ndarray | None, event: tuple[int, ...], words: str, name: str) -> Rows:
    shape = x.shape[1:]
    if shape == event:
        return Rows(x, y, words, name)
    if not (is_image(shape) and is_image(event) and len(shape) == len(event) == 3 and shape[2] == event[2]):
        raise ValueError(
            f"{name}: expected points of shape {event}, as those of the run, got {shape}; give data of that shape"
        )
    resized = np.asarray(jax.image.resize(x, (len(x), *event), "linear"))
    return Rows(resized, y, f"{words}, resized from {shape[0]}×{shape[1]}", name)


def _event(run: Run) -> tuple[int, ...]:
    space = space_of(run.energy)
    if space is not None:
        return space.shape
    known = run.source.dataset(run.energy)
    if known is None:
        raise ValueError(
            f"expected to know the shape of a point of {type(run.energy).__name__}, got neither its space nor its "
            "data; give data=tw.data.Dataset(...)"
        )
    return known.x_train.shape[1:]


def _full_name(name: str) -> str:
    """The data set whose name begins with ``name``, if it is the only one and there is no such file."""
    if name in CATALOGUE or Path(name).expanduser().exists():
        return name
    begun = [each for each in CATALOGUE if each.startswith(name)]
    return begun[0] if len(begun) == 1 else name


def _options(name: str, event: tuple[int, ...], own: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `load`: those shared with the run's data, and the size of its images."""
    known = data_keys(name)
    options = {key: own[key] for key in _SHARED if key in known and own.get(key, NONE) != NONE}
    if "size" in known and is_image(event) and len(event) == 3:
        options["grey"] = event[2] == 1
        options["size"] = event[0] if event[0] == event[1] else event[:2]
    return options


def _encode_table(path: Path, config: Mapping[str, Any], folder: Path) -> np.ndarray | None:
    """The rows of a table, encoded by the columns of the run; None unless the run is on such a table."""
    columns = keep_columns(config, folder)
    if columns is None:
        return None
    delimiter = config["data"]["delimiter"]
    names, rows = read_cells(path, None if delimiter == NONE else delimiter)
    for name in columns.names:
        if name not in names:
            raise ValueError(f"{path}: expected a column {name!r}, as in the run's table, got none; add it")
    places = [names.index(name) for name in columns.names]
    return columns.encode([[row[place] for place in places] for row in rows])
