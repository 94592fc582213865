"""A population that follows a changing energy: log Z against closed forms and enumeration, with honest intervals."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.evaluate import trajectory
from thalweg.spaces import on_reals

KEY = jax.random.key(0)
GROUPS, SIZE = 16, 32


class Quadratic(tw.core.Energy):
    """``½ (x - m)ᵀ A (x - m)``, whose log Z the library is not told."""

    precision: jax.Array
    mean: jax.Array
    space = tw.Real(6)

    def __call__(self, x):
        return 0.5 * (x - self.mean) @ self.precision @ (x - self.mean)

    def exact(self):
        return 3 * math.log(2 * math.pi) - 0.5 * np.linalg.slogdet(np.asarray(self.precision, float))[1]


def quadratics():
    unit, ones = np.diag(np.linspace(1, 3, 6)), np.ones((6, 6))
    return [Quadratic(jnp.asarray(unit * (1 + t) + 0.5 * t * ones, float), jnp.full(6, 0.7 * t)) for t in range(3)]


def carry(energies, space, points, key, moves=3, groups=GROUPS, size=SIZE):
    """The group estimates along a list of energies, ``(energies, groups)``."""
    base, coordinates = trajectory.fit_base(energies[0], space, points)
    kernel, _ = trajectory.default_kernel(base)
    first, *keys = jax.random.split(key, len(energies) + 1)
    population, last, found = trajectory.begin(kernel, base, first, groups, size), base, []
    for energy, own in zip(energies, keys, strict=True):
        energy = on_reals(energy, coordinates)
        path = trajectory.make_path(base, last, energy)
        population, reached = trajectory.follow(kernel, path, own, population, moves)
        assert reached
        found.append(population.group_log_z())
        last = energy
    return np.array(found)


@pytest.mark.slow
def test_log_z_is_carried_with_an_interval_that_covers():
    energies, points = quadratics(), jax.random.normal(KEY, (100, 6))
    truth = np.array([energy.exact() for energy in energies])
    found = [carry(energies, tw.Real(6), points, key) for key in jax.random.split(KEY, 40)]
    estimates = [[trajectory.join_groups(groups, 0.9) for groups in run] for run in found]
    covered = np.mean([[e.low < z < e.high for e, z in zip(run, truth, strict=True)] for run in estimates], axis=0)
    # the chance that 40 intervals of coverage 0.9 cover fewer than 30 times is 3e-4
    assert np.all(covered >= 0.75)
    values = np.array([[e.value for e in run] for run in estimates])
    error = values.std(axis=0, ddof=1)
    assert np.all(np.abs(values.mean(axis=0) - truth) < 4.5 * error / math.sqrt(40))
    said = np.sqrt(np.mean([[e.standard_error**2 for e in run] for run in estimates], axis=0))
    assert np.all((error / said > 0.65) & (error / said < 1.5))
    # the means are moved by 0.7 in every coordinate: without the annealing the weights of one step would be useless
    assert np.all(error < 0.2)


@pytest.mark.parametrize("space", [tw.Spin(8), tw.Binary(8), tw.Categorical(4, k=3)])
def test_finite_spaces_agree_with_enumeration(space):
    coupling = 0.4 * jax.random.normal(jax.random.key(3), (24, 24))

    def energy(x, beta):
        # labels come as one-hot rows from kernels with gradients
        rows = jax.nn.one_hot(x, 3) if isinstance(space, tw.Categorical) and x.ndim == 1 else x
        flat = rows.reshape(-1).astype(float)
        return -beta * flat @ coupling[: len(flat), : len(flat)] @ flat - 0.2 * jnp.sum(flat)

    energies = [tw.as_energy(jax.tree_util.Partial(energy, beta=jnp.asarray(beta)), space) for beta in (0.5, 1.0)]
    points = np.asarray(space.noise(KEY, (50,)))
    found = carry(energies, space, points, jax.random.key(2), moves=8, size=128)
    for energy, groups in zip(energies, found, strict=True):
        estimate, truth = trajectory.join_groups(groups, 0.95), float(tw.exact.log_z(energy))
        assert abs(estimate.value - truth) < 4 * estimate.standard_error < 0.3


@pytest.mark.parametrize("visible", [tw.energies.BernoulliUnits(10), tw.energies.GaussianUnits(4)])
def test_a_boltzmann_machine_is_carried_along_its_weights(visible):
    small = tw.energies.RBM(visible, 6, key=jax.random.key(5))
    noise = jax.random.normal(jax.random.key(6), small.weights.shape)
    machines = [eqx.tree_at(lambda rbm: rbm.weights, small, scale * noise) for scale in (0.4, 0.7)]
    found = carry(machines, small.space, small.space.noise(KEY, (50,)), jax.random.key(2), size=64)
    for machine, groups in zip(machines, found, strict=True):
        estimate, truth = trajectory.join_groups(groups, 0.95), float(machine.log_z)
        assert abs(estimate.value - truth) < 4 * estimate.standard_error < 0.3


def test_constrained_spaces_and_products_move_in_real_coordinates():
    gamma = tw.as_energy(lambda x: jnp.sum(x - 2.5 * jnp.log(x)), tw.Positive(3))  # three Gamma(3.5)
    points = jax.random.gamma(KEY, 3.5, (100, 3))
    estimate = trajectory.join_groups(carry([gamma], tw.Positive(3), points, KEY)[0], 0.95)
    assert abs(estimate.value - 3 * math.lgamma(3.5)) < 4 * estimate.standard_error < 0.3
    space = tw.Product(a=tw.Real(2), b=tw.Positive(()))
    both = tw.as_energy(lambda x: 0.5 * jnp.sum(x["a"] ** 2) + x["b"], space)
    rows = {"a": jax.random.normal(KEY, (50, 2)), "b": jax.random.exponential(KEY, (50,))}
    estimate = trajectory.join_groups(carry([both], space, rows, KEY)[0], 0.95)
    assert abs(estimate.value - math.log(2 * math.pi)) < 4 * estimate.standard_error < 0.3


def test_an_energy_that_is_infinite_somewhere_loses_those_chains():
    whole = quadratics()[0]
    half = tw.as_energy(lambda x: jnp.where(x[0] > 0, whole(x), jnp.inf), tw.Real(6))
    found = carry([whole, half], tw.Real(6), jax.random.normal(KEY, (100, 6)), jax.random.key(2), size=64)
    estimate = trajectory.join_groups(found[1], 0.95)
    assert abs(estimate.value - (whole.exact() - math.log(2))) < 4 * estimate.standard_error < 0.4


def test_a_far_model_is_reached_in_many_steps_or_not_at_all(monkeypatch):
    far = Quadratic(400.0 * jnp.eye(6), jnp.full(6, 5.0))
    points = jax.random.normal(KEY, (100, 6))
    estimate = trajectory.join_groups(carry([far], tw.Real(6), points, KEY)[0], 0.95)
    assert abs(estimate.value - far.exact()) < 4 * estimate.standard_error < 1
    monkeypatch.setattr(trajectory, "MOST_RUNGS", 2)
    with pytest.raises(AssertionError):
        carry([far], tw.Real(6), points, KEY, size=8)


def test_groups_without_a_finite_energy_are_said():
    assert math.isnan(trajectory.join_groups(np.full(4, -np.inf), 0.95).value)
