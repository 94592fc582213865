"""Maximum entropy: closed forms, enumeration, convexity, chains against exact answers, and what is refused."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import thalweg as tw
from thalweg.machines import fit_maximum_entropy
from thalweg.machines.convex_dual import Unattainable, evaluate, solve

PAIRS = np.triu_indices(4, 1)


def pairwise(x):
    """The means and second moments of four spins."""
    point = jnp.asarray(x, float)
    return jnp.concatenate([point, jnp.outer(point, point)[PAIRS]])


def spins():
    generator = np.random.default_rng(0)
    weights = np.zeros((4, 4))
    weights[PAIRS] = generator.normal(scale=0.5, size=6)
    return tw.energies.Ising(weights + weights.T, generator.normal(scale=0.3, size=4))


def test_the_dice_of_jaynes():
    fit = fit_maximum_entropy(lambda x: x + 1.0, 4.5, tw.Categorical((), k=6))
    expected = [0.05435, 0.07877, 0.11416, 0.16545, 0.23977, 0.34749]
    np.testing.assert_allclose(tw.exact.probabilities(fit.energy), expected, atol=6e-6)
    assert fit.entropy.value == pytest.approx(1.61358, abs=1e-5)
    assert abs(fit.gap.value) < 1e-8 and fit.means.tolist() == pytest.approx([4.5])


def test_pairwise_means_of_spins_give_the_ising_model():
    truth = spins()
    means = tw.exact.expectation(truth, pairwise)
    fit = fit_maximum_entropy(pairwise, means, tw.Spin(4))
    expected = np.concatenate([truth.bias, np.asarray(truth.coupling.couplings)[PAIRS]])
    np.testing.assert_allclose(fit.natural, expected, atol=1e-5)
    assert fit.entropy.value == pytest.approx(float(tw.exact.entropy(truth)), abs=1e-5)
    # no other density with these means has more entropy: move along directions that keep them
    law = np.asarray(tw.exact.probabilities(fit.energy), float)
    table = np.asarray(jax.vmap(pairwise)(tw.Spin(4).states(0, 16)), float)
    constraints = np.vstack([np.ones(16), table.T])
    *_, directions = np.linalg.svd(constraints)
    entropy = lambda p: -np.sum(p * np.log(p))
    kept = directions[np.linalg.matrix_rank(constraints) :]
    assert len(kept) == 5
    for direction in kept:
        for size in (0.5, -0.5, 1e-3):
            moved = law + size * law.min() * direction
            np.testing.assert_allclose(moved @ table, means, atol=1e-5)
            assert entropy(moved) < entropy(law)


def test_a_large_table_is_read_in_blocks():
    """Two blocks of states and a part, against independent bits."""
    means = np.linspace(0.2, 0.8, 15)
    fit = fit_maximum_entropy(lambda x: x, means, tw.Binary(15))
    np.testing.assert_allclose(fit.natural, np.log(means / (1 - means)), atol=1e-5)
    assert fit.entropy.value == pytest.approx(-np.sum(means * np.log(means) + (1 - means) * np.log(1 - means)), 1e-6)
    three = fit_maximum_entropy(lambda x: jnp.sum(x), 12.0, tw.Categorical(10, k=3))  # 59 049 states
    assert three.means.tolist() == pytest.approx([12.0])


def test_the_dual_is_convex_and_its_derivatives_are_moments():
    generator = np.random.default_rng(1)
    rows, weights = generator.normal(size=(50, 3)), generator.normal(size=50)
    blocks = lambda: [(rows[:20], weights[:20]), (rows[20:], weights[20:])]
    means, natural, step = np.array([0.1, 0.2, -0.1]), generator.normal(size=3), 1e-5
    here = evaluate(blocks, means, natural)
    whole = evaluate(lambda: [(rows, weights)], means, natural)
    assert here.value == pytest.approx(whole.value) and here.slack == pytest.approx(np.max((rows - means) @ natural))
    for number, axis in enumerate(np.eye(3)):
        up, down = (evaluate(blocks, means, natural + sign * step * axis) for sign in (1, -1))
        assert (up.value - down.value) / (2 * step) == pytest.approx(here.means[number] - means[number], abs=1e-8)
        np.testing.assert_allclose((up.means - down.means) / (2 * step), here.covariance[number], atol=1e-8)
    found, there = solve(blocks, means)
    np.testing.assert_allclose(there.means, means, atol=1e-9)
    assert there.value < here.value and np.all(np.linalg.eigvalsh(there.covariance) > 0)
    with pytest.raises(Unattainable) as problem:
        solve(blocks, rows.max(axis=0) + 0.1)
    assert np.all((rows - rows.max(axis=0) - 0.1) @ problem.value.args[0] < 0)
    assert found.shape == (3,)


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (30.0, 2.0), (-3.0, 0.02), (400.0, 60.0)])
def test_two_moments_on_the_line_give_the_normal_density(mean, deviation):
    """Wherever it lies, and however narrow it is."""
    features = lambda x: jnp.stack([x, (x - mean) ** 2])
    fit = fit_maximum_entropy(features, [mean, deviation**2], tw.Real(()))
    np.testing.assert_allclose(fit.natural[1], -0.5 / deviation**2, rtol=1e-3)
    assert fit.entropy.value == pytest.approx(0.5 * np.log(2 * np.pi * np.e * deviation**2), abs=2e-3)


def test_other_closed_forms_by_quadrature():
    exponential = fit_maximum_entropy(lambda x: x, 2.0, tw.Positive(()))
    assert float(exponential.natural[0]) == pytest.approx(-0.5, abs=1e-4)
    assert exponential.entropy.value == pytest.approx(1 + np.log(2), abs=1e-4)
    flat = fit_maximum_entropy(lambda x: x, 0.5, tw.Interval(0.0, 1.0))
    assert float(flat.natural[0]) == pytest.approx(0, abs=1e-4) and flat.entropy.value == pytest.approx(0, abs=1e-5)
    moments = lambda x: jnp.stack([x[0], x[1], x[0] ** 2, x[0] * x[1], x[1] ** 2])
    plane = fit_maximum_entropy(moments, [1.0, 0.0, 2.0, 0.3, 1.0], tw.Real(2))
    assert plane.entropy.value == pytest.approx(np.log(2 * np.pi * np.e) + 0.5 * np.log(1 - 0.09), abs=1e-4)
    np.testing.assert_allclose(tw.exact.expectation(plane.energy, moments), [1.0, 0.0, 2.0, 0.3, 1.0], atol=1e-3)
    assert plane.entropy.value == pytest.approx(float(tw.exact.entropy(plane.energy)), abs=1e-3)


@pytest.mark.slow
def test_chains_agree_with_enumeration(key):
    truth = spins()
    means = np.asarray(tw.exact.expectation(truth, pairwise), float)
    exactly = fit_maximum_entropy(pairwise, means, tw.Spin(4))
    fit = fit_maximum_entropy(pairwise, means, tw.Spin(4), method="chains", key=key)
    np.testing.assert_allclose(fit.natural, exactly.natural, atol=0.05)
    # the interval is that of the fitted density's own entropy and gap; four standard errors
    own = float(tw.exact.entropy(fit.energy))
    assert abs(fit.entropy.value - own) < 4 * fit.entropy.standard_error < 0.1
    gap = float(fit.natural @ (tw.exact.expectation(fit.energy, pairwise) - means))
    assert abs(fit.gap.value - gap) < 4 * fit.gap.standard_error < 0.1
    # the dual value lies above the largest entropy
    assert own + gap >= exactly.entropy.value - 1e-4


@pytest.mark.slow
def test_chains_take_features_of_labels(key):
    """Features that are read from a table, which have no gradients."""
    table = jnp.array([0.0, 1.0, 5.0])
    features = lambda x: jnp.stack([table[x].sum(), jnp.sum(x[1:] == x[:-1])])
    exactly = fit_maximum_entropy(features, [8.0, 2.0], tw.Categorical(5, k=3))
    fit = fit_maximum_entropy(features, [8.0, 2.0], tw.Categorical(5, k=3), method="chains", updates=200, key=key)
    np.testing.assert_allclose(fit.natural, exactly.natural, atol=0.05)
    own = float(tw.exact.entropy(fit.energy))
    assert abs(fit.entropy.value - own) < 4 * fit.entropy.standard_error < 0.1


@pytest.mark.slow
def test_chains_find_a_gaussian_in_five_dimensions(key):
    variances = jnp.array([0.5, 1.0, 1.5, 2.0, 3.0])
    features = lambda x: jnp.concatenate([x, x**2])
    means = jnp.concatenate([jnp.ones(5), variances + 1])
    start = jnp.concatenate([jnp.zeros(5), -0.5 * jnp.ones(5)])
    fit = fit_maximum_entropy(features, means, tw.Real(5), start=start, key=key)
    np.testing.assert_allclose(fit.natural[5:], -0.5 / variances, rtol=0.1)
    np.testing.assert_allclose(fit.natural[:5], 1 / variances, rtol=0.1, atol=0.03)
    expected = 0.5 * float(jnp.sum(jnp.log(2 * jnp.pi * jnp.e * variances)))
    assert abs(fit.entropy.value + fit.gap.value - expected) < 0.1


@pytest.mark.slow
def test_chains_keep_the_bounds_of_an_interval(key):
    """Independent coordinates on a cube of five dimensions: truncated exponentials."""
    fit = fit_maximum_entropy(lambda x: x, 0.4 * np.ones(5), tw.Interval(0.0, 1.0, 5), updates=200, key=key)
    one = fit_maximum_entropy(lambda x: x, 0.4, tw.Interval(0.0, 1.0))
    np.testing.assert_allclose(fit.natural, jnp.full(5, one.natural[0]), atol=0.15)
    assert abs(fit.entropy.value - 5 * one.entropy.value) < max(4 * fit.entropy.standard_error, 0.02)


def test_features_that_depend_on_each_other_are_no_problem():
    fit = fit_maximum_entropy(lambda x: jnp.stack([x[0], 2 * x[0], 0 * x[0] + 1]), [0.3, 0.6, 1.0], tw.Binary(2))
    assert fit.means.tolist() == pytest.approx([0.3, 0.6, 1.0])


@pytest.mark.slow
def test_the_energy_is_an_energy_like_any_other(key):
    fit = fit_maximum_entropy(pairwise, tw.exact.expectation(spins(), pairwise), tw.Spin(4))
    verdict = tw.check_sampler(tw.samplers.GibbsWithGradients(), fit.energy, key=key)
    assert verdict.passed
    assert fit.energy.statistics(jnp.ones(4, int)).shape == (10,)


@pytest.fixture
def unchecked():
    """Types as a user has them, without the checker of the tests, which would refuse bad input before us."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


FACES = tw.Categorical((), k=6)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fit_maximum_entropy(lambda x: x + 1.0, 7, FACES), "expected a mean between 1 and 6 .* got 7"),
        (lambda: fit_maximum_entropy(lambda x: x + 1.0, 6, FACES), "expected a mean between 1 and 6 .* got 6"),
        (
            lambda: fit_maximum_entropy(lambda x: jnp.stack([x[0], x[1], x[0] * x[1]]), [0.5, 0.5, 0.6], tw.Binary(2)),
            "beyond the edge of the possible ones",
        ),
        (
            lambda: fit_maximum_entropy(lambda x: jnp.stack([x[0], 2 * x[0]]), [0.5, 0.6], tw.Binary(2)),
            "beyond the edge of the possible ones",
        ),
        (
            lambda: fit_maximum_entropy(lambda x: jnp.stack([x, x**2]), [2.0, 3.0], tw.Real(())),
            r"between \[-10.0\] and \[10.0\] has, got means at or beyond the edge",
        ),
        (lambda: fit_maximum_entropy(lambda x: x, 2.0, tw.Real(())), "expected features that confine"),
        (lambda: fit_maximum_entropy(lambda x: x, [1, 2], FACES), "expected one mean for each of the 1 features"),
        (lambda: fit_maximum_entropy(lambda x: x, jnp.nan, FACES), "expected means to be finite"),
        (lambda: jax.jit(lambda m: fit_maximum_entropy(lambda x: x, m, FACES).natural)(1.0), "got traced ones"),
        (lambda: fit_maximum_entropy(3, 1.0, FACES), "expected a function of one point as features"),
        (lambda: fit_maximum_entropy(lambda x: jnp.ones((2, 2)), 1.0, FACES), r"expected features of shape \(k,\)"),
        (lambda: fit_maximum_entropy(lambda x: 1.0 / x, 0.5, FACES), "expected finite features, got inf"),
        (lambda: fit_maximum_entropy(lambda x: x, 1.0, "dice"), "expected a space"),
        (lambda: fit_maximum_entropy(lambda x: x, 1.0, FACES, method="guess"), "expected method to be one of"),
        (lambda: fit_maximum_entropy(lambda x: x, 1.0, FACES, method="quadrature"), "for quadrature, got"),
        (lambda: fit_maximum_entropy(lambda x: x, 1.0, tw.Real(()), method="enumeration"), "expected a finite space"),
        (lambda: fit_maximum_entropy(lambda x: x, 1.0, FACES, bounds=(0, 1)), "expected no bounds"),
        (lambda: fit_maximum_entropy(lambda x: x, 1.0, FACES, start=[0.0]), "expected no start and no kernel"),
        (lambda: fit_maximum_entropy(jnp.sum, 1.0, tw.Spin(30)), "expected a key for chains"),
        (lambda: fit_maximum_entropy(jnp.sum, 1.0, tw.Real(4), key=jax.random.key(0)), "expected a start for chains"),
        (lambda: fit_maximum_entropy(jnp.sum, 1.0, tw.Simplex(5), key=jax.random.key(0)), "for chains, got Simplex"),
        (lambda: tw.energies.MaximumEntropy(lambda x: x, [1.0, 2.0], FACES), "expected one natural parameter for"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(unchecked, make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.slow
def test_chains_say_when_they_do_not_reach_the_means(key):
    with pytest.raises(ValueError, match=r"expected chains that reach the mean 1\.5 of feature 0"):
        fit_maximum_entropy(lambda x: jnp.mean(x), 1.5, tw.Spin(30), chains=64, updates=40, steps=5, key=key)
