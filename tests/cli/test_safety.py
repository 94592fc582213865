"""Nothing of the user's is removed, no two processes write one run, and nothing is lost in silence."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from tests.cli.folders import arrays, assert_same, snapshot

import thalweg as tw
from thalweg.runs import sampling
from thalweg.train.lock import locked

HOLD = """
import sys
from thalweg.train.lock import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def no_report(monkeypatch):
    """Drawing a page takes longer than all else here."""
    monkeypatch.setattr(sampling, "write_report", lambda folder: folder / "report.html")


def holder(folder: Path) -> subprocess.Popen:
    """Another process that holds a run folder until its stdin is closed."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_fresh_removes_what_the_run_wrote_and_nothing_else(thalweg, trained, tmp_path):
    mine = {
        "config-mine.toml": 'name = "mine"\n',
        "config-until-update-6.toml": "# mine, by that name\n",
        "configs.toml": "",
        "notes.txt": "mine",
        "samples/best.png": "mine",
        "checkpoints/readme.txt": "mine",
        "old.jsonl": "{}",
    }
    for name, text in mine.items():
        (trained / name).write_text(text)
    shutil.copy(tmp_path / "tiny.toml", trained / "config-tiny.toml")
    given = trained / "config-tiny.toml"
    assert thalweg("train", given, "--run-dir", trained, "--fresh", "--set", "train.steps=3").code == 0
    assert given.read_text() == (tmp_path / "tiny.toml").read_text()
    assert {name: (trained / name).read_text() for name in mine} == mine
    assert arrays(trained)[0] == 3 and json.loads((trained / "results.json").read_text())["updates"] == 3


def test_fresh_trains_from_the_configuration_that_it_replaces(thalweg, trained, tmp_path):
    before = tmp_path / "before"
    shutil.copytree(trained, before)
    assert thalweg("train", trained / "config.toml", "--run-dir", trained, "--fresh").code == 0
    assert_same(trained, before)


def test_fresh_refuses_to_replace_a_configuration_written_by_hand(thalweg, trained, tmp_path):
    shutil.copy(tmp_path / "tiny.toml", trained / "config.toml")
    before = snapshot(trained)
    for given in (trained / "config.toml", "tiny.toml"):
        refusal = thalweg("train", given, "--run-dir", trained, "--fresh").refusal
        assert "config.toml: expected a configuration that a run wrote, got one of your own" in refusal
    assert snapshot(trained) == before


def test_a_run_in_use_is_left_alone_and_freed_by_the_death_of_its_process(thalweg, trained):
    before = snapshot(trained)
    process = holder(trained)
    try:
        commands = [
            ["train", "--resume", trained, "--set", "train.steps=14"],
            ["train", "tiny.toml", "--run-dir", trained, "--fresh"],
            ["sample", trained],
        ]
        for command in commands:
            assert "in use by another process" in thalweg(*command).refusal
        energy, key = tw.energies.MLP(2, 4, key=jax.random.key(0)), jax.random.key(0)
        with pytest.raises(ValueError, match="in use by another process"):
            tw.fit(
                energy,
                np.zeros((4, 2), np.float32),
                tw.objectives.DenoisingScoreMatching(),
                optimizer=optax.sgd(0.1),
                steps=1,
                batch_size=2,
                key=key,
                run_dir=trained,
            )
        assert snapshot(trained) == before
    finally:
        process.kill()  # no chance to clean up: the system lets go of the lock
        process.wait()
    assert thalweg("train", "--resume", trained, "--set", "train.steps=14").code == 0


def test_a_lock_leaves_nothing_behind(tmp_path):
    folder = tmp_path / "run"
    with locked(folder), locked(folder):
        assert folder.is_dir() and not any(folder.iterdir())
    assert not folder.exists()
    process = holder(folder)
    with pytest.raises(ValueError, match="in use by another process"), locked(folder):
        pass
    process.communicate("", timeout=60)
    with locked(folder):
        (folder / "kept").write_text("")
    assert [each.name for each in folder.iterdir()] == ["kept"]


@pytest.mark.slow
def test_of_two_that_resume_one_run_one_does(thalweg, trained, tmp_path):
    """Both begin at the same moment; the run ends as if one alone had gone on."""
    alone = tmp_path / "alone"
    shutil.copytree(trained, alone)
    command = [sys.executable, "-c", "from thalweg.cli.main import run; run()", "train", "--set", "train.steps=600"]
    pair = [
        subprocess.Popen([*command, "--resume", str(trained)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=400)[1].decode() for process in pair]
    assert sorted(process.returncode for process in pair) == [0, 2]
    assert sum("in use by another process" in each for each in said) == 1
    subprocess.run([*command, "--resume", str(alone)], check=True, capture_output=True, timeout=400, env=os.environ)
    assert_same(trained, alone)


def test_lost_checkpoints_are_not_trained_over_in_silence(thalweg, trained):
    shutil.rmtree(trained / "checkpoints")
    before = snapshot(trained)
    refusal = thalweg("train", "--resume", trained).refusal
    assert "checkpoints: expected the checkpoints of a run whose metrics.jsonl has 12 updates, got none" in refusal
    assert snapshot(trained) == before
    # also where only the metrics say that there was more than one interval
    (trained / "results.json").unlink()
    assert "got none" in thalweg("train", "--resume", trained).refusal
    assert (trained / "metrics.jsonl").read_bytes() == before["metrics.jsonl"]


def test_updates_that_were_never_saved_are_dropped_with_a_word(thalweg, trained, tmp_path):
    killed = tmp_path / "killed"
    killed.mkdir()
    shutil.copy(trained / "config.toml", killed)
    lines = (trained / "metrics.jsonl").read_text().splitlines(keepends=True)
    (killed / "metrics.jsonl").write_text("".join(lines[:3]))
    outcome = thalweg("train", "--resume", killed)
    assert outcome.code == 0
    assert "starting from the first update, without the 3 updates that were not saved" in outcome.err
    assert_same(killed, trained)
