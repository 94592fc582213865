"""The energies a configuration may name, with their keys; the shape of a point and the random key are added later."""

from collections.abc import Sequence
from typing import Literal

from thalweg import energies
from thalweg.energies.confined_mlp import ConfinedMLP
from thalweg.runs import makers
from thalweg.runs.settings import Entry, Setting, Table

ENERGIES: Table = {
    "ConfinedMLP": Entry(ConfinedMLP, {"width": Setting((int,), 64), "depth": Setting((int,), 2)}),
    "ConvNet": Entry(
        energies.ConvNet,
        {
            "preset": Setting((str, None), None),
            "width": Setting((float,), 1.0),
            "spectral_norm": Setting((bool,), True),
            "slope": Setting((float,), 0.2),
            "layers": Setting((Sequence[tuple[int, int, int, int]], None), None),
            "dense": Setting((Sequence[int], None), None),
            "activation": Setting((str,), "leaky_relu"),
            "method": Setting((str, None), None),
        },
    ),
    "Ising": Entry(
        makers.ising,
        {
            "values": Setting((Literal["spin", "binary"],), "spin"),
            "grid": Setting((tuple[int, int], None), None),
            "periodic": Setting((bool,), True),
        },
    ),
    "LabelledMLP": Entry(
        energies.LabelledMLP,
        {
            "classes": Setting((int,)),
            "width": Setting((int,), 128),
            "depth": Setting((int,), 2),
            "activation": Setting((str, None), None),
            "slope": Setting((float,), 0.2),
            "spectral_norm": Setting((bool,), False),
        },
    ),
    "MLP": Entry(
        energies.MLP,
        {
            "width": Setting((int,), 128),
            "depth": Setting((int,), 2),
            "activation": Setting((str, None), None),
            "slope": Setting((float,), 0.2),
            "spectral_norm": Setting((bool,), False),
        },
    ),
    "NoiseConditionalMLP": Entry(
        energies.NoiseConditionalMLP,
        {"width": Setting((int,), 128), "depth": Setting((int,), 3), "data_scale": Setting((float,), 1.0)},
    ),
    "NoiseConditionalScoreMLP": Entry(
        energies.NoiseConditionalScoreMLP,
        {"width": Setting((int,), 128), "depth": Setting((int,), 3), "data_scale": Setting((float,), 1.0)},
    ),
    "NoiseConditionalScoreUNet": Entry(
        energies.NoiseConditionalScoreUNet,
        {
            "channels": Setting((tuple[int, ...],), (32, 64)),
            "blocks": Setting((int,), 1),
            "patch": Setting((int,), 1),
            "data_scale": Setting((float,), 0.5),
        },
    ),
    "NoiseConditionalUNet": Entry(
        energies.NoiseConditionalUNet,
        {
            "channels": Setting((tuple[int, ...],), (32, 64)),
            "blocks": Setting((int,), 1),
            "patch": Setting((int,), 1),
            "data_scale": Setting((float,), 0.5),
        },
    ),
    "Potts": Entry(
        makers.potts,
        {
            "labels": Setting((int,)),
            "grid": Setting((tuple[int, int], None), None),
            "periodic": Setting((bool,), True),
        },
    ),
    "ResNet": Entry(
        energies.ResNet,
        {
            "channels": Setting((Sequence[int],), (64, 128, 256)),
            "blocks": Setting((int,), 1),
            "activation": Setting((str,), "silu"),
            "slope": Setting((float,), 0.2),
            "spectral_norm": Setting((bool,), False),
            "method": Setting((str, None), None),
        },
    ),
}
