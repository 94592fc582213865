"""Thalweg: energy-based models ``p(x) = exp(-E(x)) / Z`` on JAX.

Names are imported when first used, so that the command line answers before JAX is loaded.
"""

import importlib
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thalweg import (
        core,
        data,
        energies,
        evaluate,
        exact,
        machines,
        noise,
        objectives,
        plot,
        runs,
        samplers,
        spaces,
        train,
    )
    from thalweg.core import as_conditional, as_energy, as_score, from_density, given, score, space_of
    from thalweg.energies import clamp, tempered
    from thalweg.evaluate import check_objective, check_sampler
    from thalweg.runs import load_run, report
    from thalweg.samplers import Chains, sample
    from thalweg.spaces import (
        Binary,
        Categorical,
        Counts,
        Interval,
        Positive,
        PositiveDefinite,
        Product,
        Real,
        Simplex,
        Spin,
    )
    from thalweg.train import Run, fit

__version__ = "0.1.0"

# XLA for CPUs compiles a loop over few bytes as one function, and runs any other operation by operation. Its limit of
# 1 kB leaves out four chains in two dimensions, which run two to four times faster with this one. XLA reads the flags
# when JAX first computes; a user's own choice of its further options stays.
if "xla_backend_extra_options" not in os.environ.get("XLA_FLAGS", ""):
    _option = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=16384"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_option}".strip()

_MODULES = (
    "core",
    "data",
    "energies",
    "evaluate",
    "exact",
    "machines",
    "noise",
    "objectives",
    "plot",
    "report",
    "runs",
    "samplers",
    "spaces",
    "train",
)
_HOMES = {
    "thalweg.core": ("as_conditional", "as_energy", "as_score", "from_density", "given", "score", "space_of"),
    "thalweg.energies": ("clamp", "tempered"),
    "thalweg.evaluate": ("check_objective", "check_sampler"),
    "thalweg.runs": ("load_run",),
    "thalweg.samplers": ("Chains", "sample"),
    "thalweg.spaces": (
        "Binary",
        "Categorical",
        "Counts",
        "Interval",
        "Positive",
        "PositiveDefinite",
        "Product",
        "Real",
        "Simplex",
        "Spin",
    ),
    "thalweg.train": ("Run", "fit"),
}
_NAMES = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [*_MODULES, *_NAMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"thalweg.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'thalweg' has no attribute {name!r}")


class _Report(ModuleType):
    """The room ``thalweg.report``, which is also the function of that name."""

    def __call__(self, run: Any) -> Any:
        return importlib.import_module("thalweg.runs").report(run)


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        # Python makes an imported room an attribute of the package, where the function is looked for
        if name == "report" and isinstance(value, ModuleType):
            value.__class__ = _Report
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted(__all__)
