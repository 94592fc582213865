"""Energies: analytic targets, lattices and networks, and what is made of them."""

from thalweg.energies.analytic import Banana, DoubleWell, Funnel, Gaussian, GaussianMixture, two_bumps
from thalweg.energies.compose import clamp, tempered
from thalweg.energies.lattice import GaussianField, Graph, Grid, Ising, Potts
from thalweg.energies.neural import MLP, ConvNet, ResNet

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
    "Potts",
    "ResNet",
    "clamp",
    "tempered",
    "two_bumps",
]
