"""Train from a configuration in a run folder, from the first update or from the newest checkpoint."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from thalweg.core import shorten_signatures
from thalweg.core.files import read_json, write_json
from thalweg.core.records import read_records
from thalweg.data import Dataset
from thalweg.objectives import NoiseConditionalScoreMatching
from thalweg.runs.build import Parts, build, train_arguments
from thalweg.runs.configuration import Configuration, change, read_config, read_configuration, write_configuration
from thalweg.runs.evaluation import evaluate
from thalweg.runs.files import (
    CHECKPOINTS,
    METRICS,
    RESULTS,
    check_own_config,
    has_run,
    new_folder,
    remove_run,
)
from thalweg.runs.load import restore, with_configuration
from thalweg.runs.own_samples import keep_columns
from thalweg.runs.progress import say, working
from thalweg.runs.sampling import report, write_samples
from thalweg.train import DivergedError, Run, every, fit
from thalweg.train.best import read_best
from thalweg.train.checkpoint import Checkpoints
from thalweg.train.lock import locked
from thalweg.train.loop import check_fit
from thalweg.train.python_config import PYTHON


def train(
    configuration: Configuration,
    name: str,
    folder: Path | None = None,
    *,
    fresh: bool = False,
    progress: bool = False,
) -> Path:
    """Train in a new folder, then sample, evaluate and report: ``thalweg train``. The folder is returned.

    Args:
        configuration: as `parse_configuration` returns it.
        name: without a ``folder`` the run goes to ``runs/name-number``.
        folder: the run folder.
        fresh: remove a run that is already there; without it, such a run is an error.
        progress: show the progress.

    >>> from pathlib import Path
    >>> import tempfile, thalweg as tw
    >>> config = {"data": {"name": "two_moons", "n": 50}, "energy": {"type": "MLP", "width": 8},
    ...           "objective": {"type": "MaximumLikelihood", "steps": 2}, "train": {"steps": 2, "batch_size": 10},
    ...           "optimizer": {"type": "adam", "learning_rate": 1e-3}, "sample": {"chains": 5, "steps": 4}}
    >>> configuration = tw.runs.parse_configuration(config, "mine")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = tw.load_run(tw.runs.train(configuration, "mine", Path(folder) / "run"))
    >>> run.step
    2
    """
    parts = build(configuration.start, progress=progress)
    _refuse_early(configuration.start, parts)
    if folder is None:
        folder = new_folder(Path("runs"), name)
    elif fresh:
        check_own_config(folder)
    elif has_run(folder):
        raise ValueError(
            f"{folder}: expected a new run folder, got one with a run in it; "
            f"go on with `thalweg train --resume {folder}`, replace it with --fresh, or choose another --run-dir"
        )
    with locked(folder):
        remove_run(folder)
        write_configuration(folder, configuration)
        keep_columns(configuration.start, folder)
        return _train(configuration, folder, parts.dataset, 0, progress)


def resume(folder: Path, assignments: Sequence[str] = (), *, progress: bool = False) -> Path:
    """Continue a run, as configured or changed by ``assignments``: ``thalweg train --resume``.

    A change is written to ``config.toml`` with the number of updates done, after checking that the checkpoint fits it.

    >>> from pathlib import Path
    >>> import tempfile, thalweg as tw
    >>> config = {"data": {"name": "two_moons", "n": 50}, "energy": {"type": "MLP", "width": 8},
    ...           "objective": {"type": "MaximumLikelihood", "steps": 2}, "train": {"steps": 2, "batch_size": 10},
    ...           "optimizer": {"type": "adam", "learning_rate": 1e-3}, "sample": {"chains": 5, "steps": 4}}
    >>> configuration = tw.runs.parse_configuration(config, "mine")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = tw.runs.train(configuration, "mine", Path(folder) / "run")
    ...     again = tw.load_run(tw.runs.resume(run, ["train.steps=3"]))
    >>> again.step
    3
    """
    if read_config(folder).get("begun") == PYTHON:
        raise ValueError(
            f"{folder}: expected a run begun by `thalweg train`, got one begun in Python; "
            f'go on with it by tw.fit(..., run_dir="{folder}", resume=True)'
        )
    with locked(folder):
        before = read_configuration(folder)
        done = updates_done(folder)
        configuration = change(before, assignments, done)
        parts = build(configuration.last(), progress=progress)
        if done == 0:
            _refuse_lost(folder, before.start)
        elif configuration != before:
            _refuse_other_arrays(folder, configuration.last(), parts)
        if configuration != before:
            write_configuration(folder, configuration)
        return _train(configuration, folder, parts.dataset, done, progress)


def updates_done(folder: Path) -> int:
    """The number of updates in the newest checkpoint of a run."""
    return (Checkpoints(folder / CHECKPOINTS).latest() or 0) if (folder / CHECKPOINTS).is_dir() else 0


def _refuse_lost(folder: Path, config: Mapping[str, Any]) -> None:
    """Before the first checkpoint is due, start again from the first update; later, a ValueError: they were lost."""
    path = folder / METRICS
    rows = sum("evaluation" not in row for row in read_records(path)) if path.exists() else 0
    first = train_arguments(config)["checkpoint_every"] or max(1, config["train"]["steps"] // 10)
    if rows > first or read_json(folder / RESULTS).get("updates"):
        raise ValueError(
            f"{folder / CHECKPOINTS}: expected the checkpoints of a run whose {METRICS} has {rows} updates, got none; "
            "restore them, or begin anew with --run-dir and --fresh"
        )
    unsaved = f", without the {rows} updates that were not saved" if rows else ""
    say(f"no checkpoint yet: starting from the first update{unsaved}")
    path.unlink(missing_ok=True)


def _refuse_early(config: Mapping[str, Any], parts: Parts) -> None:
    """Make the checks of `fit` before a folder is made or an old run removed."""
    arguments = train_arguments(config)
    steps, size, ema = (arguments[name] for name in ("steps", "batch_size", "ema"))
    data, _ = check_fit(parts.energy, parts.rows, steps, size, ema, False, None)
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf[:size]), data)
    if isinstance(parts.objective, NoiseConditionalScoreMatching):
        parts.objective.init(parts.train_key, parts.energy, batch)  # needs concrete numbers, and is fast
    else:
        eqx.filter_eval_shape(parts.objective.init, parts.train_key, parts.energy, batch)


def _refuse_other_arrays(folder: Path, config: Mapping[str, Any], parts: Parts) -> None:
    """Raise a ValueError if the checkpoint does not fit the configuration, before that is written."""
    restore(folder, config, parts)


def _train(configuration: Configuration, folder: Path, dataset: Dataset, done: int, progress: bool) -> Path:
    """Train the stages of a run that come after ``done`` updates, then write samples and report."""
    stages = configuration.stages()
    ends = [*(stage.begins for stage in stages[1:]), stages[-1].config["train"]["steps"]]
    run = None
    for stage, end in zip(stages, ends, strict=True):
        if end > done or stage is stages[-1]:
            run = _fit(stage.config, folder, build(stage.config, dataset), end, done > 0, progress)
            done = end
    assert run is not None  # the last stage is always run
    try:
        last = stages[-1].config
        whole = with_configuration(run, last, dataset)
        write_samples(whole, folder, last["seed"], progress=progress)
        if last["evaluate"]:
            evaluate(whole, last["evaluate"], progress=progress)
        with working("writing the report", progress):
            report(folder)
    except KeyboardInterrupt:
        say(f"stopped after training, which is saved; go on with `thalweg train --resume {folder}`")
        raise
    return folder


def _fit(config: Mapping[str, Any], folder: Path, parts: Parts, end: int, resume: bool, progress: bool) -> Run:
    """`fit` up to update ``end``; writes the training time to ``results.json``."""
    results = folder / RESULTS
    earlier = read_json(results).get("training_seconds", 0.0) if resume else 0.0
    begun = time.perf_counter()

    def note(updates: int | None) -> None:
        seconds = earlier + time.perf_counter() - begun
        best = read_best(folder)
        numbers = {"updates": updates, "training_seconds": round(seconds, 3), **({"best": best} if best else {})}
        write_json(results, {**read_json(results), **numbers})

    arguments = train_arguments(config)
    tenth = max(1, arguments["steps"] // 10)
    arguments |= {"steps": end, "checkpoint_every": arguments["checkpoint_every"] or tenth}
    try:
        run = fit(
            parts.energy,
            parts.rows,
            parts.objective,
            optimizer=parts.optimizer,
            key=parts.train_key,
            run_dir=folder,
            # at intervals during training, so that a killed run has its time recorded
            callbacks=[every(tenth, lambda run: note(run.step))],
            resume=resume,
            progress=progress,
            **arguments,
        )
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
        updates = Checkpoints(folder / CHECKPOINTS).latest()
        note(updates)
        say(f"stopped after update {updates}, which is saved; go on with `thalweg train --resume {folder}`")
        raise
    except DivergedError as problem:
        report(folder)
        message = f"{problem}: `thalweg train --resume {folder} --set KEY=VALUE`"
        raise DivergedError(message, problem.history) from problem
    note(run.step)
    return run


shorten_signatures(globals(), ["resume", "train"])
