"""The thesis's Figures 3.2 and 3.3 run anew: the gradient along the chains while a network is trained.

Nathaniel Xu (2022), Self-Adapting Noise-Contrastive Estimation for Energy-Based Models, Tsinghua University.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib import colormaps
from matplotlib.figure import Figure

from thalweg.experiments.run_folders import Result, result_of
from thalweg.experiments.thesis_runs import compare_settings, describe, settings_of, train
from thalweg.report.figures import canvas, legend, panel
from thalweg.train import DivergedError

_ROLLING = 20
GROWS, STAYS = 2.0, 1.25  # v at the end over v halfway: above the one it grows, below the other it stays


def figure_3_2(
    key: PRNGKeyArray,
    progress: bool = False,
    *,
    scale: str = "small",
    data: str | None = None,
    updates: int | None = None,
    rate: float | None = None,
    runs: Path | None = None,
) -> tuple[Figure, dict[str, Any]]:
    """The signal of instability v, the mean of ‖∇E‖₂ along the chains, over training without spectral normalisation,
    for every rejuvenation R (the thesis's Figure 3.2).

    >>> figure, numbers = figure_3_2(jax.random.key(0), scale="smoke")  # doctest: +SKIP
    """
    return _signals(key, progress, scale, data, updates, rate, runs, spectral_norm=False, shares=None)


def figure_3_3(
    key: PRNGKeyArray,
    progress: bool = False,
    *,
    scale: str = "small",
    data: str | None = None,
    updates: int | None = None,
    rate: float | None = None,
    runs: Path | None = None,
) -> tuple[Figure, dict[str, Any]]:
    """The same with spectral normalisation, at R = 50 % and 100 % (the thesis's Figure 3.3).

    >>> figure, numbers = figure_3_3(jax.random.key(0), scale="smoke")  # doctest: +SKIP
    """
    return _signals(key, progress, scale, data, updates, rate, runs, spectral_norm=True, shares=(0.5, 1.0))


def judge_signals(rows: Sequence[Mapping[str, Any]], spectral_norm: bool) -> str:
    """Whether v keeps growing without spectral normalisation, and stays with it."""
    said = []
    for row in rows:
        growth = row["v_last"] / row["v_middle"]
        grows = row["updates_not_finite"] > 0 or growth > GROWS
        if row["updates_not_finite"] > 0:
            words = f"not finite after {row['updates_finite']} updates"
        else:
            words = f"after {row['updates_finite']} updates {growth:.2g} times its value halfway"
        verdict = "undecided"
        if grows or growth < STAYS:
            verdict = "agrees" if grows != spectral_norm else "disagrees"
        said.append(f"R = {row['rejuvenation']:.0%}: v {words}: {verdict}")
    thesis = "stays about constant" if spectral_norm else "grows without end"
    return "; ".join(said) + f" with the thesis, where it {thesis}"


def _signals(
    key: PRNGKeyArray,
    progress: bool,
    scale: str,
    data: str | None,
    updates: int | None,
    rate: float | None,
    runs: Path | None,
    spectral_norm: bool,
    shares: tuple[float, ...] | None,
) -> tuple[Figure, dict[str, Any]]:
    settings, dataset = settings_of(scale, data, updates, rate)
    shares = settings.shares if shares is None else shares
    figure = canvas(7.5, 4.5)
    with_norm = "with" if spectral_norm else "without"
    title = f"Gradient along the chains, {with_norm} spectral normalisation"
    axes = panel(figure, figure.add_gridspec(1, 1)[0], title=title, x="update", y="v, mean of ‖∇E‖₂")
    rows = []
    for place, share in enumerate(shares):
        options = {"rejuvenation": share, "spectral_norm": spectral_norm}

        def compute(folder: Path | None, options=options) -> Result:
            try:
                own = jax.random.clone(key)  # the same for every share, so that what differs is the share
                history = train(own, dataset.x_train, settings, folder=folder, progress=progress, **options).history
            except DivergedError as problem:  # up to there, which belongs in the figure
                history = problem.history
            signal = np.asarray(history["gradient_norm"])
            return Result({}, {"v": signal[np.cumprod(np.isfinite(signal)).astype(bool)]})

        words = describe(jax.random.clone(key), dataset.x_train, settings, **options)
        signal = result_of(runs, f"rejuvenation-{100 * share:g}", words, compute).arrays["v"]
        rows.append(_row(share, signal, settings.updates))
        width = max(1, min(_ROLLING, len(signal) // 5))
        running = np.convolve(signal, np.ones(width) / width, mode="valid")
        colour = colormaps["viridis"](0.9 * place / max(1, len(shares) - 1))
        axes.plot(np.arange(len(running)) + width, running, color=colour, linewidth=1.5, label=f"R = {share:.0%}")
    axes.set_yscale("log")
    legend(axes)
    columns = ["R", "v, first tenth", "v, halfway", "v, last tenth", "largest", "finite updates"]
    names = ("v_first", "v_middle", "v_last", "v_largest")
    table = [
        [f"{row['rejuvenation']:.0%}", *(f"{row[name]:.3g}" for name in names), str(row["updates_finite"])]
        for row in rows
    ]
    normalised = ("yes", "yes") if spectral_norm else ("no", "no")
    numbers = {
        "scale": scale,
        "settings": settings._asdict(),
        "settings_table": compare_settings(settings, spectral_normalisation=normalised),
        "spectral_norm": spectral_norm,
        "rows": rows,
        "verdict": judge_signals(rows, spectral_norm),
        "table": {"columns": columns, "rows": table},
    }
    return figure, numbers


def _row(share: float, signal: np.ndarray, updates: int) -> dict[str, Any]:
    tenth = max(1, len(signal) // 10)
    return {
        "rejuvenation": share,
        "v_first": float(signal[:tenth].mean()),
        "v_middle": float(np.median(signal[len(signal) * 4 // 10 : len(signal) * 6 // 10 + 1])),
        "v_last": float(signal[-tenth:].mean()),
        "v_largest": float(signal.max()),
        "updates_finite": len(signal),
        "updates_not_finite": updates - len(signal),
        "v_every_10": signal[9::10].tolist(),
    }
