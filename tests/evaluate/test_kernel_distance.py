"""The kernel inception distance: the sum itself, no bias, an interval that covers, and no more memory than a block."""

import numpy as np
import pytest

from thalweg.evaluate import kernel_distance, kernel_inception_distance


def brute_force(x, y):
    """The three means of the definition, pair by pair."""

    def k(a, b):
        return (sum(p * q for p, q in zip(a, b, strict=True)) / len(a) + 1) ** 3

    n, m = len(x), len(y)
    within_x = sum(k(x[i], x[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    within_y = sum(k(y[i], y[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    return within_x + within_y - 2 * sum(k(a, b) for a in x for b in y) / (n * m)


@pytest.fixture
def sets():
    rng = np.random.default_rng(0)
    return rng.normal(size=(7, 3)), rng.gamma(2.0, size=(5, 3))


def test_it_is_the_sum_over_pairs(sets):
    x, y = sets
    assert kernel_inception_distance(x, y).value == pytest.approx(brute_force(x, y), rel=1e-12)
    assert kernel_inception_distance(y, x).value == pytest.approx(brute_force(x, y), rel=1e-12)


def test_the_standard_error_is_that_of_leaving_out_one_row(sets):
    x, y = sets
    without_x = np.array([brute_force(np.delete(x, i, 0), y) for i in range(len(x))])
    without_y = np.array([brute_force(x, np.delete(y, i, 0)) for i in range(len(y))])
    variance = (len(x) - 1) * without_x.var() + (len(y) - 1) * without_y.var()
    estimate = kernel_inception_distance(x, y, confidence=0.9)
    assert estimate.standard_error == pytest.approx(np.sqrt(variance), rel=1e-10)
    assert estimate.high - estimate.value == pytest.approx(1.6448536 * np.sqrt(variance), rel=1e-6)
    assert estimate.value - estimate.low == pytest.approx(estimate.high - estimate.value)


@pytest.mark.parametrize("block", [1, 7, 12, 2**22])
def test_blocks_of_any_size_give_the_same(sets, block, monkeypatch):
    whole = kernel_inception_distance(*sets)
    monkeypatch.setattr(kernel_distance, "_BLOCK", block)
    parts = kernel_inception_distance(*sets)
    assert parts.value == pytest.approx(whole.value, rel=1e-12)
    assert parts.standard_error == pytest.approx(whole.standard_error, rel=1e-12)


def test_it_is_unbiased_and_its_interval_covers_for_equal_and_for_moved_normals():
    # rows from N(0, I) and N(a, I)
    rng, d, rows, replicates = np.random.default_rng(1), 16, 40, 400
    moved = np.full(d, 0.5)

    def moment(first, second):
        # the mean of (1 + u/d)³ with u = x·y, x ~ N(first, I), y ~ N(second, I): cumulants of u
        mean, squares = first @ second, first @ first + second @ second
        variance, third = d + squares, 6 * mean
        raw2, raw3 = variance + mean**2, third + 3 * mean * variance + mean**3
        return 1 + 3 * mean / d + 3 * raw2 / d**2 + raw3 / d**3

    for shift in (np.zeros(d), moved):
        truth = moment(np.zeros(d), np.zeros(d)) + moment(shift, shift) - 2 * moment(np.zeros(d), shift)
        draw = [
            kernel_inception_distance(rng.normal(size=(rows, d)), rng.normal(size=(rows + 10, d)) + shift)
            for _ in range(replicates)
        ]
        values = np.array([each.value for each in draw])
        # four standard errors: a false alarm once in 16 000
        assert abs(values.mean() - truth) < 4 * values.std() / np.sqrt(replicates)
        assert np.mean([each.low <= truth <= each.high for each in draw]) > 0.92
    # the statistic with its diagonal, which is biased, would be far off: by about E k(x, x)/n = 8/40
    assert 4 * values.std() / np.sqrt(replicates) < 0.1


def test_rows_with_singular_covariances_have_a_distance():
    x = np.random.default_rng(0).normal(size=(6, 1)) * np.ones(50)
    estimate = kernel_inception_distance(x, x)
    assert np.isfinite([estimate.value, estimate.low, estimate.high]).all()
    constant = np.ones((4, 3))
    # k(x, x') = 8, k(y, y') = (4 + 1)³, k(x, y) = (2 + 1)³
    same, apart = kernel_inception_distance(constant, constant), kernel_inception_distance(constant, 2 * constant)
    assert (same.value, same.standard_error) == (0, 0)
    assert apart.value == pytest.approx(8 + 125 - 2 * 27)
    assert apart.standard_error == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("features", "other", "options", "words"),
    [
        (np.ones((2, 3)), np.ones((5, 3)), {}, "features: expected at least 3 rows for a standard error, got 2"),
        (np.ones((5, 3)), np.ones((2, 3)), {}, "other: expected at least 3 rows"),
        (np.ones((5, 3)), np.ones((5, 4)), {}, "other: expected rows of 3 features, .*got 4"),
        (np.ones((5, 3, 2)), np.ones((5, 3)), {}, "features: expected one row per image"),
        (np.full((5, 3), np.nan), np.ones((5, 3)), {}, "features: expected finite numbers"),
        (np.ones((5, 3)), np.ones((5, 3)), {"confidence": 95}, "expected confidence between 0 and 1, got 95"),
        (np.ones((5, 3)), np.ones((5, 3)), {"confidence": 1.0}, "expected confidence between 0 and 1"),
    ],
)
def test_what_has_no_distance_is_refused(features, other, options, words):
    with pytest.raises(ValueError, match=words):
        kernel_inception_distance(features, other, **options)
