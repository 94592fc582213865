"""One-call training of restricted Boltzmann machines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from thalweg.core import positive, static_number, typed_key, whole_number
from thalweg.data import Dataset, Table
from thalweg.energies import RBM, GaussianUnits, ReplicatedSoftmaxUnits
from thalweg.energies.units import AbstractUnits
from thalweg.objectives import Centred, MaximumLikelihood
from thalweg.samplers import Gibbs, from_data, persistent
from thalweg.train import Run, fit
from thalweg.train.callbacks import Callback

# the learning rate of machines with discrete units, and with Gaussian ones
_RATE, _RATE_GAUSSIAN = 0.1, 0.03
_AVERAGE = 0.999
_EPOCHS, _UPDATES, _STEPS_FROM_DATA = 20, 10_000, 5


def train_rbm(
    data: Any,
    hidden: Any = 500,
    *,
    key: PRNGKeyArray,
    epochs: int | None = None,
    batch_size: int = 100,
    learning_rate: float | None = None,
    steps: int | None = None,
    visible: AbstractUnits | None = None,
    run_dir: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = False,
) -> Run:
    """Train a restricted Boltzmann machine with settings that work.

    The visible units are guessed from the data (`RBM.from_data`), with biases at the data's means. The gradient is that
    of persistent contrastive divergence, centred (`objectives.Centred`), taken by plain gradient descent whose learning
    rate falls linearly to zero. Chains of word counts keep their lengths, so for documents of different lengths the
    chains start at the data instead (contrastive divergence, 5 sweeps). ``run.energy`` has averaged weights. For other
    objectives, optimisers, weight decay or a sparsity target, call `fit` yourself with
    ``RBM.from_data(data, hidden, key=key)``.

    Args:
        data: one row for each point, ``(rows, units)``; pictures are flattened. A `Dataset` gives its training rows.
        hidden: the number of hidden Bernoulli units, or hidden units of another type.
        key: the random key.
        epochs: the number of passes over the data; by default as many as make 10 000 updates, but at least 20.
        batch_size: rows per update, and the number of persistent chains; at most the number of rows.
        learning_rate: at the start; by default 0.1, or 0.03 for Gaussian visible units, and for word counts 0.1 divided
            by the mean length of a document.
        steps: Gibbs sweeps of the chains per update, by default 1.
        visible: the visible units, if they should not be guessed.
        run_dir: a folder for metrics and checkpoints, as in `fit`.
        callbacks: evaluations, as in `fit`.
        progress: show a progress bar.

    >>> import jax, jax.numpy as jnp, numpy as np, thalweg as tw
    >>> data = np.repeat(np.eye(4, dtype=int), 2, axis=1)[np.arange(400) % 4]  # one of four pairs of bits is on
    >>> run = tw.machines.train_rbm(data, hidden=8, key=jax.random.key(0), epochs=500)
    >>> type(run.energy.visible).__name__, bool(jax.vmap(run.energy.log_prob)(jnp.asarray(data)).mean() > -3.0)
    ('BernoulliUnits', True)
    """
    rows = as_rows(data)
    batch_size = min(whole_number("batch_size", batch_size), len(rows))
    per_epoch = len(rows) // batch_size
    epochs = max(_EPOCHS, -(-_UPDATES // per_epoch)) if epochs is None else whole_number("epochs", epochs)
    key_model, key_fit = jax.random.split(typed_key(key))
    rbm = RBM.from_data(rows, hidden, key=key_model, visible=visible)
    rate = (
        _default_rate(rbm, rows) if learning_rate is None else static_number("learning_rate", learning_rate, positive)
    )
    varied = isinstance(rbm.visible, ReplicatedSoftmaxUnits) and rbm.visible.length is None
    steps = (_STEPS_FROM_DATA if varied else 1) if steps is None else whole_number("steps", steps)
    updates = epochs * per_epoch
    return fit(
        rbm,
        rows,
        Centred(MaximumLikelihood(Gibbs(), steps, from_data() if varied else persistent())),
        optimizer=optax.sgd(optax.linear_schedule(rate, 0.0, updates)),
        steps=updates,
        batch_size=batch_size,
        key=key_fit,
        ema=_AVERAGE,
        run_dir=run_dir,
        callbacks=callbacks,
        progress=progress,
    )


def as_rows(data: Any) -> np.ndarray:
    """Data as a numpy array ``(rows, units)``: the training rows of a data set, with pictures flattened."""
    x = data.x_train if isinstance(data, Dataset) else data.x if isinstance(data, Table) else data
    table = np.asarray(x)
    if table.ndim < 2 or 0 in table.shape or table.dtype.kind not in "buif":
        raise ValueError(
            f"expected data as numbers (rows, units), got {table.dtype} of shape {table.shape}; give one row for each "
            "point"
        )
    return table.reshape(len(table), -1)


def _default_rate(rbm: RBM, rows: np.ndarray) -> float:
    if isinstance(rbm.visible, GaussianUnits):
        return _RATE_GAUSSIAN
    if isinstance(rbm.visible, ReplicatedSoftmaxUnits):
        return _RATE / max(1.0, float(rows.sum(axis=1).mean()))
    return _RATE
