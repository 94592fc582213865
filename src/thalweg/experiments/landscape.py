"""An energy landscape under contrastive divergence: down at the data, up where short chains from the data went."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from thalweg import exact
from thalweg.data import skewed_mixture_energy
from thalweg.energies import MLP
from thalweg.experiments.fields import square, values
from thalweg.objectives import MaximumLikelihood
from thalweg.plot import Animation
from thalweg.report.figures import LIGHT, canvas, panel
from thalweg.samplers import Langevin, from_data, sample
from thalweg.train import Run, every, fit

_HALF, _NODES, _SHOWN = 4.0, 81, 250
# an early network need not confine: without an end its exp(-E) may have no finite integral
_BOUNDS = (-6.0, 6.0)
_SPAN = 8.0  # energies further than this above the lowest are drawn alike


def cd_landscape(
    key: PRNGKeyArray, progress: bool = False, *, rows: int = 10_000, updates: int = 600, frames: int = 40
) -> tuple[Figure, dict[str, Any], dict[str, bytes]]:
    """The energy of a small network on a mixture in the plane while contrastive divergence trains it, CD-10.

    An update lowers the energy at the data and raises it where ten Langevin steps from the data have gone. The figure
    has the landscape before the first update, the change that this one update makes, and the landscape at the end; the
    animation ``cd-landscape.gif`` has ``frames`` moments between, closer together at the start.

    Numbers, for every frame: the update, the mean energy of the data and of the chains' ends, and KL(data‖model) by
    quadrature, in nats, of both within the square [-6, 6]², since a network that was trained for a few updates need not
    have a finite integral over the plane; and for the first update the mean change of the energy at the data and at the
    chains' ends.

    >>> figure, numbers, files = cd_landscape(jax.random.key(0), rows=300, updates=4, frames=3)
    >>> files[".gif"][:3], numbers["frames"][0]["update"]
    (b'GIF', 0)
    """
    key_data, key_model, key_fit, key_chains = jax.random.split(key, 4)
    target = skewed_mixture_energy()
    data = np.asarray(target.sample(key_data, (rows,)))
    energy = MLP(2, 64, key=key_model)
    kernel, steps = Langevin(0.05), 10
    # moments at 0, 1, 2, … and then further and further apart
    wanted = {round(float(update)) for update in np.geomspace(1, updates + 1, frames) - 1} | {0, 1, updates}
    kept: dict[int, Any] = {0: energy}

    def keep(run: Run) -> dict[str, float]:
        if run.step in wanted:
            kept[run.step] = run.energy
        return {}

    fit(
        energy,
        data,
        MaximumLikelihood(kernel, steps=steps, start=from_data),
        optimizer=optax.adam(3e-3),
        steps=updates,
        batch_size=min(512, rows),
        key=key_fit,
        callbacks=[every(1, keep)],
        progress=progress,
    )
    mesh, shown = square(_HALF, _NODES), data[:_SHOWN]
    moments = []
    for update, model in sorted(kept.items()):
        key_moment = jax.random.clone(key_chains)  # the same noise at every moment, so that what moves is the model
        ends = sample(model, kernel, jnp.asarray(shown), key=key_moment, draws=1, burn_in=steps - 1).draws[:, 0]
        moments.append((update, values(model, mesh), np.asarray(ends), model))
    measured = [
        {
            "update": update,
            "energy_data": float(values(model, shown).mean()),
            "energy_chains": float(values(model, ends).mean()),
            "kl": float(exact.kl(target, model, bounds=_BOUNDS)),
        }
        for update, _, ends, model in moments
    ]
    (_, _, ends, before), (_, _, _, after) = moments[:2]
    change = {
        name: float((values(after, x) - values(before, x)).mean())
        for name, x in {"data": shown, "chains": ends}.items()
    }
    numbers = {"updates": updates, "steps": steps, "first_update": change, "frames": measured}
    return _figure(moments, shown, numbers), numbers, {".gif": _animation(moments, shown).gif()}


def _figure(
    moments: list[tuple[int, np.ndarray, np.ndarray, Any]], shown: np.ndarray, numbers: dict[str, Any]
) -> Figure:
    figure = canvas(11, 3.7)
    first, second, last = moments[0], moments[1], moments[-1]
    measured = numbers["frames"]
    _landscape(panel(figure, (1, 3, 1), title=f"Before: KL {measured[0]['kl']:.2f}", x="x₁", y="x₂"), first, shown)
    axes = panel(figure, (1, 3, 2), title="What one update changes", x="x₁", y="x₂")
    # energies have no zero of their own: against the mean change of the points shown
    change = second[1] - first[1] - 0.5 * sum(numbers["first_update"].values())
    most = float(np.abs(change).max())
    extent = (-_HALF, _HALF, -_HALF, _HALF)
    picture = axes.imshow(change, extent=extent, origin="lower", cmap="RdBu_r", vmin=-most, vmax=most)
    _dots(axes, shown, first[2])
    bar = figure.colorbar(picture, ax=axes, shrink=0.6, label="change of E(x), centred")
    bar.ax.tick_params(labelsize=8.5)
    title = f"After {last[0]} updates: KL {measured[-1]['kl']:.2f}"
    _landscape(panel(figure, (1, 3, 3), title=title, x="x₁", y="x₂"), last, shown)
    return figure


def _landscape(axes: Axes, moment: tuple[int, np.ndarray, np.ndarray, Any], shown: np.ndarray) -> None:
    energies = moment[1] - moment[1].min()
    extent = (-_HALF, _HALF, -_HALF, _HALF)
    axes.imshow(energies, extent=extent, origin="lower", cmap="viridis", vmin=0, vmax=_SPAN, interpolation="bilinear")
    line = np.linspace(-_HALF, _HALF, _NODES)
    axes.contour(line, line, energies, levels=np.arange(1, _SPAN), colors="white", linewidths=0.5, alpha=0.6)
    _dots(axes, shown, moment[2])


def _dots(axes: Axes, shown: np.ndarray, ends: np.ndarray) -> None:
    axes.scatter(*shown.T, s=7, color=LIGHT.paper, edgecolors=LIGHT.data, linewidths=0.6, label="data")
    axes.scatter(*ends.T, s=7, color=LIGHT.samples, linewidths=0, label="ends of chains")
    axes.set_xlim(-_HALF, _HALF)
    axes.set_ylim(-_HALF, _HALF)
    axes.set_aspect("equal")
    axes.grid(False)
    axes.legend(fontsize=7, loc="lower left", framealpha=0.85, markerscale=1.6)


def _animation(moments: list[tuple[int, np.ndarray, np.ndarray, Any]], shown: np.ndarray) -> Animation:
    pictures = []
    for moment in moments:
        figure = canvas(4.2, 4.3)
        _landscape(panel(figure, (1, 1, 1), title=f"After {moment[0]} updates", x="x₁", y="x₂"), moment, shown)
        pictures.append(figure)
    return Animation(pictures)
