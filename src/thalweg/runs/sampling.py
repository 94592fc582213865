"""Write samples of a run, their evaluation and the report to its folder."""

import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from thalweg.core import shorten_signatures, whole_number
from thalweg.core.files import read_json, write_json
from thalweg.core.progress import progress_bar
from thalweg.report import write_report
from thalweg.runs.build import sampling_key
from thalweg.runs.configuration import read_config
from thalweg.runs.digests import digest_model
from thalweg.runs.files import RESULTS, SAMPLES, write_npz
from thalweg.runs.load import load_run
from thalweg.runs.own_samples import write_own_samples
from thalweg.runs.progress import working
from thalweg.train import Run
from thalweg.train.evaluation import draw_samples, energies_of_rows, mean_energies, scores_of_classes, spread_rows
from thalweg.train.lock import locked
from thalweg.train.sampling import choose_sampling


def sample(
    folder: str | Path,
    *,
    chains: int | None = None,
    steps: int | None = None,
    seed: int | None = None,
    best: bool = False,
    progress: bool = False,
) -> Path:
    """Draw new samples from the newest checkpoint of a run and evaluate them: ``thalweg sample``.

    The samples replace ``samples/samples.npz`` in the run folder; its path is returned. The numbers go to
    ``results.json``.

    Args:
        folder: a run folder.
        chains: the number of samples; by default as configured.
        steps: the number of steps of every chain; by default as configured.
        seed: another number gives other samples; by default the run's own seed.
        best: sample the best checkpoint, kept by ``train.keep_best``, instead of the newest.
        progress: show the progress.

    >>> import jax, optax, tempfile, thalweg as tw
    >>> key_data, key_model, key_fit = jax.random.split(jax.random.key(0), 3)
    >>> data, energy = tw.data.two_moons(key_data, 100), tw.energies.MLP(2, 8, key=key_model)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = tw.fit(energy, data, tw.objectives.MaximumLikelihood(steps=2), optimizer=optax.adam(1e-3), steps=3,
    ...                  batch_size=10, key=key_fit, run_dir=folder)
    ...     print(tw.runs.sample(folder, chains=5, steps=4).name)
    samples.npz
    """
    folder = Path(folder)
    with working("reading the checkpoint", progress):
        run = load_run(folder, best=best)
    chosen = int(read_config(folder).get("seed", 0)) if seed is None else whole_number("seed", seed, 0)
    with locked(folder):
        return write_samples(run, folder, chosen, chains=chains, steps=steps, progress=progress)


def write_samples(
    run: Run, folder: Path, seed: int, *, chains: int | None = None, steps: int | None = None, progress: bool = False
) -> Path:
    """Write samples, energies and scores of a run to its folder."""
    chains = (run.source.chains or 100) if chains is None else whole_number("chains", chains)
    steps = None if steps is None else whole_number("steps", steps)
    with working("loading the data", progress):
        dataset = run.source.dataset(run.energy)
    begun = time.perf_counter()
    key_kernel, key_draw = _split(sampling_key(seed))
    how = choose_sampling(run, key=key_kernel, chains=chains, steps=steps, dataset=dataset)
    with progress_bar(f"{chains} chains from noise", how.steps, shown=progress) as show:
        drawn = draw_samples(run, how, key=key_draw, show=show)
    seconds = time.perf_counter() - begun
    with working("evaluating the samples", progress):
        energy = energies_of_rows(run, how, drawn, dataset)
    # by this the samples are known as those of this checkpoint
    arrays: dict[str, Any] = {**drawn._asdict(), **energy, "model": np.array(digest_model(run.energy))}
    if dataset is not None:
        arrays["data"] = dataset.x_train[spread_rows(len(dataset.x_train), chains)]
    write_npz(folder / SAMPLES, {name: array for name, array in arrays.items() if array is not None})
    if dataset is not None:
        write_own_samples(read_config(folder), folder, drawn.x, dataset.x_train)
    results = {
        **read_json(folder / RESULTS),
        "updates": run.step,
        "chains": chains,
        "steps": how.steps,
        "seed": seed,
        "sampling_seconds": round(seconds, 3),
        **mean_energies(energy),
    }
    write_json(folder / RESULTS, results)
    # last, since labels that are not classes are refused, and by now the samples are on disk
    with working("judging the samples by a classifier", progress):
        write_json(folder / RESULTS, {**results, **scores_of_classes(drawn, dataset)})
    return folder / SAMPLES


def _split(key: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    first, second = jax.random.split(key)
    return first, second


def report(run: Run | str | Path) -> Path:
    """Write ``report.html`` into the folder of a run, from the files there, and return its path: ``thalweg report``.

    Args:
        run: a run returned by `tw.load_run` or by `tw.fit` with a ``run_dir``, or the run folder.

    >>> import jax, optax, tempfile, thalweg as tw
    >>> key_data, key_model, key_fit = jax.random.split(jax.random.key(0), 3)
    >>> data, energy = tw.data.two_moons(key_data, 100), tw.energies.MLP(2, 8, key=key_model)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = tw.fit(energy, data, tw.objectives.MaximumLikelihood(steps=2), optimizer=optax.adam(1e-3), steps=3,
    ...                  batch_size=10, key=key_fit, run_dir=folder)
    ...     page = tw.report(run).read_text(encoding="utf-8")
    >>> "Training" in page
    True
    """
    folder = run.folder if isinstance(run, Run) else Path(run)
    if folder is None:
        raise ValueError("expected a run with a folder to report on, got one that wrote none; train with run_dir=...")
    read_config(folder)
    return write_report(folder)


shorten_signatures(globals(), ["report", "sample"])
