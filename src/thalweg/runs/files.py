"""Files of a run folder: written whole or not at all, refused in one sentence where they are damaged."""

import io
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from thalweg.core.files import write_whole


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Arrays by name in one compressed file."""
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)  # pyright: ignore[reportArgumentType]
    write_whole(path, packed.getvalue())


def read_json(path: Path) -> dict[str, Any]:
    """The numbers in a JSON file, none where there is no file yet."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as problem:
        raise ValueError(f"{path}: expected JSON, got a damaged file ({problem}); delete it") from problem
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected an object of numbers, got something else; delete it")
    return values


def new_folder(parent: Path, name: str) -> Path:
    """A folder ``parent/name-1``, or with the next number that is free, made for the caller alone."""
    there = [each.name for each in parent.iterdir()] if parent.is_dir() else []
    tails = [each.removeprefix(f"{name}-") for each in there if each.startswith(f"{name}-")]
    number = max((int(tail) for tail in tails if tail.isdecimal()), default=0) + 1
    while True:
        try:
            (parent / f"{name}-{number}").mkdir(parents=True)
            return parent / f"{name}-{number}"
        except FileExistsError:
            number += 1  # another run has just begun
        except OSError as problem:
            raise ValueError(
                f"{parent}: expected to make a run folder there, got '{problem.strerror}'; choose one with --run-dir"
            ) from problem


def remove_run(folder: Path) -> None:
    """Remove what a run has written to its folder, and nothing else that lies there."""
    if not (folder / "config.toml").exists():
        return
    for name in ("checkpoints", "samples"):
        shutil.rmtree(folder / name, ignore_errors=not (folder / name).exists())
    for path in (
        *folder.glob("config*.toml"),
        *(folder / name for name in ("metrics.jsonl", "results.json", "report.html", "columns.json")),
    ):
        path.unlink(missing_ok=True)
