"""Whether ``∫ exp(-E)`` can be finite: the growth of an energy along rays."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import compiled

_RAYS = 64
# distances between which the growth is measured, in units of the samples' scale; the coordinates of a constrained space
# are logarithms, which overflow at 88
_DISTANCES, _CONSTRAINED = (1e6, 1e9), (15.0, 60.0)


@compiled
def _growth(energy: Any, directions: Array, centre: Array, scale: Array, distances: Array) -> Array:
    """``dE/d log t`` along every ray, between two distances; minus infinity where the energy ends there."""
    at = lambda t: jax.vmap(lambda u: jnp.asarray(energy(centre + t * scale * u), float))(directions)
    near, far = at(distances[0]), at(distances[1])
    return jnp.where(jnp.isneginf(far), -jnp.inf, (far - near) / jnp.log(distances[1] / distances[0]))


def check_tails(energy: Any, size: int, key: PRNGKeyArray, samples: Array | None, constrained: bool) -> None:
    """Raise if Z is infinite because the energy does not grow fast enough.

    Along a ray ``∫ t^(d-1) exp(-E(t u)) dt`` is finite only if E grows faster than ``d log t``. Random directions have
    density, so if one of them fails, so does an open set, and Z is infinite. In the coordinates of a constrained space,
    which cannot be followed far, an energy that does not grow at all fails.
    """
    directions = jax.random.normal(key, (_RAYS, size))
    directions = directions / jnp.linalg.norm(directions, axis=-1, keepdims=True)
    centre = jnp.zeros(size) if samples is None else jnp.mean(samples, axis=0)
    scale = jnp.ones(()) if samples is None else jnp.maximum(jnp.max(jnp.std(samples, axis=0)), 1e-6)
    distances = jnp.array(_CONSTRAINED if constrained else _DISTANCES)
    if constrained:
        centre, scale = jnp.zeros(size), jnp.ones(())
    growth = np.asarray(_growth(energy, directions, centre, scale, distances))
    # an energy that is infinite at both distances has grown fast enough; in real coordinates of a constrained space,
    # which are logarithms, only finite numbers mean something
    slow = growth[np.isfinite(growth) if constrained else ~np.isnan(growth)]
    least = 0.05 if constrained else 1.001 * size
    lost = int(np.sum(slow < least))
    if lost:
        raise ValueError(
            f"expected an energy that grows faster than {size}·log‖x‖ far away, so that Z is finite, got "
            f"{float(np.min(slow)):.3g}·log‖x‖ along the worst of {_RAYS} directions ({lost} are too slow): Z is "
            "infinite; add a term such as 0.01·‖x‖², or use a bounded space"
        )
