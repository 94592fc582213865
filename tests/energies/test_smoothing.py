"""Energies under noise: the closed form of ``x + σε`` against the convolution done by quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw

SMOOTH = {
    "Gaussian": tw.energies.Gaussian(jnp.array([1.0, -0.5]), jnp.array([[1.5, 0.4], [0.4, 0.8]])),
    "diagonal Gaussian": tw.energies.Gaussian(jnp.array([1.0, -0.5]), jnp.array([1.5, 0.8])),
    "GaussianMixture": tw.energies.GaussianMixture(
        jnp.array([2.0, 1.0]), jnp.array([[-1.0, 0.0], [1.5, 0.5]]), jnp.array([0.3, 0.6])
    ),
    "Ring": tw.energies.Ring(2.0, 0.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMOOTH)
def test_smoothing_is_convolution_with_a_gaussian(name):
    energy, sigma = SMOOTH[name], 0.7
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    shifts = jnp.asarray(np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2), float)
    masses = jnp.asarray(np.outer(weights, weights).ravel() / weights.sum() ** 2, float)
    points = jnp.array([[0.0, 0.1], [1.0, -2.0], [-2.2, 0.3]])
    convolved = jax.vmap(lambda x: jnp.sum(masses * jnp.exp(jax.vmap(energy.log_prob)(x - sigma * shifts))))(points)
    blurred = energy.smoothed(jnp.asarray(sigma))
    np.testing.assert_allclose(jnp.exp(jax.vmap(blurred.log_prob)(points)), convolved, rtol=2e-4)
    conditional = tw.energies.smoothed(energy)
    np.testing.assert_allclose(jax.vmap(lambda x: conditional(x, sigma))(points), jax.vmap(blurred)(points), rtol=1e-6)


def test_the_score_of_a_ring_is_finite_at_its_centre():
    np.testing.assert_allclose(tw.score(tw.energies.Ring(), jnp.zeros(2)), 0.0, atol=1e-3)
