"""``config.toml`` of a run that was started in Python: a description for people and for the command line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from thalweg.core.assignments import assign, difference
from thalweg.core.files import write_whole
from thalweg.core.toml import read_toml, write_toml

CONFIG = "config.toml"
SCHEMA = 1
PYTHON = "python"


def note_python_run(
    folder: Path, energy: Any, objective: Any, rows: int, settings: Mapping[str, Any], done: int
) -> None:
    """Write ``config.toml``, unless the command line has written its own.

    It names the classes and settings of the training; Python objects cannot be rebuilt from it. If a resumed run has
    different settings, they are added as a change, with the update at which it took effect.
    """
    path = folder / CONFIG
    now = {
        "schema": SCHEMA,
        "begun": PYTHON,
        "data": {"rows": rows},
        "energy": {"type": type(energy).__name__},
        "objective": {"type": type(objective).__name__},
        "train": {name: "none" if value is None else value for name, value in settings.items()},
    }
    if path.exists():
        before = read_toml(path)
        if before.get("begun") != PYTHON:
            return
        changes = before.pop("changes", [])
        last = before
        for change in changes:
            last = assign(last, change["set"])
        new = difference(last, now)
        if not new:
            return
        now = {**before, "changes": [*changes, {"update": done, "set": new}]}
    write_whole(path, write_toml(now).encode())
