"""Presets survive more updates than they ask for."""

import json

import pytest

from thalweg.runs import sampling


@pytest.mark.slow
def test_two_moons_survives_four_times_its_updates(thalweg, tmp_path, monkeypatch):
    """A smaller network on smaller batches; with Langevin for MALA it runs away after some hundred updates."""
    monkeypatch.setattr(sampling, "write_report", lambda folder: folder / "report.html")
    smaller = ["energy.width=64", "train.batch_size=64", "train.steps=4000", "sample.chains=100", "sample.steps=100"]
    settings = [part for each in smaller for part in ("--set", each)]
    outcome = thalweg("train", "two-moons", *settings, "--run-dir", "long")
    assert outcome.code == 0 and "finding" not in outcome.out
    rows = [json.loads(line) for line in (tmp_path / "long" / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 4000 and max(row["gradient_norm"] for row in rows) < 50
    unadjusted = ["--set", "objective.kernel.type=Langevin", "--set", "objective.kernel.step_size=0.05"]
    outcome = thalweg("train", "two-moons", *settings, *unadjusted, "--run-dir", "wild")
    assert outcome.code == 1 and "training was stopped at update" in outcome.err
