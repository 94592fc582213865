import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import exact
from thalweg.energies.lattice import Matrix, colour


def test_three_forms_of_one_coupling_agree(key):
    """A 3×4 lattice as a grid, as a graph and as a matrix."""
    grid = tw.energies.Grid((3, 4), 0.7, periodic=False)
    number = np.arange(12).reshape(3, 4)
    edges = np.concatenate(
        [
            np.stack([number[:-1], number[1:]], -1).reshape(-1, 2),
            np.stack([number[:, :-1], number[:, 1:]], -1).reshape(-1, 2),
        ]
    )
    graph = tw.energies.Graph(edges, 0.7)
    matrix = Matrix(graph.field(jnp.eye(12)))
    x = jax.random.normal(key, (12,))
    for coupling in (graph, matrix):
        assert jnp.allclose(coupling.field(x), grid.field(x), atol=1e-6)
        blocks = coupling.colours()
        assert np.array_equal(blocks.sum(axis=0), np.ones(12))
        for block in blocks:
            assert not any(block[i] and block[j] for i, j in edges)


def test_a_matrix_in_training_stays_a_coupling(key):
    """Its gradient is symmetric with a zero diagonal, whatever is computed from it, so no update leaves these."""
    weights = jax.random.normal(key, (4, 4))
    energy = tw.energies.Ising((weights + weights.T) * (1 - jnp.eye(4)), bias=jnp.arange(4.0), space=tw.Binary(4))
    x = jnp.array([1, 0, 1, 1])
    for function in (lambda energy: energy(x), lambda energy: jnp.sum(energy.logits(x)[..., 1] ** 2)):
        gradient = eqx.filter_grad(function)(energy).coupling.weights
        assert jnp.abs(gradient).max() > 0.1
        assert jnp.allclose(gradient, gradient.T) and not jnp.any(jnp.diag(gradient))


def test_a_torus_counts_every_neighbour_once():
    energy = tw.energies.Ising(tw.energies.Grid((3, 5), 1.0))
    assert float(energy(jnp.ones(15, int))) == -30.0  # two bonds per site
    blocks = np.asarray(energy.blocks)
    assert np.array_equal(blocks.sum(axis=0), np.ones(15))
    neighbours = np.asarray(energy.coupling.field(jnp.eye(15))) > 0
    for block in blocks:
        assert not neighbours[np.ix_(block, block)].any()


@pytest.mark.parametrize("space", [tw.Spin(6), tw.Binary(6)])
def test_conditionals_are_the_ratios_of_the_joint(key, space):
    weights = jnp.triu(jax.random.normal(key, (6, 6)), 1)
    energy = tw.energies.Ising(weights + weights.T, jax.random.normal(key, (6,)), space)
    low, high = space.levels
    x = space.states(21, 1)[0]
    for site in range(6):
        up, down = energy(x.at[site].set(high)), energy(x.at[site].set(low))
        logits = energy.logits(x)[site]
        assert float(logits[1] - logits[0]) == pytest.approx(float(down - up), abs=1e-4)


def test_potts_conditionals_and_one_hot_points(key):
    energy = tw.energies.Potts(tw.energies.Graph([(0, 1), (1, 2)], 0.8), 3, jax.random.normal(key, (3, 3)))
    x = jnp.array([2, 0, 0])
    assert float(energy(jax.nn.one_hot(x, 3))) == pytest.approx(float(energy(x)), abs=1e-6)
    energies = jnp.array([energy(x.at[1].set(label)) for label in range(3)])
    assert jnp.allclose(jax.nn.softmax(energy.logits(x)[1]), jax.nn.softmax(-energies), atol=1e-6)


@pytest.mark.slow
def test_the_gaussian_field_against_quadrature_and_its_own_conditionals(key):
    field = tw.energies.GaussianField(
        jnp.array([[0.0, 0.4], [0.4, 0.0]]), jnp.array([1.0, 2.0]), jnp.array([0.5, -1.0])
    )
    moments = exact.moments(field)
    assert float(exact.log_z(field)) == pytest.approx(float(field.log_z), abs=1e-4)
    assert jnp.allclose(moments.mean, field.mean, atol=1e-4)
    assert jnp.allclose(moments.covariance, field.covariance, atol=1e-4)
    grid = tw.energies.GaussianField(tw.energies.Grid((3, 3), 0.2), 1.0, 0.3)
    verdict = tw.check_sampler(tw.samplers.Gibbs(), grid, key=key, chains=20_000, steps=5)
    assert verdict.passed, verdict


def test_tempering_divides_the_energy(key):
    ising = tw.energies.Ising(tw.energies.Grid((3, 3), 0.5), 0.2)
    x = ising.space.states(100, 1)[0]
    assert float(tw.tempered(ising, 4.0)(x)) == pytest.approx(float(ising(x)) / 4, rel=1e-5)
    assert isinstance(tw.tempered(ising, 4.0), tw.core.HasConditionals)
    banana = tw.energies.Banana()
    assert float(tw.tempered(banana, 4.0)(jnp.ones(2))) == pytest.approx(float(banana(jnp.ones(2))) / 4)


@pytest.mark.slow
def test_clamping_a_gaussian_is_conditioning(key):
    covariance = jnp.array([[1.0, 0.8, 0.2], [0.8, 1.5, 0.1], [0.2, 0.1, 0.7]])
    clamped = tw.clamp(
        tw.energies.Gaussian(jnp.zeros(3), covariance), jnp.array([False, True, False]), jnp.array([0.0, 2.0, 0.0])
    )
    conditional = covariance[:, 1][jnp.array([0, 2])] / covariance[1, 1] * 2.0
    assert jnp.allclose(exact.moments(clamped).mean, conditional, atol=1e-4)
    assert float(clamped(jnp.array([0.3, 9.0, -0.4]))) == float(clamped(jnp.array([0.3, -0.4])))
    chains = tw.sample(clamped, tw.samplers.NUTS(0.5), jnp.zeros((200, 3)), key=key, draws=20, burn_in=20)
    assert jnp.all(chains.draws[..., 1] == 2.0)
    assert jnp.allclose(chains.draws.mean(axis=(0, 1))[jnp.array([0, 2])], conditional, atol=0.1)


@pytest.mark.slow
def test_clamping_keeps_an_images_shape(key):
    energy = tw.energies.ConvNet("digits", width=0.25, key=key)
    mask = jnp.zeros((8, 8, 1), bool).at[:4].set(True)
    clamped = tw.clamp(energy, mask, jnp.full((8, 8, 1), 0.5))
    chains = tw.sample(clamped, tw.samplers.Langevin(0.1), jnp.zeros((2, 8, 8, 1)), key=key, draws=2)
    assert chains.draws.shape == (2, 2, 8, 8, 1)
    assert jnp.all(chains.draws[:, :, :4] == 0.5)
    assert not jnp.any(chains.draws[:, :, 4:] == 0.5)


def test_colouring_of_a_complete_graph_needs_every_colour():
    edges = np.array([(i, j) for i in range(5) for j in range(i)])
    assert colour(5, edges).shape == (5, 5)


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: tw.energies.Ising(jnp.ones((2, 3))), "expected a square matrix"),
        (lambda: tw.energies.Ising(jnp.array([[0.0, 1.0], [2.0, 0.0]])), "symmetric couplings with a zero diagonal"),
        (lambda: tw.energies.Ising(jnp.eye(2)), "zero diagonal"),
        (lambda: tw.energies.Ising(jnp.zeros((2, 2)), jnp.zeros(3)), "expected bias of shape"),
        (lambda: tw.energies.Ising(jnp.zeros((2, 2)), space=tw.Real(2)), r"expected Spin\(2\) or Binary\(2\)"),
        (lambda: tw.energies.Graph([(0, 0)], 1.0), "none from a site to itself"),
        (lambda: tw.energies.Graph([(0, 1), (1, 0)], 1.0), "expected every edge once"),
        (lambda: tw.energies.Grid((2, 4)), "at least 3 sites round a torus"),
        (lambda: tw.energies.GaussianField(jnp.array([[0.0, 2.0], [2.0, 0.0]]), 1.0), "positive-definite J"),
        (lambda: tw.tempered(tw.energies.Banana(), 0.0), "expected temperature > 0"),
    ],
)
def test_bad_input_gets_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
