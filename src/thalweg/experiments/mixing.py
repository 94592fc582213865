"""How fast chains mix: the proposal width of a random walk, and mode weights that Langevin dynamics gets wrong."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.energies import GaussianMixture
from thalweg.energies import two_bumps as two_bumps_energy
from thalweg.experiments.compare import ks_distance, mean_and_error, mixing, mixture_cdf
from thalweg.report.figures import LIGHT, canvas, legend, panel
from thalweg.samplers import AnnealedLangevin, Langevin, ParallelTempering, RandomWalk, sample
from thalweg.samplers.diagnostics import summarise

_LOW, _HIGH, _NODES = -9.0, 15.0, 300  # the density is below 1e-7 of its top outside
_WEIGHTS, _CENTRES = (0.8, 0.2), ((5.0, 5.0), (-5.0, -5.0))
_BOX = 8.0  # chains start uniformly in [-8, 8]²
_STEPS, _EVERY = 2000, 20
_SIGMAS = np.geomspace(10.0, 0.3, 20)
_TEMPERATURES = np.geomspace(1.0, 30.0, 5)


def mh_proposal_width(
    key: PRNGKeyArray, progress: bool = False, *, widths: int = 17, chains: int = 32, draws: int = 4000
) -> tuple[Figure, dict[str, Any]]:
    """Acceptance and effective draws per draw of the random walk ``N(x, w²)`` on the slides' 1-D density, over w.

    Chains start at exact samples, so that only mixing is measured. They are compared with exact values for the mean of
    x: on a fine mesh the kernel is a matrix P, and the integrated autocorrelation time is
    ``τ = (2⟨f, (I - P + 1πᵀ)⁻¹f⟩ - ⟨f, f⟩)/⟨f, f⟩`` with ``f = x - E[x]``; the effective size per draw is ``1/τ``.
    Numbers: for every width the acceptance, the effective size per draw and R-hat of the chains and the exact values;
    the best width among them, and that of the exact curve.

    >>> figure, numbers = mh_proposal_width(jax.random.key(0), widths=9, chains=4, draws=500)
    >>> round(numbers["optimum"]["width"], 1)
    5.7
    """
    energy = two_bumps_energy()
    # the exact curve has a width more between any two that are tried
    curve = [(float(width), *_exact_walk(float(width))) for width in np.geomspace(0.5, 128.0, 2 * widths - 1)]
    key_start, *keys = jax.random.split(key, widths + 1)
    start = energy.sample(key_start, (chains,))
    rows = []
    for (width, acceptance, time), key_width in zip(curve[::2], keys, strict=True):
        summary = sample(energy, RandomWalk(width), start, key=key_width, draws=draws, progress=progress).summary()
        # the effective size for the mean itself, not for the ranks, because that is what the exact value is about
        effective = float((summary.sd[0] / summary.mcse[0]) ** 2)
        rows.append(
            {
                "width": width,
                "acceptance": summary.acceptance,
                "acceptance_exact": acceptance,
                "ess_per_draw": effective / (chains * draws),
                "ess_per_draw_exact": 1 / time,
                "rhat": float(summary.rhat[0]),
            }
        )
    width, acceptance, time = min(curve, key=lambda each: each[2])
    numbers = {
        "chains": chains,
        "draws": draws,
        "widths": rows,
        "best_measured": max(rows, key=lambda row: row["ess_per_draw"])["width"],
        "optimum": {"width": width, "acceptance": acceptance, "ess_per_draw": 1 / time},
    }
    return _width_figure(numbers, np.array(curve)), numbers


def _exact_walk(width: float) -> tuple[float, float]:
    """``(acceptance, τ)`` of the random walk on a mesh; the sum over nodes is exact for widths above the spacing."""
    x = np.linspace(_LOW, _HIGH, _NODES)
    p = 3 * np.exp(-((x + 2) ** 2) / 2) + np.exp(-((x - 4) ** 2) / 8)
    p /= p.sum()
    spacing = x[1] - x[0]
    moves = np.exp(-((x[:, None] - x) ** 2) / (2 * width**2)) * spacing / (width * math.sqrt(2 * math.pi))
    moves *= np.minimum(1, p / p[:, None])
    leaving = moves.sum(axis=1)
    moves[np.diag_indices(_NODES)] += 1 - leaving
    f = x - p @ x
    variance = p @ f**2
    solved = np.linalg.solve(np.eye(_NODES) - moves + p, f)
    return float(p @ leaving), float((2 * (p * f) @ solved - variance) / variance)


def _width_figure(numbers: dict[str, Any], curve: np.ndarray) -> Figure:
    figure = canvas(9, 5.6)
    widths, best = [row["width"] for row in numbers["widths"]], numbers["optimum"]
    panels = (
        ("acceptance", "Acceptance", "acceptance probability", f"at the optimum {best['acceptance']:.2f}"),
        ("ess_per_draw", "Effective draws per draw", "ESS per draw", f"optimum: width {best['width']:.1f}"),
    )
    lines = (curve[:, 1], 1 / curve[:, 2])
    for place, (exact, (name, title, y, note)) in enumerate(zip(lines, panels, strict=True), start=1):
        axes = panel(figure, (2, 1, place), title=title, x="standard deviation w of the proposal N(x, w²)", y=y)
        measured = [row[name] for row in numbers["widths"]]
        axes.plot(curve[:, 0], exact, color=LIGHT.data, linewidth=1.8, label="exact, from the kernel's matrix")
        label = f"{numbers['chains']} chains of {numbers['draws']} draws"
        axes.plot(widths, measured, "o", color=LIGHT.samples, markersize=5, label=label)
        axes.axvline(best["width"], color=LIGHT.ink, linewidth=1.2, linestyle="--")
        axes.plot([best["width"]], [best[name]], "*", color=LIGHT.ink, markersize=11, label=note)
        axes.set_xscale("log")
        ticks = [width for width in (0.5, 1, 2, 4, 8, 16, 32, 64, 128) if widths[0] <= width <= widths[-1]]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_ylim(0, 1.12 * max(*exact, *measured))
        legend(axes, loc="upper right")
    return figure


class _Noisy(eqx.Module):
    """The energy of a mixture with added noise of standard deviation σ: ``Σ_k w_k N(μ_k, (1 + σ²)I)``."""

    def __call__(self, x: Array, sigma: Array) -> Array:
        return GaussianMixture(jnp.array(_WEIGHTS), jnp.array(_CENTRES), 1 + sigma**2)(x)


def slow_mixing(key: PRNGKeyArray, progress: bool = False, *, chains: int = 1000) -> tuple[Figure, dict[str, Any]]:
    """``0.8 N((5,5), I) + 0.2 N((-5,-5), I)`` by Langevin, annealed Langevin and tempering, 2000 steps each.

    Chains start uniformly in a square. Langevin chains stay in the mode whose basin they start in, so their shares are
    those of the basins; annealed Langevin on the score of the noisy mixture, from σ = 10 down to 0.3, and tempering up
    to T = 30 get the weights right. Reference: Song and Ermon (2019), NeurIPS, §3.2.2 and figure 3.

    Numbers, per method: ``weights`` of the modes among the last draws with ``weights_error`` (chains are independent),
    ``mean`` with ``mean_error``, ``ks`` along the line through the modes against the exact law, ``shares`` of the first
    mode along the run; what the second half of the run says of mixing; tempering's acceptance and swap rates.

    >>> figure, numbers = slow_mixing(jax.random.key(0), chains=100)
    >>> numbers["langevin"]["weights"][0] < 0.65 < numbers["tempering"]["weights"][0]
    True
    """
    energy = GaussianMixture(jnp.array(_WEIGHTS), jnp.array(_CENTRES), 1.0)
    key_exact, key_start, *keys = jax.random.split(key, 5)
    start = jax.random.uniform(key_start, (chains, 2), minval=-_BOX, maxval=_BOX)
    annealed = AnnealedLangevin(_SIGMAS, steps=_STEPS // len(_SIGMAS), epsilon=0.04)
    runs = {
        "langevin": (energy, Langevin(0.1)),
        "annealed": (_Noisy(), annealed),
        "tempering": (energy, ParallelTempering(RandomWalk(2.0), _TEMPERATURES)),
    }
    drawn = {"exact_samples": np.asarray(energy.sample(key_exact, (chains,)))}
    numbers: dict[str, Any] = {
        "chains": chains,
        "steps": _STEPS,
        "weights": list(_WEIGHTS),
        "mean": [3.0, 3.0],
        "exact_samples": _compare(drawn["exact_samples"], 0.0),
    }
    for (name, (model, kernel)), key_run in zip(runs.items(), keys, strict=True):
        ran = sample(model, kernel, start, key=key_run, draws=_STEPS // _EVERY, thin=_EVERY, progress=progress)
        path = np.asarray(ran.draws)
        drawn[name] = path[:, -1]
        numbers[name] = _compare(path[:, -1], _SIGMAS[-1] if name == "annealed" else 0.0)
        numbers[name]["shares"] = (path.sum(axis=2) > 0).mean(axis=0).tolist()
        if name != "annealed":  # whose draws are each of another law
            late = ran.draws[:, path.shape[1] // 2 :]
            numbers[name] |= mixing(summarise(late, ran.stats))
    numbers["tempering"]["temperatures"] = _TEMPERATURES.tolist()
    numbers["tempering"]["swap_rates"] = np.asarray(ran.stats["swap_rate"]).mean(axis=0).tolist()
    numbers["annealed"]["sigmas"] = _SIGMAS.tolist()
    return _slow_figure(drawn, np.asarray(start), numbers), numbers


def _compare(x: np.ndarray, sigma: float) -> dict[str, Any]:
    """The weights, the mean and the distribution along (1,1)/√2 of points ``(n, 2)``, compared with the noisy
    mixture."""
    # the modes are 14 deviations apart, so the line between them cuts off nothing
    weight, error = mean_and_error(x.sum(axis=1) > 0)
    means, errors = zip(*(mean_and_error(x[:, i]) for i in range(2)), strict=True)
    apart, deviation = math.sqrt(50), math.sqrt(1 + sigma**2)
    cdf = mixture_cdf(_WEIGHTS, [apart, -apart], [deviation, deviation])
    return {
        "weights": [weight, 1 - weight],
        "weights_error": error,
        "mean": list(means),
        "mean_error": list(errors),
        "ks": ks_distance(x.sum(axis=1) / math.sqrt(2), cdf),
    }


def _slow_figure(drawn: dict[str, np.ndarray], start: np.ndarray, numbers: dict[str, Any]) -> Figure:
    names = {
        "exact_samples": ("Exact samples", LIGHT.ink),
        "langevin": ("Langevin", LIGHT.samples),
        "annealed": ("Annealed Langevin", LIGHT.data),
        "tempering": ("Tempering", LIGHT.held_out),
    }
    figure = canvas(11, 6.4)
    grid = figure.add_gridspec(2, 4, height_ratios=[3.0, 2.4])
    for place, (name, (title, colour)) in enumerate(names.items()):
        axes = panel(figure, grid[0, place], title=title, x="x₁", y="x₂" if place == 0 else "")
        axes.scatter(*drawn[name].T, s=4, color=colour, alpha=0.35, linewidths=0)
        weights, error = numbers[name]["weights"], numbers[name]["weights_error"]
        for (x, y), weight in zip(_CENTRES, weights, strict=True):
            side = math.copysign(1, x)
            axes.text(x - 3.4 * side, y, f"{weight:.3f}", ha="right" if side > 0 else "left", va="center", fontsize=9.5)
        axes.text(0.98, 0.03, f"± {error:.3f}", transform=axes.transAxes, ha="right", fontsize=8.5, color=LIGHT.muted)
        axes.set_xlim(-9.5, 9.5)
        axes.set_ylim(-9.5, 9.5)
        axes.set_aspect("equal")
    title = f"Share of {numbers['chains']} chains at the mode (5, 5)"
    axes = panel(figure, grid[1, :], title=title, x="step of the chain", y="share")
    axes.axhline(_WEIGHTS[0], color=LIGHT.ink, linewidth=1.2, linestyle="--", label="weight 0.8")
    for name, (title, colour) in list(names.items())[1:]:
        shares = [float((start.sum(axis=1) > 0).mean()), *numbers[name]["shares"]]
        axes.plot(_EVERY * np.arange(len(shares)), shares, color=colour, linewidth=1.8, label=title)
    axes.set_ylim(0.4, 0.9)
    axes.margins(x=0.01)
    legend(axes, loc="lower right", ncols=4)
    return figure
