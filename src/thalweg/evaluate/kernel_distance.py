"""The kernel inception distance: a maximum mean discrepancy between two sets of features."""

from typing import Any

import numpy as np

from thalweg.core import Estimate
from thalweg.evaluate.features import check_two_sets
from thalweg.evaluate.intervals import check_confidence, normal_quantile

_BLOCK = 2**22  # numbers of a kernel matrix held at once: 32 MB


def kernel_inception_distance(features: Any, other: Any, *, confidence: float = 0.95) -> Estimate:
    r"""The squared maximum mean discrepancy between two sets of rows x, y under the kernel ``k(x, y) = (x·y/d + 1)³``.

    .. math:: \frac{1}{n(n-1)} \sum_{i \neq j} k(x_i, x_j) + \frac{1}{m(m-1)} \sum_{i \neq j} k(y_i, y_j)
              - \frac{2}{nm} \sum_{i,j} k(x_i, y_j)

    On the features of Inception-v3 this is the KID of Bińkowski et al. (2018), "Demystifying MMD GANs". It is unbiased
    for any number of rows, so distances of unequally many images can be compared, which is not so for the Fréchet
    distance; for equal distributions its mean is 0 and it is negative half of the time. No covariance is inverted or
    rooted. All pairs of rows are used, where the paper averages over random subsets of them: the mean is the same, the
    variance smaller. Time grows as n², memory does not.

    The interval is the value ± a normal quantile times the jackknife's standard error (Arvesen 1969, leaving out one
    row of x or of y at a time). For normal and rectified features in 16 and 64 dimensions with 50 and 300 rows, 95 %
    intervals covered the truth in 91 to 100 % of 400 replicates; they are too wide for equal distributions, where the
    jackknife's standard error is about 1.4 times the true one, and may cover less in few dimensions, where the cube has
    heavy tails.

    Args:
        features: ``(n, d)`` with n ≥ 3.
        other: ``(m, d)``, likewise.
        confidence: of the interval.

    >>> import numpy as np
    >>> from thalweg.evaluate import kernel_inception_distance
    >>> x, y = np.random.default_rng(0).normal(size=(2, 300, 16))
    >>> same, moved = kernel_inception_distance(x, y), kernel_inception_distance(x, y + 0.5)
    >>> same.low < 0 < same.high, moved.low > 0.5
    (True, True)
    """
    confidence = check_confidence(confidence)
    x, y = check_two_sets(features, other, 3, "a standard error")
    n, m = len(x), len(y)
    x_rows, y_rows = _row_sums(x, x) - _diagonal(x), _row_sums(y, y) - _diagonal(y)
    x_cross, y_cross = _row_sums(x, y), _row_sums(y, x)
    x_part, y_part = x_rows.sum() / (n * (n - 1)), y_rows.sum() / (m * (m - 1))
    cross = x_cross.sum()
    value = x_part + y_part - 2 * cross / (n * m)
    # the statistic without row i of x, and without row j of y
    without_x = (x_rows.sum() - 2 * x_rows) / ((n - 1) * (n - 2)) + y_part - 2 * (cross - x_cross) / ((n - 1) * m)
    without_y = x_part + (y_rows.sum() - 2 * y_rows) / ((m - 1) * (m - 2)) - 2 * (cross - y_cross) / (n * (m - 1))
    error = float(np.sqrt((n - 1) * without_x.var() + (m - 1) * without_y.var()))
    reach = normal_quantile(confidence) * error
    return Estimate(
        float(value), float(value - reach), float(value + reach), confidence, "unbiased cubic MMD², jackknife",
        standard_error=error,
    )  # fmt: skip


def _row_sums(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``Σ_j k(x_i, y_j)`` for every row i, block by block."""
    step = max(1, _BLOCK // len(y))
    sums = [np.sum((x[i : i + step] @ y.T / x.shape[1] + 1) ** 3, axis=1) for i in range(0, len(x), step)]
    return np.concatenate(sums)


def _diagonal(x: np.ndarray) -> np.ndarray:
    return (np.sum(x**2, axis=1) / x.shape[1] + 1) ** 3
