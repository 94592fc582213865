"""Direct samplers: independent exact draws, without a chain."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import as_energy, is_concrete


def inversion(key: PRNGKeyArray, quantile: Callable[[Array], Array], shape: tuple[int, ...] = ()) -> Array:
    """``x = F⁻¹(u)`` with ``u`` uniform on (0, 1): samples of the law whose quantile function is ``F⁻¹``.

    Reference: Devroye (1986), Non-Uniform Random Variate Generation, ch. II.

    Args:
        quantile: the inverse of the cumulative distribution function, elementwise.
        shape: of the samples.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> x = tw.samplers.inversion(jax.random.key(0), lambda u: -jnp.log1p(-u), (10_000,))  # the exponential law
    >>> bool(abs(x.mean() - 1) < 0.05)
    True
    """
    # the ends of the interval are left out: their quantiles may be infinite
    smallest = float(np.finfo(np.float32).tiny)
    return quantile(jax.random.uniform(key, shape, minval=smallest, maxval=1.0))


def rejection(
    key: PRNGKeyArray, energy: Any, density: Any, log_bound: float | Array, shape: tuple[int, ...] = ()
) -> Array:
    r"""Exact samples of ``p ∝ exp(-E)``: propose ``x ~ q``, accept with probability ``exp(-E(x) - log q(x) - log M)``.

    Needs ``exp(-E(x)) ≤ M q(x)`` everywhere; a proposal found above the bound is an error, not a sample. The expected
    number of tries is ``M / Z``. Reference: von Neumann (1951).

    Args:
        energy: any energy.
        density: q, with ``sample(key, shape)`` and ``log_prob(x)``.
        log_bound: ``log M``.
        shape: of the samples, before the event's.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> wide = tw.energies.Gaussian(jnp.zeros(1), 16.0)
    >>> x = tw.samplers.rejection(jax.random.key(0), tw.energies.two_bumps(), wide, jnp.log(40.0), (1000,))
    >>> x.shape
    (1000, 1)
    """
    energy = as_energy(energy)
    count = int(np.prod(shape, dtype=int))

    def propose(key):
        key_move, key_accept = jax.random.split(key)
        x = density.sample(key_move, (count,))
        log_accept = -jax.vmap(energy)(x) - jax.vmap(density.log_prob)(x) - log_bound
        return x, jnp.log(jax.random.uniform(key_accept, (count,))) < log_accept, jnp.max(log_accept)

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
    if is_concrete(highest) and float(highest) > 1e-5:
        raise ValueError(
            f"expected exp(-E(x)) <= M q(x) everywhere, got a point {float(highest):.3g} above the bound in log; "
            "raise log_bound by at least that much"
        )
    return x.reshape(*shape, *x.shape[1:])
