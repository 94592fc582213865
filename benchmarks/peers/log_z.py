"""log Z by the annealed importance sampling of ebmkit or the population annealing of ferrotherm: ``log_z.py PEER``.

The models are those of Thalweg's side: the same seeds give the same weights and means.
"""

import math
import sys
from typing import Any

import numpy as np
import torch
from serve import serve

SIDE, COUPLING = 16, 0.3
VISIBLE, HIDDEN = 784, 16
LEAPFROG, STEP_SIZE, DIM, MODES, SPREAD = 5, 0.1, 8, 4, 4.0


def ebmkit_run(model: str, chains: int, temperatures: int):
    """One transition at each temperature, from the uniform distribution or from a wide Gaussian."""
    import ebm

    # with checks of its arguments, every base density would be checked once per evaluation
    torch.distributions.Distribution.set_default_validate_args(False)
    if model == "mixture":
        means = torch.tensor(2 * np.random.default_rng(1).normal(size=(MODES, DIM)), dtype=torch.float32)
        unnormalised = ebm.nets.GaussianMixtureEnergy(means)  # its weights are all one, its Gaussians lack their factor
        constant = math.log(MODES) + 0.5 * DIM * math.log(2 * math.pi)
        energy: Any = lambda x: unnormalised(x) + constant
        shape, base = (DIM,), None
        sampler: Any = ebm.HMC(step_size=STEP_SIZE, leapfrog_steps=LEAPFROG)
    else:
        energy = _rbm(ebm) if model == "rbm" else _torus
        shape = (VISIBLE,) if model == "rbm" else (SIDE, SIDE)
        bits = torch.distributions.Bernoulli(torch.full(shape, 0.5))
        base, sampler = torch.distributions.Independent(bits, len(shape)), ebm.GibbsWithGradients()
    settings = {"base": base, "base_scale": SPREAD, "n_temps": temperatures, "n_chains": chains, "sampler": sampler}
    return lambda: ebm.ais_log_z(energy, shape, adapt_step_size=False, **settings)


def _rbm(ebm: Any) -> Any:
    weights = 0.05 * np.random.default_rng(0).normal(size=(VISIBLE, HIDDEN))
    rbm = ebm.nets.RBM(VISIBLE, HIDDEN)
    with torch.no_grad():
        rbm.W.copy_(torch.tensor(weights.T, dtype=torch.float32))
    return rbm


def _torus(x: torch.Tensor) -> torch.Tensor:
    """``-K Σ s_i s_j`` with ``s = 2x - 1`` on a torus; the lattice of ebmkit has open borders."""
    spins = 2 * x - 1
    return -COUPLING * (spins * (spins.roll(1, 1) + spins.roll(1, 2))).sum((1, 2))


def ferrotherm_run(side: int, beta: float, population: int, sweeps: int, stages: int):
    """Every run has a new seed; a simulation of the same seed repeats its result."""
    import ferrotherm

    values: list[float] = []

    def run() -> list[float]:
        lattice = ferrotherm.lattice2d(side, 1.0, beta=beta, seed=len(values))
        found = lattice.population_anneal(population=population, sweeps=sweeps, beta_max=beta, stages=stages)
        values.append(found.ln_z)
        return values

    return run


if __name__ == "__main__":
    torch.manual_seed(0)
    if sys.argv[1] == "ebmkit":
        serve(ebmkit_run, ("torch", "ebmkit"), lambda found: {"log_z": found.log_z})
    else:
        serve(ferrotherm_run, ("ferrotherm",), lambda values: {"values": values})
