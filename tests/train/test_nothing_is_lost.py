"""What a training has come to survives damage, signals and weights that are not finite."""

import json
import os
import signal
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as orbax
import pytest

import thalweg as tw
from thalweg.core import Objective, Step
from thalweg.train.checkpoint import Checkpoints, _arrays, _digest
from thalweg.train.restore import load

DATA = np.asarray(jax.random.normal(jax.random.key(0), (64, 2)))
CHAIN = tw.objectives.MaximumLikelihood(tw.samplers.Langevin(0.1), 3, tw.samplers.ReplayBuffer(100, 0.1))
ENERGY = tw.energies.Gaussian(jnp.array([3.0, -3.0]), jnp.ones(2))


def fit(steps, objective=CHAIN, **settings):
    settings = {"optimizer": optax.adam(1e-2), "batch_size": 16, "key": jax.random.key(1), **settings}
    return tw.fit(ENERGY, DATA, objective, steps=steps, **settings)


def damage(folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file() and file.stat().st_size > 200:
            blob = bytearray(file.read_bytes())
            blob[len(blob) // 2] ^= 0xFF
            file.write_bytes(blob)


def saved(folder: Path) -> list[str]:
    return sorted(each.name for each in (folder / "checkpoints").iterdir())


class Breaks(Objective):
    """A loss that is always finite, whose gradient is NaN at one update."""

    at: int

    def init(self, key, energy, batch):
        return None, jnp.zeros((), int)

    def loss(self, key, energy, params, state, batch):
        # the square root's slope at zero is infinite, and zero times that is not a number
        nothing = jnp.where(state == self.at, 0.0, 1.0) * jnp.mean(energy.mean) * 0.0
        nothing += jnp.where(state == self.at, 0.0, 1.0)
        return jnp.mean(jax.vmap(energy)(batch)) + jnp.sqrt(nothing), Step(state + 1, {})


def test_weights_that_are_not_finite_are_neither_saved_nor_returned(tmp_path):
    with pytest.raises(
        tw.train.DivergedError, match="expected finite weights, got a norm of nan at update 20"
    ) as caught:
        fit(20, Breaks(19), run_dir=tmp_path, checkpoint_every=5)
    assert len(caught.value.history["loss"]) == 19 and np.isfinite(caught.value.history["loss"]).all()
    assert saved(tmp_path) == ["10", "15"]
    found = json.loads((tmp_path / "results.json").read_text())["findings"]
    assert found[-1]["since"] == 20 and found[-1]["stops"]
    # no update breaks now, and training goes on from the last good weights
    again = fit(20, Breaks(100), run_dir=tmp_path, resume=True)
    assert again.step == 20 and jnp.all(jnp.isfinite(again.energy.mean))
    with pytest.raises(tw.train.DivergedError, match="got a norm of nan at update 20"):
        fit(20, Breaks(19), doctor=False)
    with pytest.raises(tw.train.DivergedError, match="got a norm of nan at update 3 of seed 0"):
        settings = {"keys": jax.random.split(jax.random.key(0), 2), "optimizer": optax.sgd(0.1), "batch_size": 8}
        tw.train.fit_many(ENERGY, DATA, Breaks(2), steps=3, **settings)


def test_a_checkpoint_with_weights_that_are_not_finite_is_passed_over(tmp_path, monkeypatch, capsys):
    # as if saved by a version that did not look
    monkeypatch.setattr("thalweg.train.record.not_finite", lambda row, before: None)
    fit(20, Breaks(19), run_dir=tmp_path, checkpoint_every=10, doctor=False)
    monkeypatch.undo()
    assert saved(tmp_path) == ["10", "20"]
    run = fit(30, Breaks(100), run_dir=tmp_path, resume=True)
    assert run.step == 30 and "got one with weights that are not finite; update 10 is used" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_passed_over_and_said(tmp_path, capfd):
    whole = fit(30, run_dir=tmp_path / "whole")
    fit(20, run_dir=tmp_path / "cut", checkpoint_every=10)
    damage(tmp_path / "cut" / "checkpoints" / "20")
    capfd.readouterr()
    settings = {"optimizer": optax.adam(1e-2), "key": jax.random.key(1)}
    assert load(tmp_path / "cut", ENERGY, DATA[:16], CHAIN, **settings).step == 10
    before = capfd.readouterr().err
    resumed = fit(30, run_dir=tmp_path / "cut", resume=True)
    said = capfd.readouterr().err
    assert before == said and len(said.splitlines()) == 1  # no traceback beside it
    assert "got a damaged one; update 10 is used instead" in said
    assert [(each.name, each.since) for each in resumed.findings] == [("checkpoint", 10)]
    assert np.array_equal(resumed.history["loss"], whole.history["loss"])
    assert jnp.array_equal(resumed.energy.mean, whole.energy.mean)
    # the damaged one is put aside, not deleted, and its place is taken by a good one
    names = saved(tmp_path / "cut")
    assert len(names) == 3 and names[0].startswith("20.damaged") and names[1:] == ["27", "30"]


def test_where_all_checkpoints_are_damaged_there_is_one_sentence(tmp_path):
    fit(20, run_dir=tmp_path, checkpoint_every=10)
    for name in ("10", "20"):
        damage(tmp_path / "checkpoints" / name)
    with pytest.raises(ValueError, match="got a damaged one, and no better one before it; start the run anew"):
        fit(30, run_dir=tmp_path, resume=True)
    assert saved(tmp_path) == ["10", "20"]


def test_the_digest_covers_the_updates_number(tmp_path, capsys):
    fit(20, run_dir=tmp_path, checkpoint_every=10)
    (tmp_path / "checkpoints" / "20").rename(tmp_path / "checkpoints" / "25")
    assert fit(30, run_dir=tmp_path, resume=True).step == 30
    assert "checkpoints/25, got a damaged one; update 10 is used instead" in capsys.readouterr().err


def test_a_checkpoint_of_the_first_edition_is_read(tmp_path):
    """Written by orbax's older interface, with a digest that does not know the update's number."""
    tree = {"weight": jnp.arange(300.0), "key": jax.random.key(3), "count": jnp.int32(4)}
    arrays = _arrays(tree)
    options = orbax.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False)
    manager = orbax.CheckpointManager(tmp_path, options=options)
    manager.save(7, args=orbax.args.StandardSave({**arrays, "digest": _digest(arrays)}))
    manager.close()
    checkpoints = Checkpoints(tmp_path)
    step, found, faults = checkpoints.restore(tree, lambda tree: True)
    assert step == 7 and faults == [] and jnp.array_equal(found["weight"], tree["weight"])
    assert jax.random.key_data(found["key"]).tolist() == jax.random.key_data(tree["key"]).tolist()
    checkpoints.save(9, tree)
    checkpoints.save(11, tree)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["11", "9"]


def test_empty_arrays_and_what_a_crash_left_behind_are_no_obstacle(tmp_path):
    tree = {"weight": jnp.ones(3), "none": jnp.zeros((0, 2))}
    left = tmp_path / "5.orbax-checkpoint-tmp"
    left.mkdir()
    (left / "half").write_text("half")
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.latest() is None
    checkpoints.save(5, tree)
    assert checkpoints.restore(tree, lambda tree: True).tree["none"].shape == (0, 2)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    fit(5, run_dir=tmp_path)
    with pytest.raises(ValueError, match="expected a checkpoint of this model and objective"):
        fit(10, tw.objectives.NCE(), run_dir=tmp_path, resume=True)


def test_a_checkpoint_that_cannot_be_written_leaves_the_earlier_ones(tmp_path, monkeypatch):
    fit(10, run_dir=tmp_path)

    def full(self, *args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("orbax.checkpoint.experimental.v1.training.Checkpointer.save", full)
    with pytest.raises(ValueError, match="No space left on device'; free space there and resume from update 10"):
        fit(20, run_dir=tmp_path, resume=True)
    monkeypatch.undo()
    assert fit(20, run_dir=tmp_path, resume=True).step == 20


def test_sigterm_finishes_the_update_checkpoints_and_ends_with_its_status(tmp_path):
    before = signal.getsignal(signal.SIGTERM)

    def press(run):
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as ended:
        fit(30, run_dir=tmp_path, callbacks=[tw.train.every(7, press)])
    assert ended.value.code == 143 and "7" in saved(tmp_path)
    assert signal.getsignal(signal.SIGTERM) is before
    resumed = fit(30, run_dir=tmp_path, resume=True)
    assert np.array_equal(resumed.history["loss"], fit(30).history["loss"])


def test_a_second_signal_is_obeyed_at_once(tmp_path):
    def press(run):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)  # never ended

    with pytest.raises(SystemExit):
        fit(30, run_dir=tmp_path, callbacks=[tw.train.every(7, press)], checkpoint_every=100)
    assert not saved(tmp_path)


def test_updates_after_the_checkpoint_are_forgotten_on_resume(tmp_path):
    fit(10, run_dir=tmp_path)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 11, "loss": 0.0}\n{"step": 12, "lo')  # a crash in the middle of a line
    resumed = fit(12, run_dir=tmp_path, resume=True)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert len(resumed.history["loss"]) == 12


@pytest.mark.parametrize(
    "line, what",
    [
        ('{"step": 4, "lo', "no JSON"),
        ("[1, 2]", "a list"),
        ('{"loss": 1.0}', "no update's number"),
        ('{"step": "4", "loss": 1.0}', "no update's number"),
        ('{"step": true, "loss": 1.0}', "no update's number"),
        ('{"step": 4, "loss": "low"}', "no number under 'loss'"),
        ('{"step": 4, "loss": [1.0]}', "no number under 'loss'"),
        ('{"step": 4, "loss": null}', "no number under 'loss'"),
        ('{"step": 3, "loss": 1.0}', "update 3 after update 3"),
        ("\x00\x00", "no JSON"),
    ],
)
def test_a_damaged_line_is_named_by_its_number_and_nothing_shifts(tmp_path, line, what):
    whole = fit(10, run_dir=tmp_path)
    path = tmp_path / "metrics.jsonl"
    lines = path.read_text().splitlines()
    lines[3] = line
    path.write_text("\n".join(lines) + "\n")
    settings = {"optimizer": optax.adam(1e-2), "key": jax.random.key(1)}
    again = [lambda: fit(12, run_dir=tmp_path, resume=True)]
    again += [lambda: load(tmp_path, ENERGY, DATA[:16], CHAIN, **settings)]
    for each in again:
        with pytest.raises(ValueError, match=rf"expected a JSON object .*, got {what} on line 4; remove that line"):
            each()
    assert path.read_text().splitlines() == lines  # nothing is touched
    # what the sentence says to do works: the update is missing, and the others are in their places
    path.write_text("\n".join(lines[:3] + lines[4:]) + "\n")
    resumed = fit(12, run_dir=tmp_path, resume=True)
    assert len(resumed.history["loss"]) == 12 and np.isnan(resumed.history["loss"][3])
    assert np.array_equal(resumed.history["loss"][4:10], whole.history["loss"][4:])


def test_metrics_that_are_gone_leave_their_updates_empty(tmp_path):
    fit(10, run_dir=tmp_path)
    (tmp_path / "metrics.jsonl").unlink()
    resumed = fit(12, run_dir=tmp_path, resume=True)
    assert np.isnan(resumed.history["loss"][:10]).all() and np.isfinite(resumed.history["loss"][10:]).all()


def test_progress_is_lines_on_stderr_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr("thalweg.core.progress._LINE", 0.0)
    fit(20, progress=True)
    written = capsys.readouterr()
    lines = written.err.splitlines()
    assert written.out == "" and len(lines) == 20 and lines[-1].startswith("training: 20 of 20, loss ")


def test_a_training_is_silent_unless_asked(capsys, monkeypatch):
    monkeypatch.setattr("thalweg.core.progress._LINE", 0.0)
    fit(3)
    assert capsys.readouterr() == ("", "")
