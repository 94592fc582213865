"""`thalweg evaluate`: the table, JSON, the list of metrics, what is refused, and the switch for training."""

import json

import numpy as np
import pytest

from thalweg.runs import sampling
from thalweg.runs.metrics import METRICS

FAST = "energy_gap,overfitting"


@pytest.fixture(autouse=True)
def no_report(monkeypatch):
    """Drawing a page takes longer than all else here."""
    monkeypatch.setattr(sampling, "write_report", lambda folder: folder / "report.html")


def test_the_table_has_intervals_and_says_what_was_kept(thalweg, trained):
    first = thalweg("evaluate", trained, "--metrics", FAST)
    assert first.code == 0 and "95 % interval" in first.out and "kept from" not in first.out
    assert "50 test rows minus 20 samples" in first.out and f"report: {trained / 'report.html'}" in first.out
    again = thalweg("evaluate", trained, "--metrics", FAST)
    assert "energy_gap, overfitting (--fresh computes them again)" in again.out
    rows = lambda outcome: [line for line in outcome.out.splitlines() if line.startswith("│")]
    assert rows(again) == rows(first)
    assert "kept from" not in thalweg("evaluate", trained, "--metrics", FAST, "--fresh").out


def test_json_is_all_there_is_on_stdout(thalweg, trained):
    values = json.loads(thalweg("evaluate", trained, "--metrics", FAST, "--json").out)
    assert values["run"] == str(trained) and values["updates"] == 12
    gap, over = values["metrics"]
    assert (gap["name"], over["name"]) == ("energy_gap", "overfitting")
    assert gap["low"] < gap["value"] < gap["high"] and gap["confidence"] == 0.95 and gap["seconds"] >= 0
    stored = json.loads((trained / "results.json").read_text())["evaluation"]["metrics"]["energy_gap"]
    assert stored["rows"][0]["value"] == gap["value"] and stored["digest"] and stored["date"]


def test_a_changed_checkpoint_is_evaluated_anew(thalweg, trained):
    before = json.loads(thalweg("evaluate", trained, "--metrics", FAST, "--json").out)
    assert thalweg("train", "--resume", trained, "--set", "train.steps=14").code == 0
    after = json.loads(thalweg("evaluate", trained, "--metrics", FAST, "--json").out)
    assert after["updates"] == 14 and not any(row["kept"] for row in after["metrics"])
    assert [row["value"] for row in after["metrics"]] != [row["value"] for row in before["metrics"]]


def test_new_samples_are_evaluated_anew_and_the_rest_is_kept(thalweg, trained):
    thalweg("evaluate", trained, "--metrics", FAST)
    assert thalweg("sample", trained, "--chains", "7").code == 0
    gap, over = json.loads(thalweg("evaluate", trained, "--metrics", FAST, "--json").out)["metrics"]
    assert gap["method"] == "50 test rows minus 7 samples" and not gap["kept"] and over["kept"]


def test_wrong_input_is_refused_in_a_sentence(thalweg, trained, tmp_path):
    refusal = thalweg("evaluate", trained, "--metrics", "enrgy_gap").refusal
    assert "did you mean 'energy_gap'?" in refusal and all(name in refusal for name in METRICS)
    assert "expected a run folder" in thalweg("evaluate", tmp_path / "nowhere").refusal
    (tmp_path / "empty").mkdir()
    assert "expected a run folder with its config.toml" in thalweg("evaluate", tmp_path / "empty").refusal
    assert "expected confidence between" in thalweg("evaluate", trained, "--confidence", "95").refusal
    assert "did you mean 'rings'?" in thalweg("evaluate", trained, "--against", "ringz").refusal
    assert "expected a run to evaluate" in thalweg("evaluate", "--fresh").refusal


def test_nothing_computed_is_exit_code_1(thalweg, trained):
    outcome = thalweg("evaluate", trained, "--metrics", "pseudo_likelihood")
    assert outcome.code == 1 and "needs discrete points" in outcome.out
    assert "expected a metric that can be computed" in outcome.err
    assert thalweg("evaluate", trained, "--metrics", "pseudo_likelihood,energy_gap").code == 0


def test_without_a_run_the_metrics_are_listed(thalweg):
    outcome = thalweg("evaluate")
    assert outcome.code == 0 and all(name in outcome.out for name in METRICS)


def test_other_data_by_name_or_path(thalweg, trained, tmp_path):
    np.save(tmp_path / "far.npy", np.full((30, 2), 50.0, np.float32) + np.arange(30, dtype=np.float32)[:, None])
    outcome = thalweg("evaluate", trained, "--metrics", "ood", "--against", tmp_path / "far.npy")
    assert outcome.code == 0 and "auroc far.npy" in outcome.out
    # the beginning of a name is enough
    outcome = thalweg("evaluate", trained, "--metrics", "ood", "--against", "check")
    assert outcome.code == 0 and "fpr95 checkerboard" in outcome.out
    stored = json.loads((trained / "results.json").read_text())["evaluation"]["metrics"]
    assert list(stored) == ["ood far.npy", "ood checkerboard"]


def test_training_computes_the_metrics_that_the_configuration_names(thalweg, trained, tmp_path):
    wanted = ["--set", 'evaluate=["energy_gap"]', "--set", "train.steps=3"]
    assert thalweg("train", "tiny.toml", "--run-dir", "run-2", *wanted).code == 0
    stored = json.loads((tmp_path / "run-2" / "results.json").read_text())["evaluation"]
    assert list(stored["metrics"]) == ["energy_gap"] and stored["updates"] == 3
    # the command finds them again, from the folder alone
    assert "kept from" in thalweg("evaluate", "run-2", "--metrics", "energy_gap").out
    assert "evaluation" not in json.loads((trained / "results.json").read_text())
    refusal = thalweg("train", "tiny.toml", "--run-dir", "run-3", "--set", 'evaluate=["luck"]').refusal
    assert refusal.startswith("evaluate: expected a metric among")
    # a finished run can be evaluated by the same switch
    assert thalweg("train", "--resume", "run-2", "--set", 'evaluate=["energy_gap","overfitting"]').code == 0
    assert "overfitting" in json.loads((tmp_path / "run-2" / "results.json").read_text())["evaluation"]["metrics"]
