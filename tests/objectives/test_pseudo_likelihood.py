import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.core import DiscreteObjective, Energy
from thalweg.objectives import pseudo_likelihood
from thalweg.objectives.pseudo_likelihood import PseudoLikelihood, RatioMatching, log_ratios

EDGES = np.array(list(itertools.combinations(range(5), 2)))
WEIGHTS = jax.random.normal(jax.random.key(1), (10,)) * 0.5
BIAS = jax.random.normal(jax.random.key(2), (5,)) * 0.3
OBJECTIVES = {"pseudo": PseudoLikelihood(), "ratio": RatioMatching()}
ENERGIES = {
    "spins": tw.energies.Ising(tw.energies.Graph(EDGES, WEIGHTS), BIAS),
    "bits": tw.energies.Ising(tw.energies.Graph(EDGES, WEIGHTS), BIAS, tw.Binary(5)),
    "labels": tw.energies.Potts(
        tw.energies.Graph(EDGES[:4], WEIGHTS[:4]), 3, jax.random.normal(jax.random.key(3), (5, 3))
    ),
}


class Opaque(Energy):
    """The same energy without its logits."""

    inner: Energy

    @property
    def space(self):
        return self.inner.space

    def __call__(self, x):
        return self.inner(x)


@eqx.filter_jit
def at_states(objective, energy, states):
    """The loss of every state."""
    return jax.vmap(lambda x: objective.loss(jax.random.key(0), energy, None, None, x[None])[0])(states)


@eqx.filter_jit
def expected(objective, energy, law, states):
    """The exact expectation of the loss under ``law``, and its gradient."""
    return eqx.filter_value_and_grad(lambda e: jnp.sum(law * at_states(objective, e, states)))(energy)


def whole(name):
    energy = ENERGIES[name]
    states = energy.space.states(0, energy.space.size)
    return energy, states, np.asarray(tw.exact.probabilities(energy))


def leaves(tree):
    return jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))


@pytest.mark.parametrize("name", ENERGIES)
def test_log_ratios_are_those_of_the_probabilities(name):
    energy, states, law = whole(name)
    levels = list(energy.space.levels)
    number = {tuple(state): index for index, state in enumerate(np.asarray(states).tolist())}
    compute = eqx.filter_jit(log_ratios)
    ratios = compute(energy, energy.space, states[7])
    assert np.allclose(ratios, compute(Opaque(energy), energy.space, states[7]), atol=1e-5)
    for site, step in itertools.product(range(5), range(1, len(levels))):
        x = np.asarray(states[7]).tolist()
        x[site] = levels[(levels.index(x[site]) + step) % len(levels)]
        assert np.isclose(ratios[site, step - 1], np.log(law[number[tuple(x)]] / law[7]), atol=1e-4)


@pytest.mark.parametrize("kind", OBJECTIVES)
@pytest.mark.parametrize("name", ["spins", "labels"])
def test_both_paths_agree_and_the_gradient_vanishes_at_the_truth_alone(name, kind):
    energy, states, law = whole(name)
    objective = OBJECTIVES[kind]
    value, gradient = expected(objective, energy, law, states)
    plain_value, plain_gradient = expected(objective, Opaque(energy), law, states)
    assert np.allclose(value, plain_value, rtol=1e-5)
    for left, right in zip(leaves(gradient), leaves(plain_gradient), strict=True):
        assert np.allclose(left, right, atol=1e-5)
        assert np.max(np.abs(left)) < 1e-5
    moved = energy.bias.reshape(-1).at[3].add(0.3).reshape(energy.bias.shape)
    other = eqx.tree_at(lambda e: e.bias, energy, moved)
    more, gradient = expected(objective, other, law, states)
    assert more > value + 1e-3
    assert max(float(np.max(np.abs(leaf))) for leaf in leaves(gradient)) > 5e-3
    # away from the truth the two paths have to agree as well
    _, plain_gradient = expected(objective, Opaque(other), law, states)
    for left, right in zip(leaves(gradient), leaves(plain_gradient), strict=True):
        assert np.allclose(left, right, atol=1e-5)


@pytest.mark.parametrize("name, scale", [("spins", 2.0), ("bits", 1.0)])
def test_closed_forms_of_the_pairwise_field(name, scale):
    energy, states, _ = whole(name)
    matrix = np.zeros((5, 5), np.float32)
    matrix[EDGES[:, 0], EDGES[:, 1]] = matrix[EDGES[:, 1], EDGES[:, 0]] = np.asarray(WEIGHTS)
    sign = np.where(np.asarray(states) > 0, 1, -1)
    against = -scale * sign * (np.asarray(states) @ matrix + np.asarray(BIAS))
    chance = 1 / (1 + np.exp(-against))  # of each site to be the other way
    pseudo = -np.log(1 - chance).sum(axis=1)
    ratio = (chance**2).sum(axis=1)
    assert np.allclose(at_states(OBJECTIVES["pseudo"], energy, states), pseudo, rtol=1e-4)
    assert np.allclose(at_states(OBJECTIVES["ratio"], energy, states), ratio, rtol=1e-4)


def test_on_labels_pseudo_likelihood_has_the_conditionals_and_ratio_matching_the_pairs():
    energy, states, law = whole("labels")
    rows, places = np.asarray(states), 3 ** np.arange(4, -1, -1)
    pseudo, ratio = np.zeros(len(rows)), np.zeros(len(rows))
    for site in range(5):
        # the probabilities of the three states that differ at this site, (states, labels)
        same = rows @ places - rows[:, site] * places[site]
        chances = law[same[:, None] + np.arange(3) * places[site]]
        own = np.take_along_axis(chances, rows[:, site, None], axis=1)
        pseudo -= np.log(own[:, 0] / chances.sum(axis=1))
        # g(p/p')² = (p'/(p + p'))², but for p' = p
        ratio += ((chances / (own + chances)) ** 2).sum(axis=1) - 0.25
    assert np.allclose(at_states(OBJECTIVES["pseudo"], energy, states), pseudo, rtol=1e-4)
    assert np.allclose(at_states(OBJECTIVES["ratio"], energy, states), ratio, rtol=1e-4)


def test_rows_taken_a_few_at_a_time_give_the_same(monkeypatch, key):
    energy, states, _ = whole("labels")
    objective, batch = OBJECTIVES["ratio"], states[:10]

    def gradient():
        return eqx.filter_jit(eqx.filter_grad(lambda e: objective.loss(key, e, None, None, batch)[0]))(Opaque(energy))

    at_once = gradient()
    monkeypatch.setattr(pseudo_likelihood, "_NUMBERS", 3 * 5 * 5 * 2)
    by_parts = gradient()
    assert np.max(np.abs(by_parts.inner.bias)) > 0
    for left, right in zip(leaves(at_once), leaves(by_parts), strict=True):
        assert np.allclose(left, right, atol=1e-6)


def test_the_metric_is_the_pseudo_likelihood_of_both(key):
    energy, states, _ = whole("spins")
    value = jnp.mean(at_states(OBJECTIVES["pseudo"], energy, states))
    for objective in OBJECTIVES.values():
        _, step = eqx.filter_jit(objective.loss)(key, energy, None, None, states)
        assert np.allclose(step.metrics["pseudo_log_likelihood"], -value, rtol=1e-5)


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_bad_inputs_get_one_sentence(kind, key):
    objective = OBJECTIVES[kind]
    assert isinstance(objective, DiscreteObjective)
    assert objective.minimised_at_truth
    name = type(objective).__name__
    gaussian = tw.energies.Gaussian(jnp.zeros(2), jnp.eye(2))
    with pytest.raises(ValueError, match=f"Binary, Spin or Categorical for {name}, got one on Real.*score matching"):
        objective.init(key, gaussian, jnp.zeros((3, 2)))
    with pytest.raises(ValueError, match="does not know its space; give it one by as_energy"):
        objective.init(key, lambda x: x.sum(), jnp.zeros((3, 2), int))
    with pytest.raises(ValueError, match=r"expected points of Spin\(shape=\(5,\)\) in the batch, got \[0 0 0 0 0\]"):
        objective.init(key, ENERGIES["spins"], jnp.zeros((3, 5), int))
    with pytest.raises(ValueError, match=r"shape \(n, 5\), got \(3, 4\)"):
        objective.init(key, ENERGIES["spins"], jnp.ones((3, 4), int))
