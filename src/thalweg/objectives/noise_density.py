"""The noise density of a contrastive objective: given and checked, or fitted to the first batch."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import check_instance, count_chains, is_concrete
from thalweg.noise.densities import Uniform, as_noise, fit_gaussian, require_support
from thalweg.noise.independent import fit_independent
from thalweg.spaces import (
    Coordinates,
    Finite,
    Interval,
    Real,
    Space,
    coordinates_of,
    from_real,
    is_continuous,
    point_space,
    to_real,
)

# the number of noise points drawn to check that the noise stays in a constrained space
_CHECKED_POINTS = 1000


class OnSupport(eqx.Module):
    """A density of real coordinates z as a density of points x: ``log p(x) = log p(z(x)) - log |det dx/dz|``."""

    density: Any
    coordinates: Coordinates

    def log_prob(self, x: PyTree) -> Array:
        z = self.coordinates.to_real(x)
        return self.density.log_prob(z) - self.coordinates.log_det(z)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> PyTree:
        z = self.density.sample(key, (int(np.prod(shape)),))
        x = from_real(self.coordinates, z)
        return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), x)


def as_density(noise: Any) -> Any:
    """``noise`` itself or None, refused where it is no density."""
    if noise is not None:
        needs = "noise with sample(key, shape) and log_prob(x)"
        check_instance(needs, noise, ("sample", "log_prob"), "tw.noise.fit_gaussian(data)")
    return noise


def prepare_noise(name: str, key: PRNGKeyArray, noise: Any, energy: Any, x: PyTree) -> tuple[Any, Any]:
    """The noise to use, checked against the first batch; and the noise again if it was fitted to that batch, otherwise
    ``None``. ``name`` is the objective, for messages."""
    space = point_space(energy, x)
    if noise is None:
        made = _fit(name, energy, space, x)
        require_density(made, x)
        return made, made
    if isinstance(x, (jax.Array, np.ndarray)):
        noise = as_noise(noise, x.shape[1:])
    else:
        _check_tree(noise, x)
    require_density(noise, x)
    if is_continuous(space) and not isinstance(space, Real):
        _require_inside(name, key, noise, space, x)
    return noise, None


def draw_noise(key: PRNGKeyArray, noise: Any, count: int, like: PyTree) -> tuple[PyTree, Array]:
    """``count`` noise points with the dtype of the points ``like``, and their ``log_prob``."""
    y = jax.tree.map(lambda leaf, x: leaf.astype(x.dtype), noise.sample(key, (count,)), like)
    return y, jax.vmap(noise.log_prob)(y)


def _fit(name: str, energy: Any, space: Space, x: PyTree) -> Any:
    """The default noise of a space, fitted to the first batch."""
    if isinstance(space, Finite):
        return fit_independent(x, space)
    if isinstance(space, Interval):
        return Uniform(space.low, space.high, space.shape)
    if isinstance(space, Real):
        return fit_gaussian(x)
    if not is_continuous(space):
        raise ValueError(f"expected noise for {name} on {space}, which has no default, got none; give a density on it")
    coordinates = coordinates_of(name, energy, x)
    if coordinates is None:
        return fit_gaussian(x)
    return OnSupport(fit_gaussian(to_real(coordinates, x)), coordinates)


def _check_tree(noise: Any, x: PyTree) -> None:
    """Raise if the noise is not a density on trees like ``x``."""
    for method in ("sample", "log_prob"):
        if not callable(getattr(noise, method, None)):
            raise ValueError(
                f"expected noise with sample(key, shape) and log_prob(x), got {type(noise).__name__} without {method}; "
                "give a density of points like the data"
            )
    made = eqx.filter_eval_shape(lambda: noise.sample(jax.random.key(0), (2,)))
    got, wanted = (jax.tree.map(lambda leaf: leaf.shape[1:], tree) for tree in (made, x))
    if got != wanted:
        raise ValueError(
            f"expected noise on points of shapes {wanted}, as the data have, got {type(noise).__name__} on points of "
            f"shapes {got}; make it for points like the data"
        )


def require_density(noise: Any, x: PyTree) -> None:
    """Raise if the noise has no density at some of the data."""
    if isinstance(x, (jax.Array, np.ndarray)):
        require_support(noise, jnp.asarray(x))
        return
    log_probs = jax.vmap(noise.log_prob)(x)
    if is_concrete(log_probs) and not np.isfinite(log_probs).all():
        missing = int(np.sum(~np.isfinite(log_probs)))
        raise ValueError(
            f"expected noise with a density at all data, got none at {missing} of {count_chains(x)} points; "
            "use wider noise"
        )


def _require_inside(name: str, key: PRNGKeyArray, noise: Any, space: Space, x: PyTree) -> None:
    """Raise if noise points lie outside a constrained space, where the energy is meaningless."""
    y, _ = draw_noise(key, noise, _CHECKED_POINTS, x)
    inside = jax.vmap(space.contains)(y)
    if is_concrete(inside) and not np.all(inside):
        raise ValueError(
            f"expected noise on {space} for {name}, got {type(noise).__name__} with {np.mean(~np.asarray(inside)):.0%} "
            "of its points outside; give a density on the space, or leave noise out"
        )
