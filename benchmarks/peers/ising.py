"""Metropolis sweeps of the 2-D Ising model at one temperature by the annealer of dwave-samplers (formerly
dwave-neal)."""

from typing import Any

import numpy as np
from dwave.samplers.sa.simulated_annealing import simulated_annealing
from serve import serve


def build(side: int, beta: float, sweeps: int):
    """The compiled annealer itself: passing it the model through dimod takes longer than the sweeps."""
    number = np.arange(side * side, dtype=np.int32).reshape(side, side)
    first = np.concatenate([number.ravel(), number.ravel()])
    second = np.concatenate([np.roll(number, -1, axis).ravel() for axis in (0, 1)])
    bias, weights = np.zeros(side * side), np.full(len(first), -1.0)
    schedule = np.array([beta])

    def run() -> Any:
        start = np.ones((1, side * side), np.int8)
        order, accept = False, "Metropolis"
        return simulated_annealing(1, bias, first, second, weights, sweeps, schedule, 1, start, order, accept, None)

    return run


def energy_per_site(result: Any) -> dict:
    """The final energy per site, which shows that the sweeps were made."""
    samples, energies = result
    return {"energy": float(energies[0]) / samples.shape[1]}


if __name__ == "__main__":
    serve(build, ("dwave-samplers",), energy_per_site)
