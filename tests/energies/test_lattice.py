import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import exact
from thalweg.energies.couplings import Matrix
from thalweg.energies.structure import colour


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
    whole = graph.field(jnp.eye(12))
    masked = Matrix(whole, np.asarray(whole) != 0)
    x = jax.random.normal(key, (12, 3))
    for coupling in (graph, Matrix(whole), masked):
        assert jnp.allclose(coupling.field(x), grid.field(x), atol=1e-6)
        for sites in (np.array([4, 0, 11]), jnp.array([7])):
            assert jnp.allclose(coupling.local_field()(x, sites), grid.field(x)[sites], atol=1e-6)
        blocks = coupling.colours()
        assert np.array_equal(blocks.sum(axis=0), np.ones(12))
        for block in blocks:
            assert not any(block[i] and block[j] for i, j in edges)
    assert len(graph.colours()) == len(masked.colours()) == 2


def star_and_chain():
    """A site connected to all others, for which a table of neighbours would be nearly the whole matrix."""
    edges = [(0, other) for other in range(1, 40)]
    return tw.energies.Graph(edges, jnp.arange(39.0), 40)


def test_a_graph_of_uneven_degrees_has_the_same_local_field(key):
    graph, x = star_and_chain(), jax.random.normal(key, (40, 2))
    for sites in (np.array([0]), np.array([3, 7])):
        assert jnp.allclose(graph.local_field()(x, sites), graph.field(x)[sites], rtol=1e-5)


def with_weights(energy, weights):
    return eqx.tree_at(lambda e: e.coupling.weights, energy, weights)


@pytest.mark.parametrize(
    "model", [lambda w: tw.energies.Ising(w, 0.2), lambda w: tw.energies.Potts(w, 3, [0.3, 0, -0.3])]
)
def test_blocks_do_not_depend_on_the_weights_of_the_day(key, model):
    """Made of zeros, then given weights as training gives them: a sweep still leaves the law as it is."""
    weights = jnp.triu(jax.random.normal(key, (4, 4)), 1)
    energy = with_weights(model(jnp.zeros((4, 4))), weights + weights.T)
    assert len(energy.blocks) == 4
    law = np.asarray(exact.probabilities(energy), float)
    for scan in ("systematic", "random"):
        matrix = np.asarray(tw.samplers.Gibbs(scan).transition_matrix(energy), float)
        np.testing.assert_allclose(law @ matrix, law, atol=1e-6)
    start = jnp.broadcast_to(energy.space.states(5, 1), (40_000, 4))
    matrix = np.asarray(tw.samplers.Gibbs().transition_matrix(energy), float)
    ends = np.asarray(jax.vmap(energy.space.index)(eqx.filter_jit(energy.sweep)(key, start)))
    expected = 40_000 * matrix[5]
    z = (np.bincount(ends, minlength=energy.space.size) - expected) / np.sqrt(expected + 1)
    assert np.max(np.abs(z)) < 5.5


# few blocks written out, many as a loop, of one site and of several, and lattices drawn whole
SWEEPS = {
    "few": lambda: tw.energies.Ising(tw.energies.Graph([(0, 1), (1, 2), (2, 3)], [0.5, -0.4, 0.8]), 0.1),
    "many": lambda: tw.energies.Ising(0.1 * (jnp.ones((10, 10)) - jnp.eye(10)), -0.1),
    "many of several": lambda: tw.energies.Ising(
        tw.energies.Graph([(i, j) for i in range(9) for j in range(i)], 0.2, 11), jnp.arange(11) / 20
    ),
    "whole": lambda: tw.energies.Ising(tw.energies.Grid((3, 3), 0.3), 0.1),
    "labels": lambda: tw.energies.Potts(tw.energies.Grid((2, 3), 0.5, periodic=False), 3, [0.5, 0.0, -0.5]),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_every_way_to_sweep_has_the_law_of_the_block_updates(key, name):
    """Exact starts, one sweep, and the frequencies of all states against the law."""
    energy = SWEEPS[name]()
    chains = 60_000
    law = np.asarray(exact.probabilities(energy), float)
    key_start, key_sweep, key_block = jax.random.split(key, 3)
    start = exact.sample(energy, (chains,), key=key_start)
    sweep = eqx.filter_jit(energy.sweep)(key_sweep, start)
    assert sweep.dtype == jnp.int32
    assert float(jnp.mean(sweep != start)) > 0.05
    counts = jnp.array(energy.space.levels)
    for points, note in ((sweep, "sweep"), (energy.resample(key_block, start, energy.blocks[0]), "block")):
        seen = np.asarray(jnp.mean(points[..., None] == counts, axis=0))
        marginals = np.asarray(exact.marginals(energy), float)
        z = (seen - marginals) / np.sqrt(marginals * (1 - marginals) / chains)
        assert np.max(np.abs(z)) < 5, note
        pairs = np.einsum("ci,cj->ij", *[np.asarray(points, float)] * 2) / chains
        states = np.asarray(energy.space.states(0, energy.space.size), float)
        second = np.einsum("s,si,sj->ij", law / law.sum(), states, states)
        assert np.max(np.abs(pairs - second)) < 5 * states.max() ** 2 / np.sqrt(chains), note


def test_a_block_of_its_own_for_every_chain(key):
    energy = SWEEPS["many"]()
    x = jnp.ones((4, 10), jnp.int32)
    blocks = jnp.eye(10, dtype=bool)[jnp.array([0, 3, 3, 9])]
    moved = energy.resample(key, x, blocks)
    assert jnp.all((moved == x) | blocks)
    traced = eqx.filter_jit(energy.resample)(key, x, blocks[1])
    assert jnp.all((traced == x) | blocks[1])


def test_blocks_stay_numbers_under_jit_and_are_no_leaf(key):
    energy = tw.energies.Ising(Matrix(jnp.zeros((4, 4)), np.ones((4, 4), bool)))
    assert all(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(energy))
    assert jax.jit(lambda energy: jnp.zeros(len(energy.blocks)))(energy).shape == (4,)
    assert isinstance(jax.eval_shape(lambda e: e, energy).blocks, np.ndarray)


def test_pairs_outside_the_mask_stay_at_zero(key):
    mask = np.zeros((4, 4), bool)
    mask[:2, 2:] = mask[2:, :2] = True
    weights = jnp.ones((4, 4)) - jnp.eye(4)
    energy = tw.energies.Ising(Matrix(weights, mask))
    assert jnp.all(energy.coupling.weights == mask)
    assert len(energy.blocks) == 2
    moved = with_weights(energy, weights)  # an update that does not know of the mask
    x = jnp.array([1, -1, 1, 1])
    assert float(moved(x)) == float(energy(x))
    gradient = eqx.filter_grad(lambda e: e(x))(moved).coupling.weights
    assert jnp.all((gradient != 0) == mask)


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
        (lambda: tw.energies.Ising(jnp.full((2, 2), jnp.nan)), "expected couplings to be finite"),
        (lambda: tw.energies.Ising(np.ma.array(np.zeros((2, 2)), mask=np.eye(2))), "masked"),
        (lambda: tw.energies.Ising(jnp.zeros((2, 2)), jnp.nan), "expected bias to be finite"),
        (lambda: Matrix(jnp.zeros((2, 2)), np.ones((3, 3), bool)), "expected a boolean mask of the couplings' shape"),
        (lambda: Matrix(jnp.zeros((2, 2)), np.ones((2, 2))), "expected a boolean mask"),
        (lambda: Matrix(jnp.zeros((2, 2)), np.array([[False, True], [False, False]])), "expected a symmetric mask"),
        (lambda: tw.energies.Graph([(0, 5)], 1.0, 3), "expected edges between the sites 0 to 2, got sites 0 to 5"),
        (lambda: tw.energies.Graph([(-1, 1)], 1.0), "got sites -1 to 1"),
        (lambda: tw.energies.Graph([(0, 1)], jnp.nan), "expected weights to be finite"),
        (lambda: tw.energies.Graph([(0, 1)], jnp.ones(3)), "expected one weight per edge"),
        (lambda: tw.energies.Graph(np.zeros((0, 2), int), 1.0), r"expected edges as whole numbers \(m, 2\)"),
        (lambda: tw.energies.Graph([(0.0, 1.5)], 1.0), "expected edges as whole numbers"),
        (lambda: tw.energies.Graph([(0, 1), (1,)], 1.0), "expected edges as whole numbers"),
        (lambda: tw.energies.Grid((4, 4), jnp.ones((4, 4))), "expected one weight for all neighbours"),
        (lambda: tw.energies.Grid(4), r"expected a lattice of \(rows, columns\)"),
        (lambda: tw.energies.Grid((4, 4.5)), "whole number"),
        (lambda: tw.energies.Grid((4, 4), periodic="yes"), "expected periodic to be True or False"),
        (lambda: tw.energies.Potts(jnp.zeros((2, 2)), 1), "expected k to be a whole number >= 2"),
        (lambda: tw.energies.Potts(jnp.zeros((2, 2)), 3)(jnp.zeros((2, 4))), "expected one point"),
        (lambda: tw.energies.GaussianField(jnp.zeros((2, 2)), [1.0, -1.0]), "expected diagonal > 0"),
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
