"""Optimisers compared by what they compute: two objects with the same update count as equal."""

import hashlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.core
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jaxtyping import PyTree


class TracedOptimizer:
    """The update of an optax optimiser as a jaxpr, equal to any other that computes the same.

    Optax builds its optimisers from closures, and a closure is equal only to itself: a new ``optax.adam(1e-3)`` would
    make JAX compile the training again. Its jaxpr, with all constants, is the same every time. To change a learning
    rate without recompiling, keep it in the optimiser's state: ``optax.inject_hyperparams(optax.adam)(1e-3)``.

    >>> import jax.numpy as jnp, optax
    >>> weights = {"weight": jnp.ones(2)}
    >>> adam = lambda rate: TracedOptimizer(optax.adam(rate), optax.adam(rate).init(weights), weights)
    >>> adam(1e-3) == adam(1e-3), adam(1e-3) == adam(2e-3)
    (True, False)
    """

    def __init__(self, optimizer: Any, state: PyTree, trainable: PyTree):
        try:
            closed, shapes = jax.make_jaxpr(optimizer.update, return_shape=True)(trainable, state, trainable)
        except TypeError as problem:
            if "argument" not in str(problem):
                raise
            raise ValueError(
                f"expected an optimiser that needs the gradient alone, got one that asks for more ('{problem}'); "
                "use for example optax.adam(1e-3)"
            ) from problem
        if not isinstance(shapes, tuple) or len(shapes) != 2 or not _same_structure(shapes, (trainable, state)):
            raise ValueError(
                "expected an optimiser whose update returns a change for every parameter and a state like the one "
                "before, got others; return (updates, state) as optax's own do"
            )
        self._closed, self._form = closed, jax.tree.structure(shapes)
        digest = hashlib.sha256(str(closed.jaxpr).encode())
        for constant in _constants(closed):
            array = np.asarray(constant)
            digest.update(f"{array.shape}{array.dtype}".encode() + array.tobytes())
        self._key = (digest.digest(), self._form, jax.tree.structure((trainable, state)))

    def update(self, gradient: PyTree, state: PyTree, trainable: PyTree) -> tuple[PyTree, PyTree]:
        """What ``optimizer.update`` returns: the change of the parameters, and the next state."""
        leaves = jax.tree.leaves((gradient, state, trainable))
        return jax.tree.unflatten(self._form, jax.core.eval_jaxpr(self._closed.jaxpr, self._closed.consts, *leaves))

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, TracedOptimizer) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _same_structure(shapes: PyTree, trees: PyTree) -> bool:
    return jax.tree.structure(shapes) == jax.tree.structure(trees)


def _constants(jaxpr: Any) -> Iterator[Any]:
    """All constants of a jaxpr and of the functions inside it; its text leaves them out or truncates them."""
    if isinstance(jaxpr, ClosedJaxpr):
        yield from jaxpr.consts
        jaxpr = jaxpr.jaxpr
    for equation in jaxpr.eqns:
        yield from (value.val for value in equation.invars if isinstance(value, Literal))
        for part in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(part):
                yield from _constants(part)


def _is_jaxpr(value: Any) -> bool:
    return isinstance(value, (ClosedJaxpr, Jaxpr))


def check_optimizer(optimizer: Any) -> None:
    """Raise a ValueError if ``optimizer`` is not an optax optimiser."""
    if isinstance(optimizer, type) or not all(callable(getattr(optimizer, name, None)) for name in ("init", "update")):
        named = getattr(optimizer, "__name__", type(optimizer).__name__)
        what = repr(optimizer) if isinstance(optimizer, (str, int, float, type(None))) else named
        raise ValueError(f"expected an optax optimiser, got {what:.60}; write optax.adam(1e-3)")
