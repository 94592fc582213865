"""Training of the classical machines."""

from thalweg.core import shorten_signatures
from thalweg.machines.maximum_entropy import fit_maximum_entropy
from thalweg.machines.maximum_entropy_fit import MaximumEntropyFit

__all__ = ["MaximumEntropyFit", "fit_maximum_entropy"]

shorten_signatures(globals(), __all__)
