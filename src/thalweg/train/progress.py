"""The progress bar of a training, with the latest metrics beside the count."""

import contextlib
from collections.abc import Callable, Iterator, Mapping

from thalweg.core import progress

_SHOWN = ("loss", "gradient_norm", "acceptance")


@contextlib.contextmanager
def progress_bar(shown: bool, done: int, steps: int) -> Iterator[Callable[[Mapping[str, float]], None]]:
    """Yields ``show(row)``, which advances the bar by one update."""
    with progress.progress_bar("training", steps, shown=shown, done=done) as advance:
        yield lambda row: advance(1, "  ".join(f"{name} {row[name]:.3g}" for name in _SHOWN if name in row))
