"""Numbers of a trained model on data and on its own samples; the command line writes the same ones."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from thalweg.core import is_score, space_of, typed_key
from thalweg.data import Dataset
from thalweg.evaluate.class_scores import class_scores
from thalweg.spaces import as_points
from thalweg.train.drawing import Drawn, draw, energies, model_of_points
from thalweg.train.sampling import Sampling, choose_sampling
from thalweg.train.source import as_dataset

_ROWS = 2000  # rows of data whose energy is computed, at most


def evaluate_run(
    run: Any, data: Any, *, key: PRNGKeyArray, kernel: Any, chains: int | None, steps: int | None
) -> dict[str, Any]:
    """`Run.evaluate`."""
    dataset = run.source.dataset(run.energy) if data is None else as_dataset(run.energy, data)
    count = (run.source.chains or 100) if chains is None else chains
    key_kernel, key_draw = jax.random.split(typed_key(key))
    how = choose_sampling(run, key=key_kernel, chains=count, kernel=kernel, steps=steps, dataset=dataset)
    drawn = draw_samples(run, how, key=key_draw)
    numbers = {"chains": count, "steps": how.steps, **mean_energies(energies_of_rows(run, how, drawn, dataset))}
    return numbers | scores_of_classes(drawn, dataset)


def draw_samples(
    run: Any, how: Sampling, *, key: PRNGKeyArray, show: Callable[[int], None] = lambda count: None
) -> Drawn:
    """Samples of a run from fresh noise, with the paths of some chains; ``show(n)`` is called after every n steps."""
    like = np.asarray(how.like)
    options = {"chains": len(like), "steps": how.steps, "noise": how.noise, "conditions": how.conditions}
    return draw(run.energy, how.kernel, like, key, show, **options)


def energies_of_rows(run: Any, how: Sampling, drawn: Drawn, dataset: Dataset | None) -> dict[str, np.ndarray]:
    """The energies of samples and of at most 2000 rows each of training and test data; empty for a score network."""
    model = model_of_points(run.energy, how.kernel)
    if is_score(model):
        return {}
    conditional = how.conditions is not None
    rows = {"samples": (drawn.x, how.conditions)}
    if dataset is not None:
        parts = {"data": (dataset.x_train, dataset.y_train), "test": (dataset.x_test, dataset.y_test)}
        for name, (x, y) in parts.items():
            if x is not None and (y is not None or not conditional):
                chosen = spread_rows(len(x), _ROWS)
                # discrete data are often stored in another type; the space knows the right one
                points = np.asarray(as_points(space_of(run.energy), x[chosen]))
                rows[name] = (points, y[chosen] if conditional and y is not None else None)
    order = [name for name in ("data", "samples", "test") if name in rows]
    return {f"energy_{name}": energies(model, *rows[name]) for name in order}


def spread_rows(rows: int, most: int) -> np.ndarray:
    """The indices of at most ``most`` rows, evenly spaced, since files are often sorted by class.

    >>> spread_rows(10, 4).tolist()
    [0, 3, 6, 9]
    """
    return np.unique(np.linspace(0, rows - 1, min(rows, most)).astype(int))


def mean_energies(values: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The mean of each array, and ``energy_gap``, the data's mean minus the samples': zero if the model fits."""
    means = {name: float(np.mean(each)) for name, each in values.items()}
    if {"energy_data", "energy_samples"} <= means.keys():
        means["energy_gap"] = means["energy_data"] - means["energy_samples"]
    return means


def scores_of_classes(drawn: Drawn, dataset: Dataset | None) -> dict[str, Any]:
    """The scores of the samples under a classifier trained on the data; empty unless each row has one class."""
    labels = None if dataset is None else dataset.y_train
    if dataset is None or labels is None or labels.ndim != 1:
        return {}
    return {"classes": class_scores(drawn.x, dataset)}
