"""The best checkpoint of a run by a chosen metric, beside the newest ones."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import PyTree

from thalweg.core import one_of
from thalweg.core.files import read_json, write_json
from thalweg.train.checkpoint import Checkpoints

BEST = "best"
VALUES = "best.json"


def check_keep_best(metric: Any, best_is: Any, folder: Path | None) -> None:
    """Raise a ValueError unless these say which checkpoint to keep, and there is a folder for it."""
    one_of("best_is", best_is, ("highest", "lowest"))
    if metric is None:
        return
    if not isinstance(metric, str) or not metric:
        raise ValueError(f"expected keep_best to be the name of a metric, got {metric!r:.60}; give one, such as 'loss'")
    if folder is None:
        raise ValueError("expected a run_dir to keep the best checkpoint in, got none; name a folder")


class BestCheckpoint:
    """The folder ``best`` of a run: the weights of the update with the best value of a metric.

    The value is what a callback returned, or else a metric of the updates, averaged over the updates since the last
    checkpoint was due. ``best.json`` has the values. An earlier best checkpoint is deleted only when no checkpoint is
    left from which a resumed run would need it, so that a run cut in two keeps what an uninterrupted run keeps.

    Args:
        folder: the run folder; None if the run has none.
        metric: the name of the metric; None to keep nothing.
        best_is: ``"highest"`` or ``"lowest"``.
        due: the update by which every callback has been called.
    """

    def __init__(self, folder: Path | None, metric: str | None, best_is: str, due: int):
        self.metric, self._highest, self._due = metric, best_is == "highest", due
        self._about = {"metric": metric, "best_is": best_is}
        self._folder, self._files = folder, None
        self._values: dict[int, float] = {}
        self._seen = metric is None

    def rewind(self, done: int) -> None:
        """Read the values of an earlier session; its checkpoints after update ``done``, and those by another metric
        than the one asked for now, are deleted."""
        assert self._folder is not None
        if self.metric is None and not (self._folder / BEST).is_dir():
            return
        about = read_json(self._folder / VALUES)
        before = {name: about.get(name) for name in self._about}
        if self.metric is None:
            self._about = before
        values = about.get("values", {}) if self._about == before else {}
        kept = {int(step): float(value) for step, value in values.items() if int(step) <= done}
        files = self._open()
        files.remove(lambda step: step not in kept)
        self._values = {step: kept[step] for step in files.steps()}
        self._write()

    def offer(self, step: int, values: Mapping[str, float], arrays: PyTree) -> None:
        """Save ``arrays`` if ``values`` hold the metric and it is better than all before."""
        if self.metric is None or self.metric not in values:
            return
        self._seen = True
        value = float(values[self.metric])
        sign = 1.0 if self._highest else -1.0
        if not math.isfinite(value) or any(sign * value <= sign * before for before in self._values.values()):
            return
        if step in self._values:  # a second callback returned it too
            self._open().remove(lambda saved: saved == step)
        self._open().save(step, arrays)
        self._values[step] = value
        self._write()

    def offer_updates(
        self, step: int, every: int, rows: Sequence[Mapping[str, float]], evaluations: Sequence[Mapping], arrays: PyTree
    ) -> None:
        """`offer` the mean of a metric of the updates since the last multiple of ``every``, unless a callback returns
        a number of that name."""
        if self.metric is None or any(self.metric in row for row in evaluations):
            return
        recent = [row[self.metric] for row in rows[(step - 1) // every * every : step] if self.metric in row]
        if recent:
            self.offer(step, {self.metric: float(np.mean(recent))}, arrays)

    def require(self, step: int, rows: Sequence[Mapping[str, float]], evaluations: Sequence[Mapping]) -> None:
        """Raise a ValueError if all callbacks have been called and neither they nor the updates have the metric."""
        if self._seen or step < self._due:
            return
        names = dict.fromkeys(name for row in (*rows[-1:], *evaluations) for name in row if name != "step")
        if self.metric not in names:
            raise ValueError(
                f"expected keep_best to be a metric of the updates or of a callback ({', '.join(names)}), got "
                f"{self.metric!r:.60}; name one of them"
            )
        self._seen = True

    def forget(self, oldest: int | None) -> None:
        """Delete what is no longer needed when the run can be resumed only from update ``oldest`` or later."""
        before = [step for step in self._values if oldest is not None and step <= oldest]
        for step in sorted(before)[:-1]:
            del self._values[step]
        if len(before) > 1:
            self._write()
            self._open().remove(lambda step: step not in self._values)

    def _open(self) -> Checkpoints:
        assert self._folder is not None
        if self._files is None:
            self._files = Checkpoints(self._folder / BEST, kept=None)
        return self._files

    def _write(self) -> None:
        assert self._folder is not None
        values = {str(step): value for step, value in sorted(self._values.items())}
        write_json(self._folder / VALUES, {**self._about, "values": values})


def read_best(folder: Path) -> dict[str, Any]:
    """The metric, the update and the value of the best checkpoint of a run; empty if it has none.

    >>> read_best(Path("nowhere"))
    {}
    """
    about = read_json(folder / VALUES)
    if not about.get("values"):
        return {}
    update, value = max((int(step), value) for step, value in about["values"].items())
    return {"metric": about["metric"], "update": update, "value": value}


def checkpoint_folder(run_dir: Path, best: bool) -> Path:
    """The folder of the newest checkpoints of a run, or of the best one; a ValueError if it is not there."""
    if best and not (run_dir / BEST).is_dir():
        raise ValueError(
            f"{run_dir}: expected a run with a best checkpoint, got none; train with keep_best, the name of a metric"
        )
    return run_dir / (BEST if best else "checkpoints")
