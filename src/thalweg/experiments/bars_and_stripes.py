"""Bars and stripes: what contrastive divergence, persistent chains, tempering and exact learning reach."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.core import whole_number
from thalweg.energies import RBM
from thalweg.objectives import Centred, ExactLikelihood, MaximumLikelihood
from thalweg.plot.points import draw_mosaic
from thalweg.report.figures import LIGHT, canvas, legend, panel
from thalweg.samplers import Gibbs, ParallelTempering, from_data, persistent
from thalweg.train import every, fit

_SIDE, _HIDDEN = 4, 16
_TEMPERATURES = (1.0, 1.5, 2.2, 3.3, 5.0, 8.0)
# every pattern so often in a batch, which has as many chains
_COPIES = 4
# the points of a curve
_LOOKS = 40


def patterns(side: int = _SIDE) -> np.ndarray:
    """All pictures of bars and all pictures of stripes, ``(2·2^side, side²)``; the empty and the full one occur twice.

    >>> patterns(2).tolist()[:3]
    [[0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1]]
    """
    bits = (np.arange(2**side)[:, None] >> np.arange(side)) & 1
    stripes = np.repeat(bits[:, :, None], side, axis=2)
    return np.concatenate([stripes, stripes.transpose(0, 2, 1)]).reshape(-1, side * side)


def bound(rows: np.ndarray) -> float:
    """The largest mean log-likelihood of any model: minus the entropy of the rows, in nats.

    >>> round(bound(patterns()), 3)
    -3.379
    """
    shares = np.unique(rows, axis=0, return_counts=True)[1] / len(rows)
    return float(np.sum(shares * np.log(shares)))


def bars_and_stripes(
    key: PRNGKeyArray, progress: bool = False, *, updates: int = 20_000
) -> tuple[Figure, dict[str, Any]]:
    """The exact log-likelihood of an RBM 16×16 on the 32 bars and stripes of a 4×4 grid, under five ways of learning.

    All use centred gradients and a learning rate that falls to zero: contrastive divergence with one sweep, persistent
    chains with one and with ten sweeps, parallel tempering over six temperatures, and the exact gradient by a sum over
    all states (a tenth of the updates). Numbers: for every method the final mean log-likelihood in nats and its
    distance from the bound, and the curves. Reference: MacKay (2003), Information Theory, Inference and Learning
    Algorithms; Hinton and Sejnowski (1986).

    >>> figure, numbers = bars_and_stripes(jax.random.key(0), updates=40)
    >>> round(numbers["bound"], 3), len(numbers["methods"])
    (-3.379, 5)
    """
    updates, rows = whole_number("updates", updates, 10), patterns()
    one, tempering = Gibbs(), ParallelTempering(Gibbs(), _TEMPERATURES)
    methods = {
        "CD-1": (MaximumLikelihood(one, 1, from_data()), updates, 0.2),
        "PCD-1": (MaximumLikelihood(one, 1, persistent()), updates, 0.2),
        "PCD-10": (MaximumLikelihood(one, 10, persistent()), updates, 0.2),
        "parallel tempering": (MaximumLikelihood(tempering, 1, persistent()), updates, 0.2),
        "exact": (ExactLikelihood(), max(1, updates // 10), 2.0),
    }
    results = {}
    for (name, (objective, steps, rate)), own in zip(methods.items(), jax.random.split(key, len(methods)), strict=True):
        results[name] = _learn(own, rows, Centred(objective), steps, rate, progress)
    best = bound(rows)
    numbers = {
        "bound": best,
        "updates": updates,
        "methods": {
            name: {"log_likelihood": curve[-1][1], "gap": best - curve[-1][1], "curve": curve}
            for name, (curve, _) in results.items()
        },
    }
    return _figure(numbers, results["parallel tempering"][1], rows), numbers


def _learn(
    key: PRNGKeyArray, rows: np.ndarray, objective: Any, steps: int, rate: float, progress: bool
) -> tuple[list[list[float]], RBM]:
    """The curve ``[[share of the updates, log-likelihood], …]`` of one training, and the machine."""
    key_model, key_fit = jax.random.split(key)
    points = jnp.asarray(rows)
    measure = jax.jit(lambda rbm: -jnp.mean(rbm.free_energies(points)))

    def look(run):
        return {"log_likelihood": float(measure(run.energy)) - float(run.energy.log_z)}

    data = np.tile(rows, (_COPIES, 1))
    run = fit(
        RBM.from_data(rows, _HIDDEN, key=key_model),
        data,
        objective,
        optimizer=optax.sgd(optax.cosine_decay_schedule(rate, steps)),
        steps=steps,
        batch_size=len(data),
        key=key_fit,
        callbacks=[every(max(1, steps // _LOOKS), look)],
        progress=progress,
    )
    return [[row["step"] / steps, row["log_likelihood"]] for row in run.evaluations], run.energy


def _figure(numbers: dict[str, Any], rbm: RBM, rows: np.ndarray) -> Figure:
    theme, figure = LIGHT, canvas(10, 4.6)
    places = figure.add_gridspec(2, 2, width_ratios=[3, 2])
    axes = panel(figure, places[:, 0], theme, title="log-likelihood, exact", x="share of the updates", y="nats per row")
    colours = [theme.samples, theme.muted, theme.held_out, theme.data, theme.extra]
    for (name, method), colour in zip(numbers["methods"].items(), colours, strict=True):
        curve = np.array(method["curve"])
        axes.plot(curve[:, 0], curve[:, 1], color=colour, label=f"{name}: {method['log_likelihood']:.3f}")
    axes.axhline(numbers["bound"], color=theme.ink, linestyle=":", label=f"bound {numbers['bound']:.3f}")
    axes.set_ylim(-8, -3)
    legend(axes, theme, loc="center right")
    weights = np.asarray(rbm.weights).T
    most = float(np.abs(weights).max())
    # grey levels instead of white, which would not stand out from the page
    shown = (("the patterns", rows, (-0.2, 1.2)), ("weights of the hidden units, tempered", weights, (-most, most)))
    for number, (title, pictures, limits) in enumerate(shown):
        axes = panel(figure, places[number, 1], theme, title=title)
        draw_mosaic(axes, pictures.reshape(-1, _SIDE, _SIDE, 1), 8, limits)
    return figure
