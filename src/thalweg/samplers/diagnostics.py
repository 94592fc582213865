"""A summary of chains: whether they have mixed and how accurate their means are, in numbers and in words."""

import io
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, PyTree

from thalweg.core.html import html_table
from thalweg.samplers.convergence import Convergence, measure_convergence

_LIMIT = 1.01  # the largest R-hat of mixed chains
_DRAWS_PER_CHAIN = 100  # the smallest number of effective draws per chain
_ROWS = 10  # the largest number of coordinates in a printed table
_COLUMNS = ("mean", "sd", "mcse", "ess_bulk", "ess_tail", "rhat")


class Summary(NamedTuple):
    """The result of `Chains.summary`.

    The first six fields hold one number per coordinate: mean, standard deviation, Monte Carlo standard error of the
    mean, bulk and tail effective sample size, rank-normalised split R-hat. Each is an array of the event's shape or, if
    a point is a tree, a tree of such arrays. For a coordinate that never moved ``sd`` is zero and undefined numbers are
    NaN. The other fields are for all coordinates together: mean acceptance, number of divergent steps, whether the
    chains have mixed, and a verdict in words. ``name`` is the name of a point in the printed table.
    """

    mean: Any
    sd: Any
    mcse: Any
    ess_bulk: Any
    ess_tail: Any
    rhat: Any
    acceptance: float | None
    divergences: int | None
    mixed: bool
    verdict: str
    name: str = "x"

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Table

        rows, note = self._rows()
        table = Table("", *_COLUMNS)
        for label, *values in rows:
            # a label may hold square brackets, which rich would read as markup
            table.add_row(label.replace("[", r"\["), *values)
        text = io.StringIO()
        console = Console(file=text, width=100)
        console.print(table)
        if note:
            console.print(note)
        console.print(self.verdict, soft_wrap=True, markup=False)
        return text.getvalue().rstrip()

    def _repr_html_(self) -> str:
        rows, note = self._rows()
        return html_table(rows, ("", *_COLUMNS), note=f"{note} {self.verdict}".strip())

    def _rows(self) -> tuple[list[list[str]], str]:
        """A name and its numbers for each coordinate shown, and what is left out."""
        columns = {name: _flatten(getattr(self, name)) for name in _COLUMNS}
        count = len(columns["rhat"])
        # only the worst-mixed coordinates: an image would have thousands of rows
        shown = np.sort(np.argsort(-np.nan_to_num(columns["rhat"], nan=np.inf), kind="stable")[:_ROWS])
        labels = _labels(self.mean, shown, self.name)
        rows = [
            [label, *(_show(name, float(columns[name][row])) for name in _COLUMNS)]
            for row, label in zip(shown, labels, strict=True)
        ]
        return rows, f"(the {len(shown)} worst-mixed of {count} coordinates)" if count > len(shown) else ""


def summarise(draws: PyTree, stats: dict[str, Array], name: str = "x") -> Summary:
    """The `Summary` of draws ``(chains, draws, *event)``, or of a tree of such arrays.

    R-hat and effective sample sizes are those of Vehtari et al. (2021), Bayesian Analysis 16(2); see
    `measure_convergence`. Chains count as mixed if, in every coordinate, R-hat is below 1.01 and the bulk effective
    size is at least 100 per chain, as that paper recommends.
    """
    leaves, form = jax.tree.flatten(draws)
    leaves = [np.asarray(leaf) for leaf in leaves]
    chains = _check_shapes(leaves)
    parts = [measure_convergence(leaf.reshape(*leaf.shape[:2], -1)) for leaf in leaves]
    together = Convergence(*(np.concatenate(field) for field in zip(*parts, strict=True)))
    trees = {
        column: jax.tree.unflatten(
            form,
            [getattr(part, column).reshape(leaf.shape[2:]) for part, leaf in zip(parts, leaves, strict=True)],
        )
        for column in _COLUMNS
    }
    acceptance = float(np.mean(stats["acceptance"])) if "acceptance" in stats else None
    divergences = int(np.sum(stats["divergences"])) if "divergences" in stats else None
    still = np.flatnonzero(~together.varies)
    unmoved = _list_some(_labels(trees["mean"], still[:_ROWS], name), len(still))
    lost = _lost_chains(leaves)
    mixed, verdict = _assess(together, chains, lost, unmoved)
    if divergences and not len(lost):
        steps = "1 step" if divergences == 1 else f"{divergences} steps"
        verdict = f"{verdict} {steps} diverged: take a smaller step size."
    return Summary(**trees, acceptance=acceptance, divergences=divergences, mixed=mixed, verdict=verdict, name=name)


def _check_shapes(leaves: Sequence[np.ndarray]) -> int:
    """The number of chains; raises if there are too few draws or chains to judge mixing."""
    shapes = sorted({leaf.shape[:2] for leaf in leaves})
    if len(shapes) != 1 or len(shapes[0]) != 2 or not sum(leaf.size for leaf in leaves):
        got = ", ".join(str(leaf.shape) for leaf in leaves) or "no arrays"
        raise ValueError(
            f"expected draws of shape (chains, draws, *event), the first two equal in all arrays and none empty, "
            f"got {got}; give what `sample` returns"
        )
    chains, count = shapes[0]
    if chains < 2 or count < 4:
        raise ValueError(
            f"expected at least 2 chains of 4 draws to judge mixing, got {chains} of {count}; run more chains or draws"
        )
    return chains


def _lost_chains(leaves: Sequence[np.ndarray]) -> np.ndarray:
    """The indices of the chains with a non-finite draw."""
    return np.flatnonzero(np.any([~np.isfinite(leaf).all(axis=tuple(range(1, leaf.ndim))) for leaf in leaves], axis=0))


def _assess(numbers: Convergence, chains: int, lost: np.ndarray, unmoved: str) -> tuple[bool, str]:
    """Whether all coordinates have mixed, and why."""
    if len(lost):
        which = _list_some([str(chain) for chain in lost[:_ROWS]], len(lost))
        return False, (
            f"{len(lost)} of {chains} chains ran off to non-finite values (numbered from 0: {which}): "
            "take a smaller step size."
        )
    if not numbers.varies.any():
        return False, "No coordinate ever moved: nothing was accepted, or all are held fixed."
    worst = float(np.max(numbers.rhat[numbers.varies]))
    fewest = float(np.min(numbers.ess_bulk[numbers.varies]))
    rhat, size, enough = _show("rhat", worst), _show("ess_bulk", fewest), _DRAWS_PER_CHAIN * chains
    mixed = worst < _LIMIT and fewest >= enough
    if mixed:
        verdict = f"The chains have mixed (R-hat {rhat}, at least {size} effective draws)."
    elif worst < _LIMIT:
        verdict = (
            f"The chains agree (R-hat {rhat}) but only {size} draws are effective (should be {enough}): run longer."
        )
    else:
        verdict = (
            f"The chains have NOT mixed (R-hat up to {rhat}, should be below {_LIMIT}): they disagree about where the "
            "mass is. Run longer, or use a kernel that crosses barriers."
        )
    if unmoved:
        others = f"In the other coordinates, {verdict[0].lower()}{verdict[1:]}"
        return False, f"Never moved: {unmoved} (nothing was accepted, or it is held fixed). {others}"
    return mixed, verdict


def _show(column: str, value: float) -> str:
    """A number as text, rounded so that R-hat stays on the same side of its limit."""
    if not math.isfinite(value):
        return str(value)
    if column == "rhat" and value < 1000:
        texts = (f"{value:.{digits}f}" for digits in (3, 4, 6, 9))
        side = np.sign(value - _LIMIT)
        return next((text for text in texts if np.sign(float(text) - _LIMIT) == side), str(value))
    if column.startswith("ess"):
        return f"{math.floor(value)}"
    return f"{value:.4g}"


def _flatten(tree: PyTree) -> np.ndarray:
    return np.concatenate([np.reshape(leaf, -1) for leaf in jax.tree.leaves(tree)])


def _labels(tree: PyTree, rows: Sequence[int] | np.ndarray, name: str) -> list[str]:
    """The names of the given coordinates of ``_flatten(tree)``: ``x[3]``, ``theta[0,1]``, ``mu``."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    ends = np.cumsum([np.size(leaf) for _, leaf in paths])
    labels = []
    for row in rows:
        place = int(np.searchsorted(ends, row, side="right"))
        path, leaf = paths[place]
        within = int(row) - int(ends[place]) + np.size(leaf)
        index = ",".join(str(number) for number in np.unravel_index(within, np.shape(leaf)))
        labels.append(name_leaf(path, name) + (f"[{index}]" if index else ""))
    return labels


def name_leaf(path: Sequence[Any], name: str = "x") -> str:
    """``mu`` or ``outer.mu`` in dictionaries and named tuples, ``x[0]`` in tuples, ``x`` if there is no path."""
    label = ""
    for entry in path:
        word = jax.tree_util.keystr((entry,), simple=True)
        if isinstance(entry, jax.tree_util.SequenceKey):
            label = f"{label or name}[{word}]"
        else:
            label = f"{label}.{word}" if label else word
    return label or name


def _list_some(words: Sequence[str], count: int) -> str:
    """The words, and how many more there are."""
    more = f" and {count - len(words)} more" if count > len(words) else ""
    return ", ".join(words) + more
