r"""Denoising score matching: the score of noisy data, at one noise level or over a ladder of levels."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from thalweg.core import (
    ConditionalEnergy,
    Energy,
    HasSmoothing,
    Objective,
    Step,
    check_scalar,
    given,
    is_concrete,
    positive,
    require_model,
    score,
    space_of,
    takes,
)
from thalweg.core.random import materialize, normal
from thalweg.energies.analytic import GaussianMixture
from thalweg.energies.compose import smoothed
from thalweg.noise.schedules import ladder_from_data
from thalweg.objectives.batches import check_points, on_real_coordinates, require_array
from thalweg.objectives.score import AbstractScoreObjective, half_square, match_scores, scores
from thalweg.spaces import Real, require_gradient


class DenoisingScoreMatching(AbstractScoreObjective):
    r"""``½‖s_θ(x + σz) + z/σ‖²`` with ``z ~ N(0, I)``: learns the score of the data with noise of level σ.

    One gradient in x per point in any dimension, and no assumption on the data: the cheapest score matching. It learns
    ``p * N(0, σ²I)`` instead of p, and its variance grows like ``d/σ²``. On constrained spaces and for trees, the noise
    is added to the real coordinates, and the noisy density of these is learned. Reference: Vincent (2011), Neural Comp.
    23.

    Args:
        sigma: σ > 0; or several levels ``(L,)``, one of which is drawn for every point (the model then learns the
            mixture of the noisy densities); or a schedule ``update -> σ``, such as optax's.

    >>> import jax, optax, thalweg as tw
    >>> key_data, key_fit = jax.random.split(jax.random.key(0))
    >>> data = 2.0 + jax.random.normal(key_data, (1000, 1))
    >>> objective = tw.objectives.DenoisingScoreMatching(sigma=0.5)
    >>> energy = tw.energies.Gaussian([0.0], [1.0])
    >>> run = tw.fit(energy, data, objective, optimizer=optax.adam(0.05), steps=300, batch_size=200, key=key_fit)
    >>> bool(abs(run.energy.mean[0] - 2.0) < 0.2), bool(abs(run.energy.covariance[0, 0] - 1.25) < 0.25)
    (True, True)
    """

    sigma: Array | Callable[[Array], Array]

    def __init__(self, sigma: float | Array | Sequence[float] | Callable[[Array], Array] = 0.1):
        if callable(sigma) and (isinstance(sigma, type) or not takes(sigma, 1)):
            raise ValueError(f"expected sigma as numbers or a function of x, got {sigma!r:.60}; give for example 0.1")
        self.sigma = sigma if callable(sigma) else positive("sigma", sigma)
        if not callable(self.sigma) and self.sigma.ndim > 1:
            raise ValueError(f"expected one sigma or levels (L,), got the shape {self.sigma.shape}; flatten them")

    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[None, PyTree]:
        super().init(key, energy, batch)
        return None, jnp.zeros((), int)

    def loss(self, key: PRNGKeyArray, energy: Any, params: None, state: Array, batch: PyTree) -> tuple[Array, Step]:
        sigma = self.sigma(state) if callable(self.sigma) else self.sigma
        model, z = on_real_coordinates(type(self).__name__, energy, batch)
        metrics = {"sigma": jnp.asarray(sigma, float)} if callable(self.sigma) else {}
        return jnp.mean(denoising_losses(key, model, z, sigma)), Step(state + 1, metrics)

    def points(self, key: PRNGKeyArray, model: Any, batch: Float[Array, "rows ..."]) -> Float[Array, " rows"]:
        return denoising_losses(key, model, batch, self.first_sigma())

    def first_sigma(self) -> Array | float:
        """The noise level, or levels, of the first update."""
        return self.sigma(jnp.zeros((), int)) if callable(self.sigma) else self.sigma

    def truth(self, energy: Any) -> Energy:
        """The density of the noisy data; with several levels, the mixture over the levels."""
        energy = require_smoothing(energy)
        sigma = self.first_sigma()
        if jnp.ndim(sigma) == 0:
            return energy.smoothed(sigma)
        if not isinstance(energy, GaussianMixture):
            raise ValueError(f"expected a GaussianMixture for several levels, got {type(energy).__name__}; give one")
        levels = [energy.smoothed(level) for level in jnp.asarray(sigma)]
        return GaussianMixture(
            jnp.concatenate([level.weights for level in levels]),
            jnp.concatenate([level.means for level in levels]),
            jnp.concatenate([level.covariances for level in levels]),
        )

    def expected(self, energy: Any) -> Objective:
        return _BlurredExplicit(self, self.truth(energy))


class _BlurredExplicit(AbstractScoreObjective):
    """Explicit score matching at noisy points, against the score of their density."""

    denoising: DenoisingScoreMatching
    blurred: Energy

    def points(self, key: PRNGKeyArray, model: Any, batch: Float[Array, "rows ..."]) -> Float[Array, " rows"]:
        noisy = add_noise(key, batch, self.denoising.first_sigma())[0]
        return match_scores(model, noisy, scores(self.blurred, noisy))


class NoiseConditionalScoreMatching(Objective):
    r"""Denoising score matching over a ladder ``σ_1 > … > σ_L``, with a random level for every point,

    ``mean_i λ(σ_i)·½‖s_θ(x + σ_i z, σ_i) + z/σ_i‖²``, ``λ(σ) = σ²``,

    for a noise-conditional network ``s_θ(x, σ)`` or energy ``E_θ(x, σ)``. Sample the trained model with
    `AnnealedLangevin` over the same ladder, which is the objective's state. Reference: Song and Ermon (2019), NeurIPS.

    Args:
        sigmas: the noise levels, in decreasing order; by default chosen from the first batch by
            `tw.noise.ladder_from_data`.
        shares: how often each level is drawn, ``(L,)`` positive weights; by default all equally. The hardest levels to
            learn are those at which data points become distinguishable, about the standard deviation of the data.

    >>> import jax, optax, thalweg as tw
    >>> key_data, key_model, key_fit = jax.random.split(jax.random.key(0), 3)
    >>> data = tw.data.eight_gaussians(key_data, 1000)
    >>> network = tw.energies.NoiseConditionalMLP(2, key=key_model)
    >>> objective = tw.objectives.NoiseConditionalScoreMatching(tw.noise.geometric_ladder(5.0, 0.1, 8))
    >>> run = tw.fit(network, data, objective, optimizer=optax.adam(1e-3), steps=3, batch_size=100, key=key_fit)
    >>> run.state.shape
    (8,)
    """

    minimised_at_truth: ClassVar[bool] = True
    sigmas: Array | None
    shares: Array | None

    def __init__(self, sigmas: Any = None, shares: Any = None):
        if sigmas is not None:
            sigmas = positive("every sigma", sigmas)
            if sigmas.ndim != 1 or (is_concrete(sigmas) and np.any(np.diff(sigmas) >= 0)):
                raise ValueError(
                    f"expected falling noise levels (L,), got {np.asarray(sigmas)}; sort them, largest first"
                )
        if shares is not None:
            shares = positive("every share", shares)
            if sigmas is None or shares.shape != sigmas.shape:
                raise ValueError(
                    f"expected one share for each of the sigmas given, got shares of shape {shares.shape}; give both"
                )
        self.sigmas, self.shares = sigmas, shares

    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[None, Array]:
        name, space = type(self).__name__, space_of(energy)
        require_model(name, energy)
        require_gradient(name, space, batch)
        require_array(name, batch, "use DenoisingScoreMatching, which adds noise to their real coordinates")
        if space is not None and not isinstance(space, Real):
            raise ValueError(
                f"expected points of R^d for {name}, got {space}, whose support noise would leave; "
                "use DenoisingScoreMatching, which adds noise to real coordinates"
            )
        check_points(name, energy, batch)
        sigmas = ladder_from_data(batch) if self.sigmas is None else self.sigmas
        check_scalar(given(energy, sigmas[0]), batch)
        return None, sigmas

    def loss(self, key: PRNGKeyArray, energy: Any, params: None, state: Array, batch: Array) -> tuple[Array, Step]:
        noisy, z, sigma = add_noise(key, batch, state, self.shares)

        def point(x, z, sigma):
            level = sigma.reshape(())
            return level**2 * half_square(given(energy, level), x, -z / level)

        return jnp.mean(jax.vmap(point)(noisy, z, sigma)), Step(state, {})

    def truth(self, energy: Any) -> ConditionalEnergy:
        """The densities of the noisy data, as one energy of ``(x, σ)``."""
        return smoothed(require_smoothing(energy))

    def expected(self, energy: Any) -> Objective:
        return _ConditionalExplicit(self.truth(energy), self.sigmas, self.shares)


class _ConditionalExplicit(Objective):
    """``mean_i λ(σ_i)·½‖s_θ(x̃, σ_i) - ∇log p_{σ_i}(x̃)‖²`` at noisy points x̃."""

    minimised_at_truth: ClassVar[bool] = True
    blurred: ConditionalEnergy
    sigmas: Array | None
    shares: Array | None

    def init(self, key, energy, batch):
        return NoiseConditionalScoreMatching(self.sigmas).init(key, energy, batch)

    def loss(self, key, energy, params, state, batch):
        noisy, _, sigma = add_noise(key, batch, state, self.shares)

        def point(x, sigma):
            level = sigma.reshape(())
            return level**2 * half_square(given(energy, level), x, score(given(self.blurred, level), x))

        return jnp.mean(jax.vmap(point)(noisy, sigma)), Step(state, {})


def denoising_losses(key: PRNGKeyArray, model: Any, batch: Array, sigma: Array | float) -> Float[Array, " rows"]:
    """``½‖s_θ(x + σz) + z/σ‖²`` of every point."""
    noisy, z, sigma = add_noise(key, batch, sigma)
    return match_scores(model, noisy, -z / sigma)


def add_noise(
    key: PRNGKeyArray, batch: Array, sigma: Array | float, shares: Array | None = None
) -> tuple[Array, Array, Array]:
    """``x + σz``, z, and the σ of every row, of a shape that broadcasts with z; with several levels each row draws
    one."""
    key_level, key_noise = jax.random.split(key)
    sigma = jnp.asarray(sigma)
    z = materialize(sigma > 0, lambda: normal(key_noise, batch.shape, batch.dtype))
    shape = (batch.shape[0], *(1,) * (batch.ndim - 1))
    if sigma.ndim == 1:
        logits = jnp.zeros(sigma.shape[0]) if shares is None else jnp.log(shares)
        sigma = sigma[jax.random.categorical(key_level, logits, shape=(batch.shape[0],))].reshape(shape)
    sigma = jnp.broadcast_to(sigma.astype(batch.dtype), shape)
    return batch + sigma * z, z, sigma


def require_smoothing(energy: Any) -> HasSmoothing:
    """The energy itself; raises if it has no closed form with added noise."""
    if not isinstance(energy, HasSmoothing):
        raise ValueError(
            f"expected an energy with a closed form under noise (Gaussian, GaussianMixture), got "
            f"{type(energy).__name__}; the truth of a denoising objective is the blurred density"
        )
    return energy
