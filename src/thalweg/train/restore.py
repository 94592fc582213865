"""A trained run taken up again from its folder, without training."""

from pathlib import Path
from typing import Any

import numpy as np
import optax
from jaxtyping import PRNGKeyArray, PyTree

from thalweg.core import Objective, merge_static, split_static, typed_key
from thalweg.train.checkpoint import Checkpoints
from thalweg.train.data import check_data
from thalweg.train.loop import Run, check_parts
from thalweg.train.record import parse_line
from thalweg.train.source import Source
from thalweg.train.update import averaged_model, begin, training_key


def load(
    run_dir: str | Path,
    energy: Any,
    batch: PyTree,
    objective: Objective,
    *,
    optimizer: optax.GradientTransformation,
    key: PRNGKeyArray,
    ema: float | None = None,
) -> Run:
    """The `Run` in the newest checkpoint of ``run_dir``, as `fit` would have returned it there; nothing is written.

    A checkpoint holds arrays only, so what they belong to is given again, built as it was for training; a checkpoint
    of something else is refused.

    Args:
        run_dir: the folder that was given to `fit`.
        energy: an energy like the one that was trained; its weights are replaced.
        batch: rows of the data, as many as a batch had.
        objective: the objective it was trained with.
        optimizer: the optimiser it was trained with.
        key: any key; what it makes is replaced.
        ema: as it was given to `fit`.

    >>> import jax, optax, tempfile, thalweg as tw
    >>> from thalweg.train.restore import load
    >>> key, objective, optimizer = jax.random.key(0), tw.objectives.MaximumLikelihood(steps=2), optax.adam(1e-3)
    >>> data, energy = tw.data.two_moons(key, 100), tw.energies.MLP(2, key=key)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = tw.fit(energy, data, objective, optimizer=optimizer, steps=3, batch_size=10, key=key, run_dir=folder)
    ...     again = load(folder, energy, data[:10], objective, optimizer=optimizer, key=key)
    >>> again.step, bool(again.energy(data[0]) == run.energy(data[0]))
    (3, True)
    """
    folder = Path(run_dir) / "checkpoints"
    if not folder.is_dir():
        raise ValueError(
            f"expected a run with checkpoints in {run_dir}, got none; train first, or check the run's name"
        )
    check_parts(energy, objective, optimizer)
    batch, _ = check_data(energy, batch)
    arrays, form = split_static(begin(energy, batch, objective, optimizer, ema, training_key(typed_key(key))))
    step, arrays = Checkpoints(folder).restore(arrays)
    training = merge_static(arrays, form)
    source = Source(objective, None, Path(run_dir))
    history, evaluations = read_record(Path(run_dir) / "metrics.jsonl", step)
    return Run(
        averaged_model(training), training.energy, training.params, training.state, step, history, evaluations, source
    )


def read_record(path: Path, step: int) -> tuple[dict[str, np.ndarray], list[dict[str, float]]]:
    """The metrics up to an update, read and not rewound: a run may still be writing its own."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [row for row in map(parse_line, lines) if row is not None and row["step"] <= step]
    updates = [row for row in rows if "evaluation" not in row]
    names = [name for name in updates[0] if name != "step"] if updates else []
    history = {name: np.array([row[name] for row in updates]) for name in names}
    evaluations = [
        {name: value for name, value in row.items() if name != "evaluation"} for row in rows if "evaluation" in row
    ]
    return history, evaluations
