"""Run folders: train, sample, evaluate and report, from Python as from the command line.

Names are imported when first used, so that the command line can show that it is starting before JAX is loaded.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thalweg.runs.configuration import Configuration, parse_configuration, read_configuration
    from thalweg.runs.evaluation import evaluate
    from thalweg.runs.evaluation_rows import Evaluation, Row
    from thalweg.runs.load import load_run
    from thalweg.runs.sampling import report, sample
    from thalweg.runs.training import resume, train

_HOMES = {
    "configuration": ("Configuration", "parse_configuration", "read_configuration"),
    "evaluation": ("evaluate",),
    "evaluation_rows": ("Evaluation", "Row"),
    "load": ("load_run",),
    "sampling": ("report", "sample"),
    "training": ("resume", "train"),
}
_NAMES = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Configuration",
    "Evaluation",
    "Row",
    "evaluate",
    "load_run",
    "parse_configuration",
    "read_configuration",
    "report",
    "resume",
    "sample",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"thalweg.runs.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'thalweg.runs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
