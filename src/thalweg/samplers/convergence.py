r"""R-hat, effective sample sizes and Monte Carlo errors of many coordinates, for continuous and discrete draws.

The definitions are those of Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), "Rank-normalization, folding, and
localization: an improved R̂ for assessing convergence of MCMC", Bayesian Analysis 16(2). On continuous draws the
numbers agree with `blackjax.diagnostics`; on discrete draws blackjax returns NaN if a folded rank or a tail indicator
does not vary, and its memory grows with the number of coordinates. Here everything is computed in double precision by
NumPy, in blocks of coordinates, in threads.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from scipy import fft, special

# numbers per block: small enough for the cache of a core, large enough that Python's overhead is negligible
_BLOCK = 2**18
_THREADS = min(8, os.cpu_count() or 1)


class Convergence(NamedTuple):
    """One number per coordinate. ``varies`` is whether any two draws of the coordinate differ."""

    mean: np.ndarray
    sd: np.ndarray
    mcse: np.ndarray
    ess_bulk: np.ndarray
    ess_tail: np.ndarray
    rhat: np.ndarray
    varies: np.ndarray


def measure_convergence(draws: np.ndarray) -> Convergence:
    r"""Convergence diagnostics of draws ``(chains, draws, coordinates)``, with chains >= 2 and draws >= 4.

    - ``rhat = max(R̂(z), R̂(z'))``, where z are the normal scores of the ranks of the draws (ties get the average rank)
      and z' those of ``|x - median|``; each chain is split in half. With W the mean variance within the N draws of a
      half and B/N the variance of the means of the halves, ``R̂² = (N - 1)/N + B/(N·W)``. The folded draws of a
      two-valued coordinate may not vary at all; they are then left out.
    - ``ess_bulk`` is the effective size of z, ``ess_tail`` the smaller of those of the indicators
      ``1(x <= 5 % quantile)`` and ``1(x >= 95 % quantile)``. An indicator that does not vary, because more than 95 % of
      the draws are at the smallest or largest value, is left out; the other one varies.
    - ``mcse = sd / √ESS(x)``, the standard error of the mean.

    Chains that stay at different points have ``rhat = inf``, effective sizes of zero and ``mcse = inf``. A coordinate
    that is constant, or has a non-finite draw, has NaN for everything that is undefined.
    """
    chains, count, coordinates = draws.shape
    size = max(1, _BLOCK // (chains * count))
    blocks = [draws[..., start : start + size] for start in range(0, coordinates, size)]
    with ThreadPoolExecutor(_THREADS) as pool:
        parts = list(pool.map(_measure_block, blocks))
    return Convergence(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _measure_block(draws: np.ndarray) -> Convergence:
    x = np.array(np.moveaxis(draws, -1, 0), np.float64, order="C")  # a copy, since broken coordinates are written to
    broken = ~np.isfinite(x).all(axis=(1, 2))
    x[broken] = 0.0  # treated as constant, which gives NaN below
    flat = x.reshape(len(x), -1)
    varies = flat.max(axis=1) != flat.min(axis=1)
    mean, sd = flat.mean(axis=1), flat.std(axis=1, ddof=1)
    sd[~varies] = 0.0
    half = x.shape[2] // 2
    # (coordinates, 2·chains, half): the last of an odd number of draws is left out
    split = x[:, :, : 2 * half].reshape(len(x), -1, half)
    order, ordered = _sort(split)
    scores = _normal_scores(order, ordered, split.shape)
    folded = np.abs(split - _quantile(ordered, 0.5)[:, None, None])
    low, high = (_quantile(ordered, level)[:, None, None] for level in (0.05, 0.95))
    # a statistic that does not vary is NaN, which fmax and fmin ignore
    rhat = np.fmax(_rhat(scores), _rhat(_normal_scores(*_sort(folded), split.shape)))
    ess_tail = np.fmin(_effective_size(split <= low), _effective_size(split >= high))
    with np.errstate(divide="ignore"):
        mcse = sd / np.sqrt(_effective_size(x))
    mean[broken] = sd[broken] = np.nan
    return Convergence(mean, sd, mcse, _effective_size(scores), ess_tail, rhat, varies | broken)


def _sort(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sorting order of all draws of each coordinate, and the sorted values, ``(coordinates, n)``."""
    flat = x.reshape(len(x), -1)
    order = np.argsort(flat, axis=1)
    return order, np.take_along_axis(flat, order, axis=1)


def _quantile(ordered: np.ndarray, level: float) -> np.ndarray:
    """The quantile of sorted values, with linear interpolation; exact among ties."""
    place = level * (ordered.shape[1] - 1)
    below, above = ordered[:, int(np.floor(place))], ordered[:, int(np.ceil(place))]
    return below + (above - below) * (place % 1)


def _normal_scores(order: np.ndarray, ordered: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """``Φ⁻¹((rank - 3/8) / (n + 1/4))`` of the average ranks."""
    n = ordered.shape[1]
    place = np.arange(n)
    new = np.ones(ordered.shape, bool)  # True where a run of equal values starts
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    last = np.ones(ordered.shape, bool)
    last[:, :-1] = new[:, 1:]
    first = np.maximum.accumulate(np.where(new, place, 0), axis=1)
    final = np.minimum.accumulate(np.where(last, place, n - 1)[:, ::-1], axis=1)[:, ::-1]
    # the average of the ranks first + 1, ..., final + 1 is an integer or a half-integer: all scores fit in a table
    ranks = np.arange(2 * n - 1) / 2 + 1
    table = special.ndtri((ranks - 3 / 8) / (n + 1 / 4))
    scores = np.empty(ordered.shape)
    np.put_along_axis(scores, order, table[first + final], axis=1)
    return scores.reshape(shape)


def _centre(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The draws minus the mean of their chain, and the variance of these means.

    The first draw is subtracted first, so that a constant chain, and chains at one common point, give exact zeros.
    """
    start = x[:, :, :1]
    centred = x - start
    means = centred.mean(axis=2, keepdims=True)
    centred -= means
    means = (means + (start - start[:, :1]))[..., 0]
    return centred, means.var(axis=1, ddof=1)


def _rhat(x: np.ndarray) -> np.ndarray:
    """``√((N - 1)/N + Var(means)/W)`` of ``(coordinates, chains, N)``; NaN if nothing varies."""
    count = x.shape[2]
    centred, between = _centre(x)
    within = np.einsum("kcn,kcn->k", centred, centred) / (x.shape[1] * (count - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt((count - 1) / count + between / within)


def _effective_size(x: np.ndarray) -> np.ndarray:
    r"""``chains·N / τ`` of ``(coordinates, chains, N)``, ``τ = -1 + 2 Σ P_t``, ``P_t = ρ_2t + ρ_2t+1``.

    The sum ends before the first ``P_t <= 0``, and the P_t are made non-increasing (Geyer, 1992, Statistical Science
    7(4)); the first even ρ after the end is added if it is positive, and ``τ >= 1/log10(chains·N)``, as in Stan. Zero
    if every chain is constant, NaN if all are constant at the same point.
    """
    _, chains, count = x.shape
    centred, between = _centre(np.asarray(x, np.float64))
    padded = fft.next_fast_len(2 * count, real=True)
    waves = np.fft.rfft(centred, padded, axis=2)
    # averaged over the chains before the inverse transform, so there is one for each coordinate only
    power = np.mean(waves.real**2 + waves.imag**2, axis=1)
    covariance = np.fft.irfft(power, padded, axis=1)[:, :count] / count
    still = ~np.any(centred, axis=(1, 2))
    total = np.where(still, 1.0, covariance[:, 0] + between)
    variance = covariance[:, :1] * count / (count - 1)
    correlation = 1 - (variance - covariance) / total[:, None]
    correlation[:, 0] = 1.0
    pairs = count // 2
    even, odd = correlation[:, 0 : 2 * pairs : 2], correlation[:, 1 : 2 * pairs : 2]
    kept = np.logical_and.accumulate(even + odd > 0, axis=1)
    sums = np.where(kept, even + odd, 0.0)
    end = kept.sum(axis=1)
    rows = np.flatnonzero(end < pairs)
    # the first even correlation after the end is counted once; if it exceeds the last sum, as in blackjax
    after = np.maximum(even[rows, end[rows]], 0.0)
    lowest = np.minimum.accumulate(sums, axis=1)
    before = lowest[rows, np.maximum(end[rows] - 1, 0)]
    time = 2 * lowest.sum(axis=1) - 1
    time[rows] += np.where(after > before, 1.5 * before, after)
    size = chains * count / np.maximum(time, 1 / np.log10(chains * count))
    size[still] = np.where(between[still] > 0, 0.0, np.nan)
    return size
