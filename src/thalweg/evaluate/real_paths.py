"""Pilot runs on R^d: from one wide Gaussian to a path whose base knows the scales and the modes of the model.

Every function works on one model, or with ``many`` on a stack of models at once by ``vmap``.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import Kernel, compiled, energies
from thalweg.core.random import split
from thalweg.evaluate.bases import fit_base, wide_base
from thalweg.evaluate.minima import Minima, find_minima
from thalweg.evaluate.paths import Affine, GaussianPath, Mixture
from thalweg.evaluate.smc import Path, lay_ladder

GROUPS, SIZE = 16, 128  # independent groups of chains in a round, and the chains of a group
MOST_MOVES = 50  # at one rung of a pilot run
_DENSE, _HESSIAN = 128, 32  # most dimensions for full covariances, and for the search of minima
_MINIMA, _COMPONENTS = 12, 6
WIDTH = 4.0  # the standard deviation of the first base
_CHUNK, _KEPT = 2**13, 32  # scouts drawn at a time, and the best that are kept
_WORK = 1e10  # operations that scouts may cost


def program(function: Callable[..., PyTree], many: bool) -> Callable[..., PyTree]:
    """``function`` compiled; with ``many`` over a stack of models, the leading axis of every array."""
    return _programs(function)[many]


@functools.cache
def _programs(function: Callable[..., PyTree]) -> tuple[Callable[..., PyTree], Callable[..., PyTree]]:
    def over_models(*arguments):
        return eqx.filter_vmap(function)(*arguments)

    return compiled(function), compiled(over_models)


def split_keys(key: Array, count: int, many: bool) -> tuple[Array, ...]:
    """``count`` keys, or with ``many`` ``count`` times one key for each model."""
    # apart, since JAX's check for keys used twice takes a stack of keys as one key
    apart = lambda key: tuple(split(key, count))
    return jax.vmap(apart)(key) if many else apart(key)


def constant(value: Any, key: Array, many: bool) -> Array:
    """A number as an array, or with ``many`` once for each model."""
    return jnp.broadcast_to(jnp.asarray(value), key.shape) if many else jnp.asarray(value)


def pilot(kernel: Kernel, path: Path, key: PRNGKeyArray, keep: Array, most_moves: Array) -> Any:
    """`lay_ladder` with the chains of one round."""
    return lay_ladder(kernel, path, key, GROUPS * SIZE, keep, most_moves)


def path_on_reals(
    energy: Any, size: int, kernel: Kernel, key: Array, samples: Array | None, many: bool, advance: Any
) -> GaussianPath:
    """A path to an energy of vectors ``(size,)`` whose base is a mixture of Gaussians, in three stages.

    A first run starts at one wide Gaussian (or ``samples`` are given). In coordinates in which its points have mean
    zero and unit covariance, descents from many points find the minima. A second run starts at one Gaussian and the
    minima; its points and the minima give the base.
    """
    keys = split_keys(key, 6, many)
    moves = constant(MOST_MOVES, key, many)
    wide = _wide_path(energy, size, key.shape)
    if samples is None:
        _, samples = program(pilot, many)(kernel, wide, keys[0], constant(0.7, key, many), moves)
    advance()
    # programs return arrays alone, so the paths are put together here
    shift, factor, y = program(_whiten, many)(samples)
    affine = Affine(energy, shift, factor)
    minima = None
    if size <= _HESSIAN:
        chunks = constant(_count_chunks(energy, size, key.shape), key, many)
        minima = program(_search, many)(affine, wide.base, keys[1], y, chunks)
    path = GaussianPath(affine, program(_plain_fit, many)(keys[2], y, minima))
    _, y = program(pilot, many)(kernel, path, keys[3], constant(0.8, key, many), moves)
    advance()
    return GaussianPath(affine, program(_full_fit, many)(keys[4], y, minima))


def _wide_path(energy: Any, size: int, models: tuple[int, ...]) -> GaussianPath:
    """The path from one wide Gaussian, once for each model."""
    dense = size <= _DENSE
    unit = jnp.eye(size) if dense else jnp.ones(size)
    base = _with_slots(wide_base(size, WIDTH, dense), _count_slots(size))
    shift, unit, base = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (*models, *leaf.shape)), (jnp.zeros(size), unit, base)
    )
    return GaussianPath(Affine(energy, shift, unit), base)


def _whiten(x: Array) -> tuple[Array, Array, Array]:
    """The shift and factor of coordinates in which points have mean zero and unit covariance (or unit variances), and
    the points there."""
    size, shift = x.shape[-1], jnp.mean(x, axis=0)
    if size > _DENSE:
        variance = jnp.var(x, axis=0)
        factor = jnp.sqrt(variance + 1e-6 * jnp.mean(variance) + 1e-20)
    else:
        covariance = jnp.cov(x.T).reshape(size, size)
        level = 1e-6 * jnp.trace(covariance) / size + 1e-20
        factor = jnp.linalg.cholesky(covariance + level * jnp.eye(size))
    return shift, factor, jax.vmap(Affine(None, shift, factor).inverse)(x)


def _count_chunks(energy: Any, size: int, models: tuple[int, ...]) -> int:
    """How many chunks of scouts the energy is cheap enough for; a function of its program, not of the clock."""
    arrays, rest = eqx.partition(energy, eqx.is_array)
    arrays = jax.tree.map(lambda leaf: leaf[0], arrays) if models else arrays
    costs = jax.jit(lambda arrays, x: eqx.combine(arrays, rest)(x)).lower(arrays, jnp.zeros(size)).cost_analysis()
    operations = max(float((costs or {}).get("flops", 1e3)), 100.0)
    return int(min(max(_WORK / operations / _CHUNK, 2), 64))


def _search(affine: Affine, wide: Mixture, key: PRNGKeyArray, y: Array, chunks: Array) -> Minima:
    """The minima found from the points, from draws of the wide base, and from the best of many draws.

    The best are those where the model has most mass that the draws lack: the lowest ``E + log p₀``.
    """
    size = y.shape[-1]
    inverse = jax.vmap(affine.inverse)

    def scout(number, best):
        key_near, key_far = split(jax.random.fold_in(key, number))
        near = 1.5 * jax.random.normal(key_near, (_CHUNK, size))
        far = inverse(wide.sample(key_far, (_CHUNK,)))
        drawn = (-0.5 * jnp.sum((near / 1.5) ** 2, axis=-1), jax.vmap(wide.log_prob)(jax.vmap(affine.point)(far)))
        return tuple(_lowest(old, points, logs) for old, points, logs in zip(best, (near, far), drawn, strict=True))

    def _lowest(old, points, logs):
        excess = energies(affine, points) + logs
        excess = jnp.where(jnp.isnan(excess), jnp.inf, excess)
        values, points = jnp.concatenate([old[0], excess]), jnp.concatenate([old[1], points])
        chosen = jax.lax.top_k(-values, _KEPT)[1]
        return values[chosen], points[chosen]

    none = (jnp.full(_KEPT, jnp.inf), jnp.zeros((_KEPT, size)))
    best = jax.lax.fori_loop(0, chunks, scout, (none, none))
    far = inverse(wide.sample(jax.random.fold_in(key, chunks), (128 if size < 8 else 256,)))
    return find_minima(affine, jnp.concatenate([y[:64], best[0][1], best[1][1], far]), _MINIMA)


def _components(size: int) -> int:
    """How many Gaussians a base may have: each needs some twenty points for every dimension."""
    return max(1, min(_COMPONENTS, GROUPS * SIZE // (20 * size)))


def _count_slots(size: int) -> int:
    components = _components(size)
    return 1 + (components if components > 1 else 0) + (_MINIMA if size <= _HESSIAN else 0)


def _with_slots(base: Mixture, count: int) -> Mixture:
    """The same mixture with further components of no weight, so that all bases have one shape and one program."""
    more = count - len(base.log_weights)
    grow = lambda leaf: jnp.concatenate([leaf, jnp.broadcast_to(leaf[:1], (more, *leaf.shape[1:]))])
    logs = jnp.concatenate([base.log_weights, jnp.full(more, -1e4)])
    return Mixture(logs, grow(base.means), grow(base.factors), grow(base.inverses))


def _fit(key: PRNGKeyArray, y: Array, minima: Minima | None, components: int) -> Mixture:
    size = y.shape[-1]
    return _with_slots(fit_base(key, y, minima, components, size <= _DENSE), _count_slots(size))


def _plain_fit(key: PRNGKeyArray, y: Array, minima: Minima | None) -> Mixture:
    return _fit(key, y, minima, 1)


def _full_fit(key: PRNGKeyArray, y: Array, minima: Minima | None) -> Mixture:
    return _fit(key, y, minima, _components(y.shape[-1]))
