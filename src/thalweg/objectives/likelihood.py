"""Maximum likelihood with Monte Carlo negatives: CD-k, PCD, short-run training, replay buffers."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import (
    Objective,
    Step,
    bind,
    concatenate,
    count_chains,
    energies,
    finite,
    freeze,
    non_negative,
    split_batch,
    whole_number,
)
from thalweg.objectives.batches import check_batch
from thalweg.objectives.chains import init_start, require_differentiable_step, run_chains
from thalweg.samplers.langevin import Langevin
from thalweg.samplers.run import check_kernel
from thalweg.samplers.starts import ReplayBuffer, Start, as_start


class MaximumLikelihood(Objective):
    r"""The gradient of the log-likelihood, with the expectation estimated by Monte Carlo,

    ``∇ log p_θ(x) = -∇E_θ(x) + E_{p_θ}[∇E_θ]``,

    as the loss ``mean E_θ(data) - mean E_θ(negatives)``. The negatives are the ends of chains of ``steps`` steps of
    ``kernel`` from ``start``. The start makes the method: `from_data` is CD-k (Hinton 2002), `persistent` is PCD
    (Tieleman 2008), `from_noise` is short-run training (Nijkamp et al. 2019), `ReplayBuffer` is the buffer of Du and
    Mordatch (2019). With `ParallelTempering` as the kernel, a start keeps all rungs of every chain (Desjardins et al.
    2010). Starts keep kernel states, momenta included; on constrained spaces the chains stay inside. With a
    `ConditionalEnergy` and data ``(x, c)`` every chain has its own condition, and the model learns ``p(x | c)``.

    The negatives depend on θ too, which the gradient above ignores. ``sampler_gradient=w`` adds the term
    ``w·mean E_frozen(x_t)`` to the loss, in which ``E_frozen`` has constant parameters and ``x_t`` is a function of θ
    through the last ``sampler_gradient_steps`` steps of the chain. With w = -1 this is the energy part of the term that
    the gradient of ``CD_t`` has in addition, ``-(∂/∂θ) E_{p_θ^t}[E_frozen(x) + log p^t_frozen(x)]``; the published code
    of improved contrastive divergence (Du et al. 2021) has w > 0, which pulls the negatives downhill.

    The loss is an energy gap, not a bound: it may be negative, and it does not measure convergence. Metrics:
    ``energy_gap``, ``energy_data``, ``energy_samples``; ``gradient_norm``, the mean of ‖∇E‖₂ along the chains, which
    grows when training becomes unstable; and ``acceptance``, ``swap_rate``, ``divergences`` if the kernel has them;
    ``sample_norm``, the mean of ‖x‖₂ over the samples, on real coordinates.

    Args:
        kernel: any kernel; by default ``Langevin(0.1)``.
        steps: the number of kernel steps of the chains per training update.
        start: where chains start; by default ``ReplayBuffer(10_000, 0.05)``.
        energy_penalty: weight w ≥ 0 of ``w·mean(E(data)² + E(negatives)²)``, which keeps energies near zero.
        sampler_gradient: the weight w of the term above, of either sign; by default there is no such term. It needs a
            kernel without an accept step on a continuous space: `Langevin`, `UnderdampedLangevin`.
        sampler_gradient_steps: the number of last steps of a chain that are differentiated.

    >>> import jax, jax.numpy as jnp, optax, thalweg as tw
    >>> key_data, key_fit = jax.random.split(jax.random.key(0))
    >>> data = 2.0 + jax.random.normal(key_data, (500, 1))
    >>> objective = tw.objectives.MaximumLikelihood(tw.samplers.MALA(0.5), steps=5, start=tw.samplers.persistent())
    >>> energy = tw.energies.Gaussian(jnp.zeros(1), jnp.ones(1))
    >>> run = tw.fit(energy, data, objective, optimizer=optax.adam(0.05), steps=200, batch_size=100, key=key_fit)
    >>> bool(abs(run.energy.mean[0] - 2.0) < 0.3)
    True
    """

    conditional: ClassVar[bool] = True
    kernel: Any
    steps: int = eqx.field(static=True)
    start: Start
    energy_penalty: Array
    sampler_gradient: Array | None
    sampler_gradient_steps: int = eqx.field(static=True)

    def __init__(
        self,
        kernel: Any = None,
        steps: int = 20,
        start: Start | Callable[[], Start] | None = None,
        energy_penalty: float | Array = 0.0,
        sampler_gradient: float | Array | None = None,
        sampler_gradient_steps: int = 1,
    ):
        self.kernel = as_kernel(kernel)
        self.steps = whole_number("steps", steps, hint="CD-1 is steps=1")
        self.start = ReplayBuffer(10_000) if start is None else as_start(start)
        self.energy_penalty = non_negative("energy_penalty", energy_penalty, scalar=True)
        self.sampler_gradient = (
            None if sampler_gradient is None else finite("sampler_gradient", sampler_gradient, scalar=True)
        )
        self.sampler_gradient_steps = whole_number("sampler_gradient_steps", sampler_gradient_steps, hint="1 is usual")
        if self.sampler_gradient_steps > self.steps:
            raise ValueError(
                f"expected sampler_gradient_steps between 1 and steps={steps}, got {sampler_gradient_steps}; 1 is usual"
            )

    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[None, PyTree]:
        check_batch(self, energy, batch)
        memory = init_start(energy, self.kernel, self.start, batch, key=key)
        if self.sampler_gradient is not None:
            require_differentiable_step(energy, self.kernel, self.start, memory, batch)
        return None, memory

    def loss(self, key: PRNGKeyArray, energy: Any, params: None, state: PyTree, batch: PyTree) -> tuple[Array, Step]:
        live_steps = 0 if self.sampler_gradient is None else self.sampler_gradient_steps
        ended = run_chains(
            energy, self.kernel, self.start, state, batch, key=key, steps=self.steps, live_steps=live_steps
        )
        count = count_chains(batch)
        values = energies_of_both(energy, batch, ended.x, ended.conditions)
        positive, negative = jnp.mean(values[:count]), jnp.mean(values[count:])
        loss = positive - negative
        loss += self.energy_penalty * (jnp.mean(values[:count] ** 2) + jnp.mean(values[count:] ** 2))
        if self.sampler_gradient is not None:
            at_rest = bind(freeze(energy), ended.conditions)
            loss += self.sampler_gradient * jnp.mean(energies(at_rest, ended.live))
        gap = {"energy_gap": positive - negative, "energy_data": positive, "energy_samples": negative}
        return loss, Step(ended.memory, ended.metrics | gap)


def as_kernel(kernel: Any) -> Any:
    """The kernel itself; raises if it is not a kernel. ``None`` gives ``Langevin(0.1)``."""
    if kernel is None:
        return Langevin(0.1)
    check_kernel(kernel)
    return kernel


def energies_of_both(energy: Any, batch: PyTree, x: PyTree, conditions: PyTree) -> Array:
    """The energies of the data, then of samples ``x``, each at its own condition, ``(rows + chains,)``.

    Both halves are evaluated as one batch.
    """
    data, given = split_batch(energy, batch)
    both = None if given is None else concatenate(given, conditions)
    return energies(bind(energy, both), concatenate(data, x))
