"""Reading a user's model: its space, its energy, its score. A model stays of its own type."""

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core.checks import point_like, takes
from thalweg.core.contracts import (
    ConditionalEnergy,
    Energy,
    HasGiven,
    HasLogZ,
    HasSampler,
    LatentEnergy,
    ScoreNetwork,
    Space,
)
from thalweg.core.population import PerChain, model_of


def space_of(model: Any) -> Space | None:
    """The space of a model's points; ``None`` if the model does not have one.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> tw.space_of(tw.energies.Banana()).shape, tw.space_of(lambda x: jnp.sum(x**2))
    ((2,), None)
    """
    space = getattr(model, "space", None)
    return space if isinstance(space, Space) else None


class _FunctionEnergy(Energy):
    """A plain function with a space."""

    function: Callable[..., Array]
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: PyTree, *condition: Any) -> Array:
        return self.function(x, *condition)


class _FunctionScore(ScoreNetwork):
    function: Callable[..., Array]
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: PyTree, *condition: Any) -> PyTree:
        return self.function(x, *condition)


class _Density(HasLogZ, HasSampler):
    """A normalised density read as the energy ``-log_prob``: its log Z is 0."""

    density: Any
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: PyTree) -> Array:
        return -self.density.log_prob(x)

    @property
    def log_z(self) -> Array:
        return jnp.zeros(())

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return self.density.sample(key, shape)


class _FunctionConditional(ConditionalEnergy):
    """A plain function of (x, c)."""

    function: Callable[..., Array]
    space: Space | None = eqx.field(static=True)
    condition_space: Space | None = eqx.field(static=True)

    def __call__(self, x: PyTree, c: PyTree) -> Array:
        return self.function(x, c)


class _Given(Energy):
    energy: Callable[[PyTree, Any], Array]
    condition: PyTree
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: PyTree) -> Array:
        return self.energy(x, self.condition)


class _GivenScore(ScoreNetwork):
    network: Any
    condition: PyTree
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: PyTree) -> PyTree:
        return self.network(x, self.condition)


def as_energy(model: Any, space: Space | None = None) -> Any:
    """``model`` with a space. It keeps its other abilities: ``log_z``, ``sample``, its own fields and methods.

    A plain function becomes an `Energy`; a module stays of its own type; without ``space`` the model is returned as it
    is. Samplers and `fit` take any callable, so this is needed only to give the model a space.

    Args:
        model: a plain function, a closure, or an ``eqx.Module`` (its arrays are then the parameters).
        space: where ``x`` lives; samplers and exact sums use it.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> energy = tw.as_energy(lambda x: 0.5 * jnp.sum(x**2), space=tw.Real(2))
    >>> float(energy(jnp.array([3.0, 4.0])))
    12.5
    """
    require_energy("as_energy", model)
    if space is None:
        return model
    _check_space(space)
    known = space_of(model)
    if known is not None:
        if known != space:
            raise ValueError(f"expected one space, got {space} for an energy that lives on {known}; leave out `space`")
        return model
    return _with_space(model, space) if isinstance(model, eqx.Module) else _FunctionEnergy(model, space)  # pyright: ignore[reportArgumentType]


def _check_space(space: Any) -> None:
    """Raise if ``space`` is neither a `Space` nor ``None``."""
    if space is not None and not isinstance(space, Space):
        raise ValueError(f"expected a space such as tw.Real(2), got {space!r:.80}; give an instance of one")


def _with_space(model: eqx.Module, space: Space) -> eqx.Module:
    """A module with a space: in its own field ``space``, or as an instance of a subclass that has the space."""
    kind = type(model)
    names = [field.name for field in dataclasses.fields(model)]
    if "space" not in names:
        kind = _subclass_on(kind, space)
    made = object.__new__(kind)
    for name in names:
        if name in vars(model):
            object.__setattr__(made, name, vars(model)[name])
    if "space" in names:
        object.__setattr__(made, "space", space)
    return made


@lru_cache
def _subclass_on(kind: type, space: Space) -> type:
    """A subclass of ``kind`` whose points live in ``space``."""
    own = {"space": property(lambda self: space), "__reduce__": lambda self: (rebuild_on, (kind, space, vars(self)))}
    own |= {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    return type(kind)(kind.__name__, (kind,), own)


def rebuild_on(kind: type, space: Space, fields: dict[str, Any]) -> Any:
    """An instance of a class made by `_subclass_on`, from its fields: what ``pickle`` calls."""
    made = object.__new__(_subclass_on(kind, space))
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def as_score(function: Any, space: Space | None = None) -> ScoreNetwork:
    """Any callable ``x -> array of x's shape`` as a `ScoreNetwork`.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> network = tw.as_score(lambda x: -x)
    >>> tw.score(network, jnp.ones(2)).tolist()
    [-1.0, -1.0]
    """
    _check_space(space)
    if isinstance(function, ScoreNetwork):
        return function
    if isinstance(function, type) or not callable(function):
        raise ValueError(f"expected a score, a callable x -> array like x, got {function!r}; wrap it in one")
    return _FunctionScore(function=function, space=space)  # pyright: ignore[reportArgumentType]


def from_density(density: Any, space: Space | None = None) -> Energy:
    """A normalised density with ``log_prob(x)`` and ``sample(key, shape)`` as the energy ``E(x) = -log p(x)``.

    For flows and distributions of flowjax, and any other object with these two methods.

    >>> import jax, thalweg as tw
    >>> from flowjax.distributions import StandardNormal
    >>> energy = tw.from_density(StandardNormal((2,)))
    >>> energy.sample(jax.random.key(0), (5,)).shape
    (5, 2)
    """
    _check_space(space)
    for method in ("log_prob", "sample"):
        if isinstance(density, type) or not callable(getattr(density, method, None)):
            got = density.__name__ if isinstance(density, type) else type(density).__name__
            raise ValueError(
                f"expected a density with log_prob(x) and sample(key, shape), got {got} without "
                f"{method}; use as_energy for an unnormalised function"
            )
    return _Density(density, space_of(density) if space is None else space)


def as_conditional(
    function: Callable[[Any, Any], Array], space: Space | None = None, condition_space: Space | None = None
) -> ConditionalEnergy:
    """Any callable ``(x, c) -> scalar`` as a `ConditionalEnergy`, which `fit` trains on ``(x, c)``.

    Args:
        function: a plain function, or an ``eqx.Module`` (its arrays are then the parameters).
        space: where x lives, if known.
        condition_space: where c lives, if known.

    >>> import jax.numpy as jnp
    >>> from thalweg.core import as_conditional
    >>> energy = as_conditional(lambda x, c: 0.5 * jnp.sum((x - c) ** 2))
    >>> float(energy(jnp.ones(1), jnp.zeros(1)))
    0.5
    """
    _check_space(space)
    _check_space(condition_space)
    if isinstance(function, ConditionalEnergy):
        return function
    if isinstance(function, type) or not callable(function):
        raise ValueError(f"expected a callable (x, c) -> scalar, got {function!r}; give a function of two arguments")
    return _FunctionConditional(function, space_of(function) if space is None else space, condition_space)  # pyright: ignore[reportArgumentType]


def split_batch(energy: Any, batch: PyTree) -> tuple[PyTree, PyTree | None]:
    """The points of a batch and their conditions; conditions are ``None`` unless the model is a `ConditionalEnergy`."""
    if not isinstance(energy, ConditionalEnergy):
        return batch, None
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise ValueError(
            f"expected batches (x, c) for the conditional energy {type(energy).__name__}, got one without conditions; "
            "give data=(x, c), or fix the condition by tw.given(energy, c)"
        )
    return batch[0], batch[1]


def bind(energy: Any, conditions: PyTree | None) -> Any:
    """The energy at ``conditions`` ``(rows, ...)``, one for each row; the energy itself if there are none.

    >>> import jax.numpy as jnp
    >>> from thalweg.core import as_conditional, bind, energies
    >>> model = as_conditional(lambda x, c: c * jnp.sum(x))
    >>> energies(bind(model, jnp.array([1.0, 2.0])), jnp.ones((2, 3))).tolist()
    [3.0, 6.0]
    """
    return energy if conditions is None else PerChain(given, energy, conditions, space_of(energy))


def bind_batch(energy: Any, batch: PyTree) -> tuple[Any, PyTree]:
    """The energy of every row of a batch, and the points of the rows: `split_batch`, then `bind`."""
    x, conditions = split_batch(energy, batch)
    return bind(energy, conditions), x


def given(model: Callable, condition: PyTree) -> Any:
    """A conditional energy (or score network) of ``(x, c)`` with ``c`` fixed: a function of one point.

    ``c`` is an array leaf, so a change of label or noise level does not recompile anything.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> noisy = lambda x, sigma: 0.5 * jnp.sum(x**2) / sigma**2
    >>> float(tw.given(noisy, 0.5)(jnp.ones(2)))
    4.0
    """
    if isinstance(model, type) or not callable(model):
        raise ValueError(f"expected a conditional energy, a callable (x, c) -> scalar, got {model!r}; give one")
    if not takes(model, 2):
        name = getattr(model, "__name__", type(model).__name__)
        raise ValueError(
            f"expected a conditional energy of (x, c), got {name} with other arguments; leave out tw.given"
        )
    if condition is None:
        raise ValueError("expected a condition, got None; give a value for c")
    condition = _as_arrays("the condition", condition)
    if isinstance(model, ConditionalEnergy) and model.condition_space is not None:
        check_condition(model.condition_space, condition)
    if isinstance(model, HasGiven):
        return model.given(condition)
    if isinstance(model, ScoreNetwork):
        return _GivenScore(network=model, condition=condition, space=space_of(model))
    return _Given(energy=model, condition=condition, space=space_of(model))


def _as_arrays(name: str, tree: PyTree) -> PyTree:
    """A tree with its leaves as arrays, refused where one cannot be an array of numbers."""
    try:
        return jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf), tree)
    except Exception:  # whatever the conversion of a foreign object raises
        raise ValueError(
            f"expected arrays of numbers as {name}, got {type(tree).__name__} with something else; give an array"
        ) from None


def check_condition(space: Space, condition: PyTree) -> None:
    """Raise if one condition does not have the shape of its space."""
    got = jax.tree.map(jnp.shape, condition)
    if got != space.shape:
        raise ValueError(f"expected a condition of shape {space.shape} on {space}, got {got}; give one of that space")


def score(model: Any, x: PyTree) -> PyTree:
    """``∇ₓ log p(x) = -∇ₓ E(x)`` at one point, for an energy, a plain function or a score network.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> tw.score(lambda x: 0.5 * jnp.sum(x**2), jnp.array([1.0, -2.0])).tolist()
    [-1.0, 2.0]
    """
    require_model("score", model)
    for leaf in jax.tree.leaves(_as_arrays("x", x)):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(
                f"expected a point of floating-point numbers, got {leaf.dtype}; convert with x.astype(float)"
            )
    if isinstance(model, ScoreNetwork):
        return model(x)
    check_scalar(
        model, jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *jnp.shape(leaf)), jnp.result_type(leaf)), x)
    )
    return jax.tree.map(jnp.negative, jax.grad(model)(x))


def require_energy(name: str, model: Any) -> None:
    """Raise if ``model`` is not an energy of one point; ``name`` is the caller, for the message."""
    if isinstance(model, ScoreNetwork):
        raise ValueError(
            f"{name}: expected an energy, got the score network {type(model).__name__}: a vector field has no energy; "
            "use an unadjusted kernel (Langevin), which takes both"
        )
    require_model(name, model)


def require_model(name: str, model: Any) -> None:
    """Raise if ``model`` is neither an energy nor a score network; ``name`` is the caller, for the message."""
    if isinstance(model, PerChain):
        return
    if isinstance(model, type):
        raise ValueError(
            f"{name}: expected an energy, got the class {model.__name__}; create an instance: {model.__name__}(...)"
        )
    if not callable(model):
        raise ValueError(
            f"{name}: expected an energy, a callable x -> scalar, got {type(model).__name__}; wrap it in one"
        )


def check_scalar(model: Any, x: PyTree) -> None:
    """Raise if an energy does not return a scalar (or a score does not have the shape of the point); only traces it.

    ``x`` are points ``(n, *event)``.
    """
    point = point_like(x)
    shapes = jax.tree.map(lambda leaf: leaf.shape, point)
    if isinstance(model, PerChain):
        parameter = point_like(model.parameters)
        out = _shape_of(lambda x, parameter: model.at(parameter)(x), point, parameter)
    else:
        out = _shape_of(model, point)
    if isinstance(model_of(model), ScoreNetwork):
        got = jax.tree.map(lambda leaf: jnp.shape(leaf) if not hasattr(leaf, "shape") else leaf.shape, out)
        if got != shapes:
            raise ValueError(f"expected a score of the point's shape {shapes}, got {got}; return an array like x")
        return
    shape = getattr(out, "shape", None)
    if shape != ():
        raise ValueError(
            f"expected an energy to return a scalar for one point of shape {shapes}, got shape {shape}; "
            "sum over the point's coordinates (batching is done for you)"
        )
    if jnp.issubdtype(out.dtype, jnp.complexfloating):
        raise ValueError("expected an energy to return a real scalar, got a complex one; take its real part")


def _shape_of(model: Any, *arguments: Any) -> Any:
    """The shape of what a model returns for one point, without computing it; raises if it takes other arguments."""
    try:
        return eqx.filter_eval_shape(model, *arguments)
    except TypeError as problem:
        if "positional argument" not in str(problem):
            raise
        name = getattr(model, "__name__", type(model).__name__)
        missing = isinstance(model, (ConditionalEnergy, LatentEnergy)) or "missing" in str(problem)
        way_out = "write it as a function of one point"
        if missing:
            way_out = "fix its condition by tw.given(energy, c), or train p(x|c) with tw.core.as_conditional(energy)"
        raise ValueError(f"expected an energy of one point x, got {name} with other arguments; {way_out}") from problem
