"""Warm-up: step sizes and mass matrices fitted to the target, and a kernel tuned with them."""

from typing import Any, NamedTuple

import blackjax
import blackjax.adaptation.base
import equinox as eqx
import jax
import jax.numpy as jnp
from blackjax.optimizers.dual_averaging import dual_averaging
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Kernel, positive
from thalweg.samplers.hamiltonian import HMC, MALA
from thalweg.samplers.lift import require_energy
from thalweg.samplers.metropolis import RandomWalk
from thalweg.samplers.nuts import NUTS

# the acceptance rates that are best in high dimension: Roberts and Rosenthal (2001), Beskos et al. (2013)
_TARGETS: dict[type, float] = {RandomWalk: 0.234, MALA: 0.574, HMC: 0.8, NUTS: 0.8}


class WarmedUp(NamedTuple):
    """A tuned kernel, and where the chains stand after the warm-up, ``(chains, *event)``."""

    kernel: Any
    x: Array


def warm_up(
    kernel: Kernel,
    energy: Any,
    init: Array,
    *,
    key: PRNGKeyArray,
    steps: int = 1000,
    target_acceptance: float | None = None,
    dense: bool = False,
) -> WarmedUp:
    """A kernel with its step size (and, for HMC and NUTS, its mass matrix) fitted to the target.

    HMC and NUTS go through blackjax's window adaptation on every chain; the tuned kernel has the geometric mean of the
    step sizes and the mean of the inverse mass matrices. MALA and RandomWalk get the step size by dual averaging on the
    mean acceptance of all chains (Hoffman and Gelman 2014, §3.2). Draws made while adapting are not samples: go on from
    ``x`` with the tuned kernel.

    Args:
        kernel: `RandomWalk`, `MALA`, `HMC` or `NUTS`; its own step size is where the search starts.
        energy: any energy.
        init: where the chains start, ``(chains, *event)``.
        steps: of warm-up.
        target_acceptance: by default 0.234, 0.574, 0.8 and 0.8.
        dense: fit a dense mass matrix, not a diagonal one.

    Returns:
        `WarmedUp`, ``(kernel, x)``.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Gaussian(jnp.zeros(2), jnp.array([100.0, 0.01]))
    >>> nuts, init = tw.samplers.NUTS(0.1), jnp.zeros((4, 2))
    >>> kernel, x = tw.samplers.warm_up(nuts, energy, init, key=jax.random.key(0), steps=400)
    >>> bool(kernel.mass_matrix[1] / kernel.mass_matrix[0] > 1000)
    True
    """
    if type(kernel) not in _TARGETS:
        names = ", ".join(kind.__name__ for kind in _TARGETS)
        raise ValueError(f"expected a kernel to tune among {names}, got {type(kernel).__name__}; set its step by hand")
    if steps < 20:
        raise ValueError(f"expected at least 20 steps of warm-up, got {steps}; 1000 is usual")
    target = _TARGETS[type(kernel)] if target_acceptance is None else target_acceptance
    if not 0 < target < 1:
        raise ValueError(f"expected target_acceptance in (0, 1), got {target}; leave it out for the usual one")
    model, x = require_energy(type(kernel).__name__, energy), jnp.asarray(init)
    kernel.init(model, x)  # refuses bad pairings by name before blackjax meets them
    if isinstance(kernel, (HMC, NUTS)):
        return _windows(key, kernel, model, x, steps, jnp.asarray(target), dense)
    return _dual_averaging(key, kernel, model, x, steps, jnp.asarray(target))


@eqx.filter_jit
def _windows(key, kernel, energy, x, steps, target, dense) -> WarmedUp:
    if isinstance(kernel, HMC):
        algorithm, extra = blackjax.hmc, {"num_integration_steps": kernel.steps}
    else:
        algorithm, extra = blackjax.nuts, {"max_num_doublings": kernel.max_doublings}
    # blackjax's own annotations ask for plain numbers; arrays are what keeps another target from recompiling
    build: Any = blackjax.window_adaptation
    adaptation = build(
        algorithm,
        lambda point: -energy(point),
        is_mass_matrix_diagonal=not dense,
        initial_step_size=kernel.step_size,
        target_acceptance_rate=target,
        adaptation_info_fn=blackjax.adaptation.base.get_filter_adapt_info_fn(),
        **extra,
    )

    def one(key, point):
        (state, parameters), _ = adaptation.run(key, point, num_steps=steps)
        return state.position, parameters["step_size"], parameters["inverse_mass_matrix"]

    x, sizes, inverses = jax.vmap(one)(jax.random.split(key, x.shape[0]), x)
    inverse = jnp.mean(inverses, axis=0)
    mass = jnp.linalg.inv(inverse) if dense else 1 / inverse
    tuned = eqx.tree_at(lambda k: (k.step_size, k.mass_matrix), kernel, (jnp.exp(jnp.mean(jnp.log(sizes))), mass))
    return WarmedUp(tuned, x)


@eqx.filter_jit
def _dual_averaging(key, kernel, energy, x, steps, target) -> WarmedUp:
    where = (lambda k: k.step_size) if isinstance(kernel, MALA) else (lambda k: k.scale)
    first = where(kernel)
    size = jnp.exp(jnp.mean(jnp.log(first)))
    init, update, final = dual_averaging()

    def with_size(value):
        # one factor for all coordinates of a scale that has several
        return eqx.tree_at(where, kernel, first * (value / size))

    def one(carry, key):
        search, state = carry
        state, info = with_size(jnp.exp(search.log_x)).step(key, energy, state)
        return (update(search, target - jnp.mean(info.acceptance)), state), None

    start = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), init(size))
    (search, state), _ = jax.lax.scan(one, (start, kernel.init(energy, x)), jax.random.split(key, steps))
    return WarmedUp(with_size(positive("step size", final(search))), state.x)
