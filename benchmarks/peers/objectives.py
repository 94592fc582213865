"""Training updates of a dense energy by torchebm or by ebmkit: ``objectives.py torchebm | ebmkit``.

The network is the same as Thalweg's: two hidden layers with SiLU. An update is the library's own loss, the backward
pass and Adam. Sliced score matching has one projection and no variance reduction; contrastive divergence has ten
Langevin steps from the data.
"""

import sys
from collections.abc import Callable

import torch
from serve import serve
from torch import Tensor, nn

STEPS, TAU, SIGMA = 10, 0.02, 0.1


def network(dim: int, width: int) -> nn.Module:
    layers = [nn.Linear(dim, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)]
    return nn.Sequential(*layers)


def torchebm_run(objective: str, batch: int, dim: int, width: int):
    from torchebm.core import BaseModel
    from torchebm.losses import ContrastiveDivergence, DenoisingScoreMatching, SlicedScoreMatching
    from torchebm.samplers import LangevinDynamics

    class Energy(BaseModel):
        def __init__(self) -> None:
            super().__init__()
            self.network = network(dim, width)

        def forward(self, x: Tensor) -> Tensor:
            return self.network(x).squeeze(-1)

    model = Energy()
    if objective == "denoising":
        loss = DenoisingScoreMatching(model, noise_scale=SIGMA)
    elif objective == "sliced":
        loss = SlicedScoreMatching(model, n_projections=1)
    else:
        sampler = LangevinDynamics(model, step_size=TAU / 2)
        loss = ContrastiveDivergence(model, sampler, k_steps=STEPS, energy_reg_weight=0.0)
    return _update(model, lambda x: _first(loss(x)), batch, dim)


def ebmkit_run(objective: str, batch: int, dim: int, width: int):
    import ebm
    from ebm.losses import ContrastiveDivergence, DenoisingScoreMatching, SlicedScoreMatching

    model = network(dim, width)

    def energy(x: Tensor) -> Tensor:
        return model(x).squeeze(-1)

    if objective == "denoising":
        loss = DenoisingScoreMatching(SIGMA)
    elif objective == "sliced":
        loss = SlicedScoreMatching(1, vr=False)
    else:
        sampler = ebm.LangevinDynamics(step_size=TAU / 2, steps=STEPS)
        data: list[Tensor] = []
        loss = ContrastiveDivergence(sampler, init_fn=lambda shape: data[0])

        def from_data(x: Tensor) -> Tensor:
            data[:] = [x]
            return loss(energy, x).loss

        return _update(model, from_data, batch, dim)
    return _update(model, lambda x: loss(energy, x).loss, batch, dim)


def _first(result):
    return result[0] if isinstance(result, tuple) else result


def _update(model: nn.Module, loss: Callable[[Tensor], Tensor], batch: int, dim: int):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = torch.randn(batch, dim)

    def run() -> Tensor:
        optimizer.zero_grad()
        value = loss(data)
        value.backward()
        optimizer.step()
        return value.detach()

    return run


if __name__ == "__main__":
    torch.manual_seed(0)
    builders: dict[str, Callable] = {"torchebm": torchebm_run, "ebmkit": ebmkit_run}
    serve(builders[sys.argv[1]], ("torch", sys.argv[1]), lambda loss: {"loss": float(loss)})
