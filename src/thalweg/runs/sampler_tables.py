"""The kernels and starts a configuration may name, with their keys, and the keys of ``[sample]``."""

from collections.abc import Mapping
from typing import Any

from thalweg import samplers
from thalweg.core import Kernel
from thalweg.runs.settings import NUMBERS, Entry, Setting, Table
from thalweg.samplers.starts import Noise, Start

KERNELS: Table = {
    "AnnealedLangevin": Entry(
        samplers.AnnealedLangevin,
        {
            "sigmas": Setting((NUMBERS,)),
            "steps": Setting((int,), 100),
            "epsilon": Setting((float, None), None),
            "denoise": Setting((bool,), False),
        },
    ),
    "Gibbs": Entry(samplers.Gibbs, {"scan": Setting((str,), "systematic")}),
    "GibbsWithGradients": Entry(samplers.GibbsWithGradients, {}),
    "GradientDescent": Entry(
        samplers.GradientDescent, {"step_size": Setting((NUMBERS,)), "momentum": Setting((NUMBERS,), 0.0)}
    ),
    "HMC": Entry(
        samplers.HMC,
        {"step_size": Setting((NUMBERS,)), "steps": Setting((int,), 10), "mass_matrix": Setting((float,), 1.0)},
    ),
    "Langevin": Entry(
        samplers.Langevin,
        {
            "step_size": Setting((float,)),
            "noise_scale": Setting((float, None), None),
            "clip_x": Setting((tuple[float, float], None), None),
            "clip_gradient": Setting((float, None), None),
        },
    ),
    "MALA": Entry(samplers.MALA, {"step_size": Setting((NUMBERS,))}),
    "NUTS": Entry(
        samplers.NUTS,
        {"step_size": Setting((NUMBERS,)), "mass_matrix": Setting((float,), 1.0), "max_doublings": Setting((int,), 10)},
    ),
    "RandomWalk": Entry(samplers.RandomWalk, {"scale": Setting((NUMBERS,))}),
    "UnderdampedLangevin": Entry(
        samplers.UnderdampedLangevin, {"step_size": Setting((NUMBERS,)), "friction": Setting((NUMBERS,), 1.0)}
    ),
}
STARTS: Table = {
    "ReplayBuffer": Entry(
        samplers.ReplayBuffer,
        {"size": Setting((int,)), "rejuvenation": Setting((float,), 0.05), "noise": Setting((Noise, None), None)},
    ),
    "from_data": Entry(samplers.from_data, {}),
    "from_noise": Entry(samplers.from_noise, {"noise": Setting((Noise, None), None)}),
    "persistent": Entry(samplers.persistent, {"noise": Setting((Noise, None), None)}),
}

# a parameter of one of these types is a table of its own
CHOICES: Mapping[Any, Table] = {Kernel: KERNELS, Start: STARTS}
UNIFORM = {"low": Setting((float,)), "high": Setting((float,))}
SAMPLE: Mapping[str, Setting] = {
    "kernel": Setting((Kernel, None), None),
    "chains": Setting((int,), 100),
    "steps": Setting((int,), 500),
    "noise": Setting((Noise, None), None),
}
