"""Scores of mixtures, exact and learned, and densities with added noise."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.data import skewed_mixture_energy
from thalweg.energies import GaussianMixture, ScoreMLP
from thalweg.experiments.compare import ks_distance, mixture_cdf
from thalweg.experiments.fields import draw_field, learn, relative_error, scores, square, values
from thalweg.noise import geometric_ladder
from thalweg.objectives import DenoisingScoreMatching, SlicedScoreMatching
from thalweg.report.figures import LIGHT, canvas, legend, panel

_WEIGHTS, _MEANS, _DEVIATIONS = (0.35, 0.4, 0.25), (-3.0, 0.5, 4.0), (0.8, 0.5, 1.1)
_HALF = 4.5  # the mixture in the plane has all but 1e-5 of its mass in [-4.5, 4.5]²
_SIGMA = 0.1  # of denoising score matching
_LEARNT = {"denoising": f"Denoising, σ = {_SIGMA:g}", "sliced": "Sliced"}


def _on_the_line() -> GaussianMixture:
    return GaussianMixture(jnp.array(_WEIGHTS), jnp.array(_MEANS)[:, None], jnp.array(_DEVIATIONS) ** 2)


def score_field(
    key: PRNGKeyArray, progress: bool = False, *, rows: int = 20_000, updates: int = 3000, width: int = 64
) -> tuple[Figure, dict[str, Any]]:
    """The scores of a 1-D and a 2-D mixture, compared with those that dense networks learn from samples by denoising
    and by sliced score matching.

    Numbers, for the line and the plane and both objectives: ``fisher``, the Fisher divergence ``½E‖s_θ - s‖²`` under
    the exact density, from fresh samples, and ``relative_error``, the same over ``½E‖s‖²``.

    >>> figure, numbers = score_field(jax.random.key(0), rows=600, updates=2, width=8)
    >>> sorted(numbers["plane"])
    ['denoising', 'fisher_information', 'sliced']
    """
    numbers: dict[str, Any] = {"rows": rows, "updates": updates, "sigma": _SIGMA}
    learned: dict[str, dict[str, Any]] = {}
    for place, (name, energy) in enumerate({"line": _on_the_line(), "plane": skewed_mixture_energy()}.items()):
        key_data, key_fresh, key_model, *keys = jax.random.split(jax.random.fold_in(key, place), 5)
        data = np.asarray(energy.sample(key_data, (rows,)))
        fresh = np.asarray(energy.sample(key_fresh, (rows,)))
        exact = scores(energy, fresh)
        information = float(np.mean(np.sum(exact**2, axis=-1)))
        numbers[name] = {"fisher_information": information}
        learned[name] = {}
        objectives = {"denoising": DenoisingScoreMatching(_SIGMA), "sliced": SlicedScoreMatching(1, "rademacher")}
        for (which, objective), key_fit in zip(objectives.items(), keys, strict=True):
            network = ScoreMLP(data.shape[1], width, key=jax.random.clone(key_model))  # both begin alike
            batch = min(512, rows)
            run = learn(key_fit, network, data, objective, updates=updates, batch_size=batch, progress=progress)
            error = relative_error(scores(run.energy, fresh), exact)
            numbers[name][which] = {"fisher": 0.5 * error * information, "relative_error": error}
            learned[name][which] = run.energy
    return _field_figure(learned, numbers), numbers


def _field_figure(learned: dict[str, dict[str, Any]], numbers: dict[str, Any]) -> Figure:
    figure = canvas(11, 7.4)
    grid = figure.add_gridspec(2, 1, height_ratios=[2.4, 3.4])
    line, x = _on_the_line(), np.linspace(-6.5, 8.5, 600)
    top = grid[0].subgridspec(1, 2)
    axes = panel(figure, top[0], title="A mixture on the line", x="x", y="density p(x)")
    axes.fill_between(x, np.exp(-values(line, x[:, None])), color=LIGHT.data, alpha=0.35, linewidth=0)
    axes.set_ylim(0)
    axes = panel(figure, top[1], title="Its score", x="x", y="∇ log p(x)")
    axes.plot(x, scores(line, x[:, None])[:, 0], color=LIGHT.ink, linewidth=2.2, label="exact")
    for (name, model), colour in zip(learned["line"].items(), (LIGHT.samples, LIGHT.held_out), strict=True):
        label = f"{name}, error {numbers['line'][name]['relative_error']:.3f}"
        axes.plot(x, scores(model, x[:, None])[:, 0], color=colour, linewidth=1.4, label=label)
    axes.axhline(0, color=LIGHT.muted, linewidth=0.8)
    legend(axes)
    plane, bottom = skewed_mixture_energy(), grid[1].subgridspec(1, 3)
    density = np.exp(-values(plane, square(_HALF, 200)))
    fields = {"exact": plane, **learned["plane"]}
    for place, (name, model) in enumerate(fields.items()):
        title = "Exact score in the plane"
        if name in _LEARNT:
            title = f"{_LEARNT[name]}: error {numbers['plane'][name]['relative_error']:.3f}"
        axes = panel(figure, bottom[place], title=title, x="x₁", y="x₂")
        draw_field(axes, _HALF, scores(model, square(_HALF, 19)), density)
    return figure


def noisy_marginals(
    key: PRNGKeyArray, progress: bool = False, *, rows: int = 20_000, levels: int = 6
) -> tuple[Figure, dict[str, Any]]:
    """The densities of mixtures with noise ``N(0, σ²I)`` added, over a geometric ladder of σ from 0.1 to 4.

    More noise leaves fewer modes, until a single one remains, where annealed Langevin starts. Numbers, for every σ: in
    1-D the number of ``modes``, the exact variance and that of noisy samples, and their Kolmogorov-Smirnov distance to
    the exact noisy distribution (for n samples about ``0.87/√n``); in 2-D the number of modes.

    >>> figure, numbers = noisy_marginals(jax.random.key(0), rows=1000, levels=3)
    >>> [row["modes"] for row in numbers["levels"]]
    [3, 3, 1]
    """
    line, plane = _on_the_line(), skewed_mixture_energy()
    key_data, key_noise = jax.random.split(key)
    data = np.asarray(line.sample(key_data, (rows,)), float)[:, 0]
    noise = np.asarray(jax.random.normal(key_noise, (rows,)), float)
    sigmas = np.asarray(geometric_ladder(4.0, 0.1, levels), float)[::-1]
    x, mesh = np.linspace(-12, 14, 1200), square(7.0, 160)
    rows_of, curves, maps = [], [], []
    for sigma in sigmas:
        curve = np.exp(-values(line.smoothed(jnp.asarray(sigma)), x[:, None]))
        flat = np.exp(-values(plane.smoothed(jnp.asarray(sigma)), mesh))
        spread = np.sqrt(np.square(_DEVIATIONS) + sigma**2)
        noisy = data + sigma * noise
        variance = float(np.asarray(line.covariance).item() + sigma**2)
        rows_of.append(
            {
                "sigma": float(sigma),
                "modes": _peaks_line(curve),
                "modes_plane": _peaks_plane(flat),
                "variance": variance,
                "variance_samples": float(noisy.var()),
                "ks": ks_distance(noisy, mixture_cdf(_WEIGHTS, _MEANS, spread)),
            }
        )
        curves.append(curve)
        maps.append(flat)
    numbers = {"rows": rows, "ks_of_independent": 0.87 / math.sqrt(rows), "levels": rows_of}
    return _marginal_figure(x, curves, maps, numbers), numbers


def _peaks_line(curve: np.ndarray) -> int:
    return int(np.sum((curve[1:-1] > curve[:-2]) & (curve[1:-1] > curve[2:])))


def _peaks_plane(density: np.ndarray) -> int:
    """The nodes of a mesh whose values exceed those of their eight neighbours."""
    inner, (rows, columns) = density[1:-1, 1:-1], density.shape
    around = [density[1 + i : rows - 1 + i, 1 + j : columns - 1 + j] for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
    return int(np.sum(np.all(inner > np.stack(around), axis=0)))


def _marginal_figure(
    x: np.ndarray, curves: list[np.ndarray], maps: list[np.ndarray], numbers: dict[str, Any]
) -> Figure:
    from matplotlib import colormaps

    levels = numbers["levels"]
    columns = min(len(levels), 6)
    figure = canvas(11, 6.2)
    grid = figure.add_gridspec(2, columns, height_ratios=[3.2, 2.0])
    axes = panel(figure, grid[0, :], title="A mixture on the line with noise N(0, σ²)", x="x", y="density")
    shades = colormaps["viridis"](np.linspace(0.0, 0.9, len(levels)))
    for row, curve, shade in zip(levels, curves, shades, strict=True):
        label = f"σ = {row['sigma']:.2g}, {row['modes']} mode{'s' if row['modes'] > 1 else ''}"
        axes.plot(x, curve, color=shade, linewidth=1.8, label=label)
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(0)
    legend(axes)
    # at most six maps, evenly through the ladder
    for place, i in enumerate(np.linspace(0, len(levels) - 1, columns).round().astype(int)):
        axes = panel(
            figure, grid[1, place], title=f"σ = {levels[i]['sigma']:.2g}", x="x₁", y="x₂" if place == 0 else ""
        )
        axes.imshow(maps[i], extent=(-7, 7, -7, 7), origin="lower", cmap="Blues", interpolation="bilinear")
        axes.grid(False)
    return figure
