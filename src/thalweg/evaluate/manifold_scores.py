"""Precision and recall, density and coverage: whether samples lie where the data lie, and all over it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from thalweg.core import whole_number
from thalweg.evaluate.features import check_two_sets

_BLOCK = 2**22  # distances held at once: 32 MB


class PrecisionRecall(NamedTuple):
    """The share of samples among the real rows, and the share of real rows among the samples.

    >>> import numpy as np
    >>> from thalweg.evaluate import precision_recall
    >>> precision_recall(np.eye(5), np.eye(5)).recall
    1.0
    """

    precision: float
    recall: float


class DensityCoverage(NamedTuple):
    """How densely the real rows surround the samples, and the share of real rows with a sample nearby.

    >>> import numpy as np
    >>> from thalweg.evaluate import density_coverage
    >>> density_coverage(np.eye(8), np.eye(8)).coverage
    1.0
    """

    density: float
    coverage: float


def precision_recall(features: Any, real: Any, *, neighbours: int = 3) -> PrecisionRecall:
    r"""The share of samples inside the manifold of the real rows (precision), and the other way round (recall).

    The manifold of a set is the union of balls around its rows, each of which reaches to the k-th nearest other row of
    the set. Precision falls if samples are not like real images, recall if some real images are like no sample.
    Reference: Kynkäänniemi et al. (2019), "Improved precision and recall metric for assessing generative models". A
    real row far from all others has a large ball, which makes precision too high: `density_coverage` mends that. Both
    numbers depend on the number of rows: compare only sets of equal sizes.

    Args:
        features: ``(n, d)``, those of samples, with n > k.
        real: ``(m, d)``, those of real images, with m > k.
        neighbours: k.

    >>> import numpy as np
    >>> from thalweg.evaluate import precision_recall
    >>> rng = np.random.default_rng(0)
    >>> real = np.concatenate([rng.normal(size=(200, 2)), rng.normal(size=(200, 2)) + 20])
    >>> one_mode = rng.normal(size=(400, 2))
    >>> precision, recall = precision_recall(one_mode, real)
    >>> precision > 0.9, recall < 0.5
    (True, True)
    """
    k = whole_number("neighbours", neighbours)
    x, y = check_two_sets(features, real, k + 1, f"balls to the {k}-th nearest other row", "real")
    x, y = _centre(x, y)
    balls_of_x, _ = _count_balls(x, y, _squared_radii(y, k))
    balls_of_y, _ = _count_balls(y, x, _squared_radii(x, k))
    return PrecisionRecall(float(np.mean(balls_of_x > 0)), float(np.mean(balls_of_y > 0)))


def density_coverage(features: Any, real: Any, *, neighbours: int = 5) -> DensityCoverage:
    r"""In how many real balls a sample lies, over k (density), and the share of real balls that hold a sample.

    The ball of a real row reaches to its k-th nearest other real row. Density ``(1/kn) Σᵢⱼ 1[xᵢ in ball j]`` is not
    bounded by 1; for equal distributions its mean is 1. Coverage is the share of real rows with a sample
    in their ball; for equal distributions its mean is

    .. math:: 1 - \prod_{i=0}^{k-1} \frac{m - 1 - i}{n + m - 1 - i},

    that is 0.97 for k = 5 and equally many rows, in any dimension. Reference: Naeem et al. (2020), "Reliable fidelity
    and diversity metrics for generative models". A real outlier counts little here, unlike in `precision_recall`.

    Args:
        features: ``(n, d)``, those of samples, with n > k.
        real: ``(m, d)``, those of real images, with m > k.
        neighbours: k.

    >>> import numpy as np
    >>> from thalweg.evaluate import density_coverage
    >>> real, samples = np.random.default_rng(0).normal(size=(2, 1000, 3))
    >>> scores = density_coverage(samples, real)
    >>> abs(scores.density - 1) < 0.1, abs(scores.coverage - 0.97) < 0.02
    (True, True)
    """
    k = whole_number("neighbours", neighbours)
    x, y = check_two_sets(features, real, k + 1, f"balls to the {k}-th nearest other row", "real")
    x, y = _centre(x, y)
    balls, held = _count_balls(x, y, _squared_radii(y, k))
    return DensityCoverage(float(balls.sum()) / (k * len(x)), float(np.mean(held > 0)))


def _centre(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both sets with the mean of the second subtracted, which leaves distances as they are and makes rounding small."""
    middle = y.mean(axis=0)
    return x - middle, y - middle


def _squared_radii(y: np.ndarray, k: int) -> np.ndarray:
    """The squared distance of every row to its k-th nearest other row."""
    radii = []
    for rows, squares in _squared_distances(y, y):
        squares[np.arange(len(rows)), rows] = np.inf  # not to itself
        radii.append(np.partition(squares, k - 1, axis=1)[:, k - 1])
    return np.concatenate(radii)


def _count_balls(x: np.ndarray, y: np.ndarray, squared_radii: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For every row of x the number of balls around rows of y that hold it, and for every ball the rows it holds."""
    counts, held = [], np.zeros(len(y), int)
    # a matrix product rounds a squared distance by about 1e-16 of the squared norms: rows on the edge are inside
    slack = 1e-12 * _squared_norms(y)
    for rows, squares in _squared_distances(x, y):
        inside = squares <= squared_radii + slack + 1e-12 * _squared_norms(x[rows])[:, None]
        counts.append(inside.sum(axis=1))
        held += inside.sum(axis=0)
    return np.concatenate(counts), held


def _squared_distances(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """``‖x_i - y_j‖²`` in blocks of rows i, with the numbers of these rows."""
    x_squares, y_squares = _squared_norms(x), _squared_norms(y)
    step = max(1, _BLOCK // len(y))
    for start in range(0, len(x), step):
        rows = np.arange(start, min(start + step, len(x)))
        squares = x_squares[rows, None] + y_squares - 2 * (x[rows] @ y.T)
        yield rows, np.maximum(squares, 0)


def _squared_norms(x: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", x, x)
