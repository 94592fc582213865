"""Timing: contestants are warmed up first, then run in turns, never two at once.

A contestant is a function ``run(calls) -> seconds``: it does its work ``calls`` times, waits for the last result and
returns the elapsed time. Ours run in this process, those of another library in a worker process with its own
interpreter, so that each clock runs next to the work it measures.
"""

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"

Contestant = Callable[[int], float]


class PeerMissing(Exception):
    """A library that is not installed, or does not support what a row measures."""


class Settings(NamedTuple):
    """How long to measure: ``rounds`` rounds for each contestant, each of at least ``minimum`` seconds."""

    rounds: int = 9
    minimum: float = 0.1
    quick: bool = False


class Row(NamedTuple):
    """One line of the table. ``at most``: ours / theirs ≤ target; ``at least``: theirs / ours ≥ target.

    ``target=None`` is a line for information only. ``pairs`` holds ``(ours, theirs)`` of every round; the ratio is the
    median over rounds, since other load on the machine affects both halves of a round alike.
    """

    name: str
    ours: float | None
    theirs: float | None
    target: float | None
    unit: str = "s"
    sense: Literal["at most", "at least"] = "at most"
    against: str = ""
    note: str = ""
    pairs: tuple[tuple[float, float], ...] = ()

    def ratios(self) -> list[float]:
        """One ratio per round; none if one side is missing."""
        if self.ours is None or self.theirs is None:
            return []
        pairs = self.pairs or ((self.ours, self.theirs),)
        return [ours / theirs if self.sense == "at most" else theirs / ours for ours, theirs in pairs]

    def ratio(self) -> float | None:
        return statistics.median(self.ratios()) if self.ratios() else None

    def met(self) -> bool | None:
        ratio = self.ratio()
        if ratio is None or self.target is None:
            return None
        return ratio <= self.target if self.sense == "at most" else ratio >= self.target


def local(function: Callable[[], Any]) -> Contestant:
    """A JAX function without arguments as a contestant; it has finished when its result is on the device."""

    def run(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            jax.block_until_ready(function())
        return time.perf_counter() - start

    return run


def race(contestants: Mapping[Any, Contestant], settings: Settings, calls: int | None = None) -> dict[Any, list[float]]:
    """Seconds per call of every contestant, one number per round.

    The order is reversed from round to round, so that no contestant always runs after the same one. A round makes
    enough calls to fill ``settings.minimum`` seconds, unless ``calls`` is given.
    """
    counts = {}
    for name, run in contestants.items():
        run(1)  # compiles
        counts[name] = calls or max(1, round(settings.minimum / run(1)))
    seconds: dict[Any, list[float]] = {name: [] for name in contestants}
    order = list(contestants)
    for _ in range(settings.rounds):
        for name in order:
            time.sleep(0.3)  # idle thread pools (OpenMP's for 0.2 s) keep spinning after their last task
            seconds[name].append(contestants[name](counts[name]) / counts[name])
        order.reverse()
    return seconds


def row(
    name: str,
    ours: list[float],
    theirs: list[float],
    target: float | None,
    sense: Literal["at most", "at least"] = "at most",
    **extra: str,
) -> Row:
    """A `Row` from the rounds of a `race`."""
    pairs = tuple(zip(ours, theirs, strict=True))
    return Row(name, statistics.median(ours), statistics.median(theirs), target, sense=sense, pairs=pairs, **extra)


class Worker:
    """A program of another library, kept alive between rounds; it answers each JSON line with one JSON line."""

    def __init__(self, script: str, *arguments: str):
        if not PEERS_PYTHON.exists():
            raise PeerMissing("no .venv-peers: `make peers` builds it")
        self._process = subprocess.Popen(
            [str(PEERS_PYTHON), "-W", "ignore", str(HERE / "peers" / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.facts = self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerMissing(f"the peer's program ended with code {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerMissing(answer["error"])
        return answer

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read()

    def contestant(self, **case: Any) -> Contestant:
        """The case as a contestant; only the time in the answers is used."""
        return lambda calls: self.ask(calls=calls, **case)["seconds"]

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def machine() -> dict[str, Any]:
    """A description of the machine, on which the numbers depend."""
    model = next(
        (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "devices": ", ".join(str(device) for device in jax.devices()),
    }


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text().splitlines() if file.exists() else []
