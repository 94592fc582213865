"""Evaluation: likelihoods, checks of samplers and objectives, scores of samples, of outside points and of
classifiers."""

from thalweg.core import shorten_signatures
from thalweg.evaluate.bits_per_dim import bits_per_dim
from thalweg.evaluate.calibration import (
    ReliabilityTable,
    brier_score,
    expected_calibration_error,
    log_loss,
    reliability,
)
from thalweg.evaluate.check_objective import check_objective
from thalweg.evaluate.check_sampler import check_sampler
from thalweg.evaluate.class_scores import class_scores
from thalweg.evaluate.classifier import DigitNetwork, digit_network
from thalweg.evaluate.classifier_two_sample import classifier_two_sample
from thalweg.evaluate.features import FeatureNetwork
from thalweg.evaluate.inception import InceptionNetwork
from thalweg.evaluate.inception_scores import InceptionScore, frechet_distance, image_scores, inception_score
from thalweg.evaluate.information import entropy, kl
from thalweg.evaluate.kernel_distance import kernel_inception_distance
from thalweg.evaluate.likelihood import log_likelihood, perplexity
from thalweg.evaluate.manifold_scores import DensityCoverage, PrecisionRecall, density_coverage, precision_recall
from thalweg.evaluate.mmd import mmd
from thalweg.evaluate.modes import ModeCoverage, ModeWeights, mode_coverage, mode_weights
from thalweg.evaluate.mutual_information import mutual_information
from thalweg.evaluate.ood import OutOfDistribution, ood
from thalweg.evaluate.partition import log_z, log_z_many
from thalweg.evaluate.probability_flow import probability_flow_log_likelihood, probability_flow_log_prob
from thalweg.evaluate.result import TestResult
from thalweg.evaluate.roc import Detection, RocCurve, detection, roc_curve
from thalweg.evaluate.stein import fisher_divergence, kernel_stein_discrepancy

__all__ = [
    "DensityCoverage",
    "Detection",
    "DigitNetwork",
    "FeatureNetwork",
    "InceptionNetwork",
    "InceptionScore",
    "ModeCoverage",
    "ModeWeights",
    "OutOfDistribution",
    "PrecisionRecall",
    "ReliabilityTable",
    "RocCurve",
    "TestResult",
    "bits_per_dim",
    "brier_score",
    "check_objective",
    "check_sampler",
    "class_scores",
    "classifier_two_sample",
    "density_coverage",
    "detection",
    "digit_network",
    "entropy",
    "expected_calibration_error",
    "fisher_divergence",
    "frechet_distance",
    "image_scores",
    "inception_score",
    "kernel_inception_distance",
    "kernel_stein_discrepancy",
    "kl",
    "log_likelihood",
    "log_loss",
    "log_z",
    "log_z_many",
    "mmd",
    "mode_coverage",
    "mode_weights",
    "mutual_information",
    "ood",
    "perplexity",
    "precision_recall",
    "probability_flow_log_likelihood",
    "probability_flow_log_prob",
    "reliability",
    "roc_curve",
]

shorten_signatures(globals(), __all__)
