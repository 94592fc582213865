"""Checkpoints: everything needed to resume a run bit for bit, written atomically."""

import hashlib
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

_KEPT = 2
# the name under which the first version of these files stored its arrays
_NAME = "default"


class Restored(NamedTuple):
    """A checkpoint: its update's number, its tree, and a message for each newer checkpoint that was skipped."""

    step: int
    tree: PyTree
    passed_over: list[str]


class Checkpoints:
    """The ``checkpoints`` folder of a run. The newest two are kept; a digest detects damaged ones.

    Args:
        folder: where the checkpoints are.
        kept: the number of the newest that are kept; None for all.
    """

    def __init__(self, folder: Path, kept: int | None = _KEPT):
        import orbax.checkpoint.experimental.v1 as ocp

        # orbax logs its progress as warnings, and tracebacks of errors that it also raises
        logging.getLogger("absl").setLevel(logging.CRITICAL)
        self.folder = Path(folder).resolve()
        newest = ocp.training.preservation_policies.LatestN(kept)
        try:
            self._files = ocp.training.Checkpointer(str(self.folder), preservation_policy=newest)  # pyright: ignore[reportArgumentType]
        except OSError as problem:
            raise ValueError(
                f"expected to write checkpoints to {self.folder}, got '{problem}'; choose a folder you can write to"
            ) from problem

    def latest(self) -> int | None:
        """The update number of the newest checkpoint."""
        return max(self.steps(), default=None)

    def steps(self) -> list[int]:
        """The update numbers of all checkpoints."""
        return [found.step for found in self._files.checkpoints]

    def save(self, step: int, tree: PyTree) -> None:
        """Write ``tree``; after any failure, such as a full disk, the earlier checkpoints are intact."""
        arrays = _arrays(tree)
        try:
            self._reserve(sum(array.nbytes for array in arrays.values()))
            content = {**arrays, "digest": _digest(arrays, step)}
            # forced, since the training loop decides when to save
            self._files.save(step, content, checkpointable_name=_NAME, force=True)
        except Exception as problem:
            reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
            raise ValueError(
                f"expected to write the checkpoint of update {step} to {self.folder}, got '{reason}'; "
                f"free space there and resume from update {self.latest()}"
            ) from problem

    def _reserve(self, size: int) -> None:
        """Check for disk space before orbax writes: on a full disk, each of its threads would print a traceback."""
        with tempfile.TemporaryFile(dir=self.folder) as file:
            if sys.platform == "linux":
                os.posix_fallocate(file.fileno(), 0, max(size, 1))
            else:
                file.write(bytes(size))
                file.flush()

    def restore(self, like: PyTree, good: Callable[[PyTree], bool]) -> Restored:
        """The newest intact checkpoint, in the structure of ``like``; skips damaged ones and those whose tree is not
        ``good`` (weights that are not finite).
        """
        steps = sorted(self.steps(), reverse=True)
        if not steps:
            raise ValueError(f"expected a checkpoint in {self.folder}, got none; train first, or check the run's name")
        faults: list[str] = []
        for step in steps:
            found = self._read(step)
            tree = None if found is None else self._unflatten(found, like)
            if tree is not None and good(tree):
                return Restored(step, tree, [f"{fault}; update {step} is used instead" for fault in faults])
            what = "a damaged one" if tree is None else "one with weights that are not finite"
            faults.append(f"expected a whole checkpoint in {self.folder / str(step)}, got {what}")
        raise ValueError(f"{faults[0]}, and no better one before it; start the run anew")

    def set_aside(self, newer_than: int) -> None:
        """Rename the checkpoints newer than an update, so that new ones can take their names; nothing is deleted."""
        for step in self.steps():
            if step > newer_than:
                place = self.folder / str(step)
                place.rename(place.with_name(f"{step}.damaged.{time.time_ns()}"))
        self._files.reload()

    def remove(self, unwanted: Callable[[int], bool]) -> None:
        """Delete the checkpoints whose update number is ``unwanted``."""
        for step in self.steps():
            if unwanted(step):
                shutil.rmtree(self.folder / str(step))
        self._files.reload()

    def _read(self, step: int) -> dict[str, np.ndarray] | None:
        """The arrays of a checkpoint, or None if it is damaged."""
        try:
            found = dict(self._files.load(step, checkpointable_name=_NAME))  # pyright: ignore[reportArgumentType]
            digest = found.pop("digest")
        except Exception:  # whatever orbax and the libraries under it raise over a damaged file
            return None
        # older checkpoints have a digest that does not cover the update's number
        known = (_digest(found, step), _digest(found))
        return found if any(np.array_equal(digest, each) for each in known) else None

    def _unflatten(self, found: dict[str, np.ndarray], like: PyTree) -> PyTree:
        expected = _arrays(like)
        for name, array in expected.items():
            got = found.get(name)
            if got is None or got.shape != array.shape or got.dtype != array.dtype or len(found) != len(expected):
                raise ValueError(
                    f"expected a checkpoint of this model and objective, got other arrays in {self.folder}; "
                    "resume with the configuration the run was started with"
                )
        leaves, structure = jax.tree.flatten(like)
        named = [(_name(number), leaf) for number, leaf in enumerate(leaves)]
        return jax.tree.unflatten(
            structure, [_to_leaf(found[name], leaf) if name in found else leaf for name, leaf in named]
        )


def _name(number: int) -> str:
    return f"{number:06d}"


def _arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """The leaves as numpy arrays under sortable names, random keys as their key data; without empty arrays, which
    orbax does not accept."""
    named = {_name(number): _to_numpy(leaf) for number, leaf in enumerate(jax.tree.leaves(tree))}
    return {name: array for name, array in named.items() if array.size}


def _is_key(leaf) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_numpy(leaf) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _to_leaf(array: np.ndarray, leaf):
    return (
        jax.random.wrap_key_data(jnp.array(array), impl=jax.random.key_impl(leaf))
        if _is_key(leaf)
        else jnp.array(array)
    )


def _digest(arrays: dict[str, np.ndarray], step: int | None = None) -> np.ndarray:
    digest = hashlib.sha256(b"" if step is None else f"update {step}".encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        digest.update(f"{name}{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return np.frombuffer(digest.digest(), np.uint8)
