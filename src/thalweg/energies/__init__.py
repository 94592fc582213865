"""Energies: analytic targets, the exponential family, lattices and neural networks, and ways to combine them."""

from thalweg.core import shorten_signatures
from thalweg.energies.analytic import Gaussian, GaussianMixture, two_bumps
from thalweg.energies.boltzmann import BoltzmannMachine
from thalweg.energies.clamped import clamp
from thalweg.energies.compose import smoothed, tempered
from thalweg.energies.confined import confined
from thalweg.energies.couplings import Graph, Grid, Matrix
from thalweg.energies.curved import Banana, DoubleWell, Funnel, Ring
from thalweg.energies.exponential import Exponential, Gamma, Normal
from thalweg.energies.exponential_bounded import Beta, Dirichlet
from thalweg.energies.exponential_discrete import Bernoulli, Poisson
from thalweg.energies.exponential_matrix import Wishart
from thalweg.energies.hopfield import Hopfield, hebb, pseudo_inverse, storkey
from thalweg.energies.labelled import LabelledMLP
from thalweg.energies.lattice import GaussianField, Ising, Potts
from thalweg.energies.maximum_entropy import MaximumEntropy
from thalweg.energies.modern_hopfield import ModernHopfield
from thalweg.energies.neural import MLP, ConvNet, ResNet
from thalweg.energies.noise_conditional import NoiseConditionalMLP, NoiseConditionalScoreMLP, ScoreMLP
from thalweg.energies.positive_forms import PositiveForm
from thalweg.energies.rbm import RBM
from thalweg.energies.recall import Recall
from thalweg.energies.two_variables import joint, marginal, swapped
from thalweg.energies.unet import NoiseConditionalScoreUNet, NoiseConditionalUNet
from thalweg.energies.units_discrete import BernoulliUnits, CategoricalUnits, SpinUnits
from thalweg.energies.units_real import GaussianUnits, ReLUUnits
from thalweg.energies.units_words import ReplicatedSoftmaxUnits

__all__ = [
    "MLP",
    "RBM",
    "Banana",
    "Bernoulli",
    "BernoulliUnits",
    "Beta",
    "BoltzmannMachine",
    "CategoricalUnits",
    "ConvNet",
    "Dirichlet",
    "DoubleWell",
    "Exponential",
    "Funnel",
    "Gamma",
    "Gaussian",
    "GaussianField",
    "GaussianMixture",
    "GaussianUnits",
    "Graph",
    "Grid",
    "Hopfield",
    "Ising",
    "LabelledMLP",
    "Matrix",
    "MaximumEntropy",
    "ModernHopfield",
    "NoiseConditionalMLP",
    "NoiseConditionalScoreMLP",
    "NoiseConditionalScoreUNet",
    "NoiseConditionalUNet",
    "Normal",
    "Poisson",
    "PositiveForm",
    "Potts",
    "ReLUUnits",
    "Recall",
    "ReplicatedSoftmaxUnits",
    "ResNet",
    "Ring",
    "ScoreMLP",
    "SpinUnits",
    "Wishart",
    "clamp",
    "confined",
    "hebb",
    "joint",
    "marginal",
    "pseudo_inverse",
    "smoothed",
    "storkey",
    "swapped",
    "tempered",
    "two_bumps",
]

shorten_signatures(globals(), __all__)
