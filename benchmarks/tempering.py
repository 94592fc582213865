"""The overhead of parallel tempering over its inner kernel, and the cost per step of long and short chains."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp

import thalweg as tw
from measure import Contestant, Row, Settings, local, race, row

RUNGS = (2, 4, 8)
STEPS = 2000
SHORT, LONG = 1_000, 10_000


def rungs(settings: Settings) -> Iterator[Row]:
    """n rungs compared with n chains of the inner kernel: the difference is the cost of the swaps."""
    steps = STEPS // (10 if settings.quick else 1)
    well, spins = tw.energies.DoubleWell(2.0), tw.energies.Ising(tw.energies.Grid((8, 8), 0.4))
    cases = {
        "MALA on the double well": (well, tw.samplers.MALA(0.1), jnp.zeros(2), steps),
        "HMC on the double well": (well, tw.samplers.HMC(0.1, 10), jnp.zeros(2), steps),
        "Gibbs on 8×8 spins": (spins, tw.samplers.Gibbs(), jnp.ones(64, int), steps // 4),
    }
    for name, (energy, kernel, point, length) in cases.items():
        for chains in (1, 100):
            contestants = {1: _chain(energy, kernel, point, chains, length)}
            for count in RUNGS:
                ladder = tw.samplers.ParallelTempering(kernel, jnp.geomspace(1.0, 10.0, count))
                contestants[count] = _chain(energy, ladder, point, chains, length)
            seconds = race(contestants, settings)
            for count in RUNGS:
                yield row(
                    f"{count} rungs of {name}, {chains} chain{'s' if chains > 1 else ''}",
                    seconds[count],
                    [count * each for each in seconds[1]],
                    1.1,
                    against=f"{count} × the inner kernel",
                )


def length(settings: Settings) -> Iterator[Row]:
    """The time per step of a long chain compared with a short one, with only the last draw kept."""
    well = tw.energies.DoubleWell(2.0)
    kernels = {
        "Langevin": tw.samplers.Langevin(0.01),
        "HMC": tw.samplers.HMC(0.1, 10),
        "4 rungs of MALA": tw.samplers.ParallelTempering(tw.samplers.MALA(0.1), jnp.geomspace(1.0, 10.0, 4)),
    }
    for name, kernel in kernels.items():
        seconds = race({steps: _chain(well, kernel, jnp.zeros(2), 100, steps) for steps in (SHORT, LONG)}, settings)
        yield row(
            f"a step of {name}, 100 chains, {LONG:,} steps",
            [each / LONG for each in seconds[LONG]],
            [each / SHORT for each in seconds[SHORT]],
            1.05,
            against=f"{SHORT:,} steps",
        )


def _chain(energy, kernel: tw.core.Kernel, point: jax.Array, chains: int, steps: int) -> Contestant:
    init = jnp.broadcast_to(point, (chains, *point.shape))
    return local(lambda: tw.sample(energy, kernel, init, key=jax.random.key(0), draws=1, burn_in=steps - 1).draws)
