"""Precision, recall, density and coverage: the definitions, pair by pair, and what equal distributions score."""

import numpy as np
import pytest

from thalweg.evaluate import density_coverage, manifold_scores, precision_recall


def distance(a, b):
    return np.sqrt(np.sum((a - b) ** 2))


def radius(rows, i, k):
    return sorted(distance(rows[i], rows[j]) for j in range(len(rows)) if j != i)[k - 1]


def brute_force(x, y, k):
    """Precision, recall, density and coverage of samples x over real y."""
    y_balls, x_balls = ([radius(rows, i, k) for i in range(len(rows))] for rows in (y, x))
    inside = np.array([[distance(a, b) <= r for b, r in zip(y, y_balls, strict=True)] for a in x])
    back = np.array([[distance(a, b) <= r for b, r in zip(x, x_balls, strict=True)] for a in y])
    return inside.any(1).mean(), back.any(1).mean(), inside.sum() / (k * len(x)), inside.any(0).mean()


@pytest.fixture
def sets():
    rng = np.random.default_rng(0)
    return rng.normal(size=(31, 2)) + 0.5, 1.5 * rng.normal(size=(23, 2))


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("block", [1, 60, 2**22])
def test_they_are_what_the_definitions_say(sets, k, block, monkeypatch):
    monkeypatch.setattr(manifold_scores, "_BLOCK", block)
    scores = (*precision_recall(*sets, neighbours=k), *density_coverage(*sets, neighbours=k))
    expected = brute_force(*sets, k)
    assert scores == pytest.approx(expected, abs=1e-12)
    assert len({round(value, 6) for value in expected}) == 4  # none may stand for another


def test_defaults_are_those_of_the_papers(sets):
    assert precision_recall(*sets) == precision_recall(*sets, neighbours=3)
    assert density_coverage(*sets) == density_coverage(*sets, neighbours=5)


def test_precision_of_one_set_is_recall_of_the_other(sets):
    x, y = sets
    assert precision_recall(x, y) == precision_recall(y, x)[::-1]


@pytest.mark.parametrize(("n", "m", "k", "d"), [(60, 40, 3, 2), (30, 30, 5, 7)])
def test_equal_distributions_score_as_expected_in_any_dimension(n, m, k, d):
    rng, replicates = np.random.default_rng(1), 300
    drawn = [
        density_coverage(rng.normal(size=(n, d)), rng.normal(size=(m, d)), neighbours=k) for _ in range(replicates)
    ]
    density, coverage = np.array(drawn).T
    expected = 1 - np.prod([(m - 1 - i) / (n + m - 1 - i) for i in range(k)])
    # four standard errors each; a row counted as its own neighbour would lower the density by 1/k
    assert abs(density.mean() - 1) < 4 * density.std() / np.sqrt(replicates) < 0.05
    assert abs(coverage.mean() - expected) < 4 * coverage.std() / np.sqrt(replicates) < 0.02


def test_a_missing_mode_lowers_recall_and_coverage_and_noise_lowers_precision_and_density():
    rng = np.random.default_rng(2)
    real = np.concatenate([rng.normal(size=(150, 2)), rng.normal(size=(150, 2)) + 30])
    one_mode, noise = rng.normal(size=(300, 2)), rng.uniform(-200, 200, size=(300, 2))
    precision, recall = precision_recall(one_mode, real)
    density, coverage = density_coverage(one_mode, real)
    assert precision > 0.95 and recall < 0.55
    assert density > 0.8 and 0.4 < coverage <= 0.5
    assert precision_recall(noise, real).precision < 0.1
    assert density_coverage(noise, real).density < 0.1


def test_an_outlier_opens_precision_but_not_density():
    rng = np.random.default_rng(3)
    real = np.concatenate([rng.normal(size=(200, 2)), [[100.0, 0.0]]])
    samples = rng.uniform(50, 150, size=(200, 2)) * [1, 0.3]
    assert precision_recall(samples, real).precision > 0.9
    assert density_coverage(samples, real).density < 0.4
    assert density_coverage(samples, real).coverage == 1 / 201


def test_copies_and_constant_features_are_within_balls_of_no_size():
    rng = np.random.default_rng(4)
    # far from the origin, where a matrix product rounds most
    same = np.tile(1e3 * rng.normal(size=50), (20, 1))
    assert precision_recall(same, same) == (1.0, 1.0)
    assert density_coverage(same, same + 1e-3 * rng.normal(size=50)) == (0.0, 0.0)
    x = 1e3 + rng.normal(size=(20, 60))
    assert precision_recall(x, x) == (1.0, 1.0)
    # every row lies in its own ball and on the edge of those of which it is the k-th neighbour
    assert density_coverage(x, x, neighbours=5) == pytest.approx((6 / 5, 1.0))


@pytest.mark.parametrize("rows", [1, 3, 7, 13, 1000])
def test_rows_that_only_rounding_tells_from_copies_are_inside(rows, monkeypatch):
    # copies of three rows far apart: distances within a group are 0, and a matrix product rounds them to about 1e-8
    three = 1e4 * np.random.default_rng(5).normal(size=(3, 70))
    real, samples = np.repeat(three, 9, axis=0), np.tile(three, (5, 1))
    monkeypatch.setattr(manifold_scores, "_BLOCK", 27 * rows)  # a product rounds by the number of its rows
    assert precision_recall(samples, real) == (1.0, 1.0)
    assert density_coverage(samples, real) == (9 / 5, 1.0)
    x = 1e3 + 1e2 * np.random.default_rng(6).normal(size=(27, 60))
    assert density_coverage(x[::-1], x, neighbours=5) == (6 / 5, 1.0)


@pytest.mark.parametrize("score", [precision_recall, density_coverage])
@pytest.mark.parametrize(
    ("features", "real", "k", "words"),
    [
        (
            np.ones((4, 3)),
            np.ones((9, 3)),
            4,
            "features: expected at least 5 rows for balls .*, got 4; give",
        ),
        (np.ones((9, 3)), np.ones((4, 3)), 4, "real: expected at least 5 rows"),
        (np.ones((9, 3)), np.ones((9, 2)), 4, "real: expected rows of 3 features, .*got 2"),
        (np.ones((9, 3)), np.full((9, 3), np.inf), 4, "real: expected finite numbers"),
        (np.ones(9), np.ones((9, 3)), 4, "features: expected one row per image"),
        (np.ones((9, 3)), np.ones((9, 3)), 0, "expected neighbours to be a whole number >= 1"),
    ],
)
def test_what_cannot_be_scored_is_refused(score, features, real, k, words):
    with pytest.raises(ValueError, match=words):
        score(features, real, neighbours=k)
