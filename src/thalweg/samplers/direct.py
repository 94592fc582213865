"""Direct samplers: independent exact draws, without Markov chains."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import (
    check_instance,
    check_scalar,
    compiled,
    finite,
    is_concrete,
    key_and_shape,
    real,
    require_energy,
)
from thalweg.core.random import log_uniform
from thalweg.exact.key_first import accept_key_first


@accept_key_first
def inversion(quantile: Any, shape: tuple[int, ...] = (), *, key: Any) -> Array:
    """``x = F⁻¹(u)`` with ``u`` uniform on (0, 1): samples of the distribution with quantile function ``F⁻¹``.

    Reference: Devroye (1986), Non-Uniform Random Variate Generation, ch. II.

    Args:
        quantile: the inverse of the cumulative distribution function, elementwise.
        shape: the shape of the samples.
        key: the random key.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> x = tw.samplers.inversion(lambda u: -jnp.log1p(-u), (10_000,), key=jax.random.key(0))  # the exponential law
    >>> bool(abs(x.mean() - 1) < 0.05)
    True
    """
    if isinstance(quantile, type) or not callable(quantile):
        raise ValueError(f"expected a quantile function of u in (0, 1), got {quantile!r:.60}; give a callable")
    # the ends of the interval are left out: their quantiles may be infinite
    smallest = float(np.finfo(np.float32).tiny)
    key, shape = key_and_shape(key, shape)
    made: Any = quantile(jax.random.uniform(key, shape, minval=smallest, maxval=1.0))
    if jnp.shape(real("quantile(u)", made)) != shape:
        raise ValueError(f"expected quantile(u) of u's shape {shape}, got {jnp.shape(made)}; map u entry by entry")
    return made  # pyright: ignore[reportReturnType]


@accept_key_first
def rejection(energy: Any, density: Any, log_bound: float | Array, shape: tuple[int, ...] = (), *, key: Any) -> Array:
    r"""Exact samples of ``p ∝ exp(-E)``: propose ``x ~ q``, accept with probability ``exp(-E(x) - log q(x) - log M)``.

    Needs ``exp(-E(x)) ≤ M q(x)`` everywhere; raises if a proposal violates the bound. The expected number of proposals
    per sample is ``M / Z``. Reference: von Neumann (1951), "Various techniques used in connection with random digits".

    Args:
        energy: any energy.
        density: q, with ``sample(key, shape)`` and ``log_prob(x)``.
        log_bound: ``log M``.
        shape: the number of samples, before the event's shape.
        key: the random key.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> wide = tw.energies.Gaussian(jnp.zeros(1), 16.0)
    >>> x = tw.samplers.rejection(tw.energies.two_bumps(), wide, jnp.log(40.0), (1000,), key=jax.random.key(0))
    >>> x.shape
    (1000, 1)
    """
    require_energy("rejection", energy)
    check_instance("a density q", density, ("sample", "log_prob"), "tw.energies.Gaussian(mean, covariance)")
    key, shape = key_and_shape(key, shape)
    check_scalar(energy, eqx.filter_eval_shape(density.sample, key, (1,)))
    x, highest = _draw(energy, density, finite("log_bound", log_bound, scalar=True), shape, key)
    if is_concrete(highest) and np.isnan(highest):
        raise ValueError("expected an energy that is a number wherever q has mass, got NaN; look for 0/0 and log(-1)")
    if is_concrete(highest) and float(highest) > 1e-5:
        raise ValueError(
            f"expected exp(-E(x)) <= M q(x) everywhere, got a point {float(highest):.3g} above the bound in log; "
            "raise log_bound by at least that much"
        )
    return x


@compiled
def _draw(energy: Any, density: Any, log_bound: Array, shape: tuple[int, ...], key: PRNGKeyArray) -> Any:
    count = int(np.prod(shape, dtype=int))

    def propose(key):
        key_move, key_accept = jax.random.split(key)
        x = density.sample(key_move, (count,))
        log_accept = -jax.vmap(energy)(x) - jax.vmap(density.log_prob)(x) - log_bound
        return x, log_uniform(key_accept, (count,)) < log_accept, jnp.max(log_accept, initial=-jnp.inf)

    def again(carry):
        key, x, accepted, highest = carry
        key, key_now = jax.random.split(key)
        new, good, high = propose(key_now)
        chosen = (good & ~accepted).reshape(-1, *[1] * (x.ndim - 1))
        return key, jnp.where(chosen, new, x), accepted | good, jnp.maximum(highest, high)

    def unfinished(carry):
        return ~jnp.all(carry[2]) & (carry[3] <= 1e-5)

    key_first, key_loop = jax.random.split(key)
    x, accepted, highest = propose(key_first)
    _, x, _, highest = jax.lax.while_loop(unfinished, again, (key_loop, x, accepted, highest))
    return x.reshape(*shape, *x.shape[1:]), highest
