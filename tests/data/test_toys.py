"""Each toy without blur lies exactly on its curve; with blur its law is compared with the closed form.

Statistical tests allow 4.5 standard errors or a p-value of 1e-5, at fixed seeds: a false alarm on one run in 1e5.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

from thalweg.data import (
    TOYS,
    checkerboard,
    checkerboard_log_prob,
    eight_gaussians,
    eight_gaussians_energy,
    pinwheel,
    rings,
    skewed_mixture_energy,
    spirals,
    swiss_roll,
    two_moons,
)

N = 20_000
KEY = jax.random.key(3)
RARE = 1e-5


def assert_mean(values, expected):
    values = np.asarray(values, np.float64)
    error = values.std(axis=0) / np.sqrt(len(values))
    np.testing.assert_array_less(np.abs(values.mean(axis=0) - expected), 4.5 * error)


def assert_uniform_counts(which, size):
    assert scipy.stats.chisquare(np.bincount(np.asarray(which), minlength=size)).pvalue > RARE


def polar(x):
    x = np.asarray(x, np.float64)
    return np.hypot(x[:, 0], x[:, 1]), np.arctan2(x[:, 1], x[:, 0])


@pytest.mark.parametrize("name", TOYS)
def test_contract(name):
    toy = TOYS[name]
    x = toy(KEY, 7)
    assert x.shape == (7, 2) and x.dtype == jnp.float32
    np.testing.assert_array_equal(x, toy(KEY, 7))
    assert not np.array_equal(x, toy(jax.random.key(4), 7))
    np.testing.assert_allclose(jax.jit(toy, static_argnums=1)(KEY, 7), x, rtol=1e-5, atol=1e-5)
    for n in (0, -1):
        with pytest.raises(ValueError, match=f"expected n to be a whole number >= 1, got {n}"):
            toy(KEY, n)


def test_two_moons():
    x = np.asarray(two_moons(KEY, N, sigma=0.0))
    upper = np.abs(np.hypot(x[:, 0], x[:, 1]) - 1) < 1e-5
    lower = np.abs(np.hypot(x[:, 0] - 1, x[:, 1] - 0.5) - 1) < 1e-5
    assert (upper | lower).all()
    assert (x[upper & ~lower, 1] >= -1e-6).all() and (x[lower & ~upper, 1] <= 0.5 + 1e-6).all()
    assert scipy.stats.binomtest(int((upper & ~lower).sum()), N).pvalue > RARE
    x = np.asarray(two_moons(KEY, N, sigma=0.3))
    assert_mean(x, [0.5, 0.25])
    # E x₁² = ½·½ + ½·(1 + ½) + σ², E x₂² = ½·½ + ½·(¼ - 2/π + ½) + σ²
    assert_mean(x**2, [1 + 0.09, 0.625 - 1 / np.pi + 0.09])


def test_rings_follow_the_bessel_density():
    radius, angle = polar(rings(KEY, N, radii=(1.0, 2.5), sigma=0.0))
    outer = np.abs(radius - 2.5) < 1e-5
    assert (outer | (np.abs(radius - 1.0) < 1e-5)).all()
    assert scipy.stats.binomtest(int(outer.sum()), N).pvalue > RARE
    assert scipy.stats.kstest(angle, scipy.stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > RARE

    radii, sigma = np.array([1.0, 2.5]), 0.4
    radius, _ = polar(rings(KEY, N, radii=tuple(radii), sigma=sigma))
    grid = np.linspace(0, 6, 6001)[:, None]
    # p(x) of the docstring times 2πr; i0e carries the factor exp(-rR/σ²)
    density = (
        grid / sigma**2 * np.exp(-((grid - radii) ** 2) / (2 * sigma**2)) * scipy.special.i0e(grid * radii / sigma**2)
    )
    cumulative = scipy.integrate.cumulative_trapezoid(density.mean(axis=1), grid[:, 0], initial=0)
    np.testing.assert_allclose(cumulative[-1], 1, atol=1e-5)
    assert scipy.stats.kstest(radius, lambda r: np.interp(r, grid[:, 0], cumulative)).pvalue > RARE


def test_pinwheel():
    radius, angle = polar(pinwheel(KEY, N, arms=3, radial_sigma=0.0, tangential_sigma=0.0, rate=0.5, scale=2.0))
    np.testing.assert_allclose(radius, 2.0, rtol=1e-5)
    arm = (angle - 0.5 * np.e) / (2 * np.pi / 3)
    np.testing.assert_allclose(arm, np.round(arm), atol=1e-5)
    assert_uniform_counts(np.round(arm).astype(int) % 3, 3)
    x = np.asarray(pinwheel(KEY, N, radial_sigma=0.3, tangential_sigma=0.2, scale=1.5))
    assert_mean((x**2).sum(axis=1), 1.5**2 * (1 + 0.3**2 + 0.2**2))
    # with no turning the first arm lies along the first axis: radial spread there, tangential across
    x = np.asarray(pinwheel(KEY, N, arms=1, radial_sigma=0.3, tangential_sigma=0.2, rate=0.0, scale=1.0))
    assert_mean(x, [1.0, 0.0])
    assert_mean((x - [1.0, 0.0]) ** 2, [0.09, 0.04])


@pytest.mark.parametrize(("squares", "half_width", "dark"), [(4, 4.0, 8), (3, 1.5, 5)])
def test_checkerboard_density_is_exact(squares, half_width, dark):
    log_prob = jax.jit(jax.vmap(lambda x: checkerboard_log_prob(x, squares, half_width)))
    x = checkerboard(KEY, N, squares, half_width)
    side = 2 * half_width / squares
    np.testing.assert_allclose(log_prob(x), -np.log(dark * side**2), rtol=1e-6)
    cells = np.floor((np.asarray(x) + half_width) / side).astype(int)
    _, which = np.unique(cells, axis=0, return_inverse=True)
    assert which.max() == dark - 1
    assert_uniform_counts(which, dark)
    assert scipy.stats.kstest((np.asarray(x)[:, 0] / side) % 1, "uniform").pvalue > RARE
    # midpoint sum over a board with a margin: exact, since the density is constant in every cell of the grid
    middle = (np.arange(8 * squares) + 0.5) / 4 * side - 2 * half_width
    grid = np.stack(np.meshgrid(middle, middle), axis=-1).reshape(-1, 2)
    np.testing.assert_allclose(np.exp(log_prob(jnp.asarray(grid))).sum() * (side / 4) ** 2, 1, rtol=1e-5)


def test_checkerboard_needs_light_squares():
    with pytest.raises(ValueError, match=r"expected squares to be a whole number >= 2, got 1"):
        checkerboard(KEY, 5, squares=1)


def test_eight_gaussians_modes():
    weights = np.array([8, 1, 2, 3, 0, 4, 1, 1])
    x = np.asarray(eight_gaussians(KEY, N, weights=weights, radius=5.0, sigma=0.3), np.float64)
    means = 5 * np.stack([np.cos(np.arange(8) * np.pi / 4), np.sin(np.arange(8) * np.pi / 4)], axis=1)
    mode = np.argmin(((x[:, None] - means) ** 2).sum(-1), axis=1)
    counts = np.bincount(mode, minlength=8)
    assert counts[4] == 0
    seen = weights > 0
    assert scipy.stats.chisquare(counts[seen], N * weights[seen] / weights.sum()).pvalue > RARE
    assert_mean(x - means[mode], [0.0, 0.0])
    assert_mean((x - means[mode]) ** 2, [0.09, 0.09])


@pytest.mark.parametrize("weights", [[1] * 7, [1] * 7 + [-1], [0] * 8, [1] * 7 + [np.nan]])
def test_eight_gaussians_refuses_bad_weights(weights):
    for function in (lambda: eight_gaussians(KEY, 5, weights=weights), lambda: eight_gaussians_energy(weights)):
        with pytest.raises(ValueError, match=r"weights: expected eight non-negative numbers, not all zero"):
            function()


def test_eight_gaussians_draws_follow_their_density():
    weights = [8, 1, 2, 3, 0, 4, 1, 1]
    density = eight_gaussians_energy(weights, radius=2.0, sigma=0.7)
    drawn = np.asarray(jax.vmap(density)(eight_gaussians(KEY, N, weights, radius=2.0, sigma=0.7)))
    exact = np.asarray(jax.vmap(density)(density.sample(jax.random.key(9), (N,))))
    assert scipy.stats.ks_2samp(drawn, exact).pvalue > RARE
    x = np.asarray(eight_gaussians(KEY, N, weights, radius=2.0, sigma=0.7))
    means = 2 * np.stack([np.cos(np.arange(8) * np.pi / 4), np.sin(np.arange(8) * np.pi / 4)], axis=1)
    assert_mean(x, np.array(weights) @ means / sum(weights))


def test_skewed_mixture_is_a_normalised_asymmetric_density():
    mixture = skewed_mixture_energy()
    side = np.linspace(-8, 8, 401)
    grid = jnp.asarray(np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2))
    density = np.exp(-np.asarray(jax.vmap(mixture)(grid), np.float64)).reshape(401, 401)
    total = density.sum() * (side[1] - side[0]) ** 2
    np.testing.assert_allclose(total, np.exp(mixture.log_z), rtol=1e-4)
    density /= density.sum()
    for flipped in (density[::-1], density[:, ::-1], density[::-1, ::-1], density.T):
        assert 0.5 * np.abs(density - flipped).sum() > 0.5
    assert_mean(mixture.sample(KEY, (N,)), [0.6 * -1.5 + 0.3 * 2.0 + 0.1 * 0.5, 0.6 * 0.5 + 0.3 * 1.5 + 0.1 * -2.5])


def test_spirals():
    radius, angle = polar(spirals(KEY, N, arms=3, turns=2.0, sigma=0.0))
    arm = (angle / (2 * np.pi) - 2.0 * radius / 4) * 3
    np.testing.assert_allclose(arm, np.round(arm), atol=1e-3)
    assert_uniform_counts(np.round(arm).astype(int) % 3, 3)
    assert scipy.stats.kstest((radius / 4) ** 2, "uniform").pvalue > RARE
    near = np.asarray(spirals(KEY, N, sigma=0.2)) - np.asarray(spirals(KEY, N, sigma=0.0))
    assert_mean(near**2, [0.04, 0.04])


def test_swiss_roll():
    radius, angle = polar(swiss_roll(KEY, N, sigma=0.0))
    turn = (4 * radius - angle) / (2 * np.pi)
    np.testing.assert_allclose(turn, np.round(turn), atol=1e-4)
    assert scipy.stats.kstest(4 * radius, scipy.stats.uniform(1.5 * np.pi, 3 * np.pi).cdf).pvalue > RARE
    near = np.asarray(swiss_roll(KEY, N, sigma=0.2)) - np.asarray(swiss_roll(KEY, N, sigma=0.0))
    assert_mean(near**2, [0.04, 0.04])


@pytest.mark.parametrize("name", ["eight_gaussians", "skewed_mixture"])
def test_old_names_of_energies_warn(name):
    import thalweg.data as data

    old = {"eight_gaussians": "eight_gaussians_density"}.get(name, name)
    with pytest.warns(DeprecationWarning, match=f"thalweg.data.{old} is now called {name}_energy"):
        energy = getattr(data, old)()
    np.testing.assert_array_equal(energy.means, getattr(data, f"{name}_energy")().means)
