"""Maximum likelihood without samples, for log Z that is known, a finite sum, or an integral over few dimensions."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import (
    ConditionalEnergy,
    HasExactLogZ,
    HasLogZ,
    Objective,
    Space,
    Step,
    bind_batch,
    energies,
    finite,
    is_concrete,
    non_negative,
    space_of,
    split_batch,
    whole_number,
)
from thalweg.exact import enumeration, quadrature
from thalweg.exact.boxes import NODES, nodes_of
from thalweg.objectives.batches import check_batch, require_array
from thalweg.objectives.finite_sums import count_states, is_finite, log_z_sums
from thalweg.spaces import point_space

# the default number of nodes of a quadrature grid by dimension: 1024, 128 × 128, 64 × 64 × 64
POINTS = {1: 2**10, 2: 2**14, 3: 2**18}
# the number of nodes in memory at once
_BLOCK_NODES = 2**13


class Box(NamedTuple):
    """The extent of a quadrature grid: ``low`` and ``high``, each ``(d,)``; ``open`` ``(2, d)`` marks the lower and
    upper sides beyond which the space continues."""

    low: Array
    high: Array
    open: Array


class ExactLikelihood(Objective):
    r"""Maximum likelihood without samples: the loss ``mean E_θ(data) + log Z_θ`` is ``-mean log p_θ(data)`` itself.

    ``log Z`` is the energy's own if it is known (any density, a flow, an RBM with at most 25 units in one layer). On a
    finite space it is the sum over all states, at most 2^25. On `Real`, `Positive` and `Interval` of at most three
    dimensions it is an integral over a fixed grid of equal cells with 8 Gauss-Legendre nodes per dimension. The grid
    covers the bounds of the space or, where there are none, the range of the first batch, widened on each side by
    ``margin`` times the range. It is chosen once, in `init`.

    For a `ConditionalEnergy` on a finite space ``log Z(c)`` is summed for every row: if x is a label, this is the
    cross-entropy of a classifier, ``-mean log p_θ(y | c)``.

    The model is not integrated outside the grid, so the learned density is the one restricted to the grid. Watch
    ``edge_share``, the share of the model's mass in the outermost cells on sides where the space continues: it should
    be near zero. If it is not, mass leaks out of the grid; use a larger ``margin`` or an energy that grows outwards.
    Watch ``data_outside``, the share of the batch outside the grid. Other metrics: ``log_z`` and ``log_likelihood``,
    the mean of ``log p_θ(data)``.

    Args:
        points: the largest number of nodes of the grid; by default 1024, 128², 64³ in one, two, three dimensions.
        margin: how far the grid extends beyond the first batch, in units of the batch's range, ≥ 0.
        bounds: ``(low, high)``, numbers or arrays of the point's shape, instead of the range of the batch.

    >>> import jax, jax.numpy as jnp, optax, thalweg as tw
    >>> key_data, key_model, key_fit = jax.random.split(jax.random.key(0), 3)
    >>> data = tw.data.two_moons(key_data, 1000)
    >>> energy = tw.energies.MLP(2, width=16, key=key_model)
    >>> objective = tw.objectives.ExactLikelihood(points=64**2)
    >>> run = tw.fit(energy, data, objective, optimizer=optax.adam(0.01), steps=100, batch_size=200, key=key_fit)
    >>> bool(run.history["log_likelihood"][-1] > run.history["log_likelihood"][0] + 0.5)
    True
    """

    minimised_at_truth: ClassVar[bool] = True
    conditional: ClassVar[bool] = True
    points: int | None = eqx.field(static=True)
    margin: Array
    bounds: tuple[Array, Array] | None

    def __init__(self, points: int | None = None, margin: float | Array = 0.5, bounds: Any = None):
        if bounds is not None and not (isinstance(bounds, (tuple, list)) and len(bounds) == 2):
            raise ValueError(f"expected bounds=(low, high), got {bounds!r}; give two numbers or two arrays")
        hint = "leave it out for the default"
        self.points = None if points is None else whole_number("points", points, hint=hint)
        self.margin = non_negative("margin", margin, scalar=True)
        self.bounds = None if bounds is None else (finite("the lower bound", bounds[0]), finite("bounds", bounds[1]))

    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[None, PyTree]:
        check_batch(self, energy, batch)
        x = split_batch(energy, batch)[0]
        if self._has_closed_form(energy):
            return None, None
        space = point_space(energy, x)
        if isinstance(energy, ConditionalEnergy) and not is_finite(space):
            raise ValueError(
                f"expected a finite space of x for ExactLikelihood of a conditional energy, got {space}, over which "
                "log Z(c) would be an integral for every row; use MaximumLikelihood, RankNCE or score matching"
            )
        if not is_finite(space):
            require_array("ExactLikelihood", x, "use MaximumLikelihood, or score matching on continuous products")
            return None, self._box(space, x)
        if self.points is not None or self.bounds is not None:
            raise ValueError(
                f"expected no points and no bounds on {space}, whose states are all summed; leave them out"
            )
        if count_states(space) > enumeration.MOST_STATES:
            raise ValueError(
                f"expected at most {enumeration.MOST_STATES} states for ExactLikelihood, got {count_states(space)} on "
                f"{space}; use PseudoLikelihood, or MaximumLikelihood with Gibbs"
            )
        return None, None

    def loss(
        self, key: PRNGKeyArray, energy: Any, params: None, state: Box | None, batch: PyTree
    ) -> tuple[Array, Step]:
        model, x = bind_batch(energy, batch)
        metrics = {}
        if state is not None:
            log_z, edge_share = _integral(
                energy, point_space(energy, x), state, self._cells_per_dimension(len(state.low))
            )
            flat = x.reshape(x.shape[0], -1)
            outside = jnp.any((flat < state.low) | (flat > state.high), axis=1)
            metrics = {"edge_share": edge_share, "data_outside": jnp.mean(outside.astype(log_z.dtype))}
        else:
            own = _own_log_z(energy) if self._has_closed_form(energy) else None
            log_z = jnp.mean(log_z_sums(model, space_of(energy))) if own is None else own
        loss = jnp.mean(energies(model, x)) + log_z
        return loss, Step(state, {"log_z": log_z, "log_likelihood": -loss, **metrics})

    def _has_closed_form(self, energy: Any) -> bool:
        # points or bounds ask for a grid even if log Z is known
        if self.points is not None or self.bounds is not None:
            return False
        return eqx.filter_eval_shape(_own_log_z, energy) is not None

    def _cells_per_dimension(self, dimensions: int) -> int:
        """The number of cells along each dimension."""
        points = POINTS[dimensions] if self.points is None else self.points
        return max(1, int(points ** (1 / dimensions) * (1 + 1e-9)) // NODES)

    def _box(self, space: Space, batch: Array) -> Box:
        # the infinite sides of a plan are set from the data
        own, wanted = (quadrature.plan(space, bounds, self.points, 0.5) for bounds in (None, self.bounds))
        flat = batch.reshape(batch.shape[0], -1)
        least, most = jnp.min(flat, axis=0), jnp.max(flat, axis=0)
        unknown = np.isinf([wanted.low, wanted.high])
        if is_concrete(flat) and np.any(unknown.any(axis=0) & ~(np.asarray(most) > np.asarray(least))):
            raise ValueError(
                f"expected a first batch that spans a range in every coordinate, got from {np.asarray(least)} to "
                f"{np.asarray(most)}; give more rows, or bounds=(low, high)"
            )
        reach = self.margin * (most - least)
        low = jnp.where(unknown[0], jnp.maximum(least - reach, own.low), wanted.low)
        high = jnp.where(unknown[1], jnp.minimum(most + reach, own.high), wanted.high)
        beyond = np.stack([wanted.low > own.low, wanted.high < own.high]) | unknown
        return Box(low.astype(flat.dtype), high.astype(flat.dtype), jnp.asarray(beyond))


def _own_log_z(energy: Any) -> Array | None:
    """The energy's own log Z, ``None`` if it has none."""
    if isinstance(energy, HasExactLogZ):
        return energy.exact_log_z()
    return energy.log_z if isinstance(energy, HasLogZ) else None


def _integral(energy: Any, space: Space, box: Box, parts: int) -> tuple[Array, Array]:
    """``log ∫ exp(-E)`` over ``parts`` equal cells per dimension, and the share of the mass in the outermost cells."""
    dimensions = len(box.low)
    cells, width = parts**dimensions, (box.high - box.low) / parts
    count = max(1, min(cells, _BLOCK_NODES // NODES**dimensions))

    # recomputing a block in the backward pass keeps the memory of a gradient at one block
    @jax.checkpoint
    def block(first):
        numbers = first + jnp.arange(count)
        places = jnp.stack(jnp.unravel_index(numbers % cells, (parts,) * dimensions), axis=-1)
        low = box.low + places * width
        points, log_weights = nodes_of(space, low, low + width)
        log_p = -energies(energy, points.reshape(-1, *space.shape)).astype(jnp.result_type(float))
        log_mass = log_p.reshape(log_weights.shape) + log_weights
        # the last block may run past the last cell
        log_mass = jnp.where((numbers < cells)[:, None], log_mass, -jnp.inf)
        peak = jax.lax.stop_gradient(jnp.max(log_mass))
        mass = jnp.sum(jnp.exp(log_mass - jnp.where(jnp.isneginf(peak), 0.0, peak)), axis=1)
        edge = jnp.any((places == 0) & box.open[0] | (places == parts - 1) & box.open[1], axis=-1)
        return peak, jnp.sum(mass), jnp.sum(jnp.where(edge, jax.lax.stop_gradient(mass), 0.0))

    peaks, masses, edges = jax.lax.map(block, jnp.arange(0, cells, count))
    top = jnp.max(peaks)
    scale = jnp.exp(peaks - jnp.where(jnp.isneginf(top), 0.0, top))
    total = jnp.sum(masses * scale)
    return top + jnp.log(total), jax.lax.stop_gradient(jnp.sum(edges * scale) / total)
