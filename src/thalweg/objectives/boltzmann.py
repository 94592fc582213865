"""Maximum likelihood for Boltzmann machines of any size: mean-field or sampled hidden units, and persistent chains."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import ConditionalEnergy, Objective, Step, count_chains, energies, freeze, one_of, whole_number
from thalweg.core.random import split
from thalweg.energies.boltzmann import BoltzmannMachine
from thalweg.objectives.batches import check_points
from thalweg.objectives.chains import init_start, run_chains
from thalweg.samplers.gibbs import Gibbs
from thalweg.samplers.run import check_kernel
from thalweg.samplers.starts import Start, as_start, persistent


class BoltzmannLikelihood(Objective):
    r"""The gradient of the log-likelihood of a `BoltzmannMachine` of any size,

    ``∇ log p(v) = -E_{p(h|v)}[∇E(v, h)] + E_{p(v, h)}[∇E(v, h)]``,

    as the loss ``mean E(data, h⁺) - mean E(v⁻, h⁻)``. ``hidden="mean_field"`` takes for h⁺ the means of the mean-field
    approximation of ``p(h | v)``, which maximises a lower bound of the likelihood; ``hidden="gibbs"`` takes draws, the
    ends of ``hidden_steps`` Gibbs sweeps of the hidden units with the visible ones held at the data. The negatives are
    the ends of ``steps`` steps of ``kernel`` on all units (``machine.joint``). Metrics: ``energy_gap``,
    ``energy_data``, ``energy_samples``. References: Ackley, Hinton and Sejnowski (1985), Cognitive Science 9;
    Salakhutdinov and Hinton (2009), AISTATS, for mean-field with persistent chains.

    Args:
        hidden: ``"mean_field"`` or ``"gibbs"``.
        hidden_steps: the number of sweeps of the hidden units for the data, with ``"gibbs"``.
        kernel: for all units; by default `Gibbs`.
        steps: the number of kernel steps of the negatives per update.
        start: where the negatives start; by default `persistent` chains.

    >>> import jax, jax.numpy as jnp, optax, thalweg as tw
    >>> key_model, key_fit = jax.random.split(jax.random.key(0))
    >>> data = jnp.tile(jnp.array([[1, 1, 0], [0, 0, 1]]), (50, 1))
    >>> machine = tw.energies.BoltzmannMachine(3, 2, key=key_model)
    >>> settings = dict(optimizer=optax.sgd(0.2), steps=300, batch_size=100, key=key_fit)
    >>> run = tw.fit(machine, data, tw.objectives.BoltzmannLikelihood(), **settings)
    >>> bool(jax.vmap(run.energy.log_prob)(data).mean() > -1.5)  # the bound is -0.69, three independent bits have -2.08
    True
    """

    hidden: str = eqx.field(static=True)
    hidden_steps: int = eqx.field(static=True)
    kernel: Any
    steps: int = eqx.field(static=True)
    start: Start

    def __init__(
        self,
        hidden: str = "mean_field",
        hidden_steps: int = 10,
        kernel: Any = None,
        steps: int = 1,
        start: Start | Callable[[], Start] | None = None,
    ):
        self.hidden = one_of("hidden", hidden, ("mean_field", "gibbs"))
        self.hidden_steps = whole_number("hidden_steps", hidden_steps, hint="10 are usual")
        if kernel is not None:
            check_kernel(kernel)
        self.kernel = Gibbs() if kernel is None else kernel
        self.steps = whole_number("steps", steps, hint="1 is usual")
        self.start = persistent() if start is None else as_start(start)

    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[None, Any]:
        if not isinstance(energy, BoltzmannMachine):
            raise ValueError(
                f"expected a BoltzmannMachine for BoltzmannLikelihood, got {_describe(energy)}; use "
                "MaximumLikelihood for other energies"
            )
        check_points("BoltzmannLikelihood", energy, batch)
        key_noise, key_start = split(key)
        begun = self._noise(key_noise, energy, batch)
        return None, init_start(energy.joint, self.kernel, self.start, begun, key=key_start)

    def loss(self, key: PRNGKeyArray, energy: Any, params: None, state: Any, batch: Array) -> tuple[Array, Step]:
        key_hidden, key_noise, key_chains = split(key, 3)
        fixed, count = freeze(energy), count_chains(batch)
        begun = self._noise(key_noise, energy, batch)
        if self.hidden == "mean_field":
            means = fixed.hidden_means(batch)
            data = jnp.concatenate([batch.astype(means.dtype), means], axis=1)
        else:
            data = self._sweep_hidden(key_hidden, fixed, begun)
        ended = run_chains(energy.joint, self.kernel, self.start, state, begun, key=key_chains, steps=self.steps)
        values = energies(energy.joint, jnp.concatenate([data, ended.x.astype(data.dtype)]))
        positive, negative = jnp.mean(values[:count]), jnp.mean(values[count:])
        gap = {"energy_gap": positive - negative, "energy_data": positive, "energy_samples": negative}
        return positive - negative, Step(ended.memory, ended.metrics | gap)

    def _noise(self, key: PRNGKeyArray, energy: Any, batch: Array) -> Array:
        """The data with random hidden units, ``(rows, units)``."""
        hidden = jax.random.bernoulli(key, 0.5, (count_chains(batch), energy.hidden))
        return jnp.concatenate([batch, hidden.astype(batch.dtype)], axis=1)

    def _sweep_hidden(self, key: PRNGKeyArray, energy: Any, x: Array) -> Array:
        """Gibbs sweeps of the hidden units of all rows; the visible ones stay."""
        blocks = np.asarray(energy.joint.blocks) & (np.arange(x.shape[1]) >= energy.visible)
        blocks = blocks[blocks.any(axis=1)]
        one = lambda x, key: (energy.joint.sweep(key, x, blocks), None)
        return jax.lax.scan(one, x, split(key, self.hidden_steps))[0] if len(blocks) else x


def _describe(energy: Any) -> str:
    kind = "the conditional energy " if isinstance(energy, ConditionalEnergy) else ""
    return f"{kind}{type(energy).__name__}"
