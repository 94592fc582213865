import jax.numpy as jnp
import pytest

import thalweg as tw

STRETCHED = tw.energies.Gaussian(jnp.array([1.0, -1.0]), jnp.array([25.0, 0.04]))


@pytest.mark.parametrize(
    "kernel, target",
    [(tw.samplers.RandomWalk(5.0), 0.234), (tw.samplers.MALA(1.0), 0.574)],
)
def test_the_step_size_reaches_the_target_acceptance(key, kernel, target):
    tuned, x = tw.samplers.warm_up(STRETCHED, kernel, jnp.zeros((100, 2)), key=key, steps=500)
    chains = tw.sample(STRETCHED, tuned, x, key=key, draws=200)
    assert abs(float(chains.stats["acceptance"].mean()) - target) < 0.08
    assert type(tuned) is type(kernel)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [tw.samplers.HMC(0.01, steps=8), tw.samplers.NUTS(0.01, max_doublings=5)])
def test_the_mass_matrix_is_the_inverse_of_the_variances(key, kernel):
    tuned, x = tw.samplers.warm_up(STRETCHED, kernel, jnp.zeros((8, 2)), key=key, steps=600)
    ratio = float(tuned.mass_matrix[1] / tuned.mass_matrix[0])
    assert 300 < ratio < 1300  # 625
    chains = tw.sample(STRETCHED, tuned, x, key=key, draws=300)
    assert float(chains.stats["acceptance"].mean()) > 0.6


def test_bad_input_gets_one_sentence(key):
    with pytest.raises(ValueError, match=r"what of it can be tuned .* got Langevin"):
        tw.samplers.warm_up(STRETCHED, tw.samplers.Langevin(0.1), jnp.zeros((1, 2)), key=key)
    with pytest.raises(ValueError, match="expected steps of warm-up to be a whole number >= 20"):
        tw.samplers.warm_up(STRETCHED, tw.samplers.MALA(0.1), jnp.zeros((1, 2)), key=key, steps=3)
    with pytest.raises(ValueError, match=r"target_acceptance in \(0, 1\)"):
        tw.samplers.warm_up(STRETCHED, tw.samplers.MALA(0.1), jnp.zeros((1, 2)), key=key, target_acceptance=2.0)
    with pytest.raises(ValueError, match="continuous space for NUTS"):
        spins = tw.energies.Ising(jnp.zeros((2, 2)))
        tw.samplers.warm_up(spins, tw.samplers.NUTS(0.1), jnp.ones((1, 2), int), key=key)
