"""Pictures of energies, scores, chains, samples and training: matplotlib figures that show themselves in a notebook.

The energy comes first, then the chains or data. No function touches pyplot or matplotlib's global settings.
"""

from thalweg.core import shorten_signatures
from thalweg.plot.animation import Animation, animate
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
    "running_mean",
    "samples",
    "score",
    "trace",
]

shorten_signatures(globals(), __all__)
