"""The classes and functions that ``model.json`` may name. No other name is looked up, so the file cannot run code."""

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import optax
import paramax

# the packages that define models, spaces, noise, kernels and objectives; none of them reads or writes files
_CORE = ("core.contracts", "core.models", "core.partition", "core.population", "core.random")
_ROOMS = (*_CORE, "spaces", "exact", "energies", "noise", "samplers", "objectives")
# functions that read or write files or call back into Python, which no model needs
_NOT_MATHEMATICS = ("load", "save", "savez", "fromfile", "fromfunction", "frompyfunc", "from_dlpack", "vectorize")
_FUNCTIONS = {"jax.nn": jax.nn, "jax.numpy": jax.numpy, "jax.scipy.special": jax.scipy.special}


def name_of(thing: Any) -> str:
    """``module:name`` of a class or function."""
    return f"{thing.__module__}:{thing.__qualname__}"


def is_ours(module: str) -> bool:
    """Whether a module is in a package of this library whose classes a file may name."""
    return any(module == f"thalweg.{room}" or module.startswith(f"thalweg.{room}.") for room in _ROOMS)


def find_class(name: str, types: Iterable[type] = ()) -> type | None:
    """The class of that name, from this library, from the libraries it builds on, or from ``types``; else None.

    >>> from thalweg.train.model_names import find_class
    >>> find_class("thalweg.energies.neural:MLP").__name__, find_class("subprocess:Popen")
    ('MLP', None)
    """
    own = {name_of(each): each for each in types}
    # a class of the main program is in __main__ in one session and in its own module in another
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
    """The function of that name in ``jax.nn``, ``jax.numpy``, ``jax.scipy.special`` or this library; else None.

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
    """The name under which `find_function` finds this function; None if there is none."""
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
    # a name that the module imported from elsewhere does not count
    own = getattr(found, "__module__", None) == module and getattr(found, "__qualname__", None) == qualified
    return found if own else None


def _holds_fields(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


@lru_cache(1)
def _library_classes() -> Mapping[str, type]:
    from flowjax import bijections, distributions

    homes = (eqx.nn, paramax, bijections, distributions)
    found = [each for home in homes for each in vars(home).values() if isinstance(each, type)]
    modules = [each for each in found if issubclass(each, eqx.Module)]
    # an objective that also trains its noise keeps the state of an optimiser
    states = [each for each in vars(optax).values() if isinstance(each, type) and hasattr(each, "_fields")]
    return {name_of(each): each for each in [*modules, *states]}


@lru_cache(1)
def _library_functions() -> Mapping[str, Callable[..., Any]]:
    # equinox's default for a network without a final activation
    identity = inspect.signature(eqx.nn.MLP).parameters["final_activation"].default
    found = {f"{home}:{name}": each for home, module in _FUNCTIONS.items() for name, each in vars(module).items()}
    return {"equinox.nn:identity": identity} | {
        name: each for name, each in found.items() if _is_mathematics(name.partition(":")[2], each)
    }


def _is_mathematics(name: str, thing: Any) -> bool:
    """Whether a member of a JAX module is a public function of arrays, not a dtype."""
    function = callable(thing) and not isinstance(thing, type) and not hasattr(thing, "dtype")
    return function and not name.startswith("_") and name not in _NOT_MATHEMATICS
