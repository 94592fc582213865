"""An orderly end of a training: on Ctrl-C, and on SIGTERM, by which machines are shut down and jobs cut off."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

TERMINATED = 128 + signal.SIGTERM  # the exit status of a process that SIGTERM ended


class Stop:
    """Which signal came, if any; a second one is obeyed at once."""

    def __init__(self) -> None:
        self._came: int | None = None

    def __bool__(self) -> bool:
        return self._came is not None

    def note(self, number: int, frame: object) -> None:
        if self._came is not None:
            raise as_exception(number)
        self._came = number

    def obey(self) -> None:
        """End as the signal asked, now that all is saved."""
        if self._came is not None:
            raise as_exception(self._came)


def as_exception(number: int) -> BaseException:
    """``KeyboardInterrupt`` for Ctrl-C; ``SystemExit`` with a shell's status for SIGTERM."""
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(TERMINATED)


@contextlib.contextmanager
def interrupts() -> Iterator[Stop]:
    """Yields a `Stop` that is true once Ctrl-C or SIGTERM came; the handlers of before are put back afterwards."""
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
            # a handler that was not set from Python cannot be put back by it
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
