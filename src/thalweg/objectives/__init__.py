"""Training objectives: likelihood, noise contrast, score matching, and objectives for discrete data."""

from thalweg.core import shorten_signatures
from thalweg.objectives.adaptive import AdaBregman, AdaNCE
from thalweg.objectives.adversarial import AdversarialNCE
from thalweg.objectives.boltzmann import BoltzmannLikelihood
from thalweg.objectives.bregman import BregmanRatio
from thalweg.objectives.centred import Centred, Sparse
from thalweg.objectives.conditional_nce import ConditionalNCE
from thalweg.objectives.denoising import DenoisingScoreMatching, NoiseConditionalScoreMatching
from thalweg.objectives.exact_likelihood import ExactLikelihood
from thalweg.objectives.latent import LatentLikelihood
from thalweg.objectives.learned_noise import FlowNCE
from thalweg.objectives.likelihood import MaximumLikelihood
from thalweg.objectives.noise_contrastive import NCE, RankNCE
from thalweg.objectives.projected import (
    FiniteDifferenceScoreMatching,
    HutchinsonScoreMatching,
    SlicedScoreMatching,
)
from thalweg.objectives.pseudo_likelihood import PseudoLikelihood, RatioMatching
from thalweg.objectives.psi import Custom, ItakuraSaito, KullbackLeibler, Logistic, Power, Squared
from thalweg.objectives.score import ExplicitScoreMatching, ImplicitScoreMatching, RegularisedScoreMatching

__all__ = [
    "NCE",
    "AdaBregman",
    "AdaNCE",
    "AdversarialNCE",
    "BoltzmannLikelihood",
    "BregmanRatio",
    "Centred",
    "ConditionalNCE",
    "Custom",
    "DenoisingScoreMatching",
    "ExactLikelihood",
    "ExplicitScoreMatching",
    "FiniteDifferenceScoreMatching",
    "FlowNCE",
    "HutchinsonScoreMatching",
    "ImplicitScoreMatching",
    "ItakuraSaito",
    "KullbackLeibler",
    "LatentLikelihood",
    "Logistic",
    "MaximumLikelihood",
    "NoiseConditionalScoreMatching",
    "Power",
    "PseudoLikelihood",
    "RankNCE",
    "RatioMatching",
    "RegularisedScoreMatching",
    "SlicedScoreMatching",
    "Sparse",
    "Squared",
]

shorten_signatures(globals(), __all__)
