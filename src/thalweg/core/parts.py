"""A tree in two parts: what is trained and what is not."""

from typing import Any

import equinox as eqx
from jaxtyping import PyTree
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
