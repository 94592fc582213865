"""How long experiments took, recorded in the folder of their results, and which files they wrote."""

import json
from pathlib import Path

FILE = "durations.json"


def read(folder: Path) -> dict[str, float]:
    """The seconds that each experiment took when it was last run into ``folder``; a damaged file is a ValueError."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        return {name: float(seconds) for name, seconds in json.loads(path.read_text(encoding="utf-8")).items()}
    except (ValueError, TypeError, AttributeError) as problem:
        raise ValueError(f"{path}: expected the seconds of experiments, got a damaged file; delete it") from problem


def note(folder: Path, name: str, seconds: float) -> None:
    """Record how long an experiment took."""
    from thalweg.core.files import write_json

    write_json(folder / FILE, {**read(folder), name: round(seconds, 1)})


def in_words(seconds: float | None) -> str:
    """A duration as people say it.

    >>> from thalweg.cli.durations import in_words
    >>> in_words(7.25), in_words(95), in_words(7300), in_words(None)
    ('7.2 s', '1 min 35 s', '2 h 1 min', '-')
    """
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def changed_at(folder: Path) -> dict[Path, int]:
    """The time at which each file of a folder was last written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
