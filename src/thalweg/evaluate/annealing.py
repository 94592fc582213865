"""Annealed estimates of log Z: the base and the ladder from pilot runs, then rounds of both directions and their bridge.

Every function works on one model, or with ``many`` on a stack of models at once by ``vmap``.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import Kernel, compiled, energies
from thalweg.core.random import split
from thalweg.evaluate.bases import fit_base, wide_base
from thalweg.evaluate.minima import Minima, find_minima
from thalweg.evaluate.paths import Affine, GaussianPath, Mixture, Trajectories
from thalweg.evaluate.smc import Ladder, bridge, lay_ladder, travel

GROUPS, SIZE = 16, 128  # independent groups of chains in a round, and the chains of a group
_DENSE, _HESSIAN = 128, 32  # most dimensions for full covariances, and for the search of minima
_MINIMA, _COMPONENTS = 12, 6
_WIDTH = 4.0  # the standard deviation of the first base
_SCOUTS = 2**16
_EXTRA = 50  # moves on the model before a backward run


def program(function: Callable[..., PyTree], many: bool) -> Callable[..., PyTree]:
    """``function`` compiled; with ``many`` over a stack of models, the leading axis of every array."""
    return _programs(function)[many]


@functools.cache
def _programs(function: Callable[..., PyTree]) -> tuple[Callable[..., PyTree], Callable[..., PyTree]]:
    def over_models(*arguments):
        return eqx.filter_vmap(function)(*arguments)

    return compiled(function), compiled(over_models)


class Rounds(NamedTuple):
    """What the rounds found, group by group: log Z forward, backward and by bridge, the smallest overlap, the rungs,
    and the number of draws of the base with descendants at the end (its median over the groups)."""

    forward: np.ndarray
    backward: np.ndarray
    bridged: np.ndarray
    overlap: np.ndarray
    ladder: Ladder
    x: PyTree
    evaluations: float
    seconds: float


# ---------------------------------------------------------------- bases on R^d


def _ladder(kernel, path, key, keep, most_moves):
    return lay_ladder(kernel, path, key, GROUPS * SIZE, keep, most_moves)


def _scout(energy: Any, wide: Mixture, key: PRNGKeyArray, x: Array) -> tuple[Affine, Array, Minima | None]:
    """The energy in coordinates in which the points x have mean zero and unit covariance, the points there, and the
    minima found from the points, from draws of the wide base, and from the best of many draws of both."""
    size = x.shape[-1]
    mean, dense = jnp.mean(x, axis=0), wide.factors.ndim == 3
    if dense:
        covariance = jnp.cov(x.T).reshape(size, size)
        level = jnp.trace(covariance) / size
        factor = jnp.linalg.cholesky(covariance + (1e-6 * level + 1e-20) * jnp.eye(size))
    else:
        factor = jnp.std(x, axis=0) + 1e-10
    affine = Affine(energy, mean, factor)
    inverse = jax.vmap(affine.inverse)
    y = inverse(x)
    if size > _HESSIAN:
        return affine, y, None
    key_near, key_far = split(key)
    near, far = 1.5 * jax.random.normal(key_near, (_SCOUTS, size)), inverse(wide.sample(key_far, (_SCOUTS,)))
    scouts = jnp.concatenate([near, far])
    excess = energies(affine, scouts) + jnp.concatenate(
        [-0.5 * jnp.sum((near / 1.5) ** 2, axis=-1), jax.vmap(wide.log_prob)(jax.vmap(affine.point)(far))]
    )
    # the best of each kind: where the model has most mass that the draws lack
    best = [jnp.argsort(part)[:32] + start for part, start in zip(jnp.split(excess, 2), (0, _SCOUTS), strict=True)]
    starts = jnp.concatenate([y[:64], scouts[jnp.concatenate(best)], far[: 128 if size < 8 else 256]])
    return affine, y, find_minima(affine, starts, _MINIMA)


def _components(size: int) -> int:
    """How many Gaussians a base may have: each needs some ten points for every dimension."""
    return max(1, min(_COMPONENTS, GROUPS * SIZE // (20 * size)))


def _slots(base: Mixture, count: int) -> Mixture:
    """The same mixture with further components of no weight, so that all bases have one shape."""
    more = count - len(base.log_weights)
    grow = lambda leaf: jnp.concatenate([leaf, jnp.broadcast_to(leaf[:1], (more, *leaf.shape[1:]))])
    logs = jnp.concatenate([base.log_weights, jnp.full(more, -1e4)])
    return Mixture(logs, grow(base.means), grow(base.factors), grow(base.inverses))


def _count_slots(size: int) -> int:
    components = _components(size)
    return 1 + (components if components > 1 else 0) + (_MINIMA if size <= _HESSIAN else 0)


def _first_path(energy, shift, width):
    """The path from one wide Gaussian, in coordinates in which it is N(0, width²)."""
    size = shift.shape[-1]
    dense = size <= _DENSE
    unit = jnp.eye(size) if dense else jnp.ones(size)
    base = _slots(wide_base(size, width, dense), _count_slots(size))
    return GaussianPath(Affine(energy, shift, unit), base)


def _fitted_path(energy, key, y, minima, components):
    base = fit_base(key, y, minima, components, y.shape[-1] <= _DENSE)
    return GaussianPath(energy, _slots(base, _count_slots(y.shape[-1])))


def path_on_reals(
    energy: Any, size: int, key: PRNGKeyArray, samples: Array | None, many: bool, advance: Any
) -> tuple[GaussianPath, Kernel, Ladder]:
    """A path to an energy of vectors ``(size,)``, with a base fitted in pilot runs or to samples, and its ladder."""
    keys = split(key, 8) if not many else jax.vmap(lambda key: split(key, 8), out_axes=1)(key)
    constant = lambda value: jnp.broadcast_to(jnp.asarray(value), (len(key),)) if many else jnp.asarray(value)
    start = jnp.zeros((len(key), size)) if many else jnp.zeros(size)
    kernel = Trajectories(constant(0.3))
    moves = constant(50)
    path = program(_first_path, many)(energy, start, constant(_WIDTH))
    if samples is None:
        _, x = program(_ladder, many)(kernel, path, keys[0], constant(0.7), moves)
    else:
        x = samples
    advance()
    affine, y, minima = program(_scout, many)(path.energy.energy, path.base, keys[1], x)
    path = program(_plain_fit, many)(affine, keys[2], y, minima)
    _, y = program(_ladder, many)(kernel, path, keys[3], constant(0.8), moves)
    advance()
    path = program(_full_fit, many)(affine, keys[4], y, minima)
    ladder, _ = program(_ladder, many)(kernel, path, keys[5], constant(0.9), moves)
    advance()
    return path, kernel, ladder


def _plain_fit(energy, key, y, minima):
    return _fitted_path(energy, key, y, minima, 1)


def _full_fit(energy, key, y, minima):
    return _fitted_path(energy, key, y, minima, _components(y.shape[-1]))


# ---------------------------------------------------------------- rounds


def _forward(kernel, path, ladder, key):
    key_draw, key = split(key)
    x = path.draw(key_draw, GROUPS * SIZE)
    return travel(kernel, path, ladder, key, x, GROUPS, jnp.asarray(False), jnp.asarray(0))


def _one_round(kernel, path, ladder, key, samples):
    keys = split(key, 3)
    draws = path.draw(keys[0], GROUPS * SIZE)

    # a loop over the two directions, so that the run is compiled once
    def direction(x, now):
        key, backward, extra = now
        passed = travel(kernel, path, ladder, key, x, GROUPS, backward, extra)
        return (passed.x if samples is None else samples), passed._replace(x=None)

    where = (keys[1:], jnp.array([False, True]), jnp.array([0, _EXTRA]))
    x, (log_ratio, works, _) = jax.lax.scan(direction, draws, where)
    ahead, back = (jax.tree.map(lambda leaf, place=place: leaf[place], works) for place in (0, 1))
    bridged = bridge(ahead, back, ladder.count, GROUPS)
    start = path.log_z_base
    return start + log_ratio[0], start - log_ratio[1], start + bridged.log_ratio + bridged.deviations, bridged.overlap
