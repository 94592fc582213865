"""What is said and shown on stderr while work goes on. Nothing heavy is imported: a command shows it before JAX."""

import contextlib
import sys
from collections.abc import Callable, Iterator


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


@contextlib.contextmanager
def bar(what: str, total: int, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """A progress bar; yields the function that moves it on."""
    if not shown:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    # in a log file even an empty bar would leave a line
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)
