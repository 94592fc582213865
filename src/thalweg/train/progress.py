"""How far a training has come: a bar in a terminal or a notebook, plain lines elsewhere; all of it on stderr."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping

_SHOWN = ("loss", "gradient_norm", "acceptance")
_SECONDS = 5.0  # between two lines, if there is a per cent between them too
_AT_MOST = 60.0


@contextlib.contextmanager
def progress_bar(shown: bool, done: int, steps: int) -> Iterator[Callable[[Mapping[str, float]], None]]:
    """Yields ``show(row)``, which moves the progress one update on."""
    if not shown:
        yield lambda row: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal and not console.is_jupyter:
        yield _Lines(done, steps).show
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("compiling", total=steps, completed=done)
        yield lambda row: bar.update(task, advance=1, description=_numbers(row))


class _Lines:
    """A line every few seconds, and one at the end where there was any: a log has no use for a bar."""

    def __init__(self, done: int, steps: int):
        self._done, self._steps = done, steps
        self._said, self._at = done, time.monotonic()
        self._any = False

    def show(self, row: Mapping[str, float]) -> None:
        self._done += 1
        waited, ended = time.monotonic() - self._at, self._done == self._steps
        more = self._done - self._said >= self._steps / 100
        if not (waited >= _AT_MOST or (waited >= _SECONDS and more) or (ended and self._any)):
            return
        share = f"{self._done / self._steps:.0%}"
        print(f"update {self._done} of {self._steps} ({share})  {_numbers(row)}", file=sys.stderr, flush=True)
        self._said, self._at, self._any = self._done, time.monotonic(), True


def _numbers(row: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {row[name]:.3g}" for name in _SHOWN if name in row)
