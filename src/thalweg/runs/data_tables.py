"""The keys of ``[data]``: the options of the function that loads a data set."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from thalweg import data
from thalweg.data import loading
from thalweg.runs.settings import NUMBERS, Setting

_EVERY_TOY = {"n": Setting((int,), 10_000), "n_test": Setting((int,), 2_000)}
_TOYS: Mapping[str, Mapping[str, Setting]] = {
    "two_moons": {"sigma": Setting((float, int), 0.1)},
    "rings": {"sigma": Setting((float, int), 0.08)},
    "pinwheel": {
        "arms": Setting((int,), 5),
        "radial_sigma": Setting((float, int), 0.3),
        "tangential_sigma": Setting((float, int), 0.1),
        "rate": Setting((float, int), 0.25),
        "scale": Setting((float, int), 2.0),
    },
    "checkerboard": {"squares": Setting((int,), 4), "half_width": Setting((float, int), 4.0)},
    "eight_gaussians": {
        "weights": Setting((NUMBERS, None), None),
        "radius": Setting((float, int), 4.0),
        "sigma": Setting((float, int), 0.5),
    },
    "spirals": {"arms": Setting((int,), 2), "turns": Setting((float, int), 1.5), "sigma": Setting((float, int), 0.1)},
    "swiss_roll": {"sigma": Setting((float, int), 0.1)},
    "skewed_mixture": {},
}
# by the name of the reading function
_READERS: Mapping[str, Mapping[str, Setting]] = {
    "digits": {"raw": Setting((bool,), False)},
    "mnist": {"folder": Setting((str, Path, None), None), "raw": Setting((bool,), False)},
    "fashion_mnist": {"folder": Setting((str, Path, None), None), "raw": Setting((bool,), False)},
    "cifar10": {"folder": Setting((str, Path, None), None), "raw": Setting((bool,), False)},
    "celeba": {
        "folder": Setting((str, Path, None), None),
        "size": Setting((int,), 32),
        "crop": Setting((int, Literal["square"], None), 140),
        "grey": Setting((bool,), False),
        "attributes": Setting((Sequence[str], None), None),
        "limit": Setting((int, None), None),
        "raw": Setting((bool,), False),
    },
    "_image_folder": {
        "size": Setting((int, tuple[int, int], None), None),
        "crop": Setting((int, Literal["square"], None), None),
        "grey": Setting((bool, None), None),
        "raw": Setting((bool,), False),
        "test_fraction": Setting((float,), 0.0),
    },
    "_cifar10_archive": {"raw": Setting((bool,), False)},
    "_idx_file": {"raw": Setting((bool,), False)},
    "_npy": {"raw": Setting((bool,), False), "test_fraction": Setting((float,), 0.0)},
    "_npz": {
        "x": Setting((str, None), None),
        "y": Setting((str, None), None),
        "raw": Setting((bool,), False),
        "test_fraction": Setting((float,), 0.0),
    },
    "_csv": {
        "label": Setting((str, int, None), None),
        "delimiter": Setting((str, None), None),
        "drop": Setting((Sequence[str],), ()),
        "standardise": Setting((bool,), False),
        "test_fraction": Setting((float,), 0.0),
    },
}


def loader(name: str) -> Callable[..., data.Dataset] | None:
    """The function that loads a data set; None for a toy."""
    if name in data.TOYS:
        return None
    if name in data.CATALOGUE:
        return getattr(data, name)
    reader = loading.path_reader(Path(name))
    if reader is None:
        raise ValueError(f"data.name: {loading.unknown_name(name, Path(name))}")
    return reader


def data_keys(name: str) -> Mapping[str, Setting]:
    """The keys of ``[data]`` other than ``name``."""
    load = loader(name)
    if load is None:
        return {**_EVERY_TOY, **_TOYS[name]}
    keys = _READERS[load.__name__]
    # a path is given as the name, not as an option
    path = None if name in data.CATALOGUE else next(iter(inspect.signature(load).parameters))
    return {key: setting for key, setting in keys.items() if key != path}
