"""Load a trained run from its folder alone."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from thalweg.core import flag, partition_trainable, shorten_signatures
from thalweg.runs.build import Parts, build, load_data, rules, train_arguments
from thalweg.runs.configuration import read_config, read_configuration
from thalweg.runs.files import METRICS
from thalweg.train import Run
from thalweg.train.best import checkpoint_folder
from thalweg.train.checkpoint import Checkpoints
from thalweg.train.doctor import Finding, read_findings, tell
from thalweg.train.model_file import MODEL, build_objective, build_training, like_arrays, read_model
from thalweg.train.python_config import CONFIG, PYTHON
from thalweg.train.record import as_history, rows_until
from thalweg.train.restore import load
from thalweg.train.source import Source
from thalweg.train.update import averaged_model


def load_run(folder: str | Path, *, energy: Any = None, types: Sequence[type] = (), best: bool = False) -> Run:
    """Load the `Run` in a folder that ``tw.fit(run_dir=...)`` or ``thalweg train`` wrote, at its newest checkpoint.

    The model is built from ``model.json``, which names classes of thalweg and of the libraries it builds on; nothing
    else is imported, and no code in the file is run. What the file cannot describe must be given: your own classes as
    ``types``, or, if the model holds a function of yours, an ``energy`` of the same structure. If the objective's
    ``params`` or ``state`` cannot be described, they are returned as lists of arrays.

    Args:
        folder: the run folder; it may have been moved or copied.
        energy: a model with the structure of the trained one; its arrays are replaced.
        types: your own classes that are part of the model.
        best: load the best checkpoint, kept by ``fit(keep_best=...)``, instead of the newest.

    >>> import jax, optax, tempfile, thalweg as tw
    >>> key_data, key_model, key_fit = jax.random.split(jax.random.key(0), 3)
    >>> data, energy = tw.data.two_moons(key_data, 100), tw.energies.MLP(2, 8, key=key_model)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = tw.fit(energy, data, tw.objectives.MaximumLikelihood(steps=2), optimizer=optax.adam(1e-3), steps=3,
    ...                  batch_size=10, key=key_fit, run_dir=folder)
    ...     again = tw.load_run(folder)
    >>> again.step, bool(again.energy(data[0]) == run.energy(data[0]))
    (3, True)
    """
    folder = Path(folder)
    given = read_config(folder) if (folder / CONFIG).exists() or not (folder / MODEL).exists() else {"begun": PYTHON}
    if not (folder / "checkpoints").is_dir():
        raise ValueError(f"{folder}: expected a run with checkpoints, got none; train first, or restore checkpoints/")
    saved = checkpoint_folder(folder, flag("best", best))
    described = (folder / MODEL).exists()
    run = _from_model_file(folder, saved, energy, types) if described else _from_config(folder, best)
    if given.get("begun") == PYTHON:
        return run
    return with_configuration(run, read_configuration(folder).last())


def with_configuration(run: Run, config: Mapping[str, Any], dataset: Any = None) -> Run:
    """``run`` with the data and the sampling settings of its complete configuration."""
    made, sample = rules(config), config["sample"]
    source = Source(
        made.objective,
        (lambda: load_data(config)) if dataset is None else dataset,
        run.folder,
        made.kernel,
        made.noise,
        sample["chains"],
        sample["steps"],
    )
    return dataclasses.replace(run, source=source)


def _from_model_file(folder: Path, saved: Path, energy: Any, types: Sequence[type]) -> Run:
    model = read_model(folder)
    build_from = lambda arrays: build_training(model, arrays, energy, types)
    step, arrays, faults = Checkpoints(saved).restore(
        like_arrays(model), lambda arrays: _has_no_nan(build_from(arrays).energy)
    )
    training = build_from(arrays)
    # only read, not rewound: the run may still be writing it
    _, rows, evaluations = rows_until(folder / METRICS, step)
    findings = (*read_findings(folder), *(Finding("checkpoint", step, fault) for fault in faults))
    for finding in findings[len(findings) - len(faults) :]:
        tell(finding)
    past = as_history(rows), evaluations, findings, Source(build_objective(model, types), None, folder)
    return Run(averaged_model(training), training.energy, training.params, training.state, step, *past)


def _has_no_nan(energy: Any) -> bool:
    leaves = jax.tree.leaves(partition_trainable(energy)[0])
    return not any(bool(jnp.any(jnp.isnan(leaf))) for leaf in leaves)


def _from_config(folder: Path, best: bool) -> Run:
    """Load a run of an earlier version, which has no ``model.json``."""
    config = read_configuration(folder).last()
    return restore(folder, config, build(config), best)


def restore(folder: Path, config: Mapping[str, Any], parts: Parts, best: bool = False) -> Run:
    """Load the run in the newest checkpoint, or in the best one; a ValueError if its arrays do not fit ``parts``."""
    arguments = train_arguments(config)
    return load(
        folder,
        parts.energy,
        jax.tree.map(lambda leaf: leaf[: arguments["batch_size"]], parts.rows),
        parts.objective,
        optimizer=parts.optimizer,
        key=parts.train_key,
        ema=arguments["ema"],
        best=best,
    )


shorten_signatures(globals(), ["load_run"])
