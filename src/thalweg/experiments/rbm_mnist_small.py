"""A restricted Boltzmann machine small enough for its exact likelihood, on binary MNIST."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.core import whole_number
from thalweg.data import Dataset, binarized_mnist
from thalweg.energies import RBM
from thalweg.objectives import Centred, MaximumLikelihood
from thalweg.plot.points import draw_mosaic, spread
from thalweg.report.figures import LIGHT, canvas, legend, panel
from thalweg.samplers import Gibbs, persistent, sample
from thalweg.train import every, fit

_HIDDEN, _BATCH, _RATE, _AVERAGE = 16, 100, 0.6, 0.999
# published test log-likelihoods in nats, with the same units and number of epochs
_PUBLISHED = {"best": -142.09, "centred": -142.56, "plain": -149.05}
_SHOWN = 32


def rbm_mnist_small(
    key: PRNGKeyArray, progress: bool = False, *, epochs: int = 50, data: str | Path | Dataset | None = None
) -> tuple[Figure, dict[str, Any]]:
    """An RBM with 784 visible and 16 hidden units on binary MNIST; log Z is a sum over the 2^16 hidden states.

    Trained by persistent contrastive divergence with one sweep per update, 100 chains, a learning rate that falls
    linearly from 0.6 to zero, and averaged weights: once with the plain gradient, once with the centred one. Numbers:
    the mean log-likelihood of training and test rows in nats after every tenth of the training, exactly; the published
    numbers of PyDeep's tutorial beside them.

    Args:
        key: the random key.
        progress: show a progress bar.
        epochs: passes over the training rows.
        data: the data, or the folder where `data.binarized_mnist` finds them.

    >>> import numpy as np
    >>> rows = np.random.default_rng(0).integers(0, 2, (200, 784))
    >>> figure, numbers = rbm_mnist_small(jax.random.key(0), epochs=1, data=Dataset(rows, None, rows[:50]))
    >>> sorted(numbers["methods"]), len(figure.axes)
    (['centred', 'plain'], 4)
    """
    epochs = whole_number("epochs", epochs)
    found = data if isinstance(data, Dataset) else binarized_mnist(data)
    if found.x_test is None:
        raise ValueError("expected data with test rows, got none; give a Dataset with x_test")
    parts = {"train": found.x_train, "test": found.x_test}
    pcd = MaximumLikelihood(Gibbs(), 1, persistent())
    key_plain, key_centred, key_sample = jax.random.split(key, 3)
    methods, machines = {}, {}
    for name, objective, own in (("plain", pcd, key_plain), ("centred", Centred(pcd), key_centred)):
        curve, machines[name] = _learn(own, parts, objective, epochs, progress)
        methods[name] = {"test": curve[-1]["test"], "train": curve[-1]["train"], "curve": curve}
    numbers = {"epochs": epochs, "hidden": _HIDDEN, "methods": methods, "published": _PUBLISHED}
    return _figure(key_sample, numbers, machines["centred"], found.x_test), numbers


def _learn(
    key: PRNGKeyArray, parts: dict[str, np.ndarray], objective: Any, epochs: int, progress: bool
) -> tuple[list[dict[str, float]], RBM]:
    key_model, key_fit = jax.random.split(key)
    updates = epochs * (len(parts["train"]) // _BATCH)
    run = fit(
        RBM.from_data(parts["train"], _HIDDEN, key=key_model),
        parts["train"],
        objective,
        optimizer=optax.sgd(optax.linear_schedule(_RATE, 0.0, updates)),
        steps=updates,
        batch_size=_BATCH,
        key=key_fit,
        ema=_AVERAGE,
        callbacks=[every(max(1, updates // 10), _log_likelihoods(parts, epochs / updates))],
        progress=progress,
    )
    return run.evaluations, run.energy


def _log_likelihoods(parts: dict[str, np.ndarray], epochs_per_update: float) -> Callable[[Any], dict[str, float]]:
    """A callback for the exact mean log-likelihood of the training and test rows, in blocks."""
    mean = jax.jit(lambda rbm, rows: -jnp.mean(rbm.free_energies(rows)))

    def measure(run: Any) -> dict[str, float]:
        log_z = float(run.energy.log_z)
        found = {}
        for name, rows in parts.items():
            blocks = np.array_split(rows, max(1, len(rows) // 10_000))
            means = [float(mean(run.energy, block.astype(np.int32))) for block in blocks]
            found[name] = float(np.average(means, weights=list(map(len, blocks)))) - log_z
        return found | {"epoch": run.step * epochs_per_update}

    return measure


def _figure(key: PRNGKeyArray, numbers: dict[str, Any], rbm: RBM, rows: np.ndarray) -> Figure:
    theme, figure = LIGHT, canvas(10, 6)
    axes = panel(figure, (2, 2, 1), theme, title="test log-likelihood, exact", x="epoch", y="nats per picture")
    for (name, method), colour in zip(numbers["methods"].items(), (theme.muted, theme.data), strict=True):
        epochs = [row["epoch"] for row in method["curve"]]
        axes.plot(epochs, [row["test"] for row in method["curve"]], color=colour, label=f"{name}: {method['test']:.2f}")
    best = numbers["published"]["best"]
    axes.axhline(best, color=theme.ink, linestyle=":", label=f"best published {best:.2f}")
    legend(axes, theme, loc="lower right")
    weights = np.asarray(rbm.weights).T
    most = float(np.percentile(np.abs(weights), 99.5)) or 1.0
    few = jnp.asarray(spread(rows, _SHOWN // 2).astype(np.int32))
    rebuild = lambda v: rbm.visible.mean(rbm.visible.natural + rbm.hidden_means(v) @ rbm.weights.T)
    key_start, key_chain = jax.random.split(key)
    start = jax.random.bernoulli(key_start, 0.5, (_SHOWN, 784)).astype(jnp.int32)
    fantasies = sample(rbm, Gibbs(), start, key=key_chain, draws=1, burn_in=1000).draws[:, 0]
    shown = (
        ("weights of the hidden units", weights, (-most, most), 2),
        ("test rows in two lines, and their reconstructions", np.concatenate([few, rebuild(few)]), (0.0, 1.0), 3),
        ("draws after 1000 sweeps from noise, as means", rebuild(fantasies), (0.0, 1.0), 4),
    )
    for title, pictures, limits, place in shown:
        axes = panel(figure, (2, 2, place), theme, title=title)
        draw_mosaic(axes, np.asarray(pictures).reshape(-1, 28, 28, 1), 8, limits)
    return figure
