"""Positive functions in place of the exponential: ``p(x) ∝ g(f(x))``."""

from collections.abc import Callable
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from thalweg.core import Energy, Space
from thalweg.energies.exponential_base import one_point
from thalweg.spaces import Product

Form = Literal["square", "absolute", "softplus", "exponential"]


class PositiveForm(Energy):
    r"""``p(x) ∝ g(f(x))`` as the energy ``E(x) = -log g(f(x))``, with one of four non-negative functions g.

    ======================  ======================  ===========================
    ``form``                ``g(f)``                ``E``
    ======================  ======================  ===========================
    ``"square"``            ``f²``                  ``-2 log |f|``
    ``"absolute"``          ``|f|``                 ``-log |f|``
    ``"softplus"``          ``log(1 + e^f)``        ``-log log(1 + e^f)``
    ``"exponential"``       ``e^f``                 ``-f``
    ======================  ======================  ===========================

    Where ``g(f) = 0`` the energy is ``+inf``. Whether ``∫g(f)dx`` is finite depends on f and the space.

    Args:
        function: f, a callable ``x -> scalar`` of one point; the arrays of an ``eqx.Module`` are trained.
        form: the name of g.
        space: where ``x`` lives, if known; by default the space of ``function`` if that is an `Energy`.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.PositiveForm(lambda x: x, "square", space=tw.Interval(0.0, 1.0))
    >>> float(tw.exact.log_z(energy)).__round__(4)  # log ∫x²dx = -log 3
    -1.0986
    """

    function: Callable[[Any], Array]
    form: Form = eqx.field(static=True)
    space: Space | None = eqx.field(static=True)

    def __init__(self, function: Any, form: Any = "square", space: Space | None = None):
        if not callable(function):
            raise ValueError(f"expected a callable x -> scalar, got {type(function).__name__}; wrap it in one")
        if not isinstance(form, str) or form not in get_args(Form):
            raise ValueError(f"expected a form among {', '.join(get_args(Form))}, got {form!r}; choose one of them")
        if space is not None and not isinstance(space, Space):
            raise ValueError(f"expected a space such as tw.Real(2), got {space!r:.80}; give an instance of one")
        known = function.space if isinstance(function, Energy) else None
        if space is not None and known is not None and space != known:
            raise ValueError(f"expected one space, got {space} for a function that lives on {known}; leave out `space`")
        self.function = function  # pyright: ignore[reportAttributeAccessIssue]
        self.form = form  # pyright: ignore[reportAttributeAccessIssue]
        self.space = known if space is None else space

    def __call__(self, x: Any) -> Array:
        known = self.space is not None and not isinstance(self.space, Product)
        f = jnp.asarray(self.function(one_point(self.space, x) if known else x))
        if f.shape != ():
            raise ValueError(f"expected a scalar from the function, got shape {f.shape}; sum over the remaining axes")
        f = f if jnp.issubdtype(f.dtype, jnp.floating) else f.astype(jnp.result_type(float))
        match self.form:
            case "square":
                return -2 * _log_absolute(f)
            case "absolute":
                return -_log_absolute(f)
            case "softplus":
                return -_log_softplus(f)
            case "exponential":
                return -f


def _log_absolute(f: Array) -> Array:
    """``log |f|``; -inf with gradient zero at f = 0. Subnormal numbers count as zero."""
    zero = jnp.abs(f) < jnp.finfo(f.dtype).tiny
    return jnp.where(zero, -jnp.inf, jnp.log(jnp.abs(jnp.where(zero, 1, f))))


def _log_softplus(f: Array) -> Array:
    """``log log(1 + e^f)``; for f < -10 the series ``f - t/2 + 5t²/24`` with ``t = e^f``, since softplus underflows."""
    below = f < -10.0
    # each branch is kept within its own range, so that the unused one brings no NaN into the gradient
    low, high = jnp.where(below, f, -10.0), jnp.where(below, -10.0, f)
    t = jnp.exp(low)
    return jnp.where(below, low - t / 2 + 5 * t**2 / 24, jnp.log(jax.nn.softplus(high)))
