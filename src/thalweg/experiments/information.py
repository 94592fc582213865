"""Mutual information as the ratio of two densities that hardly overlap."""

import functools
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.core import Objective
from thalweg.energies import Gaussian
from thalweg.evaluate.mutual_information import kernel_in
from thalweg.objectives import NCE, AdaBregman, AdaNCE, KullbackLeibler, Squared
from thalweg.report.figures import LIGHT, canvas, legend, panel
from thalweg.samplers import persistent
from thalweg.train import DivergedError, Run, fit

_BATCH, _ROWS, _TEST = 512, 20_000, 20_000
# pairs of this correlation have half a nat of information
_CORRELATION = math.sqrt(1 - math.exp(-1))
_SIZES = {"smoke": ((20,), 61), "small": ((20, 40, 80, 160, 320), 2001), "thesis": ((20, 40, 80, 160, 320), 10_001)}
_INTERVAL = 10
_COLOURS = (LIGHT.data, LIGHT.samples, LIGHT.held_out, LIGHT.extra)


def mutual_information(
    key: PRNGKeyArray, progress: bool = False, *, scale: str = "small", updates: int | None = None
) -> tuple[Figure, dict[str, Any]]:
    """The mutual information ``I = E_p log p(x, y)/(p(x)p(y))`` of two Gaussian vectors with d/2 coordinates each, d/4
    nats, for d from 20 to 320: by one contrast with independent pairs, and by telescoping.

    Plain NCE against independent pairs fails, since every point is easy to classify: a classifier without errors gets
    no signal about the size of the ratio. AdaNCE and AdaBregman start at the independent density, contrast each model
    with the one frozen before, and sum the changes of log Z from freezing to freezing. Reference: Rhodes, Xu and
    Gutmann (2020), NeurIPS, for the task and the failure of NCE.

    >>> figure, numbers = mutual_information(jax.random.key(0), scale="smoke")  # doctest: +SKIP
    """
    if scale not in _SIZES:
        raise ValueError(f"expected a scale among {', '.join(_SIZES)}, got {scale!r}; small takes minutes")
    dimensions, usual = _SIZES[scale]
    steps = usual if updates is None else updates
    rows = [
        _estimate(jax.random.fold_in(key, d), name, d, steps, progress) for name in _methods(20) for d in dimensions
    ]
    columns = ["method", "d", "true I", "estimate", "with the exact log Z", "seconds"]
    table = [
        [
            row["method"],
            str(row["dimension"]),
            f"{row['true']:.1f}",
            _words(row["estimate"]),
            _words(row["with_exact_log_z"]),
            f"{row['seconds']:.1f}",
        ]
        for row in rows
    ]
    numbers = {"scale": scale, "updates": steps, "rows": rows, "table": {"columns": columns, "rows": table}}
    return _figure(rows), numbers


def _words(value: float | None) -> str:
    return "loss not finite" if value is None else f"{value:.2f}"


def _methods(d: int) -> dict[str, Objective]:
    chains = {"kernel": kernel_in(d), "steps": 5, "start": persistent()}
    independent = Gaussian(jnp.zeros(d), jnp.ones(d))
    return {
        "NCE": NCE(independent),
        "AdaNCE": AdaNCE(_INTERVAL, **chains),
        "AdaBregman, KL": AdaBregman(KullbackLeibler(), _INTERVAL, **chains),
        "AdaBregman, squared": AdaBregman(Squared(), _INTERVAL, **chains),
    }


def pairs(key: PRNGKeyArray, rows: int, d: int) -> Array:
    """Rows of d/2 pairs with correlation ``√(1 - 1/e)``; the first halves of all pairs come first.

    >>> x = pairs(jax.random.key(0), 1000, 4)
    >>> bool(abs(jnp.mean(x[:, 0] * x[:, 2]) - 0.795) < 0.1)
    True
    """
    one, other = jax.random.normal(key, (2, rows, d // 2))
    return jnp.concatenate([one, _CORRELATION * one + math.sqrt(1 - _CORRELATION**2) * other], axis=1)


@functools.cache
def _optimizer(steps: int, d: int) -> optax.GradientTransformation:
    # Adam moves each of the d²/2 parameters by about its learning rate: with a rate proportional to 1/d, consecutive
    # models are equally close in any dimension, as telescoping needs
    return optax.adam(optax.cosine_decay_schedule(0.4 / d, steps))


def _estimate(key: PRNGKeyArray, name: str, d: int, steps: int, progress: bool) -> dict[str, Any]:
    key_data, key_test, key_fit = jax.random.split(key, 3)
    objective = _methods(d)[name]
    start = Gaussian(jnp.zeros(d), jnp.eye(d))
    started = time.perf_counter()
    options = {"optimizer": _optimizer(steps, d), "steps": steps, "batch_size": _BATCH, "key": key_fit}
    row: dict[str, Any] = {"method": name, "dimension": d, "true": d / 4}
    try:
        run = fit(start, pairs(key_data, _ROWS, d), objective, progress=progress, **options)
    except DivergedError:  # some ψ overflow when the ratios are large, which belongs in the table
        return row | {"estimate": None, "with_exact_log_z": None, "seconds": time.perf_counter() - started}
    seconds = time.perf_counter() - started
    x = pairs(key_test, _TEST, d)
    # without log Z: the mean over pairs of log p̃ minus the log density of independent ones
    unnormalised = float(jnp.mean(jax.vmap(start)(x) - jax.vmap(run.energy)(x)) + start.log_z)
    return row | {
        "estimate": unnormalised - _log_z(run, start),
        "with_exact_log_z": unnormalised - float(run.energy.log_z),
        "seconds": seconds,
    }


def _log_z(run: Run, start: Gaussian) -> float:
    """The learned log Z: a parameter, or the sum of its changes."""
    if "log_z_change" in run.history:
        return float(start.log_z + np.sum(run.history["log_z_change"]))
    return float(run.params.log_z)


def _figure(rows: list[dict[str, Any]]) -> Figure:
    figure = canvas(6.5, 4.6)
    axes = panel(figure, figure.add_gridspec(1, 1)[0], title="Information in pairs", x="true, nats", y="estimate, nats")
    true = sorted({row["true"] for row in rows})
    axes.plot(true, true, color=LIGHT.muted, linewidth=1.0, label="truth")
    for name, colour in zip(_methods(20), _COLOURS, strict=True):
        own = [row for row in rows if row["method"] == name and row["estimate"] is not None]
        axes.plot([row["true"] for row in own], [row["estimate"] for row in own], "o-", color=colour, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("symlog", base=2, linthresh=2)
    axes.set_xticks(true, [f"{each:g}" for each in true])
    axes.set_yticks(true, [f"{each:g}" for each in true])
    legend(axes)
    return figure
