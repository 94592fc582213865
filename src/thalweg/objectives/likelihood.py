"""Maximum likelihood: with Monte Carlo negatives (CD-k, PCD, short-run, replay buffer), and exactly where Z is."""

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import Energy, HasLogZ, Kernel, Objective, Space, Step, as_energy, is_concrete
from thalweg.exact import enumeration, quadrature
from thalweg.exact.streaming import log_density
from thalweg.exact.survey import NODES, nodes_of
from thalweg.objectives.through import frozen, require_flow, run_chains
from thalweg.samplers.langevin import Langevin
from thalweg.samplers.run import check_scalar, inspect
from thalweg.samplers.starts import ReplayBuffer, Start, as_seen, as_start, point_space
from thalweg.spaces import Finite

# the nodes of a quadrature grid by dimension, unless the user says otherwise: 1024, 128 × 128, 64 × 64 × 64
POINTS = {1: 2**10, 2: 2**14, 3: 2**18}
# so many nodes are in memory at once
_BLOCK_NODES = 2**13


class MaximumLikelihood(Objective):
    r"""The gradient of the log-likelihood with its expectation taken by Monte Carlo,

    ``∇ log p_θ(x) = -∇E_θ(x) + E_{p_θ}[∇E_θ]``,

    as the loss ``mean E_θ(data) - mean E_θ(negatives)``, the negatives being where ``steps`` steps of ``kernel`` from
    ``start`` end. The start makes the method: `from_data` is CD-k (Hinton 2002), `persistent` is PCD (Tieleman 2008),
    `from_noise` is short-run training (Nijkamp et al. 2019), `ReplayBuffer` is Du and Mordatch's (2019). With
    `ParallelTempering` as the kernel a start keeps all rungs of every chain (Desjardins et al. 2010).

    The negatives depend on θ too, and the gradient above leaves that out: with ``sampler_gradient=w`` the loss has
    the term ``w·mean E_frozen(x_t)`` more, in which ``E_frozen`` has constant parameters and ``x_t`` is a function of θ
    through the last ``sampler_gradient_steps`` steps of the chain. With w = -1 it is the energy part of the term by
    which ``∇CD_t`` differs, ``-(∂/∂θ) E_{p_θ^t}[E_frozen(x) + log p^t_frozen(x)]``; the published code of improved
    contrastive divergence (Du et al. 2021) has w > 0, which pulls the negatives downhill.

    The loss is an energy gap, no bound on anything: it may be negative, and it does not tell convergence.
    Metrics: ``energy_gap``, ``energy_data``, ``energy_samples``, and ``gradient_norm`` (the mean of ‖∇E‖₂ along the
    chains, the signal of instability), ``acceptance``, ``swap_rate``, ``divergences`` where the kernel has them.

    Args:
        kernel: any kernel; by default ``Langevin(0.1)``.
        steps: steps per update.
        start: where chains begin; by default ``ReplayBuffer(10_000, 0.05)``.
        energy_penalty: weight w ≥ 0 of ``w·mean(E(data)² + E(negatives)²)``, which keeps energies near zero.
        sampler_gradient: the weight w above, of either sign; by default there is no such term. Needs a kernel without
            an accept step on a continuous space: `Langevin`, `UnderdampedLangevin`.
        sampler_gradient_steps: through how many of the last steps the gradient goes.

    >>> import jax, jax.numpy as jnp, optax, thalweg as tw
    >>> key = jax.random.key(0)
    >>> data = 2.0 + jax.random.normal(key, (500, 1))
    >>> objective = tw.objectives.MaximumLikelihood(tw.samplers.MALA(0.5), steps=5, start=tw.samplers.persistent())
    >>> energy = tw.energies.Gaussian(jnp.zeros(1), jnp.ones(1))
    >>> run = tw.fit(energy, data, objective, optimizer=optax.adam(0.05), steps=200, batch_size=100, key=key)
    >>> bool(abs(run.energy.mean[0] - 2.0) < 0.3)
    True
    """

    kernel: Kernel
    steps: int = eqx.field(static=True)
    start: Start
    energy_penalty: Array
    sampler_gradient: Array | None
    sampler_gradient_steps: int = eqx.field(static=True)

    def __init__(
        self,
        kernel: Kernel | None = None,
        steps: int = 20,
        start: Start | Callable[[], Start] | None = None,
        energy_penalty: float | Array = 0.0,
        sampler_gradient: float | Array | None = None,
        sampler_gradient_steps: int = 1,
    ):
        if steps < 1:
            raise ValueError(f"expected steps >= 1, got {steps}; CD-1 is steps=1")
        if isinstance(energy_penalty, (int, float)) and energy_penalty < 0:
            raise ValueError(f"expected energy_penalty >= 0, got {energy_penalty}; 0 turns it off")
        if not 1 <= sampler_gradient_steps <= steps:
            raise ValueError(
                f"expected sampler_gradient_steps between 1 and steps={steps}, got {sampler_gradient_steps}; 1 is usual"
            )
        self.kernel = Langevin(0.1) if kernel is None else kernel
        self.steps = int(steps)
        self.start = ReplayBuffer(10_000) if start is None else as_start(start)
        self.energy_penalty = jnp.asarray(energy_penalty, float)
        self.sampler_gradient = None if sampler_gradient is None else jnp.asarray(sampler_gradient, float)
        self.sampler_gradient_steps = int(sampler_gradient_steps)

    def init(self, key: PRNGKeyArray, energy: Any, batch: Array) -> tuple[None, PyTree]:
        energy = as_energy(energy)
        check_scalar(energy, batch)
        inspect(self.kernel, energy)
        if self.sampler_gradient is not None:
            require_flow(self.kernel, energy, batch)
        return None, self.start.init(key, *as_seen(self.kernel, point_space(energy, batch), batch))

    def loss(self, key: PRNGKeyArray, energy: Any, params: None, state: PyTree, batch: Array) -> tuple[Array, Step]:
        energy = as_energy(energy)
        live_steps = 0 if self.sampler_gradient is None else self.sampler_gradient_steps
        ended = run_chains(key, self.kernel, self.steps, self.start, energy, state, batch, live_steps)
        count = batch.shape[0]
        # one pass over both halves: the same matrix products at twice the batch
        energies = jax.vmap(energy)(jnp.concatenate([batch, ended.x]))
        positive, negative = jnp.mean(energies[:count]), jnp.mean(energies[count:])
        loss = positive - negative
        loss += self.energy_penalty * (jnp.mean(energies[:count] ** 2) + jnp.mean(energies[count:] ** 2))
        if self.sampler_gradient is not None:
            loss += self.sampler_gradient * jnp.mean(jax.vmap(frozen(energy))(ended.live))
        gap = {"energy_gap": positive - negative, "energy_data": positive, "energy_samples": negative}
        return loss, Step(ended.memory, ended.metrics | gap)


def negative_samples(
    key: PRNGKeyArray, kernel: Kernel, steps: int, start: Start, energy: Energy, memory: PyTree, batch: Array
) -> tuple[Array, PyTree, dict[str, Array]]:
    """Where the chains end, the start's memory after them, and what they told on the way; no gradient flows through."""
    return run_chains(key, kernel, steps, start, energy, memory, batch)[:3]


class Box(NamedTuple):
    """Where a quadrature grid lies: ``low`` and ``high``, each ``(d,)``; ``open`` ``(2, d)`` marks the lower and upper
    sides beyond which the space goes on."""

    low: Array
    high: Array
    open: Array


class ExactLikelihood(Objective):
    r"""Maximum likelihood without samples: the loss ``mean E_θ(data) + log Z_θ`` is ``-mean log p_θ(data)`` itself.

    ``log Z`` is the energy's own where it has one (any density, a flow); the sum over all states on a finite space, of
    up to 2^25; and on `Real`, `Positive` and `Interval` of at most three dimensions an integral over a fixed grid of
    Gauss-Legendre nodes, in equal cells of 8 a dimension. The grid covers the space's own bounds, or the range of the
    first batch widened on each side by ``margin`` of itself. It is laid once, in `init`, and never moves.

    Beyond its grid the model is not integrated, so the density learnt is the one restricted to the grid. Watch
    ``edge_share``, the share of the model's mass in the outermost cells of the sides that the space does not end at:
    near zero all is well; where it is not, mass leaks out, and a larger ``margin`` is needed, or an energy that grows
    outwards. Watch ``data_outside``, the share of the batch beyond the grid. Metrics besides: ``log_z`` and
    ``log_likelihood``, the mean of ``log p_θ(data)``.

    Args:
        points: the most nodes of the grid; by default 1024, 128², 64³ in one, two, three dimensions.
        margin: how far the grid reaches beyond the first batch, in units of the batch's range, ≥ 0.
        bounds: ``(low, high)``, numbers or arrays of the point's shape, instead of what the batch says.

    >>> import jax, jax.numpy as jnp, optax, thalweg as tw
    >>> key = jax.random.key(0)
    >>> data = tw.data.two_moons(key, 1000)
    >>> energy = tw.energies.MLP(2, width=16, key=key)
    >>> objective = tw.objectives.ExactLikelihood(points=64**2)
    >>> run = tw.fit(energy, data, objective, optimizer=optax.adam(0.01), steps=100, batch_size=200, key=key)
    >>> bool(run.history["log_likelihood"][-1] > run.history["log_likelihood"][0] + 0.5)
    True
    """

    divergence: ClassVar[bool] = True
    points: int | None = eqx.field(static=True)
    margin: Array
    bounds: tuple[Array, Array] | None

    def __init__(self, points: int | None = None, margin: float | Array = 0.5, bounds: Any = None):
        if isinstance(margin, (int, float)) and not 0 <= margin < math.inf:
            raise ValueError(f"expected a margin >= 0, got {margin}; 0.5 is half the data's range on each side")
        if points is not None and points < 1:
            raise ValueError(f"expected points >= 1, got {points}; leave it out for a sound number of nodes")
        if bounds is not None and not (isinstance(bounds, (tuple, list)) and len(bounds) == 2):
            raise ValueError(f"expected bounds=(low, high), got {bounds!r}; give two numbers or two arrays")
        self.points = None if points is None else int(points)
        self.margin = jnp.asarray(margin, float)
        self.bounds = None if bounds is None else (jnp.asarray(bounds[0], float), jnp.asarray(bounds[1], float))

    def init(self, key: PRNGKeyArray, energy: Any, batch: Array) -> tuple[None, PyTree]:
        energy = as_energy(energy)
        check_scalar(energy, batch)
        if self._closed(energy):
            return None, None
        if energy.space is None and not jnp.issubdtype(batch.dtype, jnp.floating):
            raise ValueError(
                f"expected an energy that knows its space for data of type {batch.dtype}, got one that does not; "
                "give it one by as_energy(function, space)"
            )
        space = point_space(energy, batch)
        if not isinstance(space, Finite):
            return None, self._box(space, batch)
        if self.points is not None or self.bounds is not None:
            raise ValueError(
                f"expected no points and no bounds on {space}, whose states are all summed; leave them out"
            )
        if space.size > enumeration.MOST_STATES:
            raise ValueError(
                f"expected at most {enumeration.MOST_STATES} states for ExactLikelihood, got {space.size} on {space}; "
                "use PseudoLikelihood, or MaximumLikelihood with Gibbs"
            )
        return None, None

    def loss(self, key: PRNGKeyArray, energy: Any, params: None, state: Box | None, batch: Array) -> tuple[Array, Step]:
        energy = as_energy(energy)
        told = {}
        if state is not None:
            space = point_space(energy, batch)
            log_z, edge_share = _integral(energy, space, state, self._parts(len(state.low)))
            flat = batch.reshape(batch.shape[0], -1)
            outside = jnp.any((flat < state.low) | (flat > state.high), axis=1)
            told = {"edge_share": edge_share, "data_outside": jnp.mean(outside.astype(log_z.dtype))}
        elif self._closed(energy):
            log_z = energy.log_z  # pyright: ignore[reportAttributeAccessIssue]
        else:
            log_z = enumeration.log_z(energy, energy.space)  # pyright: ignore[reportArgumentType]
        loss = jnp.mean(jax.vmap(energy)(batch)) + log_z
        return loss, Step(state, {"log_z": log_z, "log_likelihood": -loss, **told})

    def _closed(self, energy: Energy) -> bool:
        # who asks for a grid gets one
        return isinstance(energy, HasLogZ) and self.points is None and self.bounds is None

    def _parts(self, dimensions: int) -> int:
        """The cells along each dimension."""
        points = POINTS[dimensions] if self.points is None else self.points
        return max(1, int(points ** (1 / dimensions) * (1 + 1e-9)) // NODES)

    def _box(self, space: Space, batch: Array) -> Box:
        # a plan's infinite sides are those the data must tell
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


def _integral(energy: Energy, space: Space, box: Box, parts: int) -> tuple[Array, Array]:
    """``log ∫ exp(-E)`` over ``parts`` equal cells a dimension, and the share of it in the outermost cells."""
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
        log_p = jax.vmap(lambda x: log_density(energy, x))(points.reshape(-1, *space.shape))
        log_mass = log_p.reshape(log_weights.shape) + log_weights
        # the last block may reach past the last cell
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
