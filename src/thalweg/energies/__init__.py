"""Energies: analytic targets, lattices and networks, and what is made of them."""

from thalweg.energies.analytic import Gaussian, GaussianMixture, two_bumps
from thalweg.energies.compose import clamp, smoothed, tempered
from thalweg.energies.conditional import NoiseConditionalMLP, NoiseConditionalScoreMLP, ScoreMLP
from thalweg.energies.curved import Banana, DoubleWell, Funnel, Ring
from thalweg.energies.lattice import GaussianField, Graph, Grid, Ising, Potts
from thalweg.energies.neural import MLP, ConvNet, ResNet
from thalweg.energies.unet import NoiseConditionalScoreUNet, NoiseConditionalUNet

__all__ = [
    "MLP",
    "Banana",
    "ConvNet",
    "DoubleWell",
    "Funnel",
    "Gaussian",
    "GaussianField",
    "GaussianMixture",
    "Graph",
    "Grid",
    "Ising",
    "NoiseConditionalMLP",
    "NoiseConditionalScoreMLP",
    "NoiseConditionalScoreUNet",
    "NoiseConditionalUNet",
    "Potts",
    "ResNet",
    "Ring",
    "ScoreMLP",
    "clamp",
    "smoothed",
    "tempered",
    "two_bumps",
]
