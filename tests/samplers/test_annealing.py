"""Kernels with momentum, over noise levels and over temperatures."""

import jax
import jax.numpy as jnp
import pytest

import thalweg as tw

WEIGHTS, MEANS = jnp.array([0.8, 0.2]), jnp.array([[4.0, 4.0], [-4.0, -4.0]])
FAR = tw.energies.GaussianMixture(WEIGHTS, MEANS, 1.0)


def noisy(x, sigma):
    """The energy of `FAR` with noise of deviation sigma added: the same mixture with wider components."""
    squares = jnp.sum((x - MEANS) ** 2, axis=-1) / (1 + sigma**2)
    return -jax.nn.logsumexp(jnp.log(WEIGHTS) - 0.5 * squares) + jnp.log(1 + sigma**2)


def share(chains):
    """The share of the last draws in the first mode, and its standard error."""
    first = chains.draws[:, -1, 0] > 0
    return float(first.mean()), float(jnp.sqrt(0.8 * 0.2 / len(first)))


@pytest.mark.slow
def test_mode_weights_are_wrong_by_langevin_and_right_by_annealing_and_tempering(key):
    init = jax.random.uniform(key, (2000, 2), minval=-6.0, maxval=6.0)
    plain = tw.sample(FAR, tw.samplers.Langevin(0.1), init, key=key, draws=1, burn_in=600)
    assert abs(share(plain)[0] - 0.8) > 0.15
    sigmas = jnp.geomspace(12.0, 0.2, 12)
    kernel = tw.samplers.AnnealedLangevin(sigmas, steps=100, epsilon=0.01, denoise=True)
    spread = 12.0 * jax.random.normal(key, (2000, 2))
    annealed = tw.sample(noisy, kernel, spread, key=key, draws=1, burn_in=kernel.length - 1)
    # the ladder's own bias is allowed 0.02 beside the standard error
    assert abs(share(annealed)[0] - 0.8) < 0.02 + 4 * share(annealed)[1]
    tempering = tw.samplers.ParallelTempering(tw.samplers.MALA(0.5), [1.0, 2.5, 6.0, 15.0])
    tempered = tw.sample(FAR, tempering, init, key=key, draws=1, burn_in=1500)
    assert abs(share(tempered)[0] - 0.8) < 0.02 + 4 * share(tempered)[1]


def test_underdamped_positions_have_no_bias_on_a_gaussian(key):
    """BAOAB's own stationary law on a Gaussian has the target's positions exactly."""
    target = tw.energies.Gaussian(jnp.zeros(2), jnp.array([[1.0, 0.5], [0.5, 2.0]]))
    kernel = tw.samplers.UnderdampedLangevin(0.5, friction=1.5)
    verdict = tw.check_sampler(kernel, target, key=key, chains=50_000, steps=60)
    assert verdict.passed, verdict


def test_gradient_descent_with_momentum_finds_the_minimum_faster_than_without(key):
    bowl, init = tw.energies.Gaussian(jnp.ones(2), jnp.array([1.0, 0.02])), jnp.zeros((1, 2))
    settings = {"key": key, "draws": 1, "burn_in": 60}
    plain = tw.sample(bowl, tw.samplers.GradientDescent(0.03), init, **settings).energies(bowl)
    moving = tw.sample(bowl, tw.samplers.GradientDescent(0.03, momentum=0.8), init, **settings).energies(bowl)
    assert float(moving[0, 0]) < float(plain[0, 0]) / 10


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: tw.samplers.AnnealedLangevin(jnp.array([1.0, 2.0])), "expected falling noise levels"),
        (lambda: tw.samplers.AnnealedLangevin(jnp.array([1.0, 0.0])), "expected every sigma > 0"),
        (
            lambda: tw.samplers.AnnealedLangevin(jnp.array([1.0]), steps=0),
            "steps per level to be a whole number >= 1",
        ),
        (lambda: tw.samplers.UnderdampedLangevin(0.1, friction=0.0), "expected friction > 0"),
        (lambda: tw.samplers.GradientDescent(0.1, momentum=1.0), r"expected momentum in \[0, 1\)"),
    ],
)
def test_bad_settings_get_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
