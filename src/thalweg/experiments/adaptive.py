"""Extensions of AdaNCE: shared negatives, other kinds of chains, and other convex functions ψ.

They follow the outlook of Xu (2022), "Self-Adapting Noise-Contrastive Estimation for Energy-Based Models", master's
thesis, Tsinghua University.
"""

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.core import Energy, HasSampler, Objective, compiled
from thalweg.experiments.fields import square
from thalweg.experiments.learning import Confined, targets
from thalweg.experiments.run_folders import Result, fit_in, result_of
from thalweg.objectives import (
    AdaBregman,
    AdaNCE,
    ItakuraSaito,
    KullbackLeibler,
    Logistic,
    Power,
    Squared,
)
from thalweg.report.figures import LIGHT, canvas, panel
from thalweg.samplers import (
    HMC,
    MALA,
    GradientDescent,
    Langevin,
    UnderdampedLangevin,
    from_noise,
    persistent,
)
from thalweg.train import DivergedError, Run, every

INTERVALS = (1, 2, 5, 10)
_ROWS, _BATCH, _RATE, _MEASUREMENTS = 20_000, 250, 3e-3, 20
_UPDATES = {"smoke": 20, "small": 1500}
_TARGETS = ("skewed mixture", "ring")
_HALF, _NODES = 7.0, 281  # the square that KL is summed over, and its nodes a side
_COLOURS = (LIGHT.data, LIGHT.samples, LIGHT.held_out, LIGHT.extra, LIGHT.muted, LIGHT.ink)
_CONVERGENT = {"kernel": MALA(0.15), "steps": 20, "start": persistent()}

Variants = dict[str, Callable[[int], Objective]]  # a name, and the objective for an interval


def adaptive_reuse(
    key: PRNGKeyArray,
    progress: bool = False,
    *,
    scale: str = "small",
    updates: int | None = None,
    runs: Path | None = None,
) -> tuple[Figure, dict[str, Any]]:
    """AdaNCE over its interval 𝒦, with fresh negatives for every update and with negatives shared over the interval:
    KL against seconds of training, on two 2-D densities.

    The chains are persistent, with 20 steps of MALA per update. The numbers contain the setting that was first to reach
    0.05 nats.

    >>> figure, numbers = adaptive_reuse(jax.random.key(0), scale="smoke")  # doctest: +SKIP
    """
    variants: Variants = {
        "fresh": lambda interval: AdaNCE(interval, **_CONVERGENT),
        "shared": lambda interval: AdaNCE(interval, **_CONVERGENT, reuse=True),
    }
    figure, numbers = _compare(key, progress, scale, updates, variants, runs)
    return figure, numbers | {"verdict": _fastest(numbers["rows"])}


def adaptive_psi(
    key: PRNGKeyArray,
    progress: bool = False,
    *,
    scale: str = "small",
    updates: int | None = None,
    runs: Path | None = None,
) -> tuple[Figure, dict[str, Any]]:
    """AdaBregman over the convex function ψ and the interval 𝒦, on the same densities with the same chains.

    At 𝒦 = 1 all have the same gradient up to a factor, to which Adam is invariant. A run whose ratios overflow is
    reported as diverged.

    >>> figure, numbers = adaptive_psi(jax.random.key(0), scale="smoke")  # doctest: +SKIP
    """
    functions = {
        "logistic": Logistic(),
        "Kullback-Leibler": KullbackLeibler(),
        "squared": Squared(),
        "Itakura-Saito": ItakuraSaito(),
        "power 1/2": Power(0.5),
    }
    variants: Variants = {
        name: lambda interval, psi=psi: AdaBregman(psi, interval, **_CONVERGENT) for name, psi in functions.items()
    }
    return _compare(key, progress, scale, updates, variants, runs)


def adaptive_chains(
    key: PRNGKeyArray,
    progress: bool = False,
    *,
    scale: str = "small",
    updates: int | None = None,
    runs: Path | None = None,
) -> tuple[Figure, dict[str, Any]]:
    """AdaNCE with several kinds of chains: short-run Langevin from noise, with and without Langevin noise and momentum,
    against convergent chains (persistent MALA and HMC). The KL measures the bias in the learned density.

    Without its noise Langevin is gradient descent, which does not sample the model: the learned density is then not
    that of the data, however good the samples measure.

    >>> figure, numbers = adaptive_chains(jax.random.key(0), scale="smoke")  # doctest: +SKIP
    """
    kinds = {
        "Langevin, short": (Langevin(0.1), 20, from_noise()),
        "without noise": (Langevin(0.1, noise_scale=0.0), 20, from_noise()),
        "momentum, without noise": (GradientDescent(0.02, momentum=0.9), 20, from_noise()),
        "momentum and noise": (UnderdampedLangevin(0.3), 20, from_noise()),
        "MALA, convergent": (MALA(0.15), 20, persistent()),
        "HMC, convergent": (HMC(0.25, steps=5), 5, persistent()),
    }
    variants: Variants = {
        name: lambda interval, kind=kind: AdaNCE(interval, kind[0], kind[1], kind[2]) for name, kind in kinds.items()
    }
    return _compare(key, progress, scale, updates, variants, runs)


def updates_of(scale: str, updates: int | None) -> int:
    """The number of training updates: ``updates`` if given, otherwise that of the scale.

    >>> updates_of("smoke", None), updates_of("small", 7)
    (20, 7)
    """
    if scale not in _UPDATES:
        raise ValueError(f"expected a scale among {', '.join(_UPDATES)}, got {scale!r}; small takes minutes")
    return _UPDATES[scale] if updates is None else updates


@functools.cache
def optimizer_of(updates: int) -> optax.GradientTransformation:
    """One optimiser object for all runs of the same length, so that they share compiled programs."""
    return optax.adam(optax.cosine_decay_schedule(_RATE, updates))


def _compare(
    key: PRNGKeyArray, progress: bool, scale: str, updates: int | None, variants: Variants, runs: Path | None
) -> tuple[Figure, dict[str, Any]]:
    """Train every variant at every interval on every target: the KL during training, the time, a figure and a table."""
    steps, known = updates_of(scale, updates), targets()
    key_data, key_fit = jax.random.split(key)
    rows = []
    for place, target in enumerate(_TARGETS):
        data = known[target].sample(jax.random.fold_in(key_data, place), (_ROWS,))
        for name, make in variants.items():
            for interval in INTERVALS:
                # the same key for all, so that only the setting differs
                key_run = jax.random.clone(key_fit)
                own = {"target": target, "variant": name, "interval": interval}
                compute = functools.partial(_follow, key_run, known[target], data, make(interval), steps, progress)
                settings = own | _describe(key, steps)
                title = f"{target}-{name}-interval-{interval}".replace(" ", "-").replace("/", "-").replace(",", "")
                rows.append(own | result_of(runs, title, settings, compute).numbers)
    columns = ["target", "", "interval", "KL, nats", "ms an update", "seconds to 0.05 nats"]
    table = [
        [
            row["target"],
            row["variant"],
            str(row["interval"]),
            "diverged" if row["kl"] is None else f"{row['kl']:.4f}",
            "-" if row["milliseconds"] is None else f"{row['milliseconds']:.2f}",
            "-" if row["seconds_to_limit"] is None else f"{row['seconds_to_limit']:.1f}",
        ]
        for row in rows
    ]
    numbers = {"scale": scale, "updates": steps, "rows": rows, "table": {"columns": columns, "rows": table}}
    return _figure(rows, list(variants)), numbers


def _describe(key: PRNGKeyArray, updates: int) -> dict[str, Any]:
    from thalweg import __version__

    words = np.asarray(jax.random.key_data(key)).tolist()
    return {"rows": _ROWS, "batch": _BATCH, "rate": _RATE, "updates": updates, "key": words, "thalweg": __version__}


def _follow(
    key: PRNGKeyArray,
    density: HasSampler,
    data: Array,
    objective: Objective,
    updates: int,
    progress: bool,
    folder: Path | None,
) -> Result:
    """Train a model and measure its KL on the way; measurements and compilation do not count as training time."""
    clock = [time.perf_counter()]
    span = max(1, updates // _MEASUREMENTS)

    def measure(run: Run) -> dict[str, float]:
        spent = (time.perf_counter() - clock[0]) / span
        kl = float(_divergence(density, run.energy))
        clock[0] = time.perf_counter()
        return {"kl": kl, "seconds": spent}

    key_model, key_fit = jax.random.split(key)
    model = Confined(data, 64, key=key_model)
    options = {"optimizer": optimizer_of(updates), "batch_size": _BATCH, "ema": 0.99, "progress": progress}
    try:
        run = fit_in(
            folder, model, data, objective, steps=updates, key=key_fit, callbacks=[every(span, measure)], **options
        )
    except DivergedError:  # some ψ overflow where the ratios are large, which belongs in the table
        nothing = {"kl": None, "milliseconds": None, "seconds_to_limit": None, "seconds": [], "kl_on_the_way": []}
        return Result(nothing, {})
    divergences, spent = ([row[name] for row in run.evaluations] for name in ("kl", "seconds"))
    # the first interval includes compilation
    each = float(np.median(spent[1:])) if len(spent) > 1 else 0.0
    seconds = [each * span * (number + 1) for number in range(len(divergences))]
    reached = [at for at, kl in zip(seconds, divergences, strict=True) if kl <= 0.05]
    numbers = {
        "kl": divergences[-1] if np.isfinite(divergences[-1]) else None,
        "milliseconds": 1000 * each,
        "seconds_to_limit": reached[0] if reached else None,
        "seconds": seconds,
        "kl_on_the_way": [kl if np.isfinite(kl) else None for kl in divergences],
    }
    return Result(numbers, {})


@compiled
def _divergence(density: Energy, model: Energy) -> Array:
    """``KL(p‖p_θ)`` over a mesh that contains the mass of both."""
    points = jnp.asarray(square(_HALF, _NODES).reshape(-1, 2), jnp.float32)
    log_p, log_q = (jax.nn.log_softmax(-jax.lax.map(each, points, batch_size=8192)) for each in (density, model))
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q))


def _fastest(rows: list[dict[str, Any]]) -> str:
    """Which setting was first to reach 0.05 nats, over both targets."""
    totals: dict[tuple[str, int], list[Any]] = {}
    for row in rows:
        totals.setdefault((row["variant"], row["interval"]), []).append(row["seconds_to_limit"])
    arrived = {setting: sum(times) for setting, times in totals.items() if None not in times}
    if not arrived:
        return "no setting reached 0.05 nats on both targets"
    (variant, interval), seconds = min(arrived.items(), key=lambda item: item[1])
    usual = arrived.get(("fresh", 1))
    against = "" if usual is None else f"; fresh negatives at every update took {usual:.1f}"
    return f"{variant} negatives at interval {interval} reached 0.05 nats first, in {seconds:.1f} seconds{against}"


def _figure(rows: list[dict[str, Any]], names: list[str]) -> Figure:
    figure = canvas(11, 7.8)
    first, later = INTERVALS[0], INTERVALS[-2]
    for place, target in enumerate(_TARGETS):
        own = [row for row in rows if row["target"] == target]
        left = panel(figure, (2, 2, 2 * place + 1), title=f"{target}: final KL", x="interval", y="KL, nats")
        title = f"{target}: during training (dashed: interval {later})"
        right = panel(figure, (2, 2, 2 * place + 2), title=title, x="seconds", y="KL, nats")
        for name, colour in zip(names, _COLOURS, strict=False):
            ended = [row for row in own if row["variant"] == name and row["kl"] is not None]
            left.plot([row["interval"] for row in ended], [row["kl"] for row in ended], "o-", color=colour, label=name)
            for row in ended:
                if row["interval"] in (first, later):
                    dashes = "-" if row["interval"] == first else "--"
                    right.plot(row["seconds"], row["kl_on_the_way"], dashes, color=colour)
        for axes in (left, right):
            axes.set_yscale("log")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(names), frameon=False, fontsize=9)
    return figure
