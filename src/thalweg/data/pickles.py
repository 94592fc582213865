"""Pickles that hold only numpy arrays and plain types, read without running anything they ask for.

An ordinary pickle may call any function. Here the few names that arrays need, as written by numpy 1 and 2 and by
Python 2 and 3, stand for small classes of our own that build the array from its bytes; every other name is refused
before anything is called.
"""

import io
import pickle
import re
import struct
from typing import Any

import numpy as np

Stream = io.BufferedReader | io.BytesIO


class _Refused(pickle.UnpicklingError):
    """The pickle is well formed, but asks for more than arrays and plain types."""


def _text(value: Any) -> str:
    # strings of Python 2 arrive as bytes
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


class _Dtype:
    """A numeric dtype; structured and object dtypes are refused, since their state could point anywhere."""

    __slots__ = ("dtype",)

    def __init__(self, code: Any, align: Any = False, copy: Any = True) -> None:
        name = _text(code)
        if not re.fullmatch(r"[<>=|]?(b1|[iu][1248]|f[248]|c8|c16)", name):
            raise _Refused(f"an array of dtype {name!r}")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple) -> None:
        _version, order, subarray, names, fields = state[:5]
        if subarray is not None or names is not None or fields is not None:
            raise _Refused("an array with a structured dtype")
        if _text(order) in ("<", ">"):  # "|" stands for single bytes, which have no order
            self.dtype = np.dtype(_text(order) + self.dtype.str[1:])


class _Array:
    """`numpy.ndarray` rebuilt from its pickled state `(version, shape, dtype, Fortran order, bytes)`."""

    __slots__ = ("array",)

    def __setstate__(self, state: tuple) -> None:
        _version, shape, dtype, fortran, data = state
        self.array = _from_bytes(data, dtype, shape, "F" if fortran else "C")


def _from_bytes(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(dtype, _Dtype) or not isinstance(data, (bytes, bytearray)):
        raise _Refused("an array that is not made of plain numbers")
    return np.frombuffer(bytes(data), dtype.dtype).reshape(shape, order="F" if order == "F" else "C")


# Callables with empty slots: a pickle cannot hang attributes on them.
class _Reconstruct:
    __slots__ = ()

    def __call__(self, kind: Any, _shape: Any, _code: Any) -> _Array:
        if kind is not _NDARRAY:
            raise _Refused("an array of another class than numpy.ndarray")
        return _Array()


class _FromBuffer:
    __slots__ = ()

    def __call__(self, data: Any, dtype: Any, shape: Any, order: Any) -> _Array:
        result = _Array()
        result.array = _from_bytes(data, dtype, shape, order)
        return result


class _Scalar:
    __slots__ = ()

    def __call__(self, dtype: Any, data: Any) -> _Array:
        result = _Array()
        result.array = _from_bytes(data, dtype, (), "C")
        return result


class _Encode:
    __slots__ = ()

    def __call__(self, text: str, encoding: str) -> bytes:
        # Python 3 writes bytes as text in this one encoding for readers of protocol 2
        if encoding != "latin1":
            raise _Refused(f"the encoding {encoding!r}")
        return text.encode("latin1")


class _Marker:
    __slots__ = ()


_NDARRAY = _Marker()
_NAMES: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _Encode(),
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Reconstruct() for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _Scalar() for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _FromBuffer() for core in ("core", "_core")},
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) not in _NAMES:
            raise _Refused(f"{module_name}.{global_name}")
        return _NAMES[module_name, global_name]


def _unwrap(value: Any) -> Any:
    """Replace our stand-ins by the arrays they hold."""
    if isinstance(value, _Array):
        return value.array[()]  # a number if it has no axes, else the array itself
    if isinstance(value, dict):
        return {_unwrap(k): _unwrap(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_unwrap(v) for v in value)
    if not isinstance(value, (str, bytes, bytearray, bool, int, float, complex, set, frozenset, type(None))):
        raise _Refused(f"a value of type {type(value).__name__.lstrip('_')}")
    return value


def read_plain_pickle(stream: Stream, name: str) -> Any:
    """Read a pickle of numpy arrays, dicts, lists, tuples, strings, bytes and numbers; strings of Python 2 are bytes.

    `name` is what messages call the file. A pickle that asks for anything else is refused before it runs.

    >>> read_plain_pickle(io.BytesIO(pickle.dumps({"data": np.arange(3, dtype=np.uint8)})), "batch")
    {'data': array([0, 1, 2], dtype=uint8)}
    >>> read_plain_pickle(io.BytesIO(pickle.dumps(print)), "batch")
    Traceback (most recent call last):
    ValueError: batch: expected only numpy arrays and plain types, got a pickle that asks for builtins.print; nothing \
in it was run, get the file again from a source you trust
    """
    try:
        return _unwrap(_PlainUnpickler(stream, encoding="bytes").load())
    except _Refused as error:
        raise ValueError(
            f"{name}: expected only numpy arrays and plain types, got a pickle that asks for {error}; "
            "nothing in it was run, get the file again from a source you trust"
        ) from error
    except (  # what a truncated or damaged pickle is documented to raise, and what our own classes raise on bad state
        pickle.UnpicklingError,
        EOFError,
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        MemoryError,
        RecursionError,
        struct.error,
    ) as error:
        raise ValueError(
            f"{name}: expected a complete pickle of numpy arrays, got a damaged or truncated file "
            f"({error}); get it again"
        ) from error
