"""The gradient through the sampler, and chains of several points, in maximum likelihood."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.core import Info, Kernel, freeze
from thalweg.objectives.chains import run_chains
from thalweg.objectives.likelihood import MaximumLikelihood
from thalweg.samplers.states import Position

WELL = tw.energies.DoubleWell(2.0)
MODEL = tw.energies.Gaussian(jnp.array([0.3, -0.2]), jnp.array([[1.5, 0.4], [0.4, 0.8]]))
BATCH = 1.0 + jax.random.normal(jax.random.key(5), (30, 2))
STEP = 0.2


@eqx.filter_jit
def evaluate(objective, energy, key, state=None):
    def loss(energy):
        return objective.loss(key, energy, None, state, BATCH)

    (value, step), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(energy)
    return value, step, gradient


def assert_same(first, second, atol=1e-6):
    for left, right in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert np.allclose(left, right, atol=atol, rtol=1e-5)


def downhill(energy, x):
    return x - 0.5 * STEP * jax.vmap(jax.grad(energy))(x)


@pytest.mark.parametrize("weight", [-1.0, 0.0, 0.7])
def test_one_step_is_differentiated_as_by_hand(key, weight):
    """``x_1(θ) = x_0 - (τ/2)∇E_θ(x_0) + noise``; persistent chains give x_0 and x_1, and so the noise."""
    kernel = tw.samplers.Langevin(STEP)
    objective = MaximumLikelihood(kernel, steps=1, start=tw.samplers.persistent(), sampler_gradient=weight)
    start = objective.init(key, MODEL, BATCH)[1]
    value, step, ours = evaluate(objective, MODEL, key, state=start)
    before, after = start.state.x, step.state.state.x
    noise = after - downhill(MODEL, before)
    assert 0.5 * STEP**0.5 < np.std(noise) < 2 * STEP**0.5

    def by_hand(energy):
        gap = jnp.mean(jax.vmap(energy)(BATCH)) - jnp.mean(jax.vmap(energy)(after))
        return gap + weight * jnp.mean(jax.vmap(freeze(energy))(downhill(energy, before) + noise))

    right, slope = eqx.filter_jit(eqx.filter_value_and_grad(by_hand))(MODEL)
    assert np.allclose(value, right, atol=1e-5)
    assert_same(ours, slope)


def test_the_gradient_flows_through_the_given_number_of_steps(key):
    kernel = tw.samplers.Langevin(STEP, noise_scale=0.0)
    objective = MaximumLikelihood(kernel, 3, tw.samplers.from_data(), sampler_gradient=1.0, sampler_gradient_steps=2)
    _, _, ours = evaluate(objective, MODEL, key)

    def by_hand(energy, live):
        x = BATCH
        for number in range(3):
            x = downhill(energy if number >= 3 - live else freeze(energy), x)
        gap = jnp.mean(jax.vmap(energy)(BATCH)) - jnp.mean(jax.vmap(energy)(jax.lax.stop_gradient(x)))
        return gap + jnp.mean(jax.vmap(freeze(energy))(x))

    slope = eqx.filter_jit(eqx.filter_grad(by_hand))
    assert_same(ours, slope(MODEL, 2))
    others = [slope(MODEL, live).mean for live in (1, 3)]
    assert all(np.max(np.abs(ours.mean - other)) > 1e-3 for other in others)


def test_without_noise_a_weight_of_zero_is_none(key):
    kernel = tw.samplers.GradientDescent(STEP, momentum=0.5)
    pair = [MaximumLikelihood(kernel, 3, tw.samplers.from_data(), sampler_gradient=weight) for weight in (None, 0.0)]
    (loss, step, slope), (zero, told, other) = (evaluate(objective, MODEL, key) for objective in pair)
    assert np.allclose(loss, zero, rtol=1e-6)
    assert_same(slope, other)
    assert_same(step.metrics, told.metrics)


def test_kernels_that_carry_no_gradient_are_refused_by_name(key):
    spins = tw.energies.Ising(tw.energies.Graph([(0, 1)], 0.5))
    rows = jnp.ones((3, 2), int)
    cases = [
        (tw.samplers.Gibbs(), spins, rows, "Gibbs on whole numbers"),
        (tw.samplers.GibbsWithGradients(), spins, rows, "GibbsWithGradients on whole numbers"),
        (tw.samplers.RandomWalk(1.0), MODEL, BATCH, "RandomWalk, whose accept step"),
        (tw.samplers.MALA(0.1), MODEL, BATCH, "MALA, whose accept step"),
        (tw.samplers.ParallelTempering(tw.samplers.Langevin(0.1), [1.0, 2.0]), MODEL, BATCH, "whose swaps"),
    ]
    for kernel, energy, batch, words in cases:
        with pytest.raises(ValueError, match=f"{words}.*use Langevin on a continuous space"):
            MaximumLikelihood(kernel, sampler_gradient=1.0).init(key, energy, batch)
    with pytest.raises(ValueError, match="sampler_gradient_steps between 1 and steps=3, got 4"):
        MaximumLikelihood(steps=3, sampler_gradient=1.0, sampler_gradient_steps=4)


class Still(Kernel):
    """A kernel that does not move."""

    def init(self, key, energy, x):
        return Position(x)

    def step(self, key, energy, state):
        return state, Info()


LADDER = tw.samplers.ParallelTempering(tw.samplers.RandomWalk(0.5), [1.0, 2.0, 5.0])


@pytest.mark.slow
def test_all_rungs_continue_from_update_to_update(key):
    objective = MaximumLikelihood(LADDER, steps=2, start=tw.samplers.ReplayBuffer(50, 0.0))
    _, memory = objective.init(key, WELL, BATCH)
    assert memory.state.points.shape == (50, 3, 2)
    _, step = eqx.filter_jit(objective.loss)(key, WELL, None, memory, BATCH)
    # each chain writes to its own place, and to no other
    assert int(step.state.used.sum()) == len(BATCH)
    points = step.state.state.points
    assert np.all(points[~step.state.used] == 0)
    assert not np.allclose(points[step.state.used][:, 0], points[step.state.used][:, 2])
    assert {"swap_rate", "acceptance"} <= set(step.metrics)
    assert all(np.ndim(value) == 0 for value in step.metrics.values())


def test_every_pair_swaps_though_an_update_has_one_step(key):
    """On a flat energy every swap tried is accepted, so a point at the top comes down only by both kinds of pairs."""
    kernel = tw.samplers.ParallelTempering(Still(), [1.0, 2.0, 3.0])
    flat = tw.as_energy(lambda x: 0.0 * jnp.sum(x), tw.Real(1))
    start, x = tw.samplers.persistent(), jnp.zeros((2, 1))
    memory = start.init(key, kernel, flat, x)
    rungs = jnp.broadcast_to(jnp.arange(3.0)[None, :, None], (2, 3, 1))
    memory = memory._replace(state=kernel.init_rungs(key, flat, rungs))
    seen = set()
    run = eqx.filter_jit(lambda key, memory: run_chains(flat, kernel, start, memory, x, key=key, steps=1))
    for number in range(20):
        ended = run(jax.random.fold_in(key, number), memory)
        memory = ended.memory
        assert np.array_equal(ended.x, memory.state.x)
        seen.add(float(ended.x[0, 0]))
    assert seen == {0.0, 1.0, 2.0}


def test_tempered_chains_serve_discrete_energies_and_start_from_noise(key):
    start = tw.samplers.from_noise()
    spins = tw.energies.Ising(tw.energies.Graph([(0, 1), (1, 2)], 0.5))
    kernel = tw.samplers.ParallelTempering(tw.samplers.Gibbs(), [1.0, 3.0])
    batch = jnp.ones((6, 3), int)
    objective = MaximumLikelihood(kernel, steps=1, start=start)
    _, memory = objective.init(key, spins, batch)
    ended = eqx.filter_jit(lambda key: run_chains(spins, kernel, start, memory, batch, key=key, steps=1))(key)
    assert ended.x.shape == batch.shape
    assert set(np.unique(ended.x).tolist()) <= {-1, 1}


def test_velocities_continue_from_update_to_update(key):
    """Underdamped chains of one step each are one chain: its law is N(0, 1), which reset velocities would narrow."""
    kernel, start = tw.samplers.UnderdampedLangevin(0.3), tw.samplers.persistent()
    energy, x = tw.energies.Gaussian(jnp.zeros(1), jnp.ones(1)), jnp.zeros((2000, 1))
    memory = start.init(key, kernel, energy, x)

    def update(memory, key):
        ended = run_chains(energy, kernel, start, memory, x, key=key, steps=1)
        return ended.memory, None

    memory, _ = jax.jit(lambda memory: jax.lax.scan(update, memory, jax.random.split(key, 100)))(memory)
    # the standard error of a variance of 2000 points is 0.032
    assert float(jnp.var(memory.state.x)) == pytest.approx(1.0, abs=0.14)
    assert float(jnp.var(memory.state.velocity)) == pytest.approx(1.0, abs=0.14)


def test_an_impossible_pairing_is_refused_at_init(key):
    spins = tw.energies.Ising(tw.energies.Graph([(0, 1)], 0.5))
    rows = jnp.ones((3, 2), int)
    for start in (tw.samplers.from_data(), tw.samplers.from_noise(), tw.samplers.persistent()):
        with pytest.raises(ValueError, match="expected a continuous space for Langevin"):
            MaximumLikelihood(start=start).init(key, spins, rows)
