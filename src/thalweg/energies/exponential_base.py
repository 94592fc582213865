"""The base class of the exponential family, and checks of its parameters."""

import abc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from thalweg.core import HasLogZ, HasSampler, Space, check_point, is_concrete
from thalweg.energies.analytic import HasMoments


class AbstractExponentialFamily(HasLogZ, HasSampler, HasMoments):
    r"""``p(x) = h(x) exp(θ·T(x) - A(θ))`` as the energy ``E(x) = -θ·T(x) - log h(x)`` with ``log Z = A(θ)``.

    θ are the natural parameters, T(x) the sufficient statistics, a tree of the same structure, and h(x) the base
    measure. Outside the support the energy is ``+inf``. The arrays that a subclass stores (logarithms, logits) may take
    any real value, so gradient training keeps every parameter valid; the usual parameters are properties.
    Reference: Wainwright and Jordan (2008), "Graphical Models, Exponential Families, and Variational Inference", ch. 3.
    """

    @property
    @abc.abstractmethod
    def natural(self) -> PyTree:
        """θ, an array or a tuple of arrays."""

    @classmethod
    @abc.abstractmethod
    def from_natural(cls, natural: PyTree) -> "AbstractExponentialFamily":
        """The energy with natural parameters θ, of the structure of `natural`."""

    @abc.abstractmethod
    def sufficient(self, x: Array) -> PyTree:
        """T(x) of one point inside the support, of the structure of `natural`."""

    @property
    @abc.abstractmethod
    def mean_statistics(self) -> PyTree:
        """``E[T(x)] = ∇A(θ)``, of the structure of `natural`."""

    @property
    @abc.abstractmethod
    def variance(self) -> Array:
        """The variance of every coordinate, of the event's shape."""

    @property
    def covariance(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The covariance, of the event's shape twice; diagonal if the coordinates are independent."""
        return jnp.diag(self.variance.reshape(-1)).reshape(self.variance.shape * 2)

    @property
    def entropy(self) -> Array:
        """``H(p) = A(θ) - θ·E[T(x)] - E[log h(x)]`` in nats, differential on continuous spaces."""
        return self.log_z - _dot(self.natural, self.mean_statistics)

    def log_base(self, x: Array) -> Array:
        """``log h(x)`` of one point inside the support; zero except for `Poisson`."""
        return jnp.zeros((), x.dtype)

    def __call__(self, x: Array) -> Array:
        x = one_point(self.space, x)
        inside = self._inside(jax.lax.stop_gradient(x))
        # outside the support the formula is evaluated at the mean, so that no NaN can enter a gradient
        x = jnp.where(inside, x, self.mean)
        return jnp.where(inside, -_dot(self.natural, self.sufficient(x)) - self.log_base(x), jnp.inf)

    def _inside(self, x: Array) -> Array:
        """Whether one point lies in the support."""
        assert self.space is not None
        return self.space.contains(x) & jnp.all(jnp.isfinite(x))


def _dot(natural: PyTree, statistics: PyTree) -> Array:
    """``θ·T``, summed over all entries."""
    return jax.tree.reduce(jnp.add, jax.tree.map(lambda theta, t: jnp.sum(theta * t), natural, statistics))


def one_point(space: Space | None, x: Any) -> Array:
    """``x`` as one floating-point point of the space's shape; raises for a batch."""
    if space is not None:
        check_point(x, space.shape)
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.result_type(float))


def above_zero(x: Array) -> Array:
    """``x``, with the smallest positive number in place of an exact zero, which can result from rounding."""
    return jnp.maximum(x, jnp.finfo(x.dtype).tiny)


def as_parameter(name: str, value: Any) -> Array:
    """``value`` as a floating-point array; raises unless it is finite and real (a traced array is checked by type)."""
    leaves = jax.tree.leaves(value) if isinstance(value, (tuple, list)) else [value]
    if any(isinstance(leaf, np.ma.MaskedArray) for leaf in leaves):
        raise ValueError(f"expected plain numbers as {name}, got a masked array; fill its masked entries first")
    concrete = all(is_concrete(leaf) for leaf in leaves)
    try:
        array = np.asarray(value) if concrete else jnp.asarray(value)
    except Exception:  # a foreign object's conversion may raise anything
        raise ValueError(
            f"expected a number or an array as {name}, got {_describe(value)}; give real numbers"
        ) from None
    if not jnp.issubdtype(array.dtype, jnp.floating) and not jnp.issubdtype(array.dtype, jnp.integer):
        raise ValueError(f"expected real numbers as {name}, got {_describe(value)}; give a number or an array")
    if array.size == 0:
        raise ValueError(f"expected at least one number as {name}, got shape {array.shape}; give one per coordinate")
    if concrete:
        with np.errstate(over="ignore"):
            array = np.asarray(array, jnp.result_type(float))
        refuse_where(~np.isfinite(array), array, f"a finite {name}", "give finite numbers")
    return jnp.asarray(array, jnp.result_type(float))


def as_positive(name: str, value: Any) -> Array:
    """``value`` as a floating-point array of numbers above zero."""
    array = as_parameter(name, value)
    if is_concrete(array):
        # some devices treat subnormal numbers as zero
        numbers = np.asarray(array)
        refuse_where(numbers < np.finfo(numbers.dtype).tiny, numbers, f"every {name} > 0", "give positive numbers")
    return array


def refuse_where(bad: np.ndarray | np.bool_, numbers: np.ndarray, expected: str, fix: str) -> None:
    """Raise ``ValueError`` with the first bad number, if there is one."""
    if bad.any():
        raise ValueError(f"expected {expected}, got {numbers[bad][0]}; {fix}")


def as_one_shape(**parameters: Array) -> list[Array]:
    """The parameters broadcast to the event's shape."""
    try:
        return list(jnp.broadcast_arrays(*parameters.values()))
    except ValueError:
        names, shapes = " and ".join(parameters), " and ".join(str(each.shape) for each in parameters.values())
        raise ValueError(f"expected {names} of shapes that broadcast, got {shapes}; make the sizes agree") from None


def as_pair(natural: Any) -> tuple[Any, Any]:
    """Two natural parameters as a pair; raises for an array with two rows, which would silently unpack."""
    if not isinstance(natural, (tuple, list)) or len(natural) != 2:
        raise ValueError(
            f"expected natural parameters as a tuple of two, got {_describe(natural)}; give (theta_1, theta_2)"
        )
    return natural[0], natural[1]


def _describe(value: Any) -> str:
    if isinstance(value, (jax.Array, np.ndarray)):
        return f"an array of {value.dtype} {value.shape}"
    return f"{value!r:.60}"
