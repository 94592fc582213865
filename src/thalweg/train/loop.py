"""The training loop."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PRNGKeyArray, PyTree

from thalweg.core import Objective, check_instance, merge_static, require_model, split_static, typed_key, whole_number
from thalweg.samplers import Chains
from thalweg.samplers.starts import Noise
from thalweg.train.callbacks import Callback, check_callbacks, evaluate
from thalweg.train.checkpoint import Checkpoints
from thalweg.train.data import Batches, check_concrete, check_data
from thalweg.train.evaluation import evaluate_run
from thalweg.train.lock import locks_run_dir
from thalweg.train.model_file import write_model
from thalweg.train.optimizer import check_optimizer
from thalweg.train.python_config import note_python_run
from thalweg.train.record import Record, interrupts, progress_bar
from thalweg.train.sampling import sample_run
from thalweg.train.source import Source
from thalweg.train.update import Update, averaged_model, begin, training_key


class Run(eqx.Module):
    """What `fit` returns.

    ``energy`` is the trained model (its moving average where ``ema`` was asked for; ``last`` is then the model without
    averaging), ``params`` and ``state`` are the objective's own, ``history`` maps each metric to one number per update,
    ``evaluations`` lists what the callbacks returned, ``folder`` is where the run lies, if anywhere. ``source`` says
    what it was made from.
    """

    energy: Any
    last: Any
    params: PyTree
    state: PyTree
    step: int
    history: dict[str, np.ndarray]
    evaluations: list[dict[str, float]]
    source: Source = eqx.field(static=True, default_factory=Source)

    @property
    def folder(self) -> Path | None:
        """The run folder; none where nothing was written."""
        return self.source.folder

    def sample(
        self,
        kernel: Any = None,
        *,
        key: PRNGKeyArray,
        chains: int = 100,
        draws: int = 1,
        burn_in: int | None = None,
        thin: int = 1,
        noise: Noise | None = None,
        conditions: PyTree | None = None,
        progress: bool = False,
    ) -> Chains:
        """Sample the trained model with chains that start from fresh noise.

        Args:
            kernel: by default the one it was trained with, else a sound one for its space.
            key: all randomness.
            chains: how many.
            draws: kept per chain.
            burn_in: steps before the first kept draw; by default a whole descent of the noise levels, the steps of
                short-run training, or 499.
            thin: steps per kept draw.
            noise: where chains start, by default as in training.
            conditions: of a conditional model, one for each chain; by default the labels it was trained with, in turn.
            progress: show a progress bar.

        >>> import jax, optax, thalweg as tw
        >>> key = jax.random.key(0)
        >>> run = tw.fit(tw.energies.MLP(2, 8, key=key), tw.data.two_moons(key, 100), tw.objectives.MaximumLikelihood(),
        ...              optimizer=optax.adam(1e-3), steps=2, batch_size=10, key=key)
        >>> run.sample(key=key, chains=5, draws=3, burn_in=10).draws.shape
        (5, 3, 2)
        """
        return sample_run(
            self,
            kernel,
            key=key,
            chains=chains,
            draws=draws,
            burn_in=burn_in,
            thin=thin,
            noise=noise,
            conditions=conditions,
            progress=progress,
        )

    def evaluate(
        self,
        data: PyTree = None,
        *,
        key: PRNGKeyArray,
        kernel: Any = None,
        chains: int | None = None,
        steps: int | None = None,
    ) -> dict[str, Any]:
        """Numbers of the trained model: the mean energies of training rows, test rows and samples, the gap between
        training rows and samples, and, where the data have classes, how a classifier judges the samples.

        These are the numbers that ``thalweg train`` writes to ``results.json``.

        Args:
            data: as `fit` takes them, by default those the run was trained on.
            key: of the samples.
            kernel: as in `sample`.
            chains: how many samples, by default as configured, else 100.
            steps: from noise to a sample, by default as in `sample`.

        >>> import jax, optax, thalweg as tw
        >>> key = jax.random.key(0)
        >>> run = tw.fit(tw.energies.MLP(2, 8, key=key), tw.data.two_moons(key, 100), tw.objectives.MaximumLikelihood(),
        ...              optimizer=optax.adam(1e-3), steps=2, batch_size=10, key=key)
        >>> sorted(run.evaluate(key=key, chains=5, steps=10))
        ['chains', 'energy_data', 'energy_gap', 'energy_samples', 'steps']
        """
        return evaluate_run(self, data, key=key, kernel=kernel, chains=chains, steps=steps)


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
    resume: bool = False,
    progress: bool = False,
) -> Run:
    """Train ``energy`` on ``data`` with any objective and any optax optimiser.

    Batches are drawn without replacement, epoch by epoch. Every random number follows from ``key`` and the update's
    number, so a resumed run is the run that was never interrupted, bit for bit. Ctrl-C finishes the update, writes a
    checkpoint (with a ``run_dir``) and raises ``KeyboardInterrupt``.

    Args:
        energy: a parametrised energy (its floating-point arrays are trained) or a score network; it comes back as the
            type it has, as ``run.energy`` and in the callbacks.
        data: points of the energy's space, ``(rows, *event)`` or a tree of such; ``(x, c)`` to learn p(x|c) with a
            `ConditionalEnergy`; or a `tw.data.Dataset`, of whose training rows (and labels, as c) they are.
        objective: for example ``tw.objectives.MaximumLikelihood()``.
        optimizer: for example ``optax.adam(1e-3)``; one made anew compiles nothing anew.
        steps: the number of updates in all, those before a resume included.
        batch_size: rows per update.
        key: all randomness.
        run_dir: a folder for ``metrics.jsonl`` and ``checkpoints/``; without it nothing is written.
        ema: decay of a moving average of the weights, such as 0.999; it warms up as ``(1 + t) / (10 + t)``.
        callbacks: evaluations, made with `every`.
        checkpoint_every: updates between checkpoints, by default a tenth of ``steps``.
        resume: go on from the newest checkpoint in ``run_dir``.
        progress: show a progress bar.

    Returns:
        `Run`.

    >>> import jax, optax, thalweg as tw
    >>> key = jax.random.key(0)
    >>> data = tw.data.two_moons(key, 1000)
    >>> energy = tw.energies.MLP(2, key=key)
    >>> run = tw.fit(energy, data, tw.objectives.MaximumLikelihood(steps=5), optimizer=optax.adam(1e-3),
    ...              steps=3, batch_size=100, key=key)
    >>> run.history["energy_gap"].shape
    (3,)
    """
    check_concrete(key=key, energy=energy, objective=objective, data=data)
    check_parts(energy, objective, optimizer)
    callbacks, folder = check_callbacks(callbacks), _as_folder(run_dir)
    source = Source(objective, data, folder)
    data, rows = check_fit(energy, data, steps, batch_size, ema, resume, run_dir)
    check_flag("progress", progress)
    every = max(1, steps // 10) if checkpoint_every is None else _count("checkpoint_every", checkpoint_every)
    key = typed_key(key)
    batches, key = Batches(data, rows, batch_size, key), training_key(key)

    batch = batches.at(0)
    training = begin(energy, batch, objective, optimizer, ema, key)
    update = Update(objective, optimizer, training, batch, ema=ema)
    arrays, form = split_static(training)
    record = Record(folder)
    checkpoints, done = None, 0
    if folder is not None:
        checkpoints = Checkpoints(folder / "checkpoints")
        if resume:
            done, arrays = checkpoints.restore(arrays)
            record.rewind(done)
        elif checkpoints.latest() is not None:
            raise ValueError(
                f"expected a new run folder, got {run_dir} with a run in it; pass resume=True or name another folder"
            )
        write_model(folder, training, objective)
        settings = {"steps": steps, "batch_size": batch_size, "ema": ema, "checkpoint_every": every}
        note_python_run(folder, energy, objective, rows, settings, done)

    def snapshot() -> Run:
        # copies, since the next update writes over the buffers of this one
        kept = merge_static(jax.tree.map(jnp.copy, arrays), form)
        average = averaged_model(kept)
        history, evaluations = record.history(), list(record.evaluations)
        return Run(average, kept.energy, kept.params, kept.state, done, history, evaluations, source)

    def save() -> None:
        record.flush()
        if checkpoints is not None and checkpoints.latest() != done:
            checkpoints.save(done, arrays)

    with progress_bar(progress, done, steps) as show, interrupts() as interrupted, contextlib.closing(record):
        waiting = None
        while done < steps:
            arrays, metrics = update(arrays, key, done, batches.at(done))
            done += 1
            # the numbers of the update before are read while this one computes
            if waiting is not None:
                show(record.add(*waiting))
            waiting = (done, metrics)
            due = [callback for callback in callbacks if done % callback.interval == 0 or done == steps]
            if due:
                show(record.add(*waiting))
                waiting = None
                for callback in due:
                    record.evaluate(done, evaluate(callback, snapshot()))
            stop = interrupted()
            if done % every == 0 or done == steps or stop:
                if waiting is not None:
                    show(record.add(*waiting))
                    waiting = None
                save()
            if stop:
                raise KeyboardInterrupt
        return snapshot()


def working_memory(
    energy: Any, batch: PyTree, objective: Objective, *, optimizer: optax.GradientTransformation, key: PRNGKeyArray
) -> int:
    """The bytes one training update needs beside its inputs and outputs, as the compiler planned it.

    >>> import jax, optax, thalweg as tw
    >>> key = jax.random.key(0)
    >>> energy, batch = tw.energies.MLP(2, key=key), tw.data.two_moons(key, 100)
    >>> objective = tw.objectives.DenoisingScoreMatching()
    >>> tw.train.working_memory(energy, batch, objective, optimizer=optax.adam(1e-3), key=key) > 10_000
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


def check_parts(energy: Any, objective: Any, optimizer: Any) -> None:
    """Refuse what is no model, no objective or no optimiser."""
    require_model("fit", energy)
    check_instance("an objective", objective, ("init", "loss"), "tw.objectives.MaximumLikelihood()")
    check_optimizer(optimizer)
    for name, part in (("energy", energy), ("objective", objective)):
        try:
            for value in _static_values(part):
                bool(value == value)
        except Exception as problem:  # whatever a user's type raises when it is compared
            raise ValueError(
                f"expected static fields in the {name} that can be compared, got one that cannot, such as an array; "
                "keep arrays as ordinary fields (in paramax.NonTrainable where they are not trained)"
            ) from problem


def _static_values(tree: PyTree) -> Iterator[Any]:
    """What of a tree of modules is part of a program: static fields, and the leaves that are no arrays."""
    parts = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, eqx.Module) and node is not tree)
    for part in parts:
        if isinstance(part, eqx.Module):
            yield from _static_values(part)
        elif not isinstance(part, (jax.Array, np.ndarray, np.generic)):
            yield hash(part)
    if isinstance(tree, eqx.Module):
        for field in dataclasses.fields(tree):
            if field.metadata.get("static", False):
                yield getattr(tree, field.name, None)


def check_fit(
    energy: Any, data: PyTree, steps: Any, batch_size: Any, ema: Any, resume: Any = False, run_dir: Any = None
) -> tuple[PyTree, int]:
    """Refuse what `fit` cannot train on; the data as arrays, and the number of their rows."""
    data, rows = check_data(energy, data)
    _count("steps", steps)
    if _count("batch_size", batch_size) > rows:
        raise ValueError(f"expected a batch_size between 1 and the {rows} rows of data, got {batch_size}; lower it")
    if ema is not None and not (isinstance(ema, (int, float, np.number)) and 0 <= ema < 1):
        raise ValueError(f"expected ema in [0, 1), got {ema!r:.60}; 0.999 is usual")
    check_flag("resume", resume)
    if resume and run_dir is None:
        raise ValueError("expected a run_dir to resume from, got none; name the run's folder")
    return data, rows


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"expected {name} to be True or False, got {value!r:.60}; say which")


def _count(name: str, value: Any) -> int:
    number = whole_number(name, value)
    if number >= 2**31:
        raise ValueError(f"expected {name} below 2^31, got {number}; give a smaller number")
    return number


def _as_folder(run_dir: Any) -> Path | None:
    if run_dir is not None and not isinstance(run_dir, (str, Path)):
        raise ValueError(f"expected run_dir to be a path, got {run_dir!r:.60}; name a folder")
    return None if run_dir is None else Path(run_dir)
