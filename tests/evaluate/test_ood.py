"""Out-of-distribution detection with a model: every score by hand, points of any kind, and refusals by name."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.evaluate import detection, ood

MEAN, COVARIANCE = np.array([0.5, -1.0]), np.array([[2.0, 0.6], [0.6, 1.0]])
MODEL = tw.energies.Gaussian(jnp.asarray(MEAN), jnp.asarray(COVARIANCE))
WIDE = tw.energies.Gaussian(jnp.zeros(2), 9 * jnp.eye(2))


@pytest.fixture
def points():
    rng = np.random.default_rng(0)
    return rng.multivariate_normal(MEAN, COVARIANCE, 70), 2 * rng.normal(size=(40, 2)), rng.normal(size=(90, 2))


def energy(x, mean=MEAN, covariance=COVARIANCE):
    return 0.5 * np.einsum("ni,ij,nj->n", x - mean, np.linalg.inv(covariance), x - mean)


def gradient_norm(x):
    return np.linalg.norm((x - MEAN) @ np.linalg.inv(COVARIANCE), axis=1)


def by_hand(name, x, reference):
    if name == "energy":
        return energy(x)
    if name == "gradient_norm":
        return gradient_norm(x)
    if name == "likelihood_ratio":
        return energy(x) - energy(x, np.zeros(2), 9 * np.eye(2))
    return np.abs(energy(x) - energy(reference).mean())


@pytest.mark.parametrize("name", ["energy", "gradient_norm", "likelihood_ratio", "typicality"])
def test_every_score_is_the_one_by_hand(name, points):
    inside, outside, reference = points
    options = {"likelihood_ratio": {"background": WIDE}, "typicality": {"reference": reference}}.get(name, {})
    result = ood(MODEL, inside, outside, score=name, resamples=100, **options)
    wanted = [by_hand(name, x, reference) for x in (inside, outside)]
    constant = np.median(result.inside - wanted[0])  # an energy is known up to a constant
    assert constant == pytest.approx(0, abs=1e-5) or name in ("energy", "likelihood_ratio")
    assert result.inside == pytest.approx(wanted[0] + constant, abs=2e-5)
    assert result.outside == pytest.approx(wanted[1] + constant, abs=2e-5)
    assert result[:3] == tuple(detection(result.inside, result.outside, resamples=100))
    assert result.auroc.value == pytest.approx(detection(*wanted, resamples=100).auroc.value, abs=1e-3)
    assert result.score == name


def test_far_points_are_outside_by_every_score(points):
    inside, outside, reference = points
    for options in ({}, {"score": "gradient_norm"}, {"score": "typicality", "reference": reference}):
        result = ood(MODEL, inside, outside + 50, resamples=100, **options)
        assert (result.auroc.value, result.fpr95.value) == (1, 0)


def test_any_function_of_one_point_is_a_score(points):
    inside, outside, _ = points
    distance = lambda x: jnp.max(jnp.abs(x))
    result = ood(None, inside, outside, score=distance, resamples=100)
    assert result.inside == pytest.approx(np.abs(inside).max(axis=1), rel=1e-6)
    assert result.score == "<lambda>"
    same = ood(MODEL, inside, outside, score=distance, resamples=100)
    assert np.array_equal(same.outside, result.outside)


def test_a_score_network_has_a_gradient_norm(points):
    inside, outside, _ = points
    network = tw.as_score(lambda x: -3 * x)
    result = ood(network, inside, outside, score="gradient_norm", resamples=100)
    assert result.inside == pytest.approx(3 * np.linalg.norm(inside, axis=1), rel=1e-6)


def test_more_points_than_a_block_and_any_rest(monkeypatch, points):
    inside, outside, _ = points
    whole = ood(MODEL, inside, outside, resamples=100)
    module = sys.modules["thalweg.evaluate.ood"]
    for block in (1, 7, 35, 40, 70):
        monkeypatch.setattr(module, "_BLOCK", block)
        parts = ood(MODEL, inside, outside, resamples=100)
        assert parts.inside == pytest.approx(whole.inside, rel=1e-6)
        assert parts.outside == pytest.approx(whole.outside, rel=1e-6)


def test_a_second_call_compiles_nothing(points):
    inside, outside, _ = points
    values = sys.modules["thalweg.evaluate.ood"]._values
    ood(MODEL, inside, outside, resamples=100)
    before = values.programs.cache_info().misses
    changed = tw.energies.Gaussian(jnp.ones(2), 2 * jnp.eye(2))
    ood(changed, inside, outside, resamples=100)
    assert values.programs.cache_info().misses == before


def test_points_may_be_trees_images_and_discrete():
    rng = np.random.default_rng(1)
    tree = lambda shift: {"a": rng.normal(size=(30, 2)) + shift, "b": rng.normal(size=30)}
    bowl = lambda x: jnp.sum(x["a"] ** 2) + x["b"] ** 2
    assert ood(bowl, tree(0), tree(9), resamples=100).auroc.value == 1
    norms = ood(bowl, tree(0), tree(9), score="gradient_norm", resamples=100)
    assert norms.auroc.value == 1
    images = rng.uniform(-1, 1, (30, 4, 4, 1))
    assert ood(lambda x: jnp.sum(x**2), 0.1 * images, images, resamples=100).auroc.value == 1
    spins = tw.energies.Ising(tw.energies.Graph([(0, 1), (1, 2)], 2.0))
    aligned, mixed = np.ones((25, 3), int), np.tile([1, -1, 1], (25, 1))
    result = ood(spins, aligned, mixed, resamples=100)
    assert result.auroc.value == 1 and result.outside[0] - result.inside[0] == pytest.approx(8)


def test_infinite_energies_are_far_outside(points):
    inside, outside, _ = points
    half_plane = lambda x: jnp.where(x[0] > -2.0, jnp.sum(x**2), jnp.inf)
    result = ood(half_plane, np.abs(inside), -5 - np.abs(outside), resamples=100)
    assert np.isinf(result.outside).all() and result.auroc.value == 1


def test_it_prints_and_shows_itself(points):
    result = ood(MODEL, points[0], points[1], resamples=100)
    text = str(result)
    assert text.startswith("energy of 70 points inside and 40 outside\nAUROC  0.")
    assert "AUPR" in text and "FPR95" in text
    assert "AUROC" in result._repr_html_()


X, Y = np.zeros((20, 2)), np.ones((5, 2))
NETWORK = tw.as_score(lambda x: -x)
SPINS = tw.energies.Ising(tw.energies.Graph([(0, 1)], 0.3))
SIGNS = np.ones((20, 2), int)


@pytest.mark.parametrize(
    ("model", "inside", "outside", "options", "words"),
    [
        (MODEL, X, np.ones((5, 3)), {}, r"expected outside of shape \(n, 2\), got \(5, 3\)"),
        (jnp.sum, X, np.ones((5, 3)), {}, r"outside: expected points of shape \(2,\) as inside has, got \(3,\)"),
        (jnp.sum, X, {"a": Y}, {}, "outside: expected points of shape"),
        (MODEL, X[:19], Y, {}, "inside: expected scores of at least 20 points, got 19"),
        (MODEL, X, Y[:1], {}, "outside: expected scores of at least 2 points, got 1"),
        (MODEL, X, Y, {"score": "likelihood"}, "expected score to be one of 'energy', 'gradient_norm'"),
        (MODEL, X, Y, {"score": "likelihood_ratio"}, "background: expected a second energy for .* got none; give"),
        (MODEL, X, Y, {"score": "typicality"}, "reference: expected training points for .* got none; give"),
        (MODEL, X, Y, {"background": WIDE}, "background: expected none for the score 'energy', got one; leave it out"),
        (MODEL, X, Y, {"reference": X}, "reference: expected none for the score 'energy', got one; leave it out"),
        (MODEL, X, Y, {"score": "likelihood_ratio", "background": NETWORK}, "background: expected an energy, got the"),
        (MODEL, X, Y, {"score": "likelihood_ratio", "background": 3}, "background: expected an energy, a callable"),
        (NETWORK, X, Y, {}, "score: expected 'gradient_norm' for the score network .*, which has no energy, got 'ene"),
        (SPINS, SIGNS, SIGNS, {"score": "gradient_norm"}, "expected a continuous space for 'gradient_norm', got Spin"),
        (jnp.sum, SIGNS, SIGNS, {"score": "gradient_norm"}, "expected a continuous space .* got whole numbers"),
        (lambda x: x, X, Y, {}, "expected an energy to return a scalar"),
        (None, X, Y, {"score": lambda x: x}, "expected an energy to return a scalar"),
        (None, X, Y, {"score": np.linalg.norm}, "score: expected a function written with jax.numpy, got one that cann"),
        (None, X, Y, {"score": lambda x: 1.0 if x[0] > 0 else 0.0}, "score: expected a function written with jax.num"),
        (None, X, Y, {}, "ood: expected an energy, a callable"),
        (tw.energies.Banana, X, Y, {}, "ood: expected an energy, got the class Banana"),
        (lambda x: jnp.log(jnp.sum(x) - 1e9), X, Y, {}, "inside: expected scores that are numbers, got nan"),
        (MODEL, X, Y, {"confidence": 2}, "expected confidence between 0 and 1"),
        (lambda x, c: x @ c, X, Y, {}, "expected an energy of one point x, got <lambda> with other arguments"),
    ],
)
def test_what_cannot_be_told_apart_is_refused_in_a_sentence(model, inside, outside, options, words):
    with pytest.raises(ValueError, match=words) as problem:
        ood(model, inside, outside, **options)
    assert "\n" not in str(problem.value)


def test_a_reference_without_finite_energies_is_refused():
    wall = lambda x: jnp.where(x[0] > 0.5, jnp.inf, 0.0)
    with pytest.raises(ValueError, match="reference: expected points of finite energy, got a mean of inf"):
        ood(wall, X, X, score="typicality", reference=Y)
    with pytest.raises(ValueError, match="outside: expected scores that are numbers, got nan"):
        ood(wall, X, Y, score="likelihood_ratio", background=wall)
