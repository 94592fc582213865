"""Energies made of energies keep what they can do: tempered, clamped, one for each chain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import exact
from thalweg.core import PerChain, energies

SPINS = tw.energies.Ising(tw.energies.Graph([(0, 1), (1, 2), (2, 3)], [0.5, -0.4, 0.8]), 0.1)


def bowl(x):
    return 0.5 * jnp.sum((x - 1) ** 2) + x[0] * x[1]


def test_tempering_a_clamped_function_without_a_space_keeps_what_is_held(key):
    clamped = tw.clamp(bowl, jnp.array([True, False]), jnp.array([2.0, 0.0]))
    warm = tw.tempered(clamped, 4.0)
    assert isinstance(warm, tw.energies.compose.Clamped) and warm.space is None
    full = jnp.array([9.0, 0.3])
    assert float(warm(full)) == pytest.approx(float(bowl(jnp.array([2.0, 0.3]))) / 4)
    assert float(warm(full)) == float(warm(jnp.array([0.3])))
    chains = tw.sample(warm, tw.samplers.RandomWalk(1.0), jnp.zeros((5, 2)), key=key, draws=20)
    assert jnp.all(chains.draws[..., 0] == 2.0)
    assert float(jnp.std(chains.draws[..., 1])) > 0.1


def test_tempering_twice_multiplies_the_temperatures():
    x = jnp.array([0.2, -1.0])
    for energy in (bowl, tw.energies.Banana()):
        twice = tw.tempered(tw.tempered(energy, 2.0), 3.0)
        assert float(twice(x)) == pytest.approx(float(energy(x)) / 6, rel=1e-5)
    spins = tw.tempered(tw.tempered(SPINS, 2.0), 3.0)
    assert isinstance(spins, tw.energies.Ising)
    assert float(spins(jnp.ones(4, int))) == pytest.approx(float(SPINS(jnp.ones(4, int))) / 6, rel=1e-5)


def test_tempering_energies_that_differ_from_chain_to_chain():
    model = tw.as_conditional(lambda x, c: c * jnp.sum(x**2), tw.Real(2), tw.Real(()))
    per_chain = PerChain(tw.given, model, jnp.array([1.0, 2.0]), tw.Real(2))
    warm = tw.tempered(per_chain, 2.0)
    assert isinstance(warm, PerChain) and warm.space == tw.Real(2)
    np.testing.assert_allclose(energies(warm, jnp.ones((2, 2))), [1.0, 2.0])
    both = tw.tempered(model, 2.0)
    assert isinstance(both, tw.core.ConditionalEnergy) and both.condition_space == tw.Real(())
    assert float(both(jnp.ones(2), 3.0)) == 3.0


def test_a_tempered_clamped_lattice_keeps_its_conditionals():
    clamped = tw.clamp(SPINS, np.array([False, True, False, False]), np.array([0, -1, 0, 0]))
    warm = tw.tempered(clamped, 2.0)
    assert isinstance(warm, tw.core.HasLogits)
    assert np.array_equal(warm.blocks.sum(axis=0), np.ones(3))
    matrix = np.asarray(tw.samplers.Gibbs().transition_matrix(warm), float)
    law = np.asarray(exact.probabilities(warm), float)
    np.testing.assert_allclose(law @ matrix, law, atol=1e-6)


def test_a_clamped_population_is_drawn_through_the_whole_energy(key):
    """Where a sweep of the free sites ends, against the exact matrix."""
    clamped = tw.clamp(SPINS, np.array([False, True, False, False]), np.array([0, -1, 0, 0]))
    start = jnp.broadcast_to(jnp.array([1, -1, 1]), (50_000, 3))
    matrix = np.asarray(tw.samplers.Gibbs().transition_matrix(clamped), float)
    ends = jax.vmap(clamped.space.index)(clamped.sweep(key, start))
    seen = np.bincount(np.asarray(ends), minlength=8)
    expected = 50_000 * matrix[int(clamped.space.index(start[0]))]
    assert np.max(np.abs(seen - expected) / np.sqrt(expected + 1)) < 5.5


@pytest.mark.parametrize("values", [np.array([1, 0, 0], np.uint8), np.array([True, False, False]), [1.0, 0.0, 0.0]])
def test_values_of_bits_may_come_in_any_kind_of_number(values, key):
    energy = tw.energies.Ising(jnp.zeros((3, 3)), jnp.array([0.0, -0.5, 1.0]), tw.Binary(3))
    clamped = tw.clamp(energy, np.array([True, False, False]), values)
    assert clamped.values.dtype == jnp.int32 and int(clamped.values[0]) == 1
    chains = tw.sample(clamped, tw.samplers.GibbsWithGradients(), jnp.zeros((4, 3), int), key=key, draws=5)
    assert jnp.all(chains.draws[..., 0] == 1)
    assert set(np.unique(chains.draws).tolist()) <= {0, 1}


def test_values_at_free_places_are_not_read():
    clamped = tw.clamp(SPINS, np.array([True, False, False, False]), np.array([1, 7, 7, 7]))
    assert float(clamped(jnp.ones(3, int))) == float(SPINS(jnp.ones(4, int)))
    positive = tw.as_energy(lambda x: jnp.sum(x), tw.Positive(2))
    assert tw.clamp(positive, np.array([True, False]), np.array([1.0, -5.0])).space == tw.Positive(1)


def test_clamped_labels_have_one_hot_points_too(key):
    potts = tw.energies.Potts(tw.energies.Graph([(0, 1), (1, 2)], 0.8), 3, [0.5, 0.0, -0.4])
    clamped = tw.clamp(potts, np.array([True, False, False]), np.array([2, 0, 0]))
    x = jnp.array([1, 2])
    assert float(clamped(jax.nn.one_hot(x, 3))) == pytest.approx(float(clamped(x)), abs=1e-6)
    matrix = np.asarray(tw.samplers.GibbsWithGradients().transition_matrix(clamped), float)
    law = np.asarray(exact.probabilities(clamped), float)
    np.testing.assert_allclose(law @ matrix, law, atol=1e-6)


FIRST = np.array([True, False])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: tw.clamp(bowl, FIRST, np.array([np.nan, 0.0])), "expected values to be finite"),
        (lambda: tw.clamp(bowl, FIRST, np.ma.array([1.0, 0.0], mask=[1, 0])), "masked"),
        (lambda: tw.clamp(bowl, np.ma.array(FIRST, mask=[1, 0]), np.zeros(2)), "masked"),
        (lambda: tw.clamp(bowl, np.array([1, 0]), np.zeros(2)), "expected a boolean mask"),
        (lambda: tw.clamp(bowl, FIRST, np.zeros(3)), "expected a boolean mask of the values' shape"),
        (lambda: tw.clamp(bowl, FIRST, np.array(["a", "b"])), "expected real numbers"),
        (lambda: tw.clamp(bowl, np.ones(2, bool), np.zeros(2)), "leaves something free"),
        (lambda: tw.clamp(SPINS, np.arange(4) < 2, np.zeros(4, int)), "expected points of Spin.* in values"),
        (lambda: tw.clamp(SPINS, np.arange(4) < 2, np.array([0.5, 1, 0, 0])), "whole numbers"),
        (lambda: tw.clamp(tw.as_energy(jnp.sum, tw.Positive(2)), FIRST, np.array([-1.0, 0])), "expected points of Pos"),
        (lambda: tw.clamp(tw.as_energy(jnp.sum, tw.Simplex(2)), FIRST, np.zeros(2)), "got Simplex"),
        (
            lambda: tw.clamp(tw.as_energy(jnp.sum, tw.PositiveDefinite(1)), np.array([[False]]), np.zeros((1, 1))),
            "got PositiveDefinite",
        ),
        (
            lambda: tw.clamp(tw.as_energy(lambda x: 0.0, tw.Product(tw.Real(1), tw.Real(1))), FIRST, np.zeros(2)),
            "several parts",
        ),
        (lambda: tw.clamp(tw.energies.smoothed(tw.energies.Ring()), FIRST, np.zeros(2)), "one with a condition"),
        (lambda: tw.clamp(tw.as_score(lambda x: -x), FIRST, np.zeros(2)), "score network"),
        (lambda: tw.clamp(tw.energies.Banana, FIRST, np.zeros(2)), "the class Banana"),
        (lambda: tw.clamp(bowl, FIRST, np.array([1.5, 0]))(jnp.array([1])), "floating-point points"),
        (lambda: tw.tempered(bowl, jnp.ones(2)), "expected one temperature"),
        (lambda: tw.tempered(bowl, -1.0), "expected temperature > 0"),
        (lambda: tw.tempered(bowl, jnp.nan), "expected temperature > 0"),
        (lambda: tw.energies.smoothed(tw.energies.Banana()), "closed form with noise"),
    ],
)
def test_bad_input_gets_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
