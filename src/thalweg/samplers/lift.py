"""Single-chain kernels lifted to a population of chains, and what the states of several kernels carry."""

import abc
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray, PyTree

from thalweg.core import Energy, Info, Kernel, State, as_energy
from thalweg.spaces import require_gradient


class LiftedKernel(Kernel):
    """A kernel written for one chain: `init_one` and `step_one`; every chain gets a key of its own."""

    @abc.abstractmethod
    def init_one(self, energy: Any, x: Array) -> State:
        """The state of one chain at the point ``x``."""

    @abc.abstractmethod
    def step_one(self, key: PRNGKeyArray, energy: Any, state: Any) -> tuple[State, Info]:
        """One chain one step on."""

    def init(self, energy: Any, x: Array) -> State:
        return jax.vmap(lambda point: self.init_one(energy, point))(x)

    def step(self, key: PRNGKeyArray, energy: Any, state: State) -> tuple[State, Info]:
        keys = jax.random.split(key, state.x.shape[0])
        return jax.vmap(lambda k, s: self.step_one(k, energy, s))(keys, state)


class _PerChain(LiftedKernel):
    kernel: Any

    def init_one(self, energy: Any, x: Array) -> State:
        return self.kernel.init(energy, x)

    def step_one(self, key: PRNGKeyArray, energy: Any, state: Any) -> tuple[State, Info]:
        return self.kernel.step(key, energy, state)


def per_chain(kernel: Any) -> Kernel:
    """A kernel for ONE chain as a kernel over a population.

    ``kernel.init(energy, x)`` returns a `State` with a field ``x`` (one point), ``kernel.step(key, energy, state)``
    the next state and an `Info` of scalars; an ``eqx.Module`` keeps its hyper-parameters as array leaves.

    >>> import equinox as eqx, jax, jax.numpy as jnp, thalweg as tw
    >>> class Point(tw.core.State):
    ...     x: jax.Array
    >>> class Reflect(eqx.Module):  # x ← -x leaves every symmetric density as it is
    ...     def init(self, energy, x):
    ...         return Point(x)
    ...     def step(self, key, energy, state):
    ...         return Point(-state.x), tw.core.Info()
    >>> kernel = tw.samplers.per_chain(Reflect())
    >>> energy = lambda x: jnp.sum(x**2)
    >>> tw.sample(energy, kernel, jnp.ones((2, 1)), key=jax.random.key(0), draws=3).draws[0, :, 0].tolist()
    [-1.0, 1.0, -1.0]
    """
    return _PerChain(kernel)


class GradientState(State):
    """Where a chain stands, with the energy and gradient there, so that neither is computed twice."""

    x: Array
    energy: Array
    gradient: Array


def chosen(chains: Bool[Array, " chains"], new: PyTree, old: PyTree) -> PyTree:
    """``new`` for the chosen chains and ``old`` for the others, in every array of a state."""
    return jax.tree.map(lambda a, b: jnp.where(chains.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old)


def require_energy(name: str, model: Any) -> Energy:
    """``model`` as an energy; a score network is refused with the adjusted kernel's name."""
    try:
        return as_energy(model)
    except ValueError as refusal:
        raise ValueError(f"{name}: {refusal}") from None


def gradient_state(name: str, model: Any, x: Array) -> GradientState:
    """The state at one point, for a kernel that needs an energy with gradients."""
    energy = require_energy(name, model)
    require_gradient(name, energy.space, x)
    value, gradient = jax.value_and_grad(energy)(x)
    return GradientState(x, value, gradient)


def norm(gradient: Array) -> Array:
    """``‖g‖₂`` of one chain."""
    return jnp.sqrt(jnp.sum(gradient**2))
