"""Weights on disk: written atomically, and read only if the file is intact and belongs to the same network."""

import contextlib
import hashlib
import io
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from thalweg.core.files import write_whole

Model = TypeVar("Model", bound=eqx.Module)


def write_weights(path: Path, model: eqx.Module, about: Mapping[str, Any]) -> None:
    """Write the arrays of a module and the dictionary ``about``, after a line with the hash of both.

    >>> import jax, tempfile
    >>> from thalweg.energies.layers import Dense
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "dense.weights"
    ...     write_weights(path, Dense(3, 2, key=jax.random.key(0)), {"accuracy": 0.9})
    ...     _, about = read_weights(path, Dense(3, 2, key=jax.random.key(1)))
    >>> about
    {'accuracy': 0.9}
    """
    leaves = jax.tree.leaves(eqx.filter(model, eqx.is_array))
    arrays = {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    packed = io.BytesIO()
    np.savez(packed, about=np.array(json.dumps(dict(about))), **arrays)  # pyright: ignore[reportArgumentType]
    content = packed.getvalue()
    write_whole(path, hashlib.sha256(content).hexdigest().encode() + b"\n" + content)


def read_weights(path: Path, like: Model) -> tuple[Model, dict[str, Any]]:
    """The module ``like`` with the arrays of a file, and the dictionary stored with them."""
    with os_error_as_value_error(path):
        mark, _, content = path.read_bytes().partition(b"\n")
    if mark != hashlib.sha256(content).hexdigest().encode():
        raise ValueError(
            f"{path}: expected the weights of a network, got a damaged file; delete it and they are trained again"
        )
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        about = json.loads(str(arrays["about"]))
        stored = [jnp.asarray(arrays[f"leaf_{i}"]) for i in range(len(arrays.files) - 1)]
    weights, rest = eqx.partition(like, eqx.is_array)
    shapes = [leaf.shape for leaf in jax.tree.leaves(weights)]
    if [leaf.shape for leaf in stored] != shapes:
        raise ValueError(
            f"{path}: expected weights of shapes {shapes}, got {[leaf.shape for leaf in stored]}; "
            "delete it and they are trained again"
        )
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(weights), stored), rest), about


def make_writable(folder: Path) -> None:
    """Create the folder; raises if it cannot be written to, before time is spent on training."""
    with os_error_as_value_error(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


@contextlib.contextmanager
def os_error_as_value_error(place: Path) -> Iterator[None]:
    """Turn an ``OSError`` into a ``ValueError`` in one sentence."""
    try:
        yield
    except OSError as problem:
        raise ValueError(
            f"{place}: expected a place for a network's weights, got '{problem.strerror}'; "
            "choose another folder, for all of them with THALWEG_DATA"
        ) from problem
