"""Training objectives."""

from thalweg.objectives.likelihood import MaximumLikelihood

__all__ = ["MaximumLikelihood"]
