"""Training of the classical machines."""

from thalweg.core import shorten_signatures
from thalweg.machines.maximum_entropy import MaximumEntropyFit, fit_maximum_entropy

__all__ = ["MaximumEntropyFit", "fit_maximum_entropy"]

shorten_signatures(globals(), __all__)
