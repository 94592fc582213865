"""Change a configuration key by key, as ``--set`` does, and express the difference of two as such assignments."""

import tomllib
from collections.abc import Callable, Container, Mapping
from typing import Any

from thalweg.core.toml import write_value


def assign(
    config: Mapping[str, Any],
    assignments: list[str],
    takes: Callable[[str, Any], Container[str]] = lambda table, name: ("kernel", "start"),
) -> dict[str, Any]:
    """``config`` with every ``key=value`` applied in turn; a value is TOML, or a bare word.

    A new ``type`` (or ``data.name``) clears its table, since the other keys belonged to the old type. Subtables with a
    type of their own are kept if their name is in ``takes(table, type)``. A kernel that the new objective does not take
    moves to ``sample.kernel``.

    >>> assign({"a": {"type": "X", "b": 1}}, ["a.b=2", "a.c=[1, 2]"])
    {'a': {'type': 'X', 'b': 2, 'c': [1, 2]}}
    >>> assign({"a": {"type": "X", "b": 1}}, ["a.type=Y"])
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
        return text  # a bare word: the shell removed the quotes
    return parsed["value"] if len(parsed) == 1 else text


def _copy(value: Any) -> Any:
    return {key: _copy(each) for key, each in value.items()} if isinstance(value, Mapping) else value


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The assignments that turn ``before`` into ``after``, both complete; a table with a new type is written in full.

    >>> from thalweg.core.assignments import assign, difference
    >>> before, after = {"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 0.5}}
    >>> difference(before, after)
    ['a.c=0.5']
    >>> assign(before, difference(before, after)) == after
    True
    """
    return _difference("", before, after)


def _difference(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    if before.get("type") != after.get("type"):
        return [f"{path}.type={write_value(after['type'])}", *_difference(path, {"type": after["type"]}, after)]
    found = []
    for key, value in after.items():
        dotted = f"{path}.{key}" if path else key
        if key in before and before[key] == value and type(before[key]) is type(value):
            continue
        if isinstance(value, Mapping) and (not path or _has_type(value)):
            old = before.get(key)
            found += _difference(dotted, old if isinstance(old, Mapping) else {}, value)
        else:
            found.append(f"{dotted}={write_value(value)}")
    return found
