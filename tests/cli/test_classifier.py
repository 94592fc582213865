"""`thalweg data classifier`: the accuracy and the file on stdout, a sentence where there is nothing to learn."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from thalweg.cli.main import app
from thalweg.evaluate import classifier


@pytest.fixture(autouse=True)
def data_in(tmp_path, monkeypatch):
    monkeypatch.setenv("THALWEG_DATA", str(tmp_path / "data"))


def test_it_explains_itself():
    result = CliRunner().invoke(app, ["data", "classifier", "--help"])
    assert result.exit_code == 0 and "--seed" in result.output


def test_the_accuracy_and_the_weights_are_told_and_kept(thalweg, tmp_path, monkeypatch):
    first = thalweg("data", "classifier", "digits", "--steps", "2")
    assert first.code == 0 and first.err == ""
    name, weights = first.out.splitlines()
    assert re.fullmatch(r"digits classifier \(.*\), accuracy 0\.\d{3} on 297 held-out images", name)
    path = Path(weights.removeprefix("weights: "))
    assert path.is_file() and path.parent == tmp_path / "data" / "classifiers"

    def refuse(*_):
        raise ValueError("trained again")

    monkeypatch.setattr(classifier, "_train", refuse)
    assert thalweg("data", "classifier", "digits", "--steps", "2") == first
    assert thalweg("data", "classifier", "digits", "--steps", "2", "--seed", "1").refusal == "trained again"
    path.write_bytes(path.read_bytes()[:-1])
    assert "got a damaged file; delete it" in thalweg("data", "classifier", "digits", "--steps", "2").refusal


def test_what_cannot_be_learnt_is_refused(thalweg):
    assert "did you mean 'digits'?" in thalweg("data", "classifier", "digts").refusal
    assert "two_moons: expected labels" in thalweg("data", "classifier", "two_moons").refusal
    assert "thalweg data get mnist" in thalweg("data", "classifier", "mnist").refusal
    assert "--steps" in thalweg("data", "classifier", "digits", "--steps", "0").refusal
    assert "name" in thalweg("data", "classifier").refusal
