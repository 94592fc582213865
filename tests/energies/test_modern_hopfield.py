"""The modern Hopfield network: its energy, its step as attention, its bound, and its density as a mixture."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.energies import ModernHopfield


def memory(seed=0, count=6, d=3, beta=1.7):
    return ModernHopfield(jax.random.normal(jax.random.key(seed), (count, d)), beta)


def test_the_energy_is_its_formula():
    network, x = memory(), jnp.array([0.3, -1.2, 0.8])
    patterns, beta = np.asarray(network.patterns, float), 1.7
    lse = np.log(np.sum(np.exp(beta * patterns @ np.asarray(x)))) / beta
    largest = np.max(np.linalg.norm(patterns, axis=1))
    expected = -lse + 0.5 * float(x @ x) + np.log(6) / beta + 0.5 * largest**2
    assert float(network(x)) == pytest.approx(expected, rel=1e-5)


def test_the_step_is_attention_with_the_patterns_as_keys_and_values(key):
    network = memory(1, 20, 8)
    queries = jax.random.normal(key, (11, 8))
    # (batch, length, heads, d)
    keys = network.patterns[None, :, None, :]
    attention = jax.nn.dot_product_attention(queries[None, :, None, :], keys, keys, scale=1.7)[0, :, 0]
    np.testing.assert_allclose(jax.vmap(network.update)(queries), attention, atol=1e-5)


def test_the_step_goes_down_the_gradient_with_step_one(key):
    """``ξ - ∇E(ξ) = Xᵀ softmax(βXξ)``."""
    network, x = memory(), jax.random.normal(key, (3,))
    np.testing.assert_allclose(x - jax.grad(network)(x), network.update(x), atol=1e-5)


@pytest.mark.parametrize("beta", [0.3, 2.0, 20.0])
def test_no_step_raises_the_energy_and_the_energy_is_never_negative(key, beta):
    network = memory(2, 30, 5, beta)
    states, held = 3 * jax.random.normal(key, (300, 5)), np.array([True, False, False, False, False])
    last = np.asarray(jax.vmap(network)(states))
    start = last
    for _ in range(10):
        recall = network.recall(states, held=held, steps=1)
        now = np.asarray(recall.energies)
        assert np.all(now <= last + 1e-5) and np.all(now >= -1e-5)
        states, last = recall.states, now
    assert np.mean(start - last) > 1.0


def test_the_error_of_a_step_is_below_its_bound(key):
    """Patterns on a sphere, far apart, with noise of many sizes: the bound holds, and is small where it is to be."""
    rows = jax.random.normal(key, (50, 40))
    network = ModernHopfield(5 * rows / jnp.linalg.norm(rows, axis=1, keepdims=True), 2.0)
    noise = jax.random.normal(jax.random.fold_in(key, 1), (50, 40)) * jnp.geomspace(1e-4, 0.3, 50)[:, None]
    probes = network.patterns + noise
    errors = jnp.linalg.norm(jax.vmap(network.update)(probes) - network.patterns, axis=1)
    bounds = jax.vmap(network.error_bound)(probes, jnp.arange(50))
    assert bool(jnp.all(errors <= bounds + 1e-5)) and float(bounds[0]) < 1e-3
    # exponentially small in beta: log of the bound falls by the separation for each unit of beta
    colder = ModernHopfield(network.patterns, 3.0)
    fall = jnp.log(network.error_bound(network.patterns[0], 0) / colder.error_bound(network.patterns[0], 0))
    assert float(fall) == pytest.approx(float(network.separations[0]), rel=1e-4)


def test_separations_are_their_definition():
    network = memory(3, 5, 4)
    patterns = np.asarray(network.patterns)
    expected = [min(patterns[i] @ (patterns[i] - patterns[j]) for j in range(5) if j != i) for i in range(5)]
    np.testing.assert_allclose(network.separations, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("beta", [0.5, 4.0])
def test_at_its_own_temperature_it_is_a_gaussian_mixture(key, beta):
    network = memory(4, 4, 2, beta)
    mixture = network.mixture()
    points = 2 * jax.random.normal(key, (100, 2))
    np.testing.assert_allclose(jax.vmap(mixture)(points), beta * jax.vmap(network)(points), atol=1e-4, rtol=1e-4)
    own = tw.energies.tempered(network, 1 / beta)
    assert float(mixture.log_z) == pytest.approx(float(tw.exact.log_z(own)), abs=1e-4)
    np.testing.assert_allclose(mixture.mean, tw.exact.moments(own).mean, atol=1e-3)


def test_the_mixture_stands_many_dimensions(key):
    network = ModernHopfield(jax.random.normal(key, (10, 784)), 0.01)
    mixture = network.mixture()
    assert np.isfinite(float(mixture.log_z)) and mixture.sample(key, (3,)).shape == (3, 784)


def test_more_patterns_than_units_are_recalled_in_one_step(key):
    patterns = jax.random.rademacher(key, (500, 64)).astype(float)
    network = ModernHopfield(patterns, 1.0)
    hidden = patterns.at[:, 40:].set(0.0)
    recall = network.recall(hidden)
    assert bool(recall.converged.all()) and int(recall.steps.max()) <= 4
    assert float(jnp.mean(jnp.all(jnp.sign(recall.states) == patterns, axis=1))) > 0.98
    one = network.recall(hidden, steps=1)
    assert float(jnp.mean(jnp.all(jnp.sign(one.states) == patterns, axis=1))) > 0.98


def test_a_small_beta_recalls_the_mean_of_all():
    network = memory(5, 10, 3, 1e-3)
    states = network.recall(network.patterns).states
    np.testing.assert_allclose(states, jnp.broadcast_to(network.patterns.mean(axis=0), (10, 3)), atol=0.01)


def test_samplers_sample_it(key):
    network = memory(6, 3, 2, 1.0)
    key_start, key_run = jax.random.split(key)
    start = network.mixture().sample(key_start, (400,))
    chains = tw.sample(network, tw.samplers.MALA(0.5), start, key=key_run, draws=50)
    # at beta = 1 its own temperature is ours
    means = np.asarray(chains.draws.mean(axis=1))
    error = means.std(axis=0) / np.sqrt(400)
    assert np.all(np.abs(means.mean(axis=0) - np.asarray(network.mixture().mean)) < 4.5 * error)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ModernHopfield(jnp.ones(3)), r"expected patterns of shape \(n, d\), got \(3,\)"),
        (lambda: ModernHopfield(jnp.ones((2, 3)), -1.0), "expected beta > 0"),
        (lambda: ModernHopfield(jnp.full((2, 3), jnp.nan)), "expected patterns to be finite"),
        (lambda: memory().recall(jnp.ones((2, 4))), r"expected probes of shape \(n, 3\)"),
        (lambda: memory().recall(jnp.full((2, 3), jnp.nan)), "expected finite numbers in probes"),
        (lambda: memory().recall(jnp.ones((2, 3)), held=[1, 0, 0]), "expected a boolean mask"),
        (lambda: memory().recall(jnp.ones((2, 3)), steps=0), "expected steps to be a whole number"),
        (lambda: memory().recall(jnp.ones((2, 3)), tolerance=0), "expected tolerance > 0"),
        (lambda: memory().error_bound(jnp.ones(3), 6), "expected a pattern between 0 and 5"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
