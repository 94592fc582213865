"""Langevin and HMC on the double well, by torchebm or by ebmkit: ``double_well.py torchebm | ebmkit``.

Both libraries are called as in their documentation, with diagnostics off. Both write the Langevin step as
``x - η∇E + √(2η) ε``, so η is half of Thalweg's τ.
"""

import sys
from collections.abc import Callable

import torch
from serve import serve
from torch import Tensor

BARRIER = 2.0


def torchebm_run(sampler: str, chains: int, steps: int, tau: float, epsilon: float, leapfrog: int, gradient: str):
    from torchebm.core import DoubleWellModel
    from torchebm.samplers import HamiltonianMonteCarlo, LangevinDynamics

    class HandWritten(DoubleWellModel):
        """The documented way to avoid autograd: a gradient written by hand."""

        def gradient(self, x: Tensor, model_kwargs: dict | None = None) -> Tensor:
            return 4.0 * self.barrier_height * x * (x.square() - 1.0)

    model = {"automatic": DoubleWellModel, "by hand": HandWritten}[gradient](barrier_height=BARRIER)
    start = torch.randn(chains, 2)
    if sampler == "langevin":
        langevin = LangevinDynamics(model, step_size=tau / 2)
        return lambda: langevin.sample(x=start, n_steps=steps)
    hmc = HamiltonianMonteCarlo(model, step_size=epsilon, n_leapfrog_steps=leapfrog)
    return lambda: hmc.sample(x=start, n_steps=steps, return_trajectory=True)[:, -1]


def ebmkit_run(sampler: str, chains: int, steps: int, tau: float, epsilon: float, leapfrog: int, gradient: str):
    import ebm

    if gradient != "automatic":
        raise ValueError("ebmkit's samplers take an energy and differentiate it themselves")

    def energy(x: Tensor) -> Tensor:
        return BARRIER * (x.square() - 1.0).square().sum(dim=-1)

    start = torch.randn(chains, 2)
    if sampler == "langevin":
        langevin = ebm.LangevinDynamics(step_size=tau / 2, steps=steps)
        return lambda: langevin.sample(energy, start)
    hmc = ebm.HMC(step_size=epsilon, leapfrog_steps=leapfrog, steps=steps)
    return lambda: hmc.sample(energy, start, return_trajectory=True)[-1]


def second_moment(x: Tensor) -> dict:
    """What shows that both sides did the same work: the mean of x² at the end of the chains."""
    return {"second_moment": float(x.square().mean())}


if __name__ == "__main__":
    torch.manual_seed(0)
    builders: dict[str, Callable] = {"torchebm": torchebm_run, "ebmkit": ebmkit_run}
    serve(builders[sys.argv[1]], ("torch", sys.argv[1]), second_moment)
