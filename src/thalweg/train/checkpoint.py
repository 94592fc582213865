"""Checkpoints: everything a run needs to go on bit for bit, written whole or not at all."""

import hashlib
import logging
import os
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

_KEPT = 2


class Checkpoints:
    """The ``checkpoints`` folder of a run. The newest two are kept; a digest tells a damaged one from a good one."""

    def __init__(self, folder: Path):
        import orbax.checkpoint as ocp

        # orbax writes its progress to the log at the level of warnings
        logging.getLogger("absl").setLevel(logging.ERROR)
        self.folder = Path(folder).resolve()
        options = ocp.CheckpointManagerOptions(max_to_keep=_KEPT, enable_async_checkpointing=False)
        try:
            self._manager = ocp.CheckpointManager(self.folder, options=options)
        except OSError as problem:
            raise ValueError(
                f"expected to write checkpoints to {self.folder}, got '{problem}'; choose a folder you can write to"
            ) from problem
        self._save, self._restore = ocp.args.StandardSave, ocp.args.StandardRestore

    def latest(self) -> int | None:
        """The update number of the newest checkpoint."""
        return self._manager.latest_step()

    def save(self, step: int, tree: PyTree) -> None:
        """Write ``tree``; on any failure (a full disk) the earlier checkpoints are untouched."""
        arrays = _arrays(tree)
        try:
            self._reserve(sum(array.nbytes for array in arrays.values()))
            self._manager.save(step, args=self._save({**arrays, "digest": _digest(arrays)}))
            self._manager.wait_until_finished()
        except Exception as problem:
            reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
            raise ValueError(
                f"expected to write the checkpoint of update {step} to {self.folder}, got '{reason}'; "
                f"free space there and resume from update {self.latest()}"
            ) from problem

    def _reserve(self, size: int) -> None:
        """Ask for the room before orbax does, whose threads each print their own traceback when a disk is full."""
        with tempfile.TemporaryFile(dir=self.folder) as file:
            if sys.platform == "linux":
                os.posix_fallocate(file.fileno(), 0, max(size, 1))
            else:
                file.write(bytes(size))
                file.flush()

    def restore(self, like: PyTree) -> tuple[int, PyTree]:
        """The newest checkpoint, in the structure of ``like``: ``(step, tree)``."""
        step = self.latest()
        if step is None:
            raise ValueError(f"expected a checkpoint in {self.folder}, got none; train first, or check the run's name")
        try:
            found = dict(self._manager.restore(step, args=self._restore()))
            intact = np.array_equal(found.pop("digest"), _digest(found))
        except Exception as problem:
            raise self._damaged(step) from problem
        if not intact:
            raise self._damaged(step)
        expected = _arrays(like)
        for name, array in expected.items():
            got = found.get(name)
            if got is None or got.shape != array.shape or got.dtype != array.dtype or len(found) != len(expected):
                raise ValueError(
                    f"expected a checkpoint of this model and objective, got other arrays in {self.folder}; "
                    "resume with the configuration the run was started with"
                )
        structure = jax.tree.structure(like)
        leaves = [_like(found[name], leaf) for name, leaf in zip(sorted(expected), jax.tree.leaves(like), strict=True)]
        return step, jax.tree.unflatten(structure, leaves)

    def _damaged(self, step: int) -> ValueError:
        others = [other for other in self._manager.all_steps() if other != step]
        way_out = f"go on from update {max(others)}" if others else "start the run anew"
        return ValueError(
            f"expected a whole checkpoint in {self.folder / str(step)}, got a damaged one; "
            f"delete that folder to {way_out}"
        )


def _arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """The leaves as numpy arrays under sortable names; random keys as the words they are made of."""
    return {f"{number:06d}": _plain(leaf) for number, leaf in enumerate(jax.tree.leaves(tree))}


def _is_key(leaf) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _like(array: np.ndarray, leaf):
    return (
        jax.random.wrap_key_data(jnp.array(array), impl=jax.random.key_impl(leaf))
        if _is_key(leaf)
        else jnp.array(array)
    )


def _digest(arrays: dict[str, np.ndarray]) -> np.ndarray:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        digest.update(f"{name}{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return np.frombuffer(digest.digest(), np.uint8)
