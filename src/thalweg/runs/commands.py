"""What the commands do in a run folder: train, sample and evaluate, report."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from thalweg.core.files import write_json, write_whole
from thalweg.evaluate.class_scores import class_scores
from thalweg.report import write_report
from thalweg.runs import toml
from thalweg.runs.build import Parts, build, train_arguments
from thalweg.runs.config import complete
from thalweg.runs.drawing import draw, energies
from thalweg.runs.files import new_folder, read_json, remove_run, write_npz
from thalweg.runs.hints import did_you_mean
from thalweg.runs.own_samples import keep_columns, write_own_samples
from thalweg.runs.progress import bar, say, working
from thalweg.train import DivergedError, Run, every, fit
from thalweg.train.checkpoint import Checkpoints
from thalweg.train.loop import check_fit as check
from thalweg.train.restore import load

_ROWS = 2000  # as many rows of data get an energy in the samples' file


def configuration(folder: Path) -> dict[str, Any]:
    """The configuration of a run, complete."""
    path = folder / "config.toml"
    if not path.is_file():
        runs = sorted(str(each.parent) for each in Path("runs").glob("*/config.toml"))
        fix = did_you_mean(str(folder), runs) if runs else "check the run's name"
        raise ValueError(f"{folder}: expected a run folder with its config.toml, got none; {fix}")
    return complete(toml.read(path))


def train(config: Mapping[str, Any], name: str, folder: Path | None = None, fresh: bool = False) -> Path:
    """Train what a completed configuration describes in a new folder, then sample, evaluate and report.

    Without a ``folder`` it is ``runs/name-number``; the folder is returned. A run that is already there is removed if
    asked for a ``fresh`` one, else it is in the way.
    """
    parts = build(config)
    _refuse_early(config, parts)
    if folder is None:
        folder = new_folder(Path("runs"), name)
    elif fresh:
        remove_run(folder)
    elif any((folder / each).exists() for each in ("config.toml", "checkpoints")):
        raise ValueError(
            f"{folder}: expected a new run folder, got one with a run in it; "
            f"go on with `thalweg train --resume {folder}`, replace it with --fresh, or choose another --run-dir"
        )
    write_whole(folder / "config.toml", toml.write(config).encode())
    keep_columns(config, folder)
    return _finish(config, folder, parts, _fit(config, folder, parts, resume=False))


def resume(config: Mapping[str, Any], folder: Path) -> Path:
    """Go on with a run, with its own configuration or a changed one, then sample, evaluate and report."""
    before = configuration(folder)
    parts = build(config)
    if Checkpoints(folder / "checkpoints").latest() is None:
        say("no checkpoint yet: starting from the first update")
        (folder / "metrics.jsonl").unlink(missing_ok=True)
        write_whole(folder / "config.toml", toml.write(config).encode())
        return _finish(config, folder, parts, _fit(config, folder, parts, resume=False))
    if before != config:
        # a configuration the checkpoint does not belong to is refused before it replaces the one that it does
        done = _restored(config, folder, parts).step
        write_whole(folder / f"config-until-update-{done}.toml", toml.write(before).encode())
        write_whole(folder / "config.toml", toml.write(config).encode())
    return _finish(config, folder, parts, _fit(config, folder, parts, resume=True))


def sample(config: Mapping[str, Any], folder: Path) -> Path:
    """Draw new samples from the newest checkpoint of a run and evaluate them."""
    parts = build(config)
    with working("reading the checkpoint"):
        run = _restored(config, folder, parts)
    return _sample(config, folder, parts, run)


def report(folder: Path) -> Path:
    """Build the page of a run from what lies in its folder."""
    configuration(folder)
    with working("writing the report"):
        return write_report(folder)


def _refuse_early(config: Mapping[str, Any], parts: Parts) -> None:
    """What `fit` would refuse, refused before a folder is made or an old run removed."""
    arguments = train_arguments(config)
    steps, size, ema = (arguments[name] for name in ("steps", "batch_size", "ema"))
    check(parts.energy, parts.dataset.x_train, steps, size, ema, False, None)
    batch = jnp.asarray(parts.dataset.x_train[:size])
    eqx.filter_eval_shape(parts.objective.init, parts.train_key, parts.energy, batch)


def _restored(config: Mapping[str, Any], folder: Path, parts: Parts) -> Run:
    arguments = train_arguments(config)
    batch = parts.dataset.x_train[: arguments["batch_size"]]
    return load(
        folder,
        parts.energy,
        batch,
        parts.objective,
        optimizer=parts.optimizer,
        key=parts.train_key,
        ema=arguments["ema"],
    )


def _fit(config: Mapping[str, Any], folder: Path, parts: Parts, resume: bool) -> Run:
    results = folder / "results.json"
    earlier = read_json(results).get("training_seconds", 0.0) if resume else 0.0
    begun = time.perf_counter()

    def note(updates: int | None) -> None:
        seconds = earlier + time.perf_counter() - begun
        write_json(results, {**read_json(results), "updates": updates, "training_seconds": round(seconds, 3)})

    arguments = train_arguments(config)
    # now and then along the way, so that a run that is killed has counted its time
    counting = every(max(1, arguments["steps"] // 10), lambda run: note(run.step))
    try:
        run = fit(
            parts.energy,
            parts.dataset.x_train,
            parts.objective,
            optimizer=parts.optimizer,
            key=parts.train_key,
            run_dir=folder,
            callbacks=[counting],
            resume=resume,
            progress=True,
            **arguments,
        )
    except KeyboardInterrupt:
        updates = Checkpoints(folder / "checkpoints").latest()
        note(updates)
        say(f"stopped after update {updates}, which is saved; go on with `thalweg train --resume {folder}`")
        raise
    except DivergedError as problem:
        message = f"{problem}: `thalweg train --resume {folder} --set KEY=VALUE`"
        raise DivergedError(message, problem.history) from problem
    note(run.step)
    return run


def _finish(config: Mapping[str, Any], folder: Path, parts: Parts, run: Run) -> Path:
    try:
        _sample(config, folder, parts, run)
        report(folder)
    except KeyboardInterrupt:
        say(f"stopped after training, which is saved; go on with `thalweg train --resume {folder}`")
        raise
    return folder


def _sample(config: Mapping[str, Any], folder: Path, parts: Parts, run: Run) -> Path:
    chains, steps = config["sample"]["chains"], config["sample"]["steps"]
    x_train, x_test = parts.dataset.x_train, parts.dataset.x_test
    begun = time.perf_counter()
    with bar(f"{chains} chains from noise", steps) as show:
        how = {"chains": chains, "steps": steps, "noise": parts.noise}
        drawn = draw(run.energy, parts.kernel, x_train, parts.sample_key, show, **how)
    seconds = time.perf_counter() - begun
    with working("evaluating the samples"):
        rows = {"data": _some(x_train, _ROWS), "samples": drawn.x}
        rows |= {} if x_test is None else {"test": _some(x_test, _ROWS)}
        energy = {f"energy_{name}": energies(run.energy, x) for name, x in rows.items()}
    path = folder / "samples" / "samples.npz"
    write_npz(path, {**drawn._asdict(), **energy, "data": _some(x_train, chains)})
    write_own_samples(config, folder, drawn.x, _some(x_train, max(chains, 100)))
    results = {
        **read_json(folder / "results.json"),
        "updates": run.step,
        "chains": chains,
        "steps": steps,
        "seed": config["seed"],
        "sampling_seconds": round(seconds, 3),
        **{name: float(np.mean(values)) for name, values in energy.items()},
    }
    write_json(folder / "results.json", results)
    # last, since labels that are no classes are refused, and the samples are on disk by now
    labels = parts.dataset.y_train
    if labels is not None and labels.ndim == 1:
        with working("judging the samples by a classifier"):
            write_json(folder / "results.json", {**results, "classes": class_scores(drawn.x, parts.dataset)})
    return path


def _some(x: np.ndarray, most: int) -> np.ndarray:
    """At most so many rows, spread evenly, since files are often sorted by class."""
    return x[np.unique(np.linspace(0, len(x) - 1, min(len(x), most)).astype(int))]
