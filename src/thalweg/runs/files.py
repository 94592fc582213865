"""The files of a run folder: their names, and how they are written and removed."""

import io
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from thalweg.core.files import write_whole
from thalweg.core.toml import parse_toml, write_toml
from thalweg.train.best import BEST, VALUES
from thalweg.train.model_file import MODEL
from thalweg.train.python_config import CONFIG

CHECKPOINTS = "checkpoints"
METRICS = "metrics.jsonl"
RESULTS = "results.json"
REPORT = "report.html"
SAMPLES = Path("samples", "samples.npz")
EVALUATION = Path("samples", "evaluation.npz")
COLUMNS = "columns.json"
TABLE, PICTURE = Path("samples", "samples.csv"), Path("samples", "samples.png")


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name to one compressed file."""
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)  # pyright: ignore[reportArgumentType]
    write_whole(path, packed.getvalue())


def new_folder(parent: Path, name: str) -> Path:
    """Make and return a new folder ``parent/name-1``, or with the next free number."""
    there = [each.name for each in parent.iterdir()] if parent.is_dir() else []
    tails = [each.removeprefix(f"{name}-") for each in there if each.startswith(f"{name}-")]
    number = max((int(tail) for tail in tails if tail.isdecimal()), default=0) + 1
    while True:
        try:
            (parent / f"{name}-{number}").mkdir(parents=True)
            return parent / f"{name}-{number}"
        except FileExistsError:
            number += 1  # another run has just taken it
        except OSError as problem:
            raise ValueError(
                f"{parent}: expected to make a run folder there, got '{problem.strerror}'; choose one with --run-dir"
            ) from problem


def has_run(folder: Path) -> bool:
    """Whether a run was started in a folder."""
    return any((folder / each).exists() for each in (CONFIG, CHECKPOINTS, MODEL))


def check_own_config(folder: Path) -> None:
    """Raise a ValueError instead of replacing a ``config.toml`` that the user wrote and not a run."""
    if (folder / CONFIG).exists() and not _is_written(folder / CONFIG):
        raise ValueError(
            f"{folder / CONFIG}: expected a configuration that a run wrote, got one of your own, which --fresh would "
            "replace; move it away, or choose another --run-dir"
        )


def remove_run(folder: Path) -> None:
    """Remove the files that a run wrote to its folder, and nothing else in it."""
    if not has_run(folder):
        return
    for name in (MODEL, METRICS, RESULTS, REPORT, VALUES, SAMPLES, EVALUATION, COLUMNS, TABLE, PICTURE):
        (folder / name).unlink(missing_ok=True)
    # runs of an earlier version saved old configurations under these names
    earlier = [each for each in folder.glob("config-until-update-*.toml") if re.fullmatch(r"\D+\d+\.toml", each.name)]
    for path in (folder / CONFIG, *earlier):
        if path.is_file() and _is_written(path):
            path.unlink()
    for path in (*(folder / CHECKPOINTS).glob("*"), *(folder / BEST).glob("*")):
        if re.match(r"\d+(\.orbax|$)", path.name) and path.is_dir():
            shutil.rmtree(path)
    for name in (CHECKPOINTS, BEST, SAMPLES.parent):
        if (folder / name).is_dir() and not any((folder / name).iterdir()):
            (folder / name).rmdir()


def _is_written(path: Path) -> bool:
    """Whether a file was written by `write_toml`: writing its content again gives the same text."""
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        return write_toml(parse_toml(text, str(path))) == text
    except ValueError:
        return False
