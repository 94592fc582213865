"""The objective, data and sampling settings of a run, which sampling and evaluation use."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from thalweg.core import ConditionalEnergy
from thalweg.data import Dataset
from thalweg.samplers.starts import Noise


@dataclasses.dataclass(eq=False)
class Source:
    """The objective, data, folder and sampling settings of a run, as far as they are known; compared by identity.

    ``data`` is what `fit` was given, or a function that loads it; ``kernel``, ``noise``, ``chains`` and ``steps`` are
    the settings of ``[sample]`` in the run's configuration.
    """

    objective: Any = None
    data: Any = None
    folder: Path | None = None
    kernel: Any = None
    noise: Noise | None = None
    chains: int | None = None
    steps: int | None = None

    def dataset(self, energy: Any) -> Dataset | None:
        """The run's data; None if they are not known."""
        if isinstance(self.data, Callable):
            self.data = self.data()
        return as_dataset(energy, self.data)


def as_dataset(energy: Any, data: Any) -> Dataset | None:
    """Data as `fit` takes them, converted to a data set; None stays None.

    >>> import numpy as np, thalweg as tw
    >>> from thalweg.train.source import as_dataset
    >>> as_dataset(tw.energies.Banana(), np.zeros((5, 2), np.float32)).x_train.shape
    (5, 2)
    """
    if data is None or isinstance(data, Dataset):
        return data
    if isinstance(energy, ConditionalEnergy) and isinstance(data, (tuple, list)) and len(data) == 2:
        return Dataset(*data)
    if not hasattr(data, "shape") or isinstance(data, jax.ShapeDtypeStruct):
        raise ValueError(
            f"expected data as one array or a tw.data.Dataset to evaluate on, got a {type(data).__name__}; "
            "points of several parts are sampled with run.sample"
        )
    return Dataset(data)  # pyright: ignore[reportArgumentType]
