"""Plots of energies, scores, chains, samples, training and classifiers: matplotlib figures that display themselves in
a notebook.

The energy is the first argument, then come the chains or data. No function uses pyplot or changes matplotlib's global
settings.
"""

from thalweg.core import shorten_signatures
from thalweg.plot.animation import Animation, animate
from thalweg.plot.curves import reliability, roc
from thalweg.plot.landscape import chains, energy, score
from thalweg.plot.sample_grid import samples
from thalweg.plot.style import DARK, LIGHT, Theme
from thalweg.plot.traces import autocorrelation, mixing, rank, running_mean, trace

__all__ = [
    "DARK",
    "LIGHT",
    "Animation",
    "Theme",
    "animate",
    "autocorrelation",
    "chains",
    "energy",
    "mixing",
    "rank",
    "reliability",
    "roc",
    "running_mean",
    "samples",
    "score",
    "trace",
]

shorten_signatures(globals(), __all__)
