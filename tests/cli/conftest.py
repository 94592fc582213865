"""A command line inside the test process, and a run small enough to be trained in a second."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from thalweg.cli.main import run

TINY = """
[data]
name = "two_moons"
n = 200
n_test = 50

[energy]
type = "MLP"

[objective]
type = "MaximumLikelihood"
steps = 3

[objective.kernel]
type = "Langevin"
step_size = 0.05

[objective.start]
type = "ReplayBuffer"
size = 2000

[optimizer]
type = "adam"
learning_rate = 1e-3

[train]
steps = 12
batch_size = 20
ema = 0.9
checkpoint_every = 4

[sample]
chains = 20
steps = 10
"""


class Outcome(NamedTuple):
    """What a command left behind: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def refusal(self) -> str:
        """The one sentence on stderr of a command that refused its input."""
        assert self.code == 2, self
        assert len(self.err.splitlines()) == 1 and self.err.strip(), self.err
        return self.err.strip()


@pytest.fixture
def thalweg(capsys, tmp_path, monkeypatch) -> Callable[..., Outcome]:
    """The command in a folder of its own: ``thalweg("train", "tiny.toml")``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(TINY)

    def command(*arguments: str | Path) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            run([str(each) for each in arguments])
        written = capsys.readouterr()
        return Outcome(int(left.value.code or 0), written.out, written.err)

    return command


@pytest.fixture(scope="session")
def _trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.toml").write_text(TINY)
    with pytest.raises(SystemExit) as left:
        run(["train", str(folder / "tiny.toml"), "--run-dir", str(folder / "run")])
    assert not left.value.code
    return folder / "run"


@pytest.fixture
def trained(_trained, tmp_path) -> Path:
    """A copy of a finished run, to be sampled from, resumed or damaged."""
    shutil.copytree(_trained, tmp_path / "run")
    return tmp_path / "run"
