"""The training loop: one jitted update holds sampling, loss, gradient, optimiser and refresh."""

import contextlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import Objective, ScoreNetwork, arrays_and_form, as_model, refresh, together, trainable_part, whole
from thalweg.data import check_array
from thalweg.spaces import Discrete
from thalweg.train.callbacks import Callback
from thalweg.train.checkpoint import Checkpoints
from thalweg.train.record import Record, interrupts, progress_bar


class Run(eqx.Module):
    """What `fit` returns.

    ``energy`` is the trained model (its moving average where ``ema`` was asked for; ``last`` is then the model without
    averaging), ``params`` and ``state`` are the objective's own, ``history`` maps each metric to one number per update,
    ``evaluations`` lists what the callbacks returned.
    """

    energy: Any
    last: Any
    params: PyTree
    state: PyTree
    step: int
    history: dict[str, np.ndarray]
    evaluations: list[dict[str, float]]


class _Training(eqx.Module):
    """All that changes from update to update."""

    energy: Any
    params: PyTree
    state: PyTree
    optimizer: PyTree
    average: PyTree


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
        energy: a parametrised energy (its floating-point arrays are trained) or a score network.
        data: ``(rows, *event)``, or a tree of arrays with the same number of rows.
        objective: for example ``tw.objectives.MaximumLikelihood()``.
        optimizer: for example ``optax.adam(1e-3)``.
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
    model = as_model(energy)
    rows = check_fit(model, data, steps, batch_size, ema, resume, run_dir)
    data = jax.tree.map(np.asarray, data)
    key = key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)
    batches = _Batches(data, rows, batch_size, key)

    training = begin(model, batches.at(0), objective, optimizer, ema, key)
    record = Record(None if run_dir is None else Path(run_dir))
    checkpoints, done = None, 0
    if run_dir is not None:
        checkpoints = Checkpoints(Path(run_dir) / "checkpoints")
        if resume:
            arrays, static = eqx.partition(training, eqx.is_array)
            done, arrays = checkpoints.restore(arrays)
            training = eqx.combine(arrays, static)
            record.rewind(done)
        elif checkpoints.latest() is not None:
            raise ValueError(
                f"expected a new run folder, got {run_dir} with a run in it; pass resume=True or name another folder"
            )
    every = max(1, steps // 10) if checkpoint_every is None else checkpoint_every

    def snapshot() -> Run:
        # copies, since the next update writes over the buffers of this one
        kept = jax.tree.map(lambda leaf: jnp.copy(leaf) if eqx.is_array(leaf) else leaf, training)
        average = averaged_model(kept)
        return Run(average, kept.energy, kept.params, kept.state, done, record.history(), list(record.evaluations))

    def save() -> None:
        record.flush()
        if checkpoints is not None and checkpoints.latest() != done:
            checkpoints.save(done, eqx.filter(training, eqx.is_array))

    with progress_bar(progress, done, steps) as show, interrupts() as interrupted, contextlib.closing(record):
        waiting = None
        while done < steps:
            held = (objective, optimizer, key, jnp.asarray(done), jnp.asarray(0.0 if ema is None else ema))
            training, metrics = update((*held, batches.at(done)), training)
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
                    record.evaluate(done, callback.function(snapshot()))
            stop = interrupted()
            if done % every == 0 or done == steps or stop:
                if waiting is not None:
                    show(record.add(*waiting))
                    waiting = None
                save()
            if stop:
                raise KeyboardInterrupt
        return snapshot()


def begin(model, batch, objective, optimizer, ema, key) -> _Training:
    params, state = objective.init(jax.random.fold_in(key, 0), model, batch)
    if not jax.tree.leaves(trainable_part(model)[0]):
        raise ValueError(
            "expected an energy with parameters to train, got none; write it as an eqx.Module whose arrays are fields "
            "(a plain function holds no parameters)"
        )
    average = None if ema is None else trainable_part(model)[0]
    training = _Training(model, params, state, optimizer.init(trainable_part((model, params))[0]), average)
    # copies, since the first update writes over its inputs and the caller keeps theirs
    return jax.tree.map(lambda leaf: jnp.copy(leaf) if eqx.is_array(leaf) else leaf, training)


def averaged_model(training: _Training) -> Any:
    """The model with its averaged weights and its newest buffers; the model itself where nothing is averaged."""
    if training.average is None:
        return training.energy
    return whole(training.average, trainable_part(training.energy)[1])


def update(held, training: _Training) -> tuple[_Training, dict[str, Array]]:
    arrays, form = arrays_and_form(training)
    arrays, metrics = _update(*arrays_and_form(held), arrays, form)
    return together(arrays, form), metrics


@partial(jax.jit, static_argnums=(1, 3), donate_argnums=2)
def _update(held_arrays, held_form, arrays, form):
    objective, optimizer, key, step, ema, batch = together(held_arrays, held_form)
    training = together(arrays, form)
    trainable, fixed = trainable_part((training.energy, training.params))

    def loss(trainable):
        energy, params = whole(trainable, fixed)
        return objective.loss(jax.random.fold_in(key, step + 1), energy, params, training.state, batch)

    (value, told), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(trainable)
    change, optimizer_state = optimizer.update(gradient, training.optimizer, trainable)
    trainable = eqx.apply_updates(trainable, change)
    energy, params = whole(trainable, fixed)
    energy = refresh(energy)
    average = None
    if training.average is not None:
        decay = jnp.minimum(ema, (1.0 + step) / (10.0 + step))
        new = trainable_part(energy)[0]
        average = jax.tree.map(lambda old, now: decay * old + (1 - decay) * now, training.average, new)
    new, new_form = arrays_and_form(_Training(energy, params, told.state, optimizer_state, average))
    if new_form != form:
        raise ValueError(
            "expected an objective and an optimiser whose state keeps its form from update to update, got another one "
            f"from {type(objective).__name__}; return a state of the arrays that init returned"
        )
    return new, {"loss": value, **told.metrics}


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
    training = begin(as_model(energy), batch, objective, optimizer, None, key)
    held = arrays_and_form((objective, optimizer, key, jnp.asarray(0), jnp.asarray(0.0), batch))
    plan = _update.lower(*held, *arrays_and_form(training)).compile().memory_analysis()
    return plan.temp_size_in_bytes  # pyright: ignore[reportOptionalMemberAccess]


class _Batches:
    """Rows without replacement, epoch by epoch; the batch of an update follows from its number alone."""

    def __init__(self, data: PyTree, rows: int, size: int, key: PRNGKeyArray):
        self._data, self._rows, self._size = data, rows, size
        self._seed = np.asarray(jax.random.key_data(key)).ravel().tolist()
        self._epoch, self._order = -1, np.arange(0)

    def at(self, step: int) -> PyTree:
        epoch, place = divmod(step, self._rows // self._size)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, np.random.default_rng([*self._seed, epoch]).permutation(self._rows)
        chosen = self._order[place * self._size : (place + 1) * self._size]
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[chosen]), self._data)


def check_fit(model, data, steps, batch_size, ema, resume, run_dir) -> int:
    leaves = jax.tree.leaves(data)
    if not leaves:
        raise ValueError("expected data of shape (rows, *event), got nothing; give an array")
    space = model.space
    whole = isinstance(space, Discrete)
    check_array(leaves[0], event_shape=None if space is None else space.shape, integers=whole)
    rows = len(leaves[0])
    if any(len(leaf) != rows for leaf in leaves):
        raise ValueError(
            f"expected the same number of rows in all data, got {[len(leaf) for leaf in leaves]}; align them"
        )
    if not 1 <= batch_size <= rows:
        raise ValueError(f"expected a batch_size between 1 and the {rows} rows of data, got {batch_size}; lower it")
    if steps < 1:
        raise ValueError(f"expected steps >= 1, got {steps}; give the number of updates")
    if ema is not None and not 0 <= ema < 1:
        raise ValueError(f"expected ema in [0, 1), got {ema}; 0.999 is usual")
    if resume and run_dir is None:
        raise ValueError("expected a run_dir to resume from, got none; name the run's folder")
    if isinstance(model, ScoreNetwork) and whole:
        raise ValueError(f"expected a continuous space for a score network, got {space}; use an energy")
    return rows
