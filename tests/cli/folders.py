"""What is compared of run folders."""

from pathlib import Path
from typing import Any

import numpy as np

from thalweg.train.checkpoint import Checkpoints
from thalweg.train.model_file import like_arrays, read_model


def arrays(run: Path) -> tuple[int | None, Any]:
    """The newest checkpoint as plain arrays."""
    checkpoints = Checkpoints(run / "checkpoints")
    step = checkpoints.latest()
    if step is None:
        return None, []
    return checkpoints.restore(like_arrays(read_model(run)), lambda arrays: True)[:2]


def assert_same(one: Path, other: Path) -> None:
    """The same weights, states, metrics and samples, to the bit."""
    (step, left), (step_too, right) = arrays(one), arrays(other)
    assert step == step_too and len(left) == len(right)
    assert all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))
    assert (one / "metrics.jsonl").read_text() == (other / "metrics.jsonl").read_text()
    with np.load(one / "samples" / "samples.npz") as left, np.load(other / "samples" / "samples.npz") as right:
        assert left.files == right.files
        assert all(np.array_equal(left[name], right[name]) for name in left.files)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {str(each.relative_to(folder)): each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file()}
