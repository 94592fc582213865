"""Noise densities for contrastive training, with ``sample(key, shape)`` and ``log_prob(x)`` of one point.

Any object with these two methods works, for example the distributions of flowjax and the energies `Gaussian` and
`GaussianMixture`. All numbers are array leaves, so a new fit does not recompile anything.
"""

import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from thalweg.core import (
    Module,
    check_instance,
    check_point,
    compiled,
    finite,
    is_concrete,
    key_and_shape,
    positive,
    real,
    whole_number,
)
from thalweg.energies.analytic import Gaussian
from thalweg.spaces.checks import as_shape

# a coordinate that hardly varies gets this share of the mean variance: a thousandth of the typical standard deviation
_LEAST_VARIANCE = 1e-6
# how many offending points an error message shows, and how many numbers of each
_SHOWN, _NUMBERS = 3, 6


class Uniform(Module):
    r"""Uniform between ``low`` and ``high``: ``log p(x) = -Σ_i log(high_i - low_i)`` inside, ``-∞`` outside.

    Args:
        low: a number, or one for each coordinate.
        high: likewise, above ``low``.
        shape: the shape of a point, if ``low`` and ``high`` do not have it.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> noise = tw.noise.Uniform(-2.0, 2.0, shape=3)
    >>> noise.sample(jax.random.key(0), (5,)).shape, round(float(noise.log_prob(jnp.ones(3))), 4)
    ((5, 3), -4.1589)
    """

    low: Array
    high: Array

    def __init__(self, low: Any, high: Any, shape: int | tuple[int, ...] = ()):
        low, high = finite("low", low), finite("high", high)
        event = _common_shape(low.shape, high.shape, as_shape(shape))
        if is_concrete(low) and is_concrete(high) and not np.all(np.asarray(low) < np.asarray(high)):
            raise ValueError(f"expected low < high in every coordinate, got {low} and {high}; swap or move them")
        self.low, self.high = jnp.broadcast_to(low, event), jnp.broadcast_to(high, event)

    def log_prob(self, x: Array) -> Array:
        check_point(x, self.low.shape)
        inside = jnp.all((x >= self.low) & (x <= self.high))
        return jnp.where(inside, -jnp.sum(jnp.log(self.high - self.low)), -jnp.inf)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        unit = jax.random.uniform(key, (*shape, *self.low.shape))
        return self.low + (self.high - self.low) * unit


def _common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(
            f"expected sides and a shape that agree, got {shapes}; give one number per coordinate"
        ) from None


class Reshaped(Module):
    """A density on vectors ``(d,)`` as a density on points of any shape with d numbers, for example images.

    Args:
        density: a density on vectors, with ``sample`` and ``log_prob``.
        shape: the shape of a point.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> noise = tw.noise.Reshaped(tw.energies.Gaussian(jnp.zeros(4), 1.0), (2, 2, 1))
    >>> noise.sample(jax.random.key(0), (5,)).shape
    (5, 2, 2, 1)
    """

    density: Any
    shape: tuple[int, ...] = eqx.field(static=True, converter=as_shape)

    def __check_init__(self):
        check_instance("a density", self.density, ("sample", "log_prob"), "tw.energies.Gaussian(mean, covariance)")

    def log_prob(self, x: Array) -> Array:
        check_point(x, self.shape)
        return self.density.log_prob(x.reshape(-1))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        return self.density.sample(key, shape).reshape(*shape, *self.shape)


class Marginals(Module):
    r"""Independent coordinates, each a mixture of Gaussians on a grid of its own: a smoothed histogram,

    ``log p(x) = Σ_i log Σ_k w_ik N(x_i; low_i + (k + ½)·width_i, h_i²)``.

    Returned by `fit_marginals`. ``log_weights`` is ``(*event, bins)``; the other arrays have the point's shape.

    >>> import jax, thalweg as tw
    >>> key_data, key_draw = jax.random.split(jax.random.key(0))
    >>> density = tw.noise.fit_marginals(tw.data.two_moons(key_data, 500))
    >>> density.sample(key_draw, (5,)).shape
    (5, 2)
    """

    low: Array
    width: Array
    bandwidth: Array
    log_weights: Array

    def log_prob(self, x: Array) -> Array:
        check_point(x, self.low.shape)
        places = jnp.arange(self.log_weights.shape[-1]) + 0.5
        apart = (x[..., None] - self.low[..., None] - places * self.width[..., None]) / self.bandwidth[..., None]
        logs = jax.nn.logsumexp(self.log_weights - 0.5 * apart**2, axis=-1)
        return jnp.sum(logs - jnp.log(self.bandwidth) - 0.5 * math.log(2 * math.pi))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        key_which, key_noise = jax.random.split(key)
        # flat, with one random number per coordinate: many axes are slow to compile, and Gumbel noise per bin is slow
        flat = (math.prod(shape), self.low.size)
        upper = jnp.cumsum(jnp.exp(self.log_weights), axis=-1)[..., :-1].reshape(flat[1], -1)
        which = jax.vmap(jnp.searchsorted, (0, 1), 1)(upper, jax.random.uniform(key_which, flat))
        which, noise = (v.reshape(*shape, *self.low.shape) for v in (which, jax.random.normal(key_noise, flat)))
        return self.low + (which + 0.5) * self.width + self.bandwidth * noise


class KernelDensity(Module):
    r"""``log p(x) = log (1/n)Σ_j N(x; x_j, h²Σ)``: a Gaussian around each of n points, on vectors ``(d,)``.

    Returned by `fit_kde`. The points are stored multiplied by W with ``WᵀW = (h²Σ)⁻¹``, so that all Gaussians are
    white; one evaluation is a product of this matrix ``(n, d)`` with a vector.

    >>> import jax, thalweg as tw
    >>> key_data, key_draw = jax.random.split(jax.random.key(0))
    >>> density = tw.noise.fit_kde(tw.data.two_moons(key_data, 500))
    >>> density.points.shape, density.sample(key_draw, (5,)).shape
    ((500, 2), (5, 2))
    """

    mean: Array
    whitening: Array
    points: Array

    def log_prob(self, x: Array) -> Array:
        check_point(x, self.mean.shape)
        z = self.whitening @ (x - self.mean)
        squares = jnp.sum(self.points**2, axis=1) - 2 * self.points @ z + jnp.sum(z**2)
        count, d = self.points.shape
        log_norm = 0.5 * d * math.log(2 * math.pi) - jnp.sum(jnp.log(jnp.diag(self.whitening))) + math.log(count)
        return jax.nn.logsumexp(-0.5 * squares) - log_norm

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        key_which, key_noise = jax.random.split(key)
        count, d = self.points.shape
        z = self.points[jax.random.randint(key_which, shape, 0, count)] + jax.random.normal(key_noise, (*shape, d))
        root = jax.scipy.linalg.solve_triangular(self.whitening, jnp.eye(d), lower=True)
        return self.mean + z @ root.T


def fit_gaussian(data: Any) -> Gaussian | Reshaped:
    r"""A Gaussian with the data's mean and variances, and with their correlations shrunk by ``n / (n + d)``.

    With fewer rows than dimensions the sample covariance is singular; shrinking makes it positive definite, and with
    many rows it changes little. A constant coordinate gets a thousandth of the typical standard deviation.

    Args:
        data: ``(rows, *event)``.

    Returns:
        `tw.energies.Gaussian`; `Reshaped` if points are not vectors.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> noise = tw.noise.fit_gaussian(3.0 + jax.random.normal(jax.random.key(0), (1000, 2)))
    >>> bool(jnp.max(jnp.abs(noise.mean - 3.0)) < 0.2)
    True
    """
    flat, shape = flatten_points(data)
    return reshape_density(Gaussian(jnp.mean(flat, axis=0), covariance(flat)), shape)


def fit_marginals(data: Any, bins: int = 64) -> Marginals:
    r"""Independent coordinates with smoothed histograms of the data: they have its modes and skewness, not its
    correlations.

    The bandwidth of a coordinate is Silverman's ``0.9·min(σ, IQR/1.34)·n^{-1/5}``, at least the width of a bin.
    Reference: Silverman (1986), Density Estimation, eq. 3.31.

    Args:
        data: ``(rows, *event)``.
        bins: the number of bins between the smallest and the largest value of a coordinate.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> noise = tw.noise.fit_marginals(tw.data.eight_gaussians(jax.random.key(0), 1000))
    >>> noise.sample(jax.random.key(1), (5,)).shape
    (5, 2)
    """
    bins = whole_number("bins", bins, 2, "64 is usual")
    flat, shape = flatten_points(data)
    low, width, bandwidth, log_weights = _histograms(flat, bins)
    low, width, bandwidth = (field.reshape(shape) for field in (low, width, bandwidth))
    return Marginals(low, width, bandwidth, log_weights.reshape(*shape, bins))


@partial(jax.jit, static_argnames="bins")
def _histograms(flat: Float[Array, "rows d"], bins: int) -> tuple[Array, Array, Array, Array]:
    n, deviation = len(flat), jnp.sqrt(variances(flat))
    upper, lower = jnp.percentile(flat, jnp.array([75.0, 25.0]), axis=0)
    middle = (upper - lower) / 1.34
    spread = jnp.where(middle > 0, jnp.minimum(deviation, middle), deviation)
    low = jnp.min(flat, axis=0)
    width = jnp.maximum(jnp.max(flat, axis=0) - low, deviation) / bins
    which = jnp.clip(((flat - low) / width).astype(int), 0, bins - 1)
    counts = jax.vmap(lambda column: jnp.bincount(column, length=bins), in_axes=1)(which)
    # one more point, spread over all bins, so that none is empty
    return low, width, jnp.maximum(0.9 * spread * n**-0.2, width), jnp.log((counts + 1 / bins) / (n + 1))


def fit_kde(data: Any, bandwidth: float | Array | None = None) -> KernelDensity | Reshaped:
    r"""A kernel density estimate: Gaussians of covariance ``h²Σ`` around the data, where Σ is the data's covariance.

    One evaluation costs n·d; thin large data sets first. Reference: Scott (1992), Multivariate Density Estimation.

    Args:
        data: ``(rows, *event)``.
        bandwidth: h > 0; by default Scott's ``n^{-1/(d+4)}``.

    Returns:
        `KernelDensity`; `Reshaped` if points are not vectors.

    >>> import jax, thalweg as tw
    >>> noise = tw.noise.fit_kde(tw.data.two_moons(jax.random.key(0), 500), bandwidth=0.2)
    >>> noise.sample(jax.random.key(1), (5,)).shape
    (5, 2)
    """
    flat, shape = flatten_points(data)
    n, d = flat.shape
    h = n ** (-1 / (d + 4)) if bandwidth is None else positive("bandwidth", bandwidth, scalar=True)
    return reshape_density(KernelDensity(*_whiten(flat, h)), shape)


@jax.jit
def _whiten(flat: Float[Array, "rows d"], h: Array) -> tuple[Array, Array, Array]:
    mean = jnp.mean(flat, axis=0)
    factor = h * jnp.linalg.cholesky(covariance(flat))
    whitening = jax.scipy.linalg.solve_triangular(factor, jnp.eye(flat.shape[1]), lower=True)
    return mean, whitening, (flat - mean) @ whitening.T


def flatten_points(data: Any) -> tuple[Float[Array, "rows d"], tuple[int, ...]]:
    """The data as floating-point vectors, and the shape of a point; raises if the data have no spread."""
    array = real("data", data)
    if array.ndim == 0 or len(array) < 2:
        raise ValueError(f"expected data (rows, *event) of at least 2 rows, got shape {array.shape}; give more rows")
    flat = array.reshape(len(array), -1)
    if is_concrete(flat) and not np.isfinite(flat).all():
        raise ValueError("expected finite data to fit noise to, got NaN or infinity; remove those rows")
    if is_concrete(flat) and not np.any(np.asarray(flat) != np.asarray(flat[0])):
        raise ValueError("expected data that differ from each other, got one point repeated; give more rows")
    return flat, array.shape[1:]


@jax.jit
def variances(flat: Float[Array, "rows d"]) -> Float[Array, " d"]:
    """The variance of every coordinate; at least a small share of the mean variance."""
    values = jnp.var(flat, axis=0)
    return jnp.maximum(values, _LEAST_VARIANCE * jnp.mean(values))


@jax.jit
def covariance(flat: Float[Array, "rows d"]) -> Float[Array, "d d"]:
    """The covariance of the data with correlations shrunk by ``n / (n + d)``, so that it is positive definite."""
    n, d = flat.shape
    deviation = jnp.sqrt(variances(flat))
    standard = (flat - jnp.mean(flat, axis=0)) / deviation
    correlation = standard.T @ standard / (n + d)
    return jnp.where(jnp.eye(d) > 0, 1.0, correlation) * jnp.outer(deviation, deviation)


def reshape_density(density: Any, shape: tuple[int, ...]) -> Any:
    """A density on vectors as a density on points of ``shape``."""
    return density if len(shape) == 1 else Reshaped(density, shape)


def as_noise(noise: Any, shape: tuple[int, ...]) -> Any:
    """``noise`` itself; raises if it is not a density on points of ``shape``."""
    needs = "noise with sample(key, shape) and log_prob(x)"
    check_instance(needs, noise, ("sample", "log_prob"), "tw.noise.fit_gaussian(data)")
    made = eqx.filter_eval_shape(lambda: noise.sample(jax.random.key(0), (2,))).shape
    if made != (2, *shape):
        raise ValueError(
            f"expected noise on points of shape {shape}, as the data have, got {type(noise).__name__} on points of "
            f"shape {made[1:]}; make it for the data's shape"
        )
    return noise


def require_support(noise: Any, data: Array) -> None:
    """Raise if the noise has no density at some of the data; the message lists the points."""
    log_probs = _log_probs(noise, data)
    if not is_concrete(log_probs) or np.isfinite(log_probs).all():
        return
    outside = np.flatnonzero(~np.isfinite(log_probs))
    points = [
        f"point {index} = {np.array2string(np.asarray(data[index]).ravel(), threshold=_NUMBERS, precision=4)} "
        f"(log_prob {float(log_probs[index])})"
        for index in outside[:_SHOWN]
    ]
    more = ", …" if len(outside) > _SHOWN else ""
    raise ValueError(
        f"expected noise with a density at all data, got none at {len(outside)} of {len(data)} points: "
        f"{', '.join(points)}{more}; use wider noise"
    )


@compiled
def _log_probs(noise: Any, data: Array) -> Array:
    return jax.vmap(noise.log_prob)(data)
