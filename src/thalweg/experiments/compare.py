"""Distances between samples and an exact distribution, and rows of means with their errors."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from thalweg.samplers.diagnostics import Summary


def ks_distance(x: Any, cdf: Callable[[np.ndarray], np.ndarray]) -> float:
    """The Kolmogorov-Smirnov distance ``sup |F_n(x) - F(x)|`` of numbers to a continuous distribution function.

    For n independent numbers it is about ``0.87/√n``; for a chain, n is closer to its effective sample size.

    >>> ks_distance([0.5], lambda x: x)
    0.5
    """
    values = np.sort(np.asarray(x, float).ravel())
    exact, count = cdf(values), len(values)
    above = np.arange(1, count + 1) / count - exact
    below = exact - np.arange(count) / count
    return float(max(above.max(), below.max()))


def histogram_distance(x: Any, edges: np.ndarray, cdf: Callable[[np.ndarray], np.ndarray]) -> float:
    """Total variation ``½ Σ |share - mass|`` between a histogram and the distribution, including the mass outside.

    >>> histogram_distance([0.1, 0.2, 0.3, 0.9], np.array([0.0, 0.5, 1.0]), lambda x: x)
    0.25
    """
    values = np.asarray(x, float).ravel()
    counts, _ = np.histogram(values, edges)
    shares = np.array([np.sum(values < edges[0]), *counts, np.sum(values > edges[-1])]) / len(values)
    below = cdf(np.asarray(edges, float))
    masses = np.array([below[0], *np.diff(below), 1 - below[-1]])
    return float(0.5 * np.abs(shares - masses).sum())


def mixture_cdf(weights: Any, means: Any, deviations: Any) -> Callable[[np.ndarray], np.ndarray]:
    """The distribution function ``Σ_k w_k Φ((x - μ_k)/s_k)`` of a 1-D mixture.

    >>> float(mixture_cdf([1.0], [2.0], [3.0])(np.array(2.0)))
    0.5
    """
    from scipy.special import ndtr

    w, mean, s = (np.asarray(values, float) for values in (weights, means, deviations))
    return lambda x: (w * ndtr((np.asarray(x, float)[..., None] - mean) / s)).sum(axis=-1)


def mean_and_error(values: Any) -> tuple[float, float]:
    """The mean of independent numbers, and its standard error.

    >>> mean_and_error([1.0, 3.0])
    (2.0, 1.0)
    """
    x = np.asarray(values, float).ravel()
    return float(x.mean()), float(x.std(ddof=1) / math.sqrt(len(x)))


def beside(exact: float, column: np.ndarray, error: float, independent: np.ndarray) -> dict[str, float]:
    """A row with a mean: exact, of one chain, of all chains, and of independent samples. ``error`` is the standard
    error of all chains from their effective sample size.

    Chains that rarely visit a distant part of their target underestimate this error; the spread of their means does
    not, so with eight or more chains the larger of the two is reported.

    >>> beside(0.0, np.array([[1.0], [2.0]]), 0.5, np.array([1.0, 3.0]))["chains"]
    1.5
    """
    mean, own_error = mean_and_error(independent)
    if len(column) >= 8:  # the spread of fewer means is too noisy
        error = max(error, float(column.mean(axis=1).std(ddof=1)) / math.sqrt(len(column)))
    return {
        "exact": exact,
        "chain": float(column[0].mean()),
        "chain_error": error * math.sqrt(len(column)),
        "chains": float(column.mean()),
        "chains_error": error,
        "exact_samples": mean,
        "exact_samples_error": own_error,
    }


def mixing(summary: Summary) -> dict[str, Any]:
    """The numbers of a `Summary` that describe mixing, for a JSON file."""
    return {
        "acceptance": summary.acceptance,
        "ess_bulk": float(summary.ess_bulk.min()),
        "ess_tail": float(summary.ess_tail.min()),
        "rhat": float(summary.rhat.max()),
        "verdict": summary.verdict,
    }
