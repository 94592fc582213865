"""One-call training of Boltzmann machines."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from thalweg.core import one_of, positive, static_number, typed_key, whole_number
from thalweg.energies import BoltzmannMachine
from thalweg.machines.rbm import as_rows
from thalweg.objectives import BoltzmannLikelihood, Centred, ExactLikelihood
from thalweg.spaces import Binary, as_points
from thalweg.train import Run, fit

# up to this many units every update sums over all states
_FEW_UNITS = 12
_RATE, _RATE_EXACT, _AVERAGE = 0.05, 0.02, 0.999
_EPOCHS, _UPDATES = 20, 5000


def train_boltzmann(
    data: Any,
    hidden: int = 0,
    *,
    key: PRNGKeyArray,
    epochs: int | None = None,
    method: str = "auto",
    mask: Any = None,
    triples: Any = None,
    batch_size: int = 100,
    learning_rate: float | None = None,
    run_dir: str | Path | None = None,
    progress: bool = False,
) -> Run:
    """Train a Boltzmann machine on bits, with any connections.

    ``method="exact"`` is maximum likelihood by a sum over all states of at most 25 units, by Adam; ``"mean_field"`` and
    ``"gibbs"`` say how the hidden units of the data are found (`objectives.BoltzmannLikelihood`), with persistent
    chains and centred gradients; ``"auto"`` is exact for up to 12 units and mean-field above. Visible biases start at
    the data's means, the learning rate falls linearly to zero, and ``run.energy`` has averaged weights.

    Args:
        data: zeros and ones, ``(rows, units)``; pictures are flattened. A `Dataset` gives its training rows.
        hidden: the number of hidden units.
        key: the random key.
        epochs: the number of passes over the data; by default as many as make 5000 updates, but at least 20.
        method: ``"auto"``, ``"exact"``, ``"mean_field"`` or ``"gibbs"``.
        mask: which units are connected, boolean over all units, the visible ones first; by default all of them.
        triples: units that interact by three, ``(t, 3)``.
        batch_size: rows per update, at most the number of rows.
        learning_rate: at the start; by default 0.05, or 0.02 for the exact method.
        run_dir: a folder for metrics and checkpoints, as in `fit`.
        progress: show a progress bar.

    >>> import jax, jax.numpy as jnp, numpy as np, thalweg as tw
    >>> data = np.array([[1, 1, 0], [0, 0, 1], [1, 0, 1]] * 30)
    >>> run = tw.machines.train_boltzmann(data, key=jax.random.key(0), epochs=500)
    >>> bool(jax.vmap(run.energy.log_prob)(jnp.asarray(data)).mean() > -1.5)  # independent bits have -1.91
    True
    """
    rows = as_points(Binary(as_rows(data).shape[1]), as_rows(data), "data")
    method = one_of("method", method, ("auto", "exact", "mean_field", "gibbs"))
    batch_size = min(whole_number("batch_size", batch_size), len(rows))
    per_epoch = len(rows) // batch_size
    epochs = max(_EPOCHS, -(-_UPDATES // per_epoch)) if epochs is None else whole_number("epochs", epochs)
    key_model, key_fit = jax.random.split(typed_key(key))
    machine = BoltzmannMachine(rows.shape[1], hidden, mask=mask, triples=triples, key=key_model)
    machine = _with_visible_biases(machine, rows)
    units = machine.visible + machine.hidden
    if method == "auto":
        method = "exact" if units <= _FEW_UNITS else "mean_field"
    if method == "exact" and machine.exact_log_z() is None:
        raise ValueError(
            f"expected at most 25 units for exact learning, got {units}; use method='mean_field' or 'gibbs'"
        )
    exact = method == "exact"
    objective = ExactLikelihood() if exact else Centred(BoltzmannLikelihood(method))
    default = _RATE_EXACT if exact else _RATE
    rate = default if learning_rate is None else static_number("learning_rate", learning_rate, positive)
    updates = epochs * per_epoch
    schedule = optax.linear_schedule(rate, 0.0, updates)
    return fit(
        machine,
        np.asarray(rows),
        objective,
        optimizer=optax.adam(schedule) if exact else optax.sgd(schedule),
        steps=updates,
        batch_size=batch_size,
        key=key_fit,
        ema=_AVERAGE,
        run_dir=run_dir,
        progress=progress,
    )


def _with_visible_biases(machine: BoltzmannMachine, rows: Any) -> BoltzmannMachine:
    """The machine with visible biases at the log-odds of the data."""
    share = (jnp.sum(rows, axis=0) + 0.5) / (len(rows) + 1)
    biases = machine.pairs.bias.at[: machine.visible].set(jnp.log(share) - jnp.log1p(-share))
    return eqx.tree_at(lambda machine: machine.pairs.bias, machine, biases)
