"""Evaluate a run: compute metrics, and keep them in ``results.json`` as long as nothing they depend on has changed."""

import dataclasses
import datetime
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thalweg import __version__
from thalweg.core import MissingExtraError, as_path, between, flag, shorten_signatures, whole_number
from thalweg.core.files import read_json, write_json
from thalweg.data import Dataset
from thalweg.report.files import read_samples
from thalweg.runs.configuration import read_config
from thalweg.runs.digests import digest_model, digest_values
from thalweg.runs.evaluation_rows import Computed, Evaluation, Row, from_json, to_json
from thalweg.runs.files import EVALUATION, RESULTS, SAMPLES, write_npz
from thalweg.runs.load import load_run
from thalweg.runs.metrics import METRICS, choose_metrics, parse_metrics
from thalweg.runs.other_data import load_rows
from thalweg.runs.progress import working
from thalweg.runs.sampling import write_samples
from thalweg.runs.subject import Subject
from thalweg.train import Run
from thalweg.train.lock import locked


def evaluate(
    run: Run | str | Path,
    metrics: str | Sequence[str] | None = None,
    *,
    against: Any = None,
    data: Any = None,
    seed: int | None = None,
    confidence: float = 0.95,
    fresh: bool = False,
    progress: bool = False,
) -> Evaluation:
    """Evaluate the newest checkpoint of a run: ``thalweg evaluate``.

    The numbers go to ``evaluation`` in ``results.json`` of the run folder; `tw.report` shows them. A number is reused
    by later calls as long as the checkpoint, the data, the samples, the options and the version of thalweg are the
    same. A metric that does not fit the run, or fails, has a row with the reason; the others are computed. Samples are
    those in the run folder, if they are of this checkpoint, and are drawn as by `tw.runs.sample` otherwise.

    Args:
        run: a run folder, or a run with one.
        metrics: names, as a list or a text with commas, or ``"all"``; by default those that suit the run. The names are
            the keys of ``thalweg.runs.metrics.METRICS``.
        against: other data, to be told apart from the run's by their energy: a name or a path as for `tw.data.load`, or
            an array ``(n, *event)``.
        data: rows to evaluate on, in place of the test rows of the run: a name, a path or an array; or a
            `tw.data.Dataset` in place of all the data of the run, which a run begun in Python does not record.
        seed: of the metrics that use random numbers; by default that of the run.
        confidence: the probability that an interval covers the truth.
        fresh: compute everything again.
        progress: show the progress.

    >>> import jax, optax, tempfile, thalweg as tw
    >>> key_data, key_model, key_fit = jax.random.split(jax.random.key(0), 3)
    >>> data, energy = tw.data.two_moons(key_data, 100), tw.energies.MLP(2, 8, key=key_model)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = tw.fit(energy, data, tw.objectives.MaximumLikelihood(steps=2), optimizer=optax.adam(1e-3), steps=3,
    ...                  batch_size=10, key=key_fit, run_dir=folder)
    ...     row = tw.runs.evaluate(run, "energy_gap")["energy_gap"]
    >>> row.low < row.value < row.high, row.method
    (True, '100 training rows minus 100 samples')
    """
    asked = parse_metrics(metrics)
    between("confidence", confidence, 1e-6, 1 - 1e-6, "0.95 is usual", scalar=True)
    fresh, progress = flag("fresh", fresh), flag("progress", progress)
    seed = None if seed is None else whole_number("seed", seed, 0)
    folder = run.folder if isinstance(run, Run) else as_path("run", run)
    if folder is None:
        raise ValueError("expected a run with a folder to evaluate, got one that wrote none; train with run_dir=...")
    config = read_config(folder)
    if not isinstance(run, Run):
        with working("reading the checkpoint", progress):
            run = load_run(folder)
    with locked(folder):
        subject = _subject(run, folder, config, against, data, seed, float(confidence), progress)
        names = choose_metrics(subject, asked)
        if subject.other is not None and "ood" not in names:
            names.append("ood")
        return _evaluate(subject, folder, names, fresh)


def _subject(
    run: Run,
    folder: Path,
    config: Mapping[str, Any],
    against: Any,
    data: Any,
    seed: int | None,
    confidence: float,
    progress: bool,
) -> Subject:
    with working("loading the data", progress):
        own, data = (data, None) if isinstance(data, Dataset) else (run.source.dataset(run.energy), data)
        # data given in Python may be arrays of JAX
        own = None if own is None else Dataset(*(None if each is None else np.asarray(each) for each in own))  # pyright: ignore
        run = dataclasses.replace(run, source=dataclasses.replace(run.source, data=own))
        rows, other = (None if each is None else load_rows(each, run, folder, config) for each in (data, against))
    own_seed = int(config.get("seed", 0))
    return Subject(
        run,
        own,
        lambda: _samples_of(run, folder, own_seed, progress),
        rows=rows,
        other=other,
        name=Path(str(config.get("data", {}).get("name", "data"))).stem,
        seed=own_seed if seed is None else seed,
        confidence=confidence,
        progress=progress,
    )


def _samples_of(run: Run, folder: Path, seed: int, progress: bool) -> dict[str, np.ndarray]:
    """The samples in the run folder, drawn anew unless they are of this checkpoint."""
    found = read_samples(folder / SAMPLES)
    if str(found.get("model")) != digest_model(run.energy):
        write_samples(run, folder, seed, progress=progress)
        found = read_samples(folder / SAMPLES)
    return found


def _evaluate(subject: Subject, folder: Path, names: Sequence[str], fresh: bool) -> Evaluation:
    """Compute or reuse each metric, and write the results after each one, so that an interruption loses only one."""
    model = digest_model(subject.run.energy)
    known = _known(folder, model)
    rows: list[Row] = []
    for name in names:
        entry = f"{name} {subject.other.name}" if "other" in METRICS[name].uses and subject.other else name
        refused, digest = _inputs(subject, name, model)
        if refused is not None and not METRICS[name].explained:
            rows.append(Row(name, name, remark=refused))  # said, but not stored
            continue
        if refused is not None:
            found = [Row(name, name, remark=refused)]
        elif not fresh and known.get(entry, {}).get("digest") == digest:
            rows += from_json(known[entry]["rows"], known[entry]["date"])
            continue
        else:
            found, digest = _compute(subject, folder, name, entry, digest)
        rows += found
        known[entry] = {"digest": digest, "model": model, "date": _now(), "rows": to_json(found)}
        known = dict(sorted(known.items(), key=lambda item: _place(item[0])))
        results = {**read_json(folder / RESULTS), "evaluation": {"updates": subject.run.step, "metrics": known}}
        write_json(folder / RESULTS, results)
    return Evaluation(folder, subject.run.step, tuple(rows))


def _known(folder: Path, model: str) -> dict[str, Any]:
    """The results of earlier calls for this model."""
    block = read_json(folder / RESULTS).get("evaluation", {})
    entries = block.get("metrics", {}) if isinstance(block, dict) else {}
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict) and entry.get("model") == model}


def _inputs(subject: Subject, name: str, model: str) -> tuple[str | None, str]:
    """The reason why a metric cannot be computed, or None; and the digest of all that its result depends on."""
    metric = METRICS[name]
    refused = metric.refusal(subject)
    if refused is not None:
        return refused, ""
    try:
        inputs = [subject.digest(each) for each in metric.uses]
    except ValueError as problem:  # the samples cannot be drawn
        return str(problem), ""
    return None, digest_values(__version__, name, model, subject.confidence, subject.seed, inputs)


def _compute(subject: Subject, folder: Path, name: str, entry: str, digest: str) -> tuple[list[Row], str]:
    """The rows of a metric and their digest, which is empty if it failed: a failure is not reused."""
    begun = time.perf_counter()
    metric = METRICS[name]
    try:
        with working(f"computing {name}", subject.progress and not metric.has_bar):
            computed = metric.compute(subject, subject.key_of(name))
    except (ValueError, MissingExtraError) as problem:
        computed, digest = Computed([Row(name, name, remark=str(problem))]), ""
    seconds = round(time.perf_counter() - begun, 3)
    _write_arrays(folder, entry, digest, computed.arrays)
    return [row._replace(seconds=seconds) for row in computed.rows], digest


def _write_arrays(folder: Path, entry: str, digest: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the arrays of one metric, with their digest: the report draws only those of the rows it shows."""
    path = folder / EVALUATION
    before = read_samples(path)
    kept = {name: array for name, array in before.items() if not name.startswith(f"{entry}/")}
    new = {f"{entry}/{name}": array for name, array in {**arrays, "digest": np.array(digest)}.items()}
    if arrays or len(kept) < len(before):
        write_npz(path, {**kept, **(new if arrays else {})})


def _place(entry: str) -> int:
    """The place of an entry in the order of the metrics."""
    names, name = list(METRICS), entry.partition(" ")[0]
    return names.index(name) if name in names else len(names)


def _now() -> str:
    return datetime.datetime.now().isoformat(sep=" ", timespec="minutes")


shorten_signatures(globals(), ["evaluate"])
