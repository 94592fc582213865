"""The thesis's image experiments: scores over the interval of AdaNCE, chains over the rejuvenation, the signal v."""

import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.evaluate import DigitNetwork, InceptionNetwork, class_scores, digit_network, image_scores
from thalweg.experiments.thesis_runs import NOISE, SIDE, Scale, grids_of, samples_of, settings_of, train
from thalweg.report.figures import LIGHT, canvas, legend, panel
from thalweg.train import DivergedError

# Table 5.2: CIFAR-10, model C
PUBLISHED = {
    1: {"inception_score": 4.03, "frechet_distance": 147.82},
    5: {"inception_score": 3.74, "frechet_distance": 157.17},
    10: {"inception_score": 3.57, "frechet_distance": 165.42},
    20: {"inception_score": 3.45, "frechet_distance": 214.12},
    50: {"inception_score": 2.61, "frechet_distance": 310.54},
}
_ROLLING = 20
_COLOURS = (LIGHT.data, LIGHT.samples, LIGHT.held_out, LIGHT.extra, LIGHT.muted)


def table_5_2(
    key: PRNGKeyArray,
    progress: bool = False,
    *,
    scale: str = "small",
    data: str | None = None,
    updates: int | None = None,
) -> tuple[Figure, dict[str, Any]]:
    """Inception score and Fréchet distance over the interval 𝒦 of AdaNCE: mean ± standard error over seeds, with the
    thesis's numbers beside them, and a grid of samples for every 𝒦 (its Table 5.2 and Figures 5.3-5.5).

    >>> from thalweg.experiments.thesis import table_5_2
    >>> figure, numbers = table_5_2(jax.random.key(0), scale="smoke")  # doctest: +SKIP
    """
    settings, dataset = settings_of(scale, data, updates)
    network = _network(settings)
    real = dataset.x_test if dataset.x_test is not None else dataset.x_train
    begun, rows, grids = time.perf_counter(), [], {}
    for interval in settings.intervals:
        scores = []
        for seed in range(settings.seeds):
            key_train, key_samples = jax.random.split(jax.random.fold_in(key, seed))
            run = train(key_train, dataset.x_train, settings, interval=interval, progress=progress)
            drawn = samples_of(key_samples, run, settings, settings.steps)
            scores.append(image_scores(drawn, real[: settings.samples], network))
            grids.setdefault(interval, drawn[: SIDE**2])
        rows.append(_scored(interval, scores))
    numbers = {
        "scale": scale,
        "settings": settings._asdict(),
        "network": network.name,
        "seconds": round(time.perf_counter() - begun, 1),
        "rows": rows,
        "verdict": _verdict(rows),
        "table": _table_of_scores(rows),
    }
    return grids_of({f"interval {interval}": images for interval, images in grids.items()}), numbers


def figure_3_1(
    key: PRNGKeyArray,
    progress: bool = False,
    *,
    scale: str = "small",
    data: str | None = None,
    updates: int | None = None,
) -> tuple[Figure, dict[str, Any]]:
    """Long-run samples over the rejuvenation R of the replay buffer: where chains from the buffer are after ten times
    the steps of training, how far the energies of images and of noise lie apart, and which classes are covered (the
    thesis's Figure 3.1: R = 0 learns a constant energy, R = 100 % collapses).

    >>> figure, numbers = figure_3_1(jax.random.key(0), scale="smoke")  # doctest: +SKIP
    """
    settings, dataset = settings_of(scale, data, updates)
    rows, grids = [], {}
    for share in settings.shares:
        # the same for every share, so that what differs is the share
        key_train, key_samples, key_noise = jax.random.split(jax.random.clone(key), 3)
        run = train(key_train, dataset.x_train, settings, rejuvenation=share, progress=progress)
        drawn = samples_of(key_samples, run, settings, settings.long * settings.steps)
        energies = {
            "data": np.asarray(jax.vmap(run.energy)(jnp.asarray(dataset.x_train[: settings.samples]))),
            "samples": np.asarray(jax.vmap(run.energy)(jnp.asarray(drawn))),
            "noise": np.asarray(jax.vmap(run.energy)(NOISE(key_noise, drawn.shape))),
        }
        classes = class_scores(drawn, dataset)
        rows.append(
            {
                "rejuvenation": share,
                "energy_spread_data": float(np.std(energies["data"])),
                "energy_noise_above_data": float(np.mean(energies["noise"]) - np.mean(energies["data"])),
                "energy_samples_above_data": float(np.mean(energies["samples"]) - np.mean(energies["data"])),
                "pixel_deviation": float(np.mean(np.std(drawn, axis=0))),
                "classes_covered": classes["classes_covered"],
                "mean_top_probability": classes["mean_top_probability"],
            }
        )
        grids[f"R = {share:.0%}"] = drawn[: SIDE**2]
    columns = ["R", "energy: noise - data", "samples - data", "spread of data", "classes", "sure to"]
    table = [
        [
            f"{row['rejuvenation']:.0%}",
            f"{row['energy_noise_above_data']:.3f}",
            f"{row['energy_samples_above_data']:.3f}",
            f"{row['energy_spread_data']:.3f}",
            str(row["classes_covered"]),
            f"{row['mean_top_probability']:.2f}",
        ]
        for row in rows
    ]
    numbers = {
        "scale": scale,
        "settings": settings._asdict(),
        "rows": rows,
        "verdict": _verdict_on_shares(rows),
        "table": {"columns": columns, "rows": table},
    }
    return grids_of(grids), numbers


def figure_3_2(
    key: PRNGKeyArray,
    progress: bool = False,
    *,
    scale: str = "small",
    data: str | None = None,
    updates: int | None = None,
) -> tuple[Figure, dict[str, Any]]:
    """The signal of instability v, the mean of ‖∇E‖₂ along the chains, over training without spectral normalisation,
    for every rejuvenation R (the thesis's Figure 3.2).

    >>> figure, numbers = figure_3_2(jax.random.key(0), scale="smoke")  # doctest: +SKIP
    """
    return _signals(key, progress, scale, data, updates, spectral_norm=False, shares=None)


def figure_3_3(
    key: PRNGKeyArray,
    progress: bool = False,
    *,
    scale: str = "small",
    data: str | None = None,
    updates: int | None = None,
) -> tuple[Figure, dict[str, Any]]:
    """The same with spectral normalisation, at R = 50 % and 100 % (the thesis's Figure 3.3).

    >>> figure, numbers = figure_3_3(jax.random.key(0), scale="smoke")  # doctest: +SKIP
    """
    return _signals(key, progress, scale, data, updates, spectral_norm=True, shares=(0.5, 1.0))


def _network(settings: Scale) -> DigitNetwork | InceptionNetwork:
    """Digits are judged by a classifier of digits, always the same one; other images by Inception."""
    if settings.data in ("digits", "mnist"):
        return digit_network(settings.data, key=jax.random.key(0), progress=True)
    return InceptionNetwork()


def _scored(interval: int, scores: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The mean over seeds and its standard error, beside what was published."""
    row: dict[str, Any] = {"interval": interval, "seeds": len(scores)}
    for name in ("inception_score", "frechet_distance"):
        values = np.array([score[name] for score in scores])
        row[name] = float(values.mean())
        row[f"{name}_error"] = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
        row[f"{name}_published"] = PUBLISHED[interval][name] if interval in PUBLISHED else None
    return row


def _verdict(rows: Sequence[dict[str, Any]]) -> str:
    """Whether scores get worse with the interval, as they do in the thesis."""
    first, last = rows[0], rows[-1]
    said = []
    for name, better in (("inception_score", 1), ("frechet_distance", -1)):
        change = better * (first[name] - last[name])
        error = np.hypot(first[f"{name}_error"] or 0.0, last[f"{name}_error"] or 0.0)
        words = "agrees" if change > 2 * error else "disagrees" if change < -2 * error else "undecided"
        said.append(
            f"{name.replace('_', ' ')} {first[name]:.2f} at interval {first['interval']} and {last[name]:.2f} at "
            f"{last['interval']} (standard error of the difference {error:.2f}): {words} with the thesis, where longer "
            "intervals are worse"
        )
    return "; ".join(said)


def _verdict_on_shares(rows: Sequence[dict[str, Any]]) -> str:
    """Whether R = 0 learns a constant, and whether long chains collapse at R = 100 % and not between."""
    by_share = {row["rejuvenation"]: row for row in rows}
    none, all_, between = by_share[0.0], by_share[1.0], [row for row in rows if 0 < row["rejuvenation"] < 1]
    usual = float(np.median([row["energy_noise_above_data"] for row in between]))
    flat = abs(none["energy_noise_above_data"]) < 0.25 * usual
    covered = min(row["classes_covered"] for row in between)
    collapsed = all_["classes_covered"] < covered
    return (
        f"R = 0 %: noise lies {none['energy_noise_above_data']:.3g} above data in energy, {usual:.3g} for R between: "
        f"{_agreement(flat)} with the thesis, where the energy is constant; R = 100 %: {all_['classes_covered']} "
        f"classes after long chains, at least {covered} for R between: {_agreement(collapsed)} with the thesis, where "
        "they collapse"
    )


def _verdict_on_signals(rows: Sequence[dict[str, Any]], spectral_norm: bool) -> str:
    """Whether v keeps growing without spectral normalisation, and stays with it."""
    said = []
    for row in rows:
        growth = row["v_largest_last_tenth"] / row["v_middle"]
        grows = not np.isfinite(growth) or row["updates_not_finite"] > 0 or growth > 2
        words = f"{growth:.2g} times its value halfway" if np.isfinite(growth) else "not finite"
        said.append(f"R = {row['rejuvenation']:.0%}: v at the end {words}: {_agreement(grows != spectral_norm)}")
    thesis = "stays about constant" if spectral_norm else "grows without end"
    return "; ".join(said) + f" with the thesis, where it {thesis}"


def _agreement(holds: bool) -> str:
    return "agrees" if holds else "disagrees"


def _table_of_scores(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    def with_error(row, name):
        error = row[f"{name}_error"]
        return f"{row[name]:.2f}" + ("" if error is None else f" ± {error:.2f}")

    columns = ["interval", "IS", "Fréchet distance", "thesis: IS (CIFAR-10)", "thesis: FID (CIFAR-10)"]
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


def _signals(
    key: PRNGKeyArray,
    progress: bool,
    scale: str,
    data: str | None,
    updates: int | None,
    spectral_norm: bool,
    shares: tuple[float, ...] | None,
) -> tuple[Figure, dict[str, Any]]:
    settings, dataset = settings_of(scale, data, updates)
    shares = settings.shares if shares is None else shares
    figure = canvas(7.5, 4.5)
    with_norm = "with" if spectral_norm else "without"
    title = f"Gradient along the chains, {with_norm} spectral normalisation"
    axes = panel(figure, figure.add_gridspec(1, 1)[0], title=title, x="update", y="v, mean of ‖∇E‖₂")
    rows = []
    for place, share in enumerate(shares):
        options = {"rejuvenation": share, "spectral_norm": spectral_norm, "progress": progress}
        signal = _signal(jax.random.clone(key), dataset.x_train, settings, **options)
        tenth = max(1, len(signal) // 10)
        rows.append(
            {
                "rejuvenation": share,
                "v_first": float(signal[:tenth].mean()),
                "v_last": float(signal[-tenth:].mean()),
                "v_middle": float(np.median(signal[len(signal) * 4 // 10 : len(signal) * 6 // 10 + 1])),
                "v_largest_last_tenth": float(signal[-tenth:].max()),
                "v_largest": float(signal.max()),
                "updates_not_finite": settings.updates - len(signal),
                "v_every_10": signal[9::10].tolist(),
            }
        )
        width = max(1, min(_ROLLING, len(signal) // 5))
        running = np.convolve(signal, np.ones(width) / width, mode="valid")
        style = {"color": _COLOURS[place], "linewidth": 1.5, "label": f"R = {share:.0%}"}
        axes.plot(np.arange(len(running)) + width, running, **style)
    axes.set_yscale("log")
    legend(axes)
    columns = ["R", "v, first tenth", "v, last tenth", "largest", "not finite"]
    table = [
        [
            f"{row['rejuvenation']:.0%}",
            f"{row['v_first']:.3g}",
            f"{row['v_last']:.3g}",
            f"{row['v_largest']:.3g}",
            str(row["updates_not_finite"]),
        ]
        for row in rows
    ]
    numbers = {"scale": scale, "settings": settings._asdict(), "spectral_norm": spectral_norm, "rows": rows}
    numbers["verdict"] = _verdict_on_signals(rows, spectral_norm)
    return figure, numbers | {"table": {"columns": columns, "rows": table}}


def _signal(key: PRNGKeyArray, x: np.ndarray, settings: Scale, **options: Any) -> np.ndarray:
    """v at every update up to where it or the loss is no longer finite, which belongs in the figure."""
    try:
        history = train(key, x, settings, **options).history
    except DivergedError as problem:
        history = problem.history
    signal = history["gradient_norm"]
    return signal[np.cumprod(np.isfinite(signal)).astype(bool)]
