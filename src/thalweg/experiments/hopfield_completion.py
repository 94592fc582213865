"""Digits with a half hidden, completed by Hopfield networks."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.core.progress import progress_bar
from thalweg.data import digits
from thalweg.energies import ModernHopfield, hebb, pseudo_inverse, storkey
from thalweg.plot.points import as_colour, gap_of, mosaic
from thalweg.plot.style import picture
from thalweg.report.figures import LIGHT, canvas, legend, panel

_SIDE = 8
_BETA = 2.0
_COUNTS = (2, 3, 5, 7, 10, 15, 20, 30, 40)
_METHODS = ("Hebb", "Storkey", "pseudo-inverse", "modern")
_COLOURS = (LIGHT.data, LIGHT.extra, LIGHT.held_out, LIGHT.samples)
_GUESS = "commonest value of each pixel"
_WRONG_WHITE, _WRONG_BLACK = (0.98, 0.72, 0.5, 1.0), (0.55, 0.2, 0.0, 1.0)


def hopfield_completion(key: PRNGKeyArray, progress: bool = False, *, sets: int = 30) -> tuple[Figure, dict[str, Any]]:
    """Binarised 8×8 digits are stored, the lower half of each is hidden, and recall completes it from the upper half.

    The known half is held at its values and the hidden units start as unknown. One digit of each class is shown; the
    curve has ``sets`` random sets of digits for every number of patterns. Digits resemble each other, so Hebb's rule,
    which is made for random patterns, fails at a few. The guess to compare with is the commonest value of each pixel
    among the stored digits.

    Numbers, for every method and number of patterns: the share of hidden pixels that are right, with the standard error
    over the sets, and the share of digits completed without an error.

    >>> figure, numbers = hopfield_completion(jax.random.key(0), sets=2)
    >>> numbers["shown"]["modern"]["digits"]
    1.0
    """
    key_shown, key_sets = jax.random.split(key)
    data = digits()
    # some digits are the same in black and white, and a copy is no pattern of its own
    pictures, first = np.unique(np.where(data.x_train.reshape(-1, _SIDE**2) > 0, 1, -1), axis=0, return_index=True)
    hidden = np.arange(_SIDE**2) >= _SIDE**2 // 2
    classes = np.asarray(data.y_train)[first]
    picks = jax.random.split(key_shown, 10)
    one_each = np.array([jax.random.choice(k, np.flatnonzero(classes == c)) for c, k in enumerate(picks)])
    shown = pictures[one_each]
    completed = {name: _complete(name, shown, hidden) for name in _METHODS}
    rows = []
    with progress_bar("sets of digits", len(_COUNTS) * sets, shown=progress) as advance:
        for number, count in enumerate(_COUNTS):
            scores: dict[str, list[tuple[float, float]]] = {name: [] for name in (*_METHODS, _GUESS)}
            for own in jax.random.split(jax.random.fold_in(key_sets, number), sets):
                stored = pictures[np.asarray(jax.random.choice(own, len(pictures), (count,), replace=False))]
                for name in scores:
                    scores[name].append(_score(_complete(name, stored, hidden), stored, hidden))
                advance(1)
            rows += [{"method": name, "patterns": count, **_summary(np.array(each))} for name, each in scores.items()]
    numbers = {
        "sets": sets,
        "units": _SIDE**2,
        "beta": _BETA,
        "shown": {
            name: dict(zip(("pixels", "digits"), _score(states, shown, hidden), strict=True))
            for name, states in completed.items()
        },
        "rows": rows,
    }
    return _figure(shown, hidden, completed, numbers), numbers


def _complete(name: str, patterns: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """All stored patterns completed from the units that are not hidden."""
    probes = np.where(hidden, 0, patterns)
    if name == _GUESS:
        return np.where(hidden, np.where(patterns.sum(axis=0) > 0, 1, -1), patterns)
    if name == "modern":
        memory = ModernHopfield(jnp.asarray(patterns, float), _BETA)
        states = np.asarray(memory.recall(jnp.asarray(probes, float), held=~hidden).states)
        return np.where(states > 0, 1, -1)
    rule = {"Hebb": hebb, "Storkey": storkey, "pseudo-inverse": pseudo_inverse}[name]
    return np.asarray(rule(patterns).recall(probes, held=~hidden).states)


def _score(states: np.ndarray, patterns: np.ndarray, hidden: np.ndarray) -> tuple[float, float]:
    """The share of hidden pixels that are right, and the share of patterns that are right everywhere."""
    right = (states == patterns)[:, hidden]
    return float(right.mean()), float(right.all(axis=1).mean())


def _summary(scores: np.ndarray) -> dict[str, float]:
    error = scores[:, 0].std(ddof=1) / math.sqrt(len(scores))
    return {"pixels": float(scores[:, 0].mean()), "error": float(error), "digits": float(scores[:, 1].mean())}


def _figure(shown: np.ndarray, hidden: np.ndarray, completed: dict[str, np.ndarray], numbers: dict[str, Any]) -> Figure:
    figure = canvas(12, 4.6)
    grid = figure.add_gridspec(1, 2, width_ratios=[1.35, 1.0])
    axes = panel(figure, grid[0], title="Ten digits stored, the lower halves hidden")
    names = {"stored": shown, "probe": np.where(hidden, 0, shown), **completed}
    tiles = as_colour(np.concatenate(list(names.values())).reshape(-1, _SIDE, _SIDE))
    # wrong pixels in colour
    for number, states in enumerate(completed.values(), start=2):
        wrong = (states != shown).reshape(-1, _SIDE, _SIDE)
        own = tiles[number * len(shown) : (number + 1) * len(shown)]
        own[wrong] = np.where(states.reshape(wrong.shape)[wrong, None] > 0, _WRONG_WHITE, _WRONG_BLACK)
    picture(axes, mosaic(tiles, len(shown)))
    pitch = _SIDE + gap_of(_SIDE)
    labels = [f"{name}\n{numbers['shown'][name]['digits']:.0%} right" if name in completed else name for name in names]
    axes.set_yticks(np.arange(len(names)) * pitch + _SIDE / 2 - 0.5, labels)
    axes.tick_params(length=0)
    axes.set_xlabel("coloured pixels are wrong", fontsize=9.5, color=LIGHT.ink)
    title = f"Completion over the number of digits, {numbers['units']} units"
    axes = panel(figure, grid[1], title=title, x="digits stored", y="hidden pixels that are right")
    for name, colour in zip((*_METHODS, _GUESS), (*_COLOURS, LIGHT.muted), strict=True):
        own = [row for row in numbers["rows"] if row["method"] == name]
        axes.errorbar(
            [row["patterns"] for row in own], [row["pixels"] for row in own], [1.96 * row["error"] for row in own],
            color=colour, marker="o", markersize=3.5, linewidth=1.4, linestyle="--" if name == _GUESS else "-",
            label=name,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks(_COUNTS, [str(count) for count in _COUNTS])
    axes.minorticks_off()
    legend(axes, loc="lower left")
    return figure
