"""Read the lines of ``metrics.jsonl``; every kind of damage has its own error message."""

import json
from pathlib import Path
from typing import Any


def read_records(path: Path) -> list[dict[str, Any]]:
    """Every line of a run's metrics as a dictionary: ``step``, the update's number, and the metrics by name.

    Lines of evaluations have ``"evaluation": True``; the steps of the other lines increase. A last line cut short by a
    crash is left out; any other damage is a ValueError with the line's number. A missing file has no lines.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "metrics.jsonl"
    ...     _ = path.write_text('{"step": 1, "loss": 0.5}\\n{"step": 2, "lo')
    ...     read_records(path)
    [{'step': 1, 'loss': 0.5}]
    """
    # damaged bytes are replaced, so that the error names their line
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    rows, last = [], 0
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError as problem:
            if number == len(lines):
                break  # the run is writing this line now, or was stopped while writing it
            raise _damaged_error(path, number, "no JSON") from problem
        fault = _fault(row, last)
        if fault is not None:
            raise _damaged_error(path, number, fault)
        last = last if "evaluation" in row else row["step"]
        rows.append(row)
    return rows


def _fault(row: Any, last: int) -> str | None:
    if not isinstance(row, dict):
        return f"a {type(row).__name__}"
    step = row.get("step")
    if not isinstance(step, int) or isinstance(step, bool) or step < 1:
        return "no update's number"
    for name, value in row.items():
        if name == "evaluation":
            continue
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return f"no number under {name!r:.40}"
    return f"update {step} after update {last}" if "evaluation" not in row and step <= last else None


def _damaged_error(path: Path, number: int, what: str) -> ValueError:
    return ValueError(
        f"{path}: expected a JSON object with a step and numbers on every line, got {what} on line {number}; "
        "remove that line (its update will then have no metrics)"
    )
