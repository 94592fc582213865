"""A kernel for points made of several parts, each moved by its own kernel."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from thalweg.core import Energy, Info, Kernel, PerChain, Space, State, check_instance, require_model, space_of
from thalweg.core.random import split
from thalweg.samplers.single_chain import init_chains, retarget_chains, step_chains
from thalweg.samplers.states import refuse_score
from thalweg.spaces import Product


class Parts(State):
    """The state of every part's kernel, in a tuple or dictionary like the point."""

    inner: dict[Any, Any] | tuple[Any, ...]

    @property
    def x(self) -> PyTree:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The positions of the chains: a tuple or a dictionary of the parts."""
        if isinstance(self.inner, dict):
            return {name: state.x for name, state in self.inner.items()}
        return tuple(state.x for state in self.inner)


class _Part(Energy):
    """The energy as a function of one part of a point, with the other parts fixed."""

    energy: Any
    others: PyTree
    name: Any = eqx.field(static=True)
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: PyTree) -> Any:
        if isinstance(self.others, dict):
            return self.energy({**self.others, self.name: x})
        return self.energy((*self.others[: self.name], x, *self.others[self.name + 1 :]))


class PerPart(Kernel):
    r"""A kernel for points made of parts, ``x = (x_1, …, x_n)``: one step moves every part in turn by its own kernel on
    ``p(x_i | others)``.

    Exactly invariant if every part's kernel is. Continuous parts may have a gradient kernel and discrete parts a
    discrete one. Kernels are given by position for tuples (``Product(Real(2), Binary(3))``) and by name for
    dictionaries (``Product(mu=Real(), on=Binary(3))``). ``acceptance`` is the mean over the parts that have one;
    ``acceptance[part]`` in ``stats`` is that of one part. Reference: Tierney (1994), Ann. Stat. 22.

    Args:
        kernels: one kernel for each part, in the order of a tuple; or
        named: one kernel for each part, by its name in a dictionary.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> space = tw.Product(tw.Real(2), tw.Binary(3))
    >>> energy = tw.as_energy(lambda x: 0.5 * jnp.sum((x[0] - jnp.sum(x[1])) ** 2), space)
    >>> kernel = tw.samplers.PerPart(tw.samplers.HMC(0.5, steps=3), tw.samplers.GibbsWithGradients())
    >>> init = (jnp.zeros((4, 2)), jnp.zeros((4, 3), int))
    >>> real, bits = tw.sample(energy, kernel, init, key=jax.random.key(0), draws=10).draws
    >>> real.shape, bits.shape
    ((4, 10, 2), (4, 10, 3))
    """

    kernels: dict[str, Any] | tuple[Any, ...]

    takes_per_chain_energies = True

    def __init__(self, *kernels: Any, **named: Any):
        if bool(kernels) == bool(named):
            raise ValueError(
                "expected one kernel for each part, by place or by name, got both or none; "
                "write PerPart(HMC(0.1), Gibbs()) or PerPart(mu=HMC(0.1), on=Gibbs())"
            )
        for kernel in (*kernels, *named.values()):
            check_instance("a kernel", kernel, ("init", "step"), "tw.samplers.HMC(0.1)")
        # sorted, as JAX sorts the keys of a dictionary
        self.kernels = {name: named[name] for name in sorted(named)} or kernels

    def init(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> Parts:
        require_model("PerPart", energy)
        refuse_score("PerPart", energy)
        self._check(energy, x)
        names = self._names()
        states = {}
        for name, part_key in zip(names, split(key, len(names)), strict=True):
            states[name] = init_chains(self.kernels[name], part_key, self._given_others(energy, x, name), x[name])
        return self._state(states)

    def retarget(self, energy: Any, state: Parts) -> Parts:
        x = state.x
        turn = lambda name: retarget_chains(self.kernels[name], self._given_others(energy, x, name), state.inner[name])
        return self._state({name: turn(name) for name in self._names()})

    def step(self, key: PRNGKeyArray, energy: Any, state: Parts) -> tuple[Parts, Info]:
        names = self._names()
        states, infos, x = {name: state.inner[name] for name in names}, {}, state.x
        for name, part_key in zip(names, split(key, len(names)), strict=True):
            bound = self._given_others(energy, x, name)
            # the other parts have moved since the last step of this part
            here = retarget_chains(self.kernels[name], bound, states[name])
            states[name], infos[name] = step_chains(self.kernels[name], part_key, bound, here)
            x = self._replace(x, name, states[name].x)
        return self._state(states), _merge(infos)

    def _names(self) -> list[Any]:
        return list(self.kernels) if isinstance(self.kernels, dict) else list(range(len(self.kernels)))

    def _state(self, states: dict[Any, Any]) -> Parts:
        return Parts(states if isinstance(self.kernels, dict) else tuple(states[name] for name in self._names()))  # pyright: ignore[reportCallIssue]

    def _replace(self, x: PyTree, name: Any, value: PyTree) -> PyTree:
        if isinstance(x, dict):
            return {**x, name: value}
        return (*x[:name], value, *x[name + 1 :])

    def _check(self, energy: Any, x: PyTree) -> None:
        by_name = isinstance(self.kernels, dict)
        fits = isinstance(x, dict) and set(x) == set(self.kernels) if by_name else isinstance(x, tuple)
        if not fits or len(x) != len(self.kernels):
            got = sorted(x) if isinstance(x, dict) else len(x) if isinstance(x, tuple) else type(x).__name__
            raise ValueError(
                f"expected points with the parts {self._names()} of PerPart, got {got}; give one kernel for each part"
            )
        space = space_of(energy)
        if space is not None and not isinstance(space, Product):
            raise ValueError(f"expected a Product of spaces for PerPart, got {space}; use a kernel for {space} itself")

    def _given_others(self, energy: Any, x: PyTree, name: Any) -> PerChain:
        """The energy of part ``name``, with the other parts fixed at the positions of each chain."""
        space = space_of(energy)
        own = None
        if isinstance(space, Product):
            own = space.parts[name if space.names is None else space.names.index(name)]
        if isinstance(energy, PerChain):
            return PerChain(_BindBoth(energy.bind, name, own), energy.model, (energy.parameters, x), own)
        return PerChain(_Bind(name, own), energy, x, own)


class _BindBoth(eqx.Module):
    """`_Bind` for an energy that itself differs from chain to chain."""

    bind: Any
    name: Any = eqx.field(static=True)
    space: Space | None = eqx.field(static=True)

    def __call__(self, energy: Any, both: PyTree) -> _Part:
        parameter, others = both
        return _Part(self.bind(energy, parameter), others, self.name, self.space)


class _Bind(eqx.Module):
    name: Any = eqx.field(static=True)
    space: Space | None = eqx.field(static=True)

    def __call__(self, energy: Any, others: PyTree) -> _Part:
        return _Part(energy, others, self.name, self.space)


def _merge(infos: dict[Any, Info]) -> Info:
    """One `Info` for all parts: the mean acceptance, the joint gradient norm, and whether any part diverged."""
    known = lambda field: {name: value for name, info in infos.items() if (value := getattr(info, field)) is not None}
    acceptance, norms, divergent = known("acceptance"), known("gradient_norm"), known("divergent")
    extra = {f"acceptance[{name}]": value for name, value in acceptance.items()}
    for name, info in infos.items():
        extra |= {f"{what}[{name}]": value for what, value in info.extra.items()}
    return Info(
        acceptance=sum(acceptance.values()) / len(acceptance) if acceptance else None,  # pyright: ignore[reportArgumentType]
        gradient_norm=jnp.sqrt(sum(value**2 for value in norms.values())) if norms else None,
        divergent=jnp.any(jnp.stack(list(divergent.values())), axis=0) if divergent else None,
        extra=extra,
    )
