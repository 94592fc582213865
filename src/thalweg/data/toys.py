"""Two-dimensional toy densities: independent draws, `(n, 2)` float32, as pure functions of a random key.

Every function can be jitted with static `n`. If the density has a closed form, the docstring gives it; the mixtures
also have an energy, a `thalweg.energies.GaussianMixture`.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from thalweg.core import check_point, finite, non_negative, positive, real, typed_key, whole_number
from thalweg.energies.analytic import GaussianMixture

Scalar = float | int | Float[Array, ""]
Weights = Sequence[float | int] | np.ndarray | Array | None
Points = Float[Array, "rows 2"]


def _begin(key: Any, n: Any) -> tuple[Array, int]:
    """Check the random key and the number of points."""
    return typed_key(key), whole_number("n", n, hint="ask for at least one point")


def _sigma(value: Any, name: str = "sigma") -> Array:
    return non_negative(name, value, scalar=True)


def _polar(radius: Array, angle: Array) -> Array:
    return jnp.stack([radius * jnp.cos(angle), radius * jnp.sin(angle)], axis=-1)


def two_moons(key: PRNGKeyArray, n: int, sigma: Scalar = 0.1) -> Points:
    """Two interleaved half circles of radius 1, blurred by N(0, sigma² I); each moon has probability one half.

    With t uniform on (0, π): the upper moon is (cos t, sin t), the lower (1 - cos t, ½ - sin t).

    >>> two_moons(jax.random.key(0), 5).shape
    (5, 2)
    """
    key, n = _begin(key, n)
    which, along, noise = jax.random.split(key, 3)
    t = jax.random.uniform(along, (n,), maxval=jnp.pi)
    upper = jnp.stack([jnp.cos(t), jnp.sin(t)], axis=-1)
    lower = jnp.stack([1 - jnp.cos(t), 0.5 - jnp.sin(t)], axis=-1)
    moon = jax.random.bernoulli(which, 0.5, (n, 1))
    return jnp.where(moon, upper, lower) + _sigma(sigma) * jax.random.normal(noise, (n, 2))


def rings(
    key: PRNGKeyArray, n: int, radii: Sequence[float | int] = (0.75, 1.5, 2.25, 3.0), sigma: Scalar = 0.08
) -> Points:
    """Concentric circles, equally likely, blurred by N(0, sigma² I).

    The density is known: with r = |x|, p(x) is the mean over radii R of
    `exp(-(r² + R²)/2σ²) I₀(rR/σ²) / 2πσ²` (the angle of a Gaussian about the circle integrates to a Bessel function).

    >>> rings(jax.random.key(0), 5).shape
    (5, 2)
    """
    key, n = _begin(key, n)
    which, around, noise = jax.random.split(key, 3)
    radius = jax.random.choice(which, jnp.atleast_1d(non_negative("radii", radii)).reshape(-1), (n,))
    angle = jax.random.uniform(around, (n,), maxval=2 * jnp.pi)
    return _polar(radius, angle) + _sigma(sigma) * jax.random.normal(noise, (n, 2))


def pinwheel(
    key: PRNGKeyArray,
    n: int,
    arms: int = 5,
    radial_sigma: Scalar = 0.3,
    tangential_sigma: Scalar = 0.1,
    rate: Scalar = 0.25,
    scale: Scalar = 2.0,
) -> Points:
    """Gaussian arms around the origin, sheared into a pinwheel (Johnson et al. 2016, structured VAEs).

    A point u ~ N((1, 0), diag(radial_sigma², tangential_sigma²)) is turned by `2πk/arms + rate·exp(u₁)` for a uniform
    arm k, then multiplied by `scale`. It has no closed-form density, since the turning angle depends on u₁.

    >>> pinwheel(jax.random.key(0), 5).shape
    (5, 2)
    """
    key, n = _begin(key, n)
    which, noise = jax.random.split(key)
    arms, rate, scale = whole_number("arms", arms), finite("rate", rate, scalar=True), _sigma(scale, "scale")
    arm = jax.random.randint(which, (n,), 0, arms)
    sigmas = [_sigma(radial_sigma, "radial_sigma"), _sigma(tangential_sigma, "tangential_sigma")]
    u = jax.random.normal(noise, (n, 2)) * jnp.stack(sigmas)
    u = u.at[:, 0].add(1.0)
    angle = 2 * jnp.pi * arm / arms + rate * jnp.exp(u[:, 0])
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return scale * jnp.stack([cos * u[:, 0] - sin * u[:, 1], sin * u[:, 0] + cos * u[:, 1]], axis=-1)


def checkerboard(key: PRNGKeyArray, n: int, squares: int = 4, half_width: Scalar = 4.0) -> Points:
    """Uniform on the dark squares of a `squares` × `squares` board covering (-half_width, half_width)².

    The density is exact: 1 / (dark area) on a dark square, zero on a light one; `checkerboard_log_prob` is its
    logarithm. The lower left corner is dark; the default board has 8 dark squares of side 2, so density 1/32.

    >>> checkerboard(jax.random.key(0), 5).shape
    (5, 2)
    """
    key, n = _begin(key, n)
    which, inside = jax.random.split(key)
    columns, lines = np.nonzero(_dark(squares))
    half_width = positive("half_width", half_width, scalar=True)
    cell = jax.random.randint(which, (n,), 0, len(columns))
    corner = jnp.stack([jnp.asarray(columns)[cell], jnp.asarray(lines)[cell]], axis=-1)
    side = 2 * half_width / squares
    return side * (corner + jax.random.uniform(inside, (n, 2))) - half_width


def _dark(squares: int) -> np.ndarray:
    squares = whole_number("squares", squares, 2, "the smallest board is 2 × 2")
    if squares > 10_000:
        raise ValueError(f"expected squares <= 10000, got {squares}; every square of the board is counted")
    return np.add.outer(np.arange(squares), np.arange(squares)) % 2 == 0


def checkerboard_log_prob(x: Float[Array, "2"], squares: int = 4, half_width: Scalar = 4.0) -> Float[Array, ""]:
    """The exact log density of `checkerboard` at one point: -log(dark area), or -∞ off the dark squares.

    >>> float(jnp.exp(checkerboard_log_prob(jnp.array([-3.0, -3.0]))))
    0.03125
    """
    check_point(x, (2,))
    half_width = positive("half_width", half_width, scalar=True)
    area = _dark(squares).sum()
    side = 2 * half_width / squares
    cell = jnp.floor((x + half_width) / side).astype(jnp.int32)
    dark = jnp.all((cell >= 0) & (cell < squares)) & (cell.sum() % 2 == 0)
    return jnp.where(dark, -jnp.log(area * side**2), -jnp.inf)


def _eight_weights(weights: Weights) -> np.ndarray:
    values = np.full(8, 1 / 8) if weights is None else np.asarray(real("weights", weights), np.float64)
    if values.shape != (8,) or not np.isfinite(values).all() or (values < 0).any() or values.sum() <= 0:
        raise ValueError(
            f"weights: expected eight non-negative numbers, not all zero, got {weights}; give one per mode"
        )
    return (values / values.sum()).astype(np.float32)


def _eight_means(radius: Scalar) -> Array:
    radius = non_negative("radius", radius, scalar=True)
    return _polar(jnp.broadcast_to(radius, (8,)), jnp.arange(8) * (jnp.pi / 4))


def eight_gaussians(
    key: PRNGKeyArray,
    n: int,
    weights: Weights = None,
    radius: Scalar = 4.0,
    sigma: Scalar = 0.5,
) -> Points:
    """Eight Gaussians N(m_k, sigma² I) with m_k evenly on a circle, mode 0 at (radius, 0), going anticlockwise.

    `weights` (8,) need not sum to one; None is one eighth each. `eight_gaussians_energy` is the exact density.

    >>> eight_gaussians(jax.random.key(0), 5, weights=[4, 1, 1, 1, 1, 1, 1, 1]).shape
    (5, 2)
    """
    key, n = _begin(key, n)
    which, noise = jax.random.split(key)
    mode = jax.random.categorical(which, jnp.log(_eight_weights(weights)), shape=(n,))
    return _eight_means(radius)[mode] + _sigma(sigma) * jax.random.normal(noise, (n, 2))


def spirals(key: PRNGKeyArray, n: int, arms: int = 2, turns: Scalar = 1.5, sigma: Scalar = 0.1) -> Points:
    """Interleaved Archimedean spirals of outer radius 4, equally likely, blurred by N(0, sigma² I).

    At s = √u, u uniform on (0, 1), the point has radius 4s and angle `2π(turns·s + k/arms)`: the root spreads the
    points about evenly along the arm, whose length grows like s².

    >>> spirals(jax.random.key(0), 5).shape
    (5, 2)
    """
    key, n = _begin(key, n)
    which, along, noise = jax.random.split(key, 3)
    arms, turns = whole_number("arms", arms), finite("turns", turns, scalar=True)
    arm = jax.random.randint(which, (n,), 0, arms)
    s = jnp.sqrt(jax.random.uniform(along, (n,)))
    return _polar(4 * s, 2 * jnp.pi * (turns * s + arm / arms)) + _sigma(sigma) * jax.random.normal(noise, (n, 2))


def swiss_roll(key: PRNGKeyArray, n: int, sigma: Scalar = 0.1) -> Points:
    """The rolled sheet seen from the side: (t cos t, t sin t)/4, t uniform on (3π/2, 9π/2), blurred by N(0, sigma² I).

    The roll of Marsland (2009, ch. 10) without its flat third axis.

    >>> swiss_roll(jax.random.key(0), 5).shape
    (5, 2)
    """
    key, n = _begin(key, n)
    along, noise = jax.random.split(key)
    t = jax.random.uniform(along, (n,), minval=1.5 * jnp.pi, maxval=4.5 * jnp.pi)
    return _polar(t / 4, t) + _sigma(sigma) * jax.random.normal(noise, (n, 2))


def eight_gaussians_energy(weights: Weights = None, radius: Scalar = 4.0, sigma: Scalar = 0.5) -> GaussianMixture:
    """The exact density behind `eight_gaussians`, as an energy that also gives `log_z` and `sample`.

    >>> eight_gaussians_energy().sample(jax.random.key(0), (5,)).shape
    (5, 2)
    """
    shares = _eight_weights(weights)
    modes = np.flatnonzero(shares)  # a mode of weight zero has no part in the density
    covariances = jnp.broadcast_to(positive("sigma", sigma, scalar=True) ** 2 * jnp.eye(2), (len(modes), 2, 2))
    return GaussianMixture(shares[modes], _eight_means(radius)[modes], covariances)


def skewed_mixture_energy() -> GaussianMixture:
    """Three Gaussians with weights 0.6, 0.3, 0.1 and different, tilted covariances, without any symmetry.

    A sampler that gets a sign, an axis or a mode weight wrong is found out on it.

    >>> skewed_mixture_energy().sample(jax.random.key(0), (5,)).shape
    (5, 2)
    """
    weights = jnp.array([0.6, 0.3, 0.1])
    means = jnp.array([[-1.5, 0.5], [2.0, 1.5], [0.5, -2.5]])
    covariances = jnp.array([[[0.6, 0.3], [0.3, 0.4]], [[0.2, -0.1], [-0.1, 0.8]], [[0.3, 0.0], [0.0, 0.1]]])
    return GaussianMixture(weights, means, covariances)


def eight_gaussians_density(weights: Weights = None, radius: Scalar = 4.0, sigma: Scalar = 0.5) -> GaussianMixture:
    """The old name of `eight_gaussians_energy`; it will be removed in the next release."""
    _warn_renamed("eight_gaussians_density")
    return eight_gaussians_energy(weights, radius, sigma)


def skewed_mixture() -> GaussianMixture:
    """The old name of `skewed_mixture_energy`; it will be removed in the next release."""
    _warn_renamed("skewed_mixture")
    return skewed_mixture_energy()


def _warn_renamed(name: str) -> None:
    new = name.removesuffix("_density") + "_energy"
    warnings.warn(
        f"thalweg.data.{name} is now called {new}, since it returns an energy; the old name goes in the next release",
        DeprecationWarning,
        stacklevel=3,
    )


def _draw_skewed_mixture(key: PRNGKeyArray, n: int) -> Points:
    key, n = _begin(key, n)
    return skewed_mixture_energy().sample(key, (n,))


# every toy by name: TOYS[name](key, n) draws n points
TOYS: dict[str, Callable[..., Any]] = {
    "two_moons": two_moons,
    "rings": rings,
    "pinwheel": pinwheel,
    "checkerboard": checkerboard,
    "eight_gaussians": eight_gaussians,
    "spirals": spirals,
    "swiss_roll": swiss_roll,
    "skewed_mixture": _draw_skewed_mixture,
}
