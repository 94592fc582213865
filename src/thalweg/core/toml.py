"""Read and write TOML."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_toml(config: Mapping[str, Any]) -> str:
    """A configuration as TOML: top-level tables and tables with a type get a heading, all others are inline tables.

    A top-level list of tables is written as an array of tables, ``[[name]]``.

    >>> from thalweg.core.toml import write_toml
    >>> print(write_toml({"seed": 0, "start": {"type": "from_noise", "noise": {"low": -1.0, "high": 1.0}}}))
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
    listed = {key: value for key, value in table.items() if not path and _is_list_of_tables(value)}
    lines = [f"{key} = {write_value(value)}" for key, value in table.items() if key not in headed and key not in listed]
    for key, value in headed.items():
        dotted = f"{path}.{key}" if path else key
        lines += ["", f"[{dotted}]", *_table(dotted, value)]
    for key, tables in listed.items():
        for each in tables:
            lines += ["", f"[[{key}]]", *_table(key, each)]
    return lines


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, Mapping) for each in value)


def write_value(value: Any) -> str:
    """One value as TOML; a table as an inline table."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {write_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(write_value, value)) + "]"
    if isinstance(value, (bool, str)):
        # the escapes of JSON are those of TOML, except for one character that JSON does not escape
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; a ValueError if it is missing or broken."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError as problem:
        raise ValueError(f"{path}: expected a configuration file, got nothing there; check the path") from problem
    except (OSError, UnicodeDecodeError) as problem:
        raise ValueError(f"{path}: expected a readable TOML file, got '{problem}'; check the file") from problem


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """Parse TOML text; error messages call it ``name``."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise ValueError(f"{name}: expected TOML, got something else ({problem}); correct it there") from problem
