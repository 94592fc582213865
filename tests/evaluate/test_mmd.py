"""The maximum mean discrepancy: closed form, exact permutation test, power over bandwidths, and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

from thalweg.evaluate import TestResult, flat_samples, mmd
from thalweg.evaluate.mmd import _unbiased


def by_pairs(x, y, width):
    k = lambda a, b: np.exp(-((a[:, None] - b) ** 2).sum(-1) / (2 * width**2))
    n, m = len(x), len(y)
    within = (k(x, x).sum() - n) / (n * (n - 1)) + (k(y, y).sum() - m) / (m * (m - 1))
    return within - 2 * k(x, y).mean()


def test_the_estimate_is_that_of_all_pairs_for_any_labels(monkeypatch, key):
    monkeypatch.setattr(flat_samples, "_ENTRIES", 60)  # several blocks, the last of them not full
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 3)), rng.normal(size=(12, 3)) + 0.5
    result = mmd(x, y, key=key, bandwidths=[0.7, 2.0], permutations=0)
    assert result.p_value is None
    for width, value in result.parts["mmd_squared"].items():
        assert value == pytest.approx(by_pairs(x, y, width), abs=1e-6)
    # the other labellings: the same permutations, drawn again
    rows = np.concatenate([x, y])
    values, _ = _unbiased(jnp.asarray(rows, float), 7, jnp.array([2.0]), 5, key)
    labels = np.arange(19) < 7
    for number, each in enumerate(jax.random.split(key, 5), start=1):
        first = np.asarray(jax.random.permutation(each, labels))
        assert float(values[0, number]) == pytest.approx(by_pairs(rows[first], rows[~first], 2.0), abs=1e-6)


def test_the_estimate_is_unbiased_for_the_closed_form(key):
    # N(0, 1) and N(m, 1): E k(x, x') = (1 + 2/ℓ²)^(-1/2), and E k(x, y) has the further factor exp(-m²/2(ℓ² + 2))
    shift, width = 0.8, 1.5
    x, y = jax.random.normal(key, (2, 200, 40, 1))
    both = zip(x, y + shift, strict=True)
    results = [mmd(*each, key=key, bandwidths=width, permutations=0) for each in both]
    values = [each.parts["mmd_squared"][width] for each in results]
    truth = 2 / np.sqrt(1 + 2 / width**2) * (1 - np.exp(-(shift**2) / (2 * (width**2 + 2))))
    error = np.std(values, ddof=1) / np.sqrt(200)
    assert abs(np.mean(values) - truth) < 4 * error
    assert error < 0.01


def p_values(replicates, n, m, shift=0.0, seed=0, **options):
    found = []
    for key in jax.random.split(jax.random.key(seed), replicates):
        one, other, test = jax.random.split(key, 3)
        x, y = shift + jax.random.normal(one, (n, 2)), jax.random.normal(other, (m, 2))
        found.append(mmd(x, y, key=test, **options).p_value)
    return np.array(found)


def test_p_values_are_uniform_in_a_hundred_replicates():
    assert kstest(p_values(100, 40, 60, permutations=200), "uniform").pvalue > 0.01


@pytest.mark.slow
def test_p_values_are_uniform_in_500_replicates():
    assert kstest(p_values(500, 100, 150, seed=1), "uniform").pvalue > 0.01


@pytest.mark.slow
def test_a_shift_of_three_tenths_is_found():
    assert np.mean(p_values(60, 250, 250, shift=0.3) <= 0.05) >= 0.9


def test_differences_of_any_scale_are_found(key):
    # half the mass moved by a twentieth of the distance between two modes, and one mode with more mass
    one, other, *keys = jax.random.split(key, 4)
    modes = jnp.repeat(jnp.array([0.0, 20.0]), 150)[:, None]
    x, y = modes + 0.1 * jax.random.normal(one, (300, 1)), modes + 0.2 * jax.random.normal(other, (300, 1))
    assert mmd(x, y, key=keys[0], permutations=200).p_value < 0.01
    assert mmd(x, x[:220], key=keys[1], permutations=200).p_value < 0.01


def test_ties_and_equal_samples_give_large_p_values(key):
    keys = jax.random.split(key, 3)
    assert mmd(jnp.ones((20, 2)), jnp.ones((30, 2)), key=keys[0]).p_value == 1.0
    bits = jnp.array([0, 1] * 10)
    assert mmd(bits, bits, key=keys[1]).p_value > 0.5
    tiny = mmd(jnp.arange(10.0), jnp.arange(10.0) + 0.5, key=keys[2], bandwidths=1e-3)
    assert tiny.p_value == 1.0 and tiny.statistic == 0.0


def test_images_and_trees_are_compared_as_flat_vectors(key):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(30, 4)), rng.normal(size=(40, 4))
    flat = mmd(x, y, key=key)
    assert mmd(x.reshape(30, 2, 2, 1), y.reshape(40, 2, 2, 1), key=key) == flat
    assert mmd({"a": x[:, :3], "b": x[:, 3]}, {"a": y[:, :3], "b": y[:, 3]}, key=key) == flat
    with jax.enable_x64(True):
        assert mmd(x, y, key=key).statistic == pytest.approx(flat.statistic, abs=1e-4)


def test_a_result_prints_in_one_line_and_as_a_table(key):
    result = mmd(np.zeros((3, 1)), np.ones((3, 1)), key=key, bandwidths=1.0, permutations=10)
    assert isinstance(result, TestResult)
    assert str(result).startswith(f"{result.statistic:.6g}, p = {result.p_value:.3g}, largest MMD²/σ")
    assert "<b>Test</b>" in result._repr_html_() and "p-value" in result._repr_html_()
    assert "p-value" not in result._replace(p_value=None)._repr_html_()


@pytest.mark.parametrize(
    ("words", "x", "y", "options"),
    [
        (r"points of shapes \(2,\) and \(3,\)", np.zeros((5, 2)), np.zeros((5, 3)), {}),
        ("at least 2 samples in x for a test of two samples, got one", np.zeros((1, 2)), np.zeros((5, 2)), {}),
        ("two sets of samples for a test of two samples, got None as y", np.zeros((5, 2)), None, {}),
        ("NaN or infinity in row 0", jnp.full((5, 2), jnp.nan), np.zeros((5, 2)), {}),
        ("expected bandwidths > 0", np.zeros((5, 2)), np.zeros((5, 2)), {"bandwidths": [1.0, -1.0]}),
        ("one or several bandwidths", np.zeros((5, 2)), np.zeros((5, 2)), {"bandwidths": [[1.0]]}),
        ("permutations to be a whole number", np.zeros((5, 2)), np.zeros((5, 2)), {"permutations": -1}),
    ],
)
def test_bad_input_is_one_sentence(words, x, y, options, key):
    with pytest.raises(ValueError, match=words) as problem:
        mmd(x, y, **({"key": key} | options))
    assert "\n" not in str(problem.value)
