"""Evaluation: checks of samplers, and scores of what a model draws."""

from thalweg.evaluate.check import check_sampler
from thalweg.evaluate.gradients import check_objective
from thalweg.evaluate.images import class_scores

__all__ = ["check_objective", "check_sampler", "class_scores"]
