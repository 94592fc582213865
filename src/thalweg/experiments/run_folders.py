"""Tables of many trainings: each training has a run folder of its own, and a table that was stopped goes on."""

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thalweg.core.files import write_json, write_whole
from thalweg.train import Run, fit
from thalweg.train.checkpoint import Checkpoints


class Result(NamedTuple):
    """What was measured of a training: numbers for JSON, and arrays by name."""

    numbers: dict[str, Any]
    arrays: dict[str, np.ndarray]


def result_of(
    runs: Path | None, name: str, settings: Mapping[str, Any], compute: Callable[[Path | None], Result]
) -> Result:
    """The result of a training, computed once: afterwards it is read from the training's folder.

    The folder is ``<runs>/<name>-<digest of settings>`` and holds ``settings.json``, what `fit_in` leaves there, the
    arrays, and last ``result.json``. Other settings have another folder, so nothing is computed with old settings and
    nothing old is overwritten. Numbers that are not finite come back as ``None``, as JSON has it.

    Args:
        runs: where the folders are; with None nothing is kept.
        name: of the training, unique in its table.
        settings: all that the result depends on, in numbers and words.
        compute: ``compute(folder) -> Result`` trains in the folder and measures.

    >>> import tempfile
    >>> calls = []
    >>> def compute(folder):
    ...     calls.append(folder.name)
    ...     return Result({"kl": 0.5}, {"x": np.zeros(3)})
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     for rate in (0.1, 0.1, 0.2):
    ...         result = result_of(Path(runs), "seed-0", {"rate": rate}, compute)
    >>> result.numbers, len(calls)
    ({'kl': 0.5}, 2)
    """
    if runs is None:
        return compute(None)
    folder = folder_of(runs, name, settings)
    result = folder / "result.json"
    if not result.exists():
        numbers, arrays = compute(folder)
        for each, array in arrays.items():
            write_whole(folder / f"{each}.npy", _npy(array))
        # last, so that where it is, everything is
        write_json(result, {"numbers": numbers, "arrays": sorted(arrays)})
    found = json.loads(result.read_text())
    return Result(found["numbers"], {each: np.load(folder / f"{each}.npy") for each in found["arrays"]})


def folder_of(runs: Path, name: str, settings: Mapping[str, Any]) -> Path:
    """The folder of a training with these settings, which are written there as ``settings.json``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     folder_of(Path(runs), "seed-0", {"rate": 0.1}).name
    'seed-0-d1723cd5'
    """
    text = json.dumps(settings, sort_keys=True)
    folder = runs / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    kept = folder / "settings.json"
    if kept.exists() and json.loads(kept.read_text()) != json.loads(text):
        raise ValueError(f"{kept}: expected the settings of this training, got others; delete the folder")
    write_json(kept, json.loads(text))
    return folder


def fit_in(folder: Path | None, *args: Any, **options: Any) -> Run:
    """`thalweg.fit` in a run folder, from its newest checkpoint where there is one; without a folder plain `fit`.

    >>> import jax, optax, tempfile, thalweg as tw
    >>> key_data, key_model, key_fit = jax.random.split(jax.random.key(0), 3)
    >>> data, energy = tw.data.two_moons(key_data, 100), tw.energies.MLP(2, key=key_model)
    >>> objective, options = tw.objectives.DenoisingScoreMatching(), {"optimizer": optax.adam(1e-3), "batch_size": 10}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for steps in (2, 5):
    ...         key = jax.random.clone(key_fit)  # the same training goes on
    ...         run = fit_in(Path(folder), energy, data, objective, steps=steps, key=key, **options)
    >>> run.step, len(run.history["loss"])
    (5, 5)
    """
    if folder is None:
        return fit(*args, **options)
    begun = Checkpoints(folder / "checkpoints").latest() is not None
    if not begun:
        # of updates before any checkpoint, which are made again
        (folder / "metrics.jsonl").unlink(missing_ok=True)
    # a checkpoint takes as long as many small updates
    options = {"checkpoint_every": max(100, options["steps"] // 10)} | options
    return fit(*args, run_dir=folder, resume=begun, **options)


def digest_of(x: np.ndarray) -> str:
    """A digest of an array's numbers, shape and type, to know data by.

    >>> digest_of(np.zeros(3)) == digest_of(np.zeros(4))
    False
    """
    x = np.ascontiguousarray(x)
    return hashlib.sha256(f"{x.dtype} {x.shape}".encode() + x.tobytes()).hexdigest()[:16]


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()
