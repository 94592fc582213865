"""Evaluation: checks of samplers and objectives, and scores of samples."""

from thalweg.core import shorten_signatures
from thalweg.evaluate.check_objective import check_objective
from thalweg.evaluate.check_sampler import check_sampler
from thalweg.evaluate.class_scores import class_scores
from thalweg.evaluate.classifier import DigitNetwork, digit_network
from thalweg.evaluate.classifier_two_sample import classifier_two_sample
from thalweg.evaluate.inception import InceptionNetwork
from thalweg.evaluate.inception_scores import (
    FeatureNetwork,
    InceptionScore,
    frechet_distance,
    image_scores,
    inception_score,
)
from thalweg.evaluate.information import entropy, kl
from thalweg.evaluate.mmd import mmd
from thalweg.evaluate.modes import ModeCoverage, ModeWeights, mode_coverage, mode_weights
from thalweg.evaluate.mutual_information import mutual_information
from thalweg.evaluate.result import TestResult
from thalweg.evaluate.stein import fisher_divergence, kernel_stein_discrepancy

__all__ = [
    "DigitNetwork",
    "FeatureNetwork",
    "InceptionNetwork",
    "InceptionScore",
    "ModeCoverage",
    "ModeWeights",
    "TestResult",
    "check_objective",
    "check_sampler",
    "class_scores",
    "classifier_two_sample",
    "digit_network",
    "entropy",
    "fisher_divergence",
    "frechet_distance",
    "image_scores",
    "inception_score",
    "kernel_stein_discrepancy",
    "kl",
    "mmd",
    "mode_coverage",
    "mode_weights",
    "mutual_information",
]

shorten_signatures(globals(), __all__)
