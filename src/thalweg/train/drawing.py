"""Samples of a trained model from fresh noise, with the paths of some chains."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import ConditionalEnergy, Kernel, bind, compiled, count_chains, given, is_score
from thalweg.samplers import AnnealedLangevin, from_noise, sample
from thalweg.samplers.starts import Noise

_FOLLOWED = 16
_FRAMES = 25


class Drawn(NamedTuple):
    """Final samples ``x`` ``(chains, *event)``, and the paths of the first few chains.

    ``path`` ``(frames, followed, *event)`` and ``energy_trace`` ``(followed, frames)`` are the points and energies of
    these chains after the numbers of steps in ``path_steps``. ``energy_trace`` is None for a score network,
    ``conditions`` is None unless the model is conditional.
    """

    x: np.ndarray
    path: np.ndarray
    path_steps: np.ndarray
    energy_trace: np.ndarray | None
    conditions: np.ndarray | None


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
    conditions: PyTree | None = None,
) -> Drawn:
    """``steps`` steps of ``kernel`` for each of ``chains`` chains that start from fresh noise.

    Args:
        energy: a trained energy or score network.
        kernel: any kernel.
        like: rows of data, for their shape.
        key: all randomness.
        show: called with the number of steps just done.
        chains: the number of chains, and so of samples.
        steps: steps per chain.
        noise: where the chains start; by default the space's own noise.
        conditions: of a conditional energy, one for each chain.
    """
    for name, value in (("chains", chains), ("steps", steps)):
        if value < 1:
            raise ValueError(f"sample.{name}: expected at least 1, got {value}; give for example 100")
    path_steps = frames(steps)
    pieces = np.diff(path_steps)
    key_start, *keys = jax.random.split(key, 1 + len(pieces))
    shaped = jnp.broadcast_to(jnp.asarray(like[:1]), (chains, *like.shape[1:]))
    model, state = begin_chains(energy, kernel, shaped, key_start, noise, conditions)
    judged = model_of_points(energy, kernel)
    path, trace = [np.asarray(state.x[:_FOLLOWED])], [_measure(judged, state.x, conditions)]
    for count, key_piece in zip(pieces, keys, strict=True):
        # the chain is run in pieces, one per frame; the state is passed on, so momenta and counts are those of one run
        state = sample(model, kernel, state, key=key_piece, draws=1, thin=int(count)).state
        trace.append(_refuse_lost(_measure(judged, state.x, conditions)))
        path.append(np.asarray(state.x[:_FOLLOWED]))
        show(int(count))
    energy_trace = None if is_score(judged) else np.stack([each[:_FOLLOWED] for each in trace], axis=1)
    kept = None if conditions is None else np.asarray(conditions)
    return Drawn(np.asarray(state.x), np.stack(path), path_steps, energy_trace, kept)


def begin_chains(
    energy: Any,
    kernel: Any,
    like: PyTree,
    key: PRNGKeyArray,
    noise: Noise | None = None,
    conditions: PyTree | None = None,
) -> tuple[Any, Any]:
    """The model given its conditions, and the state of one chain per point of ``like``, started at noise."""
    if isinstance(kernel, AnnealedLangevin):
        # the first noise level has this standard deviation, against which the data are negligible
        widest = lambda key, shape: kernel.sigmas[0] * jax.random.normal(key, shape)
        key_noise, key_state = jax.random.split(key)
        return energy, kernel.init(key_state, energy, (noise or widest)(key_noise, jnp.shape(like)))
    if isinstance(energy, ConditionalEnergy) and conditions is None:
        raise ValueError(
            "expected conditions to sample a conditional model under, one for each chain, got none; "
            "give conditions=labels, or train on data that have labels"
        )
    conditions = jnp.asarray(conditions) if isinstance(energy, ConditionalEnergy) else None
    batch = like if conditions is None else (like, conditions)
    return bind(energy, conditions), _begin(from_noise(noise), key, kernel, energy, batch)


@compiled
def _begin(start: Any, key: PRNGKeyArray, kernel: Kernel, energy: Any, like: PyTree) -> Any:
    return start.begin(key, kernel, energy, None, like).state


def model_of_points(energy: Any, kernel: Any) -> Any:
    """The model by which samples are evaluated: a noise-conditional one at its last noise level, any other as it is."""
    return given(energy, kernel.sigmas[-1]) if isinstance(kernel, AnnealedLangevin) else energy


def _measure(model: Any, x: Array, conditions: PyTree | None) -> np.ndarray:
    """The energies of the points; a score network has none, so the points themselves are returned."""
    return np.asarray(x) if is_score(model) else energies(model, x, conditions)


def _refuse_lost(values: np.ndarray) -> np.ndarray:
    # the energy overflows before the point does, and the next piece would refuse such a point as a start
    lost = int(np.sum(~np.all(np.isfinite(values.reshape(len(values), -1)), axis=1)))
    if lost:
        raise ValueError(
            f"expected finite samples, got {lost} of {len(values)} chains that ran off to where the energy is not "
            "finite; lower sample.kernel.step_size"
        )
    return values


def frames(steps: int) -> np.ndarray:
    """The numbers of steps after which a frame is kept: evenly spaced, since each new spacing is compiled again.

    >>> frames(100).tolist()[:3], frames(101).tolist()[-3:]
    ([0, 4, 8], [95, 100, 101])
    """
    return np.unique([*range(0, steps, math.ceil(steps / _FRAMES)), steps])


def energies(energy: Any, x: np.ndarray | Array, conditions: PyTree | None = None) -> np.ndarray:
    """The energy of every row, computed 256 rows at a time to bound the memory."""
    if conditions is not None and count_chains(conditions) != len(x):
        raise ValueError(
            f"expected a condition for each of {len(x)} rows, got {count_chains(conditions)}; give as many"
        )
    return np.asarray(_energies(energy, jnp.asarray(x), None if conditions is None else jnp.asarray(conditions)))


@compiled
def _energies(energy: Any, x: Array, conditions: PyTree | None) -> Array:
    if conditions is None:
        return jax.lax.map(energy, x, batch_size=256)
    return jax.lax.map(lambda pair: energy(*pair), (x, conditions), batch_size=256)
