"""The chains of a training step: where they end, their metrics, and the gradient through their last steps."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import bind, freeze
from thalweg.samplers.run import advance, check_kernel, inspect, metrics_with_gradient
from thalweg.samplers.single_chain import step_chains
from thalweg.samplers.starts import Start
from thalweg.samplers.tempering import ParallelTempering


class Negatives(NamedTuple):
    """Where chains end ``(chains, *event)``, their conditions where the energy has any, the start's memory after them,
    and their metrics.

    ``live`` is ``x`` once more, as a function of the energy's parameters through the last steps; ``None`` where no
    step was to be differentiated.
    """

    x: PyTree
    conditions: PyTree
    memory: PyTree
    metrics: dict[str, Array]
    live: PyTree


def run_chains(
    energy: Any,
    kernel: Any,
    start: Start,
    memory: PyTree,
    batch: PyTree,
    *,
    key: PRNGKeyArray,
    steps: int,
    live_steps: int = 0,
) -> Negatives:
    """``steps`` steps of ``kernel`` from where ``start`` says, as many chains as the batch has rows.

    Kernel states go on from update to update: nothing here begins a chain anew. No gradient flows through ``x``. With
    ``live_steps`` the last of the steps, as many as that, run on the energy with its parameters live: what they give
    is ``live``, the state before them being a constant.

    Args:
        energy: the model; with a `ConditionalEnergy` every chain has a condition of its own.
        kernel: any kernel.
        start: where chains begin, and what goes on from the last update.
        memory: what the start has kept.
        batch: points, or ``(x, c)``.
        key: all randomness.
        steps: steps of the chains.
        live_steps: through how many of the last steps a gradient is wanted.
    """
    fixed = freeze(energy)
    key_start, key_chain, key_live = jax.random.split(key, 3)
    begun = start.begin(key_start, kernel, fixed, memory, batch)
    bound = bind(fixed, begun.conditions)
    state, means = advance(
        bound, kernel, begun.state, key=key_chain, steps=steps - live_steps, measure=metrics_with_gradient
    )
    live = None
    if live_steps:
        moving = bind(energy, begun.conditions)
        state, more = advance(
            moving, kernel, freeze(state), key=key_live, steps=live_steps, measure=metrics_with_gradient
        )
        means = {name: _over_both(means[name], more[name], steps, live_steps) for name in means}
        live = state.x
    state, means = freeze((state, means))
    metrics = reduce_metrics(means) | sample_norm(state.x)
    return Negatives(state.x, begun.conditions, start.finish(memory, begun, state), metrics, live)


def _over_both(first: Array, last: Array, steps: int, live_steps: int) -> Array:
    """The mean over all steps from those over the first and the last ones; whole numbers are sums."""
    if not jnp.issubdtype(first.dtype, jnp.floating):
        return first + last
    return first + (last - first) * (live_steps / steps)


def reduce_metrics(metrics: dict[str, Array]) -> dict[str, Array]:
    """One number for each metric of the chains: the mean over chains, but the sum of whole numbers (divergences)."""
    whole = {name: not jnp.issubdtype(value.dtype, jnp.floating) for name, value in metrics.items()}
    return {name: jnp.sum(value) if whole[name] else jnp.mean(value) for name, value in metrics.items()}


def sample_norm(x: PyTree) -> dict[str, Array]:
    """The mean of ‖x‖₂ over the chains, of real coordinates alone; nothing where there are none."""
    real = [leaf for leaf in jax.tree.leaves(x) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    if not real:
        return {}
    squares = [jnp.sum(jnp.square(leaf).reshape(len(leaf), -1), axis=1) for leaf in real]
    return {"sample_norm": jnp.mean(jnp.sqrt(sum(squares[1:], squares[0])))}


def init_start(energy: Any, kernel: Any, start: Start, batch: PyTree, *, key: PRNGKeyArray) -> PyTree:
    """The start's memory before the first update; what kernel, energy and batch cannot do together is refused."""
    check_kernel(kernel)
    inspect(kernel, energy)
    memory = start.init(key, kernel, energy, batch)
    # every start begins once without computing anything, so that a kernel refuses a space now
    eqx.filter_eval_shape(lambda: start.begin(key, kernel, energy, memory, batch))
    return memory


def require_flow(energy: Any, kernel: Any, start: Start, memory: PyTree, batch: PyTree) -> None:
    """Refuse, without computing anything, a kernel whose step is no smooth function of the energy's parameters."""
    name = type(kernel).__name__

    def one():
        begun = start.begin(jax.random.key(0), kernel, energy, memory, batch)
        state, info = step_chains(kernel, jax.random.key(1), bind(energy, begun.conditions), begun.state)
        return state.x, info

    x, info = eqx.filter_eval_shape(one)
    if not all(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in jax.tree.leaves(x)):
        why = f"{name} on whole numbers, through which no gradient flows"
    elif isinstance(kernel, ParallelTempering):
        why = f"{name}, whose swaps cut it off"
    elif info.acceptance is not None:
        why = f"{name}, whose accept step cuts it off"
    else:
        return
    raise ValueError(
        f"expected a kernel that carries a gradient for sampler_gradient, got {why}; use Langevin on a continuous "
        "space, or leave sampler_gradient out"
    )
