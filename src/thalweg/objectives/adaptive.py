"""Self-adapting noise: the model is contrasted with a frozen copy of itself, sampled by chains."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from thalweg.core import Energy, Kernel, Objective, Step, as_energy, is_concrete, score
from thalweg.objectives.bregman import Psi, as_psi
from thalweg.objectives.control import Anchor, anchor_at, anchored, leaning, stein_weights
from thalweg.objectives.through import frozen, run_chains
from thalweg.samplers.langevin import Langevin
from thalweg.samplers.run import check_scalar, inspect
from thalweg.samplers.starts import ReplayBuffer, Start, as_seen, as_start, point_space
from thalweg.spaces import require_gradient


class Negatives(NamedTuple):
    """Samples of the frozen model, their weights (those of a plain mean are ``None``), and what the chains told."""

    x: Array
    weights: Array | None
    metrics: dict[str, Array]


class Frozen(NamedTuple):
    """What is carried: all arrays of the energy as it was at the freezing, the number of updates made, the start's
    memory, the negatives of the interval where these are shared, and the anchor where there is one."""

    arrays: PyTree
    updates: Array
    memory: PyTree
    negatives: Negatives | None
    anchor: Anchor | None


class SelfAdapting(Objective):
    """A contrast between data and samples of ``p_m``, the model frozen every ``interval`` updates."""

    interval: Array
    kernel: Kernel
    steps: int = eqx.field(static=True)
    start: Start
    reuse: bool = eqx.field(static=True)
    stein: bool = eqx.field(static=True)
    anchor: int = eqx.field(static=True)

    def __check_init__(self):
        if self.steps < 1:
            raise ValueError(f"expected steps >= 1, got {self.steps}; 20 are usual")
        if self.anchor < 0:
            raise ValueError(f"expected anchor >= 0 batches, got {self.anchor}; 0 is none, 16 are many")

    @abc.abstractmethod
    def terms(self, data: Float[Array, " rows"], samples: Float[Array, " chains"]) -> tuple[Array, Array]:
        """The loss of every data point and of every sample, from ``log g = E_m - E_θ`` there."""

    def init(self, key: PRNGKeyArray, energy: Any, batch: Array) -> tuple[None, Frozen]:
        energy = as_energy(energy)
        check_scalar(energy, batch)
        inspect(self.kernel, energy)
        memory = self.start.init(key, *as_seen(self.kernel, point_space(energy, batch), batch))
        anchor = anchor_at(energy, batch, self.anchor) if self.anchor else None
        state = Frozen(_arrays(energy), jnp.zeros((), jnp.int32), memory, None, anchor)
        if self.stein:
            require_gradient("Stein's control", point_space(energy, batch), batch)
            jax.eval_shape(stein_weights, batch, batch)  # refuses a batch that is too small
        if self.reuse:
            shapes = eqx.filter_eval_shape(lambda: self._draw(key, energy, state, batch)[0])
            # never read: the first update draws
            nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
            state = state._replace(negatives=nothing)
        return None, state

    def loss(self, key: PRNGKeyArray, energy: Any, params: None, state: Frozen, batch: Array) -> tuple[Array, Step]:
        energy = as_energy(energy)
        due = state.updates % self.interval == 0
        arrays = jax.tree.map(lambda new, old: jnp.where(due, new, old), _arrays(energy), state.arrays)
        before, past = (
            eqx.combine(each, eqx.filter(energy, eqx.is_array, inverse=True)) for each in (state.arrays, arrays)
        )
        if state.negatives is None:
            negatives, memory = self._draw(key, past, state, batch)
        else:
            kept = state.negatives, state.memory
            negatives, memory = jax.lax.cond(due, lambda: self._draw(key, past, state, batch), lambda: kept)
        rows = batch.shape[0]
        # one pass over both halves: the same matrix products at twice the batch
        points = jnp.concatenate([batch, negatives.x])
        energies, frozen_energies = jax.vmap(energy)(points), jax.vmap(past)(points)
        log_ratios = frozen_energies - energies
        data, samples = self.terms(log_ratios[:rows], log_ratios[rows:])
        told = negatives.metrics | _told(energies, log_ratios, rows)
        told["not_finite"] = jnp.mean(~jnp.isfinite(jnp.concatenate([data, samples])))
        told["log_z_change"] = jax.lax.cond(
            due, lambda: _log_z_change(before, negatives.x, frozen_energies[rows:]), lambda: jnp.zeros(())
        )
        weights = negatives.weights
        loss = jnp.mean(data) + (jnp.mean(samples) if weights is None else weights @ samples)
        anchor = state.anchor
        if anchor is not None:
            anchor, control = anchored(anchor, past, batch, state.updates, due)
            loss += self._slope() * leaning(energy, control)
        carried = Frozen(arrays, state.updates + 1, memory, None if state.negatives is None else negatives, anchor)
        return loss, Step(carried, told)

    def _draw(self, key: PRNGKeyArray, past: Energy, state: Frozen, batch: Array) -> tuple[Negatives, PyTree]:
        ended = run_chains(key, self.kernel, self.steps, self.start, past, state.memory, batch)
        weights = None
        if self.stein:
            weights = stein_weights(ended.x, jax.vmap(lambda x: score(past, x))(ended.x))
        return Negatives(ended.x, weights, ended.metrics), ended.memory

    def _slope(self) -> Array:
        """By what ``∇E_θ`` at the data is multiplied right after a freezing: ½ for AdaNCE, else ψ''(1)."""
        return -jax.grad(lambda log_ratio: self.terms(log_ratio, log_ratio)[0][0])(jnp.zeros(1))[0]


class AdaNCE(SelfAdapting):
    r"""Self-adapting noise-contrastive estimation: the noise is the model itself, frozen every ``interval`` updates,

    ``E_{p_m} softplus(E_m - E_θ) + E_data softplus(E_θ - E_m)``,

    both energies unnormalised; the negatives are where ``steps`` steps of ``kernel`` from ``start`` end on the frozen
    energy. At interval 1 the gradient is half that of `MaximumLikelihood` on the same samples. The objective's state
    holds the frozen energy whole, buffers included; neither freezing nor another interval recompiles anything.

    Metrics: those of `MaximumLikelihood` (``energy_gap``, ``energy_data``, ``energy_samples``; ``gradient_norm``, the
    mean of ‖∇E‖₂ along the chains and the signal of instability; ``acceptance``, …), ``log_ratio_data`` and
    ``log_ratio_samples``, means of ``E_m - E_θ``, ``effective_share``, the share of negatives that still counts
    when p_m stands for p_θ (1 right after freezing), ``not_finite``, the share of points whose loss is not finite, and
    ``log_z_change``, at a freezing ``log Z_m`` less that of the frozen model before, estimated from the new negatives
    (else zero): as far as the chains mix, its sum is what log Z has changed by in all, however far the model has come.
    With ``reuse`` what the chains told stands until the next freezing.

    Args:
        interval: 𝒦 ≥ 1, updates from one freezing to the next.
        kernel: any kernel; by default ``Langevin(0.1)``.
        steps: steps per draw of negatives.
        start: where chains begin; by default ``ReplayBuffer(10_000, 0.05)``.
        reuse: draw negatives once per interval, right after freezing, and share them over its updates.
        stein: weight the negatives by Stein's control variates: less noise in their half of the gradient. It asks
            for chains that have reached p_m; with short ones it adds to their bias.
        anchor: batches of data, the newest, over which the frozen energy's gradient is averaged at every freezing: what
            a single batch departs from that is taken off the gradient, so that the data's half has less noise, with
            less effect the further θ has moved from the freezing. 0 is none; every update then costs one gradient more.

    >>> import jax, jax.numpy as jnp, optax, thalweg as tw
    >>> key = jax.random.key(0)
    >>> data = 2.0 + jax.random.normal(key, (500, 1))
    >>> objective = tw.objectives.AdaNCE(5, tw.samplers.MALA(0.5), steps=5, start=tw.samplers.persistent())
    >>> energy = tw.energies.Gaussian(jnp.zeros(1), jnp.ones(1))
    >>> run = tw.fit(energy, data, objective, optimizer=optax.adam(0.05), steps=300, batch_size=100, key=key)
    >>> bool(abs(run.energy.mean[0] - 2.0) < 0.3)
    True
    """

    def __init__(
        self,
        interval: int | Array = 1,
        kernel: Kernel | None = None,
        steps: int = 20,
        start: Start | Callable[[], Start] | None = None,
        reuse: bool = False,
        stein: bool = False,
        anchor: int = 0,
    ):
        self.interval, self.steps, self.reuse = _interval(interval), int(steps), bool(reuse)
        self.stein, self.anchor = bool(stein), int(anchor)
        self.kernel = Langevin(0.1) if kernel is None else kernel
        self.start = ReplayBuffer(10_000) if start is None else as_start(start)

    def terms(self, data: Float[Array, " rows"], samples: Float[Array, " chains"]) -> tuple[Array, Array]:
        return jax.nn.softplus(-data), jax.nn.softplus(samples)


class AdaBregman(SelfAdapting):
    r"""`AdaNCE` with any convex ψ: the ratio ``g = exp(E_m - E_θ)`` by

    ``E_{p_m} S0(g) - E_data S1(g)``, ``S1 = ψ'``, ``S0(g) = gψ'(g) - ψ(g)``.

    At interval 1 the gradient is ``ψ''(1)`` times that of `MaximumLikelihood` on the same samples, for every ψ; the
    logistic ψ is `AdaNCE`. Where a ψ overflows the loss is not finite, and ``not_finite`` says for which share of the
    points. Metrics and arguments are those of `AdaNCE`.

    Args:
        psi: `Logistic`, `KullbackLeibler`, `Squared`, `ItakuraSaito`, `Power`, `Custom`, or a convex function of u.
        interval: as in `AdaNCE`.
        kernel: as in `AdaNCE`.
        steps: as in `AdaNCE`.
        start: as in `AdaNCE`.
        reuse: as in `AdaNCE`.
        stein: as in `AdaNCE`.
        anchor: as in `AdaNCE`.

    >>> import jax, jax.numpy as jnp, optax, thalweg as tw
    >>> key = jax.random.key(0)
    >>> data = 2.0 + jax.random.normal(key, (500, 1))
    >>> objective = tw.objectives.AdaBregman(tw.objectives.Squared(), 2, tw.samplers.MALA(0.5), steps=5)
    >>> energy = tw.energies.Gaussian(jnp.zeros(1), jnp.ones(1))
    >>> run = tw.fit(energy, data, objective, optimizer=optax.adam(0.05), steps=3, batch_size=100, key=key)
    >>> run.history["energy_gap"].shape
    (3,)
    """

    psi: Psi

    def __init__(
        self,
        psi: Psi | Callable[[Array], Array] | None = None,
        interval: int | Array = 1,
        kernel: Kernel | None = None,
        steps: int = 20,
        start: Start | Callable[[], Start] | None = None,
        reuse: bool = False,
        stein: bool = False,
        anchor: int = 0,
    ):
        self.psi = as_psi(psi)
        self.interval, self.steps, self.reuse = _interval(interval), int(steps), bool(reuse)
        self.stein, self.anchor = bool(stein), int(anchor)
        self.kernel = Langevin(0.1) if kernel is None else kernel
        self.start = ReplayBuffer(10_000) if start is None else as_start(start)

    def terms(self, data: Float[Array, " rows"], samples: Float[Array, " chains"]) -> tuple[Array, Array]:
        return -self.psi.s1(data), self.psi.s0(samples)


def _interval(value: int | Array) -> Array:
    if is_concrete(value) and (np.ndim(value) > 0 or np.asarray(value).dtype.kind not in "iu" or int(value) < 1):
        raise ValueError(f"expected interval to be a whole number >= 1, got {value}; 1 freezes at every update")
    return jnp.asarray(value, jnp.int32)


def _log_z_change(before: Energy, x: Array, energies: Float[Array, " chains"]) -> Array:
    """``log Z_m - log Z_before = -log E_m exp(E_m - E_before)``, from points of the new model and their energies."""
    log_weights = energies - jax.vmap(before)(x)
    return jnp.log(len(log_weights)) - jax.nn.logsumexp(log_weights)


def _arrays(energy: Energy) -> PyTree:
    """All arrays of an energy, as constants."""
    # without weak types, or the first update would be compiled for itself alone
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), eqx.filter(frozen(energy), eqx.is_array))


def _told(energies: Array, log_ratios: Array, rows: int) -> dict[str, Array]:
    data, samples = jnp.mean(energies[:rows]), jnp.mean(energies[rows:])
    weights = jax.nn.softmax(log_ratios[rows:])
    return {
        "energy_gap": data - samples,
        "energy_data": data,
        "energy_samples": samples,
        "log_ratio_data": jnp.mean(log_ratios[:rows]),
        "log_ratio_samples": jnp.mean(log_ratios[rows:]),
        "effective_share": 1 / (len(weights) * jnp.sum(weights**2)),
    }
