"""Check and complete a configuration, so that the printed or saved one can be trained from again."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from thalweg.data import CATALOGUE
from thalweg.runs.data_tables import data_keys
from thalweg.runs.energy_table import ENERGIES
from thalweg.runs.hints import did_you_mean, shown, unknown
from thalweg.runs.metrics import parse_metrics
from thalweg.runs.objective_table import OBJECTIVES, TRAIN
from thalweg.runs.optimizer_tables import OPTIMIZERS, SCHEDULES
from thalweg.runs.sampler_tables import CHOICES, SAMPLE, UNIFORM
from thalweg.runs.settings import NONE, Setting, Table, check, expected, plain
from thalweg.samplers.starts import Noise

_SECTIONS = ("data", "energy", "objective", "optimizer", "train", "sample")
_SEED = Setting((int,), 0)
_EVALUATE = Setting((Sequence[str],), ())
_NAME = Setting((str,))


def complete(given: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with every key filled in, in a fixed order; a complete one is returned unchanged.

    Unknown keys, unknown names and values of the wrong type raise a ValueError that names the full dotted key.
    """
    top = ("seed", "evaluate", *_SECTIONS)
    for key in given:
        if key not in top:
            rest = complete({name: each for name, each in given.items() if name in top})
            raise unknown("", key, top, [f"{name}.{inner}" for name in _SECTIONS for inner in rest[name]])
    sections = {name: _table(name, given.get(name, {})) for name in _SECTIONS}
    objective = _complete_choice("objective", sections["objective"], OBJECTIVES)
    return {
        "seed": _check_seed(given.get("seed", _SEED.default)),
        "evaluate": _check_metrics(given.get("evaluate", [])),
        "data": _complete_data(sections["data"]),
        "energy": _complete_choice("energy", sections["energy"], ENERGIES),
        "objective": objective,
        "optimizer": _complete_choice("optimizer", sections["optimizer"], OPTIMIZERS, SCHEDULES),
        "train": _complete_table("train", sections["train"], TRAIN),
        "sample": _complete_table("sample", _with_training_defaults(sections["sample"], objective), SAMPLE),
    }


def takes(where: str, name: Any) -> tuple[str, ...]:
    """The keys that the type ``name`` takes in the table ``where``; empty if the name is unknown."""
    tables = {"energy": ENERGIES, "objective": OBJECTIVES, "optimizer": OPTIMIZERS}
    entry = tables.get(where, {}).get(name) if isinstance(name, str) else None
    return () if entry is None else tuple(entry.keys)


def _check_seed(value: Any) -> int:
    seed = check("seed", value, _SEED)
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed: expected a whole number from 0 to {2**32 - 1}, got {seed}; choose another")
    return seed


def _check_metrics(value: Any) -> list[str]:
    """The metrics that are computed after training."""
    try:
        return list(parse_metrics(check("evaluate", value, _EVALUATE)))
    except ValueError as problem:
        raise ValueError(str(problem) if str(problem).startswith("evaluate") else f"evaluate: {problem}") from problem


def _complete_data(given: Mapping[str, Any]) -> dict[str, Any]:
    options = dict(given)
    if "name" not in options:
        raise ValueError(f"data.name: expected a path or one of {', '.join(CATALOGUE)}, got nothing; add it")
    name = check("data.name", options.pop("name"), _NAME)
    path = Path(name).expanduser()
    if name not in CATALOGUE and path.exists():
        name = str(path.absolute())  # the working directory is not recorded anywhere else
    return {"name": name, **_complete_table("data", options, data_keys(name))}


def _with_training_defaults(given: Mapping[str, Any], objective: Mapping[str, Any]) -> dict[str, Any]:
    """``[sample]`` with the objective's kernel and noise as defaults."""
    start, kernel = objective.get("start", {}), objective.get("kernel")
    filled = {"noise": start["noise"], **given} if "noise" in start else dict(given)
    own = filled.get("kernel", {})
    if kernel is not None and isinstance(own, Mapping) and own.get("type", kernel["type"]) == kernel["type"]:
        filled["kernel"] = {**kernel, **own}
    return filled


def _table(where: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{where}: expected a table, got {shown(given)}; write it as [{where}] with its keys below")
    return given


def _complete_choice(where: str, given: Any, table: Table, more: Mapping[str, Setting] | None = None) -> dict[str, Any]:
    """Complete a table whose ``type`` determines its other keys."""
    name = _table(where, given).get("type")
    if name is None:
        raise ValueError(f"{where}.type: expected one of {', '.join(table)}, got nothing; add it")
    if not isinstance(name, str) or name not in table:
        fix = did_you_mean(str(name), table)
        raise ValueError(f"{where}.type: expected one of {', '.join(table)}, got {shown(name)}; {fix}")
    others = {key: value for key, value in given.items() if key != "type"}
    return {"type": name, **_complete_table(where, others, {**table[name].keys, **(more or {})}, table[name].maker)}


def _complete_table(
    where: str, given: Mapping[str, Any], known: Mapping[str, Setting], maker: Callable[..., Any] | None = None
) -> dict[str, Any]:
    for key in given:
        if key not in known:
            raise unknown(where, key, known)
    filled = {}
    for name, setting in known.items():
        dotted = f"{where}.{name}"
        if name in given:
            filled[name] = _complete_value(dotted, _with_default_type(name, given[name], setting, maker), setting)
        elif setting.required:
            raise ValueError(f"{dotted}: expected {expected(setting)}, got nothing; add it")
        else:
            filled[name] = _default(name, setting, maker)
    return filled


def _with_default_type(name: str, value: Any, setting: Setting, maker: Callable[..., Any] | None) -> Any:
    """A table without a type changes settings of the default object: add the type and its other settings."""
    chosen = any(kind in setting.types for kind in CHOICES) and not setting.required
    if not chosen or not isinstance(value, Mapping) or "type" in value:
        return value
    return {**_default(name, setting, maker), **value}


def _complete_value(where: str, value: Any, setting: Setting) -> Any:
    for kind, table in CHOICES.items():
        if kind in setting.types and not (value == NONE and None in setting.types):
            return _complete_choice(where, value, table)
    if Noise in setting.types and value != NONE:
        return _complete_table(where, _table(where, value), UNIFORM)
    return check(where, value, setting)


def _default(name: str, setting: Setting, maker: Callable[..., Any] | None) -> Any:
    """A default as TOML; if it is an object made by the constructor, its type and its fields."""
    for kind, table in CHOICES.items():
        if kind in setting.types and maker is not None:
            made = getattr(maker(), name)
            named = next(named for named, each in table.items() if each.maker is type(made))
            return {"type": named, **{key: plain(getattr(made, key)) for key in table[named].keys}}
    return plain(setting.default)
