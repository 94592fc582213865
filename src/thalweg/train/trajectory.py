"""The test log-likelihood along a training, with log Z carried from evaluation to evaluation."""

import math
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from thalweg.core import (
    Estimate,
    HasLogZ,
    Space,
    as_energy,
    check_instance,
    positive,
    space_of,
    static_number,
    typed_key,
    whole_number,
)
from thalweg.energies import RBM
from thalweg.evaluate import partition
from thalweg.evaluate.intervals import check_confidence
from thalweg.evaluate.likelihood import as_energy_of_points, log_likelihood, require_rows, rows_of
from thalweg.evaluate.trajectory import (
    MOST_RUNGS,
    Population,
    begin,
    default_kernel,
    fit_base,
    follow,
    join_groups,
    make_path,
)
from thalweg.spaces import Finite, Interval, Positive, Real, as_points, on_reals

_EXACT_STATES, _EXACT_DIMENSIONS = 2**18, 2
_LEAST_GROUPS, _LEAST_CHAINS = 4, 8


class TrajectoryLogZ:
    r"""A callback that evaluates the test log-likelihood of any energy during its training, with an interval.

    ``tw.train.every(100, TrajectoryLogZ(x_test, key=key))`` records ``log_z`` and ``test_log_likelihood`` (the mean per
    row, in nats), each with the ends of its interval, ``…_low`` and ``…_high``; the report draws the band. Keep the
    best checkpoint by ``keep_best="test_log_likelihood"``.

    Where log Z can be computed exactly (closed form, at most 2^18 states of the space or of one layer of a Boltzmann
    machine, at most 2 dimensions) it is. Elsewhere a population of weighted chains follows the model: from one
    evaluation to the next it is annealed from the old energy to the new one, and the mean weight gives the change of
    log Z. Since the model changes little in between, few steps suffice. Independent groups of chains give the interval.
    As in every such estimate, a mode that no chain has found is missing from log Z.

    The first evaluation anneals from a base density fitted to the data. So does an evaluation where the interval
    became wider than ``widest``, or where the chains could not follow, and the first one after a run was resumed, whose
    numbers are then not those of an uninterrupted run. If the model is not reached from the base either, they are NaN.

    Reference: Béreux et al. (2025), ICLR.

    Args:
        data: test rows ``(rows, *event)``, or a `tw.data.Dataset` with some.
        key: random key; each evaluation uses the key folded with the update's number.
        space: where ``x`` lives, if the energy has no space.
        kernel: a kernel that leaves its target invariant; by default `HMC` in real coordinates, whose step size follows
            the acceptance, `GibbsWithGradients` on a finite space, or the Gibbs sweeps of a Boltzmann machine.
        chains: the number of chains.
        groups: the number of independent groups they form.
        moves: the number of kernel steps at each step of the annealing; by default 3, or the number of sites
            for `GibbsWithGradients`.
        widest: start anew where the interval of log Z reaches further than this above its value.
        confidence: the probability that an interval covers the truth.

    >>> import jax, jax.numpy as jnp, optax, thalweg as tw
    >>> key_data, key_fit, key_z = jax.random.split(jax.random.key(0), 3)
    >>> x = jax.random.normal(key_data, (300, 2))
    >>> callback = tw.train.every(5, tw.train.TrajectoryLogZ(x[200:], key=key_z))
    >>> run = tw.fit(tw.energies.Gaussian(jnp.ones(2)), x[:200], tw.objectives.ImplicitScoreMatching(),
    ...              optimizer=optax.adam(0.05), steps=10, batch_size=50, key=key_fit, callbacks=[callback])
    >>> [row["step"] for row in run.evaluations if row["test_log_likelihood_low"] < row["test_log_likelihood"]]
    [5, 10]
    """

    def __init__(
        self,
        data: PyTree,
        *,
        key: PRNGKeyArray,
        space: Space | None = None,
        kernel: Any = None,
        chains: int = 1024,
        groups: int = 16,
        moves: int | None = None,
        widest: float = 0.5,
        confidence: float = 0.95,
    ):
        self._data, self._key, self._given_space = as_points(space, rows_of(data), "data"), typed_key(key), space
        require_rows(self._data)
        if kernel is not None:
            check_instance("a kernel", kernel, ("init", "step", "retarget"), "tw.samplers.HMC(0.1)")
        self._kernel = kernel
        self._groups = whole_number("groups", groups, _LEAST_GROUPS)
        least = _LEAST_CHAINS * self._groups
        if whole_number("chains", chains, least) % self._groups:
            raise ValueError(
                f"expected chains to be a multiple of the {self._groups} groups, got {chains}; give for example "
                f"{max(least, chains // self._groups * self._groups)}"
            )
        self._chains = chains // self._groups
        self._moves = None if moves is None else whole_number("moves", moves)
        self._widest = static_number("widest", widest, positive)
        self._confidence = check_confidence(confidence)
        self._population: Population | None = None
        self._energy: Any = None
        self._source: Any = None
        self.restarts = 0
        self.log_z: Estimate | None = None

    def __call__(self, run: Any) -> dict[str, float]:
        """The numbers of the run so far."""
        energy = as_energy(as_energy_of_points(run.energy), self._given_space)
        space = space_of(energy)
        if space is None:
            raise ValueError(
                f"expected an energy with a space to carry log Z along, got {type(energy).__name__} without; "
                "give space=..., for example tw.Real(2)"
            )
        data = as_points(space, self._data, "data")
        key_z, key_rows = jax.random.split(jax.random.fold_in(self._key, run.step))
        log_z = _exact(energy, space, key_z, self._confidence)
        if log_z is None:
            log_z = self._carry(energy, space, data, run.source, key_z)
        self.log_z = log_z
        fit = log_likelihood(energy, data, key=key_rows, log_z=log_z, confidence=self._confidence)
        return _named("log_z", log_z) | _named("test_log_likelihood", fit)

    def _carry(self, energy: Any, space: Space, data: PyTree, source: Any, key: PRNGKeyArray) -> Estimate:
        base, coordinates = fit_base(energy, space, data)
        kernel, moves = default_kernel(base)
        kernel, moves = kernel if self._kernel is None else self._kernel, self._moves or moves
        key_follow, key_begin, key_base = jax.random.split(key, 3)
        target = on_reals(energy, coordinates)
        log_z = None
        # another source is another call of `fit`: a resumed run, whose weights may have come from elsewhere
        if self._population is not None and self._source is source:
            log_z = self._follow(kernel, make_path(base, self._energy, target), key_follow, self._population, moves)
        if log_z is None or log_z.high - log_z.value > self._widest:
            self.restarts += 1
            population = begin(kernel, base, key_begin, self._groups, self._chains)
            log_z = self._follow(kernel, make_path(base, base, target), key_base, population, moves)
        self._energy, self._source = target, source
        if log_z is None:
            self._population = None
            warning = f"the chains did not reach the model from the base in {MOST_RUNGS} steps"
            return Estimate(math.nan, math.nan, math.nan, self._confidence, "trajectory", warning=warning)
        return log_z

    def _follow(self, kernel: Any, path: Any, key: PRNGKeyArray, old: Population, moves: int) -> Estimate | None:
        """Carry the population along; None if it did not get there."""
        population, reached = follow(kernel, path, key, old, moves)
        group_log_z = population.group_log_z()
        if not reached or not np.any(np.isfinite(group_log_z)):
            return None
        self._population = population
        return join_groups(group_log_z, self._confidence)


def _named(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _exact(energy: Any, space: Space, key: PRNGKeyArray, confidence: float) -> Estimate | None:
    """The exact log Z where it is quickly computed."""
    few = isinstance(energy, RBM) and min(energy.visible.units, energy.hidden.units) <= math.log2(_EXACT_STATES)
    machine = energy.exact_log_z() if few else None
    if machine is not None:
        value = float(machine)
        return Estimate(value, value, value, confidence, "exact", standard_error=0.0)
    if isinstance(space, Finite):
        known = space.size <= _EXACT_STATES
    else:
        known = isinstance(space, (Real, Positive, Interval)) and math.prod(space.shape) <= _EXACT_DIMENSIONS
    if known or isinstance(energy, HasLogZ):
        return partition.log_z(energy, key=key, confidence=confidence)
    return None
