"""The energies of the posteriors against log densities written a second time, in float64 and in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.posteriors import densities, models


def middle(posterior: models.Posterior) -> dict[str, np.ndarray]:
    """The point whose quantities are the reference means."""
    means = {name: moments.mean for name, moments in posterior.reference.items()}
    vector = lambda name: np.array([mean for each, mean in means.items() if each.startswith(f"{name}[")])
    point = {}
    for name, shape in posterior.space.shape.items():
        if name in means:
            point[name] = np.array(means[name])
        elif shape and name in ("theta", "beta", "theta1", "theta2", "sigma"):
            point[name] = vector(name)
    if "mu1" in posterior.space.names:
        low, high = vector("mu")
        point |= {"mu1": np.array(low), "gap": np.array(high - low)}
    if "theta_standardised" in posterior.space.names:
        point["theta_standardised"] = (vector("theta") - means["mu"]) / means["tau"]
    if "f_standardised" in posterior.space.names:
        x = models.read("gp_pois_regr")["x"]
        covariance = densities.kernel(x, means["rho"], means["alpha"]) + 1e-10 * np.eye(len(x))
        point["f_standardised"] = np.linalg.solve(np.linalg.cholesky(covariance), vector("f"))
    return point


def near(posterior: models.Posterior, count: int) -> list[np.ndarray]:
    """Real coordinates in the posterior's bulk: steps from the middle that raise the energy by about a half."""
    generator = np.random.default_rng(0)
    z = np.asarray(posterior.space.to_real(jax.tree.map(jnp.asarray, middle(posterior))))
    gradient = jax.jit(jax.grad(posterior.energy_on_reals))
    # differences, as second derivatives of the longer energies take a minute to compile
    steps = 1e-4 * np.eye(len(z))
    curvature = np.stack([(gradient(jnp.asarray(z + step)) - gradient(jnp.asarray(z - step))) / 2e-4 for step in steps])
    values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
    root = vectors / np.sqrt(np.maximum(np.abs(values), 1e-3))
    return [z + root @ generator.standard_normal(len(z)) for _ in range(count)]


def as_numpy(point):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), point)


@pytest.mark.parametrize("name", models.NAMES)
def test_energies_are_the_log_densities(name):
    posterior, density = models.posterior(name), getattr(densities, name)
    with jax.enable_x64(True):
        energy = jax.jit(posterior.energy)
        points = [posterior.space.from_real(jnp.asarray(z)) for z in [*posterior.starts(1, 6), *near(posterior, 6)]]
        ours = np.array([float(energy(point)) for point in points])
    theirs = np.array([-density(as_numpy(point)) for point in points])
    # constants are left out of ours, so differences are compared, from the last point in the bulk
    ours, theirs = ours - ours[-1], theirs - theirs[-1]
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    assert np.ptp(theirs) > 1


@pytest.mark.parametrize("name", models.NAMES)
def test_float32_suffices(name):
    posterior = models.posterior(name)
    with jax.enable_x64(True):
        z = np.stack([*near(posterior, 8)])
        spread = np.std(z, axis=0)
        evaluate = jax.jit(jax.vmap(jax.value_and_grad(posterior.energy_on_reals)))
        energies, gradients = evaluate(jnp.asarray(z, jnp.float32))
        exact = evaluate(jnp.asarray(z, jnp.float32).astype(jnp.float64))
    assert gradients.dtype == jnp.float32
    # a leapfrog feels the gradient in units of the coordinate's deviation, an accept step the difference of energies
    errors = np.abs(np.asarray(gradients, np.float64) - np.asarray(exact[1])) * spread
    sizes = np.abs(np.asarray(exact[1])) * spread
    assert np.max(errors) < 0.01 * max(1.0, float(np.max(sizes)))
    differences = np.asarray(energies, np.float64) - np.asarray(exact[0])
    assert np.ptp(differences) < 0.01


@pytest.mark.parametrize("name", models.NAMES)
def test_summaries_are_named_as_the_reference(name):
    posterior = models.posterior(name)
    with jax.enable_x64(True):
        point = jax.tree.map(jnp.asarray, middle(posterior))
        values = jax.jit(posterior.summary)(point)
        assert set(values) == set(posterior.reference)
        for each, moments in posterior.reference.items():
            np.testing.assert_allclose(float(values[each]), moments.mean, rtol=1e-5, atol=1e-6 * moments.sd)
        assert bool(posterior.space.contains(point))


def test_the_factor_on_a_grid_is_cholesky_s():
    x = models.read("gp_pois_regr")["x"]
    factor = jax.jit(lambda rho: models.grid_factor(rho, jnp.float32(2.0), 2.0, len(x), 1e-10))
    for rho in (0.5, 3.0, 5.7, 9.0):
        exact = np.linalg.cholesky(densities.kernel(x, rho, 2.0) + 1e-10 * np.eye(len(x)))
        ours = factor(jnp.float32(rho))
        assert ours.dtype == jnp.float32
        # the last rows are shares of a variance that has nearly been used up
        np.testing.assert_allclose(ours, exact, rtol=2e-3, atol=2e-6)


def test_a_name_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="expected one of eight_schools_centered"):
        models.posterior("nine_schools")
