"""Kernels written for one chain, and kernels on energies that differ between chains."""

from typing import Any

import jax
from jaxtyping import PRNGKeyArray, PyTree

from thalweg.core import Info, Kernel, PerChain, State, check_instance, count_chains
from thalweg.core.random import split


class _PerChain(Kernel):
    kernel: Any

    takes_per_chain_energies = True

    def init(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> State:
        one = lambda key, energy, point: self.kernel.init(key, energy, point)
        return _each(one, energy, jax.random.split(key, count_chains(x)), x)

    def step(self, key: PRNGKeyArray, energy: Any, state: Any) -> tuple[State, Info]:
        one = lambda key, energy, state: self.kernel.step(key, energy, state)
        return _each(one, energy, jax.random.split(key, count_chains(state.x)), state)

    def retarget(self, energy: Any, state: Any) -> State:
        if not callable(getattr(self.kernel, "retarget", None)):
            return super().retarget(energy, state)
        return _each(lambda _, energy, state: self.kernel.retarget(energy, state), energy, None, state)


def _each(function: Any, energy: Any, keys: Any, tree: PyTree) -> PyTree:
    if isinstance(energy, PerChain):
        return jax.vmap(lambda key, p, own: function(key, energy.at(p), own))(keys, energy.parameters, tree)
    return jax.vmap(lambda key, own: function(key, energy, own))(keys, tree)


def per_chain(kernel: Any) -> Kernel:
    """A kernel for ONE chain as a kernel over a population.

    ``kernel.init(key, energy, x)`` returns a `State` with a field ``x`` (one point),
    ``kernel.step(key, energy, state)`` the next state and an `Info` of scalars, ``kernel.retarget(energy, state)`` the
    state on a changed energy (not needed if the state is only ``x``). If the kernel is an ``eqx.Module``, its
    hyper-parameters stay array leaves.

    >>> import equinox as eqx, jax, jax.numpy as jnp, thalweg as tw
    >>> class Point(tw.core.State):
    ...     x: jax.Array
    >>> class Reflect(eqx.Module):  # x ← -x leaves every symmetric density as it is
    ...     def init(self, key, energy, x):
    ...         return Point(x)
    ...     def step(self, key, energy, state):
    ...         return Point(-state.x), tw.core.Info()
    >>> kernel = tw.samplers.per_chain(Reflect())
    >>> energy = lambda x: jnp.sum(x**2)
    >>> tw.sample(energy, kernel, jnp.ones((2, 1)), key=jax.random.key(0), draws=3).draws[0, :, 0].tolist()
    [-1.0, 1.0, -1.0]
    """
    check_instance("a kernel", kernel, ("init", "step"), "an object with init and step of one chain")
    return _PerChain(kernel)


def init_chains(kernel: Kernel, key: PRNGKeyArray, energy: Any, x: PyTree) -> Any:
    """``kernel.init``, also for an energy per chain: a kernel that does not support this is vmapped over the chains."""
    if not isinstance(energy, PerChain) or _takes_per_chain(kernel):
        return kernel.init(key, energy, x)
    one = lambda key, p, point: _drop_chain_axis(kernel.init(key, energy.at(p), _add_chain_axis(point)))
    return jax.vmap(one)(split(key, count_chains(x)), energy.parameters, x)


def step_chains(kernel: Kernel, key: PRNGKeyArray, energy: Any, state: Any) -> tuple[Any, Info]:
    """``kernel.step``, also for an energy per chain, as in `init_chains`."""
    if not isinstance(energy, PerChain) or _takes_per_chain(kernel):
        return kernel.step(key, energy, state)
    one = lambda key, p, own: _drop_chain_axis(kernel.step(key, energy.at(p), _add_chain_axis(own)))
    return jax.vmap(one)(split(key, count_chains(state.x)), energy.parameters, state)


def retarget_chains(kernel: Kernel, energy: Any, state: Any) -> Any:
    """``kernel.retarget``, also for an energy per chain, as in `init_chains`."""
    if not callable(getattr(kernel, "retarget", None)):
        raise ValueError(
            f"expected {type(kernel).__name__} to define how its state continues when the energy changes, "
            "got no retarget; define retarget(energy, state), which keeps positions and momenta and recomputes the rest"
        )
    if not isinstance(energy, PerChain) or _takes_per_chain(kernel):
        return kernel.retarget(energy, state)
    one = lambda p, own: _drop_chain_axis(kernel.retarget(energy.at(p), _add_chain_axis(own)))
    return jax.vmap(one)(energy.parameters, state)


def _takes_per_chain(kernel: Any) -> bool:
    return isinstance(kernel, Kernel) and kernel.takes_per_chain_energies


def _add_chain_axis(tree: PyTree) -> PyTree:
    """The arrays of one chain as those of a population of one."""
    return jax.tree.map(lambda leaf: leaf[None], tree)


def _drop_chain_axis(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[0], tree)
