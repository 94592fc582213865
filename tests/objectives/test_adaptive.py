"""The model against a frozen copy of itself: what is frozen, when, and the identities with maximum likelihood."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg import objectives
from thalweg.core import Energy, Objective, combine, partition_trainable
from thalweg.objectives import AdaBregman, AdaNCE, MaximumLikelihood
from thalweg.samplers import MALA, Langevin, ReplayBuffer, from_data, persistent

MODEL = tw.energies.Gaussian(jnp.array([0.3, -0.2]), jnp.array([[1.5, 0.4], [0.4, 0.8]]))
MOVED = tw.energies.Gaussian(jnp.array([0.5, -0.4]), jnp.array([[1.2, 0.3], [0.3, 0.9]]))
SPINS = tw.energies.Ising(jnp.array([[0.0, 0.6, -0.4], [0.6, 0.0, 0.5], [-0.4, 0.5, 0.0]]), jnp.array([0.3, -0.2, 0.1]))
BATCH = 1.0 + jax.random.normal(jax.random.key(5), (30, 2))
PSIS = {
    "logistic": objectives.Logistic(),
    "KL": objectives.KullbackLeibler(),
    "squared": objectives.Squared(),
    "Itakura-Saito": objectives.ItakuraSaito(),
    "power": objectives.Power(0.7),
    "custom": objectives.Custom(lambda u: (u - 2) ** 4 + u**2),
}


@functools.cache
def network():
    return tw.energies.MLP(2, width=8, depth=2, spectral_norm=True, key=jax.random.key(3))


@eqx.filter_jit
def evaluate(objective, energy, state, batch, key):
    """The loss, the gradient in what is trained, and the step."""
    trained, fixed = partition_trainable(energy)

    @eqx.filter_value_and_grad(has_aux=True)
    def loss(trained):
        return objective.loss(key, combine(trained, fixed), None, state, batch)

    (value, step), gradient = loss(trained)
    return value, gradient, step


def leaves(tree):
    return jax.tree.leaves(eqx.filter(tree, eqx.is_array))


def assert_multiple(gradient, factor, other, rtol=1e-5):
    """``gradient = factor·other`` to ``rtol`` of the largest number of all."""
    ours, theirs = (np.concatenate([np.ravel(leaf) for leaf in leaves(tree)]) for tree in (gradient, other))
    assert np.max(np.abs(theirs)) > 1e-3
    assert np.max(np.abs(ours - factor * theirs)) < rtol * abs(factor) * np.max(np.abs(theirs))


CHAINS = {
    "langevin": (MODEL, Langevin(0.1), 3, ReplayBuffer(100, 0.2), BATCH),
    "network": (network, Langevin(0.1), 2, persistent(), BATCH),
    "spins": (SPINS, tw.samplers.Gibbs(), 2, from_data(), jnp.ones((20, 3), int)),
}


@pytest.mark.parametrize("name", CHAINS)
def test_at_interval_one_the_gradient_is_half_of_maximum_likelihoods(name, key):
    energy, kernel, steps, start, batch = CHAINS[name]
    energy = energy() if energy is network else energy
    likelihood = MaximumLikelihood(kernel, steps, start)
    _, right, step = evaluate(likelihood, energy, likelihood.init(key, energy, batch)[1], batch, key)
    for reuse in (False, True):
        objective = AdaNCE(1, kernel, steps, start, reuse)
        value, ours, told = evaluate(objective, energy, objective.init(key, energy, batch)[1], batch, key)
        assert_multiple(ours, 0.5, right)
        assert float(value) == pytest.approx(2 * np.log(2), rel=1e-5)
        # on the same samples, with the same metrics
        for metric, value in step.metrics.items():
            assert np.allclose(told.metrics[metric], value, rtol=1e-4, atol=1e-5)
        assert float(told.metrics["log_ratio_data"]) == pytest.approx(0.0, abs=1e-5)
        assert float(told.metrics["effective_share"]) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("name", PSIS)
def test_at_interval_one_the_gradient_is_psis_curvature_times_that(name, key):
    energy, kernel, steps, start, batch = CHAINS["langevin"]
    likelihood = MaximumLikelihood(kernel, steps, start)
    _, right, _ = evaluate(likelihood, energy, likelihood.init(key, energy, batch)[1], batch, key)
    objective = AdaBregman(PSIS[name], 1, kernel, steps, start)
    _, ours, _ = evaluate(objective, energy, objective.init(key, energy, batch)[1], batch, key)
    assert_multiple(ours, float(PSIS[name].curvature), right)


@pytest.mark.slow
@pytest.mark.parametrize("reuse", [False, True])
def test_later_updates_contrast_with_the_model_as_it_was_frozen(reuse, key):
    """The negatives are read from persistent chains: the memory of the start after the update."""
    first, second = jax.random.split(key)
    for objective in (
        AdaNCE(4, Langevin(0.1), 2, persistent(), reuse),
        AdaBregman(PSIS["squared"], 4, Langevin(0.1), 2, persistent, reuse),
    ):
        _, _, step = evaluate(objective, MODEL, objective.init(key, MODEL, BATCH)[1], BATCH, first)
        value, ours, later = evaluate(objective, MOVED, step.state, BATCH, second)
        assert np.array_equal(later.state.memory.state.x, step.state.memory.state.x) == reuse
        negatives = later.state.memory.state.x

        def by_hand(energy, objective=objective, negatives=negatives):
            data, samples = (jnp.exp(jax.vmap(MODEL)(x) - jax.vmap(energy)(x)) for x in (BATCH, negatives))
            if isinstance(objective, AdaNCE):
                return jnp.mean(jnp.log1p(samples)) + jnp.mean(jnp.log1p(1 / data))
            return jnp.mean(samples**2 / 2) - jnp.mean(data)

        right, slope = eqx.filter_jit(eqx.filter_value_and_grad(by_hand))(MOVED)
        assert float(value) == pytest.approx(float(right), rel=1e-5)
        assert_multiple(ours, 1.0, slope)
        assert 0.3 < later.metrics["effective_share"] < 0.999
        gap = np.mean(jax.vmap(MODEL)(negatives) - jax.vmap(MOVED)(negatives))
        assert float(later.metrics["log_ratio_samples"]) == pytest.approx(float(gap), rel=1e-3)


def test_the_logistic_ada_bregman_is_ada_nce_at_every_update(key):
    pair = (AdaNCE(3, Langevin(0.1), 2, persistent()), AdaBregman(None, 3, Langevin(0.1), 2, persistent()))
    states = [objective.init(key, MODEL, BATCH)[1] for objective in pair]
    for energy in (MODEL, MOVED):
        told = [evaluate(o, energy, s, BATCH, key) for o, s in zip(pair, states, strict=True)]
        assert float(told[0][0]) == pytest.approx(float(told[1][0]), rel=1e-5)
        assert_multiple(told[0][1], 1.0, told[1][1])
        states = [step.state for _, _, step in told]


@pytest.mark.slow
def test_the_model_is_frozen_every_interval_and_whole(key):
    """Buffers too: the frozen network gives the energies that the network gave at the freezing, not later."""
    objective = AdaNCE(3, Langevin(0.1), 1, persistent())
    energy, state = network(), objective.init(key, network(), BATCH)[1]
    held = sum(leaf.nbytes for leaf in leaves(network()))
    assert sum(leaf.nbytes for leaf in leaves(state.arrays)) == held
    assert sum(leaf.nbytes for leaf in leaves(state)) == held + BATCH.nbytes + 4  # the chains and a counter
    frozen_at = []
    for number in range(7):
        before = jax.vmap(energy)(BATCH)
        _, gradient, step = evaluate(objective, energy, state, BATCH, jax.random.fold_in(key, number))
        state = step.state
        past = eqx.combine(state.arrays, eqx.filter(energy, eqx.is_array, inverse=True))
        same = np.allclose(jax.vmap(past)(BATCH), before, rtol=1e-5)
        assert same == (number % 3 == 0)
        frozen_at.append(np.asarray(state.arrays.layers[0].weight.array))
        energy = tw.core.refresh(eqx.apply_updates(energy, jax.tree.map(lambda leaf: -0.3 * leaf, gradient)))
    assert [not np.array_equal(a, b) for a, b in itertools.pairwise(frozen_at)] == [False, False, True] * 2
    assert int(state.updates) == 7


class Counted(Langevin):
    """A kernel that counts its steps at run time, not at compile time."""

    def step(self, key, energy, state):
        jax.debug.callback(lambda: STEPS.append(1))
        return super().step(key, energy, state)


STEPS = []


@pytest.mark.parametrize(("reuse", "draws"), [(False, 6), (True, 2)])
def test_with_reuse_chains_run_once_an_interval(reuse, draws, key):
    objective = AdaNCE(3, Counted(0.1), 5, ReplayBuffer(50), reuse)
    state = objective.init(key, MODEL, BATCH)[1]
    jax.effects_barrier()
    STEPS.clear()
    for number in range(6):
        _, _, step = evaluate(objective, MODEL, state, BATCH, jax.random.fold_in(key, number))
        if reuse:
            new = not np.array_equal(step.state.negatives.x, state.negatives.x)
            assert new == (number % 3 == 0)
        state = step.state
    jax.effects_barrier()
    assert len(STEPS) == 5 * draws


class Traced(Energy):
    """A Gaussian that counts how often it is traced."""

    mean: jax.Array
    space: tw.Real = eqx.field(static=True, default=tw.Real(2))

    def __call__(self, x):
        TRACES.append(1)
        return 0.5 * jnp.sum((x - self.mean) ** 2)


TRACES = []


@pytest.mark.parametrize("reuse", [False, True])
def test_neither_freezing_nor_another_interval_compiles_anything(reuse, key):
    optimizer, lengths, means = optax.sgd(0.1), [], []
    for interval, steps in ((2, 1), (2, 5), (3, 5), (1, 5)):
        objective = AdaNCE(interval, Langevin(0.1), 2, persistent(), reuse)
        energy = Traced(jnp.zeros(2))
        before = len(TRACES)
        objective.init(key, energy, BATCH)
        at_init = len(TRACES) - before
        run = tw.fit(energy, BATCH, objective, optimizer=optimizer, steps=steps, batch_size=30, key=key)
        lengths.append(len(TRACES) - before - 2 * at_init)
        means.append(run.energy.mean.tolist())
    assert lengths[0] > 0
    assert lengths[1:] == [0, 0, 0]
    assert means[1] != means[2] != means[3]


class Later(Objective):
    """An objective one update after freezing, when the model may have moved."""

    inner: Objective

    def init(self, key, energy, batch):
        params, state = self.inner.init(key, energy, batch)
        return params, self.inner.loss(key, energy, params, state, batch)[1].state

    def loss(self, key, energy, params, state, batch):
        return self.inner.loss(key, energy, params, state, batch)


@pytest.mark.parametrize(
    "objective",
    [
        pytest.param(AdaNCE(1, MALA(0.3), 2, from_data()), id="at once", marks=pytest.mark.slow),
        pytest.param(Later(AdaNCE(5, MALA(0.3), 2, from_data())), id="later"),
        pytest.param(Later(AdaBregman(PSIS["squared"], 5, MALA(0.3), 2, from_data())), marks=pytest.mark.slow),
    ],
)
def test_the_truth_is_where_the_gradient_vanishes(objective, key):
    verdict = tw.check_objective(objective, key=key, energy=MODEL, batches=200)
    assert verdict.passed, verdict.text
    assert verdict.detectable < 0.25


@pytest.mark.slow
@pytest.mark.parametrize(("interval", "reuse"), [(1, False), (5, False), (5, True)])
def test_a_gaussian_is_learned(interval, reuse, key):
    data = MODEL.sample(key, (5000,))
    objective = AdaNCE(interval, MALA(0.5), 10, persistent(), reuse)
    optimizer = optax.adam(optax.cosine_decay_schedule(0.02, 1000))
    energy = tw.energies.Gaussian(jnp.zeros(2), jnp.eye(2))
    run = tw.fit(energy, data, objective, optimizer=optimizer, steps=1000, batch_size=500, key=key)
    assert float(tw.exact.kl(MODEL, run.energy)) < 0.01


def test_an_overflow_is_kept_and_reported(key):
    objective = AdaBregman(objectives.Squared(), 2, Langevin(0.1), 1, persistent())
    _, _, step = evaluate(objective, MODEL, objective.init(key, MODEL, BATCH)[1], BATCH, key)
    assert step.metrics["not_finite"] == 0
    deep = tw.energies.Gaussian(jnp.array([40.0, 0.0]), 1.0 * jnp.eye(2))
    step = step.state._replace(arrays=eqx.filter(deep, eqx.is_array))
    value, _, told = evaluate(objective, MODEL, step, BATCH, key)
    assert not np.isfinite(value)
    assert told.metrics["not_finite"] > 0


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: AdaNCE(0), "expected interval to be a whole number >= 1, got 0; 1 freezes at every update"),
        (lambda: AdaNCE(jnp.array(1.5)), "expected interval to be a whole number >= 1, got 1.5"),
        (lambda: AdaBregman(objectives.Squared(), -3), "expected interval to be a whole number >= 1, got -3"),
        (lambda: AdaNCE(steps=0), "expected steps to be a whole number >= 1, got 0"),
        (lambda: AdaBregman(jnp.sin), "expected a convex psi"),
        (
            lambda: AdaNCE(reuse=True).init(jax.random.key(0), SPINS, jnp.ones((4, 3), int)),
            "expected a continuous space for Langevin",
        ),
        (lambda: AdaNCE(start=ReplayBuffer(3)).init(jax.random.key(0), MODEL, BATCH), "a buffer at least as large"),
    ],
)
def test_bad_input_gets_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_the_changes_of_log_z_sum_to_what_it_has_changed_by(key):
    data = jax.random.normal(key, (2000, 2)) @ jnp.array([[0.4, 0.1], [0.0, 0.6]])
    start = tw.energies.Gaussian(jnp.zeros(2), jnp.eye(2))
    # chains that keep up with the model: those that lag behind it see too large a change
    objective = AdaNCE(4, tw.samplers.HMC(0.2, 6), 20, persistent())
    # the last update freezes and then moves by nearly nothing
    optimizer = optax.adam(optax.cosine_decay_schedule(0.015, 401))
    run = tw.fit(start, data, objective, optimizer=optimizer, steps=401, batch_size=400, key=key)
    changes = run.history["log_z_change"]
    assert changes[0] == 0 and np.all(changes[np.arange(401) % 4 != 0] == 0)
    assert float(run.energy.log_z - start.log_z) < -1
    assert float(np.sum(changes)) == pytest.approx(float(run.energy.log_z - start.log_z), abs=0.05)
