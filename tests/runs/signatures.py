"""What a constructor's signature says about the keys of a table: read here to be compared with what is declared."""

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union, get_args, get_origin

import jax

from thalweg.runs.settings import REQUIRED, Setting
from thalweg.runs.settings import _plain as _plain


def settings(
    maker: Callable[..., Any], *markers: Any, given: Sequence[str] = (), named: Mapping[str, Any] | None = None
) -> dict[str, Setting]:
    """The parameters of ``maker`` that a configuration can hold: plain values, and the types among ``markers``.

    Those named in ``given`` are the program's to give; others (random keys, functions) are too, or stay at their
    defaults. ``named`` are the types of parameters that take any object, by their names.
    """
    fields = inspect.get_annotations(maker) if inspect.isclass(maker) else {}
    known = {}
    for name, parameter in inspect.signature(maker).parameters.items():
        hint = parameter.annotation
        # a field with a converter takes anything; what it is converted to says what is meant
        hint = fields.get(name, Any) if hint is Any else hint
        members = _members((named or {}).get(name, Any) if hint is Any else hint)
        kept = tuple(each for each in _sharpened(members, parameter.default) if each in markers or _plain(each))
        if name not in given and any(each is not None for each in kept):
            default = REQUIRED if parameter.default is inspect.Parameter.empty else parameter.default
            known[name] = Setting(kept, default)
    return known


def _members(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(member for part in get_args(hint) for member in _members(part))
    return (None,) if hint is type(None) else (hint,)


def _sharpened(members: tuple[Any, ...], default: Any) -> tuple[Any, ...]:
    """Array types admit truth values, whole numbers and more; in a configuration each means one kind of number."""
    if jax.Array not in members:
        return members
    if float in members:
        kind = float
    else:
        kind = int if isinstance(default, int) and not isinstance(default, bool) else jax.Array
    return (kind, *(member for member in members if member is None))
