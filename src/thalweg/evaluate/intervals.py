"""Confidence intervals of means, and of numbers with several independent errors."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

from thalweg.core import Estimate, between


def check_confidence(confidence: Any) -> float:
    """``confidence`` as a float, refused unless it lies strictly between 0 and 1.

    >>> check_confidence(0.95)
    0.95
    """
    between("confidence", confidence, 0, 1, "0.95 is usual", scalar=True)
    if not 0 < confidence < 1:
        raise ValueError(f"expected confidence between 0 and 1, got {confidence}; 0.95 is usual")
    return float(confidence)


def mean_interval(values: np.ndarray, confidence: float, method: str) -> Estimate:
    """The mean of independent values ``(n,)`` with Student's interval, ``mean ± t_{n-1} s/√n``.

    >>> estimate = mean_interval(np.array([1.0, 2.0, 3.0]), 0.95, "mean of 3 rows")
    >>> round(estimate.value, 3), round(estimate.high - estimate.value, 3)
    (2.0, 2.484)
    """
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values)))
    side = student(confidence, len(values) - 1) * error
    return Estimate(mean, mean - side, mean + side, confidence, method, float(len(values)), standard_error=error)


def student(confidence: float, degrees: float) -> float:
    """The number of standard errors on each side of Student's interval with ``degrees`` degrees of freedom.

    >>> round(student(0.95, 1e9), 2)
    1.96
    """
    return float(stats.t.ppf(0.5 + confidence / 2, degrees))


def join_sides(value: float, *parts: tuple[float, float]) -> tuple[float, float]:
    """``(low, high)`` of a sum of independent errors, each given by its distances ``(below, above)`` from the value.

    The distances below are added in quadrature, and so are those above; for normal errors this is exact.

    >>> join_sides(1.0, (3.0, 0.0), (4.0, 1.0))
    (-4.0, 2.0)
    """
    return value - math.hypot(*(below for below, _ in parts)), value + math.hypot(*(above for _, above in parts))


def falling(estimate: Estimate, function: Callable[[float], float], slope: float) -> Estimate:
    """A falling function of an estimate: its interval with the ends exchanged; ``slope`` is ``|f'|`` at the value.

    >>> falling(Estimate(1.0, 0.5, 2.0, 0.95, "a mean"), lambda x: -2 * x, 2.0)[:3]
    (-2.0, -4.0, -1.0)
    """
    error = None if estimate.standard_error is None else slope * estimate.standard_error
    value, low, high = function(estimate.value), function(estimate.high), function(estimate.low)
    return estimate._replace(value=value, low=low, high=high, standard_error=error, parts=None, bound=None)
