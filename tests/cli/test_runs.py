"""Run folders: what training leaves behind, going on exactly where it stopped, and what happens to damaged files."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib

import jax
import numpy as np
import pytest
from tests.cli.folders import arrays, assert_same, snapshot

from thalweg.runs import sampling
from thalweg.runs.files import new_folder
from thalweg.train.drawing import frames

COMMAND = "from thalweg.cli.main import run; run()"


@pytest.fixture
def no_report(monkeypatch):
    """Drawing a page takes longer than all else here."""
    monkeypatch.setattr(sampling, "write_report", lambda folder: folder / "report.html")


def test_a_run_leaves_its_whole_folder(trained):
    expected = {"config.toml", "model.json", "metrics.jsonl", "checkpoints", "samples", "results.json", "report.html"}
    assert {each.name for each in trained.iterdir()} == expected
    results = json.loads((trained / "results.json").read_text())
    assert results["updates"] == 12 and results["chains"] == 20 and results["steps"] == 10
    assert results["training_seconds"] > 0 and results["sampling_seconds"] > 0
    rows = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 13))
    with np.load(trained / "samples" / "samples.npz") as samples:
        count = len(frames(10))
        assert samples["x"].shape == (20, 2) and np.isfinite(samples["x"]).all()
        assert samples["path"].shape == (count, 16, 2) and samples["energy_trace"].shape == (16, count)
        assert samples["path_steps"].tolist() == frames(10).tolist()
        assert np.array_equal(samples["path"][-1], samples["x"][:16])
        assert samples["energy_data"].shape == (200,) and samples["energy_test"].shape == (50,)
        assert np.mean(samples["energy_samples"]) == pytest.approx(results["energy_samples"], rel=1e-5)
        # the trace ends where the energies of the samples begin
        assert samples["energy_trace"][:, -1] == pytest.approx(samples["energy_samples"][:16], rel=1e-4, abs=1e-5)


def test_a_run_uses_no_key_twice(thalweg, no_report):
    with jax.debug_key_reuse(True):
        assert thalweg("train", "tiny.toml", "--run-dir", "once", "--set", "train.steps=3").code == 0
        assert thalweg("train", "--resume", "once", "--set", "train.steps=5").code == 0
        assert thalweg("sample", "once", "--seed", "5").code == 0


def test_sampling_again_replaces_samples_and_keeps_the_rest(thalweg, trained):
    before, page = snapshot(trained), (trained / "report.html").read_bytes()
    assert thalweg("sample", trained).code == 0
    assert snapshot(trained)["samples/samples.npz"] == before["samples/samples.npz"]
    assert thalweg("sample", trained, "--seed", "5", "--chains", "3", "--steps", "4").code == 0
    with np.load(trained / "samples" / "samples.npz") as samples:
        assert samples["x"].shape == (3, 2) and samples["path_steps"][-1] == 4
    results = json.loads((trained / "results.json").read_text())
    assert (results["chains"], results["steps"], results["seed"], results["updates"]) == (3, 4, 5, 12)
    assert results["training_seconds"] == json.loads(before["results.json"])["training_seconds"]
    untouched = {"config.toml", "metrics.jsonl"} | {name for name in before if name.startswith("checkpoints")}
    assert all(snapshot(trained)[name] == before[name] for name in untouched)
    (trained / "report.html").unlink()
    assert thalweg("report", trained).code == 0
    assert (trained / "report.html").is_file() and (trained / "report.html").read_bytes() != page


def test_training_in_pieces_is_training_at_once_bit_for_bit(thalweg, trained, tmp_path, no_report):
    pieces = tmp_path / "pieces"
    assert thalweg("train", "tiny.toml", "--run-dir", pieces, "--set", "train.steps=6").code == 0
    short = json.loads((pieces / "results.json").read_text())
    assert thalweg("train", "--resume", pieces, "--set", "train.steps=12").code == 0
    assert_same(pieces, trained)
    whole, cut = (tomllib.loads((each / "config.toml").read_text()) for each in (trained, pieces))
    assert cut.pop("changes") == [{"update": 6, "set": ["train.steps=12"]}]
    assert whole["train"].pop("steps") == 12 and cut["train"].pop("steps") == 6
    assert whole == cut
    results = json.loads((pieces / "results.json").read_text())
    assert results["updates"] == 12 and results["training_seconds"] > short["training_seconds"]


def test_a_run_killed_before_its_first_checkpoint_starts_again(thalweg, trained, tmp_path, no_report):
    killed = tmp_path / "killed"
    killed.mkdir()
    (killed / "config.toml").write_text((trained / "config.toml").read_text())
    (killed / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "lo')
    assert "starting from the first update" in thalweg("train", "--resume", killed).err
    assert_same(killed, trained)


@pytest.mark.slow
@pytest.mark.parametrize("sent, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_save_the_update_and_resuming_equals_never_stopping(thalweg, tmp_path, no_report, sent, status):
    """The run is stopped at an update nobody chose; both ways to five updates later must agree to the bit."""
    stopped, straight = tmp_path / "stopped", tmp_path / "straight"
    command = [sys.executable, "-c", COMMAND, "train", "tiny.toml", "--run-dir", "stopped"]
    command += ["--set", "train.steps=1000000", "--set", "train.checkpoint_every=50"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL)
    try:
        patience = time.monotonic() + 240
        while not any((stopped / "checkpoints").glob("[0-9]*/_CHECKPOINT_METADATA")):
            assert process.poll() is None and time.monotonic() < patience, process
            time.sleep(0.1)
        process.send_signal(sent)
        _, err = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == status
    # lines of progress may come before it
    assert "thalweg train --resume stopped" in err.splitlines()[-1] and "Traceback" not in err
    done, _ = arrays(stopped)
    assert done is not None and f"update {done}," in err
    assert json.loads((stopped / "results.json").read_text())["updates"] == done
    more = ["--set", f"train.steps={done + 5}"]
    assert thalweg("train", "--resume", stopped, *more).code == 0
    assert thalweg("train", "tiny.toml", "--run-dir", straight, *more).code == 0
    assert_same(stopped, straight)


@pytest.mark.parametrize("command", [("sample",), ("train", "--resume")])
def test_a_damaged_checkpoint_is_passed_over_and_said(thalweg, trained, command, tmp_path, no_report):
    whole = snapshot(trained)
    newest = trained / "checkpoints" / "12"
    largest = max((each for each in newest.rglob("*") if each.is_file()), key=lambda each: each.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    largest.write_bytes(content)
    outcome = thalweg(*command, trained)
    assert len(outcome.err.splitlines()) == 1
    assert "checkpoints/12, got a damaged one; update 8 is used instead" in outcome.err
    if command == ("sample",):
        assert outcome.code == 0 and json.loads((trained / "results.json").read_text())["updates"] == 8
    else:
        # finished, but with a finding; and as it would have been
        assert outcome.code == 3 and "finding: expected a whole checkpoint" in outcome.out
        assert (trained / "metrics.jsonl").read_bytes() == whole["metrics.jsonl"]


def test_missing_and_truncated_files_are_refused_in_a_sentence(thalweg, trained, tmp_path):
    assert "run folder" in thalweg("sample", tmp_path / "nowhere").refusal
    assert "run folder" in thalweg("train", "--resume", tmp_path / "nowhere").refusal
    (trained / "results.json").write_text('{"updates": 1')
    assert "results.json: expected JSON" in thalweg("sample", trained).refusal
    config = (trained / "config.toml").read_text()
    (trained / "config.toml").write_text(config[: config.index("ema") + 2])
    for command in (["sample"], ["train", "--resume"], ["report"]):
        assert "config.toml: expected TOML" in thalweg(*command, trained).refusal


def test_a_run_folder_is_not_written_over(thalweg, trained):
    before = snapshot(trained)
    assert "--resume" in thalweg("train", "tiny.toml", "--run-dir", trained).refusal
    other = ["--set", "objective.start.size=30", "--set", "train.steps=16"]
    assert "other arrays" in thalweg("train", "--resume", trained, *other).refusal
    assert snapshot(trained) == before


def test_a_fresh_run_replaces_an_old_one_and_nothing_else(thalweg, trained, no_report):
    (trained / "notes.txt").write_text("mine")
    refused = thalweg("train", "tiny.toml", "--run-dir", trained, "--fresh", "--set", "train.batch_size=0")
    assert "batch_size" in refused.refusal and arrays(trained)[0] == 12
    assert thalweg("train", "tiny.toml", "--run-dir", trained, "--fresh", "--set", "train.steps=3").code == 0
    assert arrays(trained)[0] == 3
    assert (trained / "notes.txt").read_text() == "mine"
    assert "--run-dir" in thalweg("train", "tiny.toml", "--fresh").refusal


@pytest.mark.parametrize("assignment", ["train.batch_size=1000", "objective.start.size=5", "train.ema=1.5"])
def test_what_is_refused_leaves_no_folder(thalweg, tmp_path, assignment):
    assert "expected" in thalweg("train", "tiny.toml", "--set", assignment).refusal
    assert not (tmp_path / "runs").exists()


def test_runs_are_numbered(tmp_path):
    (tmp_path / "digits-7").mkdir()
    (tmp_path / "digits-old").mkdir()
    assert [new_folder(tmp_path, "digits").name for _ in range(2)] == ["digits-8", "digits-9"]
    assert new_folder(tmp_path, "digits[1]").name == "digits[1]-1"


def test_a_diverged_training_ends_with_a_sentence_and_code_1(thalweg, tmp_path):
    hot = ["--set", "optimizer.type=sgd", "--set", "optimizer.learning_rate=1e30", "--run-dir", "hot"]
    outcome = thalweg("train", "tiny.toml", *hot)
    assert outcome.code == 1 and len(outcome.err.splitlines()) == 1
    assert "expected a finite loss" in outcome.err and "thalweg train --resume hot --set" in outcome.err


def test_a_training_that_runs_away_is_stopped_with_a_sentence_a_report_and_code_1(thalweg, tmp_path):
    wild = ["--set", "objective.kernel.step_size=2.0", "--set", "optimizer.learning_rate=0.5"]
    outcome = thalweg("train", "tiny.toml", *wild, "--set", "train.steps=400", "--run-dir", "wild")
    assert outcome.code == 1
    last = outcome.err.splitlines()[-1]
    assert "training was stopped at update" in last and "thalweg train --resume wild --set" in last
    page = (tmp_path / "wild" / "report.html").read_text()
    assert page.index("This training ran away and was stopped.") < page.index("No samples yet")
    findings = json.loads((tmp_path / "wild" / "results.json").read_text())["findings"]
    assert findings[-1]["stops"] and findings[-1]["words"] in last


FULL_DISK = """
import resource, sys
from thalweg.cli.main import run

resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))
for command in (["sample", "--chains", "5000"], ["train", "--set", "train.steps=16", "--resume"]):
    try:
        run([*command, sys.argv[1]])
    except SystemExit as left:
        assert left.code == 2, left
"""


@pytest.mark.slow
def test_a_full_disk_is_one_sentence_and_earlier_files_stay_whole(trained):
    """Files cannot grow beyond 12 kB: neither new samples nor a new checkpoint fit."""
    before = snapshot(trained)
    command = [sys.executable, "-c", FULL_DISK, str(trained)]
    # JAX's own cache of compiled programs would meet the limit too, and say so
    env = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True, env=env)
    sampling, training = [line for line in done.stderr.splitlines() if "expected" in line]
    assert "samples.npz: expected to write it, got 'File too large'" in sampling
    assert "expected to write the checkpoint" in training and "File too large" in training
    after = snapshot(trained)
    # what may differ is whole: the configuration that was asked for, the time spent so far, and more metrics
    assert {name for name in before if after.get(name) != before[name]} <= {
        "config.toml",
        "results.json",
        "metrics.jsonl",
    }
    assert after["metrics.jsonl"].startswith(before["metrics.jsonl"])
    assert json.loads(after["results.json"])["updates"] >= 12
    assert not [name for name in after if name.endswith(".part")]
    assert arrays(trained)[0] == 12
