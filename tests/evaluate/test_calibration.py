"""Calibration: the definitions by hand, known biases, intervals that cover, and proper scores."""

import jax
import numpy as np
import pytest
from sklearn.metrics import log_loss as sklearn_log_loss

from thalweg.evaluate import brier_score, expected_calibration_error, log_loss, reliability

P = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.05, 0.9, 0.05], [0.2, 0.25, 0.55]])
Y = [0, 0, 2, 1, 1]


def binary(rng, rows, right_given, least=0.5):
    """Two classes: the first has a top probability from U(least, 1) and is right with ``right_given`` of it."""
    top = rng.uniform(least, 1, rows)
    return np.stack([top, 1 - top], axis=1), (rng.uniform(size=rows) >= right_given(top)).astype(int)


def test_the_table_by_hand():
    table = reliability(P, Y, bins=4)
    # tops 0.7, 0.8, 0.4, 0.9, 0.55; right 1, 0, 1, 1, 0
    assert table.edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert table.count.tolist() == [0, 1, 2, 2]
    assert table.confidence == pytest.approx([np.nan, 0.4, 0.625, 0.85], nan_ok=True)
    assert table.accuracy == pytest.approx([np.nan, 1, 0.5, 0.5], nan_ok=True)


def test_the_error_by_hand():
    # (1·0.6 + 2·0.125 + 2·0.35) / 5
    assert expected_calibration_error(P, Y, bins=4).value == pytest.approx(0.31)
    # the median, 0.7, is the edge, and belongs to the bin below it
    table = reliability(P, Y, bins=2, binning="mass")
    assert table.edges == pytest.approx([0.4, 0.7, 0.9])
    assert table.count.tolist() == [3, 2]
    wanted = (3 * abs(2 / 3 - 1.65 / 3) + 2 * abs(0.5 - 0.85)) / 5
    assert expected_calibration_error(P, Y, bins=2, binning="mass").value == pytest.approx(wanted)


def test_bins_of_equal_mass_hold_equally_many_and_keep_ties_together():
    rng = np.random.default_rng(0)
    p, y = binary(rng, 600, lambda top: top)
    assert set(reliability(p, y, bins=15, binning="mass").count) == {40}
    tied = np.tile([[0.9, 0.1], [0.6, 0.4]], (50, 1))
    table = reliability(tied, np.zeros(100, int), bins=10, binning="mass")
    assert table.count.sum() == 100 and set(table.count) <= {0, 50}
    same = reliability(np.tile([1.0, 0.0], (30, 1)), np.zeros(30, int), bins=5, binning="mass")
    assert (same.count.tolist(), same.accuracy.tolist()) == ([30], [1.0])


def test_a_perfect_classifier_has_no_error_and_one_always_wrong_all_of_it():
    p = np.eye(3)[[0, 1, 2, 0, 1]]
    assert expected_calibration_error(p, [0, 1, 2, 0, 1]).value == 0
    assert expected_calibration_error(p, [1, 2, 0, 1, 2]).value == 1


def test_it_is_biased_upward_and_the_correction_takes_most_of_it():
    rng = np.random.default_rng(1)
    plain, debiased = [], []
    for _ in range(60):
        p, y = binary(rng, 400, lambda top: top)
        plain.append(expected_calibration_error(p, y, resamples=100).value)
        debiased.append(expected_calibration_error(p, y, resamples=100, debias=True).value)
    # in each of 8 filled bins |d| has mean √(2/π)·√(E p(1-p)/50) = 0.8·√(0.167/50): 0.046
    assert np.mean(plain) == pytest.approx(0.046, abs=0.004)
    assert np.mean(debiased) < 0.7 * np.mean(plain)
    assert (np.array(debiased) < plain).all()


def test_a_large_error_needs_no_correction():
    p, y = binary(np.random.default_rng(2), 20_000, lambda top: top - 0.4)
    plain, debiased = (expected_calibration_error(p, y, resamples=100, debias=each) for each in (False, True))
    assert plain.value == pytest.approx(0.4, abs=0.015)
    assert debiased.value == pytest.approx(plain.value, abs=1e-4)


@pytest.mark.parametrize("binning", ["width", "mass"])
@pytest.mark.parametrize(("right_given", "truth"), [(lambda top: top, 0.0), (lambda top: top - 0.1, 0.1)])
def test_intervals_cover(right_given, truth, binning):
    rng, held = np.random.default_rng(3), []
    for key in jax.random.split(jax.random.key(0), 100):
        estimate = expected_calibration_error(
            *binary(rng, 600, right_given), binning=binning, key=key, resamples=100, debias=True
        )
        held.append(estimate.low <= truth <= estimate.high)
        assert estimate.low <= estimate.value <= estimate.high
    assert np.mean(held) >= 0.9


def test_an_error_is_told_from_none():
    rng = np.random.default_rng(4)
    sure = expected_calibration_error(*binary(rng, 3000, lambda top: top - 0.15))
    calibrated = expected_calibration_error(*binary(rng, 3000, lambda top: top))
    assert sure.low > 0.05 and calibrated.low == 0 and calibrated.high < 0.06


def test_proper_scores_by_hand():
    brier, loss = brier_score(P, Y), log_loss(P, Y)
    each = np.sum((P - np.eye(3)[Y]) ** 2, axis=1)
    assert brier.value == pytest.approx(each.mean())
    assert brier.standard_error == pytest.approx(each.std(ddof=1) / np.sqrt(5))
    assert brier.high - brier.value == pytest.approx(1.959964 * brier.standard_error)
    assert loss.value == pytest.approx(sklearn_log_loss(Y, P))


def test_proper_scores_are_least_for_the_true_probabilities():
    rng = np.random.default_rng(5)
    p, y = binary(rng, 20_000, lambda top: top)
    for score in (brier_score, log_loss):
        for power in (0.3, 3.0):
            other = p**power / (p**power).sum(axis=1, keepdims=True)
            assert score(other, y).value > score(p, y).value + 0.005


def test_the_key_decides_the_interval_and_nothing_else():
    p, y = binary(np.random.default_rng(6), 300, lambda top: top)
    first = expected_calibration_error(p, y)
    assert first == expected_calibration_error(p, y, key=jax.random.key(0))
    other = expected_calibration_error(p, y, key=jax.random.key(1))
    assert other.value == first.value and other.high != first.high


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"probabilities": 2 * P}, "expected rows that are not negative and sum to one, got row 1 with sum 2"),
        ({"probabilities": P[:, 0]}, "probabilities: expected one row per image"),
        ({"probabilities": np.ones((5, 1))}, "expected at least 2 rows of at least 2 classes, got 5 of 1; for two"),
        ({"probabilities": P[:1], "labels": [0]}, "expected at least 2 rows of at least 2 classes, got 1 of 3"),
        ({"labels": [0, 1]}, "labels: expected one label per row, that is 5"),
        ({"labels": [0, 1, 2, 3, 0]}, "labels: expected whole numbers from 0 to 2, one per row, got 0 to 3; number"),
        ({"labels": [0, 1, 2, -1, 0]}, "got -1 to 2"),
        ({"labels": [0.0, 1, 2, 1, 0]}, "got float64"),
        ({"labels": np.eye(5, dtype=int)}, r"got int64 of shape \(5, 5\)"),
        ({"bins": 0}, "expected bins to be a whole number >= 1"),
        ({"bins": 6, "binning": "mass"}, "bins: expected at most one for each of 5 rows, got 6"),
        ({"binning": "equal"}, "expected binning to be one of 'width', 'mass'"),
        ({"confidence": 1}, "expected confidence between 0 and 1"),
        ({"resamples": 5}, "expected resamples to be a whole number >= 100"),
    ],
)
def test_what_is_no_classifier_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        expected_calibration_error(**{"probabilities": P, "labels": Y} | change)


def test_an_impossible_label_has_no_logarithm():
    with pytest.raises(
        ValueError, match="probabilities: expected some for the right class of every row, got 0 in row 1"
    ):
        log_loss(np.array([[0.5, 0.5], [1.0, 0.0]]), [0, 1])
