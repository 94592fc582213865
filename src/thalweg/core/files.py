"""Write files atomically, and read JSON."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_whole(path: Path, content: bytes) -> Path:
    """Write to a temporary file, then rename it: a reader sees the old file or the new one, never half of one.

    >>> import tempfile
    >>> from thalweg.core.files import write_whole
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "new" / "a.txt", b"whole").read_bytes()
    b'whole'
    """
    # a name with the process id, since two processes may write the same file
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(content)
            part.replace(path)
        except BaseException:  # Ctrl-C too
            part.unlink(missing_ok=True)
            raise
    except OSError as problem:
        raise ValueError(
            f"{path}: expected to write it, got '{problem.strerror}'; free space, or choose a folder you can write to"
        ) from problem
    return path


def write_json(path: Path, values: Mapping[str, Any]) -> Path:
    """Write ``values`` as JSON; numbers that are not finite become ``null``, because JSON has no NaN or infinity.

    >>> import tempfile
    >>> from thalweg.core.files import write_json
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     json.loads(write_json(Path(folder) / "a.json", {"kl": [0.5, math.inf]}).read_text())
    {'kl': [0.5, None]}
    """
    text = json.dumps(without_nan(values), indent=2, allow_nan=False, ensure_ascii=False)
    return write_whole(path, (text + "\n").encode("utf-8"))


def read_json(path: Path) -> dict[str, Any]:
    """The values in a JSON file; an empty dictionary if there is no such file.

    >>> from thalweg.core.files import read_json
    >>> read_json(Path("no") / "such.json")
    {}
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as problem:
        raise ValueError(f"{path}: expected JSON, got a damaged file ({problem}); delete it") from problem
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected an object of numbers, got a {type(values).__name__}; delete it")
    return values


def without_nan(value: Any) -> Any:
    """A tree of plain values with None in place of numbers that are not finite.

    >>> from thalweg.core.files import without_nan
    >>> without_nan({"kl": [0.5, math.nan]})
    {'kl': [0.5, None]}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: without_nan(each) for name, each in value.items()}
    return [without_nan(each) for each in value] if isinstance(value, list | tuple) else value
