"""Evaluation: likelihoods, checks of samplers and objectives, and scores of samples."""

from thalweg.core import shorten_signatures
from thalweg.evaluate.bits_per_dim import bits_per_dim
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
from thalweg.evaluate.likelihood import log_likelihood, perplexity
from thalweg.evaluate.probability_flow import probability_flow_log_likelihood, probability_flow_log_prob

__all__ = [
    "DigitNetwork",
    "FeatureNetwork",
    "InceptionNetwork",
    "InceptionScore",
    "bits_per_dim",
    "check_objective",
    "check_sampler",
    "class_scores",
    "digit_network",
    "frechet_distance",
    "image_scores",
    "inception_score",
    "log_likelihood",
    "perplexity",
    "probability_flow_log_likelihood",
    "probability_flow_log_prob",
]

shorten_signatures(globals(), __all__)
