"""The free energy of an RBM as a sum of softplus units, beside a Hopfield network of the same patterns."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from matplotlib.figure import Figure
from scipy.linalg import hadamard

from thalweg.energies import hebb
from thalweg.report.figures import LIGHT, canvas, legend, panel
from thalweg.spaces import Spin

_UNITS, _PATTERNS = 16, 3


def softplus_free_energy(key: PRNGKeyArray, progress: bool = False) -> tuple[Figure, dict[str, Any]]:
    """Three orthogonal patterns of 16 spins in a Hopfield network and in an RBM with one hidden unit for each.

    Summing an RBM's hidden units out leaves ``F(v) = -bᵀv - Σ_j softplus(c_j + w_jᵀv)``. With ``w_j = ξ^j``, ``b = 0``
    and ``c_j = -n/2`` it is ``-Σ_j softplus(n(m_j - ½))`` of the overlaps ``m_j = ξ^jᵀv/n``; the energy of Hebb's rule
    is ``-Σ_j n m_j²/2`` up to a constant. Both are sums over the patterns of a convex function of the overlap: the
    square is the same at m and -m and has minima at the inverse patterns and at mixtures of three; the softplus opens
    on one side only, above its threshold, and has neither.

    Numbers: the largest difference over all 2^16 states between F and the sum over the hidden units, and for both
    energies the number of local minima (every flip of one unit goes up) that are patterns, inverses and others.

    >>> figure, numbers = softplus_free_energy(jax.random.key(0))
    >>> numbers["minima"]["rbm"]
    {'patterns': 3, 'inverses': 0, 'others': 0}
    """
    # rows of a Hadamard matrix stay orthogonal when columns change their sign
    signs = np.asarray(jax.random.rademacher(key, (_UNITS,)))
    patterns = hadamard(_UNITS)[[1, 2, 4]] * signs
    weights, threshold = jnp.asarray(patterns, float), -_UNITS / 2
    states = Spin(_UNITS).states(0, 2**_UNITS)

    def free_energy(v: Array) -> Array:
        return -jnp.sum(jax.nn.softplus(threshold + weights @ v))

    def summed(v: Array) -> Array:
        hidden = jnp.array(np.indices((2,) * _PATTERNS).reshape(_PATTERNS, -1).T)
        return -jax.nn.logsumexp(jax.vmap(lambda h: h @ weights @ v + threshold * jnp.sum(h))(hidden))

    network = hebb(patterns)
    values = {"hopfield": jax.vmap(network)(states), "rbm": jax.vmap(free_energy)(states)}
    numbers = {
        "units": _UNITS,
        "patterns": _PATTERNS,
        "largest_difference": float(jnp.max(jnp.abs(values["rbm"] - jax.vmap(summed)(states)))),
        "minima": {name: _minima(np.asarray(own), np.asarray(states), patterns) for name, own in values.items()},
    }
    ends = [patterns[0], patterns[1], -patterns[1]]
    path = np.concatenate([[ends[0]], *(_walk(*pair) for pair in pairwise(ends))])
    along = {"hopfield": jax.vmap(network)(jnp.asarray(path)), "rbm": jax.vmap(free_energy)(jnp.asarray(path))}
    stops = np.cumsum([0, *(np.sum(a != b) for a, b in pairwise(ends))])
    return _figure({name: np.asarray(own) for name, own in along.items()}, stops), numbers


def _minima(values: np.ndarray, states: np.ndarray, patterns: np.ndarray) -> dict[str, int]:
    """Local minima among all states: patterns, inverse patterns, and others."""
    # the last unit changes fastest: flipping unit i changes the number of a state by 2^(n-1-i)
    numbers = np.arange(len(values))
    flipped = np.stack([values[numbers ^ (1 << place)] for place in range(_UNITS)])
    lowest = states[np.all(values < flipped, axis=0)]
    same = lambda rows: int(np.sum((lowest[:, None] == rows).all(axis=2)))
    kept, inverse = same(patterns), same(-patterns)
    return {"patterns": kept, "inverses": inverse, "others": len(lowest) - kept - inverse}


def _walk(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The states between two, where the units in which they differ are flipped one after another."""
    path = []
    for unit in np.flatnonzero(start != end):
        start = np.where(np.arange(len(start)) == unit, end, start)
        path.append(start)
    return np.array(path)


def _figure(along: dict[str, np.ndarray], stops: np.ndarray) -> Figure:
    figure = canvas(12, 3.9)
    axes = panel(figure, (1, 3, 1), title="softplus(a) = log(1 + eᵃ)", x="input of a hidden unit, a = c + wᵀv")
    a = np.linspace(-6, 6, 300)
    axes.plot(a, np.logaddexp(0, a), color=LIGHT.data, linewidth=1.8, label="softplus(a)")
    axes.plot(a, np.maximum(a, 0), color=LIGHT.ink, linewidth=1.2, linestyle=":", label="ReLU(a)")
    axes.plot(a, 1 / (1 + np.exp(-a)), color=LIGHT.muted, linewidth=1.2, label="its slope σ(a) = p(h = 1 | v)")
    legend(axes, loc="upper left")
    title = "What one pattern adds to the energy"
    axes = panel(figure, (1, 3, 2), title=title, x="overlap of the state with the pattern, m", y="energy")
    m = np.linspace(-1, 1, 300)
    axes.plot(m, -_UNITS * m**2 / 2, color=LIGHT.samples, linewidth=1.8, label="Hopfield, -n m²/2")
    axes.plot(m, -np.logaddexp(0, _UNITS * (m - 0.5)), color=LIGHT.data, linewidth=1.8,
              label="RBM, -softplus(n(m - ½))")  # fmt: skip
    axes.set_xticks([-1, -0.5, 0, 0.5, 1])
    legend(axes, loc="lower center")
    title = "From pattern to pattern, unit by unit"
    axes = panel(figure, (1, 3, 3), title=title, x="units flipped", y="energy above the pattern")
    for name, label, colour in (("hopfield", "Hopfield network", LIGHT.samples), ("rbm", "RBM", LIGHT.data)):
        axes.plot(along[name] - along[name][0], "o-", color=colour, markersize=3.5, linewidth=1.4, label=label)
    for stop, text in zip(stops, ("pattern 1", "pattern 2", "inverse of 2"), strict=True):
        axes.axvline(stop, color=LIGHT.muted, linewidth=0.8, linestyle=":")
        axes.text(stop, -1.2, text, ha="center", va="top", fontsize=8.5, color=LIGHT.ink)
    axes.set_ylim(-2.2, 10.5)
    axes.set_xlim(-3, 27)
    legend(axes, loc="upper left")
    return figure
