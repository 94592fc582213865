r"""Control variates for the gradient of a self-adapting objective: Stein's for samples, the frozen model's for data.

Both add a term of expectation zero that is correlated with the gradient's noise, which lowers its variance.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from thalweg.core import bind_batch, combine, energies, freeze, partition_trainable

# the smallest number of samples per control, so that fitting the controls does not cost more than they gain
_PER_CONTROL = 8
# relative to the variance of the controls, for controls that are nearly dependent
_RIDGE = 1e-5


def stein_weights(x: Array, scores: Array) -> Float[Array, " rows"]:
    r"""Weights for samples of p that sum to one and lower the variance of weighted means.

    By Stein's identity ``E_p[∇·φ + φᵀs] = 0`` for ``s = ∇log p`` and any smooth φ that does not grow too fast. Constant
    fields φ give the controls ``s_j``, linear ones ``δ_ij + x_i s_j`` (only their trace with fewer than 8 samples per
    control). Regressing a function on the controls h and subtracting the explained part of its mean amounts to the
    weights ``w_i = (1 - (h_i - h̄)ᵀ S⁻¹ h̄)/n`` with the controls' covariance S, the same for every function. If the
    samples are not yet distributed as p, the weights increase their bias. Reference: Oates, Girolami and Chopin (2017),
    JRSS B 79.

    Args:
        x: samples, ``(rows, *event)``.
        scores: ``s(x)``, of the same shape.

    Returns:
        ``(rows,)``; for a Gaussian the weighted first and second moments are exact.

    >>> import jax, jax.numpy as jnp
    >>> from thalweg.objectives.control_variates import stein_weights
    >>> x = 1.0 + 2.0 * jax.random.normal(jax.random.key(0), (100, 1))
    >>> weights = stein_weights(x, -(x - 1.0) / 4.0)
    >>> round(float(weights @ x[:, 0]), 3), round(float(weights @ x[:, 0] ** 2), 2)
    (1.0, 5.0)
    """
    rows = x.shape[0]
    x, scores = x.reshape(rows, -1), scores.reshape(rows, -1)
    size = x.shape[1]
    if rows < _PER_CONTROL * (size + 1):
        raise ValueError(
            f"expected at least {_PER_CONTROL * (size + 1)} samples for Stein's control in {size} dimensions, got "
            f"{rows}; take a larger batch, or leave the control out"
        )
    if rows >= _PER_CONTROL * (size + size**2):
        linear = (jnp.eye(size) + x[:, :, None] * scores[:, None, :]).reshape(rows, -1)
    else:
        linear = size + jnp.sum(x * scores, axis=1, keepdims=True)
    controls = jnp.concatenate([scores, linear], axis=1)
    # normalised, so that the ridge has the same effect on all controls
    controls = controls / jnp.sqrt(jnp.mean(controls**2, axis=0) + jnp.finfo(x.dtype).tiny)
    mean = jnp.mean(controls, axis=0)
    apart = controls - mean
    covariance = apart.T @ apart / rows + _RIDGE * jnp.eye(len(mean))
    return (1 - apart @ jnp.linalg.solve(covariance, mean)) / rows


class Anchor(NamedTuple):
    """The most recent batches of data ``(batches, rows, ...)``, and the frozen energy's mean gradient over them."""

    batches: PyTree
    gradient: PyTree


def init_anchor(energy: Any, batch: PyTree, batches: int) -> Anchor:
    """An empty `Anchor`."""
    gradient = jax.tree.map(jnp.zeros_like, partition_trainable(freeze(energy))[0])
    return Anchor(jax.tree.map(lambda leaf: jnp.zeros((batches, *leaf.shape), leaf.dtype), batch), gradient)


def anchor_control(anchor: Anchor, past: Any, batch: PyTree, updates: Array, due: Array) -> tuple[Anchor, PyTree]:
    """The anchor with ``batch`` added, and ``mean ∇E_m`` over all its batches minus that over this batch.

    The frozen energy stays the same within an interval, so the first mean is computed once, at the freezing.
    """
    count = jax.tree.leaves(anchor.batches)[0].shape[0]
    batches = jax.tree.map(lambda store, new: store.at[updates % count].set(new), anchor.batches, batch)
    seen = jnp.minimum(updates + 1, count)

    def over_all():
        per_batch = jax.lax.map(lambda rows: _mean_gradient(past, rows), batches)
        share = jnp.where(jnp.arange(count) < seen, 1.0, 0.0) / seen
        return jax.tree.map(lambda leaf: jnp.tensordot(share, leaf, axes=1).astype(leaf.dtype), per_batch)

    gradient = jax.lax.cond(due, over_all, lambda: anchor.gradient)
    here = _mean_gradient(past, batch)
    return Anchor(batches, gradient), jax.tree.map(jnp.subtract, gradient, here)


def _mean_gradient(energy: Any, batch: PyTree) -> PyTree:
    trainable, fixed = partition_trainable(freeze(energy))

    def mean(trainable):
        return jnp.mean(energies(*bind_batch(combine(trainable, fixed), batch)))

    return jax.grad(mean)(trainable)
