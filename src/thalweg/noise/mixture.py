"""A mixture of Gaussians fitted to data by expectation-maximisation, in one compiled loop."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import compiled, typed_key, whole_number
from thalweg.energies.analytic import GaussianMixture
from thalweg.noise.densities import Reshaped, flatten_points, reshape_density, variances

# added to the variances of standardised data, so that no component can collapse onto a point
_LEAST_VARIANCE = 1e-4
# the number of seedings, of which the best fit is kept: a single one sometimes misses a mode
_SEEDINGS = 4


def fit_mixture(data: Any, components: int = 8, *, key: PRNGKeyArray, steps: int = 100) -> GaussianMixture | Reshaped:
    r"""A mixture of Gaussians with full covariances, fitted by expectation-maximisation; the best of four k-means++
    seedings is returned. With ``r_nk = p(k | x_n)`` and ``N_k = Σ_n r_nk`` one iteration is

    ``w_k = (N_k + 1)/(n + K)``, ``μ_k = Σ_n r_nk x_n / N_k``, ``Σ_k = Σ_n r_nk (x_n - μ_k)(x_n - μ_k)ᵀ / N_k + 10⁻⁴I``

    on data standardised coordinate by coordinate; the 1 and the 10⁻⁴ keep every weight and every variance positive.
    References: Dempster, Laird and Rubin (1977), J. R. Stat. Soc. B 39; Arthur and Vassilvitskii (2007), SODA.

    Args:
        data: ``(rows, *event)``, at least as many rows as components.
        components: K.
        key: the random key of the seedings.
        steps: the number of iterations of expectation-maximisation.

    Returns:
        `tw.energies.GaussianMixture`; `Reshaped` if points are not vectors.

    >>> import jax, thalweg as tw
    >>> data = tw.data.eight_gaussians(jax.random.key(0), 1000)
    >>> noise = tw.noise.fit_mixture(data, 8, key=jax.random.key(1))
    >>> noise.sample(jax.random.key(2), (5,)).shape
    (5, 2)
    """
    flat, shape = flatten_points(data)
    components, steps = whole_number("components", components), whole_number("steps", steps, hint="100 is usual")
    if components > len(flat):
        raise ValueError(f"expected between 1 and {len(flat)} components, one a row, got {components}; change it")
    mean, deviation = jnp.mean(flat, axis=0), jnp.sqrt(variances(flat))
    weights, means, covariances = _fit_em(typed_key(key), (flat - mean) / deviation, components, steps)
    scaled = covariances * jnp.outer(deviation, deviation)
    return reshape_density(GaussianMixture(weights, mean + means * deviation, scaled), shape)


@compiled
def _fit_em(key: PRNGKeyArray, x: Array, components: int, steps: int) -> tuple[Array, Array, Array]:
    def log_probs(parts):
        return jax.vmap(GaussianMixture(*parts).component_log_probs)(x)

    def fit(key):
        apart = jax.vmap(lambda seed: jnp.sum((x - seed) ** 2, axis=1))(_seeds(key, x, components))
        parts = _estimate_components(x, jax.nn.one_hot(jnp.argmin(apart, axis=0), components))
        rounds = lambda _, parts: _estimate_components(x, jax.nn.softmax(log_probs(parts), axis=1))
        parts = jax.lax.fori_loop(0, steps, rounds, parts)
        return parts, jnp.mean(jax.nn.logsumexp(log_probs(parts), axis=1))

    every, likelihoods = jax.lax.map(fit, jax.random.split(key, _SEEDINGS))
    return jax.tree.map(lambda leaf: leaf[jnp.argmax(likelihoods)], every)


def _estimate_components(x: Array, shares: Array) -> tuple[Array, Array, Array]:
    """The weights, means and covariances of the components, given their shares ``(n, K)`` of every point."""
    n, components = shares.shape
    # a component without points stays at the centre, with hardly any weight
    counts = jnp.sum(shares, axis=0) + 1e-6
    means = shares.T @ x / counts[:, None]

    def covariance(share, count, mean):
        away = x - mean
        return (share[:, None] * away).T @ away / count + _LEAST_VARIANCE * jnp.eye(x.shape[1])

    return (counts + 1) / (n + components), means, jax.vmap(covariance)(shares.T, counts, means)


def _seeds(key: PRNGKeyArray, x: Array, components: int) -> Array:
    """k-means++ seeding: each seed is a point drawn with probability proportional to its squared distance from the
    nearest seed so far."""

    def seed(nearest, key):
        # the small constant matters only if all points are seeds already
        chosen = x[jax.random.categorical(key, jnp.log(nearest + 1e-12))]
        return jnp.minimum(nearest, jnp.sum((x - chosen) ** 2, axis=1)), chosen

    # before the first seed all points are equally likely
    far = jnp.full(len(x), jnp.finfo(x.dtype).max)
    return jax.lax.scan(seed, far, jax.random.split(key, components))[1]
