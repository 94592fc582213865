"""Where score matching fails: data on a curve, and regions without data."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from thalweg.energies import GaussianMixture, ScoreMLP
from thalweg.experiments.fields import draw_field, learn, relative_error, scores, square, values
from thalweg.objectives import SlicedScoreMatching
from thalweg.report.figures import LIGHT, canvas, legend, panel

_VARIANCE = 1e-4  # of the noise that helps
_WEIGHTS, _CENTRES = (0.8, 0.2), ((5.0, 5.0), (-5.0, -5.0))
_HALF = 8.0


def manifold_hypothesis(
    key: PRNGKeyArray, progress: bool = False, *, rows: int = 20_000, updates: int = 3000, width: int = 64
) -> tuple[Figure, dict[str, Any]]:
    r"""Sliced score matching on points of the unit circle in the plane, as they are and with noise ``N(0, 1e-4·I)``.

    A density on a curve has no score across the curve: the loss is unbounded below, and it keeps falling for as long as
    a network is trained. With noise there is a density, and the loss cannot fall below ``-½E‖∇log p‖²``, about
    ``-1/(2·1e-4) = -5000``, since one of two directions is across the curve. Reference: Song and Ermon (2019), NeurIPS,
    §3.2.1.

    Numbers, with and without noise: ``loss_end``, the mean loss of the last tenth; ``fall``, how much lower that is
    than the tenth in the middle of training; ``fluctuation``, the interquartile range of the loss over the last tenth;
    ``floor``, the lowest possible loss with noise.

    >>> figure, numbers = manifold_hypothesis(jax.random.key(0), rows=500, updates=20, width=8)
    >>> round(numbers["floor"])
    -5000
    """
    key_data, key_noise, key_model, key_fit = jax.random.split(key, 4)
    angle = 2 * np.pi * np.asarray(jax.random.uniform(key_data, (rows,)))
    curve = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    noise = np.sqrt(_VARIANCE) * np.asarray(jax.random.normal(key_noise, (rows, 2)))
    losses = {}
    for name, data in {"without": curve, "with": curve + noise}.items():
        # both begin alike and see the same batches
        network = ScoreMLP(2, width, 3, key=jax.random.clone(key_model))
        key_run = jax.random.clone(key_fit)
        objective = SlicedScoreMatching(1, "sphere")
        batch = min(512, rows)
        # a constant rate: a loss without a minimum shows only if the network can keep moving
        run = learn(key_run, network, data, objective, updates=updates, batch_size=batch, cool=False, progress=progress)
        losses[name] = run.history["loss"]
    tenth = max(1, updates // 10)
    numbers: dict[str, Any] = {"updates": updates, "variance": _VARIANCE, "floor": -0.5 / _VARIANCE}
    for name, loss in losses.items():
        end, middle = loss[-tenth:], loss[updates // 2 - tenth // 2 :][:tenth]
        low, high = np.quantile(end, (0.25, 0.75))
        numbers[name] = {
            "loss_end": float(end.mean()),
            "fall": float(middle.mean() - end.mean()),
            "fluctuation": float(high - low),
        }
    return _manifold_figure(losses, curve, curve + noise, numbers), numbers


def _manifold_figure(
    losses: dict[str, np.ndarray], curve: np.ndarray, noisy: np.ndarray, numbers: dict[str, Any]
) -> Figure:
    figure = canvas(11, 4.2)
    grid = figure.add_gridspec(1, 2, width_ratios=[2.2, 1.0])
    axes = panel(figure, grid[0], title="Sliced score matching on a circle", x="update", y="loss (symmetric log)")
    names = {"without": ("without noise", LIGHT.samples), "with": ("with noise N(0, 1e-4)", LIGHT.data)}
    for name, (label, colour) in names.items():
        axes.plot(np.arange(1, len(losses[name]) + 1), losses[name], color=colour, linewidth=0.9, label=label)
    axes.axhline(numbers["floor"], color=LIGHT.ink, linewidth=1.2, linestyle="--", label="lowest possible with noise")
    axes.set_yscale("symlog", linthresh=10.0)
    axes.set_ylim(top=30.0)
    legend(axes, loc="upper right")
    axes = panel(figure, grid[1], title="The data, a piece of it", x="x₁", y="x₂")
    axes.scatter(*noisy.T, s=5, color=LIGHT.data, alpha=0.5, linewidths=0, label="with noise")
    axes.scatter(*curve.T, s=3, color=LIGHT.samples, linewidths=0, label="without")
    axes.set_xlim(0.6, 0.82)
    axes.set_ylim(0.6, 0.82)
    axes.set_aspect("equal")
    legend(axes, loc="upper right", markerscale=3)
    return figure


def low_density_score(
    key: PRNGKeyArray, progress: bool = False, *, rows: int = 20_000, updates: int = 3000, width: int = 64
) -> tuple[Figure, dict[str, Any]]:
    """The score of ``0.8 N((5,5), I) + 0.2 N((-5,-5), I)`` learned by sliced score matching, and its error against the
    density: small where there are data, large where there are none.

    Numbers: the ``relative_error`` ``E‖s_θ - s‖²/E‖s‖²`` under the data, and over an even mesh of ``[-8, 8]²``; the
    same for every tenth of the mesh by density, from the least dense to the densest, with the densities that bound it
    and the share of the data in it. Reference: Song and Ermon (2019), NeurIPS, §3.2.2 and figure 2.

    >>> figure, numbers = low_density_score(jax.random.key(0), rows=500, updates=5, width=8)
    >>> len(numbers["deciles"])
    10
    """
    key_data, key_fresh, key_model, key_fit = jax.random.split(key, 4)
    energy = GaussianMixture(jnp.array(_WEIGHTS), jnp.array(_CENTRES), 1.0)
    data, fresh = (np.asarray(energy.sample(each, (rows,))) for each in (key_data, key_fresh))
    network = ScoreMLP(2, width, key=key_model)
    objective = SlicedScoreMatching(1, "rademacher")
    run = learn(key_fit, network, data, objective, updates=updates, batch_size=min(512, rows), progress=progress)
    mesh = square(_HALF, 161)
    exact, learned = scores(energy, mesh), scores(run.energy, mesh)
    log_p = -values(energy, mesh)
    edges = np.quantile(log_p, np.linspace(0, 1, 11))
    which = np.clip(np.searchsorted(edges, log_p, side="right") - 1, 0, 9)
    of_data = np.clip(np.searchsorted(edges, -values(energy, fresh), side="right") - 1, 0, 9)
    deciles = [
        {
            "log_density": [float(edges[i]), float(edges[i + 1])],
            "relative_error": relative_error(learned[which == i], exact[which == i]),
            "error": float(np.sqrt(np.mean(np.sum((learned - exact)[which == i] ** 2, axis=-1)))),
            "data_share": float(np.mean(of_data == i)),
        }
        for i in range(10)
    ]
    numbers = {
        "rows": rows,
        "updates": updates,
        "relative_error_data": relative_error(scores(run.energy, fresh), scores(energy, fresh)),
        "relative_error_mesh": relative_error(learned, exact),
        "deciles": deciles,
    }
    return _density_figure(energy, run.energy, mesh, exact, learned, numbers), numbers


def _density_figure(
    energy: Any, network: Any, mesh: np.ndarray, exact: np.ndarray, learned: np.ndarray, numbers: dict[str, Any]
) -> Figure:
    figure = canvas(11, 6.9)
    grid = figure.add_gridspec(2, 2, height_ratios=[1.45, 1.0])
    density, coarse = np.exp(-values(energy, mesh)), square(_HALF, 21)
    top = grid[0, :].subgridspec(1, 3)
    for place, (title, model) in enumerate({"Exact score": energy, "Learnt score": network}.items()):
        axes = panel(figure, top[place], title=title, x="x₁", y="x₂")
        draw_field(axes, _HALF, scores(model, coarse), density)
    axes = panel(figure, top[2], title="Error ‖s_θ - s‖ of the learned score", x="x₁", y="x₂")
    error = np.linalg.norm(learned - exact, axis=-1)
    shown = axes.imshow(
        np.log10(np.maximum(error, 1e-2)), extent=(-_HALF, _HALF, -_HALF, _HALF), origin="lower", cmap="YlOrBr"
    )
    axes.contour(mesh[0, :, 0], mesh[:, 0, 1], density, levels=[1e-3], colors=LIGHT.data, linewidths=1.4)
    axes.plot([], [], color=LIGHT.data, linewidth=1.4, label="density 0.001")
    axes.grid(False)
    axes.legend(fontsize=8, loc="upper left", framealpha=0.9)
    bar = figure.colorbar(shown, ax=axes, shrink=0.55, label="log₁₀ error")
    bar.ax.tick_params(labelsize=8.5)
    tenths, labels = numbers["deciles"], [str(i + 1) for i in range(10)]
    x = "tenth of the square by density, the least dense first"
    axes = panel(figure, grid[1, 0], title="Error by density", x=x, y="root mean square error")
    _bars(axes, [row["error"] for row in tenths], labels, LIGHT.samples)
    axes = panel(figure, grid[1, 1], title="Where the data are", x=x, y="share of the data")
    _bars(axes, [row["data_share"] for row in tenths], labels, LIGHT.data)
    return figure


def _bars(axes: Axes, heights: list[float], labels: list[str], colour: str) -> None:
    axes.bar(labels, heights, color=colour, width=0.7)
    axes.grid(False, axis="x")
