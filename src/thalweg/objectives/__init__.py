"""Training objectives."""

from thalweg.objectives.denoising import DenoisingScoreMatching, NoiseConditionalScoreMatching
from thalweg.objectives.discrete import PseudoLikelihood, RatioMatching
from thalweg.objectives.latent import LatentLikelihood
from thalweg.objectives.likelihood import ExactLikelihood, MaximumLikelihood
from thalweg.objectives.projected import (
    FiniteDifferenceScoreMatching,
    HutchinsonScoreMatching,
    SlicedScoreMatching,
)
from thalweg.objectives.score import ExplicitScoreMatching, ImplicitScoreMatching, RegularisedScoreMatching

__all__ = [
    "DenoisingScoreMatching",
    "ExactLikelihood",
    "ExplicitScoreMatching",
    "FiniteDifferenceScoreMatching",
    "HutchinsonScoreMatching",
    "ImplicitScoreMatching",
    "LatentLikelihood",
    "MaximumLikelihood",
    "NoiseConditionalScoreMatching",
    "PseudoLikelihood",
    "RatioMatching",
    "RegularisedScoreMatching",
    "SlicedScoreMatching",
]
