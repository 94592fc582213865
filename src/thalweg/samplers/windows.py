"""The parts of a warm-up: its schedule, dual averaging of step sizes, and moments of the chains over windows of
steps."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

# the share of a warm-up in which every chain has its own step size, and that in which only the step size adapts
_EARLY, _FINAL = 0.25, 0.2
_EARLY_WINDOW, _FIRST_WINDOW, _GROWTH = 10, 25, 1.6


class Schedule(NamedTuple):
    """For every step: whether it is early, whether a window ends with it, whether stuck chains may then be moved."""

    early: np.ndarray
    ends: np.ndarray
    moves: np.ndarray


def make_schedule(steps: int) -> Schedule:
    """Short windows at first, then growing windows, then a last part in which the mass matrix is fixed.

    >>> from thalweg.samplers.windows import make_schedule
    >>> make_schedule(300).ends.nonzero()[0].tolist()
    [9, 19, 29, 39, 49, 59, 69, 74, 99, 139, 239]
    """
    early, final = round(_EARLY * steps), round(_FINAL * steps)
    ends = np.zeros(steps, bool)
    ends[_EARLY_WINDOW - 1 : early : _EARLY_WINDOW] = True
    ends[early - 1] = True
    slow, length, place = steps - early - final, _FIRST_WINDOW, early
    while place < early + slow:
        left = early + slow - place
        # the last window takes the remaining steps
        size = length if left >= length * (1 + _GROWTH) else left
        ends[place + size - 1] = True
        place, length = place + size, int(length * _GROWTH)
    index = np.arange(steps)
    return Schedule(index < early, ends, (index >= early - 1) & (index < early + slow // 2))


class Search(NamedTuple):
    """Dual averaging of log step sizes, one search for each entry. Reference: Hoffman and Gelman (2014), JMLR 15."""

    log_step: Array
    log_mean: Array
    error: Array
    count: Array
    centre: Array


def search_from(log_step: Array, factor: float) -> Search:
    """A search that starts at a step size and shrinks towards ``factor`` times that size."""
    zero = jnp.zeros_like(log_step)
    return Search(log_step, log_step, zero, zero, log_step + np.log(factor))


def search_on(search: Search, error: Array) -> Search:
    """The search after a step whose acceptance was ``error`` below the target."""
    gamma, offset, power = 0.05, 10.0, 0.75
    count = search.count + 1
    mean = (1 - 1 / (count + offset)) * search.error + error / (count + offset)
    log_step = search.centre - jnp.sqrt(count) / gamma * mean
    weight = count**-power
    return Search(log_step, weight * log_step + (1 - weight) * search.log_mean, mean, count, search.centre)


class Window(NamedTuple):
    """Running moments of every chain in the current window, by Welford's recursion; gradients are those of the
    energy."""

    count: Array
    mean: Float[Array, "chains d"]
    square: Array  # (chains, d), or (chains, d, d) for a dense matrix
    gradient_mean: Float[Array, "chains d"]
    gradient_square: Float[Array, "chains d"]
    energy: Float[Array, " chains"]
    energy_square: Float[Array, " chains"]
    moved: Bool[Array, " chains"]


def empty_window(z: Array, dense: bool) -> Window:
    """An empty window for chains at real coordinates ``z`` ``(chains, d)``."""
    chains, d = z.shape
    zeros = jnp.zeros_like(z)
    square, none = jnp.zeros((chains, d, d), z.dtype) if dense else zeros, jnp.zeros(chains, z.dtype)
    return Window(jnp.zeros((), z.dtype), zeros, square, zeros, zeros, none, none, jnp.zeros(chains, bool))


def add_step(window: Window, before: Array, z: Array, energy: Array, gradient: Array) -> Window:
    """The window with one more step of all chains."""
    count = window.count + 1
    change = z - window.mean
    mean = window.mean + change / count
    dense = window.square.ndim == 3
    more = change[:, :, None] * (z - mean)[:, None, :] if dense else change * (z - mean)
    gradient_change = gradient - window.gradient_mean
    gradient_mean = window.gradient_mean + gradient_change / count
    energy_mean = window.energy + (energy - window.energy) / count
    return Window(
        count,
        mean,
        window.square + more,
        gradient_mean,
        window.gradient_square + gradient_change * (gradient - gradient_mean),
        energy_mean,
        window.energy_square + (energy - window.energy) * (energy - energy_mean),
        window.moved | jnp.any(z != before, axis=1),
    )


def find_healthy(window: Window) -> Bool[Array, " chains"]:
    """Which chains are healthy: they moved, and their energy is not far above that of the others.

    If no chain is healthy, all count as healthy.
    """
    usable = window.moved & jnp.isfinite(window.energy)
    energies = jnp.where(usable, window.energy, jnp.inf)
    middle = jnp.sort(energies)[jnp.maximum((jnp.sum(usable) - 1) // 2, 0)]
    healthy = usable & (energies <= middle + _margin(window))
    return jnp.where(jnp.any(healthy), healthy, jnp.ones_like(healthy))


def _margin(window: Window) -> float:
    """The largest normal difference in energy: with d coordinates the energy varies by about ``√(d/2)``."""
    return 10 + 5 * window.mean.shape[1] ** 0.5


def find_settled(window: Window, before: Array) -> Bool[Array, " chains"]:
    """Which chains have stopped descending: their energy falls neither within the window nor from the mean
    ``before``."""
    spread = jnp.sqrt(window.energy_square / window.count)
    return (spread < _margin(window)) & (jnp.abs(window.energy - before) < _margin(window))


def fit_covariance(window: Window, healthy: Array, before: Array, early: Array) -> Array:
    """The covariance of all healthy chains about their common mean, ``(d,)`` or, if dense, ``(d, d)``.

    Early on, while the chains are far from the target, it is ``√(var z / var ∇E)``, which has the right scale anywhere.
    """
    weights = healthy / jnp.sum(healthy)
    variance = _pool(weights, window.mean, window.square / window.count)
    dense = variance.ndim == 2
    diagonal = jnp.diag(variance) if dense else variance
    # scaled first: squares of large gradients overflow in single precision
    scale = jnp.max(jnp.abs(window.gradient_mean), 0) + jnp.sqrt(jnp.max(window.gradient_square, 0)) + 1e-30
    slope = _pool(weights, window.gradient_mean / scale, window.gradient_square / scale**2 / window.count)
    curved = jnp.sqrt(diagonal / slope) / scale
    old = jnp.diag(before) if dense else before
    travelling = jnp.where(jnp.isfinite(curved) & (curved > 0), curved, old)
    if not dense:
        settled = jnp.where(jnp.isfinite(variance) & (variance > 0), variance, old)
        return jnp.where(early, travelling, settled)
    draws = window.count * jnp.sum(healthy)
    keep = draws / (draws + 5.0 + len(diagonal))
    whole = keep * variance + (1 - keep) * jnp.diag(diagonal)
    good = jnp.all(jnp.isfinite(whole)) & jnp.all(diagonal > 0)
    return jnp.where(early | ~good, jnp.diag(travelling), whole)


def _pool(weights: Array, mean: Array, variance: Array) -> Array:
    """The pooled variance: within the chains plus between them."""
    away = mean - weights @ mean
    if variance.ndim == 3:
        return jnp.einsum("c,cij->ij", weights, variance) + jnp.einsum("c,ci,cj->ij", weights, away, away)
    return weights @ variance + weights @ away**2


def choose_donors(key: Array, healthy: Array) -> Array:
    """For every chain the index of a random healthy chain."""
    return jax.random.categorical(key, jnp.where(healthy, 0.0, -jnp.inf), shape=healthy.shape)
