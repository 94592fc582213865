"""Langevin on model A of Xu (2022, Self-Adapting Noise-Contrastive Estimation for Energy-Based Models, Tsinghua
University) in PyTorch, eager and compiled, in either memory layout.

Model A is from Xu (2022), "Self-Adapting Noise-Contrastive Estimation for Energy-Based Models", master's thesis,
Tsinghua University. The weights are divided by their spectral norms once, before the chain: they do not change during a
chain, and the gradient is taken in x only.
"""

import torch
from serve import serve
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

# (channels, kernel, stride, padding)
LAYERS = ((64, 3, 1, 1), (128, 4, 2, 1), (256, 4, 2, 1), (256, 3, 2, 1), (1024, 4, 1, 0))


def model_a() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 1
    for width, kernel, stride, padding in LAYERS:
        layers += [nn.Conv2d(channels, width, kernel, stride, padding), nn.LeakyReLU(0.2)]
        channels = width
    layers += [nn.Flatten(), nn.Linear(1024, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1)]
    net = nn.Sequential(*layers)
    for module in net:
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            parametrizations.spectral_norm(module, n_power_iterations=1)
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
    return net.requires_grad_(False)


def langevin(batch: int, steps: int, compiled: bool, layout: str):
    memory = {"default": torch.contiguous_format, "channels last": torch.channels_last}[layout]
    net = model_a().to(memory_format=memory)
    start = (2 * torch.rand(batch, 1, 28, 28) - 1).to(memory_format=memory)

    def gradient(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_(True)
        return torch.autograd.grad(energy(x).sum(), x)[0]

    energy = torch.compile(net) if compiled else net

    def run() -> Tensor:
        x = start
        for _ in range(steps):
            x = x - gradient(x) + 0.005 * torch.randn_like(x)
        return x

    return run


if __name__ == "__main__":
    torch.manual_seed(0)
    # both sides must hold the same number of weights, or they are not the same model
    serve(langevin, ("torch",), weights=sum(parameter.numel() for parameter in model_a().parameters()))
