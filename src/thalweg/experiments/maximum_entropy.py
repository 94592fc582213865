"""Jaynes's dice: what to expect of a die of which only the mean is known."""

from typing import Any

import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from thalweg import exact
from thalweg.machines import MaximumEntropyFit, fit_maximum_entropy
from thalweg.report.figures import LIGHT, canvas, legend, panel
from thalweg.spaces import Categorical

# the mean 4.5 of Jaynes's example, and his probabilities for the faces 1 to 6
_MEAN = 4.5
_JAYNES = (0.05435, 0.07877, 0.11416, 0.16545, 0.23977, 0.34749)
_MEANS = np.linspace(1.1, 5.9, 49)
_FACES = np.arange(1, 7)


def maxent_dice(key: PRNGKeyArray, progress: bool = False) -> tuple[Figure, dict[str, Any]]:
    """The probabilities of largest entropy for the faces of a die whose mean is 4.5 instead of 3.5.

    They are ``p_i ∝ exp(ηi)`` with the η at which the mean is right, the minimum of the convex dual
    ``A(η) - 4.5η``, ``A(η) = log Σ_i exp(ηi)``; its value there is the entropy. Nothing is random here, and the key is
    not used. Numbers: for the mean 4.5 the probabilities beside Jaynes's, η, entropy and duality gap; η and entropy
    over the mean.

    Reference: Jaynes (1963), Brandeis lectures; (1978), Where do we stand on maximum entropy?

    >>> import jax
    >>> figure, numbers = maxent_dice(jax.random.key(0))
    >>> [round(p, 4) for p in numbers["probabilities"]]
    [0.0544, 0.0788, 0.1142, 0.1654, 0.2398, 0.3475]
    """
    fit = _fit(_MEAN)
    fits = [_fit(mean) for mean in _MEANS]
    probabilities = np.asarray(exact.probabilities(fit.energy), float)
    numbers = {
        "mean": _MEAN,
        "probabilities": probabilities.tolist(),
        "jaynes": list(_JAYNES),
        "natural": float(fit.natural[0]),
        "entropy": fit.entropy.value,
        "gap": fit.gap.value,
        "means": _MEANS.tolist(),
        "naturals": [float(each.natural[0]) for each in fits],
        "entropies": [each.entropy.value for each in fits],
    }
    return _figure(probabilities, numbers), numbers


def _face(x: Any) -> Any:
    return x + 1.0


def _fit(mean: float) -> MaximumEntropyFit:
    return fit_maximum_entropy(_face, mean, Categorical((), k=6))


def _figure(probabilities: np.ndarray, numbers: dict[str, Any]) -> Figure:
    figure = canvas(12, 3.8)
    natural, entropy = numbers["natural"], numbers["entropy"]
    axes = panel(figure, (1, 3, 1), title="A die with mean 4.5", x="face", y="probability")
    axes.bar(_FACES, probabilities, color=LIGHT.data, alpha=0.8, label="maximum entropy")
    axes.plot(_FACES, _JAYNES, "o", color=LIGHT.samples, markersize=5, label="Jaynes (1963)")
    axes.axhline(1 / 6, color=LIGHT.muted, linewidth=1.0, linestyle="--", label="a fair die")
    for face, p in zip(_FACES, probabilities, strict=True):
        axes.text(float(face), p + 0.012, f"{p:.3f}", ha="center", fontsize=8.5, color=LIGHT.ink)
    axes.set_ylim(0, 0.42)
    axes.grid(False, axis="x")
    legend(axes, loc="upper left")
    axes = panel(figure, (1, 3, 2), title="The dual, whose minimum is the entropy", x="η", y="A(η) - 4.5η, nats")
    eta = np.linspace(-0.4, 1.2, 200)
    axes.plot(eta, np.logaddexp.reduce(np.outer(_FACES, eta), axis=0) - _MEAN * eta, color=LIGHT.data, linewidth=1.8)
    axes.plot(natural, entropy, "o", color=LIGHT.samples, label=f"η = {natural:.3f}, H = {entropy:.3f}")
    legend(axes, loc="upper center")
    axes = panel(figure, (1, 3, 3), title="Over the mean", x="mean of the faces", y="entropy, nats")
    axes.plot(numbers["means"], numbers["entropies"], color=LIGHT.data, linewidth=1.8)
    axes.plot(_MEAN, entropy, "o", color=LIGHT.samples)
    axes.axhline(np.log(6), color=LIGHT.muted, linewidth=1.0, linestyle="--", label="log 6, a fair die")
    axes.set_ylim(0, 2.05)
    legend(axes, loc="upper right")
    return figure
