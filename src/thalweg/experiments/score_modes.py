"""The weights of separated modes: wrong with Langevin dynamics, right with a noise-conditional score and annealing."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.core import given
from thalweg.data import eight_gaussians_energy
from thalweg.energies import GaussianMixture, NoiseConditionalScoreMLP
from thalweg.experiments.fields import learn
from thalweg.noise import ladder_from_data
from thalweg.objectives import NoiseConditionalScoreMatching
from thalweg.report.figures import LIGHT, canvas, legend, panel
from thalweg.samplers import AnnealedLangevin, Langevin, sample

_EIGHT = (0.28, 0.06, 0.18, 0.04, 0.16, 0.08, 0.14, 0.06)
_TARGETS = {
    "two": (lambda: GaussianMixture(jnp.array([0.8, 0.2]), jnp.array([[5.0, 5.0], [-5.0, -5.0]]), 1.0), 8.0),
    "eight": (lambda: eight_gaussians_energy(_EIGHT, radius=4.0, sigma=0.3), 6.0),
}
_STEP_SIZE = {"two": 0.1, "eight": 0.01}  # a tenth of the modes' variance
_METHODS = {
    "langevin_exact": ("Langevin, exact score", LIGHT.extra),
    "langevin_learnt": ("Langevin, learned score", LIGHT.samples),
    "annealed": ("Annealed, learned score", LIGHT.data),
}


def ncsn_modes(
    key: PRNGKeyArray,
    progress: bool = False,
    *,
    rows: int = 20_000,
    updates: int = 4000,
    chains: int = 4000,
    width: int = 96,
    steps: int = 200,
) -> tuple[Figure, dict[str, Any]]:
    """Mode weights of ``0.8 N((5,5), I) + 0.2 N((-5,-5), I)`` and of eight Gaussians with unequal weights.

    One noise-conditional score network is trained on each. Chains of plain Langevin, with the exact score or with the
    learned one at the smallest noise, stay in the mode whose basin they start in; annealed Langevin over the ladder
    gets the weights right, with the same network and the same number of steps. All chains start without information
    about the weights: uniformly in a square, or at the noise of the first level. Reference: Song and Ermon (2019),
    NeurIPS, figure 3.

    Numbers, per target: the exact ``weights``; per method ``weights``, their largest standard error and
    ``largest_error`` against the exact ones; the ladder.

    >>> figure, numbers = ncsn_modes(jax.random.key(0), rows=600, updates=2, chains=50, width=8, steps=2)
    >>> sorted(numbers)
    ['chains', 'eight', 'rows', 'two', 'updates']
    """
    numbers: dict[str, Any] = {"rows": rows, "updates": updates, "chains": chains}
    drawn: dict[str, dict[str, np.ndarray]] = {}
    for place, (name, (make, half)) in enumerate(_TARGETS.items()):
        target = make()
        key_data, key_model, key_fit, key_square, key_noise, *keys = jax.random.split(jax.random.fold_in(key, place), 8)
        data = np.asarray(target.sample(key_data, (rows,)))
        sigmas = ladder_from_data(data, smallest=float(0.1 * np.sqrt(target.covariances[0, 0, 0])))
        scale = float(np.sqrt(np.mean(data**2)))
        network = NoiseConditionalScoreMLP(2, width, data_scale=scale, key=key_model)
        objective = NoiseConditionalScoreMatching(sigmas)
        run = learn(key_fit, network, data, objective, updates=updates, batch_size=min(512, rows), progress=progress)
        annealed = AnnealedLangevin(sigmas, steps=steps, denoise=True)
        anywhere = jax.random.uniform(key_square, (chains, 2), minval=-half, maxval=half)
        noise = float(sigmas[0]) * jax.random.normal(key_noise, (chains, 2))
        plain = Langevin(_STEP_SIZE[name])
        runs = {
            "langevin_exact": (target, plain, anywhere),
            "langevin_learnt": (given(run.energy, sigmas[-1]), plain, anywhere),
            "annealed": (run.energy, annealed, noise),
        }
        drawn[name] = {"data": data[:chains]}
        numbers[name] = {"weights": np.asarray(target.weights, float).tolist()}
        numbers[name]["sigmas"] = np.asarray(sigmas, float).tolist()
        for (method, (model, kernel, start)), key_run in zip(runs.items(), keys, strict=True):
            ran = sample(model, kernel, start, key=key_run, draws=1, burn_in=annealed.length - 1, progress=progress)
            drawn[name][method] = np.asarray(ran.draws[:, 0])
            numbers[name][method] = _weights(target, drawn[name][method])
        numbers[name]["data"] = _weights(target, data)
    return _figure(drawn, numbers), numbers


def _weights(target: GaussianMixture, x: np.ndarray) -> dict[str, Any]:
    """The share of points nearest to each mode; all modes have the same width, so these are the points of the mode."""
    means, exact = np.asarray(target.means), np.asarray(target.weights)
    nearest = np.argmin(np.sum((x[:, None] - means) ** 2, axis=-1), axis=1)
    shares = np.bincount(nearest, minlength=len(means)) / len(x)
    return {
        "weights": shares.tolist(),
        "standard_error": float(np.sqrt(np.max(shares * (1 - shares)) / len(x))),
        "largest_error": float(np.max(np.abs(shares - exact))),
    }


def _figure(drawn: dict[str, dict[str, np.ndarray]], numbers: dict[str, Any]) -> Figure:
    figure = canvas(11, 8.8)
    grid = figure.add_gridspec(3, 4, height_ratios=[3.0, 3.0, 2.4])
    titles = {"data": ("Data", LIGHT.ink), **_METHODS}
    for line, (name, (_, half)) in enumerate(_TARGETS.items()):
        for place, (method, (title, colour)) in enumerate(titles.items()):
            axes = panel(figure, grid[line, place], title=title, x="x₁", y="x₂" if place == 0 else "")
            axes.scatter(*drawn[name][method].T, s=3, color=colour, alpha=0.3, linewidths=0)
            axes.text(
                0.03, 0.03, f"largest error {numbers[name][method]['largest_error']:.3f}", transform=axes.transAxes,
                fontsize=8.5, color=LIGHT.ink,
            )  # fmt: skip
            axes.set_xlim(-1.15 * half, 1.15 * half)
            axes.set_ylim(-1.15 * half, 1.15 * half)
            axes.set_aspect("equal")
    for place, name in enumerate(_TARGETS):
        exact = np.array(numbers[name]["weights"])
        spot = grid[2, :1] if place == 0 else grid[2, 1:]
        axes = panel(figure, spot, title=f"Weights of the {name} modes", x="mode", y="weight")
        slots = np.arange(len(exact))
        for offset, (method, (_, colour)) in enumerate(_METHODS.items()):
            axes.bar(slots + 0.25 * (offset - 1), numbers[name][method]["weights"], width=0.22, color=colour)
        axes.hlines(exact, slots - 0.42, slots + 0.42, color=LIGHT.ink, linewidth=1.6, label="exact")
        axes.set_xticks(slots, [str(i + 1) for i in slots])
        axes.set_ylim(0, 1.2 * exact.max())
        axes.grid(False, axis="x")
        legend(axes)
    return figure
