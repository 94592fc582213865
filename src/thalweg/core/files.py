"""Files written whole or not at all."""

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> Path:
    """Write under a temporary name, then rename: a reader sees the old file or the new one, never half of one.

    >>> import tempfile
    >>> from thalweg.core.files import write_whole
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "new" / "a.txt", b"whole").read_bytes()
    b'whole'
    """
    # a name of its own: two processes may be writing the same file
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
