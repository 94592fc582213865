"""The 2-D Ising model at one temperature: spin updates per nanosecond, on all cores."""

import statistics
from collections.abc import Iterator

import jax
import jax.numpy as jnp

import thalweg as tw
from measure import Contestant, PeerMissing, Row, Settings, Worker, local, race, row
from thalweg.samplers.checkerboard import Checkerboard

SIDE = 1024
TEMPERATURE = 2.3
# published single-threaded C++ programs reach 0.28
LIMIT = 0.3


def flips(settings: Settings) -> Iterator[Row]:
    """Seconds per sweep (one update of every spin), compared with a limit, plain `Gibbs` and dwave-samplers.

    The time of many sweeps is divided by their number. For dwave-samplers the time of a few sweeps is subtracted first,
    because it spends seconds on reading the model.
    """
    contestants: dict[str, Contestant] = {"ours": _sweeps(Checkerboard(), 50 if settings.quick else 500)}
    contestants["gibbs"] = _sweeps(tw.samplers.Gibbs(), 5)
    name = f"Ising, {SIDE}², sweep by Checkerboard"
    few = settings._replace(rounds=min(settings.rounds, 5))
    try:
        with Worker("ising.py") as worker:
            contestants["dwave"] = _difference(worker, few=2, many=32)
            seconds = race(contestants, few, calls=1)
            missing = ""
    except PeerMissing as reason:
        contestants.pop("dwave", None)
        seconds, missing = race(contestants, few, calls=1), str(reason)
    limit = SIDE**2 / LIMIT * 1e-9
    reached, plain = _rate(seconds["ours"]), _rate(seconds["gibbs"])
    yield row(name, seconds["ours"], [limit] * few.rounds, 1.0, against=f"limit of {LIMIT} flips/ns; reached {reached}")
    yield row(name, seconds["ours"], seconds["gibbs"], None, "at least", against=f"Gibbs, {plain} flips/ns")
    if missing:
        ours = statistics.median(seconds["ours"])
        yield Row(name, ours, None, None, sense="at least", against="dwave-samplers", note=missing)
    else:
        against = f"dwave-samplers (neal), {_rate(seconds['dwave'])} flips/ns"
        yield row(name, seconds["ours"], seconds["dwave"], None, "at least", against=against)


def _rate(seconds: list[float]) -> str:
    return f"{SIDE**2 / statistics.median(seconds) * 1e-9:.2g}"


def _sweeps(kernel: tw.core.Kernel, sweeps: int) -> Contestant:
    energy = tw.energies.Ising(tw.energies.Grid((SIDE, SIDE), 1 / TEMPERATURE))
    init = jnp.ones((1, SIDE**2), jnp.int32)
    run = local(lambda: tw.sample(energy, kernel, init, key=jax.random.key(0), draws=1, burn_in=sweeps - 1).draws)
    return lambda calls: run(calls) / sweeps


def _difference(worker: Worker, few: int, many: int) -> Contestant:
    short, long = (worker.contestant(side=SIDE, beta=1 / TEMPERATURE, sweeps=sweeps) for sweeps in (few, many))
    return lambda calls: (long(calls) - short(calls)) / (many - few)
