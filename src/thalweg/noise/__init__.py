"""Noise: ladders of noise levels, noise densities for contrastive training, and noise around given points."""

from thalweg.core import shorten_signatures
from thalweg.noise.densities import KernelDensity, Marginals, Reshaped, Uniform, fit_gaussian, fit_kde, fit_marginals
from thalweg.noise.flows import fit_flow, flow
from thalweg.noise.independent import IndependentBernoulli, IndependentCategorical, fit_independent
from thalweg.noise.mixture import fit_mixture
from thalweg.noise.neural_sampler import NeuralSampler
from thalweg.noise.perturbations import Flips, Jitter, Unconditional
from thalweg.noise.schedules import annealed_step, geometric_ladder, ladder_from_data

__all__ = [
    "Flips",
    "IndependentBernoulli",
    "IndependentCategorical",
    "Jitter",
    "KernelDensity",
    "Marginals",
    "NeuralSampler",
    "Reshaped",
    "Unconditional",
    "Uniform",
    "annealed_step",
    "fit_flow",
    "fit_gaussian",
    "fit_independent",
    "fit_kde",
    "fit_marginals",
    "fit_mixture",
    "flow",
    "geometric_ladder",
    "ladder_from_data",
]

shorten_signatures(globals(), __all__)
