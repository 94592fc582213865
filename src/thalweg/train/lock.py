"""A run folder belongs to one writer at a time."""

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_held = threading.local()


@contextlib.contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Lock a run folder for writing; a ValueError if another process or thread holds the lock.

    The operating system releases the lock when the process ends, however it ends, so no stale lock is left behind. The
    lock is on the folder itself; no lock file is written. The same thread may take the lock again. On Windows, which
    has no such lock, nothing is locked.

    >>> import tempfile
    >>> from thalweg.train.lock import locked
    >>> with tempfile.TemporaryDirectory() as folder, locked(folder), locked(folder):
    ...     print("ours")
    ours
    """
    folder = Path(folder)
    if sys.platform == "win32":
        yield
        return
    import fcntl

    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ValueError(f"expected a run folder to write to, got '{problem}'; choose another run_dir") from problem
    place = folder.stat()
    identity, mine = (place.st_dev, place.st_ino), _held.__dict__.setdefault("folders", set())
    if identity in mine:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            raise ValueError(
                f"{folder}: expected a run that nobody else is writing, got one in use by another process; "
                "wait until it ends, or stop it"
            ) from problem
        mine.add(identity)
        try:
            yield
        finally:
            mine.discard(identity)
            if new and not any(folder.iterdir()):
                folder.rmdir()  # the call failed before anything was written
    finally:
        os.close(descriptor)


def locks_run_dir(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, with the folder given as ``run_dir`` locked while it runs."""

    @functools.wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> R:
        folder = options.get("run_dir")
        if not isinstance(folder, (str, Path)):
            return function(*arguments, **options)
        with locked(folder):
            return function(*arguments, **options)

    return run
