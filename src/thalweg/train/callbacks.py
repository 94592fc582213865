"""What happens beside training: evaluations every so often."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Callback(NamedTuple):
    """A function of the run so far, called every ``interval`` updates; the numbers it returns are recorded."""

    interval: int
    function: Callable[[Any], Mapping[str, float] | None]


def every(interval: int, function: Callable[[Any], Mapping[str, float] | None]) -> Callback:
    """Call ``function(run)`` every ``interval`` updates and after the last; what it returns goes to the metrics.

    >>> import thalweg as tw
    >>> callback = tw.train.every(100, lambda run: {"updates": run.step})
    """
    if interval < 1:
        raise ValueError(f"expected an interval of at least one update, got {interval}; give for example 100")
    return Callback(interval, function)
