"""Unadjusted kernels against their own laws, and what all kernels must do alike; exact ones: `test_invariance.py`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.core import Info, State

SKEWED = tw.energies.GaussianMixture(
    jnp.array([0.7, 0.3]),
    jnp.array([[0.0, 0.0], [2.0, 1.0]]),
    jnp.array([[[1.0, 0.3], [0.3, 0.5]], [[0.2, 0], [0, 1.5]]]),
)


@pytest.mark.parametrize("step_size", [0.2, 1.0])
def test_langevin_has_its_own_stationary_variance(key, step_size):
    """On N(0, 1) the recursion x ← (1 - τ/2) x + √τ ε has variance 1 / (1 - τ/4)."""
    variance = 1 / (1 - step_size / 4)
    own = tw.energies.Gaussian(jnp.zeros(1), jnp.array([variance]))
    target = lambda x: 0.5 * jnp.sum(x**2)
    verdict = tw.check_sampler(tw.samplers.Langevin(step_size), target, key=key, exact=own.sample, chains=50_000)
    assert verdict.passed, verdict


def test_langevin_bias_has_slope_one():
    """E[x²] under the chain's own law, by the exact recursion of the variance, against 1: first order in τ."""
    steps = np.array([0.4, 0.2, 0.1, 0.05])
    bias = []
    for step_size in steps:
        kernel = tw.samplers.Langevin(step_size)
        shrink = kernel.step(
            jax.random.key(0), lambda x: 0.5 * jnp.sum(x**2), kernel.init(jax.random.key(1), jnp.sum, jnp.ones((1, 1)))
        )
        start = kernel.init(jax.random.key(1), jnp.sum, jnp.ones((1, 1)))
        still = kernel.step(jax.random.key(0), lambda x: 0.0 * jnp.sum(x), start)
        drift = float(still[0].x[0, 0] - shrink[0].x[0, 0])  # (τ/2)·∇E at x = 1
        bias.append(float(kernel.noise_scale) ** 2 / (1 - (1 - drift) ** 2) - 1)
    slope = np.polyfit(np.log(steps), np.log(bias), 1)[0]
    assert abs(slope - 1) < 0.1


def test_a_step_size_of_two_is_a_gradient_coefficient_of_one_with_noise_of_its_own(key):
    kernel = tw.samplers.Langevin(step_size=2, noise_scale=0.005)
    energy = lambda x: 3.0 * jnp.sum(x)
    new, info = kernel.step(key, energy, kernel.init(key, energy, jnp.zeros((5000, 2))))
    assert abs(float(jnp.mean(new.x)) + 3.0) < 5 * 0.005 / 100
    assert abs(float(jnp.std(new.x)) / 0.005 - 1) < 0.05
    assert jnp.allclose(info.gradient_norm, 3 * jnp.sqrt(2.0))


def test_clipping_of_x_and_of_gradients(key):
    energy = lambda x: 100.0 * x[0] - 0.1 * x[1]
    kernel = tw.samplers.Langevin(1.0, noise_scale=0.0, clip_gradient=0.5)
    new, _ = kernel.step(key, energy, kernel.init(key, energy, jnp.zeros((1, 2))))
    assert jnp.allclose(new.x[0], jnp.array([-0.25, 0.05]))
    boxed = tw.samplers.Langevin(1.0, clip_x=(-1.0, 0.01))
    chains = tw.sample(energy, boxed, jnp.zeros((10, 2)), key=key, draws=20)
    assert jnp.all((chains.draws >= -1) & (chains.draws <= 0.01))


@pytest.mark.parametrize("kernel, expected", [(tw.samplers.Langevin(0.1), 30), (tw.samplers.MALA(0.1), 31)])
def test_one_gradient_evaluation_per_step(key, kernel, expected):
    """Counted as the program runs: 30 steps, and for MALA one more for the first state."""
    calls = []

    @jax.custom_jvp
    def energy(x):
        return 0.5 * jnp.sum(x**2)

    @energy.defjvp
    def _(primals, tangents):
        jax.debug.callback(lambda: calls.append(1))
        return energy(primals[0]), jnp.sum(primals[0] * tangents[0])

    @jax.jit
    def run(x):
        return tw.samplers.advance(energy, kernel, kernel.init(key, energy, x), key=key, steps=30)[0]

    state = run(jnp.ones((1, 2)))
    jax.block_until_ready(state)
    jax.effects_barrier()
    assert len(calls) == expected


def test_per_chain_lifts_a_kernel_of_one_chain(key):
    class Point(State):
        x: jax.Array

    class Walk(eqx.Module):
        width: jax.Array

        def init(self, key, energy, x):
            return Point(x)

        def step(self, key, energy, state):
            return Point(state.x + self.width * jax.random.normal(key, state.x.shape)), Info(energy(state.x))

    kernel, x = tw.samplers.per_chain(Walk(jnp.asarray(0.5))), jnp.arange(6.0).reshape(3, 2)
    new, info = kernel.step(key, SKEWED, kernel.init(key, SKEWED, x))
    noise = jax.vmap(lambda key: jax.random.normal(key, (2,)))(jax.random.split(key, 3))
    assert jnp.allclose(new.x, x + 0.5 * noise)
    assert jnp.allclose(info.acceptance, jax.vmap(SKEWED)(x))
    assert tw.sample(SKEWED, kernel, x, key=key, draws=5).draws.shape == (3, 5, 2)
