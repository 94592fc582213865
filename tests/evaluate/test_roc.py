"""AUROC, AUPR and FPR95 of scores: definitions point by point, ties, and intervals that cover the truth."""

import jax
import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.metrics import roc_curve as sklearn_curve

from thalweg.evaluate import detection, roc_curve
from thalweg.evaluate.roc import _aupr_of


def normal_scores(rng, n, m, area, deviation=1.0):
    """Scores from N(0, 1) inside and N(μ, σ²) outside, with a known AUROC Φ(μ/√(1+σ²))."""
    return rng.normal(size=n), norm.ppf(area) * np.sqrt(1 + deviation**2) + deviation * rng.normal(size=m)


def truths(n, m, area, deviation):
    """The AUROC, AUPR (outside positive, in the share m/(n+m)) and FPR95 of these normals."""
    mean = norm.ppf(area) * np.sqrt(1 + deviation**2)
    t = np.linspace(-40, 40, 200_001)
    found, false = norm.sf(t, mean, deviation), norm.sf(t)
    precision = m * found / np.maximum(m * found + n * false, 1e-300)
    return area, np.trapezoid(precision[::-1], found[::-1]), norm.cdf(norm.ppf(0.95), mean, deviation)


@pytest.fixture(params=["continuous", "tied"])
def scores(request):
    x, y = normal_scores(np.random.default_rng(0), 60, 45, 0.8)
    return (x, y) if request.param == "continuous" else (np.round(x), np.round(y))


def test_values_are_those_of_scikit_learn_and_of_the_definitions(scores):
    x, y = scores
    labels, both = np.repeat([0, 1], [len(x), len(y)]), np.concatenate(scores)
    found = detection(x, y, resamples=100)
    pairs = np.mean([(b > a) + 0.5 * (b == a) for a in x for b in y])
    assert found.auroc.value == pytest.approx(pairs, rel=1e-12)
    assert found.auroc.value == pytest.approx(roc_auc_score(labels, both), rel=1e-12)
    assert found.aupr.value == pytest.approx(average_precision_score(labels, both), rel=1e-12)
    # 95 % of 60 is 57: the threshold is the 57th smallest
    assert found.fpr95.value == pytest.approx(np.mean(y <= np.sort(x)[56]), rel=1e-12)
    for each in found:
        assert 0 <= each.low <= each.value <= each.high <= 1


@pytest.mark.parametrize(("n", "rank"), [(20, 19), (21, 20), (40, 38), (39, 38), (100, 95), (220, 209)])
def test_the_threshold_accepts_at_least_95_percent_and_no_point_more(n, rank):
    x = np.random.default_rng(1).permutation(n).astype(float)
    at = detection(x, np.array([rank - 1.0, rank - 1.0, rank - 0.5, n]), resamples=100)
    assert at.fpr95.value == 0.5


def test_the_curve_is_that_of_scikit_learn(scores):
    x, y = scores
    labels = np.repeat([0, 1], [len(x), len(y)])
    false, found, thresholds = sklearn_curve(labels, np.concatenate(scores), drop_intermediate=False)
    curve = roc_curve(x, y)
    assert np.allclose(curve.inside, false) and np.allclose(curve.outside, found)
    assert np.array_equal(curve.thresholds, thresholds)
    area = np.trapezoid(curve.outside, curve.inside)
    assert area == pytest.approx(detection(x, y, resamples=100).auroc.value, rel=1e-12)


def test_order_and_monotone_maps_do_not_matter_and_roles_do():
    x, y = normal_scores(np.random.default_rng(2), 50, 30, 0.85)
    values = lambda *sets: [each.value for each in detection(*sets, resamples=100)]
    assert values(x[::-1], y) == values(np.exp(x), np.exp(y)) == values(x, y)
    assert values(y, x)[0] == pytest.approx(1 - values(x, y)[0])
    assert values(np.append(x, -np.inf), np.append(y, np.inf))[0] > values(x, y)[0]


def test_the_key_decides_the_interval_and_nothing_else():
    sets = normal_scores(np.random.default_rng(3), 50, 50, 0.8)
    first, again = detection(*sets), detection(*sets, key=jax.random.key(0))
    other = detection(*sets, key=jax.random.key(1))
    assert first == again
    assert other.auroc.value == first.auroc.value and other.auroc.low != first.auroc.low
    assert other.auroc.low == pytest.approx(first.auroc.low, abs=0.02)
    narrow = detection(*sets, confidence=0.5)
    for wide, slim in zip(first, narrow, strict=True):
        assert wide.low < slim.low <= slim.high < wide.high


def test_perfect_separation_still_has_an_interval():
    up, down = detection(np.arange(50), np.arange(50, 90)), detection(np.arange(50, 100), np.arange(40))
    assert (up.auroc.value, up.aupr.value, up.fpr95.value) == (1, 1, 0)
    assert 0.9 < up.auroc.low < 1 and up.auroc.high == 1
    assert 0.9 < up.aupr.low < 1 and up.aupr.high == 1
    assert up.fpr95.low == 0 < up.fpr95.high < 0.1
    assert (down.auroc.value, down.fpr95.value) == (0, 1)
    assert down.auroc.high == pytest.approx(1 - up.auroc.low)
    assert down.aupr.low <= down.aupr.value < down.aupr.high < 0.5
    # Newcombe's limit θ: the observed 1 lies z standard errors above it
    n, m, limit = 50, 40, up.auroc.low
    spread = 1 + (45 - 1) * ((1 - limit) / (2 - limit) + limit / (1 + limit))
    assert 1 - limit == pytest.approx(1.959964 * np.sqrt(limit * (1 - limit) * spread / (n * m)), rel=1e-5)


def test_the_area_of_a_power_curve():
    assert _aupr_of(0.5, 0.3) == pytest.approx(0.3)
    # θ = ½, so false alarms are recall²: ∫ T/(T + T²) dT = log 2 at equal shares
    assert _aupr_of(2 / 3, 0.5) == pytest.approx(np.log(2), rel=1e-6)


def cover(n, m, area, deviation, replicates, resamples, seed=0):
    """The share of intervals that hold the truth: AUROC, AUPR, FPR95."""
    rng, truth = np.random.default_rng(seed), truths(n, m, area, deviation)
    keys = jax.random.split(jax.random.key(seed), replicates)
    held = np.zeros(3)
    for key in keys:
        found = detection(*normal_scores(rng, n, m, area, deviation), key=key, resamples=resamples)
        held += [each.low <= value <= each.high for each, value in zip(found, truth, strict=True)]
    return held / replicates


@pytest.mark.parametrize("area", [0.9, 0.99])
def test_intervals_cover(area):
    # a true coverage of 0.95 falls below 0.9 in 100 replicates once in 75 times; percentiles cover 0.85 at 0.99
    auroc, aupr, fpr95 = cover(50, 50, area, 1.0, 100, 100)
    assert auroc >= 0.9 and aupr >= 0.87 and fpr95 >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "m", "area", "deviation"),
    [
        (50, 50, 0.6, 1.0),
        (50, 50, 0.9, 1.0),
        (50, 50, 0.99, 1.0),
        (50, 50, 0.99, 0.5),
        (300, 300, 0.9, 2.0),
        (300, 50, 0.6, 1.0),
    ],
)
def test_intervals_of_the_auroc_cover_at_93_percent(n, m, area, deviation):
    # the standard error of 600 replicates at 0.95 is 0.009
    auroc, aupr, fpr95 = cover(n, m, area, deviation, 600, 150, seed=5)
    assert auroc >= 0.93
    assert aupr >= 0.86 and fpr95 >= 0.9


@pytest.mark.parametrize(
    ("inside", "outside", "options", "words"),
    [
        (np.zeros(19), np.zeros(5), {}, "inside: expected scores of at least 20 points, got 19; give more points"),
        (np.zeros(20), np.zeros(1), {}, "outside: expected scores of at least 2 points, got 1"),
        (np.zeros((20, 2)), np.zeros(5), {}, r"inside: expected one score per point, \(n,\), got shape \(20, 2\)"),
        (np.zeros(20), np.full(5, np.nan), {}, "outside: expected scores that are numbers, got nan for point 0"),
        (np.array(["a"] * 20), np.zeros(5), {}, "inside: expected scores that are real numbers, got <U1"),
        (np.zeros(20, complex), np.zeros(5), {}, "got complex128"),
        (np.ma.masked_equal(np.zeros(20), 0), np.zeros(5), {}, "got a masked array"),
        ([[1.0], [1.0, 2.0]], np.zeros(5), {}, "inside: expected scores"),
        (np.zeros(20), np.zeros(5), {"confidence": 0}, "expected confidence between 0 and 1"),
        (np.zeros(20), np.zeros(5), {"resamples": 10}, "expected resamples to be a whole number >= 100"),
    ],
)
def test_bad_scores_are_refused_in_a_sentence(inside, outside, options, words):
    with pytest.raises(ValueError, match=words):
        detection(inside, outside, **options)
