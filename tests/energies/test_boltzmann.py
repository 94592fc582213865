"""The Boltzmann machine against sums over all its states, and its training."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg import energies as te
from thalweg.core import partition_trainable

KEY = jax.random.key(7)
EXACT = tw.objectives.ExactLikelihood()
DATA = jnp.asarray(np.random.default_rng(4).integers(0, 2, (64, 3)) * np.array([1, 1, 0]) + np.array([0, 0, 1]))
MASK = np.ones((5, 5), bool)
MASK[3:, 3:] = False  # no ties between the hidden units


def numbers(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def symmetric(seed, units, scale=0.8):
    upper = np.triu(scale * numbers(seed, units, units), 1)
    return upper + upper.T


MACHINES = {
    "all connected": lambda: te.BoltzmannMachine(3, 2, symmetric(1, 5), numbers(2, 5)),
    "hidden units apart": lambda: te.BoltzmannMachine(3, 2, symmetric(1, 5), numbers(2, 5), mask=MASK),
    "third order": lambda: te.BoltzmannMachine(
        3, 2, symmetric(1, 5), numbers(2, 5), triples=[(0, 1, 2), (1, 3, 4)], strengths=[1.5, -1.0]
    ),
    "no hidden units": lambda: te.BoltzmannMachine(4, 0, symmetric(1, 4), numbers(2, 4)),
}


@pytest.mark.parametrize("name", MACHINES)
def test_energies_are_those_of_the_formula(name):
    machine = MACHINES[name]()
    n, m = machine.visible, machine.hidden
    w = symmetric(1, n + m) * (np.pad(MASK, 0) if name == "hidden units apart" else 1)
    b = numbers(2, n + m)
    for v in machine.space.states(0, 4):
        for h in [jnp.zeros(0)] if m == 0 else tw.Binary(m).states(0, 4):
            x = np.concatenate([v, h])
            energy = -0.5 * x @ w @ x - b @ x
            if name == "third order":
                energy -= 1.5 * x[0] * x[1] * x[2] - 1.0 * x[1] * x[3] * x[4]
            np.testing.assert_allclose(machine(v, h), energy, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", MACHINES)
def test_free_energy_and_log_z_are_sums_over_all_states(name):
    machine = MACHINES[name]()
    hidden = [jnp.zeros(0)] if machine.hidden == 0 else tw.Binary(machine.hidden).states(0, 2**machine.hidden)
    every = machine.space.states(0, machine.space.size)
    free = [-jax.nn.logsumexp(jnp.array([-machine(v, h) for h in hidden])) for v in every]
    np.testing.assert_allclose(jax.vmap(machine)(every), free, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(machine.log_z, jax.nn.logsumexp(-jnp.array(free)), rtol=1e-5)
    np.testing.assert_allclose(sum(float(jnp.exp(machine.log_prob(v))) for v in every), 1, rtol=1e-5)


@pytest.mark.parametrize("name", MACHINES)
def test_gibbs_samples_all_units(name):
    machine = MACHINES[name]()
    assert len(machine.joint.blocks) == (4 if name in ("hidden units apart", "no hidden units") else 5)
    verdict = tw.check_sampler(tw.samplers.Gibbs(), machine.joint, key=KEY, chains=20_000, steps=3)
    assert verdict.passed, verdict
    assert "πT = π" in verdict.text
    hot = tw.samplers.ParallelTempering(tw.samplers.Gibbs(), [1.0, 3.0])
    verdict = tw.check_sampler(hot, machine.joint, key=KEY, chains=20_000, steps=3)
    assert verdict.passed, verdict


def test_mean_field_bounds_the_free_energy_and_is_exact_without_ties():
    apart, tied = MACHINES["hidden units apart"](), MACHINES["all connected"]()
    for v in apart.space.states(0, 8):
        np.testing.assert_allclose(apart.mean_field_energy(v), apart(v), rtol=1e-5, atol=1e-5)
        assert float(tied.mean_field_energy(v)) > float(tied(v)) - 1e-6
        mu = tied.mean_field(v)
        w, b = symmetric(1, 5), numbers(2, 5)
        field = b[3:] + np.asarray(v) @ w[:3, 3:] + w[3:, 3:] @ np.asarray(mu)
        np.testing.assert_allclose(mu, 1 / (1 + np.exp(-field)), atol=1e-4)


def gradient(objective, machine, key=KEY, state=None):
    trained, rest = partition_trainable(machine)
    return jax.grad(lambda part: objective.loss(key, eqx.combine(part, rest), None, state, DATA)[0])(trained)


@pytest.mark.parametrize("name", ["all connected", "hidden units apart", "third order"])
def test_stochastic_gradients_agree_with_enumeration(name):
    """Within 4 standard errors, with batch means over the correlated updates."""
    machine = MACHINES[name]()
    objective = tw.objectives.BoltzmannLikelihood("gibbs", hidden_steps=20)
    trained, rest = partition_trainable(machine)

    def one(state, key):
        loss = lambda part: objective.loss(key, eqx.combine(part, rest), None, state, DATA)
        slope, step = jax.grad(loss, has_aux=True)(trained)
        return step.state, slope

    state = objective.init(jax.random.key(0), machine, DATA)[1]
    drawn = jax.jit(lambda state: jax.lax.scan(one, state, jax.random.split(KEY, 600))[1])(state)
    for got, want in zip(jax.tree.leaves(drawn), jax.tree.leaves(gradient(EXACT, machine)), strict=True):
        means = np.asarray(got, np.float64)[200:].reshape(20, 20, -1).mean(1)
        error = means.std(0, ddof=1) / np.sqrt(20)
        assert np.all(np.abs(means.mean(0) - np.asarray(want).reshape(-1)) < 4 * error + 1e-6)


def test_the_centred_gradient_is_that_of_the_centred_parameters():
    machine = MACHINES["hidden units apart"]()
    objective = tw.objectives.Centred(EXACT, rate=1e-6)
    state = objective.init(KEY, machine, DATA)[1]
    mu = jnp.concatenate([state.moments.visible_mean, state.moments.hidden_mean])

    def build(w, b):
        at = lambda m: (m.joint.coupling.weights, m.joint.bias)
        coupled = eqx.tree_at(lambda m: m.joint.coupling.weights, machine, w)
        return eqx.tree_at(at, machine, (w, b - coupled.joint.coupling.field(mu)))

    w = machine.joint.coupling.weights
    b = machine.joint.bias + machine.joint.coupling.field(mu)
    slopes = jax.grad(lambda parts: EXACT.loss(KEY, build(*parts), None, None, DATA)[0])((w, b))
    _, change = jax.jvp(lambda parts: build(*parts), ((w, b),), (slopes,))
    own = gradient(objective, machine, state=state)
    np.testing.assert_allclose(own.joint.bias, change.joint.bias, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(own.joint.coupling.weights, change.joint.coupling.weights, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["exact", "mean_field", "gibbs", "centred"])
def test_a_machine_learns_from_zero_weights(method):
    """Three of the eight patterns of three bits."""
    objective = {
        "exact": tw.objectives.ExactLikelihood(),
        "mean_field": tw.objectives.BoltzmannLikelihood(),
        "gibbs": tw.objectives.BoltzmannLikelihood("gibbs"),
        "centred": tw.objectives.Centred(tw.objectives.BoltzmannLikelihood("gibbs")),
    }[method]
    data = jnp.tile(jnp.array([[1, 1, 0], [0, 0, 1], [1, 0, 1]]), (30, 1))
    zero = te.BoltzmannMachine(3, 2, np.zeros((5, 5)))
    run = tw.fit(zero, data, objective, optimizer=optax.sgd(0.2), steps=1000, batch_size=90, key=KEY)
    # the bound is -log 3 = -1.10, independent bits have -1.91
    assert float(jax.vmap(run.energy.log_prob)(data).mean()) > -1.35


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: te.BoltzmannMachine(3, 2), "expected weights or a key"),
        (lambda: te.BoltzmannMachine(3, 2, np.triu(np.ones((5, 5)), 1)), "expected symmetric couplings"),
        (lambda: te.BoltzmannMachine(3, 2, np.zeros((4, 4))), "expected weights between all 5 units"),
        (lambda: te.BoltzmannMachine(3, -1, np.zeros((4, 4))), "the number of hidden units to be a whole number"),
        (
            lambda: te.BoltzmannMachine(3, 2, np.zeros((5, 5)), triples=[(0, 1, 7)]),
            "expected triples of the units 0 to 4",
        ),
        (lambda: te.BoltzmannMachine(3, 2, np.zeros((5, 5)), triples=[(0, 1, 1)]), "three different units"),
        (lambda: te.BoltzmannMachine(20, 10, key=KEY).log_z, "expected at most 25 units for an exact log Z, got 20"),
        (lambda: te.BoltzmannMachine(2, 26, key=KEY)(jnp.zeros(2, int)), "expected at most 25 connected hidden units"),
        (lambda: tw.objectives.BoltzmannLikelihood("exactly"), "expected hidden to be one of"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()
