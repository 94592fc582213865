"""Helpers of the score experiments: train a small model, evaluate fields on a square, draw them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray
from matplotlib.axes import Axes

from thalweg.core import compiled, score
from thalweg.plot.style import LIGHT
from thalweg.train import Run, fit


def learn(
    key: PRNGKeyArray,
    model: Any,
    data: Any,
    objective: Any,
    *,
    updates: int,
    batch_size: int = 512,
    rate: float = 2e-3,
    cool: bool = True,
    progress: bool = False,
) -> Run:
    """Train ``model`` by Adam with averaged weights; with ``cool`` the learning rate falls to zero.

    >>> from thalweg.energies import ScoreMLP
    >>> from thalweg.objectives import DenoisingScoreMatching
    >>> key_data, key_model, key_fit = jax.random.split(jax.random.key(0), 3)
    >>> data, network = jax.random.normal(key_data, (100, 2)), ScoreMLP(2, key=key_model)
    >>> learn(key_fit, network, data, DenoisingScoreMatching(), updates=2, batch_size=50).step
    2
    """
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, updates) if cool else rate)
    return fit(
        model,
        data,
        objective,
        optimizer=optimizer,
        steps=updates,
        batch_size=batch_size,
        key=key,
        ema=0.999 if updates > 2000 else 0.99,
        progress=progress,
    )


def square(half: float, nodes: int) -> np.ndarray:
    """The points of a regular mesh over ``[-half, half]²``, ``(nodes, nodes, 2)``, x₁ along the columns.

    >>> square(1.0, 3)[0].tolist()
    [[-1.0, -1.0], [0.0, -1.0], [1.0, -1.0]]
    """
    line = np.linspace(-half, half, nodes)
    return np.stack(np.meshgrid(line, line), axis=-1)


def values(energy: Any, points: np.ndarray) -> np.ndarray:
    """The energy at points ``(…, d)``, ``(…)``."""
    return np.asarray(_map_energy(energy, _rows(points))).reshape(points.shape[:-1])


def scores(model: Any, points: np.ndarray) -> np.ndarray:
    """The score of an energy or a score network at points ``(…, d)``, of the same shape."""
    return np.asarray(_map_scores(model, _rows(points))).reshape(points.shape)


def _rows(points: np.ndarray) -> Array:
    return jnp.asarray(points.reshape(-1, points.shape[-1]), jnp.float32)


@compiled
def _map_energy(energy: Any, rows: Array) -> Array:
    return jax.vmap(energy)(rows)


@compiled
def _map_scores(model: Any, rows: Array) -> Array:
    return jax.vmap(lambda x: score(model, x))(rows)


def relative_error(learned: np.ndarray, exact: np.ndarray) -> float:
    """``E‖s_θ - s‖²/E‖s‖²`` over the given rows: 0 is perfect, 1 is no better than a score of zero.

    >>> relative_error(np.zeros((4, 2)), np.ones((4, 2)))
    1.0
    """
    return float(np.sum((learned - exact) ** 2) / np.sum(exact**2))


def draw_field(axes: Axes, half: float, field: np.ndarray, density: np.ndarray) -> None:
    """Arrows of a field ``(n, n, 2)`` over a density ``(m, m)``, both on `square` meshes.

    The length of an arrow is proportional to the square root of the score's norm, which ranges over decades.
    """
    axes.imshow(density, extent=(-half, half, -half, half), origin="lower", cmap="Blues", interpolation="bilinear")
    mesh = square(half, len(field))
    length = np.linalg.norm(field, axis=-1, keepdims=True)
    arrows = field / np.sqrt(np.maximum(length, 1e-12))
    spacing = 2 * half / (len(field) - 1)
    longest = float(np.quantile(np.sqrt(length), 0.98))
    axes.quiver(
        mesh[..., 0], mesh[..., 1], arrows[..., 0], arrows[..., 1], color=LIGHT.ink, width=0.004, headwidth=4.0,
        angles="xy", scale_units="xy", scale=longest / spacing,
    )  # fmt: skip
    axes.set_xlim(-half, half)
    axes.set_ylim(-half, half)
    axes.set_aspect("equal")
    axes.grid(False)
