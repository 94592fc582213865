r"""Convex functions ψ of a density ratio u; each defines a Bregman divergence.

Everything is computed from ``log u``: ``S1 = ψ'(u)`` and ``S0 = uψ'(u) - ψ(u)``, with ``dS0 = u·dS1``.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from thalweg.core import Module, finite, is_concrete

# where a user's ψ is checked: u from 1/1000 to 1000
_LOG_U = np.linspace(-np.log(1e3), np.log(1e3), 241, dtype=np.float32)
# rounding error of a derivative in single precision, relative to its terms
_ROUNDING, _TINY = 1e-4, 1e-30


class AbstractPsi(Module):
    """A convex function ψ of a ratio u > 0, given by ``S1`` and ``S0`` as functions of ``log u``."""

    @abc.abstractmethod
    def s1(self, log_u: Array) -> Array:
        """``ψ'(u)``."""

    @abc.abstractmethod
    def s0(self, log_u: Array) -> Array:
        """``uψ'(u) - ψ(u)``."""

    @property
    def curvature(self) -> Array:
        """``ψ''(1)``, the factor between the gradient of `AdaBregman` at interval 1 and that of maximum likelihood."""
        return jax.grad(self.s1)(jnp.zeros(()))


class Logistic(AbstractPsi):
    """``ψ = u log u - (1+u) log(1+u)``: ``S1 = -softplus(-log u)``, ``S0 = softplus(log u)``. This gives NCE.

    The values and their gradients are finite for any log u.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> float(tw.objectives.Logistic().s0(jnp.array(1e4)))
    10000.0
    """

    def s1(self, log_u: Array) -> Array:
        return -jax.nn.softplus(-log_u)

    def s0(self, log_u: Array) -> Array:
        return jax.nn.softplus(log_u)


class KullbackLeibler(AbstractPsi):
    """``ψ = u log u``: ``S1 = 1 + log u``, ``S0 = u``. Unnormalised maximum likelihood by importance sampling.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> float(tw.objectives.KullbackLeibler().s1(jnp.array(2.0)))
    3.0
    """

    def s1(self, log_u: Array) -> Array:
        return 1 + log_u

    def s0(self, log_u: Array) -> Array:
        return jnp.exp(log_u)


class Squared(AbstractPsi):
    """``ψ = u²/2``: ``S1 = u``, ``S0 = u²/2``. Least-squares ratio fitting (Kanamori, Hido and Sugiyama 2009).

    >>> import jax.numpy as jnp, thalweg as tw
    >>> float(tw.objectives.Squared().s0(jnp.array(0.0)))
    0.5
    """

    def s1(self, log_u: Array) -> Array:
        return jnp.exp(log_u)

    def s0(self, log_u: Array) -> Array:
        return 0.5 * jnp.exp(2 * log_u)


class ItakuraSaito(AbstractPsi):
    """``ψ = -log u``: ``S1 = -1/u``, ``S0 = log u - 1``. Grows where the model is too low on the data.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> float(tw.objectives.ItakuraSaito().s1(jnp.array(0.0)))
    -1.0
    """

    def s1(self, log_u: Array) -> Array:
        return -jnp.exp(-log_u)

    def s0(self, log_u: Array) -> Array:
        return log_u - 1


class Power(AbstractPsi):
    r"""``ψ = (u^{1+β} - (1+β)u + β) / (β(1+β))``: ``S1 = (u^β - 1)/β``, ``S0 = (u^{1+β} - 1)/(1+β)``.

    ``ψ''(1) = 1`` for every β. At β = 0 it is `KullbackLeibler`, at 1 `Squared`, at -1 `ItakuraSaito`, each up to
    constants of the loss. Reference: Basu et al. (1998), Biometrika 85.

    Args:
        beta: β, any number.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> float(tw.objectives.Power(0.0).s1(jnp.array(2.0))), float(tw.objectives.Power(1.0).s1(jnp.array(0.0)))
    (2.0, 0.0)
    """

    beta: Array = eqx.field(converter=lambda value: finite("beta", value, scalar=True))

    def s1(self, log_u: Array) -> Array:
        return _power(self.beta, log_u)

    def s0(self, log_u: Array) -> Array:
        return _power(1 + self.beta, log_u)


class Custom(AbstractPsi):
    r"""Any convex ψ, given as a function of u > 0 that JAX can differentiate, or by its S0 and S1.

    It is checked between u = 1/1000 and 1000: construction raises if ψ is not convex there, or if S0 and S1 do not
    belong to the same ψ (``dS0 = u·dS1`` must hold).

    Args:
        psi: ``psi(u) -> scalar``.
        s1: ``s1(log_u) -> scalar``, together with ``s0`` instead of ``psi``, for when u itself would overflow.
        s0: ``s0(log_u) -> scalar``.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> pearson = tw.objectives.Custom(lambda u: (u - 1) ** 2)
    >>> float(pearson.s1(jnp.log(3.0))), float(pearson.curvature)
    (4.0, 2.0)
    """

    psi: Callable[[Array], Array] | None
    slope: Callable[[Array], Array] | None
    rest: Callable[[Array], Array] | None

    def __init__(
        self,
        psi: Callable[[Array], Array] | None = None,
        *,
        s1: Callable[[Array], Array] | None = None,
        s0: Callable[[Array], Array] | None = None,
    ):
        if (psi is None) == (s1 is None) or (s1 is None) != (s0 is None):
            raise ValueError("expected psi, or s1 and s0 together, got something else; give one or the other")
        for name, given in (("psi", psi), ("s1", s1), ("s0", s0)):
            if given is not None and (isinstance(given, type) or not callable(given)):
                raise ValueError(f"expected {name} to be a function of one number, got {given!r:.60}; give a callable")
            if given is not None:
                _require_number(name, given)
        self.psi, self.slope, self.rest = psi, s1, s0
        _require_convex(self)

    def s1(self, log_u: Array) -> Array:
        if self.slope is not None:
            return _each(self.slope, log_u)
        return _each(jax.grad(self.psi), jnp.exp(log_u))  # pyright: ignore[reportArgumentType]

    def s0(self, log_u: Array) -> Array:
        if self.rest is not None:
            return _each(self.rest, log_u)
        psi: Any = self.psi

        def one(u):
            value, slope = jax.value_and_grad(psi)(u)
            return u * slope - value

        return _each(one, jnp.exp(log_u))


def as_psi(psi: Any) -> AbstractPsi:
    """A ψ itself; a function of u as `Custom`; ``None`` as `Logistic`."""
    if psi is None:
        return Logistic()
    if isinstance(psi, AbstractPsi):
        return psi
    if not callable(psi) or isinstance(psi, type):
        raise ValueError(f"expected a psi such as Squared(), or a convex function of u > 0, got {psi!r}; give one")
    return Custom(psi)  # pyright: ignore[reportArgumentType]


def _each(function: Callable[[Array], Array], values: Array) -> Array:
    """``function`` of every entry."""
    return jnp.vectorize(function)(values)


def _require_number(name: str, function: Callable[[Array], Array]) -> None:
    """Refuse a function that does not take one number, or does not return one."""
    try:
        made = jax.eval_shape(function, jax.ShapeDtypeStruct((), jnp.result_type(float)))
    except TypeError as problem:
        raise ValueError(
            f"expected {name} to be a function of one number, got one that fails there: {problem!s:.80}; mend it"
        ) from problem
    if getattr(made, "shape", None) != () or not jnp.issubdtype(made.dtype, jnp.floating):
        raise ValueError(f"expected {name} to return one real number, got {made!r:.60}; return a scalar")


def _power(a: Array, log_u: Array) -> Array:
    """``(u^a - 1)/a``, which is ``log u`` at ``a = 0``."""
    t = a * log_u
    small = jnp.abs(t) < 1e-2
    series = 1 + t / 2 * (1 + t / 3 * (1 + t / 4))
    # the unused branch must stay finite, because its gradient would otherwise be NaN
    safe = jnp.where(small, 1.0, t)
    return log_u * jnp.where(small, series, jnp.expm1(safe) / safe)


def _require_convex(psi: Custom) -> None:
    """Raise if ψ is not convex, or if S0 does not belong to S1."""
    both = [jax.vmap(jax.value_and_grad(s))(jnp.asarray(_LOG_U)) for s in (psi.s1, psi.s0)]
    if not all(is_concrete(leaf) for leaf in jax.tree.leaves(both)):
        return
    ((s1, bend), (s0, bend0)), u = np.asarray(both, np.float64), np.exp(_LOG_U, dtype=np.float64)
    # where ψ overflows or underflows in single precision, nothing can be checked
    known = np.isfinite([s1, s0, bend, bend0]).all(axis=0)
    s1, s0, bend, bend0, u = (values[known] for values in (s1, s0, bend, bend0, u))
    # the size of the terms whose difference is uψ''
    size = np.abs(s1) + np.abs(s0) / u + _TINY
    down = bend < -_ROUNDING * size
    if down.any() or not np.any(bend > _ROUNDING * size):
        where = f"psi''(u) < 0 at u = {u[np.argmax(down)]:.3g}" if down.any() else "psi'' = 0 everywhere"
        raise ValueError(f"expected a convex psi, got {where}; give a convex function such as u²/2")
    apart = np.abs(bend0 - u * bend) > 10 * _ROUNDING * (np.abs(bend0) + u * np.abs(bend) + u * size)
    if apart.any():
        raise ValueError(
            f"expected s0 and s1 of one psi, with ds0 = u·ds1, got {bend0[np.argmax(apart)]:.3g} and "
            f"{(u * bend)[np.argmax(apart)]:.3g} at u = {u[np.argmax(apart)]:.3g}; give s0 = u·psi' - psi"
        )
