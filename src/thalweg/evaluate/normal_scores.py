"""Coordinates with a nearly standard normal distribution, by maps that are one to one."""

import numpy as np
from scipy.special import ndtri

_KNOTS = 100
# beyond the outermost knots scores grow as _TAIL·log(1 + …), so that outliers stay near
_TAIL = 3.0
# directions with a smaller share of the largest variance are combinations of the others
_NEGLIGIBLE = 1e-6


def standardise(rows: np.ndarray, training: np.ndarray, name: str) -> np.ndarray:
    """Rows ``(n, d)`` mapped to normal scores coordinate by coordinate, then whitened, with the quantiles and the
    covariance of the ``training`` rows. Directions without variance are left out.

    >>> rows = np.exp(np.random.default_rng(0).normal(size=(1000, 2)))
    >>> scores = standardise(rows, np.arange(1000), "x")
    >>> bool(np.allclose(np.cov(scores.T), np.eye(2)))
    True
    """
    levels = (np.arange(_KNOTS) + 0.5) / _KNOTS
    knots = np.quantile(rows[training], levels, axis=0)
    columns = [_normal_scores(*each, ndtri(levels)) for each in zip(rows.T, knots.T, strict=True)]
    scores = np.stack(columns, axis=1)
    scores -= scores[training].mean(axis=0)
    variances, directions = np.linalg.eigh(np.atleast_2d(np.cov(scores[training].T)))
    if variances[-1] <= 0:
        raise ValueError(f"expected {name} that varies, got one value in nearly all rows; its information is zero")
    kept = variances > _NEGLIGIBLE * variances[-1]
    return scores @ directions[:, kept] / np.sqrt(variances[kept])


def _normal_scores(column: np.ndarray, knots: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """A map through the knots, linear between them and logarithmic beyond; increasing everywhere."""
    knots, first = np.unique(knots, return_index=True)
    targets = targets[first]
    if len(knots) < 2:
        return np.zeros_like(column)
    scores = np.interp(column, knots, targets)
    for end, near, side in ((0, 1, -1), (-1, -2, 1)):
        slope = (targets[end] - targets[near]) / (knots[end] - knots[near])
        scores += side * _TAIL * np.log1p(slope * np.maximum(side * (column - knots[end]), 0) / _TAIL)
    return scores
