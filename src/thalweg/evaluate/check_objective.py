"""A statistical test of a training objective: at the true model its mean gradient must vanish."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PRNGKeyArray, PyTree
from scipy import stats

from thalweg.core import (
    ConditionalEnergy,
    DiscreteObjective,
    Objective,
    Step,
    Verdict,
    check_instance,
    combine,
    compiled,
    partition_trainable,
    real,
    require_model,
    typed_key,
    whole_number,
)
from thalweg.energies.analytic import Gaussian
from thalweg.energies.lattice import Ising
from thalweg.evaluate.check_sampler import exact_sampler
from thalweg.spaces import as_points

# the probability with which a bias of the size reported as detectable would have been found
_POWER = 0.99
# how far the model is moved from the truth, and in how many random directions
_MOVE, _DIRECTIONS = 0.2, 8
# up to this many parameters are tested one by one; with more, only random combinations
_ONE_BY_ONE = 64


class _Measurements(NamedTuple):
    """The measurements on every batch, ``(batches, …)``."""

    gradient: Any  # at the truth
    moved_gradient: Any  # along each direction, after a move along it
    loss: Any
    moved_loss: Any
    estimator: Any  # gradient after a move along the first direction
    expected: Any  # the same for the objective that it should equal on average


def check_objective(
    objective: Any,
    *,
    key: Any,
    energy: Any = None,
    exact: Callable[[PRNGKeyArray, tuple[int, ...]], PyTree] | None = None,
    batch_size: int = 1000,
    batches: int = 400,
    false_alarm: float = 1e-6,
) -> Verdict:
    r"""Test whether ``objective`` has the model that generated the data as its solution.

    Batches of exact samples of ``energy`` are given to the objective with the model at ``objective.truth(energy)`` (the
    energy itself; for denoising objectives the energy with their noise added). Then

    1. the mean gradient over the batches must vanish, in every parameter and in random combinations of them, and it
       must point back when the model is moved away, otherwise nothing would be learned;
    2. if ``objective.minimised_at_truth``, the mean loss must not be smaller at any of the moved models;
    3. if ``objective.expected(energy)`` is an objective with the same expected gradient, the two gradients must agree
       at a moved model.

    Each comparison is a t-test over independent batches, at ``false_alarm`` divided by their number. A likelihood
    objective passes with chains that start at the data and a kernel that leaves the model invariant; with unadjusted or
    too short chains it fails, because it is biased by design.

    Args:
        objective: any objective, from this library or your own.
        key: the random key.
        energy: the truth, with parameters and with exact samples (``HasSampler``, a finite space, or ``exact``); by
            default a Gaussian with full covariance in three dimensions, or for a `DiscreteObjective` an Ising model
            with five spins.
        exact: ``exact(key, shape)``, exact samples of the energy; for a `ConditionalEnergy`, pairs ``(x, c)`` with x
            drawn from ``p(x | c)``.
        batch_size: the number of points per batch.
        batches: the number of batches; more batches detect smaller biases.
        false_alarm: the probability that a correct objective fails.

    Returns:
        `Verdict`; ``detectable`` is the smallest shift of the learned parameters along a random direction that would
        have been detected with probability 0.99.

    >>> import jax, thalweg as tw
    >>> tw.check_objective(tw.objectives.HutchinsonScoreMatching(), key=jax.random.key(0)).passed
    True
    """
    check_instance("an objective", objective, ("init", "loss", "truth", "expected"), "tw.objectives.NCE()")
    batch_size, batches = whole_number("batch_size", batch_size), whole_number("batches", batches, 30, "raise it")
    real("false_alarm", false_alarm, scalar=True)
    if not 0 < false_alarm < 1:
        raise ValueError(f"expected a false_alarm between 0 and 1, got {false_alarm}; 1e-6 is usual")
    key = typed_key(key)
    energy = _default(objective) if energy is None else energy
    require_model("check_objective", energy)
    sample = _sampler(energy, exact)
    truth = objective.truth(energy)
    key_first, key_init, key_directions, key_batches = jax.random.split(key, 4)
    # once outside compiled code, where the values of data and model can be checked
    batch = sample(key_first, (batch_size,))
    params, state = objective.init(key_init, truth, batch)
    _check_loss(objective, truth, params, state, batch)
    weights, _ = ravel_pytree(partition_trainable((truth, params))[0])
    if weights.size == 0:
        raise ValueError("expected a truth with parameters, got none; write the energy as a module with array fields")
    directions = jax.random.normal(key_directions, (_DIRECTIONS, weights.size))
    directions = directions / jnp.linalg.norm(directions, axis=1, keepdims=True)
    keys = jax.random.split(key_batches, batches)
    expected = objective.expected(energy)
    measured = _measure(keys, objective, expected, truth, sample, directions, batch_size)
    measured = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), measured)
    other = None if expected is None else type(expected).__name__.lstrip("_")
    return _assess(measured, np.asarray(directions, np.float64), false_alarm, objective.minimised_at_truth, other)


def _sampler(energy: Any, exact: Callable | None) -> Callable[[PRNGKeyArray, tuple[int, ...]], PyTree]:
    if not isinstance(energy, ConditionalEnergy):
        return exact_sampler(energy, exact)
    if exact is None:
        raise ValueError(
            f"expected pairs (x, c) for the conditional energy {type(energy).__name__}, got no way to draw them; "
            "give exact=function(key, shape) -> (x, c)"
        )

    def pairs(key: PRNGKeyArray, shape: tuple[int, ...]) -> tuple[PyTree, PyTree]:
        made = exact(key, shape)
        if not isinstance(made, tuple) or len(made) != 2:
            raise ValueError(f"expected exact(key, shape) to return (x, c), got {type(made).__name__}; return both")
        return as_points(energy.space, made[0], "exact"), as_points(energy.condition_space, made[1], "exact")

    return pairs


def _check_loss(objective: Objective, truth: Any, params: PyTree, state: PyTree, batch: PyTree) -> None:
    """Raise if the loss of a user's objective is not ``(scalar, Step)``."""
    name = type(objective).__name__
    shapes = []

    def shape():
        made = objective.loss(jax.random.key(0), truth, params, state, batch)
        fits = isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], Step)
        if not fits:
            raise ValueError(
                f"expected {name}.loss to return (loss, Step(state, metrics)), got {type(made).__name__}; "
                "return the scalar loss and a tw.core.Step"
            )
        shapes.append(jnp.shape(made[0]))
        return made[0]

    eqx.filter_eval_shape(shape)
    if shapes[0] != ():
        raise ValueError(
            f"expected {name}.loss to return a scalar, got shape {shapes[0]}; take the mean over the batch"
        )


@compiled
def _measure(keys, objective, expected, truth, sample, directions, batch_size) -> _Measurements:
    def one(key) -> _Measurements:
        key_data, key_first, key_init, key_loss, key_other = jax.random.split(key, 5)
        batch = sample(key_data, (batch_size,))
        # what an objective fits to its first batch (a noise density) must be independent of the batch it is tested on
        first = sample(key_first, (batch_size,))

        def at(criterion, key):
            params, state = criterion.init(jax.random.clone(key_init), truth, first)
            trained, fixed = partition_trainable((truth, params))
            weights, rebuild = ravel_pytree(trained)

            def loss(shift):
                model, params = combine(rebuild(weights + shift), fixed)
                # deliberately the same random numbers at every model
                return criterion.loss(jax.random.clone(key), model, params, state, batch)[0]

            return jax.value_and_grad(loss)

        # the truth and all moved models in one loop: one program to compile instead of two
        places = jnp.concatenate([jnp.zeros((1, directions.shape[1])), _MOVE * directions])
        values, gradients = jax.lax.map(at(objective, key_loss), places)
        moved_gradient = gradients[1:]
        other = moved_gradient[0]
        if expected is not None:
            # a fresh key, because expectations are compared
            other = at(expected, key_other)(_MOVE * directions[0])[1]
        along = jnp.sum(moved_gradient * directions, axis=1)
        return _Measurements(gradients[0], along, values[0], values[1:], moved_gradient[0], other)

    return jax.lax.map(one, keys)


def _assess(
    measured: _Measurements, directions: np.ndarray, false_alarm: float, minimised_at_truth: bool, other: str | None
) -> Verdict:
    if not all(np.isfinite(values).all() for values in measured):
        return Verdict(False, false_alarm, 0.0, "FAILED: the loss or its gradient is not finite at or near the truth.")
    batches, count = measured.gradient.shape
    singly = np.eye(count if count <= _ONE_BY_ONE else 0, count)
    tests = np.concatenate([singly, directions])
    names = [f"parameter {n}" for n in range(len(singly))] + [f"direction {n}" for n in range(len(directions))]
    limit = float(stats.t.ppf(1 - false_alarm / (4 * (len(tests) + len(directions))), batches - 1))

    pulls = measured.gradient @ tests.T
    stiffness = (measured.moved_gradient - measured.gradient @ directions.T) / _MOVE
    held = _in_standard_errors(stiffness) > limit
    error = np.std(pulls, axis=0, ddof=1)[-len(directions) :] / np.sqrt(batches)
    seen = (limit + float(stats.norm.ppf(_POWER))) * error[held] / stiffness.mean(axis=0)[held]
    detectable = float(np.max(seen, initial=0.0)) if held.any() else float("inf")

    pull = _in_standard_errors(pulls)
    worst = int(np.argmax(np.abs(pull)))
    passed = abs(pull[worst]) <= limit
    sentences = [
        f"at the truth the largest of {len(tests)} mean gradients is that of {names[worst]}, {pull[worst]:+.1f} "
        f"standard errors (limit {limit:.1f}, false-alarm rate {false_alarm:g})"
    ]
    if held.any():
        sentences.append(f"a shift of the learned parameters by {detectable:.2g} would have been detected")
    else:
        passed = False
        sentences.append("no gradient leads back when the model is moved, so nothing would be learned")
    if minimised_at_truth:
        rise = _in_standard_errors(measured.moved_loss - measured.loss[:, None])
        lowest = int(np.argmin(rise))
        passed = passed and rise[lowest] >= -limit
        sentences.append(
            f"the loss is smallest at the truth in all {len(directions)} directions tested"
            if rise[lowest] >= -limit
            else f"the loss falls when the model moves along direction {lowest}, by {-rise[lowest]:.1f} standard errors"
        )
    if other is not None:
        gap = _in_standard_errors((measured.estimator - measured.expected) @ tests.T)
        widest = int(np.argmax(np.abs(gap)))
        passed = passed and abs(gap[widest]) <= limit
        sentences.append(
            f"against {other}, its expectation, the gradients differ by at most {gap[widest]:+.1f} standard errors"
        )
    return Verdict(
        bool(passed), false_alarm, detectable, f"{'passed' if passed else 'FAILED'}: {'; '.join(sentences)}."
    )


def _in_standard_errors(samples: np.ndarray) -> np.ndarray:
    """The mean of every column in units of its standard error; zero for a column of zeros."""
    mean = samples.mean(axis=0)
    error = np.std(samples, axis=0, ddof=1) / np.sqrt(len(samples))
    # the numbers are known to single precision only
    error = np.maximum(error, 1e-7 * np.abs(samples).max(axis=0))
    return np.divide(mean, error, out=np.zeros_like(mean), where=error > 0)


def _default(objective: Objective) -> Any:
    if isinstance(objective, DiscreteObjective):
        generator = np.random.default_rng(5)
        couplings = np.triu(generator.normal(scale=0.4, size=(5, 5)), 1)
        return Ising(couplings + couplings.T, bias=generator.normal(scale=0.4, size=5))
    root = np.array([[1.0, 0.0, 0.0], [0.5, 0.8, 0.0], [-0.3, 0.4, 1.2]])
    return Gaussian(np.array([0.5, -1.0, 0.3]), root @ root.T)
