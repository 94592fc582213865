"""Denoising score matching against the blurred density."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg import objectives
from thalweg.objectives.denoising import add_noise

LINE = tw.energies.GaussianMixture(jnp.array([0.7, 0.3]), jnp.array([[-1.0], [1.5]]), jnp.array([1.0, 0.5]))


@pytest.mark.slow
def test_denoising_is_explicit_on_the_noisy_density_and_a_constant():
    """Both expectations by a sum over x and z: their difference does not depend on the model."""
    sigma = 0.5
    noisy = LINE.smoothed(sigma)
    z, weights = np.polynomial.hermite_e.hermegauss(30)
    x = np.linspace(-8, 8, 401)
    mass = np.exp(jax.vmap(LINE.log_prob)(jnp.asarray(x, float)[:, None])) * (x[1] - x[0])
    points = jnp.asarray((x[:, None] + sigma * z[None, :]).reshape(-1, 1), float)
    shares = np.outer(mass, weights / weights.sum()).ravel()
    gaps = []
    scores = jax.jit(lambda e, points: jax.vmap(lambda p: tw.score(e, p))(points))
    for model in (tw.energies.Gaussian(jnp.array([0.3]), jnp.array([2.0])), LINE):
        s, true = (np.asarray(scores(e, points), np.float64)[:, 0] for e in (model, noisy))
        denoising = np.sum(shares * 0.5 * (s + np.tile(z, len(x)) / sigma) ** 2)
        gaps.append(denoising - np.sum(shares * 0.5 * (s - true) ** 2))
        batch = LINE.sample(jax.random.key(0), (50_000,))
        losses = eqx.filter_jit(objectives.DenoisingScoreMatching(sigma).points)(jax.random.key(1), model, batch)
        error = float(jnp.std(losses)) / np.sqrt(len(batch))
        assert abs(float(jnp.mean(losses)) - denoising) < 5 * error
    np.testing.assert_allclose(gaps[0], gaps[1], rtol=1e-4)


def test_the_noise_conditional_loss_is_the_weighted_mean_over_the_ladder(key):
    sigmas, model = jnp.array([2.0, 0.5]), tw.energies.smoothed(LINE)
    batch = LINE.sample(key, (1000,))
    objective = objectives.NoiseConditionalScoreMatching(sigmas)
    state = objective.init(key, model, batch)[1]
    loss = eqx.filter_jit(objective.loss)(key, model, None, state, batch)[0]
    noisy, z, sigma = (np.asarray(part, np.float64)[:, 0] for part in add_noise(key, batch, sigmas))
    assert set(np.unique(sigma)) == {2.0, 0.5} and abs(np.mean(sigma == 2.0) - 0.5) < 0.08
    np.testing.assert_allclose(noisy, np.asarray(batch)[:, 0] + sigma * z, rtol=1e-5, atol=1e-5)
    by_hand = jax.vmap(lambda x, z, s: s**2 * 0.5 * jnp.sum((tw.score(LINE.smoothed(s), x) + z / s) ** 2))
    ours = jax.jit(by_hand)(*(jnp.asarray(part, float) for part in (noisy[:, None], z[:, None], sigma)))
    np.testing.assert_allclose(loss, jnp.mean(ours), rtol=1e-4)


def test_levels_are_drawn_by_their_shares(key):
    levels = add_noise(key, jnp.zeros((4000, 1)), jnp.array([2.0, 0.5]), jnp.array([1.0, 3.0]))[2]
    # three quarters, within five standard errors
    assert abs(float(jnp.mean(levels == 0.5)) - 0.75) < 5 * (0.75 * 0.25 / 4000) ** 0.5


def test_a_schedule_of_noise_is_followed_and_reported(key):
    schedule = optax.linear_schedule(1.0, 0.1, 10)
    energy = tw.energies.Gaussian(jnp.array([0.0]), jnp.array([1.0]))
    objective = objectives.DenoisingScoreMatching(schedule)
    run = tw.fit(energy, LINE.sample(key, (50,)), objective, optimizer=optax.sgd(0.0), steps=11, batch_size=50, key=key)
    np.testing.assert_allclose(run.history["sigma"], np.linspace(1.0, 0.1, 11), rtol=1e-5)


def test_several_levels_learn_the_mixture_of_the_blurred_densities():
    truth = objectives.DenoisingScoreMatching(jnp.array([0.2, 1.0])).truth(LINE)
    x = jnp.array([0.3])
    mean = 0.5 * jnp.exp(LINE.smoothed(0.2).log_prob(x)) + 0.5 * jnp.exp(LINE.smoothed(1.0).log_prob(x))
    np.testing.assert_allclose(jnp.exp(truth.log_prob(x)), mean, rtol=1e-5)


def test_the_ladder_is_chosen_from_the_first_batch(key):
    batch = 3 * jax.random.normal(key, (200, 2))
    _, sigmas = objectives.NoiseConditionalScoreMatching().init(key, tw.energies.smoothed(tw.energies.Ring()), batch)
    np.testing.assert_allclose(sigmas, tw.noise.ladder_from_data(batch))


def test_bad_input_is_refused(key):
    for sigma in (0.0, -1.0, [0.5, 0.0]):
        with pytest.raises(ValueError, match="expected sigma > 0"):
            objectives.DenoisingScoreMatching(sigma)
    with pytest.raises(ValueError, match="expected every sigma > 0"):
        objectives.NoiseConditionalScoreMatching([1.0, 0.0])
    with pytest.raises(ValueError, match="expected falling noise levels"):
        objectives.NoiseConditionalScoreMatching([0.1, 1.0])
    with pytest.raises(
        ValueError, match=r"expected one share for each of the sigmas given, got shares of shape \(3,\)"
    ):
        objectives.NoiseConditionalScoreMatching([1.0, 0.1], shares=[1.0, 1.0, 1.0])
    batch = jax.random.normal(key, (30, 4))
    with pytest.raises(ValueError, match="expected a continuous space for NoiseConditionalScoreMatching"):
        objectives.NoiseConditionalScoreMatching([1.0, 0.1]).init(key, tw.energies.Ising(jnp.zeros((4, 4))), batch)
    with pytest.raises(ValueError, match="expected a score of the point's shape"):
        network = tw.as_score(lambda x, sigma: x[:1])
        objectives.NoiseConditionalScoreMatching([1.0, 0.1]).init(key, network, batch)
    with pytest.raises(ValueError, match="closed form under noise"):
        objectives.DenoisingScoreMatching(0.1).truth(tw.energies.Banana())
