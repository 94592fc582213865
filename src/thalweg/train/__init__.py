"""Training: the loop, its doctor, many seeds at once, checkpoints and callbacks."""

from thalweg.core import shorten_signatures
from thalweg.train.callbacks import every
from thalweg.train.doctor import Finding
from thalweg.train.loop import Run, fit, working_memory
from thalweg.train.many import fit_many
from thalweg.train.record import DivergedError
from thalweg.train.restore import load
from thalweg.train.trajectory import TrajectoryLogZ

__all__ = [
    "DivergedError",
    "Finding",
    "Run",
    "TrajectoryLogZ",
    "every",
    "fit",
    "fit_many",
    "load",
    "working_memory",
]

shorten_signatures(globals(), __all__)
