"""The energy of maximum entropy under given means of features."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from thalweg.core import Energy, Space, check_function, check_point, finite
from thalweg.spaces.product import Product


class MaximumEntropy(Energy):
    r"""``E(x) = -η·f(x)``: of all densities with the same means of the features f, this one has the largest entropy.

    `tw.machines.fit_maximum_entropy` finds η for given means. Reference: Jaynes (1957), Phys. Rev. 106.

    Args:
        features: f, a function of one point that returns numbers ``(k,)``, or one number if there is one feature.
        natural: η, ``(k,)``.
        space: where x lives.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> normal = tw.energies.MaximumEntropy(lambda x: jnp.stack([x, x**2]), jnp.array([0.0, -0.5]), tw.Real(()))
    >>> float(normal(jnp.array(2.0)))
    2.0
    """

    features: Callable[..., Any]
    natural: Array
    space: Space = eqx.field(static=True)

    def __init__(self, features: Any, natural: Any, space: Space):
        self.natural = jnp.atleast_1d(finite("natural", natural))
        self.features, self.space = features, space
        count = count_features(features, space)
        if self.natural.shape != (count,):
            raise ValueError(
                f"expected one natural parameter for each of the {count} features, got shape {self.natural.shape}; "
                f"give shape ({count},)"
            )

    def statistics(self, x: Array) -> Array:
        """f(x) of one point, ``(k,)``."""
        check_point(x, self.space.shape)
        return feature_vector(self.features, x)

    def __call__(self, x: Array) -> Array:
        return -jnp.dot(self.natural, self.statistics(x))


def feature_vector(features: Callable[..., Any], x: Array) -> Array:
    """The features of one point as floating-point numbers ``(k,)``."""
    return jnp.atleast_1d(jnp.asarray(features(x), jnp.result_type(float)))


def count_features(features: Any, space: Space) -> int:
    """k; raises unless ``features`` is a function of one point that returns a number or ``(k,)`` numbers."""
    if not isinstance(space, Space) or isinstance(space, Product):
        raise ValueError(f"expected a space of one array such as tw.Real(2), got {space!r:.60}; give one")
    point = jax.ShapeDtypeStruct(space.shape, space.dtype)
    example = "lambda x: jnp.stack([x[0], x[0] * x[1]])"
    check_function("a function of one point as features", features, example, point)
    made = jax.eval_shape(features, point)
    if not hasattr(made, "shape") or len(made.shape) > 1 or 0 in made.shape:
        got = made.shape if hasattr(made, "shape") else type(made).__name__
        raise ValueError(f"expected features of shape (k,) or one number, got {got}; give for example {example}")
    return made.shape[0] if made.shape else 1
