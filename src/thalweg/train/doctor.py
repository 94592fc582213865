"""The doctor: watches the metrics of every update and reports in words when a training runs away.

The loss is not watched, since it says little about this. Watched are v, the mean gradient norm along the chains; the
energy gap; the acceptance and the divergences of the chains; the norm of their samples; and the norm of the weights.
All these numbers are read back from the device anyway.
"""

import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from thalweg.core.files import read_json, write_json

_ROWS = 10_000  # about as many rows are used to measure the data's scale
_CALM = (
    "lower the learning rate or the sampler's step size, standardise the data, turn on spectral normalisation, or "
    "confine the energy"
)
_MOVE = "lower the sampler's step size, or the learning rate, so that proposals are accepted"
_SCALE = "standardise the data, start the chains near them, or lower the sampler's step size"


class Finding(NamedTuple):
    """A problem, the update since which it is there, and a sentence about it; ``stops`` if it ended the training.

    >>> Finding("acceptance", 120, "expected chains that move, got an acceptance of 0").stops
    False
    """

    name: str
    since: int
    words: str
    stops: bool = False


class Scale(NamedTuple):
    """The data's scale: the mean and the greatest norm of a row, the standard deviation per coordinate, the number of
    coordinates and how many of them are real. The first three are zero if no coordinate is real."""

    norm: float
    greatest: float
    deviation: float
    coordinates: int
    real: int


def measure_scale(x: PyTree) -> Scale:
    """The scale of points ``(rows, *event)``, or a tree of such.

    >>> import numpy as np
    >>> measure_scale(np.array([[3.0, 4.0], [-3.0, -4.0]]))
    Scale(norm=5.0, greatest=5.0, deviation=3.5355339059327378, coordinates=2, real=2)
    """
    flat = [np.reshape(leaf, (len(leaf), -1)) for leaf in jax.tree.leaves(x)]
    picked = [leaf[:: max(1, len(leaf) // _ROWS)] for leaf in flat]
    real = [leaf.astype(float) for leaf in picked if np.issubdtype(leaf.dtype, np.floating)]
    coordinates = sum(leaf.shape[1] for leaf in flat)
    if not real:
        return Scale(0.0, 0.0, 0.0, coordinates, 0)
    rows = np.concatenate(real, axis=1)
    norms = np.linalg.norm(rows, axis=1)
    deviation = math.sqrt(float(np.mean(np.var(rows, axis=0)))) if rows.size else 0.0
    return Scale(float(np.mean(norms)), float(np.max(norms)), deviation, coordinates, rows.shape[1])


class _Rule:
    """A condition on one metric; when it holds for ``patience`` updates in a row, it becomes a finding."""

    def __init__(
        self,
        name: str,
        metric: str,
        holds: Callable[[float], bool],
        words: Callable[[float, int], str],
        patience: int,
        stops: bool = False,
    ):
        self.name, self.stops, self.doubtful = name, stops, False
        self._metric, self._holds, self._words, self._patience = metric, holds, words, patience
        self._since, self._said = 0, False

    def look(self, step: int, row: Mapping[str, float]) -> Finding | None:
        value = row.get(self._metric)
        self.doubtful = value is not None and self._holds(value)
        if value is None or not self.doubtful:
            self._since = 0
            return None
        self._since = self._since or step
        if self._said or step - self._since + 1 < self._patience:
            return None
        self._said = True
        return Finding(self.name, self._since, self._words(value, self._since), self.stops)


class Doctor:
    """Watches a training; call `look` with the metrics of every update.

    A metric is compared with its median over the first updates. That median is clipped to between a natural value for
    data of this scale and a hundred times that value, so that the comparison makes sense even if the first energy is
    nearly flat or very steep. The natural values: at equilibrium ``E‖∇E‖² = E[ΔE]`` is about the number of coordinates
    over their variance, and the standard deviation of the energies is about the root of the number of coordinates.

    Args:
        scale: the data's, see `measure_scale`.
        steps: the number of updates; a short training is judged sooner.
        chains: rows per update, which is also the number of chains.
        weights: the norm of the weights before the first update.

    >>> doctor = Doctor(Scale(1.0, 2.0, 1.0, 2, 2), steps=1000, chains=10, weights=5.0)
    >>> rows = [{"gradient_norm": 2.0 if step < 500 else 1e4} for step in range(600)]
    >>> found = [doctor.look(step, row) for step, row in enumerate(rows, start=1)]
    >>> [(finding.name, finding.since) for finding in found if finding]
    [('gradient_norm', 501)]
    """

    def __init__(self, scale: Scale, *, steps: int, chains: int, weights: float):
        self.findings: list[Finding] = []
        self._early = min(100, max(10, steps // 10))
        self._begun: dict[str, list[float]] = {}
        self._median: dict[str, float] = {}
        deviation = scale.deviation or scale.norm or 1.0
        self._natural = {
            "gradient_norm": math.sqrt(max(scale.real, 1)) / deviation,
            "energy_gap": math.sqrt(max(scale.coordinates, 1)),
            "sample_norm": scale.greatest,
        }
        # weights may be locations or precisions, on the scale of the data
        weights = max(weights if math.isfinite(weights) else 0.0, 1.0, scale.greatest, 1 / max(deviation**2, 1e-300))
        # rules that stop the training come first, so that of two findings at once the graver one is reported
        self._rules = [
            self._growth("gradient_norm", "v (the mean gradient norm along the chains)", 1e4, steps, stops=True),
            self._growth("energy_gap", "the energy gap between data and samples", 1e4, steps, stops=True),
            self._weights(weights, 1e5, steps, stops=True),
            *([self._growth("sample_norm", "the samples' norm", 1e3, steps, stops=True)] if scale.norm else []),
            self._acceptance(1e-3, min(200, max(20, steps // 2)), stops=True),
            self._growth("gradient_norm", "v (the mean gradient norm along the chains)", 1e2, steps),
            self._growth("energy_gap", "the energy gap between data and samples", 1e2, steps),
            self._weights(weights, 1e2, steps),
            self._lag(math.sqrt(max(scale.coordinates, 1)), max(200, steps // 4)),
            self._acceptance(1e-2, min(50, max(10, steps // 4))),
            self._divergences(chains, min(50, max(10, steps // 4))),
            *(self._range(scale, min(100, max(10, steps // 4))) if scale.norm else []),
        ]

    @property
    def in_doubt(self) -> bool:
        """Whether the last update may belong to a runaway, so that its weights should not be saved."""
        return any(rule.doubtful for rule in self._rules if rule.stops)

    def look(self, step: int, row: Mapping[str, float]) -> Finding | None:
        """Examine the metrics of update number ``step``; returns a new finding, or None."""
        for metric in self._natural:
            if metric in row and len(begun := self._begun.setdefault(metric, [])) < self._early:
                begun.append(abs(row[metric]))
                if len(begun) == self._early:
                    self._median[metric] = float(np.median(begun))
        made = [finding for rule in self._rules if (finding := rule.look(step, row)) is not None]
        known = {finding.name for finding in self.findings if not finding.stops}
        fresh = [finding for finding in made if finding.stops or finding.name not in known]
        self.findings += fresh[:1]
        return fresh[0] if fresh else None

    def _reference(self, metric: str) -> float:
        natural = self._natural[metric]
        return min(max(self._median.get(metric, 100 * natural), natural), 100 * natural)

    def _growth(self, metric: str, what: str, factor: float, steps: int, stops: bool = False) -> _Rule:
        def holds(value: float) -> bool:
            return not abs(value) <= factor * self._reference(metric)

        def words(value: float, since: int) -> str:
            reference = self._reference(metric)
            usual = "its early median" if reference == self._median.get(metric) else "what suits data of this scale"
            return (
                f"expected {what} to stay below {factor * reference:.3g}, {factor:g} times {usual}, got more at every "
                f"update since update {since}, now {value:.3g}; {_CALM}"
            )

        return _Rule(metric, metric, holds, words, _patience(steps), stops)

    def _lag(self, spread: float, patience: int) -> _Rule:
        """The energy gap is below minus the spread of energies for a long time: the chains end at high energies, so
        they do not reach the data. The gap stays bounded if the network is, so `_growth` does not see this."""

        def words(value: float, since: int) -> str:
            return (
                f"expected chains that come to where the data are, got an energy gap beyond {-spread:.3g} (now "
                f"{value:.3g}) at every update since update {since}; lower the learning rate or the step size, "
                "or take more steps of the chains"
            )

        return _Rule("energy_gap", "energy_gap", lambda value: value < -spread, words, patience)

    def _weights(self, usual: float, factor: float, steps: int, stops: bool = False) -> _Rule:
        def words(value: float, since: int) -> str:
            return (
                f"expected weights of a norm below {factor * usual:.3g}, got more at every update since update {since} "
                f"(now {value:.3g}); lower the learning rate, or standardise the data"
            )

        return _Rule(
            "weight_norm", "weight_norm", lambda value: not value <= factor * usual, words, _patience(steps), stops
        )

    def _acceptance(self, least: float, patience: int, stops: bool = False) -> _Rule:
        def words(value: float, since: int) -> str:
            return (
                f"expected chains that move, got an acceptance below {least:g} (now {value:.2g}) at every update since "
                f"update {since}; {_MOVE}"
            )

        return _Rule("acceptance", "acceptance", lambda value: not value >= least, words, patience, stops)

    def _divergences(self, chains: int, patience: int) -> _Rule:
        def words(value: float, since: int) -> str:
            return (
                f"expected few divergent steps, got {value:.0f} of {chains} chains in an update, one or more for every "
                f"chain, at every update since update {since}; {_MOVE}"
            )

        return _Rule("divergences", "divergences", lambda value: value >= chains, words, patience)

    def _range(self, scale: Scale, patience: int) -> list[_Rule]:
        def words(value: float, since: int) -> str:
            return (
                f"expected samples where the data are, whose rows have a norm of {scale.norm:.3g}, got samples with "
                f"one of {value:.3g} at every update since update {since}; {_SCALE}"
            )

        outside, inside = lambda value: not value <= 10 * scale.greatest, lambda value: value < 0.01 * scale.norm
        return [_Rule("sample_norm", "sample_norm", holds, words, patience) for holds in (outside, inside)]


def _patience(steps: int) -> int:
    return min(20, max(5, steps // 20))


def tell(finding: Finding) -> None:
    """Print a finding on stderr; a progress bar shows it above itself."""
    print(finding.words, file=sys.stderr)


def write_findings(folder: Path, findings: list[Finding]) -> None:
    """Write the findings of a training to ``results.json`` under ``findings``, and keep its other entries."""
    path = folder / "results.json"
    results = read_json(path)
    if findings or "findings" in results:
        write_json(path, {**results, "findings": [finding._asdict() for finding in findings]})


def read_findings(folder: Path) -> tuple[Finding, ...]:
    """The findings that `write_findings` wrote; empty if there are none."""
    path = folder / "results.json"
    try:
        return tuple(Finding(**each) for each in read_json(path).get("findings", []))
    except TypeError as problem:
        raise ValueError(f"{path}: expected findings as a training writes them, got others; delete it") from problem
