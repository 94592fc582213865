"""NCE with trained noise: the noise ascends the loss that the model descends, and comes to resemble the data."""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import (
    Objective,
    Step,
    combine,
    finite,
    freeze,
    is_concrete,
    non_negative,
    partition_trainable,
    whole_number,
)
from thalweg.noise.densities import variances
from thalweg.noise.flows import flow
from thalweg.objectives.batches import check_batch, require_array
from thalweg.objectives.noise_contrastive import (
    LogZ,
    as_nu,
    contrast,
    count_noise,
    initial_log_z,
    log_densities,
    refuse_conditions,
)
from thalweg.objectives.noise_density import as_density, prepare_noise
from thalweg.objectives.psi import Logistic
from thalweg.spaces import Continuous, Discrete, Real, point_space

_ADAM = optax.scale_by_adam()


class NoiseState(NamedTuple):
    """The objective's state: the current noise, the state of its optimiser, and the number of training updates so
    far."""

    noise: Any
    memory: PyTree
    updates: Array


class AbstractLearnedNoise(Objective):
    """`NCE` with trained noise: in every training update the noise first takes an Adam step that increases its `gain`;
    then the model's loss is computed against the new noise."""

    minimised_at_truth: ClassVar[bool] = True
    learning_rate: eqx.AbstractVar[Array]
    nu: eqx.AbstractVar[float]

    @abc.abstractmethod
    def initial_noise(self, key: PRNGKeyArray, energy: Any, batch: Array) -> Any:
        """The initial noise, checked against the first batch."""

    @abc.abstractmethod
    def gain(self, key: PRNGKeyArray, noise: Any, energy: Any, log_z: Array, batch: Array, updates: Array) -> Array:
        """The quantity that the noise maximises; energy and log Z are constants."""

    @abc.abstractmethod
    def model_loss(
        self, key: PRNGKeyArray, noise: Any, energy: Any, log_z: Array, batch: Array
    ) -> tuple[Array, dict[str, Array]]:
        """The model's loss against the noise, which is a constant, and its metrics."""

    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[LogZ, NoiseState]:
        name = type(self).__name__
        refuse_conditions(self, energy)
        check_batch(self, energy, batch)
        require_array(name, batch, "use NCE with a density on such trees, or score matching")
        space = point_space(energy, batch)
        if isinstance(space, Continuous) and not isinstance(space, Real):
            raise ValueError(
                f"expected points of R^d or of a finite space for {name}, got {space}, which noise that learns would "
                "leave; use NCE, whose default noise stays in the space"
            )
        key_noise, key_start = jax.random.split(key)
        noise = self.initial_noise(key_noise, energy, batch)
        log_z = initial_log_z(key_start, energy, self.base(noise), batch)
        memory = _ADAM.init(partition_trainable(noise)[0])
        return LogZ(log_z), NoiseState(noise, memory, jnp.zeros((), jnp.int32))

    def base(self, noise: Any) -> Any:
        """The part of the noise with a known density, for the initial estimate of log Z."""
        return noise

    def loss(self, key: PRNGKeyArray, energy: Any, params: LogZ, state: NoiseState, batch: Array) -> tuple[Array, Step]:
        key_noise, key_model = jax.random.split(key)
        trained, rest = partition_trainable(state.noise)
        past, log_z = freeze(energy), jax.lax.stop_gradient(params.log_z)

        def noise_loss(trained):
            return -self.gain(key_noise, combine(trained, rest), past, log_z, batch, state.updates)

        gradient = jax.grad(noise_loss)(trained)
        change, memory = _ADAM.update(gradient, state.memory)
        stepped = jax.tree.map(lambda leaf, move: leaf - self.learning_rate * move, trained, change)
        noise = freeze(combine(stepped, rest))
        loss, metrics = self.model_loss(key_model, noise, energy, params.log_z, batch)
        return loss, Step(NoiseState(noise, memory, state.updates + 1), metrics)


class FlowNCE(AbstractLearnedNoise):
    r"""Flow contrastive estimation: `NCE` whose noise is a normalising flow ``q_φ``,

    ``min_θ max_φ E_data softplus(-G - log ν) + (1/ν) E_{q_φ} softplus(G + log ν)``, ``G = log p̃_θ - log q_φ``,

    with alternating steps, one of each per training update. The model learns more from noise that resembles the data.
    For the first ``warm_start`` updates the flow maximises its likelihood of the data instead, which brings it close.
    log Z is learned, as in `NCE`. Metrics: those of `NCE`, and ``log_likelihood_model`` and ``log_likelihood_flow``,
    the means of ``log p̃_θ`` and ``log q_φ`` over ``held_out`` if it is given, otherwise over the batch. Reference: Gao,
    Nijkamp, Kingma, Xu, Dai and Wu (2020), CVPR, "Flow Contrastive Estimation".

    Args:
        noise: a flow from `tw.noise.flow`, `tw.noise.fit_flow` or flowjax, of the points' shape; by default a small one
            with the mean and standard deviations of the first batch.
        learning_rate: the learning rate of the flow's Adam; 0 keeps the flow fixed.
        warm_start: the number of first training updates in which the flow learns by maximum likelihood.
        nu: as in `NCE`.
        held_out: rows ``(n, *event)`` over which the two log-likelihoods are averaged.

    >>> import jax, optax, thalweg as tw
    >>> key_data, key_model, key_flow, key_fit = jax.random.split(jax.random.key(0), 4)
    >>> data, energy = tw.data.two_moons(key_data, 500), tw.energies.MLP(2, width=16, key=key_model)
    >>> objective = tw.objectives.FlowNCE(tw.noise.flow(2, key=key_flow, layers=1, width=8, knots=4))
    >>> run = tw.fit(energy, data, objective, optimizer=optax.adam(1e-3), steps=2, batch_size=100, key=key_fit)
    >>> run.history["log_likelihood_flow"].shape
    (2,)
    """

    noise: Any
    learning_rate: Array
    warm_start: Array
    nu: float = eqx.field(static=True)
    held_out: Array | None

    def __init__(
        self,
        noise: Any = None,
        learning_rate: float | Array = 1e-3,
        warm_start: int | Array = 500,
        nu: float = 1.0,
        held_out: Any = None,
    ):
        self.noise, self.nu = as_density(noise), as_nu(nu)
        self.learning_rate = non_negative("learning_rate", learning_rate, scalar=True)
        self.warm_start = as_updates("warm_start", warm_start, 0)
        self.held_out = None if held_out is None else finite("held_out", held_out)

    def initial_noise(self, key: PRNGKeyArray, energy: Any, batch: Array) -> Any:
        space = point_space(energy, batch)
        if isinstance(space, Discrete):
            raise ValueError(
                f"expected real points for FlowNCE, got {space}; use NCE with independent noise, or AdversarialNCE"
            )
        if self.held_out is not None and self.held_out.shape[1:] != batch.shape[1:]:
            raise ValueError(
                f"expected held_out rows of shape {batch.shape[1:]}, got {self.held_out.shape[1:]}; give rows like the "
                "data"
            )
        if self.noise is not None:
            return prepare_noise(type(self).__name__, key, self.noise, energy, batch)[0]
        flat = batch.reshape(len(batch), -1)
        mean, deviation = (v.reshape(batch.shape[1:]) for v in (jnp.mean(flat, axis=0), jnp.sqrt(variances(flat))))
        return flow(batch.shape[1:], key=key, mean=mean, deviation=deviation)

    def gain(self, key: PRNGKeyArray, noise: Any, energy: Any, log_z: Array, batch: Array, updates: Array) -> Array:
        def likelihood():
            return jnp.mean(jax.vmap(noise.log_prob)(batch))

        def confusion():
            return self._contrast(key, noise, energy, log_z, batch)[0]

        return jax.lax.cond(updates < self.warm_start, likelihood, confusion)

    def model_loss(
        self, key: PRNGKeyArray, noise: Any, energy: Any, log_z: Array, batch: Array
    ) -> tuple[Array, dict[str, Array]]:
        loss, metrics = self._contrast(key, noise, energy, log_z, batch)
        rows = batch if self.held_out is None else self.held_out
        metrics["log_likelihood_model"] = jnp.mean(log_densities(energy, rows)) - log_z
        metrics["log_likelihood_flow"] = jnp.mean(jax.vmap(noise.log_prob)(rows))
        return loss, metrics

    def _contrast(
        self, key: PRNGKeyArray, noise: Any, energy: Any, log_z: Array, batch: Array
    ) -> tuple[Array, dict[str, Array]]:
        y = noise.sample(key, (count_noise(self.nu, batch),)).astype(batch.dtype)
        log_probs = jax.vmap(noise.log_prob)(jnp.concatenate([batch, y]))
        return contrast(Logistic(), self.nu, energy, log_z, batch, y, log_probs)


def as_updates(name: str, value: Any, least: int) -> Array:
    """A number of training updates as an array leaf, so that a change of it does not recompile anything."""
    return jnp.asarray(whole_number(name, value, least) if is_concrete(value) else value, jnp.int32)
