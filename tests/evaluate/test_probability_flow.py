"""The probability flow's likelihood: against exact smoothed densities and quadrature, by both traces."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg.evaluate import probability_flow_log_likelihood, probability_flow_log_prob

KEY = jax.random.key(0)
LEVELS = [12.0, 0.1]
MIXTURE = tw.energies.GaussianMixture(
    jnp.array([0.7, 0.3]),
    jnp.array([[-1.5, 0.5], [2.0, -0.5]]),
    jnp.array([[[0.5, 0.2], [0.2, 0.3]], [[0.3, -0.1], [-0.1, 0.8]]]),
)
NOISY = tw.energies.smoothed(MIXTURE)


def points(count, seed=1):
    return MIXTURE.smoothed(0.1).sample(jax.random.key(seed), (count,))


def exact(x, sigma=0.1):
    return np.asarray(jax.vmap(MIXTURE.smoothed(sigma).log_prob)(x))


def integral(log_prob, low, high, count):
    """``∫ exp(log p)`` over a square by the trapezoidal rule; the density must vanish at its edge."""
    line = jnp.linspace(low, high, count)
    grid = jnp.stack(jnp.meshgrid(line, line), axis=-1).reshape(-1, 2)
    return float(jnp.sum(jnp.exp(log_prob(grid)))) * ((high - low) / (count - 1)) ** 2


def test_the_exact_trace_gives_the_exact_density():
    x = points(200)
    value = probability_flow_log_prob(NOISY, x, sigmas=LEVELS, key=KEY, base=MIXTURE.smoothed(12.0))
    assert np.max(np.abs(np.asarray(value) - exact(x))) < 5e-4


def test_a_score_network_and_an_energy_give_the_same():
    x = points(20)
    network = tw.as_score(lambda x, sigma: tw.score(MIXTURE.smoothed(sigma), x), tw.Real(2))
    both = [probability_flow_log_prob(each, x, sigmas=LEVELS, key=KEY) for each in (NOISY, network)]
    assert np.allclose(*both, atol=1e-4)


def test_hutchinsons_trace_is_unbiased_and_says_its_error():
    x = points(400)
    options = {"sigmas": LEVELS, "key": KEY, "base": MIXTURE.smoothed(12.0)}
    estimate = probability_flow_log_likelihood(NOISY, x, trace="hutchinson", probes=4, **options)
    error = estimate.parts["trace"].standard_error
    assert 0 < abs(estimate.value - exact(x).mean()) < 4 * error
    assert error < 0.5 * estimate.standard_error
    total = math.hypot(*(part.standard_error for part in estimate.parts.values()))
    assert math.isclose(total, estimate.standard_error, rel_tol=1e-6)
    certain = probability_flow_log_likelihood(NOISY, x, trace="exact", **options)
    assert certain.parts["trace"].standard_error == 0 and "exact trace" in certain.method
    assert math.isclose(certain.standard_error, np.std(exact(x), ddof=1) / 20, rel_tol=1e-3)


def test_the_error_of_the_probes_is_that_seen_over_keys():
    x = points(50)
    options = {"sigmas": [3.0, 0.3], "trace": "hutchinson", "probes": 2, "tolerance": 1e-3}
    runs = [probability_flow_log_likelihood(NOISY, x, key=key, **options) for key in jax.random.split(KEY, 30)]
    seen = np.std([run.value for run in runs], ddof=1)
    said = math.sqrt(np.mean([run.parts["trace"].standard_error ** 2 for run in runs]))
    # the ratio of a standard deviation of 30 values to the truth has a standard deviation of 0.13
    assert 0.6 < seen / said < 1.5


def test_it_integrates_to_one():
    log_prob = lambda x: probability_flow_log_prob(NOISY, x, sigmas=LEVELS, key=KEY, training_data=points(500))
    assert abs(integral(log_prob, -6.0, 6.0, 61) - 1) < 2e-3


def test_the_moments_of_training_data_give_a_closer_base():
    x, options = points(200), {"sigmas": [5.0, 0.1], "key": KEY}
    apart = lambda **base: abs(
        float(jnp.mean(probability_flow_log_prob(NOISY, x, **options, **base))) - exact(x).mean()
    )
    plain, moments = apart(), apart(training_data=points(5000, seed=2))
    assert moments < 0.02 and moments < 0.5 * plain


def test_points_of_any_shape_and_a_data_set_are_taken():
    noisy = tw.as_score(lambda x, sigma: -x / (4 + sigma**2), tw.Real((2, 3)))
    x = 2 * jax.random.normal(KEY, (10, 2, 3))
    base = tw.energies.Gaussian(jnp.zeros(()), 4 + 100.0)  # of one number: of the wrong shape
    with pytest.raises(ValueError, match="shape"):
        probability_flow_log_prob(noisy, x, sigmas=[10.0, 0.1], key=KEY, base=base)
    dataset = tw.data.Dataset(np.asarray(x), x_test=np.asarray(x))
    estimate = probability_flow_log_likelihood(noisy, dataset, sigmas=[100.0, 0.1], key=KEY)
    truth = -0.5 * np.sum(np.asarray(x) ** 2, axis=(1, 2)) / 4.01 - 3 * math.log(2 * math.pi * 4.01)
    assert abs(estimate.value - truth.mean()) < 5e-3


@pytest.mark.slow
def test_a_trained_network_has_a_normalised_flow():
    key_data, key_model, key_fit = jax.random.split(KEY, 3)
    data = MIXTURE.sample(key_data, (5000,))
    ladder = tw.noise.geometric_ladder(12.0, 0.1, 12)
    network = tw.energies.NoiseConditionalMLP(2, width=32, depth=2, data_scale=1.7, key=key_model)
    objective = tw.objectives.NoiseConditionalScoreMatching(ladder)
    run = tw.fit(network, data, objective, optimizer=optax.adam(3e-3), steps=1500, batch_size=256, key=key_fit)
    options = {"sigmas": ladder, "key": KEY, "training_data": data, "tolerance": 1e-4}
    log_prob = lambda x: probability_flow_log_prob(run.energy, x, **options)
    assert abs(integral(log_prob, -7.0, 7.0, 57) - 1) < 0.01
    x = points(1000)
    estimate = probability_flow_log_likelihood(run.energy, x, **options)
    # no model is better than the truth, up to the error of the rows; a trained one is close
    assert exact(x).mean() - 0.25 < estimate.value < exact(x).mean() + 0.02


BAD = {
    "an energy of x alone": ({"model": MIXTURE}, "log_likelihood"),
    "a discrete space": ({"model": tw.as_conditional(lambda x, c: 0.0 * c, tw.Binary(2))}, r"R\^d"),
    "another shape": ({"data": jnp.zeros((5, 3))}, r"shape \(n, 2\)"),
    "one row": ({"data": points(1)}, "at least 2 rows"),
    "rising levels": ({"sigmas": [0.1, 1.0]}, "falling"),
    "one level": ({"sigmas": [1.0]}, "falling"),
    "an unknown trace": ({"trace": "both"}, "exact"),
    "one probe": ({"trace": "hutchinson", "probes": 1}, "probes"),
    "two bases": ({"base": MIXTURE, "training_data": points(5)}, "both"),
    "a base without log_prob": ({"base": 3.0}, "log_prob"),
    "no tolerance": ({"tolerance": 0.0}, "tolerance"),
    "too few steps": ({"most_steps": 2}, "most_steps"),
    "scores that are nan": ({"model": tw.as_score(lambda x, sigma: jnp.nan * x)}, "not finite"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_a_sentence(case):
    changed, words = BAD[case]
    arguments = {"model": NOISY, "data": points(4), "sigmas": LEVELS, "key": KEY} | changed
    with pytest.raises(ValueError, match=words) as problem:
        probability_flow_log_likelihood(arguments.pop("model"), arguments.pop("data"), **arguments)
    assert str(problem.value).count("\n") == 0 and "expected" in str(problem.value)
