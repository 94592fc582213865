"""``model.json``, beside the checkpoints of a run: describes the trained model, so that it can be rebuilt.

A checkpoint holds the arrays of a training in order. This file says which arrays belong to which part of the training,
and describes each part (see `model_tree`). A part that cannot be described, such as one with a lambda inside, is listed
with the reason. `fit` trains it all the same; to load the run, give an object of the same structure.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thalweg.core import partition_trainable
from thalweg.core.files import write_json
from thalweg.train.model_tree import UnwritableError, from_json, number_arrays, to_json
from thalweg.train.update import Training

MODEL = "model.json"
_VERSION = 1
_PARTS = ("energy", "params", "state", "optimizer", "average")


class ModelFile(NamedTuple):
    """The content of ``model.json``: dtypes and shapes of the ``arrays`` of a checkpoint, and a description of the
    ``parts`` of the training."""

    path: Path
    arrays: list[dict[str, Any]]
    parts: dict[str, dict[str, Any]]


def write_model(folder: Path, training: Training, objective: Any) -> Path:
    """Describe the parts of ``training``, whose arrays checkpoints hold, and the objective in ``model.json``."""
    arrays, parts = [], {}
    for name in _PARTS:
        part = getattr(training, name)
        leaves = [leaf for leaf in jax.tree.leaves(part) if eqx.is_array(leaf)]
        parts[name] = {"first": len(arrays), "count": len(leaves)}
        # not needed for the optimiser: a resumed training builds its own and restores the state
        parts[name] |= {} if name == "optimizer" else _describe(number_arrays(part, len(arrays)), name)
        arrays += map(_type_and_shape, leaves)
    parts["objective"] = _describe(objective, "objective")
    return write_json(folder / MODEL, {"version": _VERSION, "arrays": arrays, "parts": parts})


def _describe(part: Any, name: str) -> dict[str, Any]:
    try:
        return {"tree": to_json(part, name)}
    except UnwritableError as reason:
        return {"unwritable": str(reason)}


def _type_and_shape(leaf: Any) -> dict[str, Any]:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return {"key": str(jax.random.key_impl(leaf)), "shape": list(leaf.shape)}
    return {"dtype": np.dtype(leaf.dtype).name, "shape": list(leaf.shape)}


def read_model(folder: Path) -> ModelFile:
    """Read ``model.json`` of a run folder; a ValueError if it is missing, damaged or of a newer version."""
    path = folder / MODEL
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        version, arrays, parts = read["version"], read["arrays"], read["parts"]
    except FileNotFoundError as problem:
        raise ValueError(
            f"{folder}: expected a run folder with its {MODEL}, got none; check the path, or load a run of an earlier "
            "version with tw.train.load"
        ) from problem
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as problem:
        raise _damaged_error(path, problem) from problem
    if version != _VERSION:
        raise ValueError(
            f"{path}: expected version {_VERSION}, got {version!r:.20}, written by a newer thalweg; upgrade this one"
        )
    return ModelFile(path, arrays, parts)


def _damaged_error(path: Path, problem: Exception) -> ValueError:
    return ValueError(f"{path}: expected the description of a model, got a damaged file ({problem}); restore it")


def like_arrays(model: ModelFile) -> list[Any]:
    """Arrays with the dtypes and shapes of a checkpoint, which take almost no memory."""
    try:
        return [_empty(each) for each in model.arrays]
    except (KeyError, TypeError, ValueError) as problem:
        raise _damaged_error(model.path, problem) from problem


def _empty(described: dict[str, Any]) -> Any:
    shape = tuple(described["shape"])
    if "key" in described:
        words = jax.random.key_data(jax.random.key(0, impl=described["key"]))
        return jax.random.wrap_key_data(jnp.broadcast_to(words, (*shape, *words.shape)), impl=described["key"])
    return np.broadcast_to(np.zeros((), jnp.dtype(described["dtype"])), shape)


def build_training(model: ModelFile, arrays: list[Any], energy: Any = None, types: Sequence[type] = ()) -> Training:
    """The training to which the ``arrays`` of a checkpoint belong, without its optimiser.

    Args:
        model: the content of ``model.json``.
        arrays: the arrays of the checkpoint, in order.
        energy: a model with the structure of the trained one, if the file cannot describe it.
        types: classes of the user.
    """
    if energy is None:
        built, average = (_build(model, name, arrays, types) for name in ("energy", "average"))
    else:
        built = _fill(model, "energy", energy, arrays)
        averaged = model.parts["average"]["count"] > 0
        average = _fill(model, "average", partition_trainable(energy)[0], arrays) if averaged else None
    params, state = (_build_or_list(model, name, arrays, types) for name in ("params", "state"))
    return Training(built, params, state, None, average)


def build_objective(model: ModelFile, types: Sequence[type] = ()) -> Any:
    """The objective of a run; None if it cannot be described or one of its classes was not given."""
    try:
        return from_json(model.parts["objective"]["tree"], (), types)
    except (LookupError, ValueError):
        return None


def _build(model: ModelFile, name: str, arrays: list[Any], types: Sequence[type]) -> Any:
    part = model.parts[name]
    if "unwritable" in part:
        raise ValueError(
            f"{model.path}: expected a model that a file can describe, got one that it cannot ({part['unwritable']}); "
            "give an object of the same structure: tw.load_run(folder, energy=energy)"
        )
    try:
        return from_json(part["tree"], arrays, types)
    except LookupError as problem:
        if not isinstance(problem.args[0], str) or not problem.args[0].startswith("the class"):
            raise _damaged_error(model.path, problem) from problem
        name = problem.args[0].split()[2]
        raise ValueError(
            f"{model.path}: expected classes of thalweg, got {problem.args[0]}; "
            f"give it: tw.load_run(folder, types=[{name}])"
        ) from problem
    except (ValueError, TypeError, AttributeError) as problem:
        raise _damaged_error(model.path, problem) from problem


def _build_or_list(model: ModelFile, name: str, arrays: list[Any], types: Sequence[type]) -> Any:
    """The params or the state of the objective; as a list of arrays if they cannot be described."""
    part = model.parts[name]
    try:
        return from_json(part["tree"], arrays, types)
    except (LookupError, ValueError):
        return arrays[part["first"] : part["first"] + part["count"]]


def _fill(model: ModelFile, name: str, like: PyTree, arrays: list[Any]) -> PyTree:
    """``like`` with its arrays replaced by those of a part of the checkpoint."""
    part = model.parts[name]
    leaves, structure = jax.tree.flatten(like)
    own = [place for place, leaf in enumerate(leaves) if eqx.is_array(leaf) or isinstance(leaf, np.generic)]
    found = arrays[part["first"] : part["first"] + part["count"]]
    shapes = [(jnp.shape(leaves[place]), str(jnp.result_type(leaves[place]))) for place in own]
    if shapes != [(each.shape, str(each.dtype)) for each in found]:
        raise ValueError(
            f"{model.path.parent}: expected an energy of the structure of the trained one, with {len(found)} arrays "
            f"of its shapes, got {len(own)} arrays of others; build it as it was built for training"
        )
    for place, array in zip(own, found, strict=True):
        leaves[place] = array
    return jax.tree.unflatten(structure, leaves)
