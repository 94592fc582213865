"""Read the files of a run folder; every kind of damage has its own error message."""

import tomllib
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thalweg.core.files import read_json
from thalweg.core.records import read_records


class Folder(NamedTuple):
    """The content of a run folder: ``history`` and ``evaluations`` map each metric to ``(updates, values)``.

    ``samples`` and ``evaluation`` are the arrays of ``samples.npz`` and ``evaluation.npz``. Both, and ``history`` and
    ``results``, are empty if the run has not got that far.
    """

    path: Path
    config: str
    history: dict[str, tuple[np.ndarray, np.ndarray]]
    evaluations: dict[str, tuple[np.ndarray, np.ndarray]]
    samples: dict[str, np.ndarray]
    results: dict[str, Any]
    evaluation: dict[str, np.ndarray]


def read_folder(run_dir: str | Path) -> Folder:
    """Read what a report needs from a run folder; only ``config.toml`` must exist."""
    path = Path(run_dir)
    config = _config(path)
    updates, evaluations = _metrics(path / "metrics.jsonl")
    samples, results = read_samples(path / "samples" / "samples.npz"), read_json(path / "results.json")
    return Folder(
        path, config, updates, evaluations, samples, results, read_samples(path / "samples" / "evaluation.npz")
    )


def _config(folder: Path) -> str:
    path = folder / "config.toml"
    if not path.is_file():
        raise ValueError(f"{folder}: expected a run folder, got one without config.toml; check the run's name")
    try:
        text = path.read_text(encoding="utf-8")
        tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise ValueError(f"{path}: expected TOML, got '{problem}'; restore the file from the run's origin") from problem
    return text


def _metrics(path: Path) -> tuple[dict, dict]:
    """The metrics of the updates and those of the evaluations, by name."""
    rows: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for row in read_records(path):
        rows["evaluation" in row].append(row)
    return _by_metric(rows[False]), _by_metric(rows[True])


def _by_metric(rows: list[dict[str, Any]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    names = dict.fromkeys(name for row in rows for name in row if name not in ("step", "evaluation"))
    columns = {name: [(row["step"], row[name]) for row in rows if name in row] for name in names}
    return {
        name: (np.array([step for step, _ in column]), np.array([value for _, value in column], dtype=float))
        for name, column in columns.items()
    }


def read_samples(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an NPZ file; none if there is no such file, a ValueError if it is damaged."""
    if not path.exists():
        return {}
    try:
        with np.load(path) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as problem:
        raise ValueError(f"{path}: expected arrays, got a damaged file; draw the samples again") from problem
