"""Progress: a bar where there is somebody to see it, lines in a log, the same work with and without."""

import io
import sys
import types

import jax
import jax.numpy as jnp
import pytest

import thalweg as tw
from thalweg.core import progress
from thalweg.core.progress import progress_bar


class Clock:
    """A clock that goes on by so many seconds whenever it is read."""

    def __init__(self, seconds: float):
        self.seconds, self.now = seconds, 0.0

    def monotonic(self) -> float:
        self.now += self.seconds
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Notebook(types.ModuleType):
    """As much of IPython as a bar needs, with everything it displays in ``shown``."""

    def __init__(self):
        super().__init__("IPython")
        self.shown: list[str] = []
        self.display = types.ModuleType("IPython.display")
        self.display.HTML = lambda text: text  # pyright: ignore[reportAttributeAccessIssue]
        self.display.display = self._display  # pyright: ignore[reportAttributeAccessIssue]

    def get_ipython(self):
        return types.SimpleNamespace(kernel=object())

    def _display(self, text, display_id):
        assert display_id is True
        self.shown.append(text)
        return types.SimpleNamespace(update=self.shown.append)


def work(**options) -> None:
    with progress_bar("counting <sheep>", 40, **options) as advance:
        for _ in range(4):
            advance(10, "loss 0.5")


def test_a_brief_job_leaves_nothing_in_a_log_and_a_longer_one_a_line(capsys, monkeypatch):
    monkeypatch.setattr(progress, "time", Clock(0.001))
    work()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "time", Clock(0.5))
    work()
    assert capsys.readouterr().err == "counting <sheep>: 40 of 40, loss 0.5, 2.5 s\n"


def test_a_long_job_leaves_a_line_now_and_then_in_a_log(capsys, monkeypatch):
    monkeypatch.setattr(progress, "time", Clock(4.0))
    work()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == [f"counting <sheep>: {n} of 40" for n in (30, 40)]


def test_work_that_fails_has_no_last_line(capsys):
    with pytest.raises(RuntimeError), progress_bar("counting", 2):
        raise RuntimeError
    assert capsys.readouterr().err == ""


def test_a_resumed_job_goes_on_and_numbers_are_written_as_asked(capsys, monkeypatch):
    monkeypatch.setattr(progress, "time", Clock(2.0))
    with progress_bar("fetching", 3_000_000, done=1_000_000, count=lambda n: f"{n / 1e6:.1f} MB") as advance:
        advance(2_000_000)
    assert "fetching: 3.0 MB of 3.0 MB" in capsys.readouterr().err


def test_nothing_is_shown_unless_asked(capsys):
    work(shown=False)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_on_stderr(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    work()
    assert "counting <sheep>" in terminal.getvalue() and "40 of 40, loss 0.5" in terminal.getvalue()
    assert capsys.readouterr().out == ""


def test_a_notebook_has_a_bar_that_changes_and_escapes_its_words(monkeypatch, capsys):
    notebook = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", notebook.display)
    monkeypatch.setattr(progress, "time", Clock(1.0))
    work()
    assert [text.split('"')[1] for text in notebook.shown] == ["0", "10", "20", "30", "40", "40"]
    assert "counting &lt;sheep&gt;" in notebook.shown[-1] and "40 of 40, loss 0.5" in notebook.shown[-1]
    assert capsys.readouterr() == ("", "")


def test_sample_counts_all_its_steps(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_BRIEF", 0.0)
    energy = lambda x: 0.5 * jnp.sum(x**2)
    kernel = tw.samplers.MALA(0.5)
    tw.sample(energy, kernel, jnp.zeros((3, 2)), key=jax.random.key(0), draws=20, burn_in=7, thin=2, progress=True)
    captured = capsys.readouterr()
    assert "3 chains: 47 of 47" in captured.err and captured.out == ""
