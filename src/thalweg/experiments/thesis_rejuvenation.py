"""The thesis's Figure 3.1 run anew: where chains of several thousand steps end, over the rejuvenation of the buffer.

Nathaniel Xu (2022), Self-Adapting Noise-Contrastive Estimation for Energy-Based Models, Tsinghua University.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.data import Dataset
from thalweg.evaluate import class_scores
from thalweg.experiments.run_folders import Result, result_of
from thalweg.experiments.thesis_runs import (
    NOISE,
    SIDE,
    STEP_NOISE,
    compare_settings,
    describe,
    grids_of,
    samples_of,
    settings_of,
    train,
)

_MOMENTS = 10  # the chains are looked at so often, and compared halfway and at the end
_FLAT, _STEEP = (
    0.25,
    0.5,
)  # of the usual gap between noise and data: below the one an energy is flat, above the other not
_COLLAPSED, _WHOLE = 0.5, 0.75  # of the classes usual: below the one chains have collapsed, above the other not
_STEADY = 0.1  # of the spread of energies


def figure_3_1(
    key: PRNGKeyArray,
    progress: bool = False,
    *,
    scale: str = "small",
    data: str | None = None,
    updates: int | None = None,
    rate: float | None = None,
    runs: Path | None = None,
) -> tuple[Figure, dict[str, Any]]:
    """Long-run samples over the rejuvenation R of the replay buffer (the thesis's Figure 3.1: R = 0 learns a constant
    energy, R = 100 % collapses; its §3.2.1: so does R = 5 %, and 10 to 25 % work).

    Chains go on from the buffer for several thousand steps. What they leave is set to the data's range, since the
    energy of a pixel far outside says nothing about the image that is seen: see `measure_chains` for what is measured.
    Where the data have no class labels, none are counted.

    >>> figure, numbers = figure_3_1(jax.random.key(0), scale="smoke")  # doctest: +SKIP
    """
    settings, dataset = settings_of(scale, data, updates, rate)
    rows, grids = [], {}
    for share in settings.shares:

        def compute(folder: Path | None, share=share) -> Result:
            # the same for every share, so that what differs is the share
            key_train, key_samples, key_noise = jax.random.split(jax.random.clone(key), 3)
            options = {"rejuvenation": share, "folder": folder, "progress": progress}
            run = train(key_train, dataset.x_train, settings, **options)
            count, thin = min(settings.long_chains, settings.buffer), max(1, settings.long_steps // _MOMENTS)
            drawn = samples_of(key_samples, run, settings, count, thin, _MOMENTS)
            noise = np.asarray(NOISE(key_noise, drawn[:, 0].shape))
            measured = measure_chains(run.energy, drawn, noise, dataset)
            return Result(measured, {"samples": drawn[: SIDE**2, -1]})

        length = {"chains": settings.long_chains, "long_steps": settings.long_steps}
        words = describe(jax.random.clone(key), dataset.x_train, settings, rejuvenation=share, **length)
        result = result_of(runs, f"rejuvenation-{100 * share:g}", words, compute)
        effective = effective_classes(result.numbers["class_shares"])
        rows.append({"rejuvenation": share, **result.numbers, "classes_effective": effective})
        grids[f"R = {share:.0%}"] = result.arrays["samples"]
    long_run = (f"{settings.long_chains} chains, {settings.long_steps} steps", "several thousand steps")
    numbers = {
        "scale": scale,
        "settings": settings._asdict(),
        "settings_table": compare_settings(settings, long_run=long_run),
        "rows": rows,
        "verdict": judge_shares(rows),
        "table": _table(rows),
    }
    return grids_of(grids), numbers


def measure_chains(energy: Any, drawn: np.ndarray, noise: np.ndarray, dataset: Dataset) -> dict[str, Any]:
    """What long chains have come to, on their images set to the data's range.

    Args:
        energy: the model.
        drawn: ``(chains, moments, *image)``, states of the chains at even distances, the last at the end.
        noise: ``(chains, *image)``.
        dataset: real images, with a class each or without.

    Returns:
        Energies: of noise and of samples above that of data, on average, and the ``energy_spread`` (standard deviation)
        of samples and of data. ``energy_drift``: the change of the samples' mean energy from halfway to the end;
        ``steady`` where that is less than a tenth of their spread. ``outside``: the share of pixels outside the data's
        range before they are set to it. ``stuck``: the share of chains whose images have moved by less than the noise
        of one step since halfway (root mean square over pixels), or have all pixels at the ends of the range.
        ``deviation``: the standard deviation over chains, a mean over pixels, as a multiple of that of data.
        ``classes_covered`` and ``mean_top_probability`` as in `class_scores`, None without class labels.
    """
    real = np.asarray(dataset.x_train)
    low, high = float(real.min()), float(real.max())
    clipped = np.clip(drawn, low, high)
    end, half = clipped[:, -1], clipped[:, clipped.shape[1] // 2 - 1]
    pixels = tuple(range(1, end.ndim))
    value = lambda x: np.asarray(jax.lax.map(energy, jnp.asarray(x), batch_size=256))
    of_data, of_noise, of_end, of_half = (value(x) for x in (real[: len(end)], noise, end, half))
    moved = np.sqrt(np.mean((end - half) ** 2, axis=pixels))
    saturated = np.all((end == low) | (end == high), axis=pixels)
    spread, drift = float(np.std(of_end)), float(np.mean(of_end) - np.mean(of_half))
    classes = class_scores(end, dataset) if _has_classes(dataset) else {}
    return {
        "energy_noise_above_data": float(np.mean(of_noise) - np.mean(of_data)),
        "energy_samples_above_data": float(np.mean(of_end) - np.mean(of_data)),
        "energy_spread_data": float(np.std(of_data)),
        "energy_spread_samples": spread,
        "energy_drift": drift,
        "steady": abs(drift) <= _STEADY * spread,
        "outside": float(np.mean((drawn[:, -1] < low) | (drawn[:, -1] > high))),
        "stuck": float(np.mean((moved < STEP_NOISE) | saturated)),
        "moved": float(np.mean(moved)),
        "deviation": float(np.mean(np.std(end, axis=0)) / np.mean(np.std(real, axis=0))),
        "classes": classes.get("classes"),
        "classes_covered": classes.get("classes_covered"),
        "class_shares": classes.get("class_shares"),
        "mean_top_probability": classes.get("mean_top_probability"),
    }


def effective_classes(shares: Sequence[float] | None) -> float | None:
    """The exponential of the entropy of class shares: as many equal classes would have it.

    >>> effective_classes([0.5, 0.5, 0.0]).__round__(6)
    2.0
    """
    if shares is None:
        return None
    share = np.array([each for each in shares if each > 0])
    return float(np.exp(-np.sum(share * np.log(share))))


def _has_classes(dataset: Dataset) -> bool:
    """Whether every image has one class; the attributes of CelebA, several an image, are none."""
    return dataset.y_train is not None and np.ndim(dataset.y_train) == 1


def judge_shares(rows: Sequence[Mapping[str, Any]]) -> str:
    """Whether R = 0 and R = 5 % learn a constant, and whether long chains collapse at R = 100 % and not between.

    An energy is constant where noise lies less than a quarter as far above data as it does for R from 10 to 50 % (their
    median); with more than half it is not. Chains have collapsed where the classes that they cover, or the
    `effective_classes` that they spread over, are less than half of the fewest for R between (without classes: where
    their images differ less than half as much). They have not where both are more than three quarters: among a few
    hundred chains a rare class may be missing by chance.
    """
    by_share = {row["rejuvenation"]: row for row in rows}
    between = [row for row in rows if 0.1 <= row["rejuvenation"] <= 0.5]
    usual = float(np.median([row["energy_noise_above_data"] for row in between]))
    said = []
    for share in (0.0, 0.05):
        if share in by_share:
            gap = by_share[share]["energy_noise_above_data"]
            flat, steep = abs(gap) < _FLAT * usual, abs(gap) > _STEEP * usual
            said.append(
                f"R = {share:.0%}: noise lies {gap:.3g} above data in energy, {usual:.3g} for R from 10 to 50 %: "
                f"{_word(flat, steep)} with the thesis, where the energy is constant"
            )
    full = by_share[1.0]
    if full["classes_covered"] is None:
        spread = [row["deviation"] for row in between]
        words = f"{full['deviation']:.2f} times the data's deviation"
        usual = f"{min(spread):.2f} to {max(spread):.2f}"
        least = full["deviation"] / min(spread)
    else:
        covered, spread = ([row[name] for row in between] for name in ("classes_covered", "classes_effective"))
        words = f"{full['classes_covered']} classes, effectively {full['classes_effective']:.1f},"
        usual = f"{min(covered)} to {max(covered)}, effectively {min(spread):.1f} to {max(spread):.1f},"
        # where the others cover nothing either, nothing is to be seen
        share = full["classes_covered"] / min(covered) if min(covered) > 0 else np.nan
        least = np.minimum(share, full["classes_effective"] / min(spread))
    state = f"{'steady' if full['steady'] else 'not yet steady'}, {full['stuck']:.0%} of them stuck"
    verdict = _word(least < _COLLAPSED, least > _WHOLE)
    said.append(
        f"R = 100 %: {words} after long chains ({state}), {usual} for R from 10 to 50 %: {verdict} with the thesis, "
        "where they collapse"
    )
    return "; ".join(said)


def _word(agrees: bool | np.bool_, disagrees: bool | np.bool_) -> str:
    return "agrees" if agrees else "disagrees" if disagrees else "undecided"


def _table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    columns = [
        "R",
        "noise - data",
        "samples - data",
        "spread: data",
        "samples",
        "drift",
        "outside",
        "stuck",
        "deviation",
    ]

    def cells(row: Mapping[str, Any]) -> list[str]:
        names = ("energy_noise_above_data", "energy_samples_above_data", "energy_spread_data", "energy_spread_samples")
        covered = row["classes_covered"]
        return [
            f"{row['rejuvenation']:.0%}",
            *(f"{row[name]:.3f}" for name in names),
            f"{row['energy_drift']:.3f}" + ("" if row["steady"] else " (not steady)"),
            f"{row['outside']:.0%}",
            f"{row['stuck']:.0%}",
            f"{row['deviation']:.2f}",
            "no labels" if covered is None else f"{covered}, effectively {row['classes_effective']:.1f}",
        ]

    return {"columns": [*columns, "classes"], "rows": [cells(row) for row in rows]}
