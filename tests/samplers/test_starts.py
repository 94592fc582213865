import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.core import as_conditional
from thalweg.core.random import distinct
from thalweg.samplers.starts import as_start

BATCH = jnp.arange(8.0).reshape(4, 2)
LANGEVIN = tw.samplers.Langevin(0.1)


def quadratic(x):
    return 0.5 * jnp.sum(x**2)


def test_from_data_starts_at_the_batch_and_from_noise_does_not(key):
    assert jnp.array_equal(tw.samplers.from_data().begin(key, LANGEVIN, quadratic, None, BATCH).state.x, BATCH)
    start = tw.samplers.from_noise(tw.samplers.uniform_noise(2.0, 3.0))
    uniform = start.begin(key, LANGEVIN, quadratic, None, BATCH).state.x
    assert uniform.shape == BATCH.shape
    assert jnp.all((uniform >= 2) & (uniform < 3))


def test_persistent_chains_go_on_where_they_ended_with_their_velocities(key):
    start, kernel = tw.samplers.persistent(), tw.samplers.UnderdampedLangevin(0.1)
    memory = start.init(key, kernel, quadratic, BATCH)
    begun = start.begin(key, kernel, quadratic, memory, BATCH)
    assert jnp.array_equal(begun.state.velocity, memory.state.velocity)
    state, _ = kernel.step(key, quadratic, begun.state)
    memory = start.finish(memory, begun, state)
    again = start.begin(key, kernel, quadratic, memory, BATCH).state
    assert jnp.array_equal(again.x, state.x)
    assert jnp.array_equal(again.velocity, state.velocity)


def test_what_depends_on_the_energy_is_computed_anew_when_it_has_changed(key):
    start, kernel = tw.samplers.persistent(), tw.samplers.MALA(0.1)
    memory = start.init(key, kernel, quadratic, BATCH)
    other = lambda x: 3 * quadratic(x)
    state = start.begin(key, kernel, other, memory, BATCH).state
    assert jnp.allclose(state.energy, jax.vmap(other)(state.x))
    assert jnp.allclose(state.gradient, 3 * state.x)


def fill(key, start, batch, kernel=LANGEVIN):
    """A buffer every slot of which holds a chain at zero."""
    memory = start.init(key, kernel, quadratic, batch)
    return memory._replace(used=jnp.ones_like(memory.used))


def test_the_buffer_writes_every_chain_back_to_its_own_slot(key):
    start = tw.samplers.ReplayBuffer(10, rejuvenation=0.0)
    memory = fill(key, start, BATCH)
    memory = memory._replace(state=type(memory.state)(jnp.arange(20.0).reshape(10, 2)))
    begun = start.begin(key, LANGEVIN, quadratic, memory, BATCH)
    slots = begun.ticket
    assert len(set(slots.tolist())) == 4
    assert jnp.array_equal(begun.state.x, memory.state.x[slots])
    after = start.finish(memory, begun, type(begun.state)(begun.state.x + 100))
    assert jnp.array_equal(after.state.x[slots], memory.state.x[slots] + 100)
    others = jnp.setdiff1d(jnp.arange(10), slots)
    assert jnp.array_equal(after.state.x[others], memory.state.x[others])


def test_a_slot_that_was_never_used_starts_from_noise(key):
    start = tw.samplers.ReplayBuffer(6, rejuvenation=0.0, noise=tw.samplers.uniform_noise(5.0, 6.0))
    memory = start.init(key, LANGEVIN, quadratic, BATCH)
    begun = start.begin(key, LANGEVIN, quadratic, memory, BATCH)
    assert jnp.all(begun.state.x >= 5)
    memory = start.finish(memory, begun, begun.state)
    assert int(memory.used.sum()) == 4


def test_rejuvenation_restarts_its_share_of_the_chains(key):
    noise = tw.samplers.uniform_noise(5.0, 6.0)
    start = tw.samplers.ReplayBuffer(4000, rejuvenation=0.25, noise=noise)
    batch = jnp.zeros((4000, 2))
    memory = fill(key, start, batch)
    fresh = jnp.all(start.begin(key, LANGEVIN, quadratic, memory, batch).state.x >= 5, axis=1)
    share, error = float(jnp.mean(fresh)), (0.25 * 0.75 / 4000) ** 0.5
    assert abs(share - 0.25) < 5 * error


@pytest.mark.parametrize("rejuvenation, all_fresh", [(0.0, False), (1.0, True)])
def test_rejuvenation_at_its_ends(key, rejuvenation, all_fresh):
    start = tw.samplers.ReplayBuffer(50, rejuvenation, tw.samplers.uniform_noise(5.0, 6.0))
    memory = fill(key, start, BATCH)
    fresh = jnp.all(start.begin(key, LANGEVIN, quadratic, memory, BATCH).state.x >= 5, axis=1)
    assert jnp.all(fresh == all_fresh)


def test_chains_of_a_conditional_energy_have_conditions(key):
    energy = as_conditional(lambda x, c: 0.5 * jnp.sum((x - c) ** 2))
    batch, other = (BATCH, 10 * BATCH), (BATCH, -BATCH)
    begun = tw.samplers.from_data().begin(key, LANGEVIN, energy, None, batch)
    assert jnp.array_equal(begun.conditions, 10 * BATCH)
    start = tw.samplers.persistent()
    memory = start.init(key, LANGEVIN, energy, batch)
    assert jnp.array_equal(start.begin(key, LANGEVIN, energy, memory, other).conditions, -BATCH)
    start = tw.samplers.ReplayBuffer(4, rejuvenation=0.0)
    memory = start.init(key, LANGEVIN, energy, batch)
    begun = start.begin(key, LANGEVIN, energy, memory, batch)
    memory = start.finish(memory, begun, begun.state)
    again = start.begin(jax.random.key(9), LANGEVIN, energy, memory, other)
    assert jnp.array_equal(jnp.sort(again.conditions, axis=0), jnp.sort(10 * BATCH, axis=0))


def test_bad_settings_get_one_sentence(key):
    with pytest.raises(ValueError, match="expected size to be a whole number >= 1, got 0"):
        tw.samplers.ReplayBuffer(0)
    with pytest.raises(ValueError, match=r"rejuvenation between 0 and 1, got 25"):
        tw.samplers.ReplayBuffer(10, 25)
    with pytest.raises(ValueError, match="got size=2 for a batch of 4"):
        tw.samplers.ReplayBuffer(2).init(key, LANGEVIN, quadratic, BATCH)
    with pytest.raises(ValueError, match="expected low < high"):
        tw.samplers.uniform_noise(1.0, -1.0)
    with pytest.raises(ValueError, match="expected a start"):
        as_start(lambda: jnp.zeros(3))
    with pytest.raises(ValueError, match="got SimulatedAnnealing"):
        kernel = tw.samplers.SimulatedAnnealing(LANGEVIN)
        tw.samplers.ReplayBuffer(10).init(key, kernel, quadratic, BATCH)


def test_the_function_that_makes_a_start_is_a_start():
    assert type(as_start(tw.samplers.from_data)) is type(tw.samplers.from_data())


def test_slots_are_different_and_every_subset_equally_likely(key):
    drawn = np.asarray(jax.vmap(lambda k: distinct(k, 5, 3))(jax.random.split(key, 12_000)))
    assert all(len(set(row)) == 3 for row in drawn.tolist())
    # each of the sixty ordered choices 200 times, give or take six deviations
    _, counts = np.unique(drawn @ np.array([25, 5, 1]), return_counts=True)
    assert len(counts) == 60
    assert np.all(np.abs(counts - 200) < 6 * np.sqrt(200))
    assert sorted(np.asarray(distinct(key, 7, 7)).tolist()) == list(range(7))
