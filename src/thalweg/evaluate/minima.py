"""The minima of an energy on R^d, found by descent from many points, and the mass of Laplace's method at each."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

_ITERATIONS = 60
_SLOPE = 1e-2  # a descent has ended at a minimum if its gradient is below this, in units of the curvature there


class Minima(NamedTuple):
    """Up to ``k`` distinct minima, the lowest first: points, energies, factors of ``H⁻¹``, and which slots are used.

    ``log_mass`` is Laplace's ``-E + (d/2) log 2π - ½ log det H``.
    """

    points: Float[Array, "k d"]
    energies: Float[Array, " k"]
    factors: Float[Array, "k d d"]
    log_mass: Float[Array, " k"]
    used: Bool[Array, " k"]


def find_minima(energy: Any, starts: Float[Array, "starts d"], most: int) -> Minima:
    """Descend from every start by damped Newton steps with ``|H|``, and keep the ``most`` lowest distinct minima.

    ``|H|`` has the absolute eigenvalues of the Hessian, so that saddles repel (Dauphin et al. 2014). Two points are one
    minimum if the curvature at the lower one puts them within one standard deviation.
    """
    dimension = starts.shape[-1]
    value_and_slope = jax.vmap(jax.value_and_grad(energy))
    curvature = jax.vmap(jax.hessian(energy))

    def descend(_, now):
        x, value, slope, damping = now
        sizes, vectors = jnp.linalg.eigh(_sound(curvature(x)))
        along = jnp.einsum("nji,nj->ni", vectors, slope)
        step = jnp.einsum("nij,nj->ni", vectors, along / (jnp.maximum(jnp.abs(sizes), 1e-6) + damping[:, None]))
        new = x - step
        new_value, new_slope = value_and_slope(new)
        better = new_value < value
        keep = lambda a, b: jnp.where(better.reshape(-1, *[1] * (a.ndim - 1)), a, b)
        damping = jnp.clip(jnp.where(better, damping / 4, damping * 8), 1e-6, 1e8)
        return keep(new, x), keep(new_value, value), keep(new_slope, slope), damping

    value, slope = value_and_slope(starts)
    now = (starts, value, slope, jnp.full(len(starts), 1.0))
    x, value, slope, _ = jax.lax.fori_loop(0, _ITERATIONS, descend, now)
    sizes, vectors = jnp.linalg.eigh(_sound(curvature(x)))
    # the length of the Newton step in standard deviations: zero at a minimum
    along = jnp.einsum("nji,nj->ni", vectors, slope)
    length = jnp.sqrt(jnp.sum(along**2 / jnp.maximum(jnp.abs(sizes), 1e-12), axis=-1))
    good = jnp.isfinite(value) & (sizes[:, 0] > 1e-8) & (length < _SLOPE * dimension**0.5)
    return _distinct(x, jnp.where(good, value, jnp.inf), sizes, vectors, most)


def _sound(hessian: Array) -> Array:
    """The symmetric part, with zeros where the energy is not smooth."""
    return jnp.where(jnp.isfinite(hessian), 0.5 * (hessian + jnp.swapaxes(hessian, -1, -2)), 0.0)


def _distinct(x: Array, value: Array, sizes: Array, vectors: Array, most: int) -> Minima:
    dimension = x.shape[-1]

    def pick(left, _):
        best = jnp.argmin(left)
        white = (x - x[best]) @ vectors[best] * jnp.sqrt(jnp.maximum(sizes[best], 0))
        same = jnp.sum(white**2, axis=-1) < 1
        return jnp.where(same | (jnp.arange(len(x)) == best), jnp.inf, left), (best, left[best])

    _, (chosen, lowest) = jax.lax.scan(pick, value, None, length=most)
    used = jnp.isfinite(lowest)
    sizes = jnp.where(used[:, None], sizes[chosen], 1.0)
    covariance = jnp.einsum("kij,kj,klj->kil", vectors[chosen], 1 / sizes, vectors[chosen])
    unit = jnp.eye(dimension)
    factors = jnp.linalg.cholesky(jnp.where(used[:, None, None], covariance, unit) + 1e-12 * unit)
    factors = jnp.where(jnp.isfinite(factors), factors, unit)
    log_mass = -lowest + 0.5 * dimension * jnp.log(2 * jnp.pi) - 0.5 * jnp.sum(jnp.log(sizes), axis=-1)
    return Minima(x[chosen], lowest, factors, jnp.where(used, log_mass, -jnp.inf), used)
