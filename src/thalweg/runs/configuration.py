"""The content of ``config.toml``: a configuration, and the changes that were made to it during the run.

The file has a version, ``schema = 1``, the complete configuration at the first update, and a list of changes. Each
change has the number of updates done when it took effect, and its assignments, written as for ``--set``::

    [[changes]]
    update = 500
    set = ["optimizer.learning_rate=0.0001"]

A run trained again from this file makes the same changes at the same updates.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from thalweg.core import shorten_signatures
from thalweg.core.assignments import assign, difference
from thalweg.core.files import write_whole
from thalweg.core.toml import read_toml, write_toml
from thalweg.runs.config import complete, takes
from thalweg.runs.hints import did_you_mean
from thalweg.train.python_config import CONFIG, PYTHON, SCHEMA

# changing one of these would make it a different run
_FIXED = ("seed", "data", "energy", "objective.type", "train.batch_size")


class Change(NamedTuple):
    """Assignments that took effect after ``update`` updates."""

    update: int
    assignments: tuple[str, ...]


class Stage(NamedTuple):
    """A configuration and the number of updates after which it begins."""

    begins: int
    config: dict[str, Any]


class Configuration(NamedTuple):
    """A complete configuration at the first update, and its changes; `parse_configuration` makes one.

    >>> import thalweg as tw
    >>> tw.runs.Configuration({"seed": 0}).changes
    ()
    """

    start: dict[str, Any]
    changes: tuple[Change, ...] = ()

    def stages(self) -> list[Stage]:
        """The successive configurations of the run."""
        stages = [Stage(0, self.start)]
        for change in self.changes:
            stages.append(Stage(change.update, complete(assign(stages[-1].config, list(change.assignments), takes))))
        return stages

    def last(self) -> dict[str, Any]:
        """The configuration the run ends with."""
        return self.stages()[-1].config

    def text(self) -> str:
        """The content of ``config.toml``."""
        listed = [{"update": change.update, "set": list(change.assignments)} for change in self.changes]
        return write_toml({"schema": SCHEMA, **self.start, **({"changes": listed} if listed else {})})


def parse_configuration(given: Mapping[str, Any], name: str, assignments: Sequence[str] = ()) -> Configuration:
    """Check and complete a configuration read from TOML; ``assignments`` change it before the first update.

    Error messages call it ``name``. A file without a version is taken as version 1.

    >>> import thalweg as tw
    >>> config = {"data": {"name": "two_moons", "n": 50}, "energy": {"type": "MLP", "width": 8},
    ...           "objective": {"type": "MaximumLikelihood", "steps": 2}, "train": {"steps": 2, "batch_size": 10},
    ...           "optimizer": {"type": "adam", "learning_rate": 1e-3}, "sample": {"chains": 5, "steps": 4}}
    >>> configuration = tw.runs.parse_configuration(config, "mine")
    >>> configuration.start["train"]["ema"], configuration.changes
    ('none', ())
    """
    _check_schema(given, name)
    if given.get("begun") == PYTHON:
        raise ValueError(
            f"{name}: expected a configuration that can be trained from, got that of a run begun in Python; "
            "go on with it by tw.fit(..., run_dir=..., resume=True)"
        )
    start = {key: value for key, value in given.items() if key not in ("schema", "changes")}
    configuration = Configuration(
        complete(assign(start, list(assignments), takes)), _changes(given.get("changes", []), name)
    )
    for before, after in pairwise(configuration.stages()):
        _check_change(before.config, after.config, after.begins)
    return configuration


def _check_schema(given: Mapping[str, Any], name: str) -> None:
    schema = given.get("schema", SCHEMA)
    if not isinstance(schema, int) or isinstance(schema, bool) or not 1 <= schema <= SCHEMA:
        raise ValueError(
            f"{name}: expected a configuration of version {SCHEMA} or older, got schema = {schema!r:.40}; "
            "a newer thalweg wrote it: upgrade this one"
        )


def _changes(given: Any, name: str) -> tuple[Change, ...]:
    try:
        changes = tuple(Change(int(each["update"]), tuple(each["set"])) for each in given)
        in_order = all(one.update <= other.update for one, other in pairwise(changes))
        if not in_order or not all(isinstance(text, str) for change in changes for text in change.assignments):
            raise TypeError
    except (KeyError, TypeError, ValueError) as problem:
        raise ValueError(
            f"{name}: expected [[changes]] with a rising update and a list to set, got something else; correct them"
        ) from problem
    return changes


def change(configuration: Configuration, assignments: Sequence[str], done: int) -> Configuration:
    """The configuration with ``assignments`` taking effect after ``done`` updates; a ValueError if they cannot.

    A run that lost its newest checkpoints may have changes recorded after ``done``. They become part of the new change,
    so that the result is the last configuration with ``assignments`` applied.
    """
    last = configuration.last()
    after = complete(assign(last, list(assignments), takes))
    if after == last:
        return configuration
    kept = Configuration(configuration.start, tuple(each for each in configuration.changes if each.update < done))
    before = kept.last()
    _check_change(before, after, done)
    if done == 0:
        return Configuration(after)
    new = tuple(difference(before, after))
    return Configuration(configuration.start, (*kept.changes, Change(done, new)) if new else kept.changes)


def _check_change(before: Mapping[str, Any], after: Mapping[str, Any], done: int) -> None:
    """Raise a ValueError for changes that would make a different run, or for a length that is already passed or does
    not fit the schedule."""
    if done == 0:
        return
    changed = [text.partition("=")[0] for text in difference(before, after)]
    for key in changed:
        if any(key == fixed or key.startswith(f"{fixed}.") for fixed in _FIXED):
            raise ValueError(
                f"{key}: expected it as the run was begun with, got another one after {done} updates; "
                "begin a new run with it"
            )
    steps, earlier = after["train"]["steps"], before["train"]["steps"]
    if steps < done:
        raise ValueError(f"train.steps: expected at least the {done} updates already done, got {steps}; raise it")
    schedule = before["optimizer"]["schedule"]
    if steps != earlier and schedule != "constant":
        raise ValueError(
            f"train.steps: expected {earlier}, for which the {schedule} schedule of the learning rate was made, got "
            f"{steps}; begin a new run of that length"
        )
    trains = [key for key in changed if not key.startswith("sample.") and key != "evaluate"]
    if trains and steps == done:
        raise ValueError(
            f"{trains[0]}: expected updates to come that it takes effect in, got a run with all {done} of them done; "
            f"raise train.steps too, or begin a new run"
        )


def read_configuration(folder: Path) -> Configuration:
    """Read the configuration of a run folder; a ValueError names the file if it is missing, damaged or too new.

    >>> from pathlib import Path
    >>> import thalweg as tw
    >>> tw.runs.read_configuration(Path("nowhere"))
    Traceback (most recent call last):
    ValueError: nowhere: expected a run folder, got nothing there; check the path, or where it was moved to
    """
    path = folder / CONFIG
    given = read_config(folder)
    try:
        return parse_configuration(given, str(path))
    except ValueError as problem:
        if str(problem).startswith(str(path)):
            raise
        raise ValueError(f"{path}: {problem}") from problem


def read_config(folder: Path) -> dict[str, Any]:
    """``config.toml`` of a run folder as plain tables; a ValueError if its version is too new."""
    if not folder.is_dir():
        near = {each.parent.name: each.parent for each in folder.parent.glob(f"*/{CONFIG}")}
        fix = did_you_mean(folder.name, near, "check the path, or where it was moved to")
        raise ValueError(f"{folder}: expected a run folder, got nothing there; {fix}")
    path = folder / CONFIG
    if not path.is_file():
        raise ValueError(
            f"{folder}: expected a run folder with its {CONFIG}, got none; check the path, or restore {CONFIG}"
        )
    given = read_toml(path)
    _check_schema(given, str(path))
    return given


def write_configuration(folder: Path, configuration: Configuration) -> Path:
    """Write ``config.toml``."""
    return write_whole(folder / CONFIG, configuration.text().encode())


shorten_signatures(globals(), ["Configuration", "parse_configuration", "read_configuration"])
