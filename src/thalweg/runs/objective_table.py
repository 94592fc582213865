"""The objectives a configuration may name, with their keys, and the keys of ``[train]``."""

from collections.abc import Mapping
from typing import Literal

from thalweg import objectives
from thalweg.core import Kernel
from thalweg.runs.settings import NUMBERS, Entry, Setting, Table
from thalweg.samplers.starts import Start

OBJECTIVES: Table = {
    "AdaNCE": Entry(
        objectives.AdaNCE,
        {
            "interval": Setting((int,), 1),
            "kernel": Setting((Kernel,), None),
            "steps": Setting((int,), 20),
            "start": Setting((Start, None), None),
            "reuse": Setting((bool,), False),
            "stein": Setting((bool,), False),
            "anchor": Setting((int,), 0),
        },
    ),
    "AdversarialNCE": Entry(
        objectives.AdversarialNCE,
        {
            "share": Setting((float,), 0.5),
            "entropy": Setting((float,), 0.1),
            "many": Setting((int,), 256),
            "learning_rate": Setting((float,), 0.001),
            "latent": Setting((int,), 8),
            "width": Setting((int,), 128),
            "nu": Setting((float,), 1.0),
        },
    ),
    "ConditionalNCE": Entry(objectives.ConditionalNCE, {"sigma": Setting((float, None), None)}),
    "DenoisingScoreMatching": Entry(objectives.DenoisingScoreMatching, {"sigma": Setting((float,), 0.1)}),
    "ExactLikelihood": Entry(
        objectives.ExactLikelihood,
        {
            "points": Setting((int, None), None),
            "margin": Setting((float,), 0.5),
            "bounds": Setting((tuple[NUMBERS, NUMBERS], None), None),
        },
    ),
    "FiniteDifferenceScoreMatching": Entry(
        objectives.FiniteDifferenceScoreMatching,
        {"law": Setting((str,), "rademacher"), "epsilon": Setting((NUMBERS,), 0.1)},
    ),
    "FlowNCE": Entry(
        objectives.FlowNCE,
        {
            "learning_rate": Setting((float,), 0.001),
            "warm_start": Setting((int,), 500),
            "nu": Setting((float,), 1.0),
            "held_out": Setting((NUMBERS, None), None),
        },
    ),
    "HutchinsonScoreMatching": Entry(objectives.HutchinsonScoreMatching, {"law": Setting((str,), "rademacher")}),
    "ImplicitScoreMatching": Entry(objectives.ImplicitScoreMatching, {}),
    "MaximumLikelihood": Entry(
        objectives.MaximumLikelihood,
        {
            "kernel": Setting((Kernel,), None),
            "steps": Setting((int,), 20),
            "start": Setting((Start, None), None),
            "energy_penalty": Setting((float,), 0.0),
            "sampler_gradient": Setting((float, None), None),
            "sampler_gradient_steps": Setting((int,), 1),
        },
    ),
    "NCE": Entry(objectives.NCE, {"nu": Setting((float,), 1.0), "fixed": Setting((int, None), None)}),
    "NoiseConditionalScoreMatching": Entry(
        objectives.NoiseConditionalScoreMatching,
        {"sigmas": Setting((NUMBERS, None), None), "shares": Setting((NUMBERS, None), None)},
    ),
    "PseudoLikelihood": Entry(objectives.PseudoLikelihood, {}),
    "RankNCE": Entry(objectives.RankNCE, {"candidates": Setting((int,), 10), "priors": Setting((NUMBERS, None), None)}),
    "RatioMatching": Entry(objectives.RatioMatching, {}),
    "RegularisedScoreMatching": Entry(objectives.RegularisedScoreMatching, {"weight": Setting((NUMBERS,), 0.01)}),
    "SlicedScoreMatching": Entry(objectives.SlicedScoreMatching, {"law": Setting((str,), "rademacher")}),
}
TRAIN: Mapping[str, Setting] = {
    "steps": Setting((int,)),
    "batch_size": Setting((int,)),
    "ema": Setting((float, None), None),
    "checkpoint_every": Setting((int, None), None),
    "keep_best": Setting((str, None), None),
    "best_is": Setting((Literal["highest", "lowest"],), "highest"),
    "doctor": Setting((bool,), True),
}
