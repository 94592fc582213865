"""Samples from a trained energy, drawn from fresh noise, with what some chains looked like on the way."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Kernel
from thalweg.samplers import from_noise, sample
from thalweg.samplers.starts import Noise, point_space

_FOLLOWED = 16
_FRAMES = 25


class Drawn(NamedTuple):
    """Final samples ``(chains, *event)``; of the first few chains the states ``(frames, followed, *event)`` and
    energies ``(followed, frames)`` after the numbers of steps in ``path_steps``.
    """

    x: np.ndarray
    path: np.ndarray
    path_steps: np.ndarray
    energy_trace: np.ndarray


def draw(
    energy: Any,
    kernel: Kernel,
    like: np.ndarray,
    key: PRNGKeyArray,
    show: Callable[[int], None],
    *,
    chains: int = 100,
    steps: int = 500,
    noise: Noise | None = None,
) -> Drawn:
    """``steps`` steps of ``kernel`` for each of ``chains`` chains that start from fresh noise.

    Args:
        energy: a trained energy.
        kernel: any kernel.
        like: rows of data, for their shape.
        key: all randomness.
        show: called with the number of steps each time some are done.
        chains: how many chains, so how many samples.
        steps: steps per chain.
        noise: where the chains start; by default the space's own noise.
    """
    for name, value in (("chains", chains), ("steps", steps)):
        if value < 1:
            raise ValueError(f"sample.{name}: expected at least 1, got {value}; give for example 100")
    key_start, key_chains = jax.random.split(key)
    shaped = jnp.zeros((chains, *like.shape[1:]))
    x = from_noise(noise).begin(key_start, point_space(energy, shaped), None, shaped).x
    path_steps = frames(steps)
    path = [np.asarray(x[:_FOLLOWED])]
    for frame, count in enumerate(np.diff(path_steps)):
        # a chain cut where it is looked at: each piece starts where the last one ended
        piece = jax.random.fold_in(key_chains, frame)
        x = sample(energy, kernel, x, key=piece, draws=1, thin=int(count)).draws[:, 0]
        path.append(np.asarray(x[:_FOLLOWED]))
        show(int(count))
    lost = int(np.sum(~np.isfinite(np.asarray(x)).reshape(chains, -1).all(axis=1)))
    if lost:
        raise ValueError(
            f"expected finite samples, got {lost} of {chains} chains that ran off to non-finite values; "
            "lower sample.kernel.step_size"
        )
    trace = np.stack([energies(energy, states) for states in path], axis=1)
    return Drawn(np.asarray(x), np.stack(path), path_steps, trace)


def frames(steps: int) -> np.ndarray:
    """The numbers of steps after which to look: evenly spaced from 0 on, since every other spacing is compiled anew.

    >>> frames(100).tolist()[:3], frames(101).tolist()[-3:]
    ([0, 4, 8], [95, 100, 101])
    """
    return np.unique([*range(0, steps, math.ceil(steps / _FRAMES)), steps])


def energies(energy: Any, x: np.ndarray | Array) -> np.ndarray:
    """The energy of every row, a few hundred at a time: memory does not grow with the rows."""
    return np.asarray(_energies(energy, jnp.asarray(x)))


@eqx.filter_jit
def _energies(energy: Any, x: Array) -> Array:
    return jax.lax.map(energy, x, batch_size=256)
