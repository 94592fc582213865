"""Mutual information: known values on Gaussians, invariance, and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

from thalweg.evaluate import mutual_information
from thalweg.evaluate.mutual_information import _Corrected, _log_z
from thalweg.evaluate.normal_scores import standardise
from thalweg.exact import log_z
from thalweg.experiments.information import pairs


@pytest.mark.slow
def test_a_correlation_is_measured(key):
    key_data, key_fit = jax.random.split(key)
    x = pairs(key_data, 4000, 2)  # half a nat
    result = mutual_information(x[:, 0], x[:, 1:], key=key_fit, updates=100)
    assert abs(result.value - 0.5) < 0.1 and result.low < result.value < result.high
    assert set(result.parts) == {"held_out", "log_z_both", "log_z_x", "log_z_y"}


@pytest.mark.slow
@pytest.mark.parametrize("nats", [5, 10])
def test_many_nats_are_measured(nats):
    key_data, key_fit = jax.random.split(jax.random.key(nats))
    d = 4 * nats
    x = pairs(key_data, 20_000, d)
    # x and y through maps that are one to one, which change nothing
    result = mutual_information(jnp.exp(x[:, : d // 2]), x[:, d // 2 :] ** 3, key=key_fit)
    assert abs(result.value - nats) < 0.04 * nats


def test_scores_are_nearly_normal_and_increasing():
    rng = np.random.default_rng(0)
    rows = np.stack([rng.standard_cauchy(4000), np.exp(2 * rng.normal(size=4000)), rng.uniform(size=4000)], axis=1)
    scores = standardise(rows[:, :1], np.arange(2000), "x")
    assert np.array_equal(np.argsort(scores[:, 0]), np.argsort(rows[:, 0])) or np.array_equal(
        np.argsort(-scores[:, 0]), np.argsort(rows[:, 0])
    )
    every = standardise(rows, np.arange(2000), "x")
    assert np.abs(every).max() < 12  # outliers of the Cauchy distribution are at 1000 and more
    assert all(kstest(column[2000:], "norm").statistic < 0.05 for column in every.T)
    assert np.allclose(np.cov(every[:2000].T), np.eye(3))
    copied = standardise(np.concatenate([rows, rows[:, :1], np.ones((4000, 1))], axis=1), np.arange(2000), "x")
    assert copied.shape == (4000, 3)  # a copy and a constant add nothing


def test_the_model_starts_at_independence_and_its_log_z_is_measured(key):
    key_model, key_noise, key_z = jax.random.split(key, 3)
    model = _Corrected(2, key=key_model)
    x = jnp.array([0.3, -2.0])
    assert float(model(x)) == pytest.approx(0.5 * float(x @ x))
    noise = lambda leaf: leaf + jax.random.normal(key_noise, leaf.shape) if leaf.ndim else leaf
    rough = jax.tree.map(noise, model.network)
    import equinox as eqx

    model = eqx.tree_at(lambda each: each.network, model, rough)
    estimate = _log_z(key_z, model, 0.95)
    assert abs(estimate.value - float(log_z(model))) < 4 * estimate.standard_error + 1e-3
    assert 0 < estimate.standard_error < 0.2


@pytest.mark.parametrize(
    ("words", "x", "y"),
    [
        ("as many x as y, row by row, got 300 and 299", np.ones((300, 2)), np.ones((299, 1))),
        ("at least 200 pairs for mutual information, got 20", np.ones((20, 2)), np.ones((20, 1))),
        ("continuous variable y", np.random.default_rng(0).normal(size=300), np.ones(300, int)),
        ("expected x that varies", np.ones(300), np.random.default_rng(0).normal(size=300)),
        ("functions of each other", *[np.random.default_rng(0).normal(size=300)] * 2),
        ("NaN or infinity in row 0", jnp.full((300,), jnp.nan), np.ones(300)),
    ],
)
def test_bad_input_is_one_sentence(words, x, y, key):
    with pytest.raises(ValueError, match=words) as problem:
        mutual_information(x, y, key=key)
    assert "\n" not in str(problem.value)
