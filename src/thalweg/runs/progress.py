"""Messages and spinners on stderr. Nothing heavy is imported here, since commands use it before they load JAX."""

import contextlib
import sys
from collections.abc import Iterator


def say(sentence: str) -> None:
    """Print a sentence as one line on stderr."""
    print(" ".join(sentence.split()), file=sys.stderr)


@contextlib.contextmanager
def working(what: str, shown: bool = True) -> Iterator[None]:
    """Show a spinner during work of unknown length."""
    if not shown:
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield
