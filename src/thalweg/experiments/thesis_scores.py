"""The thesis's Table 5.2 run anew: scores of images over the interval of AdaNCE, and why they fall.

Nathaniel Xu (2022), Self-Adapting Noise-Contrastive Estimation for Energy-Based Models, Tsinghua University.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.evaluate import DigitNetwork, InceptionNetwork, digit_network, image_scores
from thalweg.experiments.run_folders import Result, result_of
from thalweg.experiments.thesis_runs import (
    SIDE,
    Scale,
    compare_settings,
    describe,
    grids_of,
    samples_of,
    settings_of,
    train,
)

# Table 5.2: CIFAR-10, model C
PUBLISHED = {
    1: {"inception_score": 4.03, "frechet_distance": 147.82},
    5: {"inception_score": 3.74, "frechet_distance": 157.17},
    10: {"inception_score": 3.57, "frechet_distance": 165.42},
    20: {"inception_score": 3.45, "frechet_distance": 214.12},
    50: {"inception_score": 2.61, "frechet_distance": 310.54},
}
SCORES = ("inception_score", "frechet_distance")
METRICS = ("effective_share", "separation", "gap", "gap_turns", "v")


def table_5_2(
    key: PRNGKeyArray,
    progress: bool = False,
    *,
    scale: str = "small",
    data: str | None = None,
    updates: int | None = None,
    rate: float | None = None,
    seeds: int | None = None,
    runs: Path | None = None,
) -> tuple[Figure, dict[str, Any]]:
    """Inception score and Fréchet distance over the interval 𝒦 of AdaNCE: mean ± standard error over seeds, with the
    thesis's numbers beside them, and a grid of samples for every 𝒦 (its Table 5.2 and Figures 5.3-5.5).

    Beside the scores are what the intervals do to training, see `interval_metrics`. Every training is kept in a folder
    of its own under ``runs`` and is not repeated.

    >>> figure, numbers = table_5_2(jax.random.key(0), scale="smoke")  # doctest: +SKIP
    """
    settings, dataset = settings_of(scale, data, updates, rate, seeds)
    network = network_for(settings)
    real = dataset.x_test if dataset.x_test is not None else dataset.x_train
    results: dict[int, list[Result]] = {interval: [] for interval in settings.intervals}
    # seed by seed, so that a table that is stopped has whole columns
    for seed in range(settings.seeds):
        for interval in settings.intervals:
            key_train, key_samples = jax.random.split(jax.random.fold_in(key, seed))

            def compute(folder: Path | None, interval=interval, key_train=key_train, key_samples=key_samples) -> Result:
                own = {"interval": interval, "folder": folder, "progress": progress}
                run = train(key_train, dataset.x_train, settings, **own)
                drawn = samples_of(key_samples, run, settings, settings.samples, settings.steps)[:, 0]
                scores = image_scores(drawn, real[: settings.samples], network)
                return Result(scores | interval_metrics(run.history, interval), {"samples": drawn[: SIDE**2]})

            words = describe(
                jax.random.fold_in(key, seed),
                dataset.x_train,
                settings,
                interval=interval,
                samples=settings.samples,
                network=network.name,
            )
            results[interval].append(result_of(runs, f"interval-{interval}-seed-{seed}", words, compute))
    rows = [average_scores(interval, [each.numbers for each in found]) for interval, found in results.items()]
    numbers = {
        "scale": scale,
        "settings": settings._asdict(),
        "settings_table": compare_settings(
            settings,
            rejuvenation=("25 %", "25 %"),
            seeds=(settings.seeds, "not given"),
            samples=(settings.samples, "not given"),
        ),
        "network": network.name,
        "rows": rows,
        "verdict": judge_scores(rows),
        "table": _table(rows),
        "intervals_table": _table_of_intervals(rows),
    }
    return grids_of(
        {f"interval {interval}": found[0].arrays["samples"] for interval, found in results.items()}
    ), numbers


def interval_metrics(history: Mapping[str, np.ndarray], interval: int) -> dict[str, float]:
    """What the interval does to training, from the second half of it.

    ``effective_share``: the share of negatives that still counts when the frozen model stands for the model, right
    before it is frozen anew. ``separation``: there, the mean of ``E_m - E_θ`` of data less that of negatives, in nats:
    how far the classification of the interval is solved. ``gap``: mean energy of data less that of samples of a model
    right after its freezing, the mean of its absolute value; ``gap_turns``: how often it changes its sign from one
    freezing to the next, as a share. ``v``: the mean gradient along the chains.

    >>> ones = np.ones(8)
    >>> names = ("effective_share", "log_ratio_data", "log_ratio_samples", "gradient_norm")
    >>> history = {name: ones for name in names} | {"energy_gap": np.array([0, 1, 0, 1, -3, 1, 2, 1.0])}
    >>> metrics = interval_metrics(history, 2)
    >>> metrics["gap"], metrics["gap_turns"], metrics["separation"]
    (2.5, 1.0, 0.0)
    """
    count = len(history["energy_gap"])
    later = np.arange(count) >= count // 2
    frozen = later & (np.arange(count) % interval == 0)
    # before the first freezing of the second half where training is shorter than an interval
    oldest = later & (np.arange(count) % interval == min(interval, count) - 1)
    gap = history["energy_gap"][frozen]
    mean = lambda name, where: float(np.mean(history[name][where])) if where.any() else float("nan")
    return {
        "effective_share": mean("effective_share", oldest),
        "separation": mean("log_ratio_data", oldest) - mean("log_ratio_samples", oldest),
        "gap": float(np.mean(np.abs(gap))) if len(gap) else float("nan"),
        "gap_turns": float(np.mean(np.sign(gap[1:]) != np.sign(gap[:-1]))) if len(gap) > 1 else float("nan"),
        "v": mean("gradient_norm", later),
    }


def average_scores(interval: int, scores: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean over seeds and its standard error, beside what was published; no error is known of one seed."""
    row: dict[str, Any] = {"interval": interval, "seeds": len(scores)}
    for name in SCORES:
        values = np.array([score[name] for score in scores])
        row[name] = float(values.mean())
        row[f"{name}_error"] = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
        row[f"{name}_published"] = PUBLISHED[interval][name] if interval in PUBLISHED else None
    for name in METRICS:
        found = [score[name] for score in scores if score.get(name) is not None]
        row[name] = float(np.mean(found)) if found else None
    return row


def judge_scores(rows: Sequence[Mapping[str, Any]]) -> str:
    """Whether scores get worse with the interval, as they do in the thesis."""
    first, last = rows[0], rows[-1]
    said = []
    for name, better in (("inception_score", 1), ("frechet_distance", -1)):
        change = better * (first[name] - last[name])
        errors = first[f"{name}_error"], last[f"{name}_error"]
        if None in errors:
            words, error = "undecided", "one seed, so its error is not known"
        else:
            size = float(np.hypot(*errors))
            words = "agrees" if change > 2 * size else "disagrees" if change < -2 * size else "undecided"
            error = f"standard error of the difference {size:.2f}"
        said.append(
            f"{name.replace('_', ' ')} {first[name]:.2f} at interval {first['interval']} and {last[name]:.2f} at "
            f"{last['interval']} ({error}): {words} with the thesis, where longer intervals are worse"
        )
    return "; ".join(said)


def network_for(settings: Scale) -> DigitNetwork | InceptionNetwork:
    """Digits are judged by a classifier of digits, always the same one; other images by Inception."""
    if settings.data in ("digits", "mnist"):
        return digit_network(settings.data, key=jax.random.key(0), progress=True)
    return InceptionNetwork()


def _table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    def with_error(row: Mapping[str, Any], name: str) -> str:
        error = row[f"{name}_error"]
        return f"{row[name]:.2f}" + ("" if error is None else f" ± {error:.2f}")

    columns = ["interval", "IS", "Fréchet distance", "thesis: IS (CIFAR-10)", "FID (CIFAR-10)"]
    made = [
        [
            str(row["interval"]),
            with_error(row, "inception_score"),
            with_error(row, "frechet_distance"),
            str(row["inception_score_published"]),
            str(row["frechet_distance_published"]),
        ]
        for row in rows
    ]
    return {"columns": columns, "rows": made}


def _table_of_intervals(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    columns = ["interval", "effective share", "separation", "gap", "its turns", "v"]
    number = lambda value: "-" if value is None else f"{value:.2g}"
    return {
        "columns": columns,
        "rows": [[str(row["interval"]), *(number(row[name]) for name in METRICS)] for row in rows],
    }
