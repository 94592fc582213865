"""One training with many seeds, side by side in one compiled program."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree

from thalweg.core import (
    ConditionalEnergy,
    Energy,
    LatentEnergy,
    Objective,
    ScoreNetwork,
    merge_static,
    partition_trainable,
    split_static,
    takes,
)
from thalweg.train.checks import check_fit, check_flag, check_parts
from thalweg.train.data import Batches, check_concrete
from thalweg.train.doctor import Doctor, Finding, tell
from thalweg.train.loop import Run, make_doctor
from thalweg.train.progress import progress_bar
from thalweg.train.record import DivergedError, as_history, not_finite
from thalweg.train.update import Training, Update, averaged_model, begin, training_key


def fit_many(
    energy: Any,
    data: PyTree,
    objective: Objective,
    *,
    keys: Array,
    optimizer: optax.GradientTransformation,
    steps: int,
    batch_size: int,
    ema: float | None = None,
    progress: bool = False,
    doctor: bool = True,
) -> list[Run]:
    """Train once for every key, all in one program, to see how much a result depends on the seed.

    Run i is ``fit(energy(keys[i]), data, objective, key=keys[i], ...)`` up to rounding: the same batches in the same
    order and the same randomness. ``jax.vmap`` computes the update for all seeds at once.

    Args:
        energy: a function ``key -> energy``, which gives every seed its own initial weights; or one energy, from which
            all seeds start.
        data: as for `fit`; every seed reads the rows in its own order.
        objective: as for `fit`.
        keys: ``(seeds,)`` random keys, ``jax.random.split(key, seeds)``.
        optimizer: as for `fit`.
        steps: the number of updates.
        batch_size: rows per update and seed.
        ema: as for `fit`.
        progress: as for `fit`; shows the mean of each metric over the seeds.
        doctor: as for `fit`; every seed has its own doctor.

    Returns:
        A `Run` for every key, with its own history.

    Raises:
        DivergedError: if the loss or the weights of a seed are not finite, or its training runs away; the message
            names the seed.

    >>> import jax, numpy as np, optax, thalweg as tw
    >>> data = tw.data.two_moons(jax.random.key(0), 1000)
    >>> runs = tw.train.fit_many(lambda key: tw.energies.MLP(2, key=key), data,
    ...                          tw.objectives.DenoisingScoreMatching(0.1), keys=jax.random.split(jax.random.key(1), 3),
    ...                          optimizer=optax.adam(1e-3), steps=5, batch_size=100)
    >>> len(runs), runs[0].history["loss"].shape
    (3, (5,))
    """
    check_concrete(keys=keys, energy=energy, objective=objective, data=data)
    check_flag("progress", progress)
    check_flag("doctor", doctor)
    typed = _typed_keys(keys)
    energies = [energy] * len(typed) if _is_model(energy) else _make(energy, typed)
    check_parts(energies[0], objective, optimizer)
    data, rows = check_fit(energies[0], data, steps, batch_size, ema)
    batches = [Batches(data, rows, batch_size, key) for key in typed]
    roots = [training_key(key) for key in typed]

    first = [each.at(0) for each in batches]
    trainings = [
        begin(model, batch, objective, optimizer, ema, root)
        for model, batch, root in zip(energies, first, roots, strict=True)
    ]
    update = Update(objective, optimizer, trainings[0], first[0], ema=ema, seeds=True)
    arrays, key = _stack(trainings), jnp.stack(roots)
    histories: list[list[dict[str, float]]] = [[] for _ in typed]
    doctors = [make_doctor(energies[0], data, trainings[0], steps, batch_size) for _ in typed] if doctor else []

    def read(metrics: dict[str, Array]) -> dict[str, float]:
        host = {name: np.asarray(value) for name, value in metrics.items()}
        for seed, rows in enumerate(histories):
            row = {name: float(values[seed]) for name, values in host.items()}
            _check_finite(row, rows, seed)
            rows.append(row)
            if doctors:
                _examine(doctors[seed], rows, seed)
        return {name: float(np.mean(value)) for name, value in host.items()}

    with progress_bar(progress, 0, steps) as show:
        waiting = None
        for step in range(steps):
            batch = jax.tree.map(lambda *leaves: np.stack(leaves), *[each.at(step) for each in batches])
            arrays, metrics = update(arrays, key, step, batch)
            # as in `fit`, the metrics of the previous update are read while this one is computed
            if waiting is not None:
                show(read(waiting))
            waiting = metrics
        if waiting is not None:
            show(read(waiting))
    host = jax.tree.map(lambda leaf: list(leaf), arrays)
    found = [tuple(each.findings) for each in doctors] or [()] * len(typed)
    return [
        _run(merge_static([None if leaf is None else leaf[seed] for leaf in host], update.form), rows, found[seed])
        for seed, rows in enumerate(histories)
    ]


def _typed_keys(keys: Any) -> list[Array]:
    listed = isinstance(keys, (list, tuple)) and all(isinstance(key, jax.Array) for key in keys)
    if listed and len({(key.dtype, key.shape) for key in keys}) == 1:
        keys = jnp.stack(keys)
    found = keys if isinstance(keys, (jax.Array, np.ndarray)) else np.zeros(0)
    if found.dtype == jnp.uint32 and found.ndim == 2:
        found = jax.random.wrap_key_data(jnp.asarray(found))
    if not jnp.issubdtype(found.dtype, jax.dtypes.prng_key) or found.ndim != 1 or not found.size:
        raise ValueError(
            f"expected an array of random keys (seeds,), got {keys!r:.60}; "
            "write keys=jax.random.split(jax.random.key(0), 8)"
        )
    return list(found)


def _is_model(energy: Any) -> bool:
    """Whether ``energy`` is a model rather than a function that makes one: it has parameters or a model's class."""
    if isinstance(energy, type) or not callable(energy):
        return not callable(energy)  # neither a model nor a function: refused later as a model
    kinds = (Energy, ConditionalEnergy, LatentEnergy, ScoreNetwork)
    return isinstance(energy, kinds) or bool(jax.tree.leaves(partition_trainable(energy)[0]))


def _make(make: Callable[[Array], Any], keys: list[Array]) -> list[Any]:
    if not takes(make, 1):
        raise ValueError(
            "expected a function key -> energy or an energy with parameters, got a function of other arguments; "
            "write lambda key: tw.energies.MLP(2, key=key)"
        )
    energies = [make(key) for key in keys]
    for model in energies:
        if isinstance(model, (jax.Array, np.ndarray)) or not callable(model):
            raise ValueError(
                f"expected a function key -> energy or an energy with parameters, got one that returns "
                f"{type(model).__name__}; write lambda key: tw.energies.MLP(2, key=key)"
            )
    return energies


def _stack(trainings: list[Training]) -> list[Array | None]:
    """The arrays of all trainings with a leading axis of seeds."""
    parts, forms = zip(*map(split_static, trainings), strict=True)
    shapes = [[None if leaf is None else (leaf.shape, leaf.dtype) for leaf in arrays] for arrays in parts]
    if any(form != forms[0] for form in forms) or any(shape != shapes[0] for shape in shapes):
        raise ValueError(
            "expected energies and objectives' states of one form from all seeds, got others; let the key decide the "
            "numbers in them alone"
        )
    return [None if leaves[0] is None else jnp.stack(leaves) for leaves in zip(*parts, strict=True)]


def _check_finite(row: dict[str, float], rows: list[dict[str, float]], seed: int) -> None:
    fault = not_finite(row, rows[-1] if rows else {})
    if fault is not None:
        raise DivergedError(
            f"expected {fault} at update {len(rows) + 1} of seed {seed}; lower the learning rate or the sampler's step "
            "size, or leave its key out",
            as_history(rows),
        )


def _examine(doctor: Doctor, rows: list[dict[str, float]], seed: int) -> None:
    finding = doctor.look(len(rows), rows[-1])
    if finding is not None and finding.stops:
        raise DivergedError(
            f"training was stopped at update {len(rows)} of seed {seed}: {finding.words}", as_history(rows)
        )
    if finding is not None:
        tell(finding._replace(words=f"seed {seed}: {finding.words}"))


def _run(training: Training, rows: list[dict[str, float]], findings: tuple[Finding, ...]) -> Run:
    parts = training.energy, training.params, training.state
    return Run(averaged_model(training), *parts, len(rows), as_history(rows), [], findings)
