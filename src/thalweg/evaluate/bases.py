"""Base densities on R^d for annealing: mixtures of Gaussians fitted to points and placed at minima."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from thalweg.evaluate.minima import Minima
from thalweg.evaluate.paths import Mixture, mixture

_ITERATIONS = 40
_WIDE, _WIDER = 1.5, 1.15  # factors by which the one Gaussian of all points, and the components, are widened
_LEAST = 0.02  # the least share of a component among those of its kind


def wide_base(dimension: int, scale: Array | float, dense: bool) -> Mixture:
    """One Gaussian with this standard deviation around zero."""
    unit = jnp.eye(dimension) if dense else jnp.ones(dimension)
    return mixture(jnp.zeros(1), jnp.zeros((1, dimension)), scale * unit[None])


def fit_base(key: PRNGKeyArray, y: Float[Array, "n d"], minima: Minima | None, components: int, dense: bool) -> Mixture:
    """A mixture for points ``y``: one wide Gaussian of their covariance, ``components`` fitted by
    expectation-maximisation, and one at each of the minima, each kind with an equal share."""
    parts = [_one_gaussian(y, dense)]
    if components > 1:
        parts.append(_fit_components(key, y, components))
    if minima is not None:
        masses = jax.nn.softmax(minima.log_mass)
        shares = jnp.where(minima.used, jnp.maximum(masses, _LEAST), 0.0)
        parts.append((shares, minima.points, _WIDER * minima.factors))
    logs = [jnp.log(shares / jnp.maximum(jnp.sum(shares), 1e-30)) for shares, _, _ in parts]
    whole = jnp.concatenate(logs)
    means, factors = (jnp.concatenate([part[place] for part in parts]) for place in (1, 2))
    return mixture(jnp.where(jnp.isfinite(whole), whole, -1e4), means, factors)


def _one_gaussian(y: Array, dense: bool) -> tuple[Array, Array, Array]:
    mean, size = jnp.mean(y, axis=0), y.shape[-1]
    if not dense:
        variance = jnp.var(y, axis=0)
        return jnp.ones(1), mean[None], _WIDE * jnp.sqrt(variance + 1e-6 * jnp.mean(variance) + 1e-20)[None]
    covariance = jnp.cov(y.T).reshape(size, size)
    return jnp.ones(1), mean[None], _WIDE * _factor(covariance)[None]


def _factor(covariance: Array) -> Array:
    """The Cholesky factor of a covariance that may be singular to working precision."""
    size = covariance.shape[-1]
    level = jnp.trace(covariance, axis1=-2, axis2=-1)[..., None, None] / size
    return jnp.linalg.cholesky(covariance + (1e-6 * level + 1e-20) * jnp.eye(size))


def _fit_components(key: PRNGKeyArray, y: Array, components: int) -> tuple[Array, Array, Array]:
    """Weights, means and widened factors of a mixture of Gaussians, by expectation-maximisation.

    Each covariance is shrunk towards a sphere of its own size by ``d + 2`` further points, so that a component of few
    points stays sound.
    """
    count, size = y.shape
    covariance = jnp.cov(y.T).reshape(size, size)
    start = mixture(
        jnp.zeros(components),
        jax.random.choice(key, y, (components,), replace=False),
        jnp.broadcast_to(_factor(covariance), (components, size, size)),
    )

    def maximise(_, model: Mixture) -> Mixture:
        away = y[:, None] - model.means
        white = jnp.einsum("kij,nkj->nki", model.inverses, away)
        logs = model.log_weights - 0.5 * jnp.sum(white**2, -1)
        logs = logs + jnp.sum(jnp.log(jax.vmap(jnp.diag)(model.inverses)), -1)
        share = jax.nn.softmax(logs, axis=-1)
        total = jnp.sum(share, axis=0) + 1e-6
        means = jnp.einsum("nk,nd->kd", share, y) / total[:, None]
        away = y[:, None] - means
        spread = jnp.einsum("nk,nki,nkj->kij", share, away, away) / total[:, None, None]
        level = jnp.trace(spread, axis1=-2, axis2=-1) / size
        shrink = ((size + 2) / (total + size + 2))[:, None, None]
        spread = (1 - shrink) * spread + shrink * level[:, None, None] * jnp.eye(size)
        return mixture(jnp.log(total / count), means, _factor(spread))

    fitted = jax.lax.fori_loop(0, _ITERATIONS, maximise, start)
    return jnp.maximum(jnp.exp(fitted.log_weights), _LEAST), fitted.means, _WIDER * fitted.factors
