"""Confidence intervals: their level, those of means, shares and sums, and the random numbers of a bootstrap."""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from scipy.special import ndtri, stdtrit

from thalweg.core import Estimate, static_number, typed_key
from thalweg.core.checks import real


def check_confidence(confidence: Any) -> float:
    """``confidence`` as a number between 0 and 1, both excluded.

    >>> check_confidence(95)
    Traceback (most recent call last):
    ValueError: expected confidence between 0 and 1, got 95; give for example 0.95
    """
    level = static_number("confidence", confidence, real)
    if not 0 < level < 1:
        raise ValueError(f"expected confidence between 0 and 1, got {confidence}; give for example 0.95")
    return level


def normal_quantile(confidence: float) -> float:
    """How many standard errors an interval reaches to either side.

    >>> round(normal_quantile(0.95), 3)
    1.96
    """
    return float(ndtri((1 + confidence) / 2))


def bootstrap_generator(key: Any) -> np.random.Generator:
    """The random numbers of a bootstrap, from a random key; those of ``jax.random.key(0)`` without one."""
    return np.random.default_rng(np.asarray(jax.random.key_data(jax.random.key(0) if key is None else typed_key(key))))


def mean_estimate(values: Any, confidence: float, method: str) -> Estimate:
    """The mean of independent values with the normal interval of its standard error; at least two values.

    >>> print(mean_estimate([1.0, 2.0, 3.0], 0.95, "mean of 3"))
    2  [0.868414, 3.13159] at 95%, mean of 3
    """
    numbers = np.asarray(values, np.float64)
    error = float(np.std(numbers, ddof=1) / np.sqrt(len(numbers)))
    return normal_estimate(float(np.mean(numbers)), error, confidence, method, ess=float(len(numbers)))


def normal_estimate(value: float, error: float, confidence: float, method: str, **more: Any) -> Estimate:
    """An estimate whose interval is the value ± a multiple of its standard error.

    >>> print(normal_estimate(2.0, 0.5, 0.95, "by hand"))
    2  [1.02002, 2.97998] at 95%, by hand
    """
    reach = normal_quantile(confidence) * error
    return Estimate(value, value - reach, value + reach, confidence, method, standard_error=error, **more)


def wilson(count: Any, total: Any, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval ``(low, high)`` of a share ``count / total``, which is never empty and stays in [0, 1].

    Reference: Wilson (1927), JASA 22.

    >>> low, high = wilson(0, 10, 0.95)
    >>> float(low), round(float(high), 4)
    (0.0, 0.2775)
    """
    count, total = np.asarray(count, float), np.asarray(total, float)
    z = normal_quantile(confidence)
    share = count / total
    middle = (share + z**2 / (2 * total)) / (1 + z**2 / total)
    reach = z * np.sqrt(share * (1 - share) / total + z**2 / (4 * total**2)) / (1 + z**2 / total)
    return np.where(count == 0, 0.0, middle - reach), np.where(count == total, 1.0, middle + reach)


def sum_of_estimates(parts: dict[str, tuple[int, Estimate]], confidence: float, method: str) -> Estimate:
    """The sum of independent estimates, each with its sign: the squares of their reaches to either side add.

    >>> from thalweg.core import Estimate
    >>> one, other = (Estimate(value, value - 1, value + 2, 0.95, "by hand") for value in (5.0, 3.0))
    >>> difference = sum_of_estimates({"one": (1, one), "other": (-1, other)}, 0.95, "difference")
    >>> difference.value, round(difference.low, 3), round(difference.high, 3)
    (2.0, -0.236, 4.236)
    """
    value, below, above = 0.0, 0.0, 0.0
    for sign, part in parts.values():
        down, up = (part.value - part.low, part.high - part.value)[::sign]
        value += sign * part.value
        below, above = np.hypot(below, down), np.hypot(above, up)
    warnings = [part.warning for _, part in parts.values() if part.warning]
    return Estimate(
        float(value),
        float(value - below),
        float(value + above),
        confidence,
        method,
        warning="; ".join(warnings) or None,
        standard_error=float((below + above) / 2 / normal_quantile(confidence)),
        parts={name: part for name, (_, part) in parts.items()},
    )


def student_estimate(values: np.ndarray, confidence: float, method: str) -> Estimate:
    """The mean of independent values ``(n,)`` with Student's interval, ``mean ± t_{n-1} s/√n``.

    >>> estimate = student_estimate(np.array([1.0, 2.0, 3.0]), 0.95, "mean of 3 rows")
    >>> round(estimate.value, 3), round(estimate.high - estimate.value, 3)
    (2.0, 2.484)
    """
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values)))
    side = student_quantile(confidence, len(values) - 1) * error
    return Estimate(mean, mean - side, mean + side, confidence, method, float(len(values)), standard_error=error)


def student_quantile(confidence: float, degrees: float) -> float:
    """The number of standard errors on each side of Student's interval with ``degrees`` degrees of freedom.

    >>> round(student_quantile(0.95, 1e9), 2)
    1.96
    """
    return float(stdtrit(degrees, (1 + confidence) / 2))


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
