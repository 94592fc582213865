import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.samplers.starts import as_start, distinct

SPACE = tw.Real(2)
BATCH = jnp.arange(8.0).reshape(4, 2)


def test_from_data_starts_at_the_batch_and_from_noise_does_not(key):
    assert jnp.array_equal(tw.samplers.from_data().begin(key, SPACE, None, BATCH).x, BATCH)
    uniform = tw.samplers.from_noise(tw.samplers.uniform_noise(2.0, 3.0)).begin(key, SPACE, None, BATCH).x
    assert uniform.shape == BATCH.shape
    assert jnp.all((uniform >= 2) & (uniform < 3))


def test_persistent_chains_go_on_where_they_ended(key):
    start = tw.samplers.persistent()
    memory = start.init(key, SPACE, BATCH)
    assert jnp.array_equal(start.begin(key, SPACE, memory, BATCH).x, memory)
    memory = start.finish(memory, None, BATCH + 1)
    assert jnp.array_equal(start.begin(key, SPACE, memory, BATCH).x, BATCH + 1)


def test_the_buffer_writes_every_chain_back_to_its_own_slot(key):
    start = tw.samplers.ReplayBuffer(10, rejuvenation=0.0)
    memory = start.init(key, SPACE, BATCH)
    x, slots = start.begin(key, SPACE, memory, BATCH)
    assert len(set(slots.tolist())) == 4
    assert jnp.array_equal(x, memory[slots])
    after = start.finish(memory, slots, x + 100)
    assert jnp.array_equal(after[slots], memory[slots] + 100)
    others = jnp.setdiff1d(jnp.arange(10), slots)
    assert jnp.array_equal(after[others], memory[others])


def test_rejuvenation_restarts_its_share_of_the_chains(key):
    noise = tw.samplers.uniform_noise(5.0, 6.0)
    start = tw.samplers.ReplayBuffer(4000, rejuvenation=0.25, noise=noise)
    batch = jnp.zeros((4000, 2))
    memory = jnp.zeros_like(start.init(key, SPACE, batch))
    fresh = jnp.all(start.begin(key, SPACE, memory, batch).x >= 5, axis=1)
    share, error = float(jnp.mean(fresh)), (0.25 * 0.75 / 4000) ** 0.5
    assert abs(share - 0.25) < 5 * error


@pytest.mark.parametrize("rejuvenation, all_fresh", [(0.0, False), (1.0, True)])
def test_rejuvenation_at_its_ends(key, rejuvenation, all_fresh):
    start = tw.samplers.ReplayBuffer(50, rejuvenation, tw.samplers.uniform_noise(5.0, 6.0))
    fresh = jnp.all(start.begin(key, SPACE, jnp.zeros((50, 2)), BATCH).x >= 5, axis=1)
    assert jnp.all(fresh == all_fresh)


def test_bad_settings_get_one_sentence(key):
    with pytest.raises(ValueError, match="at least one sample, got size=0"):
        tw.samplers.ReplayBuffer(0)
    with pytest.raises(ValueError, match=r"rejuvenation between 0 and 1, got 25"):
        tw.samplers.ReplayBuffer(10, 25)
    with pytest.raises(ValueError, match="got size=2 for a batch of 4"):
        tw.samplers.ReplayBuffer(2).init(key, SPACE, BATCH)
    with pytest.raises(ValueError, match="expected low < high"):
        tw.samplers.uniform_noise(1.0, -1.0)
    with pytest.raises(ValueError, match="expected a start"):
        as_start(lambda: jnp.zeros(3))


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
