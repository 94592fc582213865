"""Callbacks: evaluations at regular intervals during training."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from thalweg.core import whole_number


class Callback(NamedTuple):
    """A function of the run so far, called every ``interval`` updates; the numbers it returns are recorded."""

    interval: int
    function: Callable[[Any], Mapping[str, float] | None]


def every(interval: int, function: Callable[[Any], Mapping[str, float] | None]) -> Callback:
    """Call ``function(run)`` every ``interval`` updates and after the last one, and record the numbers it returns.

    >>> import thalweg as tw
    >>> callback = tw.train.every(100, lambda run: {"updates": run.step})
    """
    if not callable(function):
        raise ValueError(f"expected a function of the run, got {type(function).__name__}; write lambda run: {{...}}")
    return Callback(whole_number("interval", interval, hint="give the number of updates, for example 100"), function)


def check_callbacks(callbacks: Any) -> Sequence[Callback]:
    """The callbacks as a list; a ValueError if one was not made by `every`."""
    whole = isinstance(callbacks, (list, tuple)) and not isinstance(callbacks, Callback)
    listed: list[Any] = list(callbacks) if whole else [callbacks]
    wrong = next((each for each in listed if not isinstance(each, Callback)), None)
    if wrong is not None and callable(wrong):
        name = getattr(wrong, "__name__", type(wrong).__name__)
        raise ValueError(
            f"expected a list of callbacks, got the bare function {name}; say how often to call it: "
            f"callbacks=[tw.train.every(100, {'function' if name == '<lambda>' else name})]"
        )
    if wrong is not None or not whole:
        raise ValueError(
            f"expected a list of callbacks, got {type(callbacks).__name__ if wrong is None else repr(wrong):.60}; "
            "write callbacks=[tw.train.every(100, function)]"
        )
    return listed


def evaluate(callback: Callback, run: Any) -> dict[str, float]:
    """The numbers a callback returns for the run so far."""
    values = callback.function(run)
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise ValueError(
            f"expected a callback to return a dictionary of numbers or nothing, got {type(values).__name__}; "
            'write {"name": value}'
        )
    for name, value in values.items():
        if not isinstance(name, str) or name in ("step", "evaluation") or not _is_number(value):
            raise ValueError(
                f"expected a number under a name of its own from a callback, got {type(value).__name__} under "
                f"{name!r:.40}; return scalars under names other than 'step' and 'evaluation'"
            )
    return {name: float(value) for name, value in values.items()}


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return jnp.shape(value) == () and not isinstance(value, (str, bytes))
