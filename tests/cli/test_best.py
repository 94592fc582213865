"""The best checkpoint from the command line: kept, written down, sampled, replaced."""

import json
import tomllib

import pytest

import thalweg as tw
from thalweg.train.best import read_best


@pytest.fixture(autouse=True)
def no_report(monkeypatch):
    monkeypatch.setattr("thalweg.runs.training.report", lambda folder: folder)


def test_it_is_kept_by_the_configured_metric(thalweg, tmp_path):
    best = ["--set", "train.keep_best=weight_norm", "--set", "train.best_is=lowest"]
    assert thalweg("train", "tiny.toml", "--run-dir", "run", *best).code == 0
    assert tomllib.loads((tmp_path / "run" / "config.toml").read_text())["train"]["best_is"] == "lowest"
    noted = read_best(tmp_path / "run")
    # the weights grow, so the first mean is the lowest
    assert noted["metric"] == "weight_norm" and noted["update"] == 4
    assert json.loads((tmp_path / "run" / "results.json").read_text())["best"] == noted
    assert tw.load_run(tmp_path / "run", best=True).step == 4
    assert thalweg("sample", "run", "--best", "--steps", "3").code == 0
    assert json.loads((tmp_path / "run" / "results.json").read_text())["updates"] == 4
    assert thalweg("train", "tiny.toml", "--run-dir", "run", "--fresh", "--set", "train.steps=3").code == 0
    assert not (tmp_path / "run" / "best").exists() and not (tmp_path / "run" / "best.json").exists()


def test_bad_input_is_refused_in_a_sentence(thalweg, trained):
    unknown = thalweg("train", "tiny.toml", "--run-dir", "run-2", "--set", "train.keep_best=lss")
    assert unknown.code == 2 and "expected keep_best to be a metric" in unknown.err.splitlines()[-1]
    assert '"highest" or "lowest"' in thalweg("train", "tiny.toml", "--set", "train.best_is=best").refusal
    assert "best checkpoint" in thalweg("sample", trained, "--best").refusal
