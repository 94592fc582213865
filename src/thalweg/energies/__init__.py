"""Energies: analytic targets, lattices and networks, and what is made of them."""

from thalweg.energies.analytic import Banana, DoubleWell, Funnel, Gaussian, GaussianMixture, two_bumps
from thalweg.energies.compose import clamp, tempered
from thalweg.energies.lattice import GaussianField, Graph, Grid, Ising, Potts

__all__ = [
    "Banana",
    "DoubleWell",
    "Funnel",
    "Gaussian",
    "GaussianField",
    "GaussianMixture",
    "Graph",
    "Grid",
    "Ising",
    "Potts",
    "clamp",
    "tempered",
    "two_bumps",
]
