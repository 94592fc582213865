"""The best checkpoint is kept by any metric, survives resuming, and can be loaded and sampled."""

import json
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg.train.best import read_best
from thalweg.train.checkpoint import Checkpoints
from thalweg.train.restore import load

DATA = np.asarray(jax.random.normal(jax.random.key(0), (64, 2)))
ENERGY = tw.energies.Gaussian(jnp.array([3.0, -3.0]), jnp.ones(2))
OBJECTIVE = tw.objectives.DenoisingScoreMatching(0.5)
# the metric by update: best at 6 when highest is best, at 4 when lowest is
WAVE = {2: 1.0, 4: -3.0, 6: 5.0, 8: 4.0, 10: 5.0, 12: float("nan")}


def wave(run):
    return {"wave": WAVE[run.step]}


def fit(folder, steps=12, callbacks=((2, wave),), **settings):
    defaults = {"optimizer": optax.adam(1e-2), "batch_size": 16, "key": jax.random.key(1), "checkpoint_every": 5}
    made = [tw.train.every(interval, function) for interval, function in callbacks]
    return tw.fit(ENERGY, DATA, OBJECTIVE, steps=steps, run_dir=folder, callbacks=made, **defaults | settings)


def weights(run):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(run.energy)]


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


@pytest.mark.parametrize(("best_is", "update", "value"), [("highest", 6, 5.0), ("lowest", 4, -3.0)])
def test_the_best_by_a_callbacks_number_is_kept(tmp_path, best_is, update, value):
    fit(tmp_path / "run", keep_best="wave", best_is=best_is)
    best = tw.load_run(tmp_path / "run", best=True)
    assert best.step == update and read_best(tmp_path / "run") == {"metric": "wave", "update": update, "value": value}
    # the weights are those of a run that ended there
    fit(tmp_path / "short", steps=update)
    assert same(best, tw.load_run(tmp_path / "short"))
    assert tw.load_run(tmp_path / "run").step == 12
    options = {"optimizer": optax.adam(1e-2), "key": jax.random.key(5)}
    assert same(best, load(tmp_path / "run", ENERGY, DATA[:16], OBJECTIVE, best=True, **options))


def test_a_metric_of_the_updates_is_averaged_between_checkpoints(tmp_path):
    run = fit(tmp_path, steps=12, callbacks=(), keep_best="loss", best_is="lowest", checkpoint_every=4)
    means = {end: run.history["loss"][end - 4 : end].mean() for end in (4, 8, 12)}
    best = min(means, key=means.get)
    assert best != 4 and read_best(tmp_path)["update"] == best
    assert np.isclose(read_best(tmp_path)["value"], means[best])


class Cut(RuntimeError):
    pass


@pytest.mark.parametrize("cut", [6, 7, 11])
def test_a_run_cut_in_two_keeps_what_a_whole_run_keeps(tmp_path, cut):
    """Killed without a word, or stopped by a signal, before and after the best update and its checkpoint."""
    fit(tmp_path / "whole", keep_best="wave")

    def breaks(run):
        if run.step == cut:
            raise Cut

    with pytest.raises(Cut):
        fit(tmp_path / "killed", callbacks=((2, wave), (1, breaks)), keep_best="wave")
    fit(tmp_path / "killed", keep_best="wave", resume=True)

    def stops(run):
        if run.step == cut:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "stopped", callbacks=((2, wave), (1, stops)), keep_best="wave")
    fit(tmp_path / "stopped", keep_best="wave", resume=True)

    whole = tw.load_run(tmp_path / "whole", best=True)
    for name in ("killed", "stopped"):
        again = tw.load_run(tmp_path / name, best=True)
        assert again.step == whole.step == 6 and same(again, whole)
        assert read_best(tmp_path / name) == read_best(tmp_path / "whole")


def test_a_best_after_the_last_checkpoint_is_forgotten_on_resume(tmp_path):
    def breaks(run):
        if run.step == 7:
            raise Cut

    with pytest.raises(Cut):
        fit(tmp_path, callbacks=((2, wave), (1, breaks)), keep_best="wave")
    # the best of update 6 came after the checkpoint of update 5, and that of update 2 is still needed
    assert sorted(Checkpoints(tmp_path / "best", kept=None).steps()) == [2, 6]
    low = lambda run: {"wave": -1.0}
    fit(tmp_path, callbacks=((2, low),), keep_best="wave", resume=True)
    assert tw.load_run(tmp_path, best=True).step == 2 and read_best(tmp_path)["value"] == 1.0


def test_another_metric_begins_anew(tmp_path):
    fit(tmp_path, steps=6, keep_best="wave")
    fit(tmp_path, steps=12, keep_best="loss", best_is="lowest", resume=True)
    best = read_best(tmp_path)
    assert best["metric"] == "loss" and best["update"] > 6
    assert tw.load_run(tmp_path, best=True).step == best["update"]


def test_only_what_is_needed_stays_on_disk(tmp_path):
    rising = lambda run: {"wave": float(run.step)}
    fit(tmp_path, steps=20, callbacks=((1, rising),), keep_best="wave")
    # runs can be resumed from 15 and 20: the best up to 15, and all after it
    assert sorted(Checkpoints(tmp_path / "best", kept=None).steps()) == [15, 16, 17, 18, 19, 20]
    assert set(json.loads((tmp_path / "best.json").read_text())["values"]) == {str(step) for step in range(15, 21)}


def test_a_damaged_best_checkpoint_is_said(tmp_path):
    fit(tmp_path, keep_best="wave")
    for file in (tmp_path / "best" / "6").rglob("*"):
        if file.is_file() and file.stat().st_size > 200:
            file.write_bytes(file.read_bytes()[::-1])
    with pytest.raises(ValueError, match="a damaged one"):
        tw.load_run(tmp_path, best=True)


BAD = {
    "no folder": ({"folder": None, "keep_best": "wave"}, "run_dir"),
    "no metric of that name": ({"keep_best": "vawe"}, "weight_norm, wave"),
    "no metric of that name, no callback": ({"keep_best": "vawe", "callbacks": ()}, "loss"),
    "not a name": ({"keep_best": ""}, "name of a metric"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_a_sentence(tmp_path, case):
    changed, words = BAD[case]
    arguments = {"folder": tmp_path / "run"} | changed
    with pytest.raises(ValueError, match=words) as problem:
        fit(arguments.pop("folder"), **arguments)
    assert "\n" not in str(problem.value)


def test_a_run_without_a_best_checkpoint_says_so(tmp_path, unchecked):
    fit(tmp_path)
    with pytest.raises(ValueError, match="keep_best"):
        tw.load_run(tmp_path, best=True)
    with pytest.raises(ValueError, match="highest"):
        fit(tmp_path / "other", keep_best="wave", best_is="best")
