"""Checks of the arguments of `fit`."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from thalweg.core import check_instance, require_model, whole_number
from thalweg.train.data import check_data
from thalweg.train.optimizer import check_optimizer


def check_parts(energy: Any, objective: Any, optimizer: Any) -> None:
    """Raise a ValueError unless these are a model, an objective and an optimiser."""
    require_model("fit", energy)
    check_instance("an objective", objective, ("init", "loss"), "tw.objectives.MaximumLikelihood()")
    check_optimizer(optimizer)
    for name, part in (("energy", energy), ("objective", objective)):
        try:
            for value in _static_values(part):
                bool(value == value)
        except Exception as problem:  # whatever a user's type raises when it is compared
            raise ValueError(
                f"expected static fields in the {name} that can be compared, got one that cannot, such as an array; "
                "keep arrays as ordinary fields (in paramax.NonTrainable where they are not trained)"
            ) from problem


def _static_values(tree: PyTree) -> Iterator[Any]:
    """The static parts of a tree of modules: static fields, and the leaves that are not arrays."""
    parts = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, eqx.Module) and node is not tree)
    for part in parts:
        if isinstance(part, eqx.Module):
            yield from _static_values(part)
        elif not isinstance(part, (jax.Array, np.ndarray, np.generic)):
            yield hash(part)
    if isinstance(tree, eqx.Module):
        for field in dataclasses.fields(tree):
            if field.metadata.get("static", False):
                yield getattr(tree, field.name, None)


def check_fit(
    energy: Any, data: PyTree, steps: Any, batch_size: Any, ema: Any, resume: Any = False, run_dir: Any = None
) -> tuple[PyTree, int]:
    """Check the arguments of `fit`; returns the data as arrays and the number of rows."""
    data, rows = check_data(energy, data)
    count("steps", steps)
    if count("batch_size", batch_size) > rows:
        raise ValueError(f"expected a batch_size between 1 and the {rows} rows of data, got {batch_size}; lower it")
    if ema is not None and not (isinstance(ema, (int, float, np.number)) and 0 <= ema < 1):
        raise ValueError(f"expected ema in [0, 1), got {ema!r:.60}; 0.999 is usual")
    check_flag("resume", resume)
    if resume and run_dir is None:
        raise ValueError("expected a run_dir to resume from, got none; name the run's folder")
    return data, rows


def check_flag(name: str, value: Any) -> None:
    """Raise a ValueError unless ``value`` is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"expected {name} to be True or False, got {value!r:.60}; say which")


def count(name: str, value: Any) -> int:
    """A number of updates or rows; a ValueError if it is not a whole number or too large."""
    number = whole_number(name, value)
    if number >= 2**31:
        raise ValueError(f"expected {name} below 2^31, got {number}; give a smaller number")
    return number


def as_folder(run_dir: Any) -> Path | None:
    """A run folder as a path, or None."""
    if run_dir is not None and not isinstance(run_dir, (str, Path)):
        raise ValueError(f"expected run_dir to be a path, got {run_dir!r:.60}; name a folder")
    return None if run_dir is None else Path(run_dir)
