"""Noise on finite spaces: independent sites."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Module, check_point, is_concrete, key_and_shape, positive, real
from thalweg.spaces import Finite


class IndependentBernoulli(Module):
    r"""Two levels per site: ``log p(x) = Σ_i log p_i`` if site i is at the upper level, ``log(1 - p_i)`` otherwise.

    Args:
        probability: p of the upper level, strictly between 0 and 1, of the point's shape.
        levels: ``(0, 1)``; for spins ``(-1, 1)``.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> noise = tw.noise.IndependentBernoulli(jnp.array([0.5, 0.25]))
    >>> round(float(jnp.exp(noise.log_prob(jnp.array([1, 1])))), 4)
    0.125
    """

    logits: Array
    levels: tuple[int, int] = eqx.field(static=True)

    def __init__(self, probability: Any, levels: tuple[int, int] = (0, 1)):
        probability = positive("every probability", probability)
        if is_concrete(probability) and np.any(np.asarray(probability) >= 1):
            raise ValueError(f"expected probabilities below 1, got {probability}; leave every level possible")
        rising = as_levels(levels)
        if len(rising) != 2:
            raise ValueError(f"expected two rising levels, got {levels}; use IndependentCategorical for more")
        self.logits, self.levels = jnp.log(probability) - jnp.log1p(-probability), (rising[0], rising[1])

    def log_prob(self, x: Array) -> Array:
        check_point(x, self.logits.shape)
        low, high = self.levels
        down = jnp.where(x == low, jax.nn.log_sigmoid(-self.logits), -jnp.inf)
        return jnp.sum(jnp.where(x == high, jax.nn.log_sigmoid(self.logits), down))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        up = jax.random.bernoulli(key, jax.nn.sigmoid(self.logits), (*shape, *self.logits.shape))
        return jnp.where(up, *jnp.array(self.levels[::-1], jnp.int32))


class IndependentCategorical(Module):
    r"""Several levels per site: ``log p(x) = Σ_i log p_{i,x_i}``.

    Args:
        probabilities: ``(*event, k)``, positive; they are normalised for each site.
        levels: the k values a site can take, in increasing order; by default ``0 … k-1``.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> noise = tw.noise.IndependentCategorical(jnp.array([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]]))
    >>> round(float(jnp.exp(noise.log_prob(jnp.array([0, 2])))), 4)
    0.3
    """

    log_probs: Array
    levels: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, probabilities: Any, levels: Sequence[int] | None = None):
        probabilities = positive("every probability", probabilities)
        if probabilities.ndim == 0:
            raise ValueError("expected probabilities (*event, k), got one number; the last axis is the levels")
        self.levels = tuple(range(probabilities.shape[-1])) if levels is None else as_levels(levels)
        if len(self.levels) != probabilities.shape[-1]:
            raise ValueError(
                f"expected one probability per level, got {probabilities.shape[-1]} for {len(self.levels)} levels; "
                "the last axis is the levels"
            )
        self.log_probs = jnp.log(probabilities / jnp.sum(probabilities, axis=-1, keepdims=True))

    def log_prob(self, x: Array) -> Array:
        check_point(x, self.log_probs.shape[:-1])
        # the log probability of the level x is at; -inf if x is at none of the levels
        at_level = x[..., None] == jnp.array(self.levels)
        return jnp.sum(jnp.max(jnp.where(at_level, self.log_probs, -jnp.inf), axis=-1))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        which = jax.random.categorical(key, self.log_probs, shape=(*shape, *self.log_probs.shape[:-1]))
        return jnp.array(self.levels, jnp.int32)[which]


def as_levels(levels: Any) -> tuple[int, ...]:
    """Rising whole numbers as a tuple, refused where they are none."""
    real("levels", levels)
    whole = isinstance(levels, (tuple, list, range, np.ndarray, jax.Array)) and np.ndim(levels) == 1
    values = np.asarray(levels) if whole else np.zeros(0)
    if values.dtype.kind not in "iu" or np.any(np.diff(values) <= 0) or len(values) < 2:
        raise ValueError(f"expected at least two rising whole numbers as levels, got {levels!r:.60}; bits are (0, 1)")
    return tuple(int(level) for level in values)


def check_finite_space(space: Any) -> None:
    """Refuse what is no space of finitely many levels."""
    if not isinstance(space, Finite):
        raise ValueError(f"expected a finite space, got {space!r:.60}; give for example tw.Spin(3)")


def fit_independent(
    data: Any, space: Finite, smoothing: float | Array = 1.0
) -> IndependentBernoulli | IndependentCategorical:
    r"""Independent sites with the smoothed frequencies of the data, ``p = (count + s/k) / (rows + s)`` over k levels.

    Args:
        data: ``(rows, *event)``, among the space's levels.
        space: `Binary`, `Spin` or `Categorical`, of the point's shape.
        smoothing: s > 0, the number of added rows in which all levels are equally frequent.

    Returns:
        `IndependentBernoulli` on two levels, otherwise `IndependentCategorical`.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> noise = tw.noise.fit_independent(jnp.array([[1, -1], [1, 1], [1, -1]]), tw.Spin(2))
    >>> round(float(jnp.exp(noise.log_prob(jnp.array([1, 1])))), 4)  # 3.5/4 · 1.5/4
    0.3281
    """
    smoothing = positive("smoothing", smoothing, scalar=True)
    check_finite_space(space)
    array, levels = real("data", data), np.array(space.levels)
    if array.ndim == 0 or array.shape[1:] != space.shape or len(array) == 0:
        raise ValueError(f"expected data of shape (rows, *{space.shape}) on {space}, got {array.shape}; reshape them")
    if is_concrete(array) and not np.isin(np.asarray(array), levels).all():
        raise ValueError(f"expected data among the levels {levels.tolist()} of {space}, got others; encode them so")
    counts = jnp.stack([jnp.sum(array == level, axis=0) for level in levels], axis=-1)
    probabilities = (counts + smoothing / len(levels)) / (len(array) + smoothing)
    if len(levels) == 2:
        return IndependentBernoulli(probabilities[..., 1], (int(levels[0]), int(levels[1])))
    return IndependentCategorical(probabilities, space.levels)
