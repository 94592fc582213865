"""Training of the classical machines."""

from thalweg.core import shorten_signatures
from thalweg.machines.boltzmann import train_boltzmann
from thalweg.machines.maximum_entropy import fit_maximum_entropy
from thalweg.machines.maximum_entropy_fit import MaximumEntropyFit
from thalweg.machines.rbm import train_rbm

__all__ = ["MaximumEntropyFit", "fit_maximum_entropy", "train_boltzmann", "train_rbm"]

shorten_signatures(globals(), __all__)
