"""Parallel tempering with any inner kernel, and tuning of its temperatures."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import (
    ConditionalKernel,
    Info,
    Kernel,
    State,
    check_instance,
    count_chains,
    energies,
    finite,
    flag,
    is_concrete,
    static_number,
    typed_key,
    whole_number,
)
from thalweg.core.random import log_uniform, materialize, split
from thalweg.energies.compose import tempered
from thalweg.samplers.run import energy_first, sample
from thalweg.samplers.single_chain import init_chains, retarget_chains, step_chains
from thalweg.samplers.states import AbstractEnergyState, refuse_score


class AbstractOverKernel(Kernel):
    """A kernel that runs an inner kernel on modified energies."""

    kernel: eqx.AbstractVar[Any]

    def _check_inner(self) -> None:
        name = type(self).__name__
        check_instance(f"a kernel inside {name}", self.kernel, ("init", "step"), "tw.samplers.MALA(0.1)")
        if isinstance(self.kernel, (AbstractOverKernel, ConditionalKernel)):
            raise ValueError(
                f"expected a kernel for one temperature inside {name}, got {type(self.kernel).__name__}, which changes "
                "temperatures or noise levels itself; use its own inner kernel"
            )


class Rungs(State):
    """The state of the inner kernel at every temperature, with arrays ``(chains, rungs, ...)``; ``x`` is the coldest
    rung, or all rungs ``(chains, rungs, *event)``."""

    inner: Any
    parity: Array
    all_rungs: bool = eqx.field(static=True)

    @property
    def x(self) -> PyTree:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The positions of the chains."""
        return self.points if self.all_rungs else self.rung(0).x

    @property
    def points(self) -> PyTree:
        """The positions of all rungs of all chains, ``(chains, rungs, *event)``."""
        chains, rungs = jax.tree.leaves(self.inner)[0].shape[:2]
        flat = jax.tree.map(lambda leaf: leaf.reshape(chains * rungs, *leaf.shape[2:]), self.inner)
        return jax.tree.map(lambda leaf: leaf.reshape(chains, rungs, *leaf.shape[1:]), flat.x)

    def rung(self, number: int) -> Any:
        """The inner state of one temperature."""
        return jax.tree.map(lambda leaf: leaf[:, number], self.inner)


class ParallelTempering(AbstractOverKernel):
    r"""Copies of every chain at temperatures ``1 = T_1 < … < T_n``: each step moves all of them by the inner kernel on
    ``E/T_i``, then neighbours swap with probability ``min(1, exp((1/T_i - 1/T_j)(E(x_i) - E(x_j))))``; even and odd
    pairs alternate.

    Exactly invariant if the inner kernel is. ``draws`` are those of the coldest rung; ``stats["swap_rate"]``,
    ``(chains, n - 1)``, is the mean swap acceptance of each neighbouring pair. Works with continuous and discrete
    kernels; momenta are swapped with their points. In training, all rungs continue from update to update.
    References: Geyer (1991), Computing Science and Statistics; Syed et al. (2022), J. R. Stat. Soc. B 84, for the
    even-odd swaps.

    Args:
        kernel: the inner kernel.
        temperatures: ``(n,)``, increasing from 1.
        all_rungs: keep the draws of all rungs, ``(chains, draws, n, *event)``, instead of the coldest only.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> kernel = tw.samplers.ParallelTempering(tw.samplers.MALA(0.3), [1.0, 3.0, 9.0])
    >>> chains = tw.sample(tw.energies.DoubleWell(8.0), kernel, jnp.ones((4, 2)), key=jax.random.key(0), draws=50)
    >>> chains.stats["swap_rate"].shape
    (4, 2)
    """

    kernel: Any
    temperatures: Array
    all_rungs: bool = eqx.field(static=True)

    takes_per_chain_energies = True

    def __init__(self, kernel: Any, temperatures: Any, all_rungs: bool = False):
        ladder = finite("temperatures", temperatures)
        if ladder.ndim != 1 or len(ladder) < 2:
            raise ValueError(
                f"expected at least two temperatures, got shape {ladder.shape}; give for example [1, 2, 4]"
            )
        if is_concrete(ladder) and not (ladder[0] == 1 and np.all(np.diff(ladder) > 0)):
            raise ValueError(f"expected temperatures rising from 1, got {np.asarray(ladder)}; sort them, starting at 1")
        self.kernel, self.temperatures, self.all_rungs = kernel, ladder, flag("all_rungs", all_rungs)
        self._check_inner()

    def init(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> Rungs:
        rungs = len(self.temperatures)
        return self.init_rungs(key, energy, jax.tree.map(lambda leaf: jnp.stack([leaf] * rungs, axis=1), x))

    def init_rungs(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> Rungs:
        """The initial state of chains whose rungs start at different points ``x``, ``(chains, rungs, *event)``."""
        refuse_score("ParallelTempering", energy)

        def begin(temperature, key, x):
            return init_chains(self.kernel, key, tempered(energy, temperature), x)

        keys = split(key, len(self.temperatures))
        inner = jax.vmap(begin, in_axes=(0, 0, 1), out_axes=1)(self.temperatures, keys, x)
        return Rungs(inner, jnp.zeros(count_chains(x), int), self.all_rungs)  # pyright: ignore[reportCallIssue]

    def retarget(self, energy: Any, state: Rungs) -> Rungs:
        return Rungs(self._retarget(energy, state.inner), state.parity, self.all_rungs)  # pyright: ignore[reportCallIssue]

    def _retarget(self, energy: Any, inner: Any) -> Any:
        at = lambda temperature, own: retarget_chains(self.kernel, tempered(energy, temperature), own)
        return jax.vmap(at, in_axes=(0, 1), out_axes=1)(self.temperatures, inner)

    def step(self, key: PRNGKeyArray, energy: Any, state: Rungs) -> tuple[Rungs, Info]:
        count = len(self.temperatures)
        keys = split(key, count + 1)

        def move(temperature, key, inner):
            return step_chains(self.kernel, key, tempered(energy, temperature), inner)

        moves = lambda: jax.vmap(move, in_axes=(0, 0, 1), out_axes=1)(self.temperatures, keys[1:], state.inner)
        inner, info = materialize(self.temperatures > 0, moves)
        reached = self._energies(energy, inner)  # (chains, rungs)
        beta = 1 / self.temperatures
        log_accept = (beta[:-1] - beta[1:]) * (reached[:, :-1] - reached[:, 1:])
        # pairs (0,1), (2,3), … at even steps and (1,2), (3,4), … at odd ones
        tried = jnp.arange(count - 1) % 2 == state.parity[:, None]
        swap = tried & (log_uniform(keys[0], log_accept.shape) < log_accept)
        inner = self._exchange(energy, inner, swap)
        rate = jnp.where(tried, jnp.exp(jnp.minimum(log_accept, 0)), 0.0) * 2
        metrics = Info(
            acceptance=None if info.acceptance is None else info.acceptance[:, 0],
            gradient_norm=None if info.gradient_norm is None else info.gradient_norm[:, 0],
            divergent=None if info.divergent is None else jnp.any(info.divergent, axis=1),
            extra={"swap_rate": rate},
        )
        return Rungs(inner, 1 - state.parity, self.all_rungs), metrics  # pyright: ignore[reportCallIssue]

    def _energies(self, energy: Any, inner: Any) -> Array:
        if isinstance(inner, AbstractEnergyState) and inner.coordinates is None:  # E/T is cached in the state
            return inner.energy * self.temperatures
        at = lambda own: energies(energy, own.x)
        return jax.vmap(at, in_axes=1, out_axes=1)(inner)

    def _exchange(self, energy: Any, inner: Any, swap: Array) -> Any:
        """The rungs after the swaps, with cached energies converted to the new temperatures."""
        rungs, none = np.arange(swap.shape[1] + 1), jnp.zeros_like(swap[:, :1])
        # whether a rung takes the state of the next hotter or the next colder one
        hotter, colder = jnp.concatenate([swap, none], 1), jnp.concatenate([none, swap], 1)
        above, below = np.minimum(rungs + 1, rungs[-1]), np.maximum(rungs - 1, 0)

        def take(leaf):
            like = lambda taken: taken.reshape(*taken.shape, *[1] * (leaf.ndim - 2))
            return jnp.where(like(hotter), leaf[:, above], jnp.where(like(colder), leaf[:, below], leaf))

        taken = jax.tree.map(take, inner)
        if not isinstance(inner, AbstractEnergyState) or inner.coordinates is not None:
            return self._retarget(energy, taken)
        here = jnp.broadcast_to(self.temperatures, hotter.shape)
        return jax.vmap(lambda own, factor: own.scaled(factor), in_axes=1, out_axes=1)(taken, take(here) / here)


def tune_ladder(
    energy: Any,
    kernel: Any,
    init: Any,
    *,
    key: PRNGKeyArray,
    hottest: float,
    rungs: int,
    steps: int = 200,
    rounds: int = 5,
) -> ParallelTempering:
    """`ParallelTempering` with temperatures from 1 to ``hottest``, chosen so that all neighbours swap equally often.

    Each round runs a pilot run and moves the rungs so that the rejection rates between neighbours become equal (the
    barrier between two temperatures is approximately the sum of the rejection rates between them). The swap rate is
    about ``1 - barrier/(rungs - 1)``, so more rungs raise it. Reference: Syed et al. (2022), J. R. Stat. Soc. B 84.

    Args:
        energy: any energy.
        kernel: the inner kernel.
        init: where the pilot runs start, ``(chains, *event)``.
        key: the random key.
        hottest: the highest temperature.
        rungs: the number of temperatures, at least 2.
        steps: the number of kernel steps of a pilot run.
        rounds: the number of pilot runs.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> well, init = tw.energies.DoubleWell(8.0), jnp.ones((64, 2))
    >>> mala, key = tw.samplers.MALA(0.05), jax.random.key(0)
    >>> tuned = tw.samplers.tune_ladder(well, mala, init, key=key, hottest=20.0, rungs=5)
    >>> chains = tw.sample(well, tuned, init, key=jax.random.key(1), draws=200, burn_in=100)
    >>> rates = chains.stats["swap_rate"].mean(axis=0)
    >>> bool(rates.max() - rates.min() < 0.2)
    True
    """
    energy, kernel = energy_first(energy, kernel)
    rungs, steps = whole_number("rungs", rungs, 2), whole_number("steps", steps, 2)
    rounds = whole_number("rounds", rounds)
    if not static_number("hottest", hottest, finite) > 1:
        raise ValueError(f"expected hottest > 1, got {hottest}; give for example 20")
    temperatures = np.geomspace(1.0, hottest, rungs)
    for key_round in jax.random.split(typed_key(key), rounds):
        tempering = ParallelTempering(kernel, temperatures)
        chains = sample(energy, tempering, init, key=key_round, draws=1, burn_in=steps // 2, thin=steps)
        rejected = np.maximum(1 - np.mean(chains.stats["swap_rate"], axis=0), 1e-3)
        barrier = np.concatenate([[0.0], np.cumsum(rejected)])
        even = np.linspace(0, barrier[-1], rungs)
        # interpolated in 1/T, in which the rejection rate per unit is smooth
        betas = np.interp(even, barrier, 1 / temperatures)
        temperatures = 1 / np.concatenate([[1.0], betas[1:-1], [1 / hottest]])
    return ParallelTempering(kernel, temperatures)
