"""A tree in two parts: what is trained and what is not; its arrays and all else."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, PyTree
from paramax import NonTrainable


def trainable_part(tree: PyTree) -> tuple[PyTree, PyTree]:
    """``tree`` split in what is trained (floating-point arrays outside ``paramax.NonTrainable``) and the rest.

    >>> import jax, jax.numpy as jnp
    >>> from thalweg.core import trainable_part, whole
    >>> trained, rest = trainable_part({"weight": jnp.ones(2), "count": jnp.array(3)})
    >>> len(jax.tree.leaves(trained)), int(whole(trained, rest)["count"])
    (1, 3)
    """
    return eqx.partition(tree, eqx.is_inexact_array, is_leaf=_fixed)


def whole(trainable: PyTree, rest: PyTree) -> PyTree:
    """`trainable_part` undone."""
    return eqx.combine(trainable, rest, is_leaf=_fixed)


def _fixed(node: Any) -> bool:
    return isinstance(node, NonTrainable)


class Form(NamedTuple):
    """What of a tree is not an array, to be handed to ``jax.jit`` as static: its other leaves and its structure."""

    others: tuple[Any, ...]
    structure: Any


def arrays_and_form(tree: PyTree) -> tuple[list[Array | None], Form]:
    """The arrays of ``tree`` and the rest of it, for a plain ``jax.jit``.

    Equinox's filtered jit does as much and takes longer over a call: a quarter of a millisecond in a training update.

    >>> import jax.numpy as jnp
    >>> from thalweg.core import arrays_and_form, together
    >>> arrays, form = arrays_and_form({"weight": jnp.ones(2), "name": "tanh"})
    >>> together(arrays, form)["name"]
    'tanh'
    """
    leaves, structure = jax.tree.flatten(tree)
    arrays = [leaf if eqx.is_array(leaf) else None for leaf in leaves]
    return arrays, Form(tuple(None if eqx.is_array(leaf) else leaf for leaf in leaves), structure)


def together(arrays: list[Array | None], form: Form) -> PyTree:
    """`arrays_and_form` undone."""
    leaves = [other if array is None else array for array, other in zip(arrays, form.others, strict=True)]
    return jax.tree.unflatten(form.structure, leaves)
