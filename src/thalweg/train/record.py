"""The metrics of a training: in memory, and one line per update in ``metrics.jsonl``."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array

from thalweg.core.files import write_whole
from thalweg.core.records import read_records

_FIX = "lower the learning rate or the sampler's step size, or turn on spectral normalisation, and resume"


class DivergedError(RuntimeError):
    """The loss or the weights became non-finite, or training ran away; ``history`` holds the metrics up to then."""

    def __init__(self, message: str, history: Mapping[str, np.ndarray]):
        super().__init__(message)
        self.history = history


class Record:
    """The metrics of a run: in memory, and one line per update in ``metrics.jsonl``."""

    def __init__(self, folder: Path | None):
        self._path = None if folder is None else folder / "metrics.jsonl"
        self.rows: list[dict[str, float]] = []
        self._unwritten: list[dict[str, float]] = []
        self.evaluations: list[dict[str, float]] = []
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as problem:
                raise ValueError(
                    f"expected a run folder to write to, got '{problem}'; choose another run_dir"
                ) from problem

    def add(self, step: int, metrics: Mapping[str, Array]) -> dict[str, float]:
        """Record the metrics of an update and return them as floats; `DivergedError` if loss or weights are not
        finite."""
        row = {name: float(value) for name, value in metrics.items()}
        fault = not_finite(row, self.rows[-1] if self.rows else {})
        if fault is not None:
            raise DivergedError(
                f"expected {fault} at update {step}; checkpoints before it are whole: {_FIX}", self.history()
            )
        self.rows.append(row)
        self._unwritten.append({"step": step, **row})
        return row

    def evaluate(self, step: int, values: Mapping[str, float]) -> None:
        """Record what a callback returned."""
        if values:
            row = {"step": step, **{name: float(value) for name, value in values.items()}}
            self.evaluations.append(row)
            self._unwritten.append({"evaluation": True, **row})

    def history(self) -> dict[str, np.ndarray]:
        """Each metric as an array with one number per update; NaN if an update's line was lost."""
        return as_history(self.rows)

    def flush(self) -> None:
        """Write the lines that are not on disk yet."""
        if self._path is not None and self._unwritten:
            text = "".join(json.dumps(row) + "\n" for row in self._unwritten)
            try:
                with self._path.open("a") as file:
                    file.write(text)
            except OSError as problem:
                raise ValueError(
                    f"expected to write to {self._path}, got '{problem}'; free space there and resume"
                ) from problem
        self._unwritten.clear()

    close = flush

    def rewind(self, step: int) -> None:
        """Read the record of an earlier session, without the updates after ``step``, that of the checkpoint."""
        assert self._path is not None
        kept, self.rows, self.evaluations = rows_until(self._path, step)
        write_whole(self._path, "".join(json.dumps(row) + "\n" for row in kept).encode())


def not_finite(row: Mapping[str, float], before: Mapping[str, float]) -> str | None:
    """Describe what is not finite in an update, given the update before it; None if all is."""
    if not math.isfinite(row["loss"]):
        return f"a finite loss, got {row['loss']}"
    norm = row.get("weight_norm", 0.0)
    # weights that were infinite from the start, such as a mask, are intended
    if math.isnan(norm) or (math.isinf(norm) and not math.isinf(before.get("weight_norm", math.inf))):
        return f"finite weights, got a norm of {norm}"
    return None


def rows_until(path: Path, step: int) -> tuple[list[dict[str, Any]], list[dict[str, float]], list[dict[str, float]]]:
    """The lines of metrics up to update ``step``, the metrics of each of these updates, and the evaluations.

    There is a row for every update up to ``step``, an empty one if the line was lost, so that rows never shift.
    """
    kept = [row for row in read_records(path) if row["step"] <= step]
    updates: list[dict[str, float]] = [{} for _ in range(step)]
    evaluations = []
    for row in kept:
        values = {name: value for name, value in row.items() if name != "evaluation"}
        if "evaluation" in row:
            evaluations.append(values)
        else:
            updates[row["step"] - 1] = {name: value for name, value in values.items() if name != "step"}
    return kept, updates, evaluations


def as_history(rows: list[dict[str, float]]) -> dict[str, np.ndarray]:
    """Rows of metrics as one array per metric; NaN if a row does not have it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([row.get(name, math.nan) for row in rows]) for name in names}
