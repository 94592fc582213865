"""What a run leaves behind while it trains: its numbers, a progress bar, and an orderly end on Ctrl-C."""

import contextlib
import json
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array


class DivergedError(RuntimeError):
    """Training met a loss that is not finite; ``history`` holds the metrics of the updates before it."""

    def __init__(self, message: str, history: Mapping[str, np.ndarray]):
        super().__init__(message)
        self.history = history


class Record:
    """The numbers of a run: in memory, and a line per update in ``metrics.jsonl``."""

    def __init__(self, folder: Path | None):
        self._path = None if folder is None else folder / "metrics.jsonl"
        self._rows: list[dict[str, float]] = []
        self._unwritten: list[dict[str, float]] = []
        self.evaluations: list[dict[str, float]] = []
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as problem:
                raise ValueError(
                    f"expected a run folder to write to, got '{problem}'; choose another run_dir"
                ) from problem

    def add(self, step: int, metrics: dict[str, Array]) -> dict[str, float]:
        row = {name: float(value) for name, value in metrics.items()}
        if not np.isfinite(row["loss"]):
            raise DivergedError(
                f"expected a finite loss, got {row['loss']} at update {step}; checkpoints before it are whole: "
                "lower the learning rate or the sampler's step size, or turn on spectral normalisation, and resume",
                self.history(),
            )
        self._rows.append(row)
        self._unwritten.append({"step": step, **row})
        return row

    def evaluate(self, step: int, values) -> None:
        if values:
            row = {"step": step, **{name: float(value) for name, value in values.items()}}
            self.evaluations.append(row)
            self._unwritten.append({"evaluation": True, **row})

    def history(self) -> dict[str, np.ndarray]:
        names = self._rows[0] if self._rows else {}
        return {name: np.array([row[name] for row in self._rows]) for name in names}

    def flush(self) -> None:
        if self._path is not None and self._unwritten:
            text = "".join(json.dumps(row) + "\n" for row in self._unwritten)
            try:
                with self._path.open("a") as file:
                    file.write(text)
            except OSError as problem:
                raise ValueError(
                    f"expected to write to {self._path}, got '{problem}'; free space there and resume"
                ) from problem
        self._unwritten.clear()

    close = flush

    def rewind(self, step: int) -> None:
        """Take up the record of an earlier session, forgetting updates after the checkpoint."""
        assert self._path is not None
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        rows = [row for row in map(parse_line, lines) if row is not None and row["step"] <= step]
        for row in rows:
            kept = {name: value for name, value in row.items() if name != "evaluation"}
            if "evaluation" in row:
                self.evaluations.append(kept)
            else:
                kept.pop("step")
                self._rows.append(kept)
        whole = self._path.with_suffix(".part")
        whole.write_text("".join(json.dumps(row) + "\n" for row in rows))
        whole.replace(self._path)


def parse_line(text: str) -> dict[str, Any] | None:
    """A line of metrics; a last line cut short by a crash is none."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


@contextlib.contextmanager
def progress_bar(shown: bool, done: int, steps: int):
    """Yields ``show(row)``, which moves the progress bar one update on."""
    if not shown:
        yield lambda row: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns) as bar:
        task = bar.add_task("compiling", total=steps, completed=done)

        def show(row):
            shown = ("loss", "gradient_norm", "acceptance")
            words = "  ".join(f"{name} {row[name]:.3g}" for name in shown if name in row)
            bar.update(task, advance=1, description=words)

        yield show


@contextlib.contextmanager
def interrupts():
    """Yields a function that tells whether Ctrl-C was pressed; a second Ctrl-C is obeyed at once."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set  # signals reach the main thread only
        return

    def note(number, frame):
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    before = signal.signal(signal.SIGINT, note)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)
