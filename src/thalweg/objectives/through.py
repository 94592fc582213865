"""The chains of a training step: where they end, what they tell, and the gradient through their last steps."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import Energy, Kernel
from thalweg.samplers.run import advance, averaged, told_with_gradients
from thalweg.samplers.starts import Replicated, Start, as_seen, left_at, point_space, resumed


class Negatives(NamedTuple):
    """Where chains end ``(chains, *event)``, the start's memory after them, and scalars they told on the way.

    ``live`` is ``x`` once more, as a function of the energy's parameters through the last steps; ``None`` where no
    step was to be differentiated.
    """

    x: Array
    memory: PyTree
    metrics: dict[str, Array]
    live: Array | None


def frozen(tree: PyTree) -> PyTree:
    """``tree`` with its numbers as constants: no gradient reaches them; one in ``x`` still flows through an energy."""
    return eqx.combine(jax.lax.stop_gradient(eqx.filter(tree, eqx.is_inexact_array)), tree)


def run_chains(
    key: PRNGKeyArray,
    kernel: Kernel,
    steps: int,
    start: Start,
    energy: Energy,
    memory: PyTree,
    batch: Array,
    live_steps: int = 0,
) -> Negatives:
    """``steps`` steps of ``kernel`` from where ``start`` says, as many chains as the batch has rows.

    No gradient flows through ``x``. With ``live_steps`` the last so many steps run on the energy with its parameters
    live: what they give is ``live``, the state before them being a constant.
    """
    fixed = frozen(energy)
    key_start, key_chain = jax.random.split(key)
    space, shown = as_seen(kernel, point_space(energy, batch), batch)
    x, ticket = start.begin(key_start, space, memory, shown)
    state = resumed(jax.random.fold_in(key, 2), kernel, fixed, x)
    live = None
    if live_steps:
        key_chain, key_live = jax.random.split(key_chain)
        state, totals = advance(key_chain, kernel, fixed, state, steps - live_steps, told_with_gradients)
        state, more = advance(key_live, kernel, energy, state, live_steps, told_with_gradients)
        totals = jax.tree.map(jnp.add, totals, more)
        live = state.x
    else:
        state, totals = advance(key_chain, kernel, fixed, state, steps, told_with_gradients)
    state, totals = frozen((state, totals))
    return Negatives(state.x, start.finish(memory, ticket, left_at(kernel, state)), summed_up(totals, steps), live)


def summed_up(totals: dict[str, Array], steps: int | Array) -> dict[str, Array]:
    """One number for each thing that chains told: the mean over chains and steps, but the sum of divergences."""
    means = averaged(totals, steps)
    return {name: jnp.sum(value) if name == "divergences" else jnp.mean(value) for name, value in means.items()}


def require_flow(kernel: Kernel, energy: Energy, x: Array) -> None:
    """Refuse, without computing anything, a kernel whose step is no smooth function of the energy's parameters."""
    name = type(kernel).__name__

    def one():
        return kernel.step(jax.random.key(0), energy, kernel.init(energy, x))

    state, info = jax.eval_shape(one)
    if not jnp.issubdtype(state.x.dtype, jnp.inexact):
        why = f"{name} on whole numbers, through which no gradient flows"
    elif isinstance(kernel, Replicated):
        why = f"{name}, whose swaps cut it off"
    elif info.acceptance is not None:
        why = f"{name}, whose accept step cuts it off"
    else:
        return
    raise ValueError(
        f"expected a kernel that carries a gradient for sampler_gradient, got {why}; use Langevin on a continuous "
        "space, or leave sampler_gradient out"
    )
