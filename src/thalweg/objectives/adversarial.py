"""Adversarial noise-contrastive estimation: part of the noise is a neural sampler that is trained against the model."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
from paramax import NonTrainable, unwrap

from thalweg.core import is_concrete, non_negative, real, whole_number
from thalweg.noise.neural_sampler import NeuralSampler, PointsWithLatents
from thalweg.objectives.learned_noise import AbstractLearnedNoise
from thalweg.objectives.noise_contrastive import as_nu, contrast, count_noise, log_densities
from thalweg.objectives.noise_density import as_density, prepare_noise
from thalweg.objectives.psi import Logistic
from thalweg.spaces import Finite, point_space


class MixtureNoise(eqx.Module):
    """The noise of `AdversarialNCE`: a fixed density and a trained sampler."""

    fixed: NonTrainable
    sampler: NeuralSampler

    @property
    def base(self) -> Any:
        return unwrap(self.fixed)


class AdversarialNCE(AbstractLearnedNoise):
    r"""Adversarial contrastive estimation: `NCE` whose noise is partly a neural sampler ``p_φ`` that learns to imitate
    the data,

    ``min_θ max_φ E_data softplus(-G - log ν) + (1/ν) E_{p_n} softplus(G + log ν) - α max(0, H(p_base) - H(p_φ))``,
    ``p_n = λ p_base + (1 - λ) p_φ``,

    with alternating steps, one of each per training update. The entropy term keeps the sampler from collapsing onto a
    few points; the base keeps noise everywhere data can be. ``log p_φ`` is estimated from ``many`` values of z (see
    `NeuralSampler`); on average it is too low at data and too high at the sampler's own points. On real points the
    sampler's gradients are reparametrised; on finite spaces they are score-function gradients with the batch mean as a
    baseline.
    Metrics: those of `NCE`; ``entropy`` of the sampler, a lower bound; ``log_prob_bias``, the mean difference between
    the upper and the lower estimate of ``log p_φ`` at the sampler's points, which bounds the mean bias there.
    Reference: Bose, Ling and Cao (2018), ACL.

    Args:
        base: p_base, as ``noise`` in `NCE`.
        share: λ, strictly between 0 and 1.
        entropy: α ≥ 0, the weight of the entropy term.
        many: the number of values of z in an estimate of ``log p_φ``.
        learning_rate: the learning rate of the sampler's Adam; 0 keeps the sampler fixed.
        latent: the dimension of z.
        width: the number of units of the sampler's hidden layers.
        nu: as in `NCE`.

    >>> import jax, optax, thalweg as tw
    >>> key_data, key_model, key_fit, key_draw = jax.random.split(jax.random.key(0), 4)
    >>> data, energy = tw.data.two_moons(key_data, 500), tw.energies.MLP(2, width=16, key=key_model)
    >>> objective = tw.objectives.AdversarialNCE(many=32, width=16)
    >>> run = tw.fit(energy, data, objective, optimizer=optax.adam(1e-3), steps=2, batch_size=100, key=key_fit)
    >>> run.history["log_prob_bias"].shape, run.state.noise.sampler.sample(key_draw, (5,)).shape
    ((2,), (5, 2))
    """

    noise: Any
    learning_rate: Array
    nu: float = eqx.field(static=True)
    share: Array
    entropy: Array
    many: int = eqx.field(static=True)
    latent: int = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def __init__(
        self,
        base: Any = None,
        share: float | Array = 0.5,
        entropy: float | Array = 0.1,
        many: int = 256,
        learning_rate: float | Array = 1e-3,
        latent: int = 8,
        width: int = 128,
        nu: float = 1.0,
    ):
        self.noise, self.nu = as_density(base), as_nu(nu)
        self.many = whole_number("many", many, hint="256 are usual")
        self.latent, self.width = whole_number("latent", latent), whole_number("width", width)
        self.share, self.entropy = real("share", share, scalar=True), non_negative("entropy", entropy, scalar=True)
        self.learning_rate = non_negative("learning_rate", learning_rate, scalar=True)
        if is_concrete(self.share) and not 0 < self.share < 1:
            raise ValueError(f"expected share strictly between 0 and 1, got {share}; without a base use FlowNCE")

    def initial_noise(self, key: PRNGKeyArray, energy: Any, batch: Array) -> MixtureNoise:
        key_check, key_sampler = jax.random.split(key)
        base = prepare_noise(type(self).__name__, key_check, self.noise, energy, batch)[0]
        space = point_space(energy, batch)
        finite = space if isinstance(space, Finite) else None
        return MixtureNoise(
            NonTrainable(base), NeuralSampler(batch, finite, key=key_sampler, latent=self.latent, width=self.width)
        )

    def base(self, noise: MixtureNoise) -> Any:
        return noise.base

    def gain(
        self, key: PRNGKeyArray, noise: MixtureNoise, energy: Any, log_z: Array, batch: Array, updates: Array
    ) -> Array:
        drawn = self._draw(key, noise, batch)
        log_probs = jnp.concatenate([drawn.log_data, drawn.log_noise])
        loss, _ = contrast(Logistic(), self.nu, energy, log_z, batch, drawn.y, log_probs)
        # an entropy above the base's would lead away from the data, to where the model's loss carries no information
        wanted = self.entropy * (jnp.mean(drawn.log_own) > jnp.mean(drawn.log_base))
        gain = loss - wanted * jnp.mean(drawn.log_own)
        if noise.sampler.levels is None:
            return gain
        # discrete points carry no gradient: the reward of a point minus the mean, times the gradient of its log_prob
        log_ratios = (
            log_densities(energy, drawn.own.x) - log_z - self._mixture_log_probs(noise, drawn.own.x, drawn.log_own)
        )
        reward = jax.nn.softplus(log_ratios + math.log(self.nu)) * (1 - self.share) / self.nu
        reward = jax.lax.stop_gradient(reward - wanted * drawn.log_own)
        return gain + jnp.mean((reward - jnp.mean(reward)) * drawn.log_own)

    def model_loss(
        self, key: PRNGKeyArray, noise: MixtureNoise, energy: Any, log_z: Array, batch: Array
    ) -> tuple[Array, dict[str, Array]]:
        drawn = self._draw(key, noise, batch)
        log_probs = jnp.concatenate([drawn.log_data, drawn.log_noise])
        loss, metrics = contrast(Logistic(), self.nu, energy, log_z, batch, drawn.y, log_probs)
        metrics["entropy"] = -jnp.mean(drawn.log_own)
        metrics["log_prob_bias"] = jnp.mean(drawn.log_own - drawn.log_others)
        return loss, metrics

    def _draw(self, key: PRNGKeyArray, noise: MixtureNoise, batch: Array) -> "_Draws":
        """Noise points from the mixture, points of the sampler, and log densities at all of them."""
        key_which, key_base, key_own, key_z = jax.random.split(key, 4)
        count = count_noise(self.nu, batch)
        own = noise.sampler.draw_with_latents(key_own, count)
        own = own._replace(x=own.x.astype(batch.dtype))
        z = noise.sampler.latents(key_z, self.many)
        from_base = jax.random.bernoulli(key_which, self.share, (count,))
        other = noise.base.sample(key_base, (count,)).astype(batch.dtype)
        y = jnp.where(from_base.reshape(-1, *[1] * (batch.ndim - 1)), other, own.x)
        rows = batch.shape[0]
        below = noise.sampler.log_probs(jnp.concatenate([batch, other, own.x]), z)
        log_own = noise.sampler.own_log_probs(own, z)
        log_sampler = jnp.where(from_base, below[rows : rows + count], log_own)
        return _Draws(
            y,
            own,
            self._mixture_log_probs(noise, batch, below[:rows]),
            self._mixture_log_probs(noise, y, log_sampler),
            log_own,
            below[rows + count :],
            jax.vmap(noise.base.log_prob)(other),
        )

    def _mixture_log_probs(
        self, noise: MixtureNoise, x: Array, log_sampler: Float[Array, " rows"]
    ) -> Float[Array, " rows"]:
        """The log density of the mixture, given that of the sampler."""
        log_base = jax.vmap(noise.base.log_prob)(x)
        return jnp.logaddexp(jnp.log(self.share) + log_base, jnp.log1p(-self.share) + log_sampler)


class _Draws(NamedTuple):
    """Noise points ``y``; the sampler's points with their z; log densities of the mixture at data and at noise points;
    the upper and lower estimates of the sampler's log density at its own points; and the base's at points of the
    base."""

    y: Array
    own: PointsWithLatents
    log_data: Array
    log_noise: Array
    log_own: Array
    log_others: Array
    log_base: Array
