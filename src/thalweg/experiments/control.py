"""How much control variates reduce the variance of AdaNCE's gradient, over the updates since the freezing."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.core import Energy, combine, compiled, partition_trainable
from thalweg.experiments.adaptive import optimizer_of, updates_of
from thalweg.experiments.learning import Confined, targets
from thalweg.objectives import AdaNCE
from thalweg.objectives.adaptive import SelfAdaptingState
from thalweg.objectives.control_variates import anchor_control
from thalweg.report.figures import LIGHT, canvas, legend, panel
from thalweg.samplers import MALA, persistent, sample
from thalweg.samplers.starts import PersistentMemory
from thalweg.train import fit

AFTER = (0, 1, 2, 5, 10, 20, 50)  # updates since the freezing
_BATCH, _ANCHOR, _POOL = 250, 32, 20_000
_GRADIENTS = {"smoke": 8, "small": 400}
_COLOURS = (LIGHT.data, LIGHT.samples, LIGHT.held_out, LIGHT.extra)
_CHAIN = {"kernel": MALA(0.15), "steps": 5, "start": persistent()}
_NEVER = 10**6  # an interval that is longer than any experiment
CONTROLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "Stein": {"stein": True},
    "frozen gradient": {"anchor": _ANCHOR},
    "both": {"stein": True, "anchor": _ANCHOR},
}


def adaptive_control(
    key: PRNGKeyArray, progress: bool = False, *, scale: str = "small", updates: int | None = None
) -> tuple[Figure, dict[str, Any]]:
    """The variance of AdaNCE's gradient under control variates, over the updates since the model was frozen.

    A network is trained on a 2-D mixture, then frozen and trained further with the frozen model as its noise. After 0
    to 50 further updates, its gradient is estimated many times from new data and from samples of the frozen model (from
    a pool of long chains): without control variates, with Stein's weights, with the frozen model's gradient over 32
    batches, and with both. The variance is summed over all parameters; the bias is the difference of the mean from that
    of the plain gradients, in units of the standard deviation of one plain gradient.

    >>> figure, numbers = adaptive_control(jax.random.key(0), scale="smoke")  # doctest: +SKIP
    """
    steps = updates_of(scale, updates)
    count = _GRADIENTS[scale]
    density = targets()["skewed mixture"]
    key_data, key_model, key_fit, key_pool, key_after, key_repeat = jax.random.split(key, 6)
    data = density.sample(key_data, (_POOL,))
    objective = AdaNCE(1, **_CHAIN)
    begun = Confined(data, 64, key=key_model)
    # a third of a whole training: the model still moves, and its gradient still has a mean
    options = {"optimizer": optimizer_of(steps), "batch_size": _BATCH, "progress": progress}
    past = fit(begun, data, objective, steps=max(1, steps // 3), key=key_fit, **options).energy
    pool = sample(past, MALA(0.15), data[:2000], key=key_pool, draws=10, burn_in=200, thin=20, progress=progress)
    negatives = pool.draws.reshape(-1, 2)
    models = _train_further(key_after, past, data, options)
    rows = []
    for after, model in models.items():
        gradients = {}
        for name, control in CONTROLS.items():
            frozen = AdaNCE(_NEVER, **_CHAIN, **control)
            keys = jax.random.split(jax.random.clone(key_repeat), count)  # the same data and samples for all
            gradients[name] = np.asarray(_gradients(keys, frozen, past, model, data, negatives))
        plain = gradients["plain"]
        noise = float(np.sqrt(plain.var(axis=0).sum()))
        for name, own in gradients.items():
            bias = float(np.linalg.norm(own.mean(axis=0) - plain.mean(axis=0)))
            share = float(own.var(axis=0).sum() / plain.var(axis=0).sum())
            rows.append({"after": after, "control": name, "variance_share": share, "bias": bias / noise})
    columns = ["updates since the freezing", *CONTROLS]
    table = [[str(after), *(f"{_share(rows, after, name):.3f}" for name in CONTROLS)] for after in models]
    resolution = float(np.sqrt(2 / count))
    numbers = {"scale": scale, "gradients": count, "bias_resolved": resolution, "rows": rows}
    return _figure(rows), numbers | {"table": {"columns": columns, "rows": table}}


def _share(rows: list[dict[str, Any]], after: int, name: str) -> float:
    return next(row["variance_share"] for row in rows if row["after"] == after and row["control"] == name)


def _train_further(key: PRNGKeyArray, past: Energy, data: Array, options: dict[str, Any]) -> dict[int, Energy]:
    """The models after each number of updates in `AFTER`, with the frozen model as their noise throughout."""
    models: dict[int, Energy] = {0: past}
    for after in AFTER[1:]:
        key_fit = jax.random.clone(key)  # the same training, for longer
        models[after] = fit(past, data, AdaNCE(_NEVER, **_CHAIN), steps=after, key=key_fit, **options).energy
    return models


@compiled
def _gradients(keys: Array, objective: AdaNCE, past: Energy, model: Energy, data: Array, negatives: Array) -> Array:
    """One gradient at ``model`` for every key, with ``past`` as the frozen model, ``(keys, parameters)``."""
    trained, rest = partition_trainable(model)

    def one(key):
        key_rows, key_chains, key_init, key_loss = jax.random.split(key, 4)
        batch, *before = jax.random.choice(key_rows, data, (1 + max(1, objective.anchor), _BATCH))
        starts = jax.random.choice(key_chains, negatives, (_BATCH,))
        state = _frozen_state(key_init, objective, past, jnp.stack(before), starts)

        def loss(trained):
            return objective.loss(key_loss, combine(trained, rest), None, state, batch)[0]

        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(jax.grad(loss)(trained))])

    return jax.lax.map(one, keys, batch_size=20)


def _frozen_state(
    key: PRNGKeyArray, objective: AdaNCE, past: Energy, batches: Array, starts: Array
) -> SelfAdaptingState:
    """The objective's state within an interval that started with ``past``, with chains at samples from a pool."""
    key_init, key_chains = jax.random.split(key)
    _, state = objective.init(key_init, past, batches[0])
    anchor = state.anchor
    if anchor is not None:
        # as at a freezing after all the batches have been seen
        seen = jnp.asarray(len(batches))
        anchor, _ = anchor_control(anchor._replace(batches=batches), past, batches[0], seen, jnp.asarray(True))
    chains = PersistentMemory(objective.kernel.init(key_chains, past, starts))
    return state._replace(memory=chains, updates=jnp.ones((), jnp.int32), anchor=anchor)


def _figure(rows: list[dict[str, Any]]) -> Figure:
    figure = canvas(7, 4.6)
    title = "Variance of the gradient with control variates"
    axes = panel(figure, (1, 1, 1), title=title, x="updates since the freezing", y="share of the plain variance")
    for name, colour in zip(CONTROLS, _COLOURS, strict=True):
        own = [row for row in rows if row["control"] == name]
        axes.plot([row["after"] for row in own], [row["variance_share"] for row in own], "o-", color=colour, label=name)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_ylim(0, None)
    legend(axes)
    return figure
