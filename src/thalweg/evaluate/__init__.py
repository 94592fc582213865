"""Evaluation: checks of samplers and objectives, and scores of samples."""

from thalweg.core import shorten_signatures
from thalweg.evaluate.check_objective import check_objective
from thalweg.evaluate.check_sampler import check_sampler
from thalweg.evaluate.class_scores import class_scores
from thalweg.evaluate.classifier import DigitNetwork, digit_network
from thalweg.evaluate.inception import InceptionNetwork
from thalweg.evaluate.inception_scores import (
    FeatureNetwork,
    InceptionScore,
    frechet_distance,
    image_scores,
    inception_score,
)

__all__ = [
    "DigitNetwork",
    "FeatureNetwork",
    "InceptionNetwork",
    "InceptionScore",
    "check_objective",
    "check_sampler",
    "class_scores",
    "digit_network",
    "frechet_distance",
    "image_scores",
    "inception_score",
]

shorten_signatures(globals(), __all__)
