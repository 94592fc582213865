"""Load a trained run from its folder, given the objects it was trained with."""

from pathlib import Path
from typing import Any

import optax
from jaxtyping import PRNGKeyArray, PyTree

from thalweg.core import Objective, as_path, flag, merge_static, split_static, typed_key
from thalweg.train.best import checkpoint_folder
from thalweg.train.checkpoint import Checkpoints
from thalweg.train.checks import check_parts
from thalweg.train.data import check_data
from thalweg.train.doctor import Finding, tell
from thalweg.train.loop import Run
from thalweg.train.record import as_history, rows_until
from thalweg.train.source import Source
from thalweg.train.update import averaged_model, begin, has_finite_weights, training_key


def load(
    run_dir: str | Path,
    energy: Any,
    batch: PyTree,
    objective: Objective,
    *,
    optimizer: optax.GradientTransformation,
    key: PRNGKeyArray,
    ema: float | None = None,
    best: bool = False,
) -> Run:
    """The `Run` in the newest checkpoint of ``run_dir``, as `fit` would have returned it then; nothing is written.

    A checkpoint holds arrays only, so the model, objective and optimiser must be given again, built as for training; a
    checkpoint of another model is refused. A damaged checkpoint is skipped, with a message on stderr and a finding.
    `tw.load_run` needs none of these objects.

    Args:
        run_dir: the folder that was given to `fit`.
        energy: an energy built like the one that was trained; its weights are replaced.
        batch: as many rows of data as a batch had.
        objective: the objective it was trained with.
        optimizer: the optimiser it was trained with.
        key: any random key; the values drawn from it are replaced.
        ema: as it was given to `fit`.
        best: load the best checkpoint, kept by ``fit(keep_best=...)``, instead of the newest.

    >>> import jax, optax, tempfile, thalweg as tw
    >>> from thalweg.train.restore import load
    >>> key_data, key_model, key_fit, key_load = jax.random.split(jax.random.key(0), 4)
    >>> data, energy = tw.data.two_moons(key_data, 100), tw.energies.MLP(2, key=key_model)
    >>> objective, optimizer = tw.objectives.MaximumLikelihood(steps=2), optax.adam(1e-3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = tw.fit(energy, data, objective, optimizer=optimizer, steps=3, batch_size=10, key=key_fit,
    ...                  run_dir=folder)
    ...     again = load(folder, energy, data[:10], objective, optimizer=optimizer, key=key_load)
    >>> again.step, bool(again.energy(data[0]) == run.energy(data[0]))
    (3, True)
    """
    run_dir = as_path("run_dir", run_dir)
    folder = checkpoint_folder(run_dir, flag("best", best))
    if not folder.is_dir():
        raise ValueError(
            f"expected a run with checkpoints in {run_dir}, got none; train first, or check the run's name"
        )
    check_parts(energy, objective, optimizer)
    batch, _ = check_data(energy, batch)
    like = begin(energy, batch, objective, optimizer, ema, training_key(typed_key(key)))
    arrays, form = split_static(like)
    good = lambda restored: has_finite_weights(merge_static(restored, form), like)
    step, arrays, faults = Checkpoints(folder).restore(arrays, good)
    training = merge_static(arrays, form)
    # only read, not rewound: the run may still be writing it
    _, rows, evaluations = rows_until(Path(run_dir) / "metrics.jsonl", step)
    findings = tuple(Finding("checkpoint", step, fault) for fault in faults)
    for finding in findings:
        tell(finding)
    past = as_history(rows), evaluations, findings, Source(objective, None, Path(run_dir))
    return Run(averaged_model(training), training.energy, training.params, training.state, step, *past)
