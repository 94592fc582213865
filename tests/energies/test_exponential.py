"""The exponential family against quadrature, sums, scipy's densities, autodiff and its own samples."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import thalweg as tw
from thalweg import exact
from thalweg.core import Energy, HasLogZ, HasSampler
from thalweg.energies.analytic import HasMoments
from thalweg.energies.exponential_base import AbstractExponentialFamily
from thalweg.spaces import Continuous, as_points

SCALE = np.array([[2.0, 0.6], [0.6, 0.5]])
ALPHA = np.array([1.5, 2.0, 3.5])


class Case(NamedTuple):
    """An energy and scipy's distributions: one for each coordinate, or one for all of them together."""

    energy: Any
    scipy: Any


CASES = {
    "Normal": Case(
        tw.energies.Normal(jnp.array([1.0, -2.0]), jnp.array([0.5, 2.0])),
        [stats.norm(1.0, math.sqrt(0.5)), stats.norm(-2.0, math.sqrt(2.0))],
    ),
    "Normal, a number": Case(tw.energies.Normal(-1.5, 0.25), [stats.norm(-1.5, 0.5)]),
    "Exponential": Case(
        tw.energies.Exponential(jnp.array([0.5, 3.0])), [stats.expon(scale=2.0), stats.expon(scale=1 / 3)]
    ),
    "Gamma": Case(
        tw.energies.Gamma(jnp.array([1.5, 3.0]), jnp.array([2.0, 0.5])),
        [stats.gamma(1.5, scale=0.5), stats.gamma(3.0, scale=2.0)],
    ),
    "Gamma, below one": Case(tw.energies.Gamma(0.5, 2.0), [stats.gamma(0.5, scale=0.5)]),
    "Beta": Case(
        tw.energies.Beta(jnp.array([2.0, 1.5]), jnp.array([3.0, 1.2])), [stats.beta(2.0, 3.0), stats.beta(1.5, 1.2)]
    ),
    "Bernoulli": Case(tw.energies.Bernoulli(jnp.array([0.2, 0.4, 0.9])), [stats.bernoulli(p) for p in (0.2, 0.4, 0.9)]),
    "Poisson": Case(tw.energies.Poisson(jnp.array([0.7, 4.0])), [stats.poisson(0.7), stats.poisson(4.0)]),
    "Dirichlet": Case(tw.energies.Dirichlet(ALPHA), stats.dirichlet(ALPHA)),
    "Wishart": Case(tw.energies.Wishart(4.5, SCALE), stats.wishart(4.5, SCALE)),
}
DRAWS = 20_000
# all statistics of one energy are allowed this many standard errors: a false alarm in 10^6 for 50 of them
LIMIT = stats.norm.isf(1e-6 / 100)

cases = pytest.mark.parametrize("name", CASES)
continuous = pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if isinstance(case.energy.space, Continuous)]
)


@eqx.filter_jit
def ask(energy, key):
    """All an energy can tell, in one compiled program."""
    points = energy.sample(key, (DRAWS,))
    few = points[:6]
    answer = {
        "points": points,
        "energies": jax.vmap(energy)(few),
        "formula": jax.vmap(lambda x: -dot(energy.natural, energy.sufficient(x)) - energy.log_base(x))(few * 1.0),
        "log_probs": jax.vmap(energy.log_prob)(few),
        "inside": jax.vmap(energy.space.contains)(points),
        "log_z": energy.log_z,
        "mean": energy.mean,
        "variance": energy.variance,
        "covariance": energy.covariance,
        "entropy": energy.entropy,
        "statistics": energy.mean_statistics,
        "all_statistics": jax.vmap(lambda x: energy.sufficient(x * 1.0))(points),
        "gradient_of_log_z": jax.grad(lambda natural: type(energy).from_natural(natural).log_z)(energy.natural),
        "gradients": jax.vmap(jax.grad(energy))(few * 1.0),
        "natural": energy.natural,
        "again": type(energy).from_natural(energy.natural),
        "parameters": eqx.filter_grad(lambda e: -jnp.mean(jax.vmap(e.log_prob)(few)) + e.entropy)(energy),
    }
    if isinstance(energy.space, Continuous):
        answer["scores"] = jax.vmap(energy.score)(few)
    return answer


def dot(natural, statistics):
    return sum(jnp.sum(a * b) for a, b in zip(jax.tree.leaves(natural), jax.tree.leaves(statistics), strict=True))


@pytest.fixture(scope="module")
def answers():
    """The answers of every energy, once for all tests."""
    return {name: ask(case.energy, jax.random.key(20261115)) for name, case in CASES.items()}


# contract


@cases
def test_an_energy_has_its_abilities_shapes_and_types(name, answers):
    energy, answer = CASES[name].energy, answers[name]
    assert all(isinstance(energy, each) for each in (AbstractExponentialFamily, HasLogZ, HasSampler, HasMoments))
    event = energy.space.shape
    for shape in ((), (3,), (2, 3)):
        points = eqx.filter_eval_shape(lambda key, shape=shape: energy.sample(key, shape), jax.random.key(0))
        assert points.shape == (*shape, *event) and points.dtype == energy.space.dtype
    assert all(answer[scalar].shape == () for scalar in ("log_z", "entropy"))
    assert answer["mean"].shape == answer["variance"].shape == event and answer["covariance"].shape == event * 2
    size = answer["mean"].size
    np.testing.assert_allclose(
        np.diag(answer["covariance"].reshape(size, size)), answer["variance"].reshape(-1), rtol=1e-5
    )
    assert jax.tree.structure(answer["natural"]) == jax.tree.structure(answer["statistics"])
    assert all(leaf.dtype == jnp.result_type(float) for leaf in jax.tree.leaves(energy))
    as_points(energy.space, answer["points"])  # every sample lies in the space


@cases
def test_the_energy_is_the_formula_of_the_family_and_has_gradients_in_every_parameter(name, answers):
    answer = answers[name]
    np.testing.assert_allclose(answer["energies"], answer["formula"], rtol=1e-5, atol=1e-6)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(answer["parameters"])]
    assert leaves and all(np.isfinite(leaf).all() and leaf.any() for leaf in leaves)


@cases
def test_a_batch_is_refused(name):
    energy = CASES[name].energy
    points = jnp.ones((7, *energy.space.shape))
    message = r"expected one point of shape .*, got \(7,.*\); batch by jax.vmap\(energy\)\(points\)"
    for method in (energy, energy.log_prob, getattr(energy, "score", energy)):
        with pytest.raises(ValueError, match=message):
            method(points)


OUTSIDE = {
    "Normal, a number": [math.inf, math.nan],
    "Exponential": [[0.0, 1.0], [1.0, -1.0], [1.0, math.inf], [math.nan, 1.0]],
    "Gamma": [[0.0, 1.0], [1.0, -1.0]],
    "Gamma, below one": [0.0, -1.0],
    "Beta": [[0.0, 0.5], [0.5, 1.0], [1.5, 0.5], [0.5, math.nan]],
    "Bernoulli": [[0, 1, 2], [0, -1, 0], [0.5, 0, 0]],
    "Poisson": [[-1, 0], [0, 0.5], [0, math.inf]],
    "Dirichlet": [[0.2, 0.2, 0.2], [0.0, 0.5, 0.5], [-0.5, 0.5, 1.0]],
    "Wishart": [[[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.0], [0.5, 1.0]], [[0.0, 0.0], [0.0, 0.0]]],
}


def test_the_support_of_wishart_is_its_space():
    energy, space = CASES["Wishart"].energy, CASES["Wishart"].energy.space
    entries = jax.random.normal(jax.random.key(0), (300, 2, 2))
    symmetric = jnp.concatenate([entries, entries + entries.swapaxes(1, 2), entries @ entries.swapaxes(1, 2)])
    inside, energies = jax.jit(jax.vmap(lambda x: (space.contains(x), energy(x))))(symmetric)
    np.testing.assert_array_equal(np.isfinite(energies), inside)
    assert 300 < int(inside.sum()) < 500


@pytest.mark.parametrize("name", OUTSIDE)
def test_the_energy_is_infinite_outside_the_support_and_no_nan_comes_back(name):
    energy = CASES[name].energy
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(energy)))(jnp.asarray(OUTSIDE[name], float))
    assert np.all(np.asarray(values) == math.inf) and np.all(np.asarray(slopes) == 0)


# exact


class InRealCoordinates(Energy):
    """An energy of the coordinates ``z`` of its own space's bijection: ``E(x(z)) - log |det ∂x/∂z|``."""

    energy: Any

    @property
    def space(self):
        return tw.Real(self.energy.space.dimension)

    def __call__(self, z):
        space = self.energy.space
        return self.energy(space.from_real(z)) - space.log_det(z)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("Poisson", "Dirichlet", "Wishart")])
def test_log_z_is_that_of_quadrature_or_enumeration(name, answers):
    np.testing.assert_allclose(answers[name]["log_z"], exact.log_z(CASES[name].energy), atol=2e-5)


@pytest.mark.parametrize(
    ("name", "bounds"), [("Dirichlet", [(-12, 12), (-12, 12)]), ("Wishart", [(-6, 3), (-6, 9), (-7, 2.5)])]
)
def test_log_z_is_that_of_the_free_coordinates(name, bounds, answers):
    """An even grid in real coordinates, where the trapezium rule is exact but for the tails."""
    energy = InRealCoordinates(CASES[name].energy)
    axes = [np.linspace(low, high, 48) for low, high in bounds]
    grid = np.stack(np.meshgrid(*axes), -1).reshape(-1, len(axes))
    log_p = -jax.jit(jax.vmap(energy))(jnp.asarray(grid, float))
    found = jax.nn.logsumexp(log_p) + sum(math.log(axis[1] - axis[0]) for axis in axes)
    np.testing.assert_allclose(found, answers[name]["log_z"], atol=1e-4)


def test_log_z_of_poisson_is_its_sum():
    energy = tw.energies.Poisson(4.0)
    total = jax.nn.logsumexp(-jax.vmap(energy)(jnp.arange(60)))
    np.testing.assert_allclose(total, energy.log_z, rtol=1e-6)
    np.testing.assert_allclose(energy.log_z, 4.0, rtol=1e-6)


def scipy_log_prob(name, x):
    reference = CASES[name].scipy
    if name == "Dirichlet":
        return reference.logpdf(x / x.sum())
    if name == "Wishart":
        return reference.logpdf(x)
    pairs = zip(reference, np.atleast_1d(x), strict=True)
    return sum(each.logpmf(v) if name in ("Bernoulli", "Poisson") else each.logpdf(v) for each, v in pairs)


@cases
def test_log_probs_are_those_of_scipy(name, answers):
    points = np.asarray(answers[name]["points"][:6], float)
    expected = [scipy_log_prob(name, x) for x in points]
    np.testing.assert_allclose(answers[name]["log_probs"], expected, rtol=2e-5, atol=2e-5)


@cases
def test_mean_variance_and_entropy_are_those_of_scipy(name, answers):
    reference, answer = CASES[name].scipy, answers[name]
    if isinstance(reference, list):
        shape = answer["mean"].shape
        mean, variance = (np.reshape([getattr(each, f)() for each in reference], shape) for f in ("mean", "var"))
        entropy = sum(each.entropy() for each in reference)
    else:
        mean, variance, entropy = reference.mean(), reference.var(), reference.entropy()
    np.testing.assert_allclose(answer["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(answer["variance"], variance, rtol=1e-5)
    np.testing.assert_allclose(answer["entropy"], entropy, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rate", [1e-3, 0.5, 31.0, 33.0, 1000.0])
def test_the_entropy_of_poisson_is_right_on_both_sides_of_its_series(rate):
    np.testing.assert_allclose(tw.energies.Poisson(rate).entropy, stats.poisson(rate).entropy(), rtol=1e-5)


@cases
def test_the_mean_statistics_are_the_gradient_of_log_z(name, answers):
    def same(a, b):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)

    jax.tree.map(same, answers[name]["statistics"], answers[name]["gradient_of_log_z"])


@cases
def test_natural_parameters_give_the_energy_back(name, answers):
    again = answers[name]["again"]
    assert type(again) is type(CASES[name].energy)
    if name == "Wishart":
        again = eqx.tree_at(lambda e: e.factor, again, jnp.tril(again.factor))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), again, CASES[name].energy)


SCORES = {
    "Normal": lambda x: -(x - [1.0, -2.0]) / [0.5, 2.0],
    "Exponential": lambda x: np.array([-0.5, -3.0]),
    "Gamma": lambda x: (np.array([1.5, 3.0]) - 1) / x - [2.0, 0.5],
    "Beta": lambda x: (np.array([2.0, 1.5]) - 1) / x - (np.array([3.0, 1.2]) - 1) / (1 - x),
    "Dirichlet": lambda x: (ALPHA - 1) / x,
    "Wishart": lambda x: 0.75 * np.linalg.inv(x) - 0.5 * np.linalg.inv(SCALE),
}


@continuous
def test_scores_match_autodiff_and_their_closed_forms(name, answers):
    answer = answers[name]
    size = np.abs(answer["scores"]).max()
    np.testing.assert_allclose(answer["scores"], -answer["gradients"], rtol=1e-4, atol=1e-5 * size)
    if name in SCORES:
        expected = [SCORES[name](x) for x in np.asarray(answer["points"][:6], float)]
        np.testing.assert_allclose(answer["scores"], expected, rtol=1e-4, atol=1e-5 * size)


def test_a_discrete_energy_has_a_gradient_at_floating_states_and_no_score():
    energy = CASES["Bernoulli"].energy
    np.testing.assert_allclose(jax.grad(energy)(jnp.array([0.0, 1.0, 1.0])), -energy.natural, rtol=1e-6)
    assert not hasattr(energy, "score") and not hasattr(CASES["Poisson"].energy, "score")


def test_a_normal_far_from_zero_keeps_the_digits_of_its_log_prob():
    energy = tw.energies.Normal(1000.0, 1.0)
    np.testing.assert_allclose(energy.log_prob(jnp.array(1001.0)), stats.norm(1000.0).logpdf(1001.0), rtol=1e-5)


@pytest.mark.parametrize(
    "energy",
    [
        tw.energies.Gamma(0.01, 1.0),
        tw.energies.Beta(0.01, 0.01),
        tw.energies.Dirichlet([0.01, 0.02, 0.5]),
        tw.energies.Wishart(1.01, np.array([[1.0, 0.99], [0.99, 1.0]])),
    ],
    ids=lambda energy: type(energy).__name__,
)
def test_extreme_parameters_keep_samples_inside(energy):
    energies = eqx.filter_jit(lambda e: jax.vmap(e)(e.sample(jax.random.key(0), (2000,))))(energy)
    assert np.isfinite(energies).all()


def test_parameters_broadcast_to_the_event():
    assert tw.energies.Normal(jnp.zeros((2, 1)), jnp.ones(3)).space == tw.Real((2, 3))
    assert tw.energies.Gamma(2.0, jnp.ones(3)).space == tw.Positive(3)
    assert tw.energies.Beta(jnp.ones(2), 1.0).space == tw.Interval(0.0, 1.0, 2)
    assert tw.energies.Exponential(1).space == tw.Positive(())
    assert tw.energies.Bernoulli(0.5).space == tw.Binary(()) and tw.energies.Poisson([1, 2]).space == tw.Counts(2)
    assert tw.energies.Dirichlet([1, 2]).space == tw.Simplex(2)


def test_energies_can_be_made_and_asked_inside_jit_and_vmap():
    rates = jnp.array([0.5, 1.0, 4.0])
    make = jax.jit(jax.vmap(lambda rate: tw.energies.Gamma(2.0, rate).log_prob(jnp.array(1.5))))
    np.testing.assert_allclose(make(rates), stats.gamma(2.0, scale=1 / np.asarray(rates)).logpdf(1.5), rtol=1e-5)
    scales = jnp.stack([jnp.eye(2), jnp.asarray(SCALE, float)])
    many = eqx.filter_vmap(lambda degrees, scale: tw.energies.Wishart(degrees, scale))(jnp.array([3.0, 4.5]), scales)
    x = jnp.array([[1.0, 0.2], [0.2, 2.0]])
    found = eqx.filter_jit(eqx.filter_vmap(lambda energy: energy.log_prob(x)))(many)
    expected = [stats.wishart(3.0, np.eye(2)).logpdf(x), stats.wishart(4.5, SCALE).logpdf(x)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_other_values_do_not_recompile():
    count = 0

    @eqx.filter_jit
    def value(energy, x):
        nonlocal count
        count += 1
        return energy(x)

    for rate in (0.5, 2, np.float64(3.0), jnp.array(4)):
        value(tw.energies.Poisson(rate), jnp.array(2))
    assert count == 1


def test_double_precision():
    with jax.enable_x64(True):
        for energy, x, expected in [
            (tw.energies.Gamma(2.5, 1.3), 0.7, stats.gamma(2.5, scale=1 / 1.3).logpdf(0.7)),
            (tw.energies.Beta(2.5, 1.3), 0.7, stats.beta(2.5, 1.3).logpdf(0.7)),
            (tw.energies.Poisson(2.5), 3, stats.poisson(2.5).logpmf(3)),
            (tw.energies.Wishart(4.5, SCALE), SCALE, stats.wishart(4.5, SCALE).logpdf(SCALE)),
        ]:
            log_prob = eqx.filter_jit(lambda energy, x: energy.log_prob(x))(energy, jnp.asarray(x))
            assert log_prob.dtype == jnp.float64
            np.testing.assert_allclose(log_prob, expected, rtol=1e-12)
            points = eqx.filter_eval_shape(lambda key, energy=energy: energy.sample(key, (2,)), jax.random.key(0))
            assert points.dtype == energy.space.dtype


# statistical


def disagreement(answer, points):
    """The largest distance, in standard errors, of the points' means and products from the exact ones."""
    size = answer["mean"].size
    shift = (np.asarray(points, float) - np.asarray(answer["mean"], float)).reshape(len(points), size)
    products = (shift[:, :, None] * shift[:, None, :]).reshape(len(points), -1)
    z = [
        (values.mean(0) - target) / (values.std(0) / math.sqrt(len(points)))
        for values, target in [(shift, 0.0), (products, np.asarray(answer["covariance"], float).reshape(-1))]
    ]
    return np.max(np.abs(np.concatenate(z)))


@cases
def test_samples_have_the_exact_moments_and_statistics(name, answers):
    answer = answers[name]
    points = np.asarray(answer["points"], float)
    assert disagreement(answer, points) < LIMIT
    # points a tenth of a deviation off would have been seen
    assert disagreement(answer, points + 0.1 * np.sqrt(answer["variance"])) > LIMIT
    for values, target in zip(
        jax.tree.leaves(answer["all_statistics"]), jax.tree.leaves(answer["statistics"]), strict=True
    ):
        values = np.asarray(values, float)
        assert np.max(np.abs(values.mean(0) - target) / (values.std(0) / math.sqrt(DRAWS))) < LIMIT


@pytest.mark.parametrize("name", ["Normal", "Exponential", "Gamma", "Gamma, below one", "Beta"])
def test_samples_have_the_distribution_of_scipy(name, answers):
    points = np.asarray(answers[name]["points"], float).reshape(DRAWS, -1)
    for column, reference in zip(points.T, CASES[name].scipy, strict=True):
        assert stats.kstest(column, reference.cdf).pvalue > 1e-6


# training


@pytest.mark.parametrize(
    ("start", "truth", "read"),
    [
        (tw.energies.Exponential(0.01), tw.energies.Exponential(3.0), lambda e: e.mean),
        (tw.energies.Gamma(1.0, 1.0), tw.energies.Gamma(3.0, 0.5), lambda e: e.mean),
        (tw.energies.Poisson(jnp.ones(2)), tw.energies.Poisson(jnp.array([0.5, 7.0])), lambda e: e.mean),
    ],
)
def test_training_by_likelihood_matches_the_mean_statistics(start, truth, read):
    data = truth.sample(jax.random.key(1), (500,))
    run = tw.fit(
        start,
        data,
        tw.objectives.ExactLikelihood(),
        optimizer=optax.adam(0.1),
        steps=400,
        batch_size=500,
        key=jax.random.key(2),
    )
    assert type(run.energy) is type(start)
    np.testing.assert_allclose(read(run.energy), np.asarray(data).mean(0), rtol=0.01)


# refusals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda e: e.Exponential(0.0), "expected every rate > 0, got 0.0; give positive numbers"),
        (lambda e: e.Exponential([1.0, -2.0]), "expected every rate > 0, got -2.0; give positive numbers"),
        (lambda e: e.Exponential(math.nan), "expected a finite rate, got nan; give finite numbers"),
        (lambda e: e.Exponential(1e60), "expected a finite rate, got inf"),
        (lambda e: e.Exponential(1e-60), "expected every rate > 0, got 0.0"),
        (lambda e: e.Exponential("fast"), "expected real numbers as rate, got 'fast'; give a number"),
        (lambda e: e.Exponential(None), "expected real numbers as rate, got None"),
        (lambda e: e.Exponential([[1.0], [1.0, 2.0]]), "expected a number or an array as rate, got"),
        (lambda e: e.Exponential(1j), "expected real numbers as rate, got 1j"),
        (
            lambda e: e.Exponential(np.ma.masked_array([1.0, 2.0], [False, True])),
            "got a masked array; fill",
        ),
        (lambda e: e.Exponential(jnp.ones((0,))), r"expected at least one number as rate, got shape \(0,\)"),
        (lambda e: e.Normal(math.inf, 1.0), "expected a finite mean, got inf"),
        (lambda e: e.Normal(0.0, -1.0), "expected every variance > 0, got -1.0"),
        (lambda e: e.Normal(jnp.zeros(2), jnp.ones(3)), r"got \(2,\) and \(3,\); make the sizes agree"),
        (lambda e: e.Gamma(-1.0, 1.0), "expected every concentration > 0, got -1.0"),
        (lambda e: e.Beta(1.0, 0.0), "expected every b > 0, got 0.0"),
        (lambda e: e.Bernoulli(1.0), "expected every probability < 1, got 1.0; leave both values possible"),
        (lambda e: e.Bernoulli(0.0), "expected every probability > 0, got 0.0"),
        (lambda e: e.Poisson([[1.0, -1.0]]), "expected every rate > 0, got -1.0"),
        (lambda e: e.Dirichlet(1.0), r"expected a concentration of shape \(n,\), got \(\); give one number per"),
        (lambda e: e.Dirichlet([1.0, 0.0]), "expected every concentration > 0, got 0.0"),
        (lambda e: e.Wishart(1.0, np.eye(2)), "expected degrees > n - 1 = 1, got 1.0; raise them"),
        (lambda e: e.Wishart(3.0, np.array([[1.0, 2.0], [2.0, 1.0]])), "smallest eigenvalue -1; check it"),
        (lambda e: e.Wishart(3.0, np.array([[1.0, 0.5], [0.0, 1.0]])), "expected a symmetric positive-definite scale"),
        (lambda e: e.Wishart(3.0, np.ones(2)), r"expected degrees of shape \(\) and a scale of shape \(n, n\), got"),
        (lambda e: e.Wishart([3.0, 4.0], np.eye(2)), r"got \(2,\) and \(2, 2\); give a number and a square matrix"),
        (lambda e: e.Normal.from_natural(jnp.ones(2)), "expected natural parameters as a tuple of two, got an array"),
        (lambda e: e.Normal.from_natural((1.0, 0.5)), "expected every variance > 0, got -1.0"),
        (lambda e: e.Gamma.from_natural((0.0, 1.0)), "expected every rate > 0, got -1.0"),
    ],
)
def test_impossible_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make(tw.energies)
