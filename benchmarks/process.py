"""Measurements of whole processes: the memory of a chain, and the start-up time of the command line."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from measure import HERE, Row, Settings

CHAINS = 1000
SHORT, LONG = 1_000, 100_000


def memory(settings: Settings) -> Iterator[Row]:
    """Peak memory of a chain that is 100 times as long, with only the last draw kept.

    Keeping all draws would add 0.8 GB to the long run, far more than the limit allows.
    """
    peaks = {steps: _peak(steps) for steps in (SHORT, LONG)}
    yield Row(
        f"peak memory, {CHAINS:,} chains, {LONG:,} steps",
        peaks[LONG],
        peaks[SHORT],
        1.05,
        unit="MB",
        against=f"{SHORT:,} steps",
    )


def _peak(steps: int) -> float:
    output = subprocess.run(
        [sys.executable, str(HERE / "process.py"), str(steps)], check=True, capture_output=True, text=True
    ).stdout
    return json.loads(output.splitlines()[-1])["peak"]


def command_line(settings: Settings) -> Iterator[Row]:
    """``thalweg --help`` from the shell, compared with the limit of half a second."""
    command = [str(Path(sys.executable).parent / "thalweg"), "--help"]
    times = []
    for _ in range(6):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    # the first run fills the disk cache and the compiled bytecode
    yield Row("thalweg --help", statistics.median(times[1:]), 0.5, 1.0, against="limit")


def _run_chain(steps: int) -> None:
    import jax
    import jax.numpy as jnp

    import thalweg as tw

    energy = tw.energies.DoubleWell(barrier=2.0, dim=2)
    chains = tw.sample(
        energy,
        tw.samplers.Langevin(0.01),
        jnp.zeros((CHAINS, 2)),
        key=jax.random.key(0),
        draws=1,
        burn_in=steps - 1,
    )
    chains.draws.block_until_ready()
    # ru_maxrss would count the parent's memory, which a child inherits until it replaces its image; VmHWM does not
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    print(json.dumps({"peak": peak / 1024}))


if __name__ == "__main__":
    _run_chain(int(sys.argv[1]))
