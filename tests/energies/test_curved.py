"""What only the curved targets have: the double well's Bessel functions and rejection sampler, and their refusals.

All else of theirs is tested with the other analytic targets, in `test_analytic.py`.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import thalweg as tw

DRAWS = 50_000
LIMIT = stats.norm.isf(1e-6 / 2)


def test_double_well_log_z_is_the_bessel_formula_and_so_is_its_derivative():
    def log_z(h):
        return np.log(np.pi / 2 * (special.ive(0.25, h / 2) + special.ive(-0.25, h / 2)))

    barriers = np.array([1e-3, 0.1, 2.0, 39.0, 1e3, 1e6])
    both = jax.jit(jax.vmap(jax.value_and_grad(lambda h: tw.energies.DoubleWell(h, dim=1).log_z)))
    values, slopes = both(jnp.asarray(barriers))
    np.testing.assert_allclose(values, log_z(barriers), atol=2e-6)
    step = 1e-4 * barriers
    np.testing.assert_allclose(slopes, (log_z(barriers + step) - log_z(barriers - step)) / (2 * step), rtol=1e-4)


@eqx.filter_jit
def draw(energy, key):
    return energy.sample(key, (DRAWS,)), energy.covariance


@pytest.mark.parametrize("barrier", [0.01, 200.0])
def test_the_double_well_is_sampled_exactly_at_any_barrier(key, barrier):
    points, covariance = draw(tw.energies.DoubleWell(barrier, dim=1), key)
    squares = np.asarray(points, float) ** 2
    z = (squares.mean() - float(covariance[0, 0])) / (squares.std() / math.sqrt(DRAWS))
    assert abs(z) < LIMIT


def test_a_barrier_gone_nan_gives_nan_and_no_endless_loop(key):
    energy = eqx.tree_at(lambda e: e.barrier, tw.energies.DoubleWell(dim=1), jnp.full((), jnp.nan))
    assert np.isnan(draw(energy, key)[0]).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda e: e.Banana(scale=0.0), "expected scale > 0, got 0.0"),
        (lambda e: e.DoubleWell(-1.0), "expected barrier > 0, got -1.0"),
        (lambda e: e.DoubleWell(dim=0), "expected dim to be a whole number >= 1, got 0"),
        (lambda e: e.Funnel(dim=1), "expected dim to be a whole number >= 2, got 1"),
        (lambda e: e.Funnel(scale=jnp.nan), "expected scale > 0, got nan"),
    ],
)
def test_impossible_targets_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make(tw.energies)
