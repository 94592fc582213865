"""The training loop."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PRNGKeyArray, PyTree

from thalweg.core import ConditionalEnergy, Objective, merge_static, partition_trainable, split_static, typed_key
from thalweg.train.best import BestCheckpoint, check_keep_best
from thalweg.train.callbacks import Callback, check_callbacks, evaluate
from thalweg.train.checkpoint import Checkpoints
from thalweg.train.checks import as_folder, check_fit, check_flag, check_parts, count
from thalweg.train.data import Batches, check_concrete, check_data
from thalweg.train.doctor import Doctor, Finding, measure_scale, tell, write_findings
from thalweg.train.lock import locks_run_dir
from thalweg.train.model_file import write_model
from thalweg.train.progress import progress_bar
from thalweg.train.python_config import note_python_run
from thalweg.train.record import DivergedError, Record
from thalweg.train.run import Run
from thalweg.train.signals import interrupts
from thalweg.train.source import Source
from thalweg.train.update import Training, Update, averaged_model, begin, has_finite_weights, training_key


@locks_run_dir
def fit(
    energy: Any,
    data: PyTree,
    objective: Objective,
    *,
    optimizer: optax.GradientTransformation,
    steps: int,
    batch_size: int,
    key: PRNGKeyArray,
    run_dir: str | Path | None = None,
    ema: float | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint_every: int | None = None,
    keep_best: str | None = None,
    best_is: Literal["highest", "lowest"] = "highest",
    resume: bool = False,
    progress: bool = False,
    doctor: bool = True,
) -> Run:
    """Train ``energy`` on ``data`` with any objective and any optax optimiser.

    Batches are drawn without replacement, epoch by epoch. Every random number follows from ``key`` and the update's
    number, so a resumed run is the run that was never interrupted, bit for bit. Ctrl-C finishes the update, writes a
    checkpoint (with a ``run_dir``) and raises ``KeyboardInterrupt``; SIGTERM does too, and raises ``SystemExit``.

    A doctor watches the metrics of every update (see `thalweg.train.doctor`), not the loss. It prints each finding on
    stderr once, and keeps it in ``run.findings`` and in the run folder's ``results.json``. A training that runs away is
    stopped by a `DivergedError`: when v (the mean gradient norm along the chains), the energy gap, the samples or the
    weights grow by orders of magnitude, or when the chains accept nothing. Non-finite weights are never saved.

    Args:
        energy: a parametrised energy (its floating-point arrays are trained) or a score network; ``run.energy`` and the
            model that callbacks get have the same type.
        data: points of the energy's space, ``(rows, *event)`` or a tree of such: arrays, nested lists, frames of
            numbers (pandas, polars); ``(x, c)`` to learn p(x|c) with a `ConditionalEnergy`; or a `tw.data.Dataset` or
            `tw.data.Table`, whose training rows are used, with their labels as c.
        objective: for example ``tw.objectives.MaximumLikelihood()``.
        optimizer: for example ``optax.adam(1e-3)``; a new object of the same optimiser is not compiled again.
        steps: the total number of updates, including those before a resume.
        batch_size: rows per update.
        key: random key for all randomness.
        run_dir: a folder for ``metrics.jsonl`` and ``checkpoints/``; without it nothing is written.
        ema: decay of a moving average of the weights, such as 0.999; it warms up as ``(1 + t) / (10 + t)``.
        callbacks: evaluations, made with `every`.
        checkpoint_every: updates between checkpoints, by default a tenth of ``steps``.
        keep_best: the name of a metric by which the best checkpoint is kept too, in the folder ``best`` of ``run_dir``;
            ``tw.load_run(run_dir, best=True)`` loads it. It is compared whenever a callback returns it; a metric of the
            updates, such as the loss, is averaged over the updates since the last checkpoint and compared then.
        best_is: whether the highest or the lowest value is best.
        resume: continue from the newest checkpoint in ``run_dir``; a damaged one is skipped.
        progress: show a progress bar on stderr, or lines if that is not a terminal.
        doctor: watch the training; with False, only a non-finite loss or weight stops it.

    Returns:
        `Run`.

    Raises:
        DivergedError: if the loss or the weights are not finite, or the training runs away.

    >>> import jax, optax, thalweg as tw
    >>> key_data, key_model, key_fit = jax.random.split(jax.random.key(0), 3)
    >>> data = tw.data.two_moons(key_data, 1000)
    >>> energy = tw.energies.MLP(2, key=key_model)
    >>> run = tw.fit(energy, data, tw.objectives.MaximumLikelihood(steps=5), optimizer=optax.adam(1e-3),
    ...              steps=3, batch_size=100, key=key_fit)
    >>> run.history["energy_gap"].shape
    (3,)
    """
    check_concrete(key=key, energy=energy, objective=objective, data=data)
    check_parts(energy, objective, optimizer)
    callbacks, folder = check_callbacks(callbacks), as_folder(run_dir)
    check_keep_best(keep_best, best_is, folder)
    source = Source(objective, data, folder)
    data, rows = check_fit(energy, data, steps, batch_size, ema, resume, run_dir)
    check_flag("progress", progress)
    check_flag("doctor", doctor)
    every = max(1, steps // 10) if checkpoint_every is None else count("checkpoint_every", checkpoint_every)
    key = typed_key(key)
    batches, key = Batches(data, rows, batch_size, key), training_key(key)

    batch = batches.at(0)
    training = begin(energy, batch, objective, optimizer, ema, key)
    update = Update(objective, optimizer, training, batch, ema=ema)
    arrays, form = split_static(training)
    record, checkpoints, done = Record(folder), None, 0
    best = BestCheckpoint(folder, keep_best, best_is, max((each.interval for each in callbacks), default=1))
    findings: list[Finding] = []
    watch = make_doctor(energy, data, training, steps, batch_size) if doctor else None

    def good(restored: list[Any]) -> bool:
        return has_finite_weights(merge_static(restored, form), training)

    def report(finding: Finding) -> None:
        findings.append(finding)
        if folder is not None:
            write_findings(folder, findings)
        if not finding.stops:
            tell(finding)

    if folder is not None:
        checkpoints = Checkpoints(folder / "checkpoints")
        if resume:
            done, arrays, faults = checkpoints.restore(arrays, good)
            record.rewind(done)
            if watch is not None:
                # earlier findings are kept, but do not stop the resumed training
                seen = [watch.look(step, row) for step, row in enumerate(record.rows, 1)]
                findings += [finding._replace(stops=False) for finding in seen if finding is not None]
            write_findings(folder, findings)
            for fault in faults:
                report(Finding("checkpoint", done, fault))
            if faults:
                checkpoints.set_aside(done)
        elif checkpoints.latest() is not None:
            raise ValueError(
                f"expected a new run folder, got {run_dir} with a run in it; pass resume=True or name another folder"
            )
        else:
            write_findings(folder, [])
        best.rewind(done)
        write_model(folder, training, objective)
        settings = {"steps": steps, "batch_size": batch_size, "ema": ema, "checkpoint_every": every}
        settings |= {} if keep_best is None else {"keep_best": keep_best, "best_is": best_is}
        note_python_run(folder, energy, objective, rows, settings, done)

    def snapshot() -> Run:
        # copies, since the next update overwrites these buffers
        kept = merge_static(jax.tree.map(jnp.copy, arrays), form)
        past = record.history(), list(record.evaluations), tuple(findings), source
        return Run(averaged_model(kept), kept.energy, kept.params, kept.state, done, *past)

    def save() -> None:
        record.flush()
        if checkpoints is not None and checkpoints.latest() != done:
            checkpoints.save(done, arrays)
            best.forget(min(checkpoints.steps(), default=None))

    def read(step: int, metrics: Any) -> None:
        try:
            row = record.add(step, metrics)
        except DivergedError as problem:
            report(Finding("not_finite", step, str(problem), stops=True))
            raise
        show(row)
        best.require(step - 1, record.rows, record.evaluations)
        finding = None if watch is None else watch.look(step, row)
        if finding is None:
            return
        report(finding)
        if finding.stops:
            raise DivergedError(f"training was stopped at update {step}: {finding.words}, and resume", record.history())

    def in_doubt() -> bool:
        return watch is not None and watch.in_doubt

    with progress_bar(progress, done, steps) as show, interrupts() as stop, contextlib.closing(record):
        waiting = None
        while done < steps:
            arrays, metrics = update(arrays, key, done, batches.at(done))
            done += 1
            # the metrics of the previous update are read while this one is computed
            if waiting is not None:
                read(*waiting)
            waiting = (done, metrics)
            due = [callback for callback in callbacks if done % callback.interval == 0 or done == steps]
            if due:
                read(*waiting)
                waiting = None
                for callback in due:
                    values = evaluate(callback, snapshot())
                    record.evaluate(done, values)
                    if not in_doubt():
                        best.offer(done, values, arrays)
            asked = done == steps or bool(stop)
            if done % every == 0 or asked:
                if waiting is not None:
                    read(*waiting)
                    waiting = None
                # weights of a possible runaway must not replace good ones
                if not in_doubt() and (done % every == 0 or done == steps):
                    best.offer_updates(done, every, record.rows, record.evaluations, arrays)
                if asked or not in_doubt():
                    save()
            if asked:
                stop.obey()
        best.require(done, record.rows, record.evaluations)
        return snapshot()


def make_doctor(energy: Any, data: PyTree, training: Training, steps: int, batch_size: int) -> Doctor:
    """The doctor of a training; it measures the scale of x, not of the conditions."""
    x = data[0] if isinstance(energy, ConditionalEnergy) else data
    weights = float(optax.tree.norm(partition_trainable((training.energy, training.params))[0]))
    return Doctor(measure_scale(x), steps=steps, chains=batch_size, weights=weights)


def working_memory(
    energy: Any, batch: PyTree, objective: Objective, *, optimizer: optax.GradientTransformation, key: PRNGKeyArray
) -> int:
    """The bytes of temporary memory that one training update needs, as planned by the compiler.

    >>> import jax, optax, thalweg as tw
    >>> key_data, key_model, key_fit = jax.random.split(jax.random.key(0), 3)
    >>> energy, batch = tw.energies.MLP(2, key=key_model), tw.data.two_moons(key_data, 100)
    >>> objective = tw.objectives.DenoisingScoreMatching()
    >>> tw.train.working_memory(energy, batch, objective, optimizer=optax.adam(1e-3), key=key_fit) > 10_000
    True
    """
    check_concrete(key=key, energy=energy, objective=objective, batch=batch)
    check_parts(energy, objective, optimizer)
    batch, _ = check_data(energy, batch)
    key = training_key(typed_key(key))
    training = begin(energy, batch, objective, optimizer, None, key)
    update = Update(objective, optimizer, training, batch)
    plan = update.program.lower(*update.arguments(split_static(training)[0], key, 0, batch)).compile().memory_analysis()
    return plan.temp_size_in_bytes  # pyright: ignore[reportOptionalMemberAccess]
