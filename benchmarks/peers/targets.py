"""HMC and NUTS of ebmkit on the targets of `efficiency.py`: ``targets.py FOLDER``; draws are written to the folder.

The samplers are called as in the documentation; NUTS without warm-up, since the step size is given.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import ebm
import numpy as np
import torch
from serve import serve
from torch import Tensor


def banana(x: Tensor) -> Tensor:
    return 0.5 * (x[:, 0] / 2).square() + 0.5 * (x[:, 1] - 0.25 * (x[:, 0].square() - 4)).square()


def funnel(x: Tensor) -> Tensor:
    v, rest = x[:, 0], x[:, 1:]
    return 0.5 * v.square() + 0.5 * torch.exp(-v) * rest.square().sum(dim=-1) + 0.5 * rest.shape[1] * v


def scaled(x: Tensor) -> Tensor:
    return 0.5 * (x / torch.linspace(0.5, 1.0, 100)).square().sum(dim=-1)


def correlated() -> Callable[[Tensor], Tensor]:
    place = torch.arange(100)
    covariance = 0.5 ** (place[:, None] - place).abs().double()
    whitening = torch.linalg.inv(torch.linalg.cholesky(covariance)).float()
    return lambda x: 0.5 * (x @ whitening.T).square().sum(dim=-1)


ENERGIES = {
    "banana": banana,
    "funnel, 10-d, deviation 1": funnel,
    "Gaussian, 100-d, deviations 0.5 to 1": scaled,
    "Gaussian, 100-d, correlated": correlated(),
}


def build(target: str, kernel: str, start: list, draws: int, step_size: float, leapfrog: int, doublings: int):
    energy, first = ENERGIES[target], torch.tensor(start)

    def run() -> Tensor:
        if kernel == "HMC":
            sampler = ebm.HMC(step_size=step_size, leapfrog_steps=leapfrog, steps=draws)
        else:
            sampler = ebm.NUTS(step_size=step_size, steps=draws, warmup=0, max_depth=doublings)
        return sampler.sample(energy, first, return_trajectory=True)

    return run


def write_draws(folder: Path, x: Tensor) -> dict:
    """Write the draws ``(draws + 1, chains, d)`` to a file, from which the effective size is computed."""
    file = folder / "draws.npy"
    np.save(file, x.numpy())
    return {"draws": str(file)}


if __name__ == "__main__":
    torch.manual_seed(0)
    serve(build, ("torch", "ebmkit"), lambda x: write_draws(Path(sys.argv[1]), x))
