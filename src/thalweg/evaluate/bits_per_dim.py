"""Bits per dimension: the log-likelihood of discrete points, or of quantised ones under a continuous model."""

import math
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import Estimate, Space, finite, flag, space_of, static_number, typed_key, whole_number
from thalweg.evaluate.intervals import falling
from thalweg.evaluate.likelihood import (
    as_energy_of_points,
    count_sites,
    evaluate_rows,
    is_discrete,
    per_unit,
    rows_of,
)
from thalweg.spaces import Interval, Product, Real, is_continuous

_LEVELS = 256
# numbers stored in single precision may lie this part of a bin below its lower edge
_ROUNDING = 1e-3


def bits_per_dim(
    energy: Any,
    data: PyTree,
    *,
    key: PRNGKeyArray,
    space: Space | None = None,
    levels: int | None = None,
    low: float | None = None,
    high: float | None = None,
    dequantise: bool = True,
    log_z: Estimate | float | None = None,
    confidence: float = 0.95,
    **options: Any,
) -> Estimate:
    r"""``-log₂ P(x) / d``, the mean over the rows of the bits needed for each of the d coordinates; lower is better.

    **Discrete energies**: P is the model's own probability.

    **Continuous energies of quantised points**, such as pixels of ``levels`` values k. A bin has the width
    ``Δ = (high - low)/levels``, and P(k) is the probability of its bin. Uniform noise u on [0, 1) fills the bins,
    ``x = low + Δ(k + u)``, and

    ``-log₂ P(k) / d ≤ -E_u[log₂ p(x)] / d - log₂ Δ``

    by Jensen's inequality; the right side is returned. It is equal to the left where p is constant in each bin.
    Reference: Theis, van den Oord and Bethge (2016), ICLR.

    The interval combines the errors of the rows (with their u) and of log Z. ``parts`` holds the ``log_likelihood`` per
    dimension in nats, of x, and the bits with the error of the ``data`` alone and of ``log_z`` alone.

    Args:
        energy: as in `log_likelihood`.
        data: points ``(rows, *event)``. For a continuous energy the values k as whole numbers from 0 to ``levels - 1``,
            or real numbers in [low, high], each read as the k of the bin it lies in: ``low + Δk``, the middle of a bin,
            and ``levels`` values evenly spaced from low to high are all read as intended.
        key: random key of the noise and of the estimate of log Z.
        space: where ``x`` lives, if the energy has no space.
        levels: the number of values of a coordinate, 256 by default; for continuous energies only.
        low: the lower edge of the first bin, in the model's coordinates; by default that of an `Interval`.
        high: the upper edge of the last bin; by default that of an `Interval`.
        dequantise: with False, data are points x that were filled with noise already, and no more is added.
        log_z: as in `log_likelihood`.
        confidence: as in `log_likelihood`.
        options: passed to `tw.evaluate.log_z`.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> flat = tw.as_energy(lambda x: 0.0 * x.sum(), tw.Interval(-1.0, 1.0, shape=2))
    >>> pixels = jax.random.randint(jax.random.key(0), (10, 2), 0, 256)
    >>> round(tw.evaluate.bits_per_dim(flat, pixels, key=jax.random.key(1)).value, 4)
    8.0
    """
    key_noise, key_log_z = jax.random.split(typed_key(key))
    energy, data = as_energy_of_points(energy), rows_of(data)
    known = space_of(energy) if space is None else space
    shift = 0.0
    if is_discrete(known):
        _refuse_bins(known, levels=levels, low=low, high=high)
    else:
        low, high = _edges(known, low, high)
        count = whole_number("levels", _LEVELS if levels is None else levels, 2, "256 is usual")
        shift = math.log2((high - low) / count)
        if flag("dequantise", dequantise):
            data = fill_bins(key_noise, data, count, low, high)
    rows = evaluate_rows(energy, data, key=key_log_z, space=space, log_z=log_z, confidence=confidence, **options)
    estimate, data_part, log_z_part = per_unit(rows, np.full(len(rows.values), float(count_sites(known))))

    def as_bits(part: Estimate) -> Estimate:
        return falling(part, lambda value: -value / math.log(2) - shift, 1 / math.log(2))

    parts = {"log_likelihood": estimate, "data": as_bits(data_part), "log_z": as_bits(log_z_part)}
    return as_bits(estimate)._replace(parts=parts)


def fill_bins(key: PRNGKeyArray, data: Any, levels: int, low: float, high: float) -> Array | np.ndarray:
    """``x = low + Δ(k + u)`` with ``u ~ U[0, 1)``: quantised points spread over their bins.

    >>> x = fill_bins(jax.random.key(0), np.array([[0, 3]]), 4, 0.0, 1.0)
    >>> bool(0 < x[0, 0] < 0.25), bool(0.75 < x[0, 1] < 1)
    (True, True)
    """
    try:
        given = np.asarray(data)
    except ValueError:  # of rows of unequal length
        given = np.asarray(None)
    if given.dtype.kind not in "biuf" or given.ndim == 0:
        raise ValueError(
            f"expected pixels as an array (rows, *event) of numbers, got {given.dtype} {given.shape}; give their values"
        )
    bins = given if given.dtype.kind in "biu" else _bins(np.asarray(finite("data", given), float), levels, low, high)
    if bins.size and (bins.min() < 0 or bins.max() >= levels):
        worst = bins.max() if bins.max() >= levels else bins.min()
        raise ValueError(
            f"expected whole numbers from 0 to {levels - 1}, the values of a pixel, got {worst}; give levels=... or "
            "convert them to the model's numbers between low and high"
        )
    noise = np.asarray(jax.random.uniform(key, given.shape), float)
    dtype = jax.dtypes.canonicalize_dtype(float)
    x = (low + (high - low) / levels * (bins + noise)).astype(dtype)
    # rounding must not put a point on the edge, where it is outside of the space
    first, last = np.nextafter(dtype.type(low), dtype.type(high)), np.nextafter(dtype.type(high), dtype.type(low))
    return np.clip(x, first, last)


def _bins(x: np.ndarray, levels: int, low: float, high: float) -> np.ndarray:
    outside = (x < low - 1e-6 * (high - low)) | (x > high + 1e-6 * (high - low))
    if outside.any():
        raise ValueError(
            f"expected pixels between low = {low:g} and high = {high:g}, got {x[outside][0]:g}; give other edges, or "
            f"whole numbers from 0 to {levels - 1}"
        )
    places = np.floor((x - low) / (high - low) * levels + _ROUNDING)
    return np.clip(places, 0, levels - 1)


def _refuse_bins(space: Any, **given: Any) -> None:
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise ValueError(
            f"expected no {named[0]} for an energy on {space}, whose values are discrete already, got "
            f"{given[named[0]]!r:.40}; leave it out"
        )


def _edges(space: Space | None, low: Any, high: Any) -> tuple[float, float]:
    if not isinstance(space, (Real, Interval)):
        got = "an energy without a space" if space is None else f"one on {space}"
        fix = "give space=tw.Real(shape), for example" if space is None else "use log_likelihood"
        what = "a discrete, Real or Interval space"
        if isinstance(space, Product) and not is_continuous(space):
            fix = "use log_likelihood, or leave out the continuous parts"
        raise ValueError(f"expected an energy on {what} for bits per dimension, got {got}; {fix}")
    if isinstance(space, Interval):
        low, high = space.low if low is None else low, space.high if high is None else high
    if low is None or high is None:
        raise ValueError(
            f"expected low and high, the edges of the pixels' values on {space}, got none; "
            "give low=-1, high=1 for pixels scaled to [-1, 1]"
        )
    low, high = static_number("low", low, finite), static_number("high", high, finite)
    if not low < high:
        raise ValueError(f"expected low < high, got {low:g} and {high:g}; swap them")
    return low, high
