"""Models as JSON and back: the class and the fields of every part, with numbered places for its arrays.

| in JSON | meaning |
|---|---|
| ``null``, ``true``, ``1``, ``0.5``, ``"silu"`` | itself |
| ``{"place": 3}`` | array number 3 of the checkpoint |
| ``{"array": "float32", "shape": [2], "bytes": "…"}`` | an array written out in base64 |
| ``{"class": "module:Name", "fields": {…}}`` | an object, with ``"space"`` where `tw.as_energy` gave it one |
| ``{"tuple": […]}``, ``{"list": […]}``, ``{"dict": [[key, value], …]}`` | the same; a named tuple has a ``"class"`` |
| ``{"function": "jax.nn:silu"}``, ``{"partial": …}`` | a function by its name, a ``functools.partial`` of one |
| ``{"dtype": "float32"}``, ``{"number type": "float32"}`` | a numpy dtype, a scalar type such as ``jnp.float32`` |
| ``{"number": "inf"}``, ``{"structure": …}`` | a number that JSON lacks, the fixed structure of a graph |
"""

import base64
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thalweg.core.models import rebuild_on
from thalweg.energies.structure import Structure
from thalweg.train.model_names import find_class, find_function, function_name, name_of

_ARRAYS = (jax.Array, np.ndarray, np.generic)


class Place:
    """Stands for the array of this number."""

    def __init__(self, number: int):
        self.number = number


class UnwritableError(ValueError):
    """Something in a model cannot be written to a file, because it has no name by which to find it again."""


def number_arrays(tree: PyTree, first: int = 0) -> PyTree:
    """``tree`` with a `Place` for each of its arrays, numbered in the order of ``jax.tree.leaves``."""
    leaves, structure = jax.tree.flatten(tree)
    numbers = iter(range(first, first + len(leaves)))
    return jax.tree.unflatten(
        structure, [Place(next(numbers)) if isinstance(leaf, _ARRAYS) else leaf for leaf in leaves]
    )


def to_json(value: Any, where: str = "model") -> Any:
    """``value`` as JSON, by the table of this module; `UnwritableError` names a part that cannot be written.

    >>> import jax, thalweg as tw
    >>> from thalweg.train.model_tree import from_json, to_json
    >>> written = to_json(tw.Interval(0.0, 1.0))
    >>> written["class"], from_json(written) == tw.Interval(0.0, 1.0)
    ('thalweg.spaces.continuous:Interval', True)
    """
    if value is None or isinstance(value, (bool, str)) or type(value) is int:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"number": repr(value)}
    if isinstance(value, Place):
        return {"place": value.number}
    if isinstance(value, _ARRAYS):
        return _array_to_json(value, where)
    if isinstance(value, Structure):
        return {"structure": _array_to_json(value.array, where)}
    if isinstance(value, (tuple, list)):
        kind = "list" if isinstance(value, list) else "tuple"
        named = {"class": name_of(type(value))} if hasattr(value, "_fields") else {}
        return {kind: [to_json(each, f"{where}[{place}]") for place, each in enumerate(value)], **named}
    if isinstance(value, dict):
        return {"dict": [[to_json(key, where), to_json(each, f"{where}[{key!r}]")] for key, each in value.items()]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _object_to_json(value, where)
    if isinstance(value, functools.partial):
        parts = [value.func, value.args, value.keywords]
        return {"partial": [to_json(part, where) for part in parts], "pytree": isinstance(value, jax.tree_util.Partial)}
    if isinstance(value, np.dtype):
        return {"dtype": value.name}
    dtype = getattr(value, "dtype", None)
    if isinstance(dtype, np.dtype) and getattr(jnp, dtype.name, None) is value:
        return {"number type": dtype.name}  # jnp.float32 and the like
    name = function_name(value)
    if name is not None:
        return {"function": name}
    raise UnwritableError(f"{where} is {_describe(value)}, which has no name that a file could give it")


def _describe(value: Any) -> str:
    name = getattr(value, "__qualname__", None)
    return f"the function {name}" if callable(value) and name else f"a {type(value).__name__}"


def _object_to_json(value: Any, where: str) -> dict[str, Any]:
    kind = type(value)
    fields = {
        field.name: to_json(vars(value)[field.name], f"{where}.{field.name}")
        for field in dataclasses.fields(value)
        if field.name in vars(value)
    }
    if "<" in kind.__qualname__:
        raise UnwritableError(f"{where} is of {kind.__qualname__}, a class made inside a function")
    written = {"class": name_of(kind), "fields": fields}
    # a subclass made by `as_energy`, which gives the class a space
    if name_of(kind.__bases__[0]) == name_of(kind):
        written["space"] = to_json(value.space, f"{where}.space")
    return written


def _array_to_json(value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        raise UnwritableError(f"{where} is a random key outside of the checkpoint")
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise UnwritableError(f"{where} is an array of {array.dtype}")
    content = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
    return {
        "array": array.dtype.str,
        "shape": list(array.shape),
        "bytes": content,
        "on": "jax" if isinstance(value, jax.Array) else "numpy",
    }


def from_json(node: Any, arrays: Sequence[Any] = (), types: Sequence[type] = ()) -> Any:
    """The object that `to_json` wrote; uses only what `find_class` and `find_function` find.

    Args:
        node: the JSON value.
        arrays: the arrays for the numbered places.
        types: classes allowed in addition to those of this library.
    """
    again = functools.partial(from_json, arrays=arrays, types=types)
    if isinstance(node, list):
        raise ValueError("expected a value, got a bare list")
    if not isinstance(node, dict):
        return node
    if "place" in node:
        return arrays[node["place"]]
    if "number" in node:
        return float(node["number"])
    if "dtype" in node:
        return jnp.dtype(node["dtype"])
    if "number type" in node:
        return getattr(jnp, jnp.dtype(node["number type"]).name)
    if "array" in node:
        return _array_from_json(node)
    if "structure" in node:
        return Structure(np.asarray(_array_from_json(node["structure"])))
    if "function" in node:
        found = find_function(node["function"])
        if found is None:
            raise ValueError(f"expected a function of jax or thalweg, got {node['function']!r}")
        return found
    if "partial" in node:
        function, arguments, options = map(again, node["partial"])
        return (jax.tree_util.Partial if node["pytree"] else functools.partial)(function, *arguments, **options)
    if "list" in node:
        return [again(each) for each in node["list"]]
    if "dict" in node:
        return {again(key): again(each) for key, each in node["dict"]}
    if "tuple" in node:
        parts = [again(each) for each in node["tuple"]]
        return tuple(parts) if "class" not in node else _class_of(node, types)(*parts)
    return _object_from_json(node, again, types)


def _object_from_json(node: dict[str, Any], again: Callable[[Any], Any], types: Sequence[type]) -> Any:
    kind = _class_of(node, types)
    fields = {name: again(each) for name, each in node["fields"].items()}
    known = {field.name for field in dataclasses.fields(kind)}
    if not fields.keys() <= known:
        raise ValueError(f"expected fields of {kind.__name__} among {', '.join(sorted(known))}, got others")
    if "space" in node:
        return rebuild_on(kind, again(node["space"]), fields)
    made = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def _class_of(node: dict[str, Any], types: Sequence[type]) -> type:
    found = find_class(node["class"], types)
    if found is None:
        module, _, name = node["class"].partition(":")
        raise LookupError(f"the class {name} of {module}")
    return found


def _array_from_json(node: dict[str, Any]) -> Any:
    content = base64.b64decode(node["bytes"], validate=True)
    array = np.frombuffer(content, np.dtype(node["array"])).reshape(node["shape"]).copy()
    return jnp.asarray(array) if node["on"] == "jax" else array
