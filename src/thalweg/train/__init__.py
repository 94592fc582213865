"""Training: the loop, checkpoints and callbacks."""

from thalweg.train.callbacks import every
from thalweg.train.loop import Run, fit, working_memory
from thalweg.train.record import DivergedError
from thalweg.train.restore import load

__all__ = ["DivergedError", "Run", "every", "fit", "load", "working_memory"]
