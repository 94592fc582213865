"""Self-adapting noise-contrastive estimation: the noise is a frozen copy of the model, sampled by chains.

Reference: Xu (2022), "Self-Adapting Noise-Contrastive Estimation for Energy-Based Models", master's thesis, Tsinghua
University.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from thalweg.core import (
    ConditionalEnergy,
    Objective,
    Step,
    bind,
    count_chains,
    energies,
    flag,
    freeze,
    is_concrete,
    whole_number,
    with_gradient,
)
from thalweg.objectives.batches import check_batch, on_real_coordinates
from thalweg.objectives.chains import init_start, run_chains
from thalweg.objectives.control_variates import Anchor, anchor_control, init_anchor, stein_weights
from thalweg.objectives.likelihood import as_kernel, energies_of_both
from thalweg.objectives.psi import AbstractPsi, Logistic, as_psi
from thalweg.samplers.starts import ReplayBuffer, Start, as_start
from thalweg.spaces import coordinates_of, scores_on_reals, to_real


class Draws(NamedTuple):
    """Samples of the frozen model, their conditions, their weights (``None`` for a plain mean), and the metrics of
    their chains."""

    x: PyTree
    conditions: PyTree
    weights: Array | None
    metrics: dict[str, Array]


class SelfAdaptingState(NamedTuple):
    """The objective's state: the arrays of the frozen energy, the number of training updates so far, the memory of the
    start, the negatives of the interval if they are shared, and the anchor if there is one."""

    arrays: PyTree
    updates: Array
    memory: PyTree
    negatives: Draws | None
    anchor: Anchor | None


class AbstractSelfAdapting(Objective):
    r"""``E_{p_m} S0(g) - E_data S1(g)`` with ``g = exp(E_m - E_θ)`` and the S0, S1 of a convex ψ; ``p_m`` is the model
    frozen every ``interval`` updates."""

    conditional: ClassVar[bool] = True
    psi: eqx.AbstractVar[AbstractPsi]
    interval: eqx.AbstractVar[Array]
    kernel: eqx.AbstractVar[Any]
    steps: eqx.AbstractVar[int]
    start: eqx.AbstractVar[Start]
    reuse: eqx.AbstractVar[bool]
    stein: eqx.AbstractVar[bool]
    anchor: eqx.AbstractVar[int]

    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[None, SelfAdaptingState]:
        check_batch(self, energy, batch)
        memory = init_start(energy, self.kernel, self.start, batch, key=key)
        anchor = init_anchor(energy, batch, self.anchor) if self.anchor else None
        state = SelfAdaptingState(_arrays(energy), jnp.zeros((), jnp.int32), memory, None, anchor)
        if self.stein:
            _, z = on_real_coordinates("Stein's control", energy, batch)
            jax.eval_shape(stein_weights, z, z)  # refuses a batch that is too small
        if self.reuse:
            shapes = eqx.filter_eval_shape(lambda: self._draw(key, energy, state, batch)[0])
            # never read: the first update draws its own negatives
            nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
            state = state._replace(negatives=nothing)
        return None, state

    def loss(
        self, key: PRNGKeyArray, energy: Any, params: None, state: SelfAdaptingState, batch: PyTree
    ) -> tuple[Array, Step]:
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
        rows = count_chains(batch)
        values, frozen_values = (
            energies_of_both(model, batch, negatives.x, negatives.conditions) for model in (energy, past)
        )
        log_ratios = frozen_values - values
        data, samples = -self.psi.s1(log_ratios[:rows]), self.psi.s0(log_ratios[rows:])
        metrics = negatives.metrics | _ratio_metrics(values, log_ratios, rows)
        metrics["not_finite"] = jnp.mean(~jnp.isfinite(jnp.concatenate([data, samples])))
        if not isinstance(energy, ConditionalEnergy):
            metrics["log_z_change"] = jax.lax.cond(
                due, lambda: _log_z_change(before, negatives.x, frozen_values[rows:]), lambda: jnp.zeros(())
            )
        weights = negatives.weights
        loss = jnp.mean(data) + (jnp.mean(samples) if weights is None else weights @ samples)
        anchor = state.anchor
        if anchor is not None:
            anchor, control = anchor_control(anchor, past, batch, state.updates, due)
            # right after freezing, the gradient at the data is ψ''(1)·∇E_θ
            loss += self.psi.curvature * with_gradient(energy, control)
        carried = SelfAdaptingState(
            arrays, state.updates + 1, memory, None if state.negatives is None else negatives, anchor
        )
        return loss, Step(carried, metrics)

    def _draw(self, key: PRNGKeyArray, past: Any, state: SelfAdaptingState, batch: PyTree) -> tuple[Draws, PyTree]:
        ended = run_chains(past, self.kernel, self.start, state.memory, batch, key=key, steps=self.steps)
        weights = None
        if self.stein:
            model = bind(past, ended.conditions)
            coordinates = coordinates_of("Stein's control", past, ended.x)
            z = to_real(coordinates, ended.x)
            weights = stein_weights(z, scores_on_reals(model, coordinates, z))
        return Draws(ended.x, ended.conditions, weights, ended.metrics), ended.memory


class AdaNCE(AbstractSelfAdapting):
    r"""Self-adapting noise-contrastive estimation: the noise is the model itself, frozen every ``interval`` updates,

    ``E_{p_m} softplus(E_m - E_θ) + E_data softplus(E_θ - E_m)``,

    with unnormalised energies. The negatives are the ends of chains on the frozen energy: ``steps`` steps of ``kernel``
    from ``start``. At interval 1 the gradient is half that of `MaximumLikelihood` on the same samples. The objective's
    state holds a copy of all arrays of the frozen energy; neither freezing nor a change of interval recompiles
    anything. Reference: Xu (2022), "Self-Adapting Noise-Contrastive Estimation for Energy-Based Models", master's
    thesis, Tsinghua University.

    Metrics: those of `MaximumLikelihood` (``energy_gap``, ``energy_data``, ``energy_samples``, ``gradient_norm``,
    ``acceptance``, …), and

    - ``log_ratio_data`` and ``log_ratio_samples``: the means of ``E_m - E_θ``;
    - ``effective_share``: the effective share of the negatives as importance samples of p_θ (1 right after freezing);
    - ``not_finite``: the share of points whose loss is not finite;
    - ``log_z_change``: at an update that freezes, ``log Z`` of the new frozen model minus that of the one before,
      estimated from the new negatives; zero at other updates. If the chains mix, its sum is the total change of log Z.

    With ``reuse`` the metrics of the chains stay the same until the next freezing. With a `ConditionalEnergy` every
    chain has its own condition, and ``log_z_change`` is left out, since log Z(c) differs between conditions.

    Args:
        interval: 𝒦 ≥ 1, the number of training updates between freezings.
        kernel: any kernel; by default ``Langevin(0.1)``.
        steps: the number of kernel steps of every chain.
        start: where chains start; by default ``ReplayBuffer(10_000, 0.05)``.
        reuse: draw negatives once per interval, right after freezing, and share them over its updates.
        stein: weight the negatives by Stein's control variates, which lowers the variance of their half of the
            gradient. This needs chains that have reached p_m; with short chains it adds to their bias.
        anchor: the number of recent batches over which the gradient of the frozen energy is averaged at every freezing.
            The difference between this mean and the gradient on the current batch is a control variate, which lowers
            the variance of the data's half of the gradient, less so the further θ has moved since. Costs one more
            gradient per update; 0 switches it off.

    >>> import jax, jax.numpy as jnp, optax, thalweg as tw
    >>> key_data, key_fit = jax.random.split(jax.random.key(0))
    >>> data = 2.0 + jax.random.normal(key_data, (500, 1))
    >>> objective = tw.objectives.AdaNCE(5, tw.samplers.MALA(0.5), steps=5, start=tw.samplers.persistent())
    >>> energy = tw.energies.Gaussian(jnp.zeros(1), jnp.ones(1))
    >>> run = tw.fit(energy, data, objective, optimizer=optax.adam(0.05), steps=300, batch_size=100, key=key_fit)
    >>> bool(abs(run.energy.mean[0] - 2.0) < 0.3)
    True
    """

    interval: Array
    kernel: Any
    steps: int = eqx.field(static=True)
    start: Start
    reuse: bool = eqx.field(static=True)
    stein: bool = eqx.field(static=True)
    anchor: int = eqx.field(static=True)

    def __init__(
        self,
        interval: int | Array = 1,
        kernel: Any = None,
        steps: int = 20,
        start: Start | Callable[[], Start] | None = None,
        reuse: bool = False,
        stein: bool = False,
        anchor: int = 0,
    ):
        self.interval, self.steps = _interval(interval), whole_number("steps", steps, hint="20 are usual")
        self.reuse, self.stein = flag("reuse", reuse), flag("stein", stein)
        self.anchor = whole_number("anchor", anchor, 0, "0 is none, 16 batches are many")
        self.kernel = as_kernel(kernel)
        self.start = ReplayBuffer(10_000) if start is None else as_start(start)

    @property
    def psi(self) -> Logistic:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Logistic()


class AdaBregman(AbstractSelfAdapting):
    r"""`AdaNCE` with any convex ψ: the ratio ``g = exp(E_m - E_θ)`` is fitted by minimising

    ``E_{p_m} S0(g) - E_data S1(g)``, ``S1 = ψ'``, ``S0(g) = gψ'(g) - ψ(g)``.

    At interval 1 the gradient is ``ψ''(1)`` times that of `MaximumLikelihood` on the same samples, for every ψ; the
    logistic ψ gives `AdaNCE`. If ψ overflows, the loss is not finite, and ``not_finite`` is the share of such points.
    Metrics and the other arguments are those of `AdaNCE`. Reference: Xu (2022), "Self-Adapting Noise-Contrastive
    Estimation for Energy-Based Models", master's thesis, Tsinghua University.

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
    >>> key_data, key_fit = jax.random.split(jax.random.key(0))
    >>> data = 2.0 + jax.random.normal(key_data, (500, 1))
    >>> objective = tw.objectives.AdaBregman(tw.objectives.Squared(), 2, tw.samplers.MALA(0.5), steps=5)
    >>> energy = tw.energies.Gaussian(jnp.zeros(1), jnp.ones(1))
    >>> run = tw.fit(energy, data, objective, optimizer=optax.adam(0.05), steps=3, batch_size=100, key=key_fit)
    >>> run.history["energy_gap"].shape
    (3,)
    """

    psi: AbstractPsi
    interval: Array
    kernel: Any
    steps: int = eqx.field(static=True)
    start: Start
    reuse: bool = eqx.field(static=True)
    stein: bool = eqx.field(static=True)
    anchor: int = eqx.field(static=True)

    def __init__(
        self,
        psi: AbstractPsi | Callable[[Array], Array] | None = None,
        interval: int | Array = 1,
        kernel: Any = None,
        steps: int = 20,
        start: Start | Callable[[], Start] | None = None,
        reuse: bool = False,
        stein: bool = False,
        anchor: int = 0,
    ):
        self.psi = as_psi(psi)
        self.interval, self.steps = _interval(interval), whole_number("steps", steps, hint="20 are usual")
        self.reuse, self.stein = flag("reuse", reuse), flag("stein", stein)
        self.anchor = whole_number("anchor", anchor, 0, "0 is none, 16 batches are many")
        self.kernel = as_kernel(kernel)
        self.start = ReplayBuffer(10_000) if start is None else as_start(start)


def _interval(value: int | Array) -> Array:
    if is_concrete(value):
        number = value.item() if isinstance(value, (np.ndarray, jax.Array)) and value.ndim == 0 else value
        value = whole_number("interval", number, hint="1 freezes at every update")
    return jnp.asarray(value, jnp.int32)


def _log_z_change(before: Any, x: PyTree, values: Float[Array, " chains"]) -> Array:
    """``log Z_m - log Z_before = -log E_m exp(E_m - E_before)``, from samples of the new model and their energies."""
    log_weights = values - energies(before, x)
    return jnp.log(len(log_weights)) - jax.nn.logsumexp(log_weights)


def _arrays(energy: Any) -> PyTree:
    """All arrays of an energy, as constants."""
    # without weak types, because the first update would otherwise be compiled separately
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), eqx.filter(freeze(energy), eqx.is_array))


def _ratio_metrics(values: Array, log_ratios: Array, rows: int) -> dict[str, Array]:
    data, samples = jnp.mean(values[:rows]), jnp.mean(values[rows:])
    weights = jax.nn.softmax(log_ratios[rows:])
    return {
        "energy_gap": data - samples,
        "energy_data": data,
        "energy_samples": samples,
        "log_ratio_data": jnp.mean(log_ratios[:rows]),
        "log_ratio_samples": jnp.mean(log_ratios[rows:]),
        "effective_share": 1 / (len(weights) * jnp.sum(weights**2)),
    }
