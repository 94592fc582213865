"""Scores of images: closed forms, torch-fidelity's own numbers, and never a number without its network."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.linalg import sqrtm
from scipy.special import softmax

from thalweg.evaluate import (
    density_coverage,
    frechet_distance,
    image_scores,
    inception_score,
    kernel_inception_distance,
    precision_recall,
)


def _beside(name: str) -> ModuleType:
    """A file of this folder, which is no package, as a module."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


made = _beside("make_reference_scores")
REFERENCE = json.loads(made.REFERENCE.read_text())


def rows_with(mean: np.ndarray, covariance: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Rows whose own mean and covariance (n - 1 below) are these, to rounding."""
    noise = np.random.default_rng(seed).normal(size=(n, len(mean)))
    noise -= noise.mean(axis=0)
    white = noise @ np.linalg.inv(np.linalg.cholesky(np.cov(noise, rowvar=False)).T)
    return white @ np.linalg.cholesky(covariance).T + mean


@pytest.mark.parametrize("name", made.FEATURES)
def test_distances_are_those_of_torch_fidelity(name):
    assert frechet_distance(*made.features(name)) == pytest.approx(REFERENCE["frechet_distance"][name], rel=1e-4)


@pytest.mark.parametrize("name", made.LOGITS)
def test_inception_scores_are_those_of_torch_fidelity(name):
    _, _, splits, seed, _ = made.LOGITS[name]
    probabilities = softmax(made.logits(name), axis=1)
    score = inception_score(probabilities, splits, seed=seed)
    assert list(score) == pytest.approx(REFERENCE["inception_score"][name], rel=1e-4)


def test_every_reference_is_used_and_says_its_versions():
    assert set(REFERENCE["frechet_distance"]) == set(made.FEATURES)
    assert set(REFERENCE["inception_score"]) == set(made.LOGITS)
    assert {"torch", "torch-fidelity"} <= set(REFERENCE["versions"])


def test_distance_of_normals_with_known_moments():
    # covariances that do not commute: a product of roots in the wrong order would show
    first, second = np.array([[4.0, 1.0], [1.0, 2.0]]), np.array([[1.0, -0.6], [-0.6, 3.0]])
    x, y = rows_with(np.array([1.0, -2.0]), first, 50, 0), rows_with(np.array([0.5, 1.0]), second, 70, 1)
    expected = 0.5**2 + 3.0**2 + np.trace(first + second - 2 * np.real(sqrtm(first @ second)))
    assert frechet_distance(x, y) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(y, x) == pytest.approx(expected, rel=1e-9)


def test_distance_of_one_feature_is_that_of_means_and_deviations():
    x, y = np.random.default_rng(0).normal(size=(30, 1)), np.random.default_rng(1).gamma(2.0, size=(40, 1))
    expected = (x.mean() - y.mean()) ** 2 + (x.std(ddof=1) - y.std(ddof=1)) ** 2
    assert frechet_distance(x, y) == pytest.approx(expected, rel=1e-9)


def test_equal_sets_are_at_no_distance_even_where_covariances_are_singular():
    x = np.random.default_rng(0).normal(size=(20, 60))
    assert 0 <= frechet_distance(x, x) < 1e-12
    assert 0 <= frechet_distance(x, x[::-1]) < 1e-12
    constant = np.ones((5, 3))
    assert frechet_distance(constant, 3 * constant) == 12.0


@pytest.mark.parametrize("rank", [2, 3, 8])
def test_distance_of_normals_with_covariances_of_low_rank(rank):
    # C = Q S Qᵀ with a Q of few columns: the distance is that of the Gaussians with covariance S, and the means
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(40, rank)))[0]
    first, second = np.diag(np.arange(1.0, rank + 1)), np.diag(np.arange(1.0, rank + 1)[::-1]) + 0.3
    x, y = rows_with(np.zeros(rank), first, 30, 1), rows_with(np.full(rank, 0.5), second, 25, 2)
    expected = rank * 0.25 + np.trace(first + second - 2 * np.real(sqrtm(first @ second)))
    assert frechet_distance(x @ basis.T, y @ basis.T) == pytest.approx(expected, rel=1e-9)


def test_distance_of_normals_on_different_planes_is_all_their_variance():
    # (C₁C₂)^½ vanishes: nothing is shared
    rng = np.random.default_rng(0)
    x, y = np.zeros((10, 6)), np.zeros((12, 6))
    x[:, :3], y[:, 3:] = rng.normal(size=(10, 3)), rng.normal(size=(12, 3))
    apart = np.sum((x.mean(axis=0) - y.mean(axis=0)) ** 2)
    assert frechet_distance(x, y) == pytest.approx(apart + x.var(axis=0, ddof=1).sum() + y.var(axis=0, ddof=1).sum())


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_sets_of_fewer_rows_than_features_have_a_real_distance_that_is_not_negative(scale):
    rng = np.random.default_rng(0)
    x = scale * rng.normal(size=(5, 300))
    x[:, 100:] = scale  # constant features
    moved = x + scale * 2.0
    for other in (x, x + scale * 1e-9, x[::-1]):
        distance = frechet_distance(x, other)
        assert isinstance(distance, float) and 0 <= distance < 1e-9 * scale**2
    assert frechet_distance(x, moved) == pytest.approx(300 * 4.0 * scale**2, rel=1e-9)


def test_inception_score_is_between_one_and_the_number_of_classes():
    assert inception_score(np.full((100, 7), 1 / 7)) == pytest.approx((1.0, 0.0), abs=1e-12)
    assert inception_score(np.tile(np.eye(7), (30, 1)), splits=1).mean == pytest.approx(7.0)
    # sure of each image, but all of them are of one class
    assert inception_score(np.tile(np.eye(7)[2], (30, 1))).mean == 1.0


def test_inception_score_of_unequal_classes():
    # KL(one-hot ‖ p(y)) = -log p(y), so the score is the exponential of the entropy of the classes
    p = np.repeat(np.eye(2), [30, 10], axis=0)
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    assert inception_score(p, splits=1).mean == pytest.approx(np.exp(entropy))
    # in their order, half of the parts hold one class only
    parts = inception_score(p, splits=2, seed=None)
    second = np.exp(np.log(2.0))
    assert parts == pytest.approx(((1 + second) / 2, (second - 1) / 2))


def test_the_shuffle_follows_its_seed():
    p = softmax(made.logits("digits"), axis=1)
    assert inception_score(p) == inception_score(p, seed=2020)
    assert inception_score(p) != inception_score(p, seed=1)
    assert inception_score(p, splits=1).mean == pytest.approx(inception_score(p, splits=1, seed=1).mean, rel=1e-12)


class Corners:
    """A network whose features are the four corner pixels, and whose class is the brightest of them."""

    name = "four corners"

    def __call__(self, images):
        corners = images[:, [0, 0, -1, -1], [0, -1, 0, -1], 0]
        return corners, softmax(5 * corners, axis=1)


class Known(Corners):
    accuracy = 0.75


@pytest.fixture
def images():
    rng = np.random.default_rng(3)
    return rng.uniform(-1, 0.4, (60, 6, 5, 1)), rng.uniform(-1, 1, (80, 6, 5, 1))


def test_scores_stand_beside_the_name_of_their_network(images):
    samples, real = images
    scores = image_scores(samples, real, Corners(), splits=5)
    features, probabilities = Corners()(samples.astype(np.float32))
    real_features, real_probabilities = Corners()(real.astype(np.float32))
    assert scores["network"] == "four corners" and "network_accuracy" not in scores
    assert (scores["inception_score"], scores["inception_score_deviation"]) == inception_score(probabilities, 5)
    assert scores["inception_score_real"] == inception_score(real_probabilities, 5).mean
    assert scores["frechet_distance"] == frechet_distance(features, real_features)
    distance = kernel_inception_distance(features, real_features)
    names = ["kernel_inception_distance", "kernel_inception_distance_low", "kernel_inception_distance_high"]
    assert [scores[name] for name in names] == [distance.value, distance.low, distance.high]
    assert (scores["precision"], scores["recall"]) == precision_recall(features, real_features)
    assert (scores["density"], scores["coverage"]) == density_coverage(features, real_features)
    assert scores["precision"] != scores["recall"] and scores["density"] != scores["coverage"]
    assert (scores["samples"], scores["real"], scores["features"]) == (60, 80, 4)
    assert json.loads(json.dumps(scores, allow_nan=False)) == scores
    assert image_scores(samples, real, Known(), splits=5)["network_accuracy"] == 0.75


def test_samples_are_seen_as_they_would_be_shown(images):
    _, real = images
    beyond = 1.5 * real
    assert image_scores(beyond, real, Corners()) == image_scores(np.clip(beyond, -1, 1), real, Corners())
    assert image_scores(real, real, Corners())["frechet_distance"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("features", "other", "words"),
    [
        (np.ones((1, 3)), np.ones((5, 3)), "features: expected at least 2 rows for a covariance, got 1"),
        (np.ones((5, 3)), np.ones((1, 3)), "other: expected at least 2 rows"),
        (np.ones((5, 3)), np.ones((5, 4)), "other: expected rows of 3 features, .*got 4"),
        (np.full((5, 3), np.nan), np.ones((5, 3)), "features: expected finite numbers, got nan"),
        (np.ones((5, 3)), np.full((5, 3), np.inf), "other: expected finite numbers, got inf"),
        (np.ones(5), np.ones(5), r"features: expected one row per image, \(n, width\), got shape \(5,\)"),
        (np.ones((0, 3)), np.ones((5, 3)), "features: expected at least one row"),
    ],
)
def test_features_without_a_distance_are_refused(features, other, words):
    with pytest.raises(ValueError, match=words):
        frechet_distance(features, other)


@pytest.mark.parametrize(
    ("probabilities", "splits", "words"),
    [
        (np.full((5, 2), 0.5), 6, "splits: expected between 1 and the 5 rows of probabilities, got 6"),
        (np.full((5, 2), 0.5), 0, "expected splits to be a whole number >= 1"),
        (np.array([[0.5, 0.5], [3.0, -1.0]]), 1, "row 1 with sum 2 and least value -1; take the softmax"),
        (np.array([[0.5, 0.5], [1.5, -0.5]]), 1, "row 1 with sum 1 and least value -0.5"),
        (np.full((5, 2), np.nan), 1, "probabilities: expected finite numbers"),
        (np.full(5, 0.2), 1, "expected one row per image"),
    ],
)
def test_what_is_no_probability_is_refused(probabilities, splits, words):
    with pytest.raises(ValueError, match=words):
        inception_score(probabilities, splits)


class Shapeless(Corners):
    def __call__(self, images):
        features, probabilities = super().__call__(images)
        return features[1:], probabilities


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"samples": np.zeros((20, 6, 6, 1))}, "samples: expected rows of shape"),
        ({"samples": np.full((20, 6, 5, 1), np.nan)}, "samples: expected finite numbers"),
        ({"samples": np.zeros((4, 6, 5, 1))}, "splits: expected between 1 and the 4 rows"),
        ({"samples": np.zeros((5, 6, 5, 1)), "splits": 2}, "features: expected at least 6 rows for balls .*, got 5"),
        ({"real": np.zeros((20, 30))}, r"real: expected images \(n, height, width, channels\)"),
        ({"real": np.full((20, 6, 5, 1), 255.0)}, r"real: expected values in \[-1, 1\], got 255 to 255"),
        ({"real": np.zeros((20, 6, 5, 1), np.uint8)}, "real: expected floats, got uint8; scale images"),
        ({"network": np.mean}, "network: expected something with a name and a call"),
        ({"network": Shapeless()}, "network: expected features and probabilities with a row for each of 20"),
    ],
)
def test_images_that_cannot_be_scored_are_refused(change, words):
    given = {"samples": np.zeros((20, 6, 5, 1)), "real": np.zeros((20, 6, 5, 1)), "network": Corners()} | change
    with pytest.raises(ValueError, match=words):
        image_scores(**given)
