r"""Control variates for the gradient of a self-adapting objective: Stein's for samples, the frozen model's for data.

Both add what has expectation zero and goes along with the noise of the gradient, so that less of it is left.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from thalweg.core import bind_batch, combine, energies, freeze, partition_trainable

# samples for every control, so that fitting the controls does not cost what they gain
_PER_CONTROL = 8
# of the controls' variance, added where they are nearly dependent
_RIDGE = 1e-5


def stein_weights(x: Array, scores: Array) -> Float[Array, " rows"]:
    r"""Weights of samples of p that sum to one, with which the mean of any function has less variance.

    By Stein's identity ``E_p[∇·φ + φᵀs] = 0`` for ``s = ∇log p`` and any smooth φ that does not grow too fast: constant
    fields give the controls ``s_j``, linear ones ``δ_ij + x_i s_j`` (their trace alone where there are fewer than
    8 samples for each of them). Regressing a function on controls h and taking away what they explain of its mean is
    the weighting ``w_i = (1 - (h_i - h̄)ᵀ S⁻¹ h̄)/n`` with their covariance S, whatever the function. Samples that are
    not yet distributed as p are biased further by it. Reference: Oates, Girolami and Chopin (2017), JRSS B 79.

    Args:
        x: samples, ``(rows, *event)``.
        scores: ``s(x)``, of the same shape.

    Returns:
        ``(rows,)``; of a Gaussian the means of x and of products of coordinates are exact with them.

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
    # on one scale, the ridge means the same for all
    controls = controls / jnp.sqrt(jnp.mean(controls**2, axis=0) + jnp.finfo(x.dtype).tiny)
    mean = jnp.mean(controls, axis=0)
    apart = controls - mean
    covariance = apart.T @ apart / rows + _RIDGE * jnp.eye(len(mean))
    return (1 - apart @ jnp.linalg.solve(covariance, mean)) / rows


class Anchor(NamedTuple):
    """The newest batches of data ``(batches, rows, ...)`` and the frozen energy's mean gradient over them."""

    batches: PyTree
    gradient: PyTree


def init_anchor(energy: Any, batch: PyTree, batches: int) -> Anchor:
    """An empty `Anchor`."""
    gradient = jax.tree.map(jnp.zeros_like, partition_trainable(freeze(energy))[0])
    return Anchor(jax.tree.map(lambda leaf: jnp.zeros((batches, *leaf.shape), leaf.dtype), batch), gradient)


def anchor_control(anchor: Anchor, past: Any, batch: PyTree, updates: Array, due: Array) -> tuple[Anchor, PyTree]:
    """The anchor with ``batch`` in it, and ``mean ∇E_m`` over all its batches less that over this one.

    Within an interval the frozen energy stays, so the first is computed once, at the freezing.
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
