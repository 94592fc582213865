"""Warm-up: tunes the step size and mass matrix of a kernel with a population of chains."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import (
    HasMassMatrix,
    Tunable,
    check_scalar,
    compiled,
    count_chains,
    energies,
    flag,
    require_energy,
    select,
    space_of,
    typed_key,
    whole_number,
)
from thalweg.core.random import split
from thalweg.samplers.run import check_kernel, energy_first
from thalweg.samplers.states import AbstractEnergyState, AbstractRealState, GradientState
from thalweg.samplers.windows import (
    Search,
    Window,
    add_step,
    choose_donors,
    empty_window,
    find_healthy,
    find_settled,
    fit_covariance,
    make_schedule,
    search_from,
    search_on,
)
from thalweg.spaces import as_points, coordinates_of, to_real

# the initial step size is doubled or halved at most this many times
_DOUBLINGS = 60


class _KernelAndPoints(NamedTuple):
    kernel: Any
    x: PyTree


class WarmedUp(_KernelAndPoints):
    """The result of `warm_up`: a tuned kernel and the positions of the chains, ``kernel, x = warm_up(...)``.

    ``state`` is the state of the chains, from which ``tw.sample(energy, kernel, state, …)`` continues; ``moved``
    ``(chains,)`` counts how often each chain was stuck and moved to a healthy one; ``report`` is a summary in words.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy, mala = tw.energies.Gaussian(jnp.zeros(2)), tw.samplers.MALA(0.01)
    >>> warmed = tw.samplers.warm_up(energy, mala, jnp.zeros((4, 2)), key=jax.random.key(0))
    >>> bool(warmed.kernel.step_size > 0.1), warmed.x.shape, warmed.moved.shape
    (True, (4, 2), (4,))
    """

    state: Any
    moved: np.ndarray
    report: str

    def __new__(cls, kernel: Any, state: Any, moved: np.ndarray, report: str):
        self = super().__new__(cls, kernel, state.x)
        self.state, self.moved, self.report = state, moved, report
        return self

    def __str__(self) -> str:
        return self.report


def warm_up(
    energy: Any,
    kernel: Any,
    init: Any,
    *,
    key: PRNGKeyArray,
    steps: int = 400,
    target_acceptance: float | None = None,
    dense: bool = False,
) -> WarmedUp:
    r"""Tune the step size of a kernel and, if it has one, its mass matrix, using all chains together.

    First every chain adapts a step size of its own by dual averaging of its acceptance, and short windows give the
    scale of each coordinate, ``√(var z / var ∇E)``. Then all chains share one step size, and the covariance of all
    chains over growing windows gives the mass matrix. In the last part the mass matrix is fixed and only the step size
    adapts. Chains that never moved, or whose energy is far above that of the others, count as stuck: they are ignored,
    and in the first half of the warm-up they are moved to the position of a healthy chain (see `WarmedUp`). The states
    visited during warm-up are not samples: continue from ``state`` with the tuned kernel.
    References: Hoffman and Gelman (2014), JMLR 15, §3.2; Carpenter et al. (2017), J. Stat. Softw. 76, for the windows.

    Args:
        energy: any energy; on constrained spaces the kernel is tuned in real coordinates.
        kernel: any kernel that is `core.Tunable` (RandomWalk, MALA, HMC, NUTS); the search starts at its step size.
        init: where the chains start, ``(chains, *event)`` or a tree of such arrays.
        key: the random key.
        steps: the number of warm-up steps of every chain.
        target_acceptance: the acceptance rate to reach; by default the kernel's own target.
        dense: estimate a dense mass matrix instead of a diagonal one.

    Returns:
        `WarmedUp`, which unpacks as ``kernel, x``.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Gaussian(jnp.zeros(2), jnp.array([100.0, 0.01]))
    >>> nuts, init = tw.samplers.NUTS(0.1), jnp.zeros((4, 2))
    >>> kernel, x = tw.samplers.warm_up(energy, nuts, init, key=jax.random.key(0))
    >>> bool(kernel.mass_matrix[1] / kernel.mass_matrix[0] > 1000)
    True
    """
    energy, kernel = energy_first(energy, kernel)
    check_kernel(kernel)
    if not isinstance(kernel, Tunable):
        raise ValueError(
            f"expected a kernel that says what of it can be tuned (RandomWalk, MALA, HMC, NUTS, or a subclass of "
            f"tw.core.Tunable), got {type(kernel).__name__}; set its step size by hand"
        )
    require_energy(type(kernel).__name__, energy)
    steps = whole_number("steps of warm-up", steps, 20, "400 is usual")
    target = kernel.target_acceptance if target_acceptance is None else target_acceptance
    if not isinstance(target, (int, float)) or not 0 < target < 1:
        raise ValueError(f"expected target_acceptance in (0, 1), got {target!r}; leave it out for the usual one")
    if flag("dense", dense) and not isinstance(kernel, HasMassMatrix):
        raise ValueError(
            f"expected a kernel with a mass matrix for dense=True, got {type(kernel).__name__}; leave dense out"
        )
    x = as_points(space_of(energy), init)
    found = _warm_up(typed_key(key), kernel, energy, x, jnp.asarray(target), steps, bool(dense))
    tuned, state, moved, healthy = found
    moved, healthy = np.asarray(moved), np.asarray(healthy)
    if not np.isfinite(np.asarray(tuned.get_step_size())).all():
        raise ValueError(
            f"expected a step size at which {type(kernel).__name__} accepts, got none; start where the energy is finite"
        )
    return WarmedUp(tuned, state, moved, _report(moved, healthy, tuned))


def _report(moved: np.ndarray, healthy: np.ndarray, kernel: Any) -> str:
    size = np.asarray(kernel.get_step_size())
    text = f"step size {size:.3g}" if size.ndim == 0 else f"step sizes {size.min():.3g} to {size.max():.3g}"
    listed = lambda chosen: ", ".join(map(str, np.flatnonzero(chosen)))
    if moved.any():
        text += f"; chains {listed(moved)} were stuck and moved to where a healthy chain was"
    if not healthy.all():
        text += f"; chains {listed(~healthy)} ended stuck and were left out of the fit: give them another start"
    return text if moved.any() or not healthy.all() else f"{text}; no chain was stuck"


class _Carry(NamedTuple):
    state: Any
    own: Search  # (chains,)
    shared: Search  # ()
    covariance: Array
    window: Window
    healthy: Array
    moved: Array
    before: Array  # the mean energy of the last window


@compiled
def _warm_up(key, kernel, energy, x, target, steps, dense):
    check_scalar(energy, x)
    key_init, key_first, key_steps = jax.random.split(key, 3)
    state = kernel.init(key_init, energy, x)
    tuner = _Tuner(kernel, energy, x, dense)
    z, chains = tuner.real(state), count_chains(x)
    first = tuner.first_step_size(key_first, state, target)
    carry = _Carry(
        state,
        search_from(first, 10.0),
        search_from(jnp.zeros((), z.dtype), 1.0),
        jnp.eye(z.shape[1], dtype=z.dtype) if dense else jnp.ones(z.shape[1], z.dtype),
        empty_window(z, dense),
        jnp.ones(chains, bool),
        jnp.zeros(chains, int),
        jnp.full(chains, jnp.inf, z.dtype),
    )

    def end_window(now: _Carry, key, plan) -> _Carry:
        healthy = find_healthy(now.window)
        # chains that still descend have not reached the target, so they tell nothing about its scales
        settled = healthy & find_settled(now.window, now.before)
        count = jnp.where(plan.early, settled, healthy)
        covariance = fit_covariance(now.window, jnp.where(jnp.any(count), count, healthy), now.covariance, plan.early)
        covariance = jnp.where(jnp.any(count), covariance, now.covariance)
        donors, relocate = choose_donors(key, healthy), ~healthy & plan.moves
        state = select(relocate, jax.tree.map(lambda leaf: leaf[donors], now.state), now.state)
        own = jnp.where(relocate, now.own.log_mean[donors], now.own.log_mean)
        # the step size is converted to the new scale of the coordinates
        scales = lambda matrix: jnp.log(jnp.diag(matrix) if dense else matrix)
        change = 0.5 * jnp.max(scales(covariance) - scales(now.covariance)) if tuner.has_mass else 0.0
        middle = jnp.sum(jnp.where(healthy, own, 0)) / jnp.sum(healthy)
        shared = jnp.where(plan.early, middle, now.shared.log_mean)
        return _Carry(
            state,
            search_from(own - change, 2.0),
            search_from(shared - change, 2.0),
            covariance,
            empty_window(z, dense),
            healthy | relocate,
            now.moved + relocate,
            now.window.energy,
        )

    def one(now: _Carry, given):
        key, plan = given
        key_step, key_move = split(key)
        state, acceptance = lax.cond(
            plan.early,
            lambda: tuner.step_each(key_step, now.state, jnp.exp(now.own.log_step), now.covariance),
            lambda: tuner.step_all(key_step, now.state, jnp.exp(now.shared.log_step), now.covariance),
        )
        own, mean = search_on(now.own, target - acceptance), jnp.sum(acceptance * now.healthy) / jnp.sum(now.healthy)
        shared = search_on(now.shared, target - mean)
        pick = lambda new, old: jax.tree.map(lambda a, b: jnp.where(plan.early, a, b), new, old)
        window = add_step(now.window, tuner.real(now.state), tuner.real(state), *tuner.energy_and_gradient(state))
        now = _Carry(state, pick(own, now.own), pick(now.shared, shared), *now[3:4], window, *now[5:])
        return lax.cond(plan.ends, lambda: end_window(now, key_move, plan), lambda: now), None

    plans = jax.tree.map(jnp.asarray, make_schedule(steps))
    carry, _ = lax.scan(one, carry, (split(key_steps, steps), plans))
    tuned = tuner.tune(kernel, jnp.exp(carry.shared.log_mean), carry.covariance)
    return tuned, carry.state, carry.moved, carry.healthy


class _Tuner:
    """Steps of the kernel with given step sizes and covariance: one size for all chains, or one for each."""

    def __init__(self, kernel: Any, energy: Any, x: PyTree, dense: bool):
        self.kernel, self.energy, self.dense = kernel, energy, dense
        self.has_mass = isinstance(kernel, HasMassMatrix)
        self.coordinates = coordinates_of(type(kernel).__name__, energy, x)
        self.base = kernel.get_step_size()
        self.middle = jnp.exp(jnp.mean(jnp.log(self.base)))

    def tune(self, kernel: Any, size: Array, covariance: Array) -> Any:
        if self.has_mass:
            kernel = kernel.with_mass_matrix(jnp.linalg.inv(covariance) if self.dense else 1 / covariance)
        # if there is one step size per coordinate, all are multiplied by the same factor
        return kernel.with_step_size(self.base * (size / self.middle))

    def step_all(self, key, state, size, covariance):
        state, info = self.tune(self.kernel, size, covariance).step(key, self.energy, state)
        return state, info.acceptance

    def step_each(self, key, state, sizes, covariance):
        kernel = self.kernel.shortened()

        def one(key, size, own):
            own = jax.tree.map(lambda leaf: leaf[None], own)
            own, info = self.tune(kernel, size, covariance).step(key, self.energy, own)
            return jax.tree.map(lambda leaf: leaf[0], (own, info.acceptance))

        return jax.vmap(one)(split(key, len(sizes)), sizes, state)

    def first_step_size(self, key, state, target):
        """The log of an initial step size for each chain: doubled or halved until the acceptance crosses the target."""
        chains = count_chains(state.x)
        covariance = jnp.ones(self.real(state).shape[1])
        covariance = jnp.diag(covariance) if self.dense else covariance
        # the same random numbers at every size, so that only the size decides
        accepts = lambda size: self.step_each(jax.random.clone(key), state, size, covariance)[1] > target
        size = jnp.broadcast_to(self.middle, (chains,))
        up = accepts(size)

        def again(now):
            size, going, count = now
            new = jnp.where(going, size * jnp.where(up, 2.0, 0.5), size)
            return new, going & (accepts(new) == up), count + 1

        going = lambda now: jnp.any(now[1]) & (now[2] < _DOUBLINGS)
        size, _, _ = lax.while_loop(going, again, (size, jnp.ones(chains, bool), jnp.zeros((), int)))
        return jnp.log(size)

    def real(self, state) -> Array:
        """The real coordinates of all chains, ``(chains, d)``."""
        z = state.position if isinstance(state, AbstractRealState) else to_real(self.coordinates, state.x)
        return z.reshape(z.shape[0], -1)

    def energy_and_gradient(self, state) -> tuple[Array, Array]:
        energy = state.energy if isinstance(state, AbstractEnergyState) else energies(self.energy, state.x)
        z = self.real(state)
        # a kernel without gradients has no mass matrix, so the gradient is not used
        gradient = state.gradient.reshape(z.shape) if isinstance(state, GradientState) else z
        return energy, gradient
