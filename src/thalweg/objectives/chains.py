"""The chains of one training update: their final points, their metrics, and the gradient through their last steps."""

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
    """The final points of the chains ``(chains, *event)``, their conditions if the energy has any, the updated memory
    of the start, and the metrics of the chains.

    ``live`` has the values of ``x``, but is differentiable in the energy's parameters through the last steps; ``None``
    without such steps.
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
    """Run ``steps`` steps of ``kernel`` from ``start``, with as many chains as the batch has rows.

    Kernel states are carried from update to update. No gradient flows through ``x``. The last ``live_steps`` steps can
    be differentiated in the energy's parameters: their result is ``live``, and the state before them is a constant.

    Args:
        energy: the model; with a `ConditionalEnergy` every chain has its own condition.
        kernel: any kernel.
        start: where chains start, and what is kept from the last update.
        memory: the memory of the start.
        batch: points, or ``(x, c)``.
        key: the random key.
        steps: the number of kernel steps.
        live_steps: the number of last steps that can be differentiated.
    """
    fixed = freeze(energy)
    key_start, key_chain, key_live = jax.random.split(key, 3)
    started = start.begin(key_start, kernel, fixed, memory, batch)
    bound = bind(fixed, started.conditions)
    state, means = advance(
        bound, kernel, started.state, key=key_chain, steps=steps - live_steps, measure=metrics_with_gradient
    )
    live = None
    if live_steps:
        moving = bind(energy, started.conditions)
        state, more = advance(
            moving, kernel, freeze(state), key=key_live, steps=live_steps, measure=metrics_with_gradient
        )
        means = {name: _combine_means(means[name], more[name], steps, live_steps) for name in means}
        live = state.x
    state, means = freeze((state, means))
    metrics = reduce_metrics(means) | sample_norm(state.x)
    return Negatives(state.x, started.conditions, start.finish(memory, started, state), metrics, live)


def _combine_means(first: Array, last: Array, steps: int, live_steps: int) -> Array:
    """The mean over all steps, from the means over the first and the last steps; whole numbers are added."""
    if not jnp.issubdtype(first.dtype, jnp.floating):
        return first + last
    return first + (last - first) * (live_steps / steps)


def reduce_metrics(metrics: dict[str, Array]) -> dict[str, Array]:
    """One number for each metric of the chains: the mean over chains; whole numbers (divergences) are summed."""
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
    """The initial memory of the start; raises if kernel, energy and batch do not fit together."""
    check_kernel(kernel)
    inspect(kernel, energy)
    memory = start.init(key, kernel, energy, batch)
    # the start is traced once without computing anything, so that a kernel that does not fit the space raises now
    eqx.filter_eval_shape(lambda: start.begin(key, kernel, energy, memory, batch))
    return memory


def require_differentiable_step(energy: Any, kernel: Any, start: Start, memory: PyTree, batch: PyTree) -> None:
    """Raise if a step of the kernel is not differentiable in the energy's parameters; only traces it."""
    name = type(kernel).__name__

    def one():
        started = start.begin(jax.random.key(0), kernel, energy, memory, batch)
        state, info = step_chains(kernel, jax.random.key(1), bind(energy, started.conditions), started.state)
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
