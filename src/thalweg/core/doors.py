"""The doors: a user's callables become energies or score networks here, and a user's numbers are looked at."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core.contracts import Energy, HasLogZ, HasSampler, ScoreNetwork, Space


class _FunctionEnergy(Energy):
    """A callable at the door: a function stays static, a module's arrays stay parameters."""

    function: Callable[..., Array]
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: Array, *condition: Any) -> Array:
        return self.function(x, *condition)


class _FunctionScore(ScoreNetwork):
    function: Callable[..., Array]
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: Array, *condition: Any) -> Array:
        return self.function(x, *condition)


class _Density(HasLogZ, HasSampler):
    """A normalised density read as the energy ``-log_prob``: its log Z is 0."""

    density: Any
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return -self.density.log_prob(x)

    @property
    def log_z(self) -> Array:
        return jnp.zeros(())

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return self.density.sample(key, shape)


class _Given(Energy):
    energy: Callable[[Array, Any], Array]
    condition: PyTree
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return self.energy(x, self.condition)


class _GivenScore(ScoreNetwork):
    network: Any
    condition: PyTree
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return self.network(x, self.condition)


def as_energy(function: Any, space: Space | None = None) -> Energy:
    """Any callable ``x -> scalar`` as an `Energy`; an `Energy` passes through unchanged.

    Args:
        function: a plain function, a closure, or an ``eqx.Module`` (its arrays are then the parameters).
        space: where ``x`` lives, if known; samplers and exact sums use it.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> energy = tw.as_energy(lambda x: 0.5 * jnp.sum(x**2), space=tw.Real(2))
    >>> float(energy(jnp.array([3.0, 4.0])))
    12.5
    """
    if isinstance(function, Energy):
        if space is not None and function.space is not None and space != function.space:
            raise ValueError(
                f"expected one space, got {space} for an energy that lives on {function.space}; leave out `space`"
            )
        return (
            function if space is None or function.space is not None else _FunctionEnergy(function=function, space=space)
        )
    if isinstance(function, ScoreNetwork):
        raise ValueError(
            f"expected an energy, got the score network {type(function).__name__}: a vector field has no energy; "
            "use an unadjusted kernel (Langevin), which takes both"
        )
    if not callable(function):
        raise ValueError(f"expected an energy, a callable x -> scalar, got {type(function).__name__}; wrap it in one")
    return _FunctionEnergy(function=function, space=space)  # pyright: ignore[reportArgumentType]


def as_score(function: Any, space: Space | None = None) -> ScoreNetwork:
    """Any callable ``x -> array of x's shape`` as a `ScoreNetwork`.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> network = tw.as_score(lambda x: -x)
    >>> tw.score(network, jnp.ones(2)).tolist()
    [-1.0, -1.0]
    """
    return function if isinstance(function, ScoreNetwork) else _FunctionScore(function=function, space=space)


def as_model(model: Any) -> Energy | ScoreNetwork:
    """What an unadjusted kernel takes: a score network as it is, anything else as an energy."""
    return model if isinstance(model, ScoreNetwork) else as_energy(model)


def from_density(density: Any, space: Space | None = None) -> Energy:
    """A normalised density with ``log_prob(x)`` and ``sample(key, shape)`` as the energy ``E(x) = -log p(x)``.

    Flows and distributions of flowjax enter here, as does anything else with those two methods.

    >>> import jax, thalweg as tw
    >>> from flowjax.distributions import StandardNormal
    >>> energy = tw.from_density(StandardNormal((2,)))
    >>> energy.sample(jax.random.key(0), (5,)).shape
    (5, 2)
    """
    for method in ("log_prob", "sample"):
        if not callable(getattr(density, method, None)):
            raise ValueError(
                f"expected a density with log_prob(x) and sample(key, shape), got {type(density).__name__} without "
                f"{method}; use as_energy for an unnormalised function"
            )
    return _Density(density, space)


def given(model: Callable, condition: PyTree, space: Space | None = None) -> Any:
    """A conditional energy (or score network) of ``(x, c)`` with ``c`` fixed: a function of one point again.

    ``c`` is an array leaf, so another label or noise level does not recompile anything.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> noisy = lambda x, sigma: 0.5 * jnp.sum(x**2) / sigma**2
    >>> float(tw.given(noisy, 0.5)(jnp.ones(2)))
    4.0
    """
    known = model.space if isinstance(model, (Energy, ScoreNetwork)) else None
    condition = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, (int, float)) else leaf, condition)
    where = known if space is None else space
    if isinstance(model, ScoreNetwork):
        return _GivenScore(network=model, condition=condition, space=where)
    return _Given(energy=model, condition=condition, space=where)


def score(model: Any, x: Array) -> Array:
    """``∇ₓ log p(x) = -∇ₓ E(x)`` at one point, of an energy, a plain function or a score network.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> tw.score(lambda x: 0.5 * jnp.sum(x**2), jnp.array([1.0, -2.0])).tolist()
    [-1.0, 2.0]
    """
    model = as_model(model)
    return model(x) if isinstance(model, ScoreNetwork) else -jax.grad(model)(x)


def is_concrete(value: Any) -> bool:
    """Whether a number can be looked at now, which it cannot while a function is being traced."""
    return not isinstance(value, Tracer)


def positive(name: str, value: Any) -> Array:
    """``value`` as a floating array leaf, refused where it is not a finite number above zero."""
    array = jnp.asarray(value, dtype=jnp.result_type(float))
    if is_concrete(array) and not np.all(np.isfinite(array) & (np.asarray(array) > 0)):
        raise ValueError(f"expected {name} > 0, got {value}; give a positive number")
    return array
