"""A tree in two parts: what is trained and what is not; its arrays and all else. And programs compiled by the two."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from paramax import NonTrainable

# a function keeps this many programs; a user's function is part of what tells programs apart, so that without a
# bound a new lambda at every call would keep a compiled program each
_PROGRAMS = 32
_ARRAYS = (jax.Array, np.ndarray, np.generic)


def partition_trainable(tree: PyTree) -> tuple[PyTree, PyTree]:
    """``tree`` split in what is trained (floating-point arrays outside ``paramax.NonTrainable``) and the rest.

    >>> import jax, jax.numpy as jnp
    >>> from thalweg.core import combine, partition_trainable
    >>> trained, rest = partition_trainable({"weight": jnp.ones(2), "count": jnp.array(3)})
    >>> len(jax.tree.leaves(trained)), int(combine(trained, rest)["count"])
    (1, 3)
    """
    return eqx.partition(tree, eqx.is_inexact_array, is_leaf=_fixed)


def combine(trainable: PyTree, rest: PyTree) -> PyTree:
    """`partition_trainable` undone."""
    return eqx.combine(trainable, rest, is_leaf=_fixed)


def _fixed(node: Any) -> bool:
    return isinstance(node, NonTrainable)


def freeze(tree: PyTree) -> PyTree:
    """``tree`` with its numbers as constants: no gradient reaches them; one in ``x`` still flows through an energy."""
    return eqx.combine(jax.lax.stop_gradient(eqx.filter(tree, eqx.is_inexact_array)), tree)


def with_gradient(model: Any, gradient: PyTree) -> Array:
    """Zero, with the given gradient in the model's parameters: how a gradient known in closed form enters a loss.

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
    """What of a tree is not an array, to be handed to ``jax.jit`` as static: its other leaves, of which kind each is
    (1, 1.0 and True are equal), and its structure."""

    others: tuple[Any, ...]
    kinds: tuple[type, ...]
    structure: Any


def split_static(tree: PyTree) -> tuple[list[Any], Form]:
    """The arrays of ``tree`` and the rest of it, for a plain ``jax.jit``.

    Equinox's filtered jit does as much and takes longer over a call: a quarter of a millisecond in a training update.

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
    """`split_static` undone."""
    leaves = [other if array is None else array for array, other in zip(arrays, form.others, strict=True)]
    return jax.tree.unflatten(form.structure, leaves)


def compiled(function: Callable[..., PyTree], donate: tuple[int, ...] = ()) -> Callable[..., PyTree]:
    """``function`` under ``jax.jit``: arrays in its arguments are traced, all else is static and makes a new program.

    Only the newest programs are kept, so that functions made anew at every call (a lambda as an energy) take no more
    memory however many there are.

    Args:
        function: of trees, returning a tree of arrays.
        donate: numbers of the arguments whose buffers may be written over.

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
        # one tree of all arguments is taken apart faster than many
        held, form = split_static([each for place, each in enumerate(arguments) if place not in donate])
        given_up, other_form = split_static([arguments[place] for place in donate])
        return program((form, other_form))(held, given_up)

    call.programs = program  # pyright: ignore[reportAttributeAccessIssue, reportFunctionMemberAccess]
    return call
