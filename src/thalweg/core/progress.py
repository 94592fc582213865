"""Progress of long computations: a bar in a terminal or a notebook, lines on stderr anywhere else."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from html import escape
from typing import Any, Protocol

# in seconds: between two lines of a log, between two updates of a notebook's bar, and how long work may take before a
# log mentions it
_LINE, _CHANGE, _BRIEF = 10.0, 0.1, 2.0


class Advance(Protocol):
    """What `progress_bar` yields; call it with the amount of work just done and a note to show beside the count."""

    def __call__(self, more: int = 1, note: str = "") -> None: ...


@contextlib.contextmanager
def progress_bar(
    what: str, total: int, *, shown: bool = True, done: int = 0, count: Callable[[int], str] = str
) -> Iterator[Advance]:
    """Show the progress of some work; yields ``advance(more, note)``, which advances the bar.

    In a terminal this is a bar that disappears at the end, in a notebook a bar that stays. Elsewhere, for example in a
    log file, it is a line on stderr every ten seconds and one at the end. There is no last line if the work takes less
    than two seconds or ends with an exception.

    Args:
        what: what is being done, in a few words.
        total: the count at the end.
        shown: with False nothing is shown.
        done: the count at the start.
        count: formats a count, for example as megabytes.

    >>> from thalweg.core.progress import progress_bar
    >>> with progress_bar("sampling", 10, shown=False) as advance:
    ...     advance(10)
    """
    if not shown:
        yield lambda more=1, note="": None
        return
    show = _notebook_bar if _in_notebook() else _terminal_bar if sys.stderr.isatty() else _log_lines
    with show(what, total, done) as place:

        def advance(more: int = 1, note: str = "") -> None:
            nonlocal done
            done += more
            place(done, f"{count(done)} of {count(total)}", note)

        yield advance


def _in_notebook() -> bool:
    """Whether this runs in a Jupyter kernel; does not import IPython."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


@contextlib.contextmanager
def _terminal_bar(what: str, total: int, done: int) -> Iterator[Callable[[int, str, str], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    texts = [TextColumn("{task." + name + "}", markup=False) for name in ("description", "fields[words]")]
    columns = (texts[0], BarColumn(), texts[1], TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total, completed=done, words="")
        yield lambda done, words, note: bar.update(task, completed=done, words=_join(words, note))


@contextlib.contextmanager
def _notebook_bar(what: str, total: int, done: int) -> Iterator[Callable[[int, str, str], None]]:
    from IPython.display import HTML, display  # pyright: ignore[reportMissingImports]

    def draw(done: int, words: str) -> Any:
        bar = f'<progress value="{done}" max="{total}" style="width: 18em; vertical-align: middle"></progress>'
        return HTML(f"<div>{escape(what)} {bar} {escape(words)}</div>")

    begun = last = time.monotonic()
    now = (done, "")
    handle = display(draw(*now), display_id=True)

    def place(done: int, words: str, note: str) -> None:
        nonlocal last, now
        now = (done, _join(words, note))
        if time.monotonic() - last >= _CHANGE:
            last = time.monotonic()
            handle.update(draw(*now))

    try:
        yield place
    finally:
        handle.update(draw(now[0], f"{now[1]}, {_seconds(begun)}"))


@contextlib.contextmanager
def _log_lines(what: str, total: int, done: int) -> Iterator[Callable[[int, str, str], None]]:
    begun = last = time.monotonic()
    now = ""

    def place(done: int, words: str, note: str) -> None:
        nonlocal last, now
        now = _join(words, note)
        if done < total and time.monotonic() - last >= _LINE:
            last = time.monotonic()
            _say(f"{what}: {now}, {_seconds(begun)}")

    yield place
    if time.monotonic() - begun >= min(_BRIEF, _LINE):
        _say(f"{what}: {now or 'nothing to do'}, {_seconds(begun)}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _join(words: str, note: str) -> str:
    return f"{words}, {note}" if note else words


def _seconds(begun: float) -> str:
    return f"{time.monotonic() - begun:.1f} s"
