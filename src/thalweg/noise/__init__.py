"""Noise: ladders of levels, and densities to contrast with."""

from thalweg.noise.schedules import annealed_step, geometric_ladder, ladder_from_data

__all__ = ["annealed_step", "geometric_ladder", "ladder_from_data"]
