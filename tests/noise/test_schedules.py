"""Ladders of noise levels against their definitions."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

import thalweg as tw
from thalweg.noise import annealed_step, geometric_ladder, ladder_from_data


def test_a_geometric_ladder_has_its_ends_and_one_ratio():
    ladder = np.asarray(geometric_ladder(20.0, 0.1, 12), float)
    assert ladder.shape == (12,)
    assert ladder[[0, -1]] == pytest.approx([20.0, 0.1])
    assert ladder[:-1] / ladder[1:] == pytest.approx((20.0 / 0.1) ** (1 / 11), rel=1e-5)


def test_the_first_level_is_the_largest_distance_between_two_points():
    data = np.random.default_rng(0).normal(size=(300, 5)) * np.arange(1, 6)
    apart = np.linalg.norm(data[:, None] - data[None], axis=-1)
    assert float(ladder_from_data(data)[0]) == pytest.approx(apart.max(), rel=1e-4)


@pytest.mark.parametrize("d", [64, 784, 3072])
def test_shells_of_neighbouring_levels_overlap_by_half(d):
    """‖x‖ of N(0, σ²I) is N(σ√d, σ²/2) near enough; Song and Ermon (2020) ask that the mass of level i within three
    deviations of level i-1's shell, ``Φ(√2d(γ-1) + 3γ) - Φ(√2d(γ-1) - 3γ)``, be about a half."""
    data = np.random.default_rng(0).normal(size=(50, d))
    ladder = np.asarray(ladder_from_data(data), float)
    ratio = ladder[0] / ladder[1]
    far = math.sqrt(2 * d) * (ratio - 1)
    assert ndtr(far + 3 * ratio) - ndtr(far - 3 * ratio) == pytest.approx(0.5, abs=0.05)
    # and the rule is not met by chance: a ratio half as far from 1 overlaps almost wholly
    near = 1 + (ratio - 1) / 2
    far = math.sqrt(2 * d) * (near - 1)
    assert ndtr(far + 3 * near) - ndtr(far - 3 * near) > 0.9


@pytest.mark.parametrize("d", [1, 2, 4])
def test_no_ratio_is_above_one_and_a_half_in_few_dimensions(d):
    ladder = np.asarray(ladder_from_data(np.random.default_rng(0).normal(size=(100, d))), float)
    assert np.all(ladder[:-1] / ladder[1:] < 1.5 + 1e-4)


def test_the_last_level_is_a_hundredth_of_the_data_or_as_given():
    data = np.random.default_rng(0).normal(size=(500, 3)) * np.array([1.0, 2.0, 4.0])
    assert float(ladder_from_data(data)[-1]) == pytest.approx(0.01 * data[:, 2].std(), rel=1e-4)
    assert float(ladder_from_data(data, smallest=0.5)[-1]) == pytest.approx(0.5)


def test_images_need_no_flattening():
    images = np.random.default_rng(0).normal(size=(40, 8, 8, 1))
    assert ladder_from_data(images).tolist() == ladder_from_data(images.reshape(40, 64)).tolist()


def spread_error(sigmas, steps, epsilon, deviation):
    """Of the final variance, for Gaussian data, by doing every step."""
    variance = deviation**2 + sigmas[0] ** 2
    for sigma in sigmas:
        size = epsilon * (sigma / sigmas[-1]) ** 2
        for _ in range(steps):
            variance = (1 - size / (2 * (deviation**2 + sigma**2))) ** 2 * variance + size
    return abs(variance / (deviation**2 + sigmas[-1] ** 2) - 1)


@pytest.mark.parametrize(("levels", "steps"), [(10, 100), (40, 5), (4, 30)])
def test_the_annealed_step_is_the_best_for_the_worst_spread(levels, steps):
    sigmas = np.asarray(geometric_ladder(10.0, 0.1, levels), float)
    chosen = annealed_step(sigmas, steps)
    deviations = [0.0, *np.geomspace(0.1, 10.0, 12)]
    worst = {
        factor: max(spread_error(sigmas, steps, factor * chosen, c) for c in deviations) for factor in (0.7, 1.0, 1.4)
    }
    assert worst[1.0] < worst[0.7]
    assert worst[1.0] < worst[1.4]


def test_more_steps_take_smaller_ones_and_leave_a_smaller_error():
    sigmas = np.asarray(geometric_ladder(10.0, 0.1, 10), float)
    few, many = annealed_step(sigmas, 10), annealed_step(sigmas, 1000)
    assert many < few
    assert spread_error(sigmas, 1000, many, 1.0) < 0.5 * spread_error(sigmas, 10, few, 1.0)


def test_a_step_scales_with_the_variance_of_the_last_level():
    sigmas = np.asarray(geometric_ladder(10.0, 0.1, 10), float)
    assert annealed_step(3 * sigmas, 50) == pytest.approx(9 * annealed_step(sigmas, 50))
    assert annealed_step([1.0], 50) > 1e-3


@pytest.mark.parametrize("deviation", [0.0, 0.3, 3.0])
def test_annealed_chains_end_with_the_right_spread_by_default(key, deviation):
    target = tw.energies.Gaussian(jnp.zeros(1), jnp.array([deviation**2 + 1e-6]))
    sigmas = geometric_ladder(8.0, 0.1, 8)
    kernel = tw.samplers.AnnealedLangevin(sigmas, steps=100)
    noisy = tw.energies.smoothed(target)
    init = 8.0 * jax.random.normal(key, (4000, 1))
    chains = tw.sample(noisy, kernel, init, key=key, draws=1, burn_in=kernel.length - 1)
    exact = math.sqrt(deviation**2 + 0.1**2)
    # the rule allows 3.5 % here; four standard errors of a deviation from 4000 chains are 4.5 %
    assert float(chains.draws.std()) == pytest.approx(exact, rel=0.08)


def test_a_last_denoising_step_takes_the_noise_away(key):
    point = tw.energies.Gaussian(jnp.ones(2), jnp.full(2, 1e-8))
    kernel = tw.samplers.AnnealedLangevin(geometric_ladder(4.0, 0.1, 6), steps=50, denoise=True)
    init = 4.0 * jax.random.normal(key, (200, 2))
    chains = tw.sample(tw.energies.smoothed(point), kernel, init, key=key, draws=1, burn_in=kernel.length - 1)
    assert float(jnp.abs(chains.draws - 1).max()) < 1e-3


def test_annealed_chains_weigh_two_modes_right_by_default(key):
    weights, means = jnp.array([0.8, 0.2]), jnp.array([[5.0, 5.0], [-5.0, -5.0]])
    noisy = tw.energies.smoothed(tw.energies.GaussianMixture(weights, means, 1.0))
    kernel = tw.samplers.AnnealedLangevin(geometric_ladder(15.0, 0.1, 9), steps=100, denoise=True)
    init = 15.0 * jax.random.normal(key, (3000, 2))
    chains = tw.sample(noisy, kernel, init, key=key, draws=1, burn_in=kernel.length - 1)
    # four standard errors are 0.03
    assert float((chains.draws[..., 0] > 0).mean()) == pytest.approx(0.8, abs=0.03)


def test_an_explicit_step_is_kept_and_a_traced_ladder_needs_one():
    assert float(tw.samplers.AnnealedLangevin([2.0, 1.0], epsilon=0.5).epsilon) == 0.5
    with pytest.raises(ValueError, match="expected epsilon where the noise levels are traced"):
        jax.jit(lambda sigmas: tw.samplers.AnnealedLangevin(sigmas).epsilon)(jnp.array([2.0, 1.0]))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: geometric_ladder(1.0, 2.0, 5), "expected 0 < smallest < largest, got 2.0 and 1.0"),
        (lambda: geometric_ladder(1.0, 0.0, 5), "expected smallest > 0"),
        (lambda: geometric_ladder(2.0, 1.0, 1), "expected levels to be a whole number >= 2, got 1"),
        (lambda: ladder_from_data(np.ones((5, 2))), "expected data that differ"),
        (lambda: ladder_from_data(np.eye(3), smallest=5.0), "expected smallest below the data's width"),
        (lambda: annealed_step([1.0, 2.0], 10), "expected falling noise levels"),
        (lambda: annealed_step([1.0, 0.0], 10), "expected falling noise levels"),
        (lambda: annealed_step([2.0, 1.0], 0), "expected steps to be a whole number >= 1"),
    ],
)
def test_bad_input_gets_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
