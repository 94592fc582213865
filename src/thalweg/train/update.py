"""One update of a training, compiled: sampling, loss, gradient, optimiser and refresh in one program."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import Objective, Step, combine, merge_static, partition_trainable, refresh, split_static
from thalweg.train.optimizer import TracedOptimizer

_HOST = (np.ndarray, np.generic)
# only the newest programs are kept: each new function of a user makes a new program
_PROGRAMS = 32
# keeps the keys of a training apart from those a user derives from the same key: split(key, n)[i] is fold_in(key, i)
_TRAINING = 0x7472_6169


class Training(eqx.Module):
    """Everything that changes from update to update."""

    energy: Any
    params: PyTree
    state: PyTree
    optimizer: PyTree
    average: PyTree


def training_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """The key for all randomness of a training except the order of its rows."""
    return jax.random.fold_in(key, _TRAINING)


def begin(
    energy: Any,
    batch: PyTree,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    ema: float | None,
    key: PRNGKeyArray,
) -> Training:
    """A training before its first update; ``key`` is a `training_key`."""
    initial = objective.init(jax.random.fold_in(key, 0), energy, jax.tree.map(jnp.asarray, batch))
    if not isinstance(initial, tuple) or len(initial) != 2:
        raise ValueError(
            f"expected {type(objective).__name__}.init to return (params, state), got {type(initial).__name__}; "
            "return None for what there is none of"
        )
    # copies, since the first update overwrites its inputs, which belong to the caller
    energy, (params, state) = _own_arrays(energy), _own_arrays(_numbers_as_arrays(initial))
    trainable = partition_trainable((energy, params))[0]
    if not jax.tree.leaves(trainable):
        raise ValueError(
            "expected an energy with parameters to train, got none; write it as an eqx.Module whose arrays are fields, "
            "or as jax.tree_util.Partial(function, parameters) (a plain function holds no parameters)"
        )
    average = None if ema is None else _own_arrays(partition_trainable(energy)[0])
    return Training(energy, params, state, _own_arrays(_numbers_as_arrays(optimizer.init(trainable))), average)


def _numbers_as_arrays(tree: PyTree) -> PyTree:
    """Turn plain numbers in a state into arrays, since they change; not inside modules, where they may be a shape."""
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf) if isinstance(leaf, (bool, int, float)) else leaf,
        tree,
        is_leaf=lambda node: isinstance(node, eqx.Module),
    )


def _own_arrays(tree: PyTree) -> PyTree:
    """``tree`` with copies of its arrays, on the device and without weak types, as an update will return them."""

    def copy(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OSUVMm" and not jnp.issubdtype(leaf.dtype, jnp.number):
            raise ValueError(
                f"expected arrays of numbers in a model, got one of {leaf.dtype}; keep what is no number in a tuple"
            )
        if not isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
            return leaf
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jnp.copy(leaf)
        return jnp.array(leaf, dtype=jax.dtypes.canonicalize_dtype(leaf.dtype), copy=True)

    return jax.tree.map(copy, tree)


def averaged_model(training: Training) -> Any:
    """The model with its averaged weights and its newest buffers; the model itself without averaging."""
    if training.average is None:
        return training.energy
    return combine(training.average, partition_trainable(training.energy)[1])


def has_finite_weights(training: Training, like: Training) -> bool:
    """Whether every trained array that is finite in ``like`` is finite, the averaged ones included."""

    def weights(of: Training) -> list[Any]:
        return jax.tree.leaves((partition_trainable((of.energy, of.params))[0], of.average))

    pairs = zip(weights(training), weights(like), strict=True)
    return all(bool(jnp.all(jnp.isfinite(now) | ~jnp.isfinite(first))) for now, first in pairs)


class Update:
    """The compiled update of a training; trainings of the same structure and shapes share one program.

    Calling it takes and returns the arrays of a `Training` (see `split_static`); the old buffers are overwritten. The
    program is looked up once, at construction, not at every call.

    Args:
        objective: the objective whose loss is minimised.
        optimizer: any optax optimiser.
        training: an example of the training, for its structure and shapes.
        batch: an example of a batch.
        ema: decay of the moving average.
        seeds: update many trainings at once; arrays, key and batch then have a leading axis of seeds.
    """

    def __init__(
        self,
        objective: Objective,
        optimizer: optax.GradientTransformation,
        training: Training,
        batch: PyTree,
        *,
        ema: float | None = None,
        seeds: bool = False,
    ):
        trainable = partition_trainable((training.energy, training.params))[0]
        objective = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, _HOST) else leaf, objective)
        self._held, held_form = split_static((objective, TracedOptimizer(optimizer, training.optimizer, trainable)))
        arrays, self.form = split_static(training)
        self._ema = np.asarray(0.0 if ema is None else ema, jax.dtypes.canonicalize_dtype(float))
        forms = (held_form, self.form)
        # 1, 1.0 and True are equal, but compute different things
        kinds = tuple(tuple(map(type, form.others)) for form in forms)
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves((self._held, arrays, batch)))
        self.program = _program(*forms, kinds, jax.tree.structure(batch), shapes, seeds)

    def arguments(self, arrays: list[Any], key: Array, step: int, batch: PyTree) -> tuple[Any, ...]:
        """The arguments of the program."""
        return self._held, arrays, key, np.int32(step), self._ema, batch

    def __call__(self, arrays: list[Any], key: Array, step: int, batch: PyTree) -> tuple[list[Any], Any]:
        """The arrays after update number ``step``, and its metrics."""
        return self.program(*self.arguments(arrays, key, step, batch))


@lru_cache(_PROGRAMS)
def _program(held_form: Any, form: Any, kinds: Any, batch_form: Any, shapes: Any, seeds: bool) -> Callable[..., Any]:
    def run(held, arrays, key, step, ema, batch):
        objective, optimizer = merge_static(held, held_form)
        old = merge_static(arrays, form)
        new, metrics = _update(objective, optimizer, old, key, step, ema, batch)
        return split_static(_keep_form(objective, old, new))[0], metrics

    many = jax.vmap(run, in_axes=(None, 0, 0, None, None, 0)) if seeds else run
    return jax.jit(many, donate_argnums=1)


def _update(
    objective: Objective,
    optimizer: TracedOptimizer,
    training: Training,
    key: PRNGKeyArray,
    step: Array,
    ema: Array,
    batch: PyTree,
) -> tuple[Training, dict[str, Array]]:
    trainable, fixed = partition_trainable((training.energy, training.params))

    def loss(trainable):
        energy, params = combine(trainable, fixed)
        returned = objective.loss(jax.random.fold_in(key, step + 1), energy, params, training.state, batch)
        return check_loss(objective, returned)

    (value, result), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(trainable)
    change, optimizer_state = optimizer.update(gradient, training.optimizer, trainable)
    trained = optax.apply_updates(trainable, change)
    energy, params = combine(trained, fixed)
    energy = refresh(energy)
    average = None
    if training.average is not None:
        decay = jnp.minimum(ema, (1.0 + step) / (10.0 + step))
        new = partition_trainable(energy)[0]
        average = jax.tree.map(
            lambda old, now: (decay * old + (1 - decay) * now).astype(old.dtype), training.average, new
        )
    state = _numbers_as_arrays(result.state)
    # the norm of the new weights, which is not finite if any of them is not
    metrics = {"loss": value, "weight_norm": optax.tree.norm(trained), **result.metrics}
    return Training(energy, params, state, optimizer_state, average), metrics


def check_loss(objective: Objective, made: Any) -> tuple[Array, Step]:
    """What an objective's loss returned; a ValueError unless it is a scalar and a `Step` with scalar metrics."""
    name = type(objective).__name__
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[1], Step):
        got = f"a tuple of {len(made)}" if isinstance(made, tuple) else type(made).__name__
        raise ValueError(f"expected {name}.loss to return (loss, tw.core.Step(state, metrics)), got {got}; return both")
    value, step = made
    if not _is_scalar(value) or not jnp.issubdtype(jnp.result_type(value), jnp.floating):
        raise ValueError(
            f"expected a real scalar as the loss of {name}, got {_describe(value)}; take the mean over the batch"
        )
    if not isinstance(step.metrics, Mapping):
        raise ValueError(
            f"expected a dictionary of metrics from {name}, got {type(step.metrics).__name__}; return {{}} for none"
        )
    for metric, number in step.metrics.items():
        if not isinstance(metric, str) or not _is_scalar(number):
            raise ValueError(
                f"expected scalar metrics under names from {name}, got {_describe(number)} under {metric!r:.40}; "
                "take a mean"
            )
        if metric in ("loss", "weight_norm", "step", "evaluation"):
            raise ValueError(f"expected metrics of other names from {name}, got {metric!r}, which is taken; rename it")
    return value, step


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (jax.Array, np.ndarray, np.generic, bool, int, float)) and jnp.shape(value) == ()


def _describe(value: Any) -> str:
    if isinstance(value, (jax.Array, np.ndarray)):
        return f"an array of {value.dtype} {value.shape}"
    return f"a {type(value).__name__}"


def _keep_form(objective: Objective, old: Training, new: Training) -> Training:
    """``new``, after checking that its arrays have the structure, shapes and dtypes of those in ``old``."""
    sources = {
        "energy": "refresh() of the energy",
        "params": type(objective).__name__,
        "state": type(objective).__name__,
        "optimizer": "the optimiser",
        "average": "the moving average",
    }
    for part, source in sources.items():
        before, after = split_static(getattr(old, part)), split_static(getattr(new, part))
        if before[1] != after[1]:
            raise ValueError(
                "expected an objective and an optimiser whose state keeps its form from update to update, got another "
                f"one from {source}; return a state of the arrays that init returned"
            )
        for leaf, now in zip(before[0], after[0], strict=True):
            if leaf is not None and now is not None and (leaf.shape != now.shape or leaf.dtype != now.dtype):
                raise ValueError(
                    f"expected a state whose arrays keep their shapes and types, got {now.dtype} {now.shape} for "
                    f"{leaf.dtype} {leaf.shape} from {source}; return arrays like those that init returned"
                )
    # a weak type would make JAX compile the next update again
    return jax.tree.map(lambda leaf, now: _without_weak_type(now) if eqx.is_array(leaf) else now, old, new)


def _without_weak_type(leaf: Array) -> Array:
    return leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else jax.lax.convert_element_type(leaf, leaf.dtype)
