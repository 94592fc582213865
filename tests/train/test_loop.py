import os
import signal
import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import paramax
import pytest

import thalweg as tw
from thalweg.core import Objective, Refreshable, Step, partition_trainable, split_static
from thalweg.core.records import read_records
from thalweg.train.data import Batches
from thalweg.train.update import Update, begin

ADAM = optax.adam(1e-2)


class Quadratic(tw.core.Energy):
    centre: jax.Array
    space: tw.core.Space | None = eqx.field(static=True, default=tw.Real(2))

    def __call__(self, x):
        return 0.5 * jnp.sum((x - self.centre) ** 2)


class MeanEnergy(Objective):
    """The simplest objective: bring the data's energy down, and count."""

    def init(self, key, energy, batch):
        return {"offset": jnp.zeros(())}, jnp.zeros((), int)

    def loss(self, key, energy, params, state, batch):
        value = jnp.mean(jax.vmap(energy)(batch)) + params["offset"] ** 2
        return value, Step(state + 1, {"count": state, "first": batch[0, 0]})


def start():
    return Quadratic(jnp.array([3.0, -3.0]))


DATA = np.asarray(jax.random.normal(jax.random.key(0), (64, 2)))
CHAIN = tw.objectives.MaximumLikelihood(tw.samplers.Langevin(0.1), 3, tw.samplers.ReplayBuffer(100, 0.1))


def fit(steps=20, objective=None, energy=None, **settings):
    settings = {"optimizer": ADAM, "batch_size": 16, "key": jax.random.key(1), **settings}
    return tw.fit(energy or start(), DATA, objective or MeanEnergy(), steps=steps, **settings)


def test_it_trains_carries_state_and_records_every_update():
    run = fit(steps=300, optimizer=optax.adam(0.1))
    assert jnp.allclose(run.energy.centre, DATA.mean(axis=0), atol=0.2)
    assert run.state == 300
    assert run.step == 300
    assert np.array_equal(run.history["count"], np.arange(300))
    assert run.history["loss"][-1] < run.history["loss"][0] / 3


def test_the_callers_energy_is_left_alone():
    energy = start()
    fit(energy=energy)
    assert jnp.array_equal(energy.centre, jnp.array([3.0, -3.0]))


def test_every_epoch_visits_every_row_once_and_labels_stay_with_their_rows():
    rows = np.arange(10)
    batches = Batches((rows, rows * 100), 10, 3, jax.random.key(0))
    seen = [batches.at(step) for step in range(6)]
    assert all(jnp.array_equal(x * 100, y) for x, y in seen)
    first, second = (np.concatenate([x for x, _ in seen[3 * epoch : 3 * epoch + 3]]) for epoch in (0, 1))
    assert len(set(first.tolist())) == len(set(second.tolist())) == 9
    assert first.tolist() != second.tolist()
    assert jnp.array_equal(Batches(rows, 10, 3, jax.random.key(0)).at(4), seen[4][0])


def test_ema_averages_with_its_warm_up():
    run = fit(steps=2, ema=0.5, optimizer=optax.sgd(0.1))
    once = fit(steps=1, optimizer=optax.sgd(0.1)).energy.centre
    # decays (1+t)/(10+t): 0.1 at the first update, 2/11 at the second
    average = 0.1 * start().centre + 0.9 * once
    assert jnp.allclose(run.energy.centre, 2 / 11 * average + 9 / 11 * run.last.centre, rtol=1e-5)


def test_buffers_are_refreshed_and_not_trained():
    class Buffered(tw.core.Energy, Refreshable):
        centre: jax.Array
        buffer: paramax.NonTrainable
        space: tw.core.Space | None = eqx.field(static=True, default=tw.Real(2))

        def __call__(self, x):
            return jnp.sum((x - self.centre - self.buffer.tree) ** 2)

        def refresh(self):
            return Buffered(self.centre, paramax.NonTrainable(self.buffer.tree + 1))

    energy = Buffered(jnp.zeros(2), paramax.NonTrainable(jnp.zeros(2)))
    trained, _ = partition_trainable(energy)
    assert len(jax.tree.leaves(trained)) == 1
    run = fit(steps=5, energy=energy, optimizer=optax.adamw(0.1, weight_decay=0.5))
    assert jnp.array_equal(run.energy.buffer.tree, jnp.full(2, 5.0))


def test_nothing_recompiles_between_updates_or_for_other_hyper_parameters(compilations):
    def run(steps, step_size):
        objective = tw.objectives.MaximumLikelihood(tw.samplers.Langevin(step_size), 3, tw.samplers.from_data())
        fit(steps=steps, objective=objective)

    run(1, 0.1)
    with compilations() as made:
        run(3, 0.2)
    assert not made


def test_a_resumed_run_is_the_run_that_was_never_interrupted(tmp_path):
    whole = fit(30, CHAIN, run_dir=tmp_path / "whole", ema=0.9)
    fit(12, CHAIN, run_dir=tmp_path / "cut", ema=0.9)
    resumed = fit(30, CHAIN, run_dir=tmp_path / "cut", ema=0.9, resume=True)
    for left, right in zip(jax.tree.leaves(whole), jax.tree.leaves(resumed), strict=True):
        assert np.array_equal(left, right)
    assert (tmp_path / "whole" / "metrics.jsonl").read_text() == (tmp_path / "cut" / "metrics.jsonl").read_text()


def test_callbacks_see_the_run_and_their_numbers_are_kept(tmp_path):
    seen = []
    callback = tw.train.every(8, lambda run: seen.append(run.energy) or {"distance": jnp.sum(run.energy.centre**2)})
    run = fit(20, callbacks=[callback], run_dir=tmp_path)
    assert [row["step"] for row in run.evaluations] == [8, 16, 20]
    assert run.evaluations[0]["distance"] > run.evaluations[-1]["distance"]
    assert jnp.all(jnp.isfinite(seen[0].centre))  # still there though later updates wrote over their buffers
    again = fit(20, callbacks=[callback], run_dir=tmp_path, resume=True)
    assert again.evaluations[:3] == run.evaluations


def test_ctrl_c_finishes_the_update_checkpoints_and_stops(tmp_path):
    before = signal.getsignal(signal.SIGINT)

    def press(run):
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fit(30, CHAIN, run_dir=tmp_path, callbacks=[tw.train.every(7, press)])
    assert (tmp_path / "checkpoints" / "7").is_dir()
    resumed = fit(30, CHAIN, run_dir=tmp_path, resume=True)
    assert np.array_equal(resumed.history["loss"], fit(30, CHAIN).history["loss"])
    assert signal.getsignal(signal.SIGINT) is before


def test_it_runs_off_the_main_thread_too():
    runs = []
    thread = threading.Thread(target=lambda: runs.append(fit(3)))
    thread.start()
    thread.join()
    assert runs[0].step == 3


def test_a_loss_that_is_not_finite_stops_training_and_is_not_checkpointed(tmp_path):
    with pytest.raises(tw.train.DivergedError, match=r"expected a finite loss, got (nan|inf|-inf) at update") as caught:
        fit(200, optimizer=optax.sgd(1e20), run_dir=tmp_path, checkpoint_every=1)
    for folder in (tmp_path / "checkpoints").iterdir():
        assert int(folder.name) < 200
    rows = read_records(tmp_path / "metrics.jsonl")
    assert all(np.isfinite(row["loss"]) for row in rows)
    assert np.allclose(caught.value.history["loss"], [row["loss"] for row in rows])


def test_a_used_folder_and_an_empty_one_are_told_apart(tmp_path):
    fit(3, run_dir=tmp_path)
    with pytest.raises(ValueError, match="expected a new run folder"):
        fit(3, run_dir=tmp_path)
    with pytest.raises(ValueError, match="expected a checkpoint in"):
        fit(3, run_dir=tmp_path / "none", resume=True)


def test_old_style_keys_work():
    assert fit(2, key=jax.random.PRNGKey(1)).step == 2
    assert np.array_equal(fit(2, key=jax.random.PRNGKey(1)).history["loss"], fit(2).history["loss"])


def test_the_update_donates_its_buffers():
    batch, key = jnp.asarray(DATA[:4]), jax.random.key(0)
    training = begin(start(), batch, MeanEnergy(), ADAM, None, key)
    Update(MeanEnergy(), ADAM, training, batch)(split_static(training)[0], key, 0, batch)
    assert training.energy.centre.is_deleted()
