"""The classes and functions that ``model.json`` may name. A file of data runs no code: nothing else is looked up."""

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import paramax

# the rooms of this library in which models, spaces, noise, kernels and objectives are defined
_ROOMS = ("core", "spaces", "exact", "energies", "noise", "samplers", "objectives")
# what reads or writes files, or calls back into Python, is no part of a model
_NOT_MATHEMATICS = ("load", "save", "savez", "fromfile", "fromfunction", "frompyfunc", "from_dlpack", "vectorize")
_FUNCTIONS = {"jax.nn": jax.nn, "jax.numpy": jax.numpy, "jax.scipy.special": jax.scipy.special}


def name_of(thing: Any) -> str:
    """``module:name`` of a class or function."""
    return f"{thing.__module__}:{thing.__qualname__}"


def is_ours(module: str) -> bool:
    """Whether a module belongs to a room of this library whose classes a file may name."""
    return any(module == f"thalweg.{room}" or module.startswith(f"thalweg.{room}.") for room in _ROOMS)


def find_class(name: str, types: Iterable[type] = ()) -> type | None:
    """The class of that name: one of this library, of the libraries it is made of, or of the given ``types``.

    >>> from thalweg.train.model_names import find_class
    >>> find_class("thalweg.energies.neural:MLP").__name__, find_class("subprocess:Popen")
    ('MLP', None)
    """
    own = {name_of(each): each for each in types}
    # a class of the main program is called __main__ in one session and by its module's name in another
    short = {each.__qualname__: each for each in types}
    module, _, qualified = name.partition(":")
    found = own.get(name) or short.get(qualified)
    if found is not None:
        return found
    if is_ours(module):
        found = _attribute(module, qualified)
        return found if isinstance(found, type) and _holds_fields(found) else None
    return _library_classes().get(name)


def find_function(name: str) -> Callable[..., Any] | None:
    """The function of that name: of ``jax.nn``, ``jax.numpy``, ``jax.scipy.special`` or of this library.

    >>> import jax
    >>> from thalweg.train.model_names import find_function
    >>> find_function("jax.nn:silu") is jax.nn.silu, find_function("os:system")
    (True, None)
    """
    module, _, qualified = name.partition(":")
    if is_ours(module):
        found = _attribute(module, qualified)
        return found if callable(found) and not isinstance(found, type) else None
    return _library_functions().get(name)


def function_name(function: Any) -> str | None:
    """The name by which `find_function` finds this very function; none where there is no such name."""
    for name, each in _library_functions().items():
        if each is function:
            return name
    module, qualified = getattr(function, "__module__", None), getattr(function, "__qualname__", "<")
    if not isinstance(module, str) or "<" in qualified or not is_ours(module):
        return None
    name = f"{module}:{qualified}"
    return name if find_function(name) is function else None


def _attribute(module: str, qualified: str) -> Any:
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError:
        return None
    for part in qualified.split("."):
        found = getattr(found, part, None)
    return found


def _holds_fields(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


@lru_cache(1)
def _library_classes() -> Mapping[str, type]:
    from flowjax import bijections, distributions

    homes = (eqx.nn, paramax, bijections, distributions)
    found = [each for home in homes for each in vars(home).values() if isinstance(each, type)]
    return {name_of(each): each for each in found if issubclass(each, eqx.Module)}


@lru_cache(1)
def _library_functions() -> Mapping[str, Callable[..., Any]]:
    # equinox's own default where a network ends without an activation
    identity = inspect.signature(eqx.nn.MLP).parameters["final_activation"].default
    return {"equinox.nn:identity": identity} | {
        f"{home}:{name}": each
        for home, module in _FUNCTIONS.items()
        for name, each in vars(module).items()
        if callable(each) and not isinstance(each, type) and name not in _NOT_MATHEMATICS and not name.startswith("_")
    }
