"""How a trained model is sampled: the kernel, the starting noise, the conditions and the number of steps."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from thalweg.core import (
    ConditionalEnergy,
    HasConditionals,
    HasSweep,
    Kernel,
    is_score,
    space_of,
    typed_key,
    whole_number,
)
from thalweg.data import Dataset
from thalweg.objectives import NoiseConditionalScoreMatching
from thalweg.samplers import NUTS, AnnealedLangevin, Chains, Gibbs, GibbsWithGradients, from_noise, sample, warm_up
from thalweg.samplers.starts import Noise
from thalweg.spaces import Continuous, Discrete
from thalweg.train.drawing import begin_chains
from thalweg.train.source import Source


class Sampling(NamedTuple):
    """How a run is sampled; ``like`` holds one point per chain, which gives the shape."""

    kernel: Any
    noise: Noise | None
    conditions: PyTree | None
    like: PyTree
    steps: int


def choose_sampling(
    run: Any,
    *,
    key: PRNGKeyArray,
    chains: int,
    kernel: Any = None,
    steps: int | None = None,
    noise: Noise | None = None,
    conditions: PyTree | None = None,
    dataset: Dataset | None = None,
) -> Sampling:
    """Fill in what is not given: from the run's configuration if it says so, else as the model was trained.

    Args:
        run: a `Run`.
        key: random key of the warm-up, if one is needed.
        chains: the number of chains.
        kernel: any kernel; see `default_kernel`.
        steps: the number of steps from noise to a sample; see `default_steps`.
        noise: where chains start.
        conditions: of a conditional model; by default the labels of its data, in turn.
        dataset: the run's data, if already loaded.
    """
    source: Source = run.source
    objective, chains = source.objective, whole_number("chains", chains, hint="give for example 100")
    configured = kernel is None
    kernel = source.kernel if kernel is None else kernel
    if noise is None:
        noise = getattr(getattr(objective, "start", None), "noise", None) if source.noise is None else source.noise
    like = _points(run.energy, source, dataset, chains)
    if kernel is None:
        kernel = default_kernel(run.energy, objective, run.state, like, key)
    if steps is None:
        steps = source.steps if configured and source.steps is not None else default_steps(kernel, objective)
    if isinstance(run.energy, ConditionalEnergy) and not isinstance(kernel, AnnealedLangevin):
        conditions = _conditions(run.energy, source, dataset, conditions, chains)
    return Sampling(kernel, noise, conditions, like, steps)


def _points(energy: Any, source: Source, dataset: Dataset | None, chains: int) -> Any:
    space = space_of(energy)
    if space is not None:
        return space.noise(jax.random.key(0), (chains,))  # only their shape is used
    known = source.dataset(energy) if dataset is None else dataset
    if known is None:
        raise ValueError(
            f"expected to know the shape of a point of {type(energy).__name__}, got neither its space nor its data; "
            "give the model a space (tw.as_energy), or draw with tw.sample(run.energy, kernel, init, ...)"
        )
    return np.broadcast_to(known.x_train[:1], (chains, *known.x_train.shape[1:]))


def _conditions(energy: Any, source: Source, dataset: Dataset | None, given: Any, chains: int) -> Any:
    if given is None:
        known = source.dataset(energy) if dataset is None else dataset
        given = None if known is None else known.y_train
    return None if given is None else spread_conditions(given, chains)


def spread_conditions(conditions: Any, chains: int) -> np.ndarray:
    """One condition per chain: class numbers take every class in turn, other conditions come in the data's order.

    >>> spread_conditions([2, 0, 0, 2, 2], 5).tolist()
    [0, 2, 0, 2, 0]
    """
    known = np.atleast_1d(np.asarray(conditions))
    known = np.unique(known) if known.ndim == 1 and np.issubdtype(known.dtype, np.integer) else known
    return known[np.arange(chains) % len(known)]


def default_kernel(energy: Any, objective: Any, state: Any, like: PyTree, key: PRNGKeyArray) -> Any:
    """The kernel a model was trained with, or else a suitable one for its space.

    Noise-conditional models are sampled by `AnnealedLangevin`. Discrete points are sampled by `Gibbs` if the
    conditionals are known and by `GibbsWithGradients` otherwise, real points by `NUTS`, warmed up on chains that start
    at noise.

    Args:
        energy: the trained model.
        objective: what it was trained with, if known.
        state: the objective's state.
        like: points ``(chains, *event)``, for their shape.
        key: random key of the warm-up.
    """
    own = training_kernel(objective, state)
    if own is not None:
        return own
    space = space_of(energy)
    if isinstance(energy, HasSweep):
        return Gibbs()
    if isinstance(space, Discrete):
        return Gibbs() if isinstance(energy, HasConditionals) else GibbsWithGradients()
    if is_score(energy) or isinstance(energy, ConditionalEnergy) or not isinstance(space, Continuous | None):
        raise ValueError(
            f"expected a kernel to sample {type(energy).__name__} with, got none, and its objective has none of its "
            "own; give one, for example tw.samplers.Langevin(0.01)"
        )
    key_start, key_warm_up = jax.random.split(key)
    nuts = NUTS(0.1)
    _, begun = begin_chains(energy, nuts, like, key_start)
    return warm_up(energy, nuts, begun.x, key=key_warm_up).kernel


def training_kernel(objective: Any, state: Any) -> Any:
    """The kernel a model was trained with, and `AnnealedLangevin` for a noise-conditional one; None without one."""
    own = getattr(objective, "kernel", None)
    if isinstance(own, Kernel):
        return own
    return AnnealedLangevin(state) if isinstance(objective, NoiseConditionalScoreMatching) else None


def default_steps(kernel: Any, objective: Any) -> int:
    """The number of steps from noise to a sample: all noise levels, or as in short-run training, or 500."""
    if isinstance(kernel, AnnealedLangevin):
        return kernel.length
    short_run = isinstance(getattr(objective, "start", None), type(from_noise()))
    return objective.steps if short_run else 500


def sample_run(
    run: Any,
    kernel: Any,
    *,
    key: PRNGKeyArray,
    chains: int,
    draws: int,
    burn_in: int | None,
    thin: int,
    noise: Noise | None,
    conditions: PyTree | None,
    progress: bool,
) -> Chains:
    """`Run.sample`."""
    key_kernel, key_start, key_chains = jax.random.split(typed_key(key), 3)
    how = choose_sampling(run, key=key_kernel, chains=chains, kernel=kernel, noise=noise, conditions=conditions)
    model, state = begin_chains(run.energy, how.kernel, how.like, key_start, how.noise, how.conditions)
    burn_in = how.steps - 1 if burn_in is None else burn_in
    return sample(model, how.kernel, state, key=key_chains, draws=draws, burn_in=burn_in, thin=thin, progress=progress)
