"""How often the interval of log Z covers the truth, over models of six families."""

import json
import math
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.core.progress import progress_bar
from thalweg.evaluate import log_z
from thalweg.experiments.log_z_models import FAMILIES, KnownModel, known_models
from thalweg.report.figures import LIGHT, canvas, legend, panel

_PEERS = ("ebmkit", "ferrotherm")


def log_z_coverage(
    key: PRNGKeyArray, progress: bool = False, *, models: int = 240, seed: int = 0, peers: str = ""
) -> tuple[Figure, dict[str, Any]]:
    """The 95 % interval of `evaluate.log_z` by annealing, over models with known log Z: restricted Boltzmann machines,
    Ising lattices and spin glasses, Potts models, Gaussian mixtures, funnels, and spikes in slabs.

    Numbers, for each family: ``covered``, the share of intervals that hold the truth; ``covered_unwarned``, that share
    among the models without a warning; ``z_deviation``, the standard deviation of ``(value - truth)/standard error``;
    ``width``, the median width; ``warned``, the share with a warning; ``missed_unwarned``, how many miss without a
    warning; ``seconds``, the median time, compilation included for the first of a shape.

    Args:
        key: the random key.
        progress: show a bar.
        models: how many models, an equal number of each family.
        seed: of the models.
        peers: the Python of an environment with ebmkit and ferrotherm, as ``make peers`` makes it; their answers are
            drawn beside ours. Without it they are left out.

    >>> figure, numbers = log_z_coverage(jax.random.key(0), models=6)  # doctest: +SKIP
    """
    each = max(1, models // len(FAMILIES))
    rows: list[dict[str, Any]] = []
    known = []
    with progress_bar("log Z of known models", each * len(FAMILIES), shown=progress) as advance:
        for number, model in enumerate(known_models(seed, each)):
            begun = time.monotonic()
            estimate = log_z(model.energy, key=jax.random.fold_in(key, number), method="annealing")
            rows.append(
                {
                    "family": model.family,
                    "truth": model.log_z,
                    "value": estimate.value,
                    "low": estimate.low,
                    "high": estimate.high,
                    "standard_error": estimate.standard_error,
                    "warning": estimate.warning,
                    "seconds": time.monotonic() - begun,
                }
            )
            known.append(model)
            advance(note=model.family)
    answers = _ask_peers(peers, known) if peers else {}
    numbers: dict[str, Any] = {"models": len(rows), "families": {}, "rows": rows}
    for family in FAMILIES:
        numbers["families"][family] = _summary([row for row in rows if row["family"] == family])
    for name in _PEERS:
        if name in answers:
            numbers[name] = _peer_summaries(answers[name], known)
    numbers["table"] = _table(numbers)
    return _figure(rows, numbers), numbers


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    covered = np.array([row["low"] <= row["truth"] <= row["high"] for row in rows])
    warned = np.array([row["warning"] is not None for row in rows])
    z = np.array([(row["value"] - row["truth"]) / row["standard_error"] for row in rows])
    usual = z[~warned & np.isfinite(z)]
    return {
        "models": len(rows),
        "covered": float(covered.mean()),
        "covered_unwarned": float(covered[~warned].mean()) if np.any(~warned) else None,
        "z_mean": float(usual.mean()) if len(usual) else None,
        "z_deviation": float(usual.std()) if len(usual) else None,
        "width": float(np.median([row["high"] - row["low"] for row in rows])),
        "warned": float(warned.mean()),
        "missed_unwarned": int(np.sum(~covered & ~warned)),
        "seconds": float(np.median([row["seconds"] for row in rows])),
    }


def _ask_peers(python: str, known: list[KnownModel]) -> dict[str, Any]:
    """The answers of other libraries, computed in an environment of their own."""
    script = Path(__file__).with_name("peers_log_z.py")
    if not Path(python).exists():
        raise ValueError(
            f"expected the Python of an environment with ebmkit and ferrotherm, got {python}; run make peers"
        )
    with tempfile.TemporaryDirectory() as folder:
        models, answers = Path(folder) / "models.npz", Path(folder) / "answers.json"
        arrays = {f"{number}/{name}": part for number, model in enumerate(known) for name, part in model.arrays.items()}
        np.savez(models, **arrays)
        subprocess.run([python, str(script), str(models), str(answers)], check=True)
        return json.loads(answers.read_text())


def _peer_summaries(answers: dict[str, Any], known: list[KnownModel]) -> dict[str, Any]:
    """For each family the share of a library's 95 % intervals that cover, their median width and error."""
    found: dict[str, Any] = {}
    for family in FAMILIES:
        rows = [
            (answers[str(number)], model.log_z)
            for number, model in enumerate(known)
            if model.family == family and "value" in answers.get(str(number), {})
        ]
        if not rows:
            continue
        found[family] = {
            "models": len(rows),
            "covered": float(np.mean([row["low"] <= truth <= row["high"] for row, truth in rows])),
            "width": float(np.median([row["high"] - row["low"] for row, _ in rows])),
            "error": float(np.median([abs(row["value"] - truth) for row, truth in rows])),
            "seconds": float(np.median([row["seconds"] for row, _ in rows])),
        }
    return found


def _words(value: float | None, form: str) -> str:
    return "-" if value is None or not math.isfinite(value) else format(value, form)


def _table(numbers: dict[str, Any]) -> dict[str, Any]:
    columns = [
        "family",
        "models",
        "covered",
        "sd of z",
        "width",
        "warned",
        "seconds",
        *(f"{p} covered" for p in _PEERS),
    ]
    rows = []
    for family, found in numbers["families"].items():
        peers = [_words(numbers.get(name, {}).get(family, {}).get("covered"), ".0%") for name in _PEERS]
        rows.append(
            [
                family,
                str(found["models"]),
                _words(found["covered_unwarned"], ".1%"),
                _words(found["z_deviation"], ".2f"),
                _words(found["width"], ".3f"),
                _words(found["warned"], ".1%"),
                _words(found["seconds"], ".1f"),
                *peers,
            ]
        )
    return {"columns": columns, "rows": rows}


def _figure(rows: list[dict[str, Any]], numbers: dict[str, Any]) -> Figure:
    figure = canvas(11, 4.6)
    grid = figure.add_gridspec(1, 2, width_ratios=[1.6, 1.0])
    axes = panel(figure, grid[0], title="Error of log Z with its 95 % interval", x="model", y="estimate - truth (nats)")
    start = 0
    for family in FAMILIES:
        own = sorted((row for row in rows if row["family"] == family), key=lambda row: row["high"] - row["low"])
        for place, row in enumerate(own, start):
            covers = row["low"] <= row["truth"] <= row["high"]
            colour = LIGHT.muted if row["warning"] else LIGHT.data if covers else LIGHT.samples
            low, high = (np.clip(row[side] - row["truth"], -2, 2) for side in ("low", "high"))
            axes.plot([place, place], [low, high], color=colour, linewidth=1.2)
        axes.text(
            start + len(own) / 2, 0.97, family, transform=axes.get_xaxis_transform(), ha="center", va="top", size=8
        )
        start += len(own)
        axes.axvline(start - 0.5, color=LIGHT.grid, linewidth=0.8)
    axes.axhline(0, color=LIGHT.ink, linewidth=0.8)
    axes.set_yscale("symlog", linthresh=0.1)
    for label, colour in (("covers", LIGHT.data), ("misses", LIGHT.samples), ("with a warning", LIGHT.muted)):
        axes.plot([], [], color=colour, label=label)
    legend(axes, loc="lower left", ncols=3)
    axes = panel(figure, grid[1], title="Share of intervals that cover", x="", y="share")
    names = list(FAMILIES)
    series = [("thalweg", LIGHT.data, {f: numbers["families"][f]["covered"] for f in names})]
    series += [
        (name, colour, {f: numbers[name][f]["covered"] for f in names if f in numbers[name]})
        for name, colour in zip(_PEERS, (LIGHT.samples, LIGHT.held_out), strict=True)
        if name in numbers
    ]
    width = 0.8 / len(series)
    for place, (name, colour, shares) in enumerate(series):
        at = [names.index(f) + (place - (len(series) - 1) / 2) * width for f in shares]
        axes.bar(at, list(shares.values()), width * 0.9, color=colour, label=name)
    axes.axhline(0.95, color=LIGHT.ink, linewidth=1.0, linestyle="--", label="95 %")
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_ylim(0, 1.25)
    legend(axes, loc="upper left", ncols=2)
    return figure
