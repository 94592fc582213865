"""The command: help at once, lists, and what is said about a wrong word."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from thalweg.cli.configurations import presets
from thalweg.cli.main import app
from thalweg.data import CATALOGUE
from thalweg.experiments import EXPERIMENTS, Experiment

COMMANDS = [
    [],
    ["train"],
    ["sample"],
    ["report"],
    ["evaluate"],
    ["reproduce"],
    ["doctor"],
    ["data"],
    ["data", "list"],
    ["data", "get"],
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert result.output.startswith("Usage: ")
    assert len(result.output.splitlines()) > 6


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_help_does_not_wait_for_what_it_does_not_need(command):
    check = "import sys; from thalweg.cli.main import app; app([sys.argv[1], '--help'], standalone_mode=False)"
    heavy = "print([name for name in ('jax', 'numpy', 'sklearn', 'matplotlib', 'rich') if name in sys.modules])"
    asked = [sys.executable, "-c", f"{check}; {heavy}", command]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_no_command_is_a_question_for_help(thalweg):
    assert thalweg().out == thalweg("--help").out
    assert thalweg("--version").out.startswith("thalweg ")


def test_train_alone_lists_the_presets(thalweg):
    outcome = thalweg("train")
    assert outcome.code == 0 and all(name in outcome.out for name in presets())


def test_wrong_words_are_refused_with_the_right_ones(thalweg):
    assert "Did you mean 'train'?" in thalweg("trian").refusal
    assert "--dry-rum" in thalweg("train", "digits", "--dry-rum").refusal
    assert "RUN" in thalweg("sample").refusal
    assert "--chains" in thalweg("sample", "run", "--chains", "many").refusal
    assert "nothing but a run" in thalweg("train", "digits", "--resume", "run").refusal


def test_data_sets_are_listed_and_named(thalweg):
    outcome = thalweg("data", "list")
    assert outcome.code == 0 and all(name in outcome.out for name in CATALOGUE)
    assert "did you mean 'mnist'?" in thalweg("data", "get", "minst").refusal
    assert "made on the spot" in thalweg("data", "get", "two_moons").refusal


def test_an_experiment_names_every_file_it_wrote_and_notes_its_duration(thalweg, tmp_path, monkeypatch):
    def run(self, key, folder, progress, **options):
        for name in ("two-bumps.png", "two-bumps.json", "two-bumps-2.gif", "runs/a/notes.txt"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("")
        return {}

    monkeypatch.setattr(Experiment, "run", run)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "two-bumps.old").write_text("of another day")
    said = thalweg("reproduce", "two-bumps", "--folder", "out").out
    assert said.splitlines()[:4] == [
        "file: out/runs/a/notes.txt",
        "animation: out/two-bumps-2.gif",
        "figure: out/two-bumps.png",
        "numbers: out/two-bumps.json",
    ]
    assert "two-bumps.old" not in said
    assert list(json.loads((tmp_path / "out" / "durations.json").read_text())) == ["two-bumps"]
    (tmp_path / "out" / "durations.json").write_text('{"two-bumps": 95.0}')
    assert "1 min 35" in " ".join(thalweg("reproduce", "--folder", "out").out.split())
    (tmp_path / "out" / "durations.json").write_text("[1]")
    assert "durations.json: expected the seconds" in thalweg("reproduce", "--folder", "out").refusal


def test_hints_are_given_where_they_are_near(thalweg):
    assert "did you mean" not in thalweg("reproduce", "something-else").refusal
    assert "did you mean" not in thalweg("train", "zebra").refusal
    assert "did you mean" not in thalweg("train", "two-moons", "--set", "objective.colour=1").refusal
    assert "did you mean 'two-moons'?" in thalweg("train", "two-mons").refusal


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "thalweg", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("thalweg ")
    wrong = subprocess.run([sys.executable, "-m", "thalweg", "trian"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "Did you mean 'train'?" in wrong.stderr


def test_the_shell_completes_commands():
    ask = {"_THALWEG_COMPLETE": "complete_bash", "COMP_WORDS": "thalweg re", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", "from thalweg.cli.main import run; run()"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | ask)
    assert done.stdout.split() == ["report", "reproduce"]
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output


def test_experiments_are_listed_and_named(thalweg):
    outcome = thalweg("reproduce")
    assert outcome.code == 0 and "two-bumps" in outcome.out
    assert all(name in outcome.out for name in EXPERIMENTS)
    assert "did you mean 'two-bumps'?" in thalweg("reproduce", "two-bump").refusal
