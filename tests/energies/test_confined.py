"""Networks with a Gaussian base: they can be normalised, and do what other energies do."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg.core import partition_trainable

confined, MLP = tw.energies.confined, tw.energies.MLP


def steep(shape, key):
    """A network whose energy falls far from the origin: alone it has no Z."""
    net = MLP(shape, 8, key=key)
    return jax.tree.map(lambda leaf: 1.5 * leaf, net)


def grid_log_z(energy, half_width, nodes):
    """``log Z`` of an energy on Real(2) by the trapezium rule, which has nothing of `exact`'s quadrature."""
    axis = jnp.linspace(-half_width, half_width, nodes)
    points = jnp.stack(jnp.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    area = (axis[1] - axis[0]) ** 2
    return float(jax.nn.logsumexp(-jax.jit(jax.vmap(energy))(points)) + jnp.log(area))


def test_log_z_of_a_network_is_finite_and_right(key):
    net = steep(2, key)
    with pytest.raises(ValueError, match="expected"):
        tw.exact.log_z(net)
    energy = confined(net, scale=1.5)
    value = float(tw.exact.log_z(energy))
    assert np.isfinite(value)
    # two radii agree: nothing lies outside of the smaller one
    for half_width in (20.0, 30.0):
        assert grid_log_z(energy, half_width, 1200) == pytest.approx(value, abs=1e-4)


def test_a_constant_network_leaves_the_gaussian():
    energy = confined(tw.as_energy(lambda x: 0.7 + 0.0 * jnp.sum(x), tw.Real(2)), center=[1.0, -1.0], scale=[0.5, 2.0])
    gaussian = tw.energies.Gaussian(jnp.array([1.0, -1.0]), jnp.array([0.25, 4.0]))
    x = jnp.array([0.3, 0.4])
    assert float(energy(x)) == pytest.approx(0.7 + float(gaussian(x)), rel=1e-6)
    assert float(tw.exact.log_z(energy)) == pytest.approx(float(gaussian.log_z) - 0.7, abs=1e-4)


def test_center_and_scale_come_from_the_data(key):
    keys = jax.random.split(key)
    data = np.asarray(jax.random.normal(keys[0], (500, 3, 2)) * jnp.array([2.0, 0.0]) + jnp.array([5.0, 1.0]))
    energy = confined(MLP((3, 2), 4, key=keys[1]), data)
    np.testing.assert_allclose(energy.center.tree, data.mean(axis=0), rtol=1e-5)
    deviation = data.std(axis=0)
    np.testing.assert_allclose(energy.scale.tree[:, 0], deviation[:, 0], rtol=1e-5)
    # a coordinate that is the same everywhere gets a tenth of the usual deviation
    np.testing.assert_allclose(energy.scale.tree[:, 1], 0.1 * np.sqrt(np.mean(deviation**2)), rtol=1e-5)
    given = confined(energy.net, data, scale=3.0)
    assert float(given.scale.tree) == 3.0 and given.center.tree.shape == (3, 2)


def test_it_is_trained_and_the_base_is_not(key):
    keys = jax.random.split(key, 3)
    data = tw.data.two_moons(keys[0], 500)
    energy = confined(MLP(2, 16, key=keys[1]), data)
    objective = tw.objectives.MaximumLikelihood(tw.samplers.MALA(0.1), 5)
    # a decay of weights would move the base too, were it trained
    optimizer = optax.adamw(1e-2, weight_decay=0.1)
    trained = tw.fit(energy, data, objective, optimizer=optimizer, steps=5, batch_size=100, key=keys[2]).energy
    assert type(trained) is type(energy) and type(trained.net) is MLP
    assert jnp.array_equal(trained.center.tree, energy.center.tree)
    assert jnp.array_equal(trained.scale.tree, energy.scale.tree)
    moved = [bool(jnp.any(a != b)) for a, b in zip(*map(weights, (trained.net, energy.net)), strict=True)]
    # the bias of the last layer is a constant of the energy, which has no gradient here
    assert all(moved[:-1]) and np.isfinite(float(tw.exact.log_z(trained)))


def weights(model):
    return jax.tree.leaves(partition_trainable(model)[0])


@pytest.mark.slow
def test_training_brings_it_nearer_to_the_data_than_a_gaussian(key):
    keys = jax.random.split(key, 4)
    data = tw.data.eight_gaussians(keys[0], 2000)
    energy = confined(MLP(2, 32, key=keys[1]), data)

    def mean_log_prob(energy):
        return -float(jnp.mean(jax.vmap(energy)(data)) + tw.exact.log_z(energy))

    objective = tw.objectives.MaximumLikelihood(tw.samplers.MALA(0.3), 20, tw.samplers.persistent())
    run = tw.fit(energy, data, objective, optimizer=optax.adam(1e-2), steps=300, batch_size=200, key=keys[2])
    gaussian = tw.noise.fit_gaussian(data)
    assert mean_log_prob(run.energy) > float(jnp.mean(jax.vmap(gaussian.log_prob)(data))) + 0.1


def test_tempered_and_clamped(key):
    energy = confined(MLP(2, 8, key=key), center=1.0, scale=2.0)
    x = jnp.array([0.5, -1.5])
    assert float(tw.tempered(energy, 4.0)(x)) == pytest.approx(float(energy(x)) / 4, rel=1e-6)
    assert np.isfinite(float(tw.exact.log_z(tw.tempered(energy, 4.0))))
    held = tw.clamp(energy, np.array([True, False]), jnp.array([0.5, 0.0]))
    assert float(held(x[1:])) == pytest.approx(float(energy(x)), rel=1e-6)
    assert held.space == tw.Real(1) and np.isfinite(float(tw.exact.log_z(held)))


@pytest.mark.slow
def test_a_convolutional_network_with_spectral_norm(key):
    keys = jax.random.split(key, 4)
    net = tw.energies.ConvNet("digits", 0.1, key=keys[0])
    data = tw.space_of(net).noise(keys[1], (20,))
    energy = confined(net, data)
    x = data[0]
    base = 0.5 * jnp.sum(((x - energy.center.tree) / energy.scale.tree) ** 2)
    assert float(energy(x)) == pytest.approx(float(net(x) + base), rel=1e-5)
    objective = tw.objectives.MaximumLikelihood(tw.samplers.Langevin(0.01), 2)
    trained = tw.fit(energy, data, objective, optimizer=optax.adam(1e-3), steps=2, batch_size=10, key=keys[2]).energy
    assert type(trained.net) is type(net)
    # the vectors of the power iteration advance inside it as they do outside
    advanced = jax.tree.leaves(tw.core.refresh(energy).net)
    alone = jax.tree.leaves(tw.core.refresh(net))
    assert all(jnp.array_equal(a, b) for a, b in zip(advanced, alone, strict=True))
    # |E_net(x) - E_net(x')| ≤ ‖x - x'‖, so far out the square wins
    far = 1e4 * jnp.ones(net.space.shape)
    assert float(energy(far)) > 1e4


def test_a_plain_function_is_confined_too(key):
    energy = confined(lambda x: jnp.sum(x), scale=2.0)
    chains = tw.sample(energy, tw.samplers.MALA(1.0), jnp.zeros((2000, 1)), key=key, draws=1, burn_in=60)
    # exp(-x) N(x; 0, 4) is N(-4, 4) up to a constant
    assert abs(float(chains.draws.mean()) + 4.0) < 5 * 2.0 / np.sqrt(2000)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda net: confined(net, scale=0.0), "expected scale > 0"),
        (lambda net: confined(net, scale=jnp.ones(3)), r"expected scale to be a number or of the point's shape \(2,\)"),
        (lambda net: confined(net, center=jnp.ones(3)), "expected center to be a number"),
        (lambda net: confined(net, center=jnp.nan), "expected center to be finite"),
        (lambda net: confined(net, jnp.ones((5, 2))), "expected data of at least two different rows"),
        (lambda net: confined(net, jnp.ones((5, 3))), "expected"),
        (lambda net: confined(tw.energies.Gamma(1.0, 1.0)), "expected an energy on Real for confined"),
        (lambda net: confined(MLP), "expected an energy, got the class MLP"),
        (lambda net: confined(tw.energies.smoothed(tw.energies.Ring())), "got one with a condition"),
        (lambda net: confined(net)(jnp.zeros((5, 2))), "expected one point"),
    ],
)
def test_refusals(make, sentence, key):
    with pytest.raises(ValueError, match=sentence):
        make(MLP(2, 4, key=key))
