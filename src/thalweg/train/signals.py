"""Stop a training cleanly on Ctrl-C and on SIGTERM, which schedulers and shutdowns send."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

TERMINATED = 128 + signal.SIGTERM  # the exit status of a process that SIGTERM ended


class Stop:
    """The signal that was received, if any; a second one takes effect at once."""

    def __init__(self) -> None:
        self._came: int | None = None

    def __bool__(self) -> bool:
        return self._came is not None

    def note(self, number: int, frame: object) -> None:
        if self._came is not None:
            raise as_exception(number)
        self._came = number

    def obey(self) -> None:
        """Raise the exception of the received signal, after everything is saved."""
        if self._came is not None:
            raise as_exception(self._came)


def as_exception(number: int) -> BaseException:
    """``KeyboardInterrupt`` for Ctrl-C; ``SystemExit`` with the usual exit status for SIGTERM."""
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(TERMINATED)


@contextlib.contextmanager
def interrupts() -> Iterator[Stop]:
    """Yields a `Stop` that is true once Ctrl-C or SIGTERM was received; restores the earlier handlers at the end."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals reach the main thread only
        return
    before: dict[int, Callable | int | None] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, stop.note)
        yield stop
    finally:
        for number, handler in before.items():
            # a handler that was not set from Python cannot be restored from Python
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
