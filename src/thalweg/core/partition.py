"""Trees split in two: trainable arrays and the rest, or arrays and static values; and ``jit`` by the latter split."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from paramax import NonTrainable

# the number of compiled programs kept for each function; a user's function is part of the cache key, so without a
# bound every new lambda would add one more program
_PROGRAMS = 32
_ARRAYS = (jax.Array, np.ndarray, np.generic)


def partition_trainable(tree: PyTree) -> tuple[PyTree, PyTree]:
    """``tree`` split into what is trained (floating-point arrays outside ``paramax.NonTrainable``) and the rest.

    >>> import jax, jax.numpy as jnp
    >>> from thalweg.core import combine, partition_trainable
    >>> trained, rest = partition_trainable({"weight": jnp.ones(2), "count": jnp.array(3)})
    >>> len(jax.tree.leaves(trained)), int(combine(trained, rest)["count"])
    (1, 3)
    """
    return eqx.partition(tree, eqx.is_inexact_array, is_leaf=_fixed)


def combine(trainable: PyTree, rest: PyTree) -> PyTree:
    """The inverse of `partition_trainable`."""
    return eqx.combine(trainable, rest, is_leaf=_fixed)


def _fixed(node: Any) -> bool:
    return isinstance(node, NonTrainable)


def freeze(tree: PyTree) -> PyTree:
    """``tree`` with its arrays as constants: they get no gradient, but a gradient in ``x`` still flows through."""
    return eqx.combine(jax.lax.stop_gradient(eqx.filter(tree, eqx.is_inexact_array)), tree)


def with_gradient(model: Any, gradient: PyTree) -> Array:
    """Zero, with the given gradient in the model's parameters: adds a gradient known in closed form to a loss.

    Args:
        model: anything with parameters.
        gradient: of the structure of ``partition_trainable(model)[0]``.

    >>> import jax, jax.numpy as jnp
    >>> from thalweg.core import with_gradient
    >>> loss = lambda weight: 3.0 + with_gradient({"weight": weight}, {"weight": jnp.array([1.0, -2.0])})
    >>> value, gradient = jax.value_and_grad(loss)(jnp.zeros(2))
    >>> float(value), gradient.tolist()
    (3.0, [1.0, -2.0])
    """
    parts = jax.tree.map(lambda leaf, slope: jnp.vdot(slope, leaf), partition_trainable(model)[0], gradient)
    total = sum(jax.tree.leaves(parts), jnp.zeros(()))
    return total - jax.lax.stop_gradient(total)


class Form(NamedTuple):
    """The part of a tree that is not arrays, as a static argument of ``jax.jit``: the other leaves, their types (1, 1.0
    and True are equal), and the structure."""

    others: tuple[Any, ...]
    kinds: tuple[type, ...]
    structure: Any


def split_static(tree: PyTree) -> tuple[list[Any], Form]:
    """The arrays of ``tree`` and its static rest, for a plain ``jax.jit``.

    Equinox's ``filter_jit`` does the same with more overhead: a quarter of a millisecond per training update.

    >>> import jax.numpy as jnp
    >>> from thalweg.core import merge_static, split_static
    >>> arrays, form = split_static({"weight": jnp.ones(2), "name": "tanh"})
    >>> merge_static(arrays, form)["name"]
    'tanh'
    """
    leaves, structure = jax.tree.flatten(tree)
    arrays = [leaf if isinstance(leaf, _ARRAYS) else None for leaf in leaves]
    others = tuple([None if isinstance(leaf, _ARRAYS) else leaf for leaf in leaves])
    return arrays, Form(others, tuple(map(type, others)), structure)


def merge_static(arrays: list[Any], form: Form) -> PyTree:
    """The inverse of `split_static`."""
    leaves = [other if array is None else array for array, other in zip(arrays, form.others, strict=True)]
    return jax.tree.unflatten(form.structure, leaves)


def compiled(function: Callable[..., PyTree], donate: tuple[int, ...] = ()) -> Callable[..., PyTree]:
    """``function`` under ``jax.jit``: arrays in its arguments are traced, everything else is static.

    Only the newest programs are kept, so memory stays bounded even if every call brings a new function (a lambda as an
    energy).

    Args:
        function: of trees, returning a tree of arrays.
        donate: positions of the arguments whose buffers may be overwritten.

    >>> import jax.numpy as jnp
    >>> from thalweg.core import compiled
    >>> apply = compiled(lambda function, x: function(x))
    >>> float(apply(jnp.sum, jnp.ones(3)))
    3.0
    """

    @lru_cache(_PROGRAMS)
    def program(forms: tuple[Form, Form]) -> Callable[..., PyTree]:
        def run(held, given_up):
            arguments = [*merge_static(held, forms[0])]
            for place, argument in zip(donate, merge_static(given_up, forms[1]), strict=True):
                arguments.insert(place, argument)
            return function(*arguments)

        return jax.jit(run, donate_argnums=(1,) if donate else ())

    @wraps(function)
    def call(*arguments: PyTree) -> PyTree:
        # one tree of all arguments is flattened faster than many
        held, form = split_static([each for place, each in enumerate(arguments) if place not in donate])
        given_up, other_form = split_static([arguments[place] for place in donate])
        return program((form, other_form))(held, given_up)

    call.programs = program  # pyright: ignore[reportAttributeAccessIssue, reportFunctionMemberAccess]
    return call
