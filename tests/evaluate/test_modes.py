"""Known modes: counts, weights with intervals, what lies outside, and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.evaluate import mode_coverage, mode_weights

CENTRES = jnp.array([[i, j] for i in range(5) for j in range(5)], float)
GRID = tw.energies.GaussianMixture(means=CENTRES, covariances=0.01)
ANGLES = 2 * np.pi * np.arange(8) / 8
EIGHT = np.stack([2 * np.cos(ANGLES), 2 * np.sin(ANGLES)], axis=1)


def test_a_sampler_that_misses_modes_is_counted(key):
    x = GRID.sample(key, (2000,))
    full = mode_coverage(GRID, x)
    assert full.covered == full.modes == 25 and full.share == 1.0 and full.missing == ()
    assert full.outside <= 8  # 0.1 % of 2000 is 2; a Poisson of 2 exceeds 8 with probability 2e-4
    assert full.counts.sum() + full.outside == full.samples == 2000
    nearest = np.argmin(np.linalg.norm(np.asarray(x)[:, None] - np.asarray(CENTRES), axis=-1), axis=1)
    part = mode_coverage(GRID, x[nearest != 7])
    assert part.missing == (7,) and part.covered == 24 and part.counts[7] == 0
    assert "24 of 25 modes covered" in str(part) and ">7<" in part._repr_html_()


def test_the_radius_holds_the_given_share_in_any_dimension(key):
    for d in (1, 2, 30):
        wide = tw.energies.GaussianMixture(means=jnp.zeros((1, d)), covariances=jnp.full((1, d), 4.0))
        x = wide.sample(jax.random.fold_in(key, d), (20_000,))
        # 0.1 % of 20 000 is 20, with deviation 4.5
        assert abs(mode_coverage(wide, x).outside - 20) <= 18
    assert mode_coverage(wide, jnp.full((4, 30), 2.0), radius=5.0).outside == 4  # √30 deviations away


def test_the_expected_coverage_is_that_of_independent_samples(key):
    weights = jnp.array([0.9, 0.05, 0.05])
    mixture = tw.energies.GaussianMixture(weights, jnp.array([[0.0], [10.0], [20.0]]))
    for least in (1, 2):
        found = [mode_coverage(mixture, x, least=least).covered for x in mixture.sample(key, (300, 20))]
        expected = mode_coverage(mixture, mixture.sample(key, (20,)), least=least).expected
        assert abs(np.mean(found) - expected) < 4 * np.std(found) / np.sqrt(300)


def test_weights_are_those_of_the_components_that_overlap(key):
    # nearest centres would give one half each of what lies between
    mixture = tw.energies.GaussianMixture(jnp.array([0.8, 0.2]), jnp.array([[0.0], [1.0]]))
    result = mode_weights(mixture, mixture.sample(key, (20_000,)))
    assert (result.low < result.true).all() and (result.true < result.high).all()
    assert result.weights.sum() == pytest.approx(1.0) and result.kl < 1e-3
    assert result.method == "mean responsibilities"


def test_intervals_cover_the_weights(key):
    # the eight intervals of 100 sets: a binomial of 800 and 0.95 (a little dependent) is above 730 with 1 - 1e-4
    mixture = tw.energies.GaussianMixture(jnp.arange(1.0, 9.0), EIGHT, 0.01)
    sets = [mode_weights(mixture, x) for x in mixture.sample(key, (100, 300))]
    covered = sum(((each.low < each.true) & (each.true < each.high)).sum() for each in sets)
    assert covered >= 730
    assert np.mean([each.high - each.low for each in sets]) < 0.1


def test_centres_and_classes_are_counted_alike():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 8, 500)
    x = EIGHT[labels] + 0.05 * rng.normal(size=(500, 2))
    far = np.concatenate([x, np.zeros((30, 2))])
    by_centre, by_class = mode_weights(EIGHT, far), mode_weights(8, labels)
    assert by_centre.outside == 30 and by_class.outside == 0 and by_centre.samples == 530
    assert np.array_equal(by_centre.weights, by_class.weights)
    assert np.array_equal(by_class.weights, np.bincount(labels, minlength=8) / 500)
    assert np.array_equal(mode_coverage(EIGHT, far).counts, np.bincount(labels, minlength=8))
    images = mode_weights(EIGHT.reshape(8, 2, 1), far.reshape(-1, 2, 1))
    assert np.array_equal(images.weights, by_centre.weights)
    assert mode_coverage(EIGHT, far, radius=5.0).outside == 0


def test_a_thousand_stacked_classes():
    labels = np.arange(500)
    result = mode_coverage(1000, labels)
    assert result.covered == 500 and result.expected == pytest.approx(1000 * (1 - 0.999**500))
    weights = mode_weights(1000, labels)
    assert weights.kl == pytest.approx(np.log(2))  # uniform over half of the classes
    assert (weights.low[500:] == 0).all() and (weights.high[500:] > 0.001).all()
    assert mode_weights(2, np.array([0, 0, 0, 1]), weights=[3.0, 1.0]).kl == pytest.approx(0.0)
    assert ", …;" in str(weights) and "Weights of modes" in weights._repr_html_()


def test_samples_outside_all_modes_have_no_weights():
    result = mode_weights(EIGHT, np.full((10, 2), 50.0))
    assert result.outside == 10 and np.isnan(result.weights).all()
    assert mode_coverage(EIGHT, np.full((10, 2), 50.0)).covered == 0


@pytest.mark.parametrize(
    ("words", "modes", "samples", "options"),
    [
        (r"expected samples of shape \(n, 2\), got \(5, 3\)", GRID, np.zeros((5, 3)), {}),
        (r"points of shapes \(3,\) and \(2,\)", EIGHT, np.zeros((5, 3)), {}),
        ("class numbers", 5, np.array([0, 5]), {}),
        ("class numbers", 5, np.array([0.5, 1.0]), {}),
        ("no radius with classes", 5, np.array([0, 1]), {"radius": 1.0}),
        ("expected radius > 0", GRID, np.zeros((5, 2)), {"radius": -1.0}),
        ("all different", np.zeros((2, 2)), np.zeros((5, 2)), {}),
        ("one weight for each of 25 modes", GRID, np.zeros((5, 2)), {"weights": [1.0, 2.0]}),
        ("the number of classes to be a whole number", 2.5, np.zeros((5, 2)), {}),
        ("at least one point in samples", GRID, np.zeros((0, 2)), {}),
    ],
)
@pytest.mark.parametrize("function", [mode_coverage, mode_weights])
def test_bad_input_is_one_sentence(function, words, modes, samples, options):
    with pytest.raises(ValueError, match=words) as problem:
        function(modes, samples, **options)
    assert "\n" not in str(problem.value)
