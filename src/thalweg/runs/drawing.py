"""Samples from a trained energy, drawn from fresh noise, with what some chains looked like on the way."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Kernel, compiled
from thalweg.samplers import from_noise, sample
from thalweg.samplers.starts import Noise

_FOLLOWED = 16
_FRAMES = 25


class Drawn(NamedTuple):
    """Final samples ``(chains, *event)``; of the first few chains the points ``(frames, followed, *event)`` and
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
    path_steps = frames(steps)
    pieces = np.diff(path_steps)
    key_start, *keys = jax.random.split(key, 1 + len(pieces))
    shaped = jnp.broadcast_to(jnp.asarray(like[:1]), (chains, *like.shape[1:]))
    state = _begin(from_noise(noise), key_start, kernel, energy, shaped)
    path = [np.asarray(state.x[:_FOLLOWED])]
    for count, key_piece in zip(pieces, keys, strict=True):
        # a chain cut where it is looked at: its state goes on, so that momenta and counts are those of one run
        state = sample(energy, kernel, state, key=key_piece, draws=1, thin=int(count)).state
        _refuse_lost(energy, state.x)
        path.append(np.asarray(state.x[:_FOLLOWED]))
        show(int(count))
    trace = np.stack([energies(energy, points) for points in path], axis=1)
    return Drawn(np.asarray(state.x), np.stack(path), path_steps, trace)


@compiled
def _begin(start: Any, key: PRNGKeyArray, kernel: Kernel, energy: Any, like: Array) -> Any:
    return start.begin(key, kernel, energy, None, like).state


def _refuse_lost(energy: Any, x: Array) -> None:
    # the energy of a point overflows before the point does, and the next piece would refuse it as a start
    lost = int(np.sum(~np.isfinite(energies(energy, x))))
    if lost:
        raise ValueError(
            f"expected finite samples, got {lost} of {len(x)} chains that ran off to where the energy is not finite; "
            "lower sample.kernel.step_size"
        )


def frames(steps: int) -> np.ndarray:
    """The numbers of steps after which to look: evenly spaced from 0 on, since every other spacing is compiled anew.

    >>> frames(100).tolist()[:3], frames(101).tolist()[-3:]
    ([0, 4, 8], [95, 100, 101])
    """
    return np.unique([*range(0, steps, math.ceil(steps / _FRAMES)), steps])


def energies(energy: Any, x: np.ndarray | Array) -> np.ndarray:
    """The energy of every row, a few hundred at a time: memory does not grow with the rows."""
    return np.asarray(_energies(energy, jnp.asarray(x)))


@compiled
def _energies(energy: Any, x: Array) -> Array:
    return jax.lax.map(energy, x, batch_size=256)
