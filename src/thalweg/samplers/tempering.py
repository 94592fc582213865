"""Parallel tempering over any kernel, and its ladder."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Info, Kernel, State, is_concrete
from thalweg.energies.compose import tempered
from thalweg.samplers.langevin import Position
from thalweg.samplers.lift import GradientState, require_energy
from thalweg.samplers.metropolis import EnergyState
from thalweg.samplers.noise import log_uniform, made_once, split
from thalweg.samplers.run import sample
from thalweg.samplers.starts import Replicated


class Rungs(State):
    """``x`` ``(chains, *event)`` is the coldest rung; ``inner`` holds all rungs, its leading axis the temperatures."""

    x: Array
    inner: Any
    parity: Array


class ParallelTempering(Replicated):
    r"""Copies of every chain at temperatures ``1 = T_1 < … < T_n``: each step moves all with the inner kernel on
    ``E/T_i``, then neighbours swap with probability ``min(1, exp((1/T_i - 1/T_j)(E(x_i) - E(x_j))))``, even pairs and
    odd pairs in turn.

    Exactly invariant when the inner kernel is. ``draws`` are the coldest rung's; ``stats["swap_rate"]`` is the mean
    acceptance of each neighbouring pair's swaps. Works over continuous and discrete kernels. As a training sampler all
    rungs go on from update to update with a `persistent` start or a `ReplayBuffer`.
    References: Geyer (1991), Computing Science and Statistics; Syed et al. (2022), J. R. Stat. Soc. B 84, for the
    even-odd swaps.

    Args:
        kernel: the inner kernel.
        temperatures: ``(n,)``, rising from 1.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> kernel = tw.samplers.ParallelTempering(tw.samplers.MALA(0.3), [1.0, 3.0, 9.0])
    >>> chains = tw.sample(tw.energies.DoubleWell(8.0), kernel, jnp.ones((4, 2)), key=jax.random.key(0), draws=50)
    >>> chains.stats["swap_rate"].shape
    (2,)
    """

    kernel: Kernel
    temperatures: Array

    def __init__(self, kernel: Kernel, temperatures: Any):
        ladder = jnp.asarray(temperatures, float)
        if ladder.ndim != 1 or len(ladder) < 2:
            raise ValueError(
                f"expected at least two temperatures, got shape {ladder.shape}; give for example [1, 2, 4]"
            )
        if is_concrete(ladder) and not (ladder[0] == 1 and np.all(np.diff(ladder) > 0)):
            raise ValueError(f"expected temperatures rising from 1, got {np.asarray(ladder)}; sort them, starting at 1")
        self.kernel, self.temperatures = kernel, ladder

    def init(self, energy: Any, x: Array) -> Rungs:
        require_energy("ParallelTempering", energy)
        inner = jax.vmap(lambda temperature: self.kernel.init(tempered(energy, temperature), x))(self.temperatures)
        return Rungs(x, inner, jnp.zeros((), int))

    @property
    def replicas(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return len(self.temperatures)

    def points(self, state: Rungs) -> Array:
        return jnp.moveaxis(state.inner.x, 0, 1)

    def resume(self, key: PRNGKeyArray, energy: Any, points: Array) -> Rungs:
        rungs = jnp.moveaxis(points, 1, 0)
        at = lambda temperature, x: self.kernel.init(tempered(energy, temperature), x)
        inner = jax.vmap(at)(self.temperatures, rungs)
        # which pairs swap first is drawn: with an odd number of steps a resume, the others would lag behind or never
        # swap at all
        return Rungs(rungs[0], inner, jax.random.randint(key, (), 0, 2, int))

    def step(self, key: PRNGKeyArray, energy: Any, state: Rungs) -> tuple[Rungs, Info]:
        count = len(self.temperatures)
        keys = split(key, count + 1)

        def move(temperature, key, inner):
            return self.kernel.step(key, tempered(energy, temperature), inner)

        moves = lambda: jax.vmap(move)(self.temperatures, keys[1:], state.inner)
        inner, info = made_once(self.temperatures > 0, moves)
        energies = self._energies(energy, inner)  # (rungs, chains)
        beta = 1 / self.temperatures
        log_accept = (beta[:-1] - beta[1:])[:, None] * (energies[:-1] - energies[1:])
        # pairs (0,1), (2,3), … at even steps and (1,2), (3,4), … at odd ones
        tried = (jnp.arange(count - 1) % 2 == state.parity)[:, None]
        swap = tried & (log_uniform(keys[0], log_accept.shape) < log_accept)
        inner = self._exchanged(energy, inner, swap)
        rate = jnp.where(tried, jnp.exp(jnp.minimum(log_accept, 0)), 0.0).mean(axis=1) * 2
        told = Info(
            acceptance=None if info.acceptance is None else info.acceptance[0],
            gradient_norm=None if info.gradient_norm is None else info.gradient_norm[0],
            divergent=None if info.divergent is None else jnp.any(info.divergent, axis=0),
            extra={"swap_rate": rate},
        )
        return Rungs(inner.x[0], inner, 1 - state.parity), told

    def _energies(self, energy: Any, inner: Any) -> Array:
        if isinstance(inner, (EnergyState, GradientState)):  # they carry E/T already
            return inner.energy * self.temperatures[:, None]
        return jax.vmap(jax.vmap(energy))(inner.x)

    def _exchanged(self, energy: Any, inner: Any, swap: Array) -> Any:
        """The rungs after the swaps; what a state carries of the energy is carried along to the new temperature."""
        rungs, none = np.arange(len(swap) + 1), jnp.zeros_like(swap[:1])
        hotter, colder = jnp.concatenate([swap, none]), jnp.concatenate([none, swap])  # where a rung takes from

        above, below = np.minimum(rungs + 1, rungs[-1]), np.maximum(rungs - 1, 0)

        def take(leaf):
            like = lambda taken: taken.reshape(*taken.shape, *[1] * (leaf.ndim - 2))
            return jnp.where(like(hotter), leaf[above], jnp.where(like(colder), leaf[below], leaf))

        spread = jnp.broadcast_to(self.temperatures[:, None], hotter.shape)
        factor = take(spread) / spread
        at = lambda temperature, state, factor: carried(self.kernel, tempered(energy, temperature), state, factor)
        return jax.vmap(at)(self.temperatures, jax.tree.map(take, inner), factor)


def carried(kernel: Kernel, energy: Any, state: Any, factor: Array) -> Any:
    """The state of a kernel whose energy was multiplied by ``factor`` (one number, or one per chain).

    Energies and gradients that a state carries are multiplied too; a state of another kind is made anew on ``energy``.
    """
    if not isinstance(state, (EnergyState, GradientState)):
        return state if isinstance(state, Position) else kernel.init(energy, state.x)
    state = eqx.tree_at(lambda s: s.energy, state, state.energy * factor)
    if isinstance(state, GradientState):
        spread = jnp.broadcast_to(factor, state.energy.shape)
        spread = spread.reshape(*spread.shape, *[1] * (state.gradient.ndim - 1))
        state = eqx.tree_at(lambda s: s.gradient, state, state.gradient * spread)
    return state


def tune_ladder(
    kernel: Kernel,
    energy: Any,
    init: Array,
    *,
    key: PRNGKeyArray,
    hottest: float,
    rungs: int,
    steps: int = 200,
    rounds: int = 5,
) -> ParallelTempering:
    """`ParallelTempering` with temperatures from 1 to ``hottest`` spread so that neighbours swap equally often.

    Each round runs a pilot of ``steps`` steps and moves the rungs so that the rejection rates between them become
    equal (the barrier between two temperatures is nearly the sum of the rejections along the way); with enough rungs
    any target rate is reached: the rate is about ``1 - barrier/(rungs - 1)``. Reference: Syed et al. (2022).

    Args:
        kernel: the inner kernel.
        energy: any energy.
        init: where the pilots start, ``(chains, *event)``.
        hottest: the last temperature.
        rungs: how many temperatures, at least 2.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> well, init = tw.energies.DoubleWell(8.0), jnp.ones((64, 2))
    >>> mala, key = tw.samplers.MALA(0.05), jax.random.key(0)
    >>> tuned = tw.samplers.tune_ladder(mala, well, init, key=key, hottest=20.0, rungs=5)
    >>> rates = tw.sample(well, tuned, init, key=jax.random.key(1), draws=200, burn_in=100).stats["swap_rate"]
    >>> bool(rates.max() - rates.min() < 0.2)
    True
    """
    if rungs < 2 or not hottest > 1:
        raise ValueError(f"expected rungs >= 2 and hottest > 1, got {rungs} and {hottest}; give for example 6 and 20")
    temperatures = np.geomspace(1.0, hottest, rungs)
    for key_round in jax.random.split(key, rounds):
        tempering = ParallelTempering(kernel, temperatures)
        chains = sample(energy, tempering, init, key=key_round, draws=1, burn_in=steps // 2, thin=steps)
        rejected = np.maximum(1 - np.asarray(chains.stats["swap_rate"]), 1e-3)
        barrier = np.concatenate([[0.0], np.cumsum(rejected)])
        even = np.linspace(0, barrier[-1], rungs)
        # in 1/T the rejection rate per unit is smooth, so that is where the rungs are moved
        betas = np.interp(even, barrier, 1 / temperatures)
        temperatures = 1 / np.concatenate([[1.0], betas[1:-1], [1 / hottest]])
    return ParallelTempering(kernel, temperatures)
