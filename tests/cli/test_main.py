"""The command: help at once, lists, and what is said about a wrong word."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from thalweg.cli.configurations import presets
from thalweg.cli.main import app
from thalweg.data import CATALOGUE
from thalweg.experiments import EXPERIMENTS

COMMANDS = [
    [],
    ["train"],
    ["sample"],
    ["report"],
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


def test_help_does_not_wait_for_what_it_does_not_need():
    check = "import sys; from thalweg.cli.main import app; app(['train', '--help'], standalone_mode=False)"
    heavy = "print([name for name in ('jax', 'numpy', 'sklearn', 'matplotlib', 'rich') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", f"{check}; {heavy}"], capture_output=True, text=True, check=True)
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


def test_experiments_are_listed_and_named(thalweg):
    outcome = thalweg("reproduce")
    assert outcome.code == 0 and "two-bumps" in outcome.out
    assert all(name in outcome.out for name in EXPERIMENTS)
    assert "did you mean 'two-bumps'?" in thalweg("reproduce", "two-bump").refusal
