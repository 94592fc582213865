"""Maximum likelihood with Monte Carlo negatives: CD-k, PCD, short-run and replay-buffer training in one class."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import Energy, Kernel, Objective, Step, as_energy
from thalweg.samplers.langevin import Langevin
from thalweg.samplers.run import advance, averaged, check_scalar, told_with_gradients
from thalweg.samplers.starts import ReplayBuffer, Start, as_start, point_space


class MaximumLikelihood(Objective):
    r"""The gradient of the log-likelihood with its expectation taken by Monte Carlo,

    ``∇ log p_θ(x) = -∇E_θ(x) + E_{p_θ}[∇E_θ]``,

    as the loss ``mean E_θ(data) - mean E_θ(negatives)``, the negatives being where ``steps`` steps of ``kernel`` from
    ``start`` end. The start makes the method: `from_data` is CD-k (Hinton 2002), `persistent` is PCD (Tieleman 2008),
    `from_noise` is short-run training (Nijkamp et al. 2019), `ReplayBuffer` is Du and Mordatch's (2019).

    The loss is an energy gap, no bound on anything: it may be negative, and it does not tell convergence.
    Metrics: ``energy_gap``, ``energy_data``, ``energy_samples``, and ``gradient_norm`` (the mean of ‖∇E‖₂ along the
    chains, the signal of instability), ``acceptance``, ``divergences`` where the kernel has them.

    Args:
        kernel: any kernel; by default ``Langevin(0.1)``.
        steps: steps per update.
        start: where chains begin; by default ``ReplayBuffer(10_000, 0.05)``.
        energy_penalty: weight w ≥ 0 of ``w·mean(E(data)² + E(negatives)²)``, which keeps energies near zero.

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

    def __init__(
        self,
        kernel: Kernel | None = None,
        steps: int = 20,
        start: Start | Callable[[], Start] | None = None,
        energy_penalty: float | Array = 0.0,
    ):
        if steps < 1:
            raise ValueError(f"expected steps >= 1, got {steps}; CD-1 is steps=1")
        if isinstance(energy_penalty, (int, float)) and energy_penalty < 0:
            raise ValueError(f"expected energy_penalty >= 0, got {energy_penalty}; 0 turns it off")
        self.kernel = Langevin(0.1) if kernel is None else kernel
        self.steps = int(steps)
        self.start = ReplayBuffer(10_000) if start is None else as_start(start)
        self.energy_penalty = jnp.asarray(energy_penalty, float)

    def init(self, key: PRNGKeyArray, energy: Any, batch: Array) -> tuple[None, PyTree]:
        energy = as_energy(energy)
        check_scalar(energy, batch)
        return None, self.start.init(key, point_space(energy, batch), batch)

    def loss(self, key: PRNGKeyArray, energy: Any, params: None, state: PyTree, batch: Array) -> tuple[Array, Step]:
        energy = as_energy(energy)
        negatives, state, metrics = negative_samples(key, self.kernel, self.steps, self.start, energy, state, batch)
        count = batch.shape[0]
        # one pass over both halves: the same matrix products at twice the batch
        energies = jax.vmap(energy)(jnp.concatenate([batch, negatives]))
        positive, negative = jnp.mean(energies[:count]), jnp.mean(energies[count:])
        penalty = self.energy_penalty * (jnp.mean(energies[:count] ** 2) + jnp.mean(energies[count:] ** 2))
        metrics |= {"energy_gap": positive - negative, "energy_data": positive, "energy_samples": negative}
        return positive - negative + penalty, Step(state, metrics)


def negative_samples(
    key: PRNGKeyArray, kernel: Kernel, steps: int, start: Start, energy: Energy, memory: PyTree, batch: Array
) -> tuple[Array, PyTree, dict[str, Array]]:
    """Where the chains end, the start's memory after them, and what they told on the way; no gradient flows through."""
    frozen = jax.lax.stop_gradient(eqx.filter(energy, eqx.is_inexact_array))
    energy = eqx.combine(frozen, energy)
    space = point_space(energy, batch)
    key_start, key_chain = jax.random.split(key)
    x, ticket = start.begin(key_start, space, memory, batch)
    state, totals = advance(key_chain, kernel, energy, kernel.init(energy, x), steps, told_with_gradients)
    x = jax.lax.stop_gradient(state.x)
    means = averaged(totals, steps)
    metrics = {name: jnp.sum(value) if name == "divergences" else jnp.mean(value) for name, value in means.items()}
    return x, start.finish(memory, ticket, x), metrics
