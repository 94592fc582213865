"""The leapfrog: it can be run backwards, and its energy error is of second order; the trees of NUTS."""

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.mcmc.integrators import IntegratorState, velocity_verlet
from blackjax.mcmc.metrics import default_metric

import thalweg as tw
from thalweg.samplers.hamiltonian import leapfrog
from thalweg.samplers.states import GradientState, gradient_state

BANANA = tw.energies.Banana(0.3)
MASSES = {
    "one": jnp.ones(2),
    "diagonal": jnp.array([0.5, 2.0]),
    "dense": jnp.array([[1.0, 0.4], [0.4, 0.5]]),
}


def state_at(x) -> GradientState:
    """The state of one chain at one point."""
    return jax.tree.map(lambda leaf: leaf[0], gradient_state(BANANA, x[None], None))


@jax.jit
def there_and_back(x, momentum, inverse_mass, steps):
    start = state_at(x)
    end, last = leapfrog(BANANA, start, momentum, jnp.asarray(0.15), inverse_mass, steps)
    back, first = leapfrog(BANANA, end, -last, jnp.asarray(0.15), inverse_mass, steps)
    return start, end, back, first


@pytest.mark.parametrize("mass", MASSES)
def test_a_trajectory_leads_back_to_its_start_when_the_momentum_is_turned_round(key, mass):
    x, momentum = jax.random.normal(key, (2, 50, 2))
    run = jax.vmap(there_and_back, (0, 0, None, None))
    start, end, back, first = run(x, momentum, MASSES[mass], 20)
    assert float(jnp.median(jnp.linalg.norm(end.position - x, axis=1))) > 0.5  # it went somewhere
    for name in ("position", "energy", "gradient"):
        np.testing.assert_allclose(getattr(back, name), getattr(start, name), rtol=2e-3, atol=2e-3)
    # to rounding: single precision, on trajectories that pull apart by a hundred in 20 steps at worst
    assert float(jnp.median(jnp.linalg.norm(back.position - x, axis=1))) < 1e-5
    np.testing.assert_allclose(first, -momentum, rtol=2e-3, atol=2e-3)


def test_the_energy_and_the_gradient_that_are_carried_are_those_of_the_place(key):
    _, end, _, _ = there_and_back(jnp.array([0.3, -0.5]), jnp.array([1.0, 0.4]), MASSES["dense"], 7)
    here = state_at(end.position)
    np.testing.assert_allclose(end.energy, here.energy, rtol=1e-5)
    np.testing.assert_allclose(end.gradient, here.gradient, rtol=1e-4, atol=1e-5)


def test_the_energy_error_has_slope_two_along_a_trajectory(key):
    """``|ΔH| ∝ ε²`` at a fixed time, for every mass."""
    x, momentum = jax.random.normal(key, (2, 200, 2))
    sizes, time = np.array([0.2, 0.1, 0.05]), 1.0

    @jax.jit
    def error(x, momentum, inverse_mass, size, steps):
        def one(x, v):
            start = state_at(x)
            end, last = leapfrog(BANANA, start, v, size, inverse_mass, steps)
            kinetic = lambda v: 0.5 * v @ (inverse_mass @ v)
            return end.energy + kinetic(last) - start.energy - kinetic(v)

        return jnp.mean(jnp.abs(jax.vmap(one)(x, momentum)))

    errors = [error(x, momentum, MASSES["dense"], size, round(time / size)) for size in sizes]
    assert abs(np.polyfit(np.log(sizes), np.log(np.array(errors)), 1)[0] - 2) < 0.1


def test_leapfrog_energy_error_has_slope_two(key):
    """The acceptance of HMC on a Gaussian falls as the energy error: 1 - a ∝ ε⁴ in the mean, so |ΔH| ∝ ε²."""
    target = tw.energies.Gaussian(jnp.zeros(2), jnp.array([[1.0, 0.4], [0.4, 0.7]]))
    start = target.sample(key, (20_000,))
    sizes = np.array([0.4, 0.2, 0.1])
    rejected = []
    for size in sizes:
        kernel = tw.samplers.HMC(size, steps=round(1.2 / size))
        _, info = jax.jit(lambda x, kernel=kernel: kernel.step(key, target, kernel.init(key, target, x)))(start)
        rejected.append(1 - float(jnp.mean(info.acceptance)))
    # the mean of max(0, 1 - exp(-ΔH)) is of the first order in |ΔH|
    assert abs(np.polyfit(np.log(sizes), np.log(rejected), 1)[0] - 2) < 0.2


@pytest.mark.parametrize("mass", MASSES)
def test_the_leapfrog_is_that_of_blackjax(mass):
    metric = default_metric(MASSES[mass])
    theirs = velocity_verlet(lambda x: -BANANA(x), metric.kinetic_energy)
    x, momentum = jnp.array([0.3, -0.5]), jnp.array([1.0, 0.4])
    here = state_at(x)
    end = IntegratorState(x, momentum, -here.energy, -here.gradient)
    for _ in range(7):
        end = theirs(end, 0.15)
    ours, last = leapfrog(BANANA, here, momentum, jnp.asarray(0.15), MASSES[mass], 7)
    np.testing.assert_allclose(ours.position, end.position, rtol=1e-5)
    np.testing.assert_allclose(last, end.momentum, rtol=1e-5)
    np.testing.assert_allclose(ours.energy, -end.logdensity, rtol=1e-5)


@pytest.mark.slow
def test_the_trees_of_nuts_are_those_of_blackjax(key):
    """One draw from each of many exact starts: as long a way, as well accepted, as often ended by a divergence."""
    energy, size, mass = BANANA, 0.9, jnp.array([1.0, 0.4])
    key_start, key_ours, key_theirs = jax.random.split(key, 3)
    x = energy.sample(key_start, (20_000,))
    kernel = tw.samplers.NUTS(size, mass_matrix=mass, max_doublings=5)
    new, info = eqx.filter_jit(kernel.step)(key_ours, energy, kernel.init(key, energy, x))
    theirs = blackjax.nuts(lambda x: -energy(x), size, 1 / mass, max_num_doublings=5)
    step = jax.jit(jax.vmap(lambda key, x: theirs.step(key, theirs.init(x))))
    other, their_info = step(jax.random.split(key_theirs, len(x)), x)
    pairs = {
        "way": (jnp.sum((new.x - x) ** 2, axis=1), jnp.sum((other.position - x) ** 2, axis=1)),
        "turned to the other side": (new.x[:, 0] * x[:, 0] < 0, other.position[:, 0] * x[:, 0] < 0),
        "acceptance": (info.acceptance, their_info.acceptance_rate),
    }
    for name, (ours, others) in pairs.items():
        ours, others = np.asarray(ours, float), np.asarray(others, float)
        error = np.sqrt((ours.var() + others.var()) / len(x))
        assert abs(ours.mean() - others.mean()) < 5 * error, name
        assert error < 0.03 * others.mean(), name
