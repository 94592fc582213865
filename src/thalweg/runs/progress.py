"""What is said and shown on stderr while work goes on. Nothing heavy is imported: a command shows it before JAX."""

import contextlib
import sys
from collections.abc import Iterator


def say(sentence: str) -> None:
    """One plain line on stderr, however many the sentence came in."""
    print(" ".join(sentence.split()), file=sys.stderr)


@contextlib.contextmanager
def working(what: str, shown: bool = True) -> Iterator[None]:
    """A moving sign while something of unknown length goes on."""
    if not shown:
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield
