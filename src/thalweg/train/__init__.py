"""Training: the loop, its doctor, many seeds at once, checkpoints and callbacks."""

from thalweg.train.callbacks import every
from thalweg.train.doctor import Finding
from thalweg.train.loop import Run, fit, working_memory
from thalweg.train.many import fit_many
from thalweg.train.record import DivergedError
from thalweg.train.restore import load

__all__ = ["DivergedError", "Finding", "Run", "every", "fit", "fit_many", "load", "working_memory"]
