"""A neural sampler as noise that learns: an adversary, whose density is known as a mean over its latent numbers."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
from paramax import NonTrainable, unwrap

from thalweg.core import is_concrete, non_negative, real, whole_number
from thalweg.noise.neural import Drawn, NeuralSampler
from thalweg.objectives.contrastive import as_nu, contrast, count_noise, log_densities
from thalweg.objectives.learned_noise import AbstractLearnedNoise
from thalweg.objectives.noise_density import as_density, prepare_noise
from thalweg.objectives.psi import Logistic
from thalweg.spaces import Finite, point_space


class Mixed(eqx.Module):
    """The noise of `AdversarialNCE`: a given density, which stays as it is, and a sampler that learns."""

    fixed: NonTrainable
    sampler: NeuralSampler

    @property
    def base(self) -> Any:
        return unwrap(self.fixed)


class AdversarialNCE(AbstractLearnedNoise):
    r"""Adversarial contrastive estimation: `NCE` whose noise is in part a neural sampler ``p_φ`` that learns to be
    taken for data,

    ``min_θ max_φ E_data softplus(-G - log ν) + (1/ν) E_{p_n} softplus(G + log ν) - α max(0, H(p_base) - H(p_φ))``,
    ``p_n = λ p_base + (1 - λ) p_φ``,

    alternating, a step of each at every update. The entropy, wanted up to the base's, keeps the sampler from settling
    on a few points; the base keeps noise wherever data can be. ``log p_φ`` is estimated from ``many`` values of z (see
    `NeuralSampler`), too low on average at data and too high at the sampler's own points. On real points gradients go
    through the sample, on finite spaces they are score-function gradients with the batch's mean as a baseline.
    Metrics: those of `NCE`; ``entropy`` of the sampler, from below; ``log_prob_bias``, the mean distance between the
    estimates of ``log p_φ`` from above and from below at the sampler's points, which bounds the mean bias there.
    Reference: Bose, Ling and Cao (2018), ACL.

    Args:
        base: p_base, as ``noise`` in `NCE`.
        share: λ, strictly between 0 and 1.
        entropy: α ≥ 0, the weight of what the sampler's entropy falls short of the base's.
        many: values of z in an estimate.
        learning_rate: of the sampler's Adam; 0 leaves it as it is.
        latent: numbers in z.
        width: of the sampler's hidden layers.
        nu: as in `NCE`.

    >>> import jax, optax, thalweg as tw
    >>> key = jax.random.key(0)
    >>> data, energy = tw.data.two_moons(key, 500), tw.energies.MLP(2, width=16, key=key)
    >>> objective = tw.objectives.AdversarialNCE(many=32, width=16)
    >>> run = tw.fit(energy, data, objective, optimizer=optax.adam(1e-3), steps=2, batch_size=100, key=key)
    >>> run.history["log_prob_bias"].shape, run.state.noise.sampler.sample(key, (5,)).shape
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

    def first_noise(self, key: PRNGKeyArray, energy: Any, batch: Array) -> Mixed:
        key_check, key_sampler = jax.random.split(key)
        base = prepare_noise(type(self).__name__, key_check, self.noise, energy, batch)[0]
        space = point_space(energy, batch)
        finite = space if isinstance(space, Finite) else None
        return Mixed(
            NonTrainable(base), NeuralSampler(batch, finite, key=key_sampler, latent=self.latent, width=self.width)
        )

    def base(self, noise: Mixed) -> Any:
        return noise.base

    def gain(self, key: PRNGKeyArray, noise: Mixed, energy: Any, log_z: Array, batch: Array, updates: Array) -> Array:
        drawn = self._draw(key, noise, batch)
        log_probs = jnp.concatenate([drawn.log_data, drawn.log_noise])
        loss, _ = contrast(Logistic(), self.nu, energy, log_z, batch, drawn.y, log_probs)
        # more than the base's would lead away from the data, to where the model's loss says nothing any more
        wanted = self.entropy * (jnp.mean(drawn.log_own) > jnp.mean(drawn.log_base))
        gain = loss - wanted * jnp.mean(drawn.log_own)
        if noise.sampler.levels is None:
            return gain
        # discrete points carry no gradient: what a point brings, against the mean, times the gradient of its log_prob
        log_ratios = log_densities(energy, drawn.own.x) - log_z - self._mixed(noise, drawn.own.x, drawn.log_own)
        brought = jax.nn.softplus(log_ratios + math.log(self.nu)) * (1 - self.share) / self.nu
        brought = jax.lax.stop_gradient(brought - wanted * drawn.log_own)
        return gain + jnp.mean((brought - jnp.mean(brought)) * drawn.log_own)

    def model_loss(
        self, key: PRNGKeyArray, noise: Mixed, energy: Any, log_z: Array, batch: Array
    ) -> tuple[Array, dict[str, Array]]:
        drawn = self._draw(key, noise, batch)
        log_probs = jnp.concatenate([drawn.log_data, drawn.log_noise])
        loss, metrics = contrast(Logistic(), self.nu, energy, log_z, batch, drawn.y, log_probs)
        metrics["entropy"] = -jnp.mean(drawn.log_own)
        metrics["log_prob_bias"] = jnp.mean(drawn.log_own - drawn.log_others)
        return loss, metrics

    def _draw(self, key: PRNGKeyArray, noise: Mixed, batch: Array) -> "_Draws":
        """Noise points from the mixture, the sampler's own, and the densities at all of them."""
        key_which, key_base, key_own, key_z = jax.random.split(key, 4)
        count = count_noise(self.nu, batch)
        own = noise.sampler.drawn(key_own, count)
        own = own._replace(x=own.x.astype(batch.dtype))
        z = noise.sampler.latents(key_z, self.many)
        from_base = jax.random.bernoulli(key_which, self.share, (count,))
        other = noise.base.sample(key_base, (count,)).astype(batch.dtype)
        y = jnp.where(from_base.reshape(-1, *[1] * (batch.ndim - 1)), other, own.x)
        rows = batch.shape[0]
        below = noise.sampler.log_probs(jnp.concatenate([batch, other, own.x]), z)
        log_own = noise.sampler.log_probs_of_own(own, z)
        log_sampler = jnp.where(from_base, below[rows : rows + count], log_own)
        return _Draws(
            y,
            own,
            self._mixed(noise, batch, below[:rows]),
            self._mixed(noise, y, log_sampler),
            log_own,
            below[rows + count :],
            jax.vmap(noise.base.log_prob)(other),
        )

    def _mixed(self, noise: Mixed, x: Array, log_sampler: Float[Array, " rows"]) -> Float[Array, " rows"]:
        """The log density of the mixture, from the sampler's."""
        log_base = jax.vmap(noise.base.log_prob)(x)
        return jnp.logaddexp(jnp.log(self.share) + log_base, jnp.log1p(-self.share) + log_sampler)


class _Draws(NamedTuple):
    """Noise points, the sampler's own points with their z, log densities of the mixture at data and noise points, the
    sampler's at its own, from above and from below, and the base's at points of its own."""

    y: Array
    own: Drawn
    log_data: Array
    log_noise: Array
    log_own: Array
    log_others: Array
    log_base: Array
