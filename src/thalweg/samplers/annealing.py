"""Kernels whose target changes from step to step: annealed Langevin over noise levels, simulated annealing."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import (
    ConditionalKernel,
    Info,
    PerChain,
    State,
    count_chains,
    flag,
    given,
    is_concrete,
    norm,
    over_chains,
    positive,
    score,
    whole_number,
)
from thalweg.core.random import normal
from thalweg.energies.compose import tempered
from thalweg.noise.schedules import annealed_step
from thalweg.samplers.single_chain import init_chains, retarget_chains, step_chains
from thalweg.samplers.states import AbstractEnergyState, refuse_score
from thalweg.samplers.tempering import AbstractOverKernel
from thalweg.spaces import coordinates_of


class CountedState(State):
    """The positions of the chains, and the number of steps each has taken, ``(chains,)``."""

    x: Array
    count: Array


class AnnealedLangevin(ConditionalKernel):
    r"""Langevin dynamics over a ladder of noise levels ``σ_1 > … > σ_L``: at level i, ``steps`` times
    ``x ← x + (α_i/2) s(x, σ_i) + √α_i z`` with ``α_i = ε·σ_i²/σ_L²`` and ``z ~ N(0, I)``.

    The model is a noise-conditional score network ``s(x, σ)`` or energy ``E(x, σ)``. One kernel step is one Langevin
    step, so a full pass over the levels is ``steps·L`` kernel steps (`length`); further steps stay at σ_L. With
    ``denoise`` the last step of the pass ends with ``x ← x + σ_L² s(x, σ_L)``. Reference: Song and Ermon (2019),
    NeurIPS, algorithm 1.

    Args:
        sigmas: the noise levels ``(L,)``, in decreasing order.
        steps: T, the number of Langevin steps per level.
        epsilon: ε, the step size at the last level; by default chosen from the ladder and ``steps`` by
            `tw.noise.annealed_step`, so that the samples have the right spread.
        denoise: whether the pass ends with a denoising step.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> noisy = tw.as_score(lambda x, sigma: -x / (1 + sigma**2))  # N(0, 1) with noise of deviation sigma
    >>> kernel = tw.samplers.AnnealedLangevin(jnp.array([4.0, 2.0, 1.0, 0.5]), steps=50)
    >>> init = 4 * jax.random.normal(jax.random.key(1), (2000, 1))
    >>> chains = tw.sample(noisy, kernel, init, key=jax.random.key(0), draws=1, burn_in=kernel.length - 1)
    >>> bool(abs(chains.draws.std() - 1.12) < 0.1)
    True
    """

    sigmas: Array
    steps: int = eqx.field(static=True)
    epsilon: Array
    denoise: bool = eqx.field(static=True)

    def __init__(self, sigmas: Any, steps: int = 100, epsilon: float | Array | None = None, denoise: bool = False):
        ladder = positive("every sigma", sigmas)
        if ladder.ndim != 1 or (is_concrete(ladder) and np.any(np.diff(ladder) >= 0)):
            raise ValueError(f"expected falling noise levels (L,), got {np.asarray(ladder)}; sort them, largest first")
        steps = whole_number("steps per level", steps, hint="100 is usual")
        if epsilon is None:
            if not is_concrete(ladder):
                raise ValueError(
                    "expected epsilon where the noise levels are traced, got none; make the kernel outside of jit"
                )
            epsilon = annealed_step(ladder, steps)
        self.sigmas, self.steps, self.denoise = ladder, steps, flag("denoise", denoise)
        self.epsilon = positive("epsilon", epsilon, scalar=True)

    @property
    def length(self) -> int:
        """The number of kernel steps of a full pass over the levels."""
        return self.steps * len(self.sigmas)

    def at_start(self, model: Any) -> Any:
        return given(model, self.sigmas[0])

    def init(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> CountedState:
        if coordinates_of("AnnealedLangevin", self.at_start(energy), x) is not None:
            raise ValueError(
                "expected points that are arrays on R^d for AnnealedLangevin, got a space with a support or a tree; "
                "noise levels are of R^d: map the data there first"
            )
        return CountedState(x, jnp.zeros(count_chains(x), int))

    def retarget(self, energy: Any, state: CountedState) -> CountedState:
        return state

    def step(self, key: PRNGKeyArray, energy: Any, state: CountedState) -> tuple[CountedState, Info]:
        sigma = self.sigmas[jnp.minimum(state.count // self.steps, len(self.sigmas) - 1)]
        spread = sigma.reshape(-1, *[1] * (state.x.ndim - 1))
        size = self.epsilon * (spread / self.sigmas[-1]) ** 2
        uphill = lambda x: over_chains(score, PerChain(given, energy, sigma), x)
        direction = uphill(state.x)
        x = state.x + 0.5 * size * direction + jnp.sqrt(size) * normal(key, state.x.shape, state.x.dtype)
        if self.denoise:
            last = (state.count == self.length - 1).reshape(spread.shape)
            denoised = lambda x: jnp.where(last, x + spread**2 * uphill(x), x)
            x = jax.lax.cond(jnp.any(last), denoised, lambda x: x, x)
        return CountedState(x, state.count + 1), Info(gradient_norm=jax.vmap(norm)(direction))


class AnnealedState(State):
    """The state of the inner kernel, and the number of steps each chain has taken, ``(chains,)``."""

    inner: Any
    count: Array

    @property
    def x(self) -> PyTree:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The positions of the chains."""
        return self.inner.x


class SimulatedAnnealing(AbstractOverKernel):
    r"""Any kernel on ``E/T`` while T falls geometrically from ``hot`` to ``cold`` in ``steps`` steps; then T stays.

    An optimiser in the form of a kernel: with a slow enough schedule the chains end at global minima of E, the modes of
    the model. All chains have the same temperature, that of the chain with the most steps.
    Reference: Kirkpatrick, Gelatt and Vecchi (1983), Science 220.

    Args:
        kernel: the inner kernel, continuous or discrete.
        hot: the first temperature.
        cold: the last temperature, below ``hot``.
        steps: the number of kernel steps of the schedule.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> frustrated = tw.energies.Ising(tw.energies.Graph([(0, 1), (1, 2), (0, 2)], -1.0), bias=[0.5, 0.0, 0.0])
    >>> kernel = tw.samplers.SimulatedAnnealing(tw.samplers.Gibbs(), hot=5.0, cold=0.05, steps=200)
    >>> chains = tw.sample(frustrated, kernel, jnp.ones((8, 3), int), key=jax.random.key(0), draws=1, burn_in=199)
    >>> sorted(set(chains.energies(frustrated)[:, 0].tolist()))  # one spin against the other two, the first one up
    [-1.5]
    """

    kernel: Any
    hot: Array = eqx.field(converter=lambda value: positive("hot", value, scalar=True), default=10.0)
    cold: Array = eqx.field(converter=lambda value: positive("cold", value, scalar=True), default=0.01)
    steps: int = eqx.field(static=True, converter=lambda value: whole_number("steps", value), default=1000)

    takes_per_chain_energies = True

    def __check_init__(self):
        self._check_inner()
        if is_concrete(self.hot) and is_concrete(self.cold) and not self.cold < self.hot:
            raise ValueError(f"expected cold < hot, got {float(self.cold):g} and {float(self.hot):g}; swap them")

    def temperature(self, count: Array) -> Array:
        """T after ``count`` steps: ``hot·(cold/hot)^(count/(steps-1))``."""
        done = jnp.minimum(count / max(self.steps - 1, 1), 1.0)
        return self.hot * (self.cold / self.hot) ** done

    def init(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> AnnealedState:
        refuse_score("SimulatedAnnealing", energy)
        return AnnealedState(
            init_chains(self.kernel, key, tempered(energy, self.hot), x), jnp.zeros(count_chains(x), int)
        )  # pyright: ignore[reportCallIssue]

    def retarget(self, energy: Any, state: AnnealedState) -> AnnealedState:
        now = self.temperature(jnp.max(state.count))
        return AnnealedState(retarget_chains(self.kernel, tempered(energy, now), state.inner), state.count)  # pyright: ignore[reportCallIssue]

    def step(self, key: PRNGKeyArray, energy: Any, state: AnnealedState) -> tuple[AnnealedState, Info]:
        count = jnp.max(state.count)
        now, then = self.temperature(count), self.temperature(count + 1)
        inner, info = step_chains(self.kernel, key, tempered(energy, now), state.inner)
        if isinstance(inner, AbstractEnergyState) and inner.coordinates is None:
            inner = inner.scaled(jnp.broadcast_to(now / then, inner.energy.shape))
        else:
            inner = retarget_chains(self.kernel, tempered(energy, then), inner)
        return AnnealedState(inner, state.count + 1), info  # pyright: ignore[reportCallIssue]
