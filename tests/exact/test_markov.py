"""Properties of Markov chains on finite spaces, against closed forms and NumPy's eigenvalues."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import exact
from thalweg.exact import markov

SPINS = tw.energies.Ising(tw.energies.Graph([(0, 1), (1, 2)], [0.8, -0.5]), 0.3)


def cycle(length, stay=0.0):
    """From each state to the next, round and round."""
    return stay * np.eye(length) + (1 - stay) * np.roll(np.eye(length), 1, axis=1)


def second_eigenvalue(matrix):
    return np.sort(np.abs(np.linalg.eigvals(np.asarray(matrix, float))))[-2]


@pytest.mark.parametrize("a, b", [(0.3, 0.1), (0.9, 0.8), (0.5, 0.5), (1e-6, 3e-6)])
def test_two_states_have_their_closed_form(a, b):
    """λ₂ = 1 - a - b, negative where a + b > 1; any two-state chain is reversible."""
    found = exact.chain_properties([[1 - a, a], [b, 1 - b]], [b / (a + b), a / (a + b)])
    assert found[:3] == (True, True, True)
    assert found.spectral_gap == pytest.approx(1 - abs(1 - a - b), rel=1e-6, abs=1e-12)
    assert found.invariance_error < 1e-15
    assert str(found) == f"irreducible, aperiodic and reversible, with spectral gap {found.spectral_gap:.3g}"


def test_a_cycle_is_periodic_and_has_a_direction():
    found = exact.chain_properties(cycle(3), np.full(3, 1 / 3))
    assert found == (True, False, False, 0.0, 0.0)
    assert str(found) == "irreducible, not aperiodic and not reversible, with spectral gap 0"
    # eigenvalues s + (1 - s)·exp(2πi/3)
    lazy = exact.chain_properties(cycle(3, stay=0.25), np.full(3, 1 / 3))
    assert lazy[:3] == (True, True, False)
    assert lazy.spectral_gap == pytest.approx(1 - abs(0.25 + 0.75 * np.exp(2j * np.pi / 3)))


@pytest.mark.parametrize("lengths, aperiodic", [((2, 4), False), ((2, 3), True), ((6, 9), False), ((4, 9), True)])
def test_the_period_is_the_common_divisor_of_all_cycles(lengths, aperiodic):
    """Two cycles through state 0, with no state that stays where it is."""
    size = sum(lengths) - 1
    matrix = np.zeros((size, size))
    first = 1
    for length in lengths:
        path = [0, *range(first, first + length - 1), 0]
        for i, j in itertools.pairwise(path):
            matrix[i, j] = 0.5 if i == 0 else 1.0
        first += length - 1
    law = np.where(np.arange(size) == 0, 1.0, 0.5)
    found = exact.chain_properties(matrix, law / law.sum())
    assert found.invariance_error < 1e-12
    assert (found.irreducible, found.aperiodic) == (True, aperiodic)
    assert found.spectral_gap == (pytest.approx(1 - second_eigenvalue(matrix)) if aperiodic else 0.0)


def test_separate_blocks_are_reducible():
    block = np.array([[0.5, 0.5], [0.5, 0.5]])
    found = exact.chain_properties(np.kron(np.eye(2), block), np.full(4, 0.25))
    assert found[:4] == (False, True, True, 0.0)
    # one block periodic, the other not: the chain is not aperiodic
    mixed = np.kron(np.diag([1.0, 0.0]), block) + np.kron(np.diag([0.0, 1.0]), cycle(2))
    assert exact.chain_properties(mixed, np.full(4, 0.25))[:4] == (False, False, True, 0.0)
    assert exact.chain_properties(np.eye(5), np.full(5, 0.2))[:4] == (False, True, True, 0.0)


def test_states_of_zero_probability_do_not_count():
    matrix = [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]
    found = exact.chain_properties(matrix, [0.5, 0.5, 0.0])
    assert found[:3] == (True, True, True)
    assert found.spectral_gap == pytest.approx(1.0)


def test_a_one_way_street_is_reducible():
    """State 1 is never left: both states have positive probability, and 0 cannot be reached from 1."""
    found = exact.chain_properties([[0.5, 0.5], [0.0, 1.0]], [0.5, 0.5])
    assert not found.irreducible and not found.reversible
    assert found.invariance_error == pytest.approx(0.5)


def test_metropolis_is_reversible_and_its_gap_is_that_of_numpy():
    energy = tw.as_energy(lambda x: jnp.array([0.0, 0.7, -0.4])[x[0]], tw.Categorical((1,), 3))
    uniform = lambda new, x: jnp.where(jnp.all(new == x), -jnp.inf, -jnp.log(2.0))
    matrix = exact.metropolis_matrix(energy, uniform)
    found = exact.chain_properties(matrix, exact.probabilities(energy))
    assert found[:3] == (True, True, True)
    assert found.spectral_gap == pytest.approx(1 - second_eigenvalue(matrix), abs=1e-5)
    assert found.invariance_error < 1e-6
    # the same matrix under another law
    wrong = exact.chain_properties(matrix, [0.3, 0.3, 0.4])
    assert not wrong.reversible and wrong.invariance_error > 0.05


def test_gibbs_is_reversible_in_random_order_only():
    law = exact.probabilities(SPINS)
    for scan, reversible in (("systematic", False), ("random", True)):
        matrix = tw.samplers.Gibbs(scan=scan).transition_matrix(SPINS)
        found = exact.chain_properties(matrix, law)
        assert found[:3] == (True, True, reversible)
        assert found.spectral_gap == pytest.approx(1 - second_eigenvalue(matrix), abs=1e-5)


@pytest.mark.parametrize("scan", ["systematic", "random"])
def test_large_and_small_spaces_give_the_same_gap(scan, monkeypatch):
    law = exact.probabilities(SPINS)
    matrix = tw.samplers.Gibbs(scan=scan).transition_matrix(SPINS)
    small = exact.chain_properties(matrix, law)
    monkeypatch.setattr(markov, "_DENSE", 4)
    assert exact.chain_properties(matrix, law).spectral_gap == pytest.approx(small.spectral_gap, rel=1e-6)
    independent = np.tile(np.asarray(law, float), (8, 1))
    assert exact.chain_properties(independent, law).spectral_gap == 1.0


def test_rare_moves_are_moves_and_rounding_on_the_diagonal_is_not():
    rare = 1e-30
    assert exact.chain_properties([[1 - rare, rare], [rare, 1 - rare]], [0.5, 0.5]).irreducible
    assert not exact.chain_properties([[1e-7, 1 - 1e-7], [1.0, -1e-7]], [0.5, 0.5]).aperiodic


@pytest.mark.parametrize(
    "matrix, law, sentence",
    [
        (np.eye(3), [0.5, 0.5], r"expected a matrix \(states, states\) and a law \(states,\), got \(3, 3\) and \(2,\)"),
        (np.ones((2, 3)), [0.5, 0.5], r"got \(2, 3\) and \(2,\)"),
        ([[0.5, 0.4], [0.5, 0.5]], [0.5, 0.5], "got a sum of 0.9 "),
        (np.eye(2), [0.5, 0.6], "got a sum of 1.1 "),
        ([[1.5, -0.5], [0.5, 0.5]], [0.5, 0.5], "a smallest entry of -0.5"),
        ([[np.nan, 1.0], [0.5, 0.5]], [0.5, 0.5], "expected probabilities"),
    ],
)
def test_bad_input_gets_one_sentence(matrix, law, sentence):
    with pytest.raises(ValueError, match=sentence):
        exact.chain_properties(matrix, law)
