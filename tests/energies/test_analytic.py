"""Every analytic target, curved ones too, against quadrature, closed forms and its own samples."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import thalweg as tw
from thalweg import exact
from thalweg.core import HasLogZ, HasSampler
from thalweg.energies.analytic import HasMoments

TILTED = np.array([[2.0, 0.6], [0.6, 0.5]])
TARGETS = {
    "Gaussian, full": tw.energies.Gaussian(jnp.array([1.0, -2.0]), jnp.asarray(TILTED)),
    "Gaussian, a number": tw.energies.Gaussian(-1.5, 0.25),
    "GaussianMixture": tw.energies.GaussianMixture(
        jnp.array([3.0, 1.0, 2.0]),
        jnp.array([[-2.0, 0.0], [2.0, 1.0], [0.5, -3.0]]),
        jnp.array([TILTED, [[0.3, -0.2], [-0.2, 1.0]], [[0.1, 0.0], [0.0, 0.1]]]),
    ),
    "two_bumps": tw.energies.two_bumps(),
    "Banana": tw.energies.Banana(),
    "DoubleWell": tw.energies.DoubleWell(1.5),
    "Funnel": tw.energies.Funnel(),
    "Ring": tw.energies.Ring(2.0, 0.5),
}
DRAWS = 50_000
# all statistics of one target are allowed this many standard errors: a false alarm in 10^6 for 20 of them
LIMIT = stats.norm.isf(1e-6 / 40)

targets = pytest.mark.parametrize("name", TARGETS)


class Truth(NamedTuple):
    """What quadrature says of a target: its moments about the mean it claims, and shares of mass below some places."""

    log_z: float
    shift: np.ndarray
    covariance: np.ndarray
    waves: np.ndarray
    places: np.ndarray
    shares: np.ndarray


class Statistics(eqx.Module):
    """First and second moments about ``mean``, and bounded functions that see a bend, a rotation or a width."""

    mean: jax.Array

    def __call__(self, x):
        shift = (x - self.mean).reshape(-1)
        waves = jnp.concatenate([jnp.tanh(shift) * jnp.tanh(shift[::-1] + 0.5), jnp.tanh(shift) ** 2])
        return shift, jnp.outer(shift, shift), waves


def quadrature(energy):
    event, size = energy.space.shape, energy.mean.size
    log_z = float(exact.log_z(energy))
    shift, covariance, waves = exact.expectation(energy, Statistics(energy.mean))
    mean, deviation = np.asarray(energy.mean).reshape(size), np.sqrt(np.diag(covariance))
    places = mean + deviation * np.array([-1.0, -0.3, 0.8])[:, None]
    shares = np.empty((3, size))
    for (level, axis), place in np.ndenumerate(places):
        high = np.where(np.arange(size) == axis, place, np.inf).reshape(event)
        shares[level, axis] = math.exp(float(exact.log_z(energy, bounds=(-np.inf, high))) - log_z)
    return Truth(log_z, *(np.asarray(answer, float) for answer in (shift, covariance, waves, places, shares)))


@pytest.fixture(scope="module")
def truth():
    """Quadrature of every target, once for all tests."""
    return {name: quadrature(target) for name, target in TARGETS.items()}


@eqx.filter_jit
def ask(energy, key):
    """All a target can tell, in one compiled program."""
    points = energy.sample(key, (DRAWS,))
    loss = lambda energy: -jnp.mean(jax.vmap(energy.log_prob)(points[:8])) + jnp.sum(energy.covariance)
    return {
        "points": points,
        "energy": energy(points[0]),
        "log_z": energy.log_z,
        "log_prob": energy.log_prob(points[0]),
        "mean": energy.mean,
        "covariance": energy.covariance,
        "scores": jax.vmap(lambda x: tw.score(energy, x))(points[:8]),
        "parameters": eqx.filter_grad(loss)(energy),
    }


@pytest.fixture(scope="module")
def target_values():
    """The values of every target, computed once for all tests."""
    return {name: ask(target, jax.random.key(20261115)) for name, target in TARGETS.items()}


# contract


@targets
def test_a_target_has_its_abilities_and_shapes(name, target_values):
    energy, answer = TARGETS[name], target_values[name]
    assert all(isinstance(energy, ability) for ability in (HasLogZ, HasSampler, HasMoments))
    event = energy.space.shape
    for shape in ((), (3,), (2, 3)):
        points = eqx.filter_eval_shape(lambda key, shape=shape: energy.sample(key, shape), jax.random.key(0))
        assert points.shape == (*shape, *event) and points.dtype == energy.space.dtype
    assert all(answer[scalar].shape == () for scalar in ("energy", "log_z", "log_prob"))
    assert answer["mean"].shape == event and answer["covariance"].shape == event * 2
    np.testing.assert_allclose(answer["log_prob"], -answer["energy"] - answer["log_z"], rtol=1e-6)


@targets
def test_gradients_in_the_point_and_in_every_parameter_are_finite(name, target_values):
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(target_values[name]["parameters"])]
    assert leaves and all(np.isfinite(leaf).all() and leaf.any() for leaf in leaves)
    assert np.isfinite(target_values[name]["scores"]).all()


# exact


@targets
def test_log_z_and_moments_are_those_of_quadrature(name, truth, target_values):
    known = truth[name]
    np.testing.assert_allclose(target_values[name]["log_z"], known.log_z, atol=1e-5)
    deviation = np.sqrt(np.diag(known.covariance))
    np.testing.assert_allclose(known.shift / deviation, 0, atol=1e-5)
    error = np.atleast_2d(target_values[name]["covariance"]) - known.covariance
    np.testing.assert_allclose(error / np.outer(deviation, deviation), 0, atol=2e-5)


def gaussian_score(x):
    return -np.linalg.solve(TILTED, x - [1.0, -2.0])


def mixture_score(x):
    energy = TARGETS["GaussianMixture"]
    weights, means = np.array([3.0, 1.0, 2.0]), np.asarray(energy.means, float)
    covariances = [TILTED, [[0.3, -0.2], [-0.2, 1.0]], [[0.1, 0.0], [0.0, 0.1]]]
    parts = [w * stats.multivariate_normal(m, c).pdf(x) for w, m, c in zip(weights, means, covariances, strict=True)]
    pulls = [-np.linalg.solve(c, x - m) for m, c in zip(means, covariances, strict=True)]
    return np.average(pulls, axis=0, weights=parts)


SCORES = {
    "Gaussian, full": gaussian_score,
    "Gaussian, a number": lambda x: -(x + 1.5) / 0.25,
    "GaussianMixture": mixture_score,
    "Banana": lambda x: np.array([-x[0] / 4 + (x[1] - 0.5 * (x[0] ** 2 - 4)) * x[0], -(x[1] - 0.5 * (x[0] ** 2 - 4))]),
    "DoubleWell": lambda x: -4 * 1.5 * x * (x**2 - 1),
    "Funnel": lambda x: np.array([-x[0] / 9 + 0.5 * np.exp(-x[0]) * x[1] ** 2 - 0.5, -np.exp(-x[0]) * x[1]]),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores_match_their_closed_forms(name, target_values):
    expected = [SCORES[name](np.asarray(x, float)) for x in np.asarray(target_values[name]["points"][:8])]
    np.testing.assert_allclose(target_values[name]["scores"], expected, rtol=1e-4, atol=1e-4)


def test_two_bumps_is_the_density_of_the_slides(target_values):
    energy, answer = tw.energies.two_bumps(), target_values["two_bumps"]
    x = np.linspace(-6, 10, 33)
    density = 3 * np.exp(-((x + 2) ** 2) / 2) + np.exp(-((x - 4) ** 2) / 8)
    np.testing.assert_allclose(
        jax.jit(jax.vmap(energy))(jnp.asarray(x)[:, None]), -np.log(density), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(answer["log_z"], math.log(5 * math.sqrt(2 * math.pi)), rtol=1e-6)
    np.testing.assert_allclose(answer["mean"], [0.4], rtol=1e-5)
    np.testing.assert_allclose(answer["covariance"], [[10.84]], rtol=1e-5)


def test_the_gradient_of_log_z_in_the_covariance_is_half_its_inverse():
    gradient = jax.jit(jax.grad(lambda c: tw.energies.Gaussian(jnp.zeros(2), c).log_z))(jnp.asarray(TILTED))
    np.testing.assert_allclose((gradient + gradient.T) / 2, np.linalg.inv(TILTED) / 2, rtol=1e-4)


@eqx.filter_jit
def answers(energy, x):
    return energy(x), energy.log_z, energy.covariance


def test_every_form_of_a_covariance_means_the_same():
    mean, x = jnp.array([1.0, -1.0, 0.5]), jnp.array([0.3, 0.1, -2.0])
    expected = answers(tw.energies.Gaussian(mean, 2.0 * jnp.eye(3)), x)
    for covariance in (2.0, jnp.full(3, 2.0)):
        found = answers(tw.energies.Gaussian(mean, covariance), x)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, expected)
    weights, means = jnp.array([1.0, 2.0]), jnp.stack([mean, -mean])
    full = 2.0 * jnp.broadcast_to(jnp.eye(3), (2, 3, 3))
    expected = answers(tw.energies.GaussianMixture(weights, means, full), x)
    for covariances in (2.0, jnp.full(2, 2.0), jnp.full((2, 3), 2.0)):
        found = answers(tw.energies.GaussianMixture(weights, means, covariances), x)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, expected)
    on_numbers = tw.energies.GaussianMixture(weights, jnp.array([0.0, 3.0]), jnp.array([1.0, 4.0]))
    in_vectors = tw.energies.GaussianMixture(weights, jnp.array([[0.0], [3.0]]), jnp.array([1.0, 4.0]))
    found, expected = answers(on_numbers, jnp.array(0.7)), answers(in_vectors, jnp.array([0.7]))
    assert found[2].shape == () and expected[2].shape == (1, 1)
    np.testing.assert_allclose([float(a) for a in found[:2]], [float(a) for a in expected[:2]], rtol=1e-6)


def test_left_out_weights_are_equal_and_left_out_covariances_the_identity():
    means, x = jnp.array([[0.0, 1.0], [2.0, -1.0], [3.0, 0.5]]), jnp.array([0.2, -0.4])
    expected = answers(tw.energies.GaussianMixture(jnp.full(3, 1 / 3), means, jnp.stack([jnp.eye(2)] * 3)), x)
    found = answers(tw.energies.GaussianMixture(means=means), x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, expected)
    numbers = tw.energies.GaussianMixture(means=jnp.array([-1.0, 1.0]))
    assert numbers.space == tw.Real(()) and abs(float(numbers.log_z)) < 1e-6
    single, given = tw.energies.Gaussian(means[0]), tw.energies.Gaussian(means[0], jnp.eye(2))
    assert float(single(x)) == pytest.approx(float(given(x)), rel=1e-6)


def test_a_mixture_with_scaled_weights_is_the_same_density():
    energy, x = TARGETS["GaussianMixture"], jnp.array([0.2, -0.4])
    scaled = eqx.tree_at(lambda e: e.log_weights, energy, energy.log_weights + 3.0)
    (value, log_z, covariance), (expected, expected_log_z, expected_covariance) = answers(scaled, x), answers(energy, x)
    np.testing.assert_allclose(value + log_z, expected + expected_log_z, rtol=1e-5)
    np.testing.assert_allclose(log_z - expected_log_z, 3.0, rtol=1e-5)
    np.testing.assert_allclose(covariance, expected_covariance, rtol=1e-5)


# statistical


def disagreement(name, points, truth):
    """The largest distance, in standard errors, of the points' moments, waves and frequencies from quadrature's."""
    known, root = truth[name], math.sqrt(len(points))
    flat = np.asarray(points, float).reshape(len(points), -1)
    shift = flat - np.asarray(TARGETS[name].mean, float).reshape(-1)
    waves = np.concatenate([np.tanh(shift) * np.tanh(shift[:, ::-1] + 0.5), np.tanh(shift) ** 2], axis=1)
    below = flat <= known.places[:, None]
    z = [
        (shift.mean(0) - known.shift) / (np.sqrt(np.diag(known.covariance)) / root),
        (waves.mean(0) - known.waves) / (waves.std(0) / root),
        ((below.mean(1) - known.shares) / (np.sqrt(known.shares * (1 - known.shares)) / root)).reshape(-1),
    ]
    if name != "Funnel":  # whose squares have a variance of 10^8: no number of draws gives them a useful error
        z.append(((shift**2).mean(0) - np.diag(known.covariance)) / ((shift**2).std(0) / root))
    return np.max(np.abs(np.concatenate(z)))


@targets
def test_samples_have_the_mean_and_distribution_of_quadrature(name, truth, target_values):
    points = np.asarray(target_values[name]["points"])
    assert disagreement(name, points, truth) < LIMIT
    # points a tenth of a deviation off, or stretched by a tenth about their mean, would have been seen
    deviation = np.sqrt(np.diag(truth[name].covariance)).reshape(TARGETS[name].space.shape)
    assert disagreement(name, points + 0.1 * deviation, truth) > LIMIT
    mean = np.asarray(TARGETS[name].mean)
    assert disagreement(name, mean + 1.1 * (points - mean), truth) > LIMIT


def test_wrong_samplers_are_seen(truth):
    generator = np.random.default_rng(0)
    noise = generator.normal(size=(DRAWS, 2))
    wrong_width = np.stack([3 * noise[:, 0], np.exp(3 * noise[:, 0]) * noise[:, 1]], axis=1)  # e^v for e^{v/2}
    assert disagreement("Funnel", wrong_width, truth) > LIMIT
    unbent = np.stack([2 * noise[:, 0], 3 * noise[:, 1]], axis=1)
    assert disagreement("Banana", unbent, truth) > LIMIT
    transposed = [1.0, -2.0] + noise @ np.linalg.cholesky(TILTED)
    assert disagreement("Gaussian, full", transposed, truth) > LIMIT
    no_rejection = generator.choice([-1, 1], (DRAWS, 2)) * np.abs(1 + noise / math.sqrt(3.0))
    assert disagreement("DoubleWell", no_rejection, truth) > LIMIT
    energy, even = TARGETS["GaussianMixture"], generator.integers(0, 3, DRAWS)
    roots = np.linalg.inv(np.tril(energy.whitenings))
    equal_weights = np.asarray(energy.means)[even] + np.einsum("nij,nj->ni", roots[even], noise)
    assert disagreement("GaussianMixture", equal_weights, truth) > LIMIT


# refusals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda e: e.Gaussian(jnp.zeros(2), jnp.array([[1.0, 2.0], [2.0, 1.0]])), "smallest eigenvalue -1"),
        (
            lambda e: e.Gaussian(jnp.zeros(2), jnp.array([[1.0, 0.5], [0.0, 1.0]])),
            "expected a symmetric positive-definite",
        ),
        (lambda e: e.Gaussian(jnp.zeros(2), jnp.full((2, 2), jnp.nan)), "smallest eigenvalue nan"),
        (lambda e: e.Gaussian(jnp.zeros(2), jnp.array([1.0, -1.0])), "expected every variance > 0"),
        (lambda e: e.Gaussian(jnp.zeros(2), jnp.ones(3)), r"got \(2,\) and \(3,\); make the sizes agree"),
        (lambda e: e.Gaussian(jnp.zeros((2, 2)), 1.0), r"expected a mean of shape \(\) or \(d,\)"),
        (lambda e: e.GaussianMixture([1.0, 0.0], jnp.zeros((2, 1)), 1.0), "expected every weight > 0"),
        (lambda e: e.GaussianMixture([1.0, 2.0]), "expected the means of the components, got none"),
        (lambda e: e.GaussianMixture([1.0], jnp.zeros((2, 1)), 1.0), r"got \(1,\) and \(2, 1\); give one row per"),
        (
            lambda e: e.GaussianMixture([1.0, 1.0], jnp.zeros((2, 1)), jnp.ones(3)),
            r"got \(3,\); give one per component",
        ),
    ],
)
def test_impossible_targets_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make(tw.energies)
