"""How every row is timed: contestants warmed up first, then run in turns, never two at once.

A contestant is a function ``run(calls) -> seconds``: it does its work that many times, waits until the last result is
there, and says how long it took. Ours run in this process, a peer's in a worker under the peers' interpreter, so both
clocks stand next to the work they measure.
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
    """A peer that is not installed, or cannot do what a row asks of it."""


class Settings(NamedTuple):
    """How long to measure: ``rounds`` turns for each contestant, each of at least ``minimum`` seconds."""

    rounds: int = 9
    minimum: float = 0.1
    quick: bool = False


class Row(NamedTuple):
    """One line of the table. ``at most``: ours / theirs ≤ target; ``at least``: theirs / ours ≥ target.

    ``target=None`` is a line for information. ``pairs`` holds every round's ``(ours, theirs)``; the ratio is the median
    over rounds, since a neighbour's load hits both halves of a round alike and cancels.
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
        """One ratio a round; none where a side is missing."""
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
    """A JAX function of no arguments as a contestant; it has finished when its result is on the device."""

    def run(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            jax.block_until_ready(function())
        return time.perf_counter() - start

    return run


def race(contestants: Mapping[Any, Contestant], settings: Settings, calls: int | None = None) -> dict[Any, list[float]]:
    """Seconds a call of every contestant, one number a round.

    The order turns round from one round to the next, so that neither always runs in the other's wake. A round makes as
    many calls as fill ``settings.minimum`` seconds, unless ``calls`` says how many.
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
    """A peer's program, kept alive between turns; it answers one JSON line to each JSON line it is sent."""

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
        """The case as a contestant; the answers' other entries are not looked at."""
        return lambda calls: self.ask(calls=calls, **case)["seconds"]

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
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
