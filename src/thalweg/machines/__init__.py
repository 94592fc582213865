"""Training of the classical machines."""

from thalweg.core import shorten_signatures
from thalweg.machines.boltzmann import train_boltzmann
from thalweg.machines.rbm import train_rbm

__all__ = ["train_boltzmann", "train_rbm"]

shorten_signatures(globals(), __all__)
