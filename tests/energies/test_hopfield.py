"""Hopfield networks: the storage rules by their definitions, recall against one unit after another, never uphill."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.energies import Hopfield, Matrix, hebb, pseudo_inverse, storkey

RULES = {"hebb": hebb, "storkey": storkey, "pseudo_inverse": pseudo_inverse}


def random_patterns(seed, count, units):
    return np.random.default_rng(seed).choice([-1, 1], (count, units))


def random_network(seed, units, bias=0.0):
    """Weights without any structure, whose fields have no ties."""
    weights = np.random.default_rng(seed).normal(size=(units, units))
    return Hopfield((weights + weights.T) * (1 - np.eye(units)), bias)


def one_by_one(network, probe, held=None, sweeps=100, orders=None):
    """Asynchronous recall as it is defined, in double precision: the state, the energies after every unit, sweeps."""
    weights, bias = np.asarray(network.weights, float), np.asarray(network.bias, float)
    x, energies, count = np.array(probe, float), [], 0
    for sweep in range(sweeps):
        before = x.copy()
        for i in range(len(x)) if orders is None else orders[sweep]:
            field = weights[i] @ x + bias[i]
            if held is None or not held[i]:
                x[i] = np.sign(field) if abs(field) > 1e-6 else (x[i] or 1.0)
            energies.append(-0.5 * x @ weights @ x - bias @ x)
        if np.array_equal(before, x):
            break
        count += 1
    return x, np.array(energies), count


# storage


def test_hebb_is_the_mean_of_outer_products():
    patterns = random_patterns(0, 7, 12)
    expected = sum(np.outer(pattern, pattern) for pattern in patterns) / 12
    np.testing.assert_allclose(hebb(patterns).weights, expected * (1 - np.eye(12)), atol=1e-6)


def test_storkey_is_its_double_sum():
    """With the fields h_ij written out, which leave out both units."""
    patterns, n = random_patterns(1, 5, 9), 9
    weights = np.zeros((n, n))
    for x in patterns:
        new = weights.copy()
        for i in range(n):
            for j in range(n):
                if i != j:
                    ij = sum(weights[i, k] * x[k] for k in range(n) if k not in (i, j))
                    ji = sum(weights[j, k] * x[k] for k in range(n) if k not in (i, j))
                    new[i, j] += (x[i] * x[j] - x[i] * ji - ij * x[j]) / n
        weights = new
    np.testing.assert_allclose(storkey(patterns).weights, weights, atol=1e-6)
    # the fields with all units, as it is often written, are another rule
    wrong = np.zeros((n, n))
    for x in patterns:
        wrong += (np.outer(x, x) - np.outer(x, wrong @ x) - np.outer(wrong @ x, x)) / n
        np.fill_diagonal(wrong, 0)
    assert np.abs(wrong - weights).max() > 1e-2


def test_the_pseudo_inverse_projects_on_the_span_of_the_patterns():
    patterns = random_patterns(2, 6, 15)
    expected = np.linalg.pinv(patterns) @ patterns
    np.testing.assert_allclose(pseudo_inverse(patterns).weights, expected - np.diag(np.diag(expected)), atol=1e-6)
    fields = np.asarray(pseudo_inverse(patterns).weights) @ patterns.T
    np.testing.assert_allclose(fields.T, (1 - np.diag(expected)) * patterns, atol=1e-5)


def test_the_rules_hold_what_they_are_known_to_hold():
    """Of 60 patterns in 100 units Hebb holds next to nothing and the pseudo-inverse all; Storkey holds 20, Hebb not."""
    many, few = random_patterns(3, 60, 100), random_patterns(4, 20, 100)

    def kept(rule, patterns):
        return float(np.mean(np.all(np.asarray(rule(patterns).recall(patterns).states) == patterns, axis=1)))

    assert kept(pseudo_inverse, many) == 1.0 and kept(hebb, many) < 0.1
    assert kept(storkey, few) > 0.8 > 0.5 > kept(hebb, few)


# recall


@pytest.mark.parametrize("bias", [0.0, 0.7])
@pytest.mark.parametrize("units", [5, 32, 150])  # less than a block, a block, and four and a part
def test_recall_is_that_of_one_unit_after_another(units, bias):
    network = random_network(units, units, bias)
    probes = random_patterns(5, 6, units)
    recall = network.recall(probes)
    for number, probe in enumerate(probes):
        state, energies, sweeps = one_by_one(network, probe)
        np.testing.assert_array_equal(recall.states[number], state)
        assert int(recall.steps[number]) == sweeps and bool(recall.converged[number])
        assert float(recall.energies[number]) == pytest.approx(energies[-1], rel=1e-4)
        assert np.all(np.diff(energies) <= 1e-9)


@pytest.mark.parametrize("name", RULES)
def test_no_step_of_asynchronous_recall_raises_the_energy(name, key):
    """Random probes and patterns, sweep by sweep, in the order of the units and in random ones; ties are common."""
    key_probes, key_order = jax.random.split(key)
    network = RULES[name](random_patterns(6, 12, 50))
    start = jax.random.choice(key_probes, jnp.array([-1, 0, 1]), (200, 50))
    for orders in (None, key_order):
        states, last = start, np.asarray(jax.vmap(network)(start))
        assert last.std() > 0.1
        for step in range(12):
            order = None if orders is None else jax.random.fold_in(orders, step)
            recall = network.recall(states, steps=1, key=order)
            now, moved = np.asarray(recall.energies), np.asarray(recall.steps) > 0
            assert np.all(now <= last + 1e-5)
            assert np.all(now[moved & (step > 0)] < last[moved & (step > 0)])
            states, last = recall.states, now
        assert bool(recall.converged.all())


def test_a_fixed_point_is_lower_than_its_neighbours():
    network = hebb(random_patterns(7, 10, 60))
    states = network.recall(random_patterns(8, 40, 60)).states
    flips = 1 - 2 * jnp.eye(60, dtype=int)
    around = jax.vmap(lambda x: jax.vmap(network)(x * flips))(states)
    assert bool(jnp.all(around >= jax.vmap(network)(states)[:, None] - 1e-5))


def test_random_orders_end_in_other_fixed_points(key):
    network, probes = hebb(random_patterns(9, 10, 60)), random_patterns(10, 50, 60)
    keys = jax.random.split(key)
    first, second = (network.recall(probes, key=each) for each in keys)
    assert bool(first.converged.all()) and bool(jnp.any(first.states != second.states))
    assert bool(jnp.all(network.recall(probes, key=keys[0]).states == first.states))


def test_synchronous_recall_finds_cycles_of_two():
    pair = Hopfield(np.array([[0.0, 1.0], [1.0, 0.0]]))
    recall = pair.recall([[1, -1], [1, 1]], update="synchronous")
    assert recall.period.tolist() == [2, 1] and recall.converged.tolist() == [False, True]
    assert recall.states[1].tolist() == [1, 1]
    # against plain iteration; without ties every probe ends in one of the two, by Goles and Olivos (1981)
    weights = hebb(random_patterns(11, 9, 40)).weights + 0.01 * random_network(11, 40).weights
    network, probes = Hopfield(weights, 0.03), random_patterns(12, 100, 40)
    recall = network.recall(probes, update="synchronous", steps=500)
    assert set(recall.period.tolist()) == {1, 2}
    weights, bias = np.asarray(network.weights), np.asarray(network.bias)
    step = lambda x: np.where(x @ weights + bias > 0, 1, -1)
    ends = np.asarray(recall.states)
    once = step(ends)
    assert np.array_equal(np.all(once == ends, axis=1), np.asarray(recall.converged))
    assert np.array_equal(step(once), ends)
    few = step(step(step(probes)))
    np.testing.assert_array_equal(network.recall(probes, update="synchronous", steps=3).states[:5], few[:5])


def test_too_few_steps_are_said():
    recall = hebb(random_patterns(13, 20, 100)).recall(random_patterns(14, 30, 100), steps=1)
    assert set(recall.period.tolist()) == {0} and not bool(recall.converged.any())


def test_half_a_pattern_is_completed_and_held_units_stay():
    patterns = random_patterns(15, 8, 200)
    half = np.arange(200) < 100
    network = hebb(patterns)
    probes = np.where(half, patterns, 0)
    completed = network.recall(probes, held=half)
    np.testing.assert_array_equal(completed.states, patterns)
    # held at values that the network would change
    noise = random_patterns(16, 8, 200)
    held = np.random.default_rng(17).uniform(size=(8, 200)) < 0.3
    recall = network.recall(noise, held=held)
    states = np.asarray(recall.states)
    assert np.array_equal(states[held], noise[held]) and not np.array_equal(states, noise)
    for number in range(8):
        np.testing.assert_array_equal(states[number], one_by_one(network, noise[number], held[number])[0])
    stays = network.recall(noise, held=np.ones(200, bool))
    assert np.array_equal(stays.states, noise) and stays.steps.tolist() == [0] * 8


def test_a_unit_without_a_field_stays_and_an_unknown_one_becomes_one():
    silent = Hopfield(np.zeros((3, 3)))
    for update in ("asynchronous", "synchronous"):
        assert silent.recall([[-1, 1, 0]], update=update).states.tolist() == [[-1, 1, 1]]


def test_a_field_of_rounding_errors_is_none():
    """Two patterns make ties at every second unit or so, and thirds are no binary fractions."""
    patterns = random_patterns(18, 2, 99)
    network, probe = hebb(patterns), random_patterns(19, 1, 99)
    fields = np.rint(patterns.T @ (patterns @ probe[0]) - 2 * probe[0])
    assert np.sum(fields == 0) > 0
    recall = network.recall(probe, steps=1)
    np.testing.assert_array_equal(recall.states[0], one_by_one(network, probe[0], sweeps=1)[0])


# as an energy


def test_it_is_the_ising_model_of_its_weights(key):
    network = random_network(20, 6, 0.2)
    ising = tw.energies.Ising(network.weights, network.bias)
    assert float(tw.exact.log_z(network)) == pytest.approx(float(tw.exact.log_z(ising)), abs=1e-4)
    law = np.asarray(tw.exact.probabilities(network), float)
    matrix = np.asarray(tw.samplers.Gibbs().transition_matrix(network), float)
    np.testing.assert_allclose(law @ matrix, law, atol=1e-6)
    chains = tw.sample(network, tw.samplers.Gibbs(), network.space.noise(key, (4,)), key=key, draws=3)
    assert chains.draws.shape == (4, 3, 6)
    assert tw.clamp(network, np.arange(6) < 2, np.ones(6, int)).space == tw.Spin(4)


def test_cold_gibbs_sampling_is_recall(key):
    """Of the same units in the same order, where no field is small."""
    network, probes = random_network(21, 30), random_patterns(22, 5, 30)
    cold = tw.energies.tempered(network, 1e-3)
    chains = tw.sample(cold, tw.samplers.Gibbs(), jnp.asarray(probes), key=key, draws=1, burn_in=30)
    assert np.array_equal(chains.draws[:, 0], network.recall(probes).states)


def test_recall_works_under_jit_and_with_a_mask(key):
    mask = np.abs(np.subtract.outer(np.arange(8), np.arange(8))) == 1
    network = Hopfield(Matrix(np.ones((8, 8)) - np.eye(8), mask))
    probes = random_patterns(23, 4, 8)
    states = eqx.filter_jit(lambda network, probes: network.recall(probes).states)(network, jnp.asarray(probes))
    assert np.array_equal(states, network.recall(probes).states)
    assert len(network.blocks) == 2 and float(network.weights.sum()) == 14.0


PATTERNS = random_patterns(24, 3, 10)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Hopfield(np.triu(np.ones((3, 3)), 1)), "expected symmetric couplings with a zero diagonal"),
        (lambda: hebb([[1, -1], [1, 0]]), "expected patterns of -1 and 1, got 0 in row 1, column 1"),
        (lambda: storkey(np.array([[1.0, np.nan]])), "got nan in row 0, column 1"),
        (lambda: hebb([1, -1]), r"expected patterns of shape \(n, units\), got \(2,\)"),
        (lambda: hebb([[1, -1], [1]]), "ragged"),
        (lambda: hebb([["a", "b"]]), "expected patterns as rows of -1 and 1, got"),
        (lambda: hebb(np.ones((2, 1))), "at least 2 units"),
        (lambda: jax.jit(lambda x: hebb(x).bias)(PATTERNS), "traced"),
        (lambda: pseudo_inverse(np.sign(np.eye(4) - 0.5)), "expected fewer patterns than the 4 units.* got 4"),
        (lambda: pseudo_inverse(np.concatenate([PATTERNS, -PATTERNS[:1]])), "linearly independent .* got 4 of rank 3"),
        (lambda: hebb(PATTERNS).recall(PATTERNS[:, :4]), r"expected probes of shape \(n, 10\), got \(3, 4\)"),
        (lambda: hebb(PATTERNS).recall(2 * PATTERNS), "expected probes of -1, 0 and 1, got -?2 in row 0, column 0"),
        (lambda: hebb(PATTERNS).recall(PATTERNS, held=[True]), "expected a boolean mask `held`"),
        (lambda: hebb(PATTERNS).recall(0 * PATTERNS, held=np.arange(10) > 8), "got 0 in row 0, column 9"),
        (lambda: hebb(PATTERNS).recall(PATTERNS, update="parallel"), "expected update to be one of 'asynchronous'"),
        (lambda: hebb(PATTERNS).recall(PATTERNS, steps=0), "expected steps to be a whole number >= 1"),
        (lambda: hebb(PATTERNS).recall(PATTERNS, key=7), "expected a random key"),
        (
            lambda: hebb(PATTERNS).recall(PATTERNS, update="synchronous", key=jax.random.key(0)),
            "expected no key for synchronous",
        ),
    ],
)
def test_bad_input_is_refused_in_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
