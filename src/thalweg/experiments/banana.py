"""The slides' run of MALA on a bent Gaussian, against exact samples."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.energies import Banana
from thalweg.experiments.compare import beside, ks_distance, mixing, mixture_cdf
from thalweg.report.figures import LIGHT, canvas, legend, panel
from thalweg.samplers import MALA, sample
from thalweg.samplers.diagnostics import summarise

_CURVATURE, _SCALE, _BURN_IN, _STEP_SIZE = 0.25, 2.0, 200, 1.2


def mala_banana(
    key: PRNGKeyArray, progress: bool = False, *, chains: int = 16, draws: int = 10_000
) -> tuple[Figure, dict[str, Any]]:
    """The slides' MALA run on a banana: 200 burn-in, 1e4 samples, against as many exact ones.

    The first chain is that of the slides; the others measure its errors. The banana is ``Banana(0.25, 2)``: with twice
    the curvature MALA gets stuck in the steep ends, and 1e4 draws have an effective size of a dozen. Numbers: means and
    variances per coordinate, exact, from one chain and from all chains, with Monte Carlo standard errors;
    Kolmogorov-Smirnov distances of both coordinates to their exact distributions, and those of independent samples.

    >>> figure, numbers = mala_banana(jax.random.key(0), chains=4, draws=500)
    >>> numbers["variance"][0]["exact"]
    4.0
    """
    key_exact, key_start, key_chains = jax.random.split(key, 3)
    energy = Banana(_CURVATURE, _SCALE)  # pyright: ignore[reportCallIssue]
    start = jax.random.normal(key_start, (chains, 2))
    ran = sample(energy, MALA(_STEP_SIZE), start, key=key_chains, draws=draws, burn_in=_BURN_IN, progress=progress)
    independent = np.asarray(energy.sample(key_exact, (draws,)), float)
    x, summary = np.asarray(ran.draws, float), ran.summary()
    squares = summarise(ran.draws**2, ran.stats)  # the exact means are zero, so these are the variances
    variances = [_SCALE**2, 1 + 2 * _CURVATURE**2 * _SCALE**4]
    sets = {"chain": x[0], "chains": x.reshape(-1, 2), "exact_samples": independent}
    numbers = {
        "kernel": f"MALA({_STEP_SIZE:g})",
        "chains": chains,
        "draws": draws,
        "burn_in": _BURN_IN,
        **mixing(summary),
        "mean": [beside(0.0, x[..., i], float(summary.mcse[i]), independent[:, i]) for i in range(2)],
        "variance": [
            beside(variances[i], x[..., i] ** 2, float(squares.mcse[i]), independent[:, i] ** 2) for i in range(2)
        ],
        "ks": [{name: ks_distance(y[:, i], law) for name, y in sets.items()} for i, law in enumerate(_laws())],
    }
    return _figure(energy, sets, numbers), numbers


def _laws() -> tuple[Callable, Callable]:
    """The distribution functions of both coordinates; the second is ``E[Φ(x_2 - b(x_1² - s²))]`` over x_1."""
    nodes = np.linspace(-8, 8, 401)
    weights = np.exp(-(nodes**2) / 2)
    ridge = _CURVATURE * _SCALE**2 * (nodes**2 - 1)
    # the integrand is smooth and vanishes at both ends, so an equally spaced sum is as good as any rule
    mixture = mixture_cdf(weights / weights.sum(), ridge, np.ones(len(nodes)))
    values = np.linspace(-9.0, 70.0, 8001)
    table = mixture(values)
    return mixture_cdf([1.0], [0.0], [_SCALE]), lambda x: np.interp(x, values, table)


def _figure(energy: Banana, sets: dict[str, np.ndarray], numbers: dict[str, Any]) -> Figure:
    figure = canvas(11, 7.6)
    grid = figure.add_gridspec(2, 2, height_ratios=[3.0, 2.2])
    x, y = np.linspace(-8, 8, 200), np.linspace(-5, 11, 200)
    points = jnp.asarray(np.stack(np.meshgrid(x, y), axis=-1), float)
    energies = np.asarray(jax.vmap(jax.vmap(energy))(points))
    # E is half a χ² with two degrees of freedom, so a share q of the mass lies within E < -log(1 - q)
    levels = [-math.log(1 - share) for share in (0.5, 0.9, 0.99)]
    count = f"{numbers['draws']:_}".replace("_", " ")
    titles = {"chain": f"One MALA chain of {count} draws", "exact_samples": f"{count} exact samples"}
    colours = {"chain": LIGHT.samples, "exact_samples": LIGHT.held_out}
    for place, (name, title) in enumerate(titles.items()):
        axes = panel(figure, grid[0, place], title=title, x="x₁", y="x₂")
        axes.scatter(*sets[name].T, s=3, color=colours[name], alpha=0.3, linewidths=0)
        axes.contour(x, y, energies, levels=levels, colors=LIGHT.ink, linewidths=0.9)
        axes.plot([], [], color=LIGHT.ink, linewidth=0.9, label="50, 90, 99 % of the mass")
        axes.set_xlim(-8, 8)
        axes.set_ylim(-4.5, 9)
        legend(axes, loc="upper center")
    for i, (law, (low, high)) in enumerate(zip(_laws(), ((-8.0, 8.0), (-4.5, 9.0)), strict=True)):
        name = "x₁" if i == 0 else "x₂"
        axes = panel(figure, grid[1, i], title=f"Histogram of {name}", x=name, y="density")
        edges, fine = np.linspace(low, high, 55), np.linspace(low, high, 300)
        for which, label in (("chain", "one chain"), ("chains", f"all {numbers['chains']} chains")):
            values = sets[which][:, i]
            heights = np.histogram(values, edges)[0] / (len(values) * np.diff(edges))
            first = which == "chain"
            colour, alpha = (LIGHT.samples, 0.45) if first else (LIGHT.ink, 1.0)
            label = f"{label}, KS distance {numbers['ks'][i][which]:.3f}"
            axes.stairs(heights, edges, fill=first, color=colour, alpha=alpha, linewidth=1.0, label=label)
        axes.plot(fine, np.gradient(law(fine), fine), color=LIGHT.data, linewidth=1.8, label="exact density")
        axes.set_xlim(low, high)
        axes.set_ylim(0, 1.3 * axes.get_ylim()[1])
        legend(axes, loc="upper right")
    return figure
