"""The types and default of each key of a configuration, and the check of a value against them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import jax
import numpy as np

from thalweg.runs.hints import did_you_mean, shown

NONE = "none"  # TOML has no null
NUMBERS = jax.Array
_LISTS = (tuple, list, Sequence)
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    jax.Array: "a number or a list of numbers",
    None: f'"{NONE}"',
}
_PLURALS = {bool: "truth values", int: "whole numbers", float: "numbers", str: "texts"}


class _Required:
    """Marks a setting without a default."""


REQUIRED = _Required()


class Setting(NamedTuple):
    """One key of a table: the types its value may have, which may include ``None``, and its default, if any.

    `NUMBERS` is a number or a list of numbers. If the types do not include None, the default None of a kernel or a
    start means the constructor's own default.
    """

    types: tuple[Any, ...]
    default: Any = REQUIRED

    @property
    def required(self) -> bool:
        """Whether a value must be given."""
        return self.default is REQUIRED


class Entry(NamedTuple):
    """What a ``type`` of a table stands for: the function or class that builds it, and its keys."""

    maker: Callable[..., Any]
    keys: Mapping[str, Setting]


Table = Mapping[str, Entry]


def _plain(member: Any) -> bool:
    if get_origin(member) in _LISTS:
        return all(_plain(part) for part in get_args(member) if part is not Ellipsis)
    return get_origin(member) is Literal or (isinstance(member, type | None) and member in _WORDS)


def check(where: str, value: Any, setting: Setting) -> Any:
    """``value`` if the setting's types allow it, as written in TOML; integers become floats, paths absolute."""
    # "none" is tried before any text, a path before a text, and an integer before a float
    for member in sorted(setting.types, key=lambda each: (each is not None, each is not Path, each is float)):
        admitted, kept = _admit(value, member)
        if admitted:
            return kept
    choices = [choice for member in setting.types if get_origin(member) is Literal for choice in get_args(member)]
    fix = did_you_mean(value, choices) if isinstance(value, str) and choices else "correct the value"
    raise ValueError(f"{where}: expected {expected(setting)}, got {shown(value)}; {fix}")


def expected(setting: Setting) -> str:
    """A setting's types in words."""
    return " or ".join(dict.fromkeys(_word(each) if _plain(each) else "a table" for each in setting.types))


def _admit(value: Any, member: Any) -> tuple[bool, Any]:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if member is None:
        return value == NONE, value
    if get_origin(member) is Literal:
        return value in get_args(member), value
    if get_origin(member) in _LISTS:
        return _admit_list(value, member)
    if member is jax.Array and isinstance(value, list):
        return _admit_list(value, list[float]) if not _is_nested(value) else _admit_list(value, list[jax.Array])
    if member is float or member is jax.Array:
        return number, float(value) if number else value
    if member is int:
        return number and isinstance(value, int), value
    if member is Path and isinstance(value, str):
        return True, str(Path(value).expanduser().absolute())
    return member in (bool, str) and isinstance(value, member), value


def _is_nested(value: list) -> bool:
    return any(isinstance(each, list) for each in value)


def _admit_list(value: Any, member: Any) -> tuple[bool, Any]:
    parts = get_args(member)
    if not isinstance(value, list):
        return False, value
    if get_origin(member) is not tuple or Ellipsis in parts:
        parts = parts[:1] * len(value)
    if len(parts) != len(value):
        return False, value
    results = [_admit(each, part) for each, part in zip(value, parts, strict=True)]
    return all(admitted for admitted, _ in results), [kept for _, kept in results]


def _word(member: Any) -> str:
    if get_origin(member) is Literal:
        return " or ".join(shown(choice) for choice in get_args(member))
    if get_origin(member) in _LISTS:
        parts = get_args(member)
        count = f"{len(parts)} " if get_origin(member) is tuple and Ellipsis not in parts else ""
        return f"a list of {count}{_PLURALS.get(parts[0], 'lists')}"
    return _WORDS[member]


def plain(value: Any) -> Any:
    """A default, or a field of an object, as written in TOML.

    >>> plain(None), plain((1, 2)), plain(np.float32(0.1))
    ('none', [1, 2], 0.1)
    """
    if value is None:
        return NONE
    if isinstance(value, (jax.Array, np.ndarray, np.generic)):
        array = np.asarray(value)
        if np.issubdtype(array.dtype, np.floating):
            # the shortest decimal that gives this number at its own precision: 0.1, not 0.10000000149
            array = np.array([float(str(each)) for each in array.ravel()]).reshape(array.shape)
        return array.tolist()
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
