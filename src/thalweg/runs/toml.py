"""Configurations as TOML text: read, changed key by key, and written by a small serialiser."""

import json
import tomllib
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any


def write(config: Mapping[str, Any]) -> str:
    """A configuration as TOML: tables that have a type, and those at the top, get a heading, others stand in line.

    >>> print(write({"seed": 0, "start": {"type": "from_noise", "noise": {"low": -1.0, "high": 1.0}}}))
    seed = 0
    <BLANKLINE>
    [start]
    type = "from_noise"
    noise = { low = -1.0, high = 1.0 }
    <BLANKLINE>
    """
    return "\n".join(_table("", config)) + "\n"


def _table(path: str, table: Mapping[str, Any]) -> list[str]:
    headed = {
        key: value for key, value in table.items() if isinstance(value, Mapping) and (not path or "type" in value)
    }
    lines = [f"{key} = {_value(value)}" for key, value in table.items() if key not in headed]
    for key, value in headed.items():
        dotted = f"{path}.{key}" if path else key
        lines += ["", f"[{dotted}]", *_table(dotted, value)]
    return lines


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, (bool, str)):
        # JSON's escapes are TOML's, but for one character that JSON leaves alone
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def read(path: Path) -> dict[str, Any]:
    """The configuration in a file; a missing or broken one is refused in one sentence."""
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError as problem:
        raise ValueError(f"{path}: expected a configuration file, got nothing there; check the path") from problem
    except (OSError, UnicodeDecodeError) as problem:
        raise ValueError(f"{path}: expected a readable TOML file, got '{problem}'; check the file") from problem


def parse(text: str, name: str) -> dict[str, Any]:
    """TOML text as tables; ``name`` says in a refusal where it stands."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise ValueError(f"{name}: expected TOML, got something else ({problem}); correct it there") from problem


def changed(
    config: Mapping[str, Any],
    assignments: list[str],
    takes: Callable[[str, Any], Container[str]] = lambda table, name: ("kernel", "start"),
) -> dict[str, Any]:
    """``config`` with every ``key=value`` applied in turn; the values are TOML, or else plain words.

    Another ``type`` (or another ``data.name``) starts its table anew, since the other keys belonged to the old one;
    tables inside it that have a type of their own stay where ``takes(table, type)`` has their name, and a kernel that
    an objective has no use for is kept to sample with.

    >>> changed({"a": {"type": "X", "b": 1}}, ["a.b=2", "a.c=[1, 2]"])
    {'a': {'type': 'X', 'b': 2, 'c': [1, 2]}}
    >>> changed({"a": {"type": "X", "b": 1}}, ["a.type=Y"])
    {'a': {'type': 'Y'}}
    """
    result = _copy(config)
    for assignment in assignments:
        dotted, equals, text = assignment.partition("=")
        keys = [key.strip() for key in dotted.split(".")]
        if not equals or not all(keys):
            raise ValueError(f"{assignment}: expected key=value, got something else; write --set train.steps=100")
        *tables, last = keys
        table = result
        for depth, key in enumerate(tables, start=1):
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                raise ValueError(
                    f"{dotted}: expected a key, got one inside {'.'.join(tables[:depth])}, which is no table; "
                    "shorten the key"
                )
        value = _word_or_value(text.strip())
        chooses = last == "type" or keys == ["data", "name"]
        if chooses and table.get(last) != value:
            kept = takes(".".join(tables), value)
            for key in [key for key, each in table.items() if not _has_type(each) or key not in kept]:
                left = table.pop(key)
                if (*tables, key) == ("objective", "kernel"):
                    result.setdefault("sample", {}).setdefault("kernel", left)
        table[last] = value
    return result


def _has_type(value: Any) -> bool:
    return isinstance(value, dict) and "type" in value


def _word_or_value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text  # a bare word: the shell has taken the quotes away
    return parsed["value"] if len(parsed) == 1 else text


def _copy(value: Any) -> Any:
    return {key: _copy(each) for key, each in value.items()} if isinstance(value, Mapping) else value
