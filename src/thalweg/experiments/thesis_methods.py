"""The thesis's comparison of noise-contrastive methods, measured: one task, over its dimension.

Nathaniel Xu (2022), Self-Adapting Noise-Contrastive Estimation for Energy-Based Models, Tsinghua University.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.core import Objective
from thalweg.energies import Gaussian
from thalweg.experiments.run_folders import Result, fit_in, result_of
from thalweg.objectives import AdaNCE, AdversarialNCE, ConditionalNCE, FlowNCE
from thalweg.report.figures import LIGHT, canvas, legend, panel
from thalweg.samplers import MALA, persistent
from thalweg.train import DivergedError, Run, every, working_memory

_ROWS, _BATCH, _RATE = 20_000, 250, 0.01


class Method(NamedTuple):
    """A column of the thesis's table: the objective for a dimension, whether its noise is an adversary, and what the
    thesis says of it: does it learn log Z, does it scale with the dimension."""

    objective: Callable[[int], Objective]
    adversarial: bool
    said_normalising: bool
    said_scalable: bool


METHODS = {
    "CNCE": Method(lambda d: ConditionalNCE(), False, False, False),
    "ACE": Method(lambda d: AdversarialNCE(), True, True, False),
    "FCE": Method(lambda d: FlowNCE(warm_start=300), True, True, True),
    # the best step of MALA falls as d^(-1/3), see Roberts and Rosenthal (1998)
    "AdaNCE": Method(lambda d: AdaNCE(1, MALA(0.5 * d ** (-1 / 3)), steps=10, start=persistent()), False, False, True),
}
_COLOURS = (LIGHT.data, LIGHT.samples, LIGHT.held_out, LIGHT.extra)
_SIZES = {"smoke": ((2, 4), 30), "small": ((2, 4, 8, 16, 32, 64), 1000), "thesis": ((2, 4, 8, 16, 32, 64), 5000)}


def table_3_1(
    key: PRNGKeyArray,
    progress: bool = False,
    *,
    scale: str = "small",
    updates: int | None = None,
    runs: Path | None = None,
) -> tuple[Figure, dict[str, Any]]:
    """Conditional, adversarial, flow and self-adapting NCE learn a Gaussian with full covariance in 2 to 64
    dimensions: KL in closed form, the error of the learnt log Z where one is learnt, time and memory of an update.

    The model is the same family, begun at the data's means and variances without correlations, so all that is measured
    is the method. From far away noise that learns does not bring the model to the data, see also `NCE`.

    >>> figure, numbers = table_3_1(jax.random.key(0), scale="smoke")  # doctest: +SKIP
    """
    if scale not in _SIZES:
        raise ValueError(f"expected a scale among {', '.join(_SIZES)}, got {scale!r}; small takes minutes")
    dimensions, usual = _SIZES[scale]
    steps = usual if updates is None else updates
    rows = [
        _measure(jax.random.fold_in(key, d), name, method, d, steps, progress, runs)
        for name, method in METHODS.items()
        for d in dimensions
    ]
    columns = ["method", "d", "learns log Z", "adversarial", "KL, nats", "log Z off by", "ms an update", "MB"]
    table = [
        [
            row["method"],
            str(row["dimension"]),
            "yes" if row["self_normalising"] else "no",
            "yes" if row["adversarial"] else "no",
            f"{row['kl']:.3g}",
            "-" if row["log_z_error"] is None else f"{row['log_z_error']:+.3f}",
            "-" if row["seconds_per_update"] is None else f"{1000 * row['seconds_per_update']:.2f}",
            f"{row['megabytes']:.2f}",
        ]
        for row in rows
    ]
    settings = [["rows of data", str(_ROWS)], ["learning rate, cosine", f"{_RATE:g}"], ["updates", str(steps)]]
    settings += [["batch", str(_BATCH)], ["steps of MALA an update (AdaNCE)", "10"]]
    numbers = {
        "scale": scale,
        "updates": steps,
        "settings_table": {
            "columns": ["setting", "here", "thesis"],
            "rows": [[*row, "none: it compares in words"] for row in settings],
        },
        "rows": rows,
        "verdict": judge_methods(rows),
        "table": {"columns": columns, "rows": table},
    }
    return _figure(rows), numbers


def judge_methods(rows: list[dict[str, Any]]) -> str:
    """Does a method learn log Z, and does it scale: a KL of at most 0.1 nats at the largest dimension."""
    said = []
    for name, method in METHODS.items():
        own = [row for row in rows if row["method"] == name]
        last = max(own, key=lambda row: row["dimension"])
        scalable = last["kl"] <= 0.1
        agrees = scalable == method.said_scalable and own[0]["self_normalising"] == method.said_normalising
        said.append(
            f"{name}: {'learns' if own[0]['self_normalising'] else 'does not learn'} log Z, KL {last['kl']:.3g} at d = "
            f"{last['dimension']}: {'agrees' if agrees else 'disagrees'} with the thesis, which calls it "
            f"{'scalable' if method.said_scalable else 'not scalable'}"
        )
    return "; ".join(said)


def target(key: PRNGKeyArray, d: int) -> Gaussian:
    """A Gaussian with a mean of order one and correlated coordinates of variances between ½ and 2.

    >>> float(jnp.trace(target(jax.random.key(0), 4).covariance)) > 2
    True
    """
    key_mean, key_turn = jax.random.split(key)
    turn = jnp.linalg.qr(jax.random.normal(key_turn, (d, d)))[0]
    covariance = (turn * jnp.geomspace(0.5, 2.0, d)) @ turn.T
    return Gaussian(jax.random.normal(key_mean, (d,)), (covariance + covariance.T) / 2)


def _measure(
    key: PRNGKeyArray, name: str, method: Method, d: int, steps: int, progress: bool, runs: Path | None
) -> dict[str, Any]:
    from thalweg import __version__

    def compute(folder: Path | None) -> Result:
        return Result(_train(key, method, d, steps, progress, folder), {})

    settings = {
        "method": name,
        "dimension": d,
        "updates": steps,
        "rows": _ROWS,
        "batch": _BATCH,
        "rate": _RATE,
        "key": np.asarray(jax.random.key_data(key)).tolist(),
        "thalweg": __version__,
    }
    row = {"method": name, "dimension": d, **result_of(runs, f"{name}-{d}", settings, compute).numbers}
    # JSON has no infinity
    return row | {"kl": math.inf if row["kl"] is None else row["kl"]}


def _train(
    key: PRNGKeyArray, method: Method, d: int, steps: int, progress: bool, folder: Path | None
) -> dict[str, Any]:
    key_target, key_data, key_memory, key_init, key_fit = jax.random.split(key, 5)
    truth = target(key_target, d)
    data = truth.sample(key_data, (_ROWS,))
    start = Gaussian(jnp.mean(data, axis=0), jnp.diag(jnp.var(data, axis=0)))
    objective = method.objective(d)
    optimizer = optax.adam(optax.cosine_decay_schedule(_RATE, steps))
    memory = working_memory(start, data[:_BATCH], objective, optimizer=optimizer, key=key_memory)

    def clock(run: Run) -> dict[str, float]:
        return {"clock": time.perf_counter()}

    tenth = max(1, steps // 10)
    options = {"optimizer": optimizer, "batch_size": _BATCH, "key": key_fit, "progress": progress}
    row = {"adversarial": method.adversarial, "megabytes": memory / 1e6}
    row["self_normalising"] = hasattr(objective.init(key_init, start, data[:_BATCH])[0], "log_z")
    try:
        run = fit_in(folder, start, data, objective, steps=steps, callbacks=[every(tenth, clock)], **options)
    except DivergedError:  # which belongs in the table
        return row | {"kl": math.inf, "log_z_error": None, "seconds_per_update": None}
    # at every tenth of the run, the first after it was compiled; the median leaves out where it was interrupted
    passed = np.diff([each["clock"] for each in run.evaluations][:-1])
    return row | {
        "kl": divergence(truth, run.energy),
        "log_z_error": float(run.params.log_z - run.energy.log_z) if row["self_normalising"] else None,
        "seconds_per_update": float(np.median(passed)) / tenth,
    }


def divergence(p: Gaussian, q: Gaussian) -> float:
    """``KL(p‖q) = ½[tr(C_q⁻¹C_p) + (m_q - m_p)ᵀC_q⁻¹(m_q - m_p) - d + log det C_q - log det C_p]`` of two Gaussians.

    >>> p, q = Gaussian(jnp.zeros(2), jnp.eye(2)), Gaussian(jnp.ones(2), jnp.eye(2))
    >>> divergence(p, q)
    1.0
    """
    # by the whitenings, which a model far astray still has where its covariance has overflowed
    white_p, white_q = (_lower(each.whitening) for each in (p, q))
    apart = np.asarray(q.mean, np.float64) - np.asarray(p.mean, np.float64)
    logs = [np.sum(np.log(np.abs(np.diag(white)))) for white in (white_p, white_q)]
    spread, shift = np.sum((white_q @ np.linalg.inv(white_p)) ** 2), np.sum((white_q @ apart) ** 2)
    return float(0.5 * (spread + shift - len(apart)) + logs[0] - logs[1])


def _lower(whitening: Any) -> np.ndarray:
    whitening = np.asarray(whitening, np.float64)
    return np.diag(whitening) if whitening.ndim == 1 else np.tril(whitening)


def _figure(rows: list[dict[str, Any]]) -> Figure:
    figure = canvas(10, 4.2)
    places = figure.add_gridspec(1, 2)
    left = panel(figure, places[0], title="How near", x="dimension", y="KL, nats")
    right = panel(figure, places[1], title="How long", x="dimension", y="milliseconds an update")
    dimensions = sorted({row["dimension"] for row in rows})
    for name, colour in zip(METHODS, _COLOURS, strict=True):
        own = [row for row in rows if row["method"] == name]
        left.plot(dimensions, [row["kl"] for row in own], "o-", color=colour, label=name)
        times = [math.nan if row["seconds_per_update"] is None else 1000 * row["seconds_per_update"] for row in own]
        right.plot(dimensions, times, "o-", color=colour, label=name)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(dimensions, [str(d) for d in dimensions])
        axes.set_yscale("log")
    legend(left)
    return figure
