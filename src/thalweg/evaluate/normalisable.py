"""Whether an energy on R^d grows in every direction, without which ``∫ exp(-E(x)) dx`` is infinite."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import compiled, typed_key

_DIRECTIONS = 64
_STEPS = 20
_NEAR, _FAR = 1e3, 1e4


def find_escape(energy: Any, shape: tuple[int, ...], scale: float, *, key: PRNGKeyArray) -> np.ndarray | None:
    """A direction u, of unit length, along which the energy does not grow far out; None if none was found.

    The energies at ``10³ scale·u`` and ``10⁴ scale·u`` are compared in 64 random directions, which then descend on the
    sphere. A network of linear maps and activations such as ReLU or SiLU grows or falls linearly far out, at a rate
    that is continuous in u. If it falls in one direction, it falls in a whole cone, and ``Z = ∫ exp(-E(x)) dx`` is
    infinite. That no direction is found proves nothing.

    Args:
        energy: an energy on R^d of any shape.
        shape: of a point.
        scale: the usual norm of a data point.
        key: random key of the directions.

    >>> import jax, jax.numpy as jnp
    >>> find_escape(lambda x: jnp.abs(x).sum(), (2,), 1.0, key=jax.random.key(0)) is None
    True
    >>> find_escape(lambda x: x.sum(), (2,), 1.0, key=jax.random.key(1)).sum() < 0
    np.True_
    """
    directions = jax.random.normal(typed_key(key), (_DIRECTIONS, *shape))
    directions, growth = _descend(energy, directions, jnp.asarray(scale, float))
    worst = int(np.argmin(growth))
    return None if growth[worst] > 0 else np.asarray(directions[worst])


@compiled
def _descend(energy: Any, directions: Array, scale: Array) -> tuple[Array, Array]:
    """The directions after descending to where the energy is low far out, and the growth of the energy there."""
    unit = lambda u: u / jnp.sqrt(jnp.sum(u**2))

    def one(u: Array) -> tuple[Array, Array]:
        def step(u, _):
            gradient = jax.grad(lambda x: jnp.asarray(energy(x), float))(_NEAR * scale * u)
            return unit(u - 0.5 * unit(gradient)), None

        # a gradient of zero gives no direction to go to, and stays put
        moved, _ = jax.lax.scan(lambda u, _: (_finite_or(step(u, None)[0], u), None), unit(u), length=_STEPS)
        return moved, energy(_FAR * scale * moved) - energy(_NEAR * scale * moved)

    return jax.lax.map(one, directions, batch_size=32)


def _finite_or(new: Array, old: Array) -> Array:
    return jnp.where(jnp.all(jnp.isfinite(new)), new, old)
