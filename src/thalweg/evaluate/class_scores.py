"""Scores of samples by a classifier trained on the real data: its confidence, and which classes the samples cover."""

from collections.abc import Callable
from typing import Any

import numpy as np

from thalweg.core import whole_number
from thalweg.data import Dataset, check_array, check_labels

_CLASSIFIER = "RBF kernel ridge classifier on pixels, probabilities calibrated on cross-validated training rows"
_FOLDS = 5
_RIDGE = 0.03
_BLOCK = 1000

Classifier = Callable[[np.ndarray], np.ndarray]


def class_scores(samples: Any, dataset: Dataset, *, most_rows: int = 3000, seed: int = 0) -> dict[str, Any]:
    r"""The confidence of a classifier trained on real rows in ``samples``, and which classes they cover.

    The classifier is kernel ridge regression on one-hot labels, ``s(x) = Σᵢ αᵢ exp(-γ‖x - xᵢ‖²)`` with γ = 2 over the
    mean squared distance between rows (Rifkin et al. 2003, regularised least-squares classification), and
    ``p(y|x) = softmax(β s(x))`` with β fitted to the training labels by five-fold cross-validation (temperature
    scaling, Guo et al. 2017). There are two reasons for this choice. Its probabilities are calibrated: on `digits` the
    mean top probability of held-out images equals the accuracy within a hundredth. And far from all data ``s`` goes to
    zero, so that noise gets probabilities near ``1 / classes``, while a network or a support vector machine would be
    confident.

    Samples need not be images: rows are compared as flat vectors. The result is deterministic given ``seed``.

    Args:
        samples: ``(n, *event)``.
        dataset: real rows with one label each. If it has no test rows, a fifth of the training rows are held out.
        most_rows: at most this many training rows and held-out rows are used, chosen at random, to bound the time
            (about a second for `digits`, a few for 3000 rows of 28×28).
        seed: the seed of that choice and of the folds.

    Returns:
        A dict for JSON: ``classifier`` (a description), ``classifier_accuracy`` on held-out rows,
        ``mean_top_probability`` of the samples (the mean of ``max_y p(y|x)``), ``mean_top_probability_held_out`` of the
        held-out real rows, ``class_shares`` (the share of samples with each class as the most probable one), ``labels``
        (the classes, in the order of these shares), ``classes_covered`` (the number of classes with at least one sample
        whose probability of that class is above one half), ``classes`` (their number), ``samples`` (n).

    >>> from thalweg.data import digits
    >>> real = digits()
    >>> scores = class_scores(real.x_test, real)
    >>> scores["classes_covered"], scores["classifier_accuracy"] > 0.97
    (10, True)
    """
    x_train, y_train, x_test, y_test = _split(dataset, most_rows, seed)
    x = _rows(samples, "samples", dataset.x_train.shape[1:])
    labels, index = np.unique(y_train, return_inverse=True)
    fewest = int(np.min(np.bincount(index)))
    if len(labels) < 2 or fewest < _FOLDS:
        raise ValueError(
            f"labels: expected at least two classes with {_FOLDS} rows each, got {len(labels)} classes, the smallest "
            f"with {fewest} rows; leave small classes out, or give class labels where these are measurements"
        )
    # such small linear systems gain nothing from threads, and spinning threads are far slower on a busy machine
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        classifier = _train(x_train, index, len(labels), seed)
        held_out, drawn = classifier(x_test), classifier(x)
    best, top = drawn.argmax(axis=1), drawn.max(axis=1)
    return {
        "classifier": _CLASSIFIER,
        "classifier_accuracy": float(np.mean(labels[held_out.argmax(axis=1)] == y_test)),
        "mean_top_probability": float(top.mean()),
        "mean_top_probability_held_out": float(held_out.max(axis=1).mean()),
        "class_shares": (np.bincount(best, minlength=len(labels)) / len(x)).tolist(),
        "labels": labels.tolist(),
        "classes_covered": len(np.unique(best[top > 0.5])),
        "classes": len(labels),
        "samples": len(x),
    }


def _split(dataset: Dataset, most_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and held-out rows as flat vectors, with their labels, at most ``most_rows`` of each."""
    if not isinstance(dataset, Dataset):
        raise ValueError(f"dataset: expected a tw.data.Dataset, got {type(dataset).__name__}; load or make one")
    most_rows, seed = whole_number("most_rows", most_rows, hint="3000 is a good number"), whole_number("seed", seed, 0)
    if dataset.y_train is None:
        raise ValueError("dataset: expected labels (y_train) to train a classifier on, got none; give a labelled set")
    x_train, y_train = dataset.x_train, _labels(dataset.y_train, len(dataset.x_train), "y_train")
    order = np.random.default_rng(seed).permutation(len(x_train))
    if dataset.x_test is None or dataset.y_test is None:
        test, order = order[: len(order) // 5], order[len(order) // 5 :]
        x_test, y_test = x_train[test[:most_rows]], y_train[test[:most_rows]]
    else:
        test = np.random.default_rng(seed).permutation(len(dataset.x_test))[:most_rows]
        x_test, y_test = dataset.x_test[test], _labels(dataset.y_test, len(dataset.x_test), "y_test")[test]
    train = order[:most_rows]
    event = x_train.shape[1:]
    return _rows(x_train[train], "x_train", event), y_train[train], _rows(x_test, "x_test", event), y_test


def _rows(x: Any, name: str, event: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(check_array(x, event_shape=event, integers=True, name=name), dtype=np.float64)
    return array.reshape(len(array), -1)


def _labels(y: Any, rows: int, name: str) -> np.ndarray:
    labels = check_labels(y, rows, name=name)
    if labels.ndim != 1:
        raise ValueError(f"{name}: expected one class per row, got labels of shape {labels.shape}; choose one column")
    return labels


def _train(x: np.ndarray, index: np.ndarray, classes: int, seed: int) -> Classifier:
    """A function from rows ``(n, d)`` to probabilities ``(n, classes)``, trained on rows and their class indices."""
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax, softmax
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    # the mean squared distance between two random rows is twice the total variance
    squared_distance = 2 * x.var(axis=0).sum()
    if squared_distance == 0:
        raise ValueError("x_train: expected rows that differ, got copies of one; check where they were read")
    model = KernelRidge(kernel="rbf", gamma=2 / squared_distance, alpha=_RIDGE)  # pyright: ignore[reportArgumentType]
    # centred targets: far from all data, all classes have the score 0
    targets = np.eye(classes)[index] - 1 / classes
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    unseen = cross_val_predict(model, x, targets, cv=folds.split(x, index))

    def log_loss(log_beta: float) -> float:
        return -float(np.mean(log_softmax(np.exp(log_beta) * unseen, axis=1)[np.arange(len(x)), index]))

    beta = np.exp(minimize_scalar(log_loss, bounds=(-5.0, 7.0), method="bounded")["x"])  # pyright: ignore
    model.fit(x, targets)

    def probabilities(rows: np.ndarray) -> np.ndarray:
        blocks = [rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)]
        return np.concatenate([softmax(beta * model.predict(block), axis=1) for block in blocks])

    return probabilities
