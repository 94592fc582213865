"""Why longer intervals of AdaNCE are worse: one trained model, trained on over the learning rate and the interval.

It looks into Table 5.2 of Nathaniel Xu (2022), Self-Adapting Noise-Contrastive Estimation for Energy-Based Models,
Tsinghua University.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.evaluate import image_scores
from thalweg.experiments.run_folders import Result, folder_of, result_of
from thalweg.experiments.thesis_runs import compare_settings, describe, samples_of, settings_of, train
from thalweg.experiments.thesis_scores import interval_metrics, network_for
from thalweg.report.figures import LIGHT, canvas, legend, panel

RATES = (1e-5, 1e-4, 1e-3)
_COLOURS = (LIGHT.data, LIGHT.samples, LIGHT.held_out)


def interval_rates(
    key: PRNGKeyArray,
    progress: bool = False,
    *,
    scale: str = "small",
    data: str | None = None,
    updates: int | None = None,
    runs: Path | None = None,
) -> tuple[Figure, dict[str, Any]]:
    """A network trained at interval 1 is trained on for half as many updates, at three learning rates and every
    interval 𝒦: what becomes of its samples, and how far energies swing within an interval (`interval_metrics`).

    ``slopes`` are those of the logarithm of the swing (the separation right before a freezing) over the logarithms of
    𝒦 and of the rate, by least squares over 𝒦 > 1: equal ones would mean that only their product counts.

    >>> figure, numbers = interval_rates(jax.random.key(0), scale="smoke")  # doctest: +SKIP
    """
    settings, dataset = settings_of(scale, data, updates)
    network = network_for(settings)
    real = dataset.x_test if dataset.x_test is not None else dataset.x_train
    key_base, key_on, key_samples = jax.random.split(key, 3)
    words = describe(jax.random.clone(key_base), dataset.x_train, settings)
    folder = None if runs is None else folder_of(runs, "base", words)
    base = train(key_base, dataset.x_train, settings, folder=folder, progress=progress)
    further = settings._replace(updates=max(1, settings.updates // 2))
    rows = []
    for rate in RATES:
        for interval in settings.intervals:
            own = further._replace(rate=rate)

            def compute(folder: Path | None, own=own, interval=interval) -> Result:
                options = {"interval": interval, "folder": folder, "progress": progress}
                run = train(jax.random.clone(key_on), dataset.x_train, own, energy=base.last, **options)
                drawn = samples_of(jax.random.clone(key_samples), run, own, own.samples, own.steps)[:, 0]
                scores = image_scores(drawn, real[: own.samples], network)
                return Result(scores | interval_metrics(run.history, interval), {})

            also = {"interval": interval, "base": words, "samples": own.samples, "network": network.name}
            words_on = describe(jax.random.clone(key_on), dataset.x_train, own, **also)
            result = result_of(runs, f"rate-{rate:g}-interval-{interval}", words_on, compute)
            rows.append({"rate": rate, "interval": interval, **result.numbers})
    columns = ["rate", "interval", "IS", "Fréchet distance", "separation", "gap", "effective share", "v"]
    names = ("inception_score", "frechet_distance", "separation", "gap", "effective_share", "v")
    cell = lambda value: "-" if value is None or np.isnan(value) else f"{value:.3g}"
    table = [[f"{row['rate']:g}", str(row["interval"]), *(cell(row[name]) for name in names)] for row in rows]
    before = {"begun_at": (f"{settings.updates} updates, rate {settings.rate:g}, interval 1", "a new network")}
    shown = compare_settings(further._replace(rate=float("nan")), **before)
    shown["rows"][2][1] = ", ".join(f"{rate:g}" for rate in RATES)
    numbers = {
        "scale": scale,
        "settings": further._asdict() | {"rate": list(RATES)},
        "settings_table": shown,
        "network": network.name,
        "rows": rows,
        "slopes": slopes_of(rows),
        "table": {"columns": columns, "rows": table},
    }
    return _figure(rows), numbers


def slopes_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """``log separation = a + b log 𝒦 + c log rate`` by least squares over 𝒦 > 1; None where there is too little.

    >>> rows = [{"interval": k, "rate": r, "separation": k**2 * r} for k in (1, 5, 10) for r in (0.1, 0.01)]
    >>> {name: round(value, 3) for name, value in slopes_of(rows).items()}
    {'interval': 2.0, 'rate': 1.0}
    """
    used = [row for row in rows if row["interval"] > 1 and row["separation"] is not None and row["separation"] > 0]
    if len({row["interval"] for row in used}) < 2 or len({row["rate"] for row in used}) < 2:
        return None
    logs = np.log([[row["interval"], row["rate"], row["separation"]] for row in used])
    design = np.column_stack([np.ones(len(used)), logs[:, :2]])
    _, interval, rate = np.linalg.lstsq(design, logs[:, 2], rcond=None)[0]
    return {"interval": float(interval), "rate": float(rate)}


def _figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    figure = canvas(10, 4.2)
    places = figure.add_gridspec(1, 2)
    title = "How far energies swing within an interval"
    left = panel(figure, places[0], title=title, x="interval K", y="separation before a freezing, nats")
    title = "What becomes of the samples"
    right = panel(figure, places[1], title=title, x="rate × interval", y="Inception score")
    for rate, colour in zip(RATES, _COLOURS, strict=True):
        own = [row for row in rows if row["rate"] == rate]
        swings = [row for row in own if row["interval"] > 1 and row["separation"] is not None]
        style: dict[str, Any] = {"color": colour, "label": f"rate {rate:g}"}
        left.plot([row["interval"] for row in swings], [row["separation"] for row in swings], "o-", **style)
        right.plot([rate * row["interval"] for row in own], [row["inception_score"] for row in own], "o-", **style)
    intervals = sorted({row["interval"] for row in rows if row["interval"] > 1})
    for axes in (left, right):
        axes.set_xscale("log")
    left.set_xticks(intervals, [str(each) for each in intervals])
    left.minorticks_off()
    left.set_yscale("log")
    legend(left)
    return figure
