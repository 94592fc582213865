"""Read pickles of numpy arrays and plain types without running any code.

An ordinary pickle may call any function, and may take memory or time out of proportion to its size. Here a small
interpreter goes through the opcodes one by one. It knows only the names that arrays need, as written by numpy 1 and 2
and by Python 2 and 3, and refuses every other name and opcode. Memory and time are bounded by the size of the file.
"""

import io
import pickle
import pickletools
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from thalweg.data.bounds import read_at_most

Stream = io.BufferedReader | io.BytesIO
MOST_BYTES = 2**29  # of a pickle: a batch of CIFAR-10 is 30 MB


class _Refused(pickle.UnpicklingError):
    """The pickle is well formed, but asks for more than arrays and plain types."""


def _text(value: Any) -> str:
    if not isinstance(value, (str, bytes)):  # never str(value): nested tuples may expand without limit
        raise _Refused(f"a name of type {type(value).__name__.lstrip('_')}")
    # strings of Python 2 arrive as bytes
    return value.decode("ascii") if isinstance(value, bytes) else value


class _Dtype:
    """A numeric dtype; structured and object dtypes are refused, since their state could point anywhere."""

    __slots__ = ("dtype",)

    def __init__(self, code: Any, _align: Any = False, _copy: Any = True) -> None:
        name = _text(code)
        if not re.fullmatch(r"[<>=|]?(b1|[iu][1248]|f[248]|c8|c16)", name):
            raise _Refused(f"an array of dtype {name[:40]!r}")
        self.dtype = np.dtype(name)

    def build(self, state: tuple) -> None:
        _version, order, subarray, names, fields = state[:5]
        if subarray is not None or names is not None or fields is not None:
            raise _Refused("an array with a structured dtype")
        if _text(order) in ("<", ">"):  # "|" stands for single bytes, which have no order
            self.dtype = np.dtype(_text(order) + self.dtype.str[1:])


class _Array:
    """`numpy.ndarray`, empty until its state `(version, shape, dtype, Fortran order, bytes)` is set."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray | None = None) -> None:
        self.array = array

    def build(self, state: tuple) -> None:
        _version, shape, dtype, fortran, data = state
        self.array = _from_bytes(data, dtype, shape, "F" if fortran else "C")


def _from_bytes(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(dtype, _Dtype) or not isinstance(data, (bytes, bytearray)):
        raise _Refused("an array that is not made of plain numbers")
    # a view of the bytes, since a pickle may use the same bytes many times
    return np.frombuffer(data, dtype.dtype).reshape(shape, order="F" if order == "F" else "C")


def _reconstruct(kind: Any, _shape: Any, _code: Any) -> _Array:
    if kind is not _NDARRAY:
        raise _Refused("an array of another class than numpy.ndarray")
    return _Array()


def _encode(text: Any, encoding: Any) -> bytes:
    # Python 3 writes bytes as text in this one encoding for readers of protocol 2
    if not isinstance(encoding, str) or encoding != "latin1" or not isinstance(text, str):
        raise _Refused("an encoding other than latin1")
    return text.encode("latin1")


def _refuse_call(*_: Any) -> Any:
    raise _Refused("numpy.ndarray itself")


_NDARRAY = _refuse_call
_NAMES: dict[str, Callable[..., Any]] = {
    "numpy ndarray": _NDARRAY,
    "numpy dtype": _Dtype,
    "_codecs encode": _encode,
    **{f"numpy.{core}.multiarray _reconstruct": _reconstruct for core in ("core", "_core")},
    **{
        f"numpy.{core}.multiarray scalar": lambda dtype, data: _Array(_from_bytes(data, dtype, (), "C"))
        for core in ("core", "_core")
    },
    **{f"numpy.{core}.numeric _frombuffer": lambda *state: _Array(_from_bytes(*state)) for core in ("core", "_core")},
}
_PLAIN = (str, bytes, bytearray, bool, int, float, complex, type(None))
_KEYS = (str, bytes, int, float, type(None))  # no tuples: deeply nested ones take forever to hash
_VALUES = frozenset(
    {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
    | {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
    | {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
)
_STRINGS = frozenset({"STRING", "BINSTRING", "SHORT_BINSTRING"})
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_DICT": dict}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Machine:
    """The stack, the marks in it and the memo of a pickle that is being read."""

    def __init__(self, budget: int) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.budget = budget  # bytes that may still be encoded from strings, which are in the file only once

    def since_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def fill(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(pairs) % 2:
            raise _Refused("entries in something that is no dict")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, _KEYS):
                raise _Refused(f"a dict with a key of type {type(key).__name__.lstrip('_')}")
            target[key] = value

    def extend(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise _Refused("items in something that is no list")
        self.stack[-1].extend(items)

    def call(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if function not in _NAMES.values() or not isinstance(arguments, tuple):
            raise _Refused("a call of something that is no function")
        made = function(*arguments)
        if isinstance(made, bytes):
            self.budget -= len(made)
            if self.budget < 0:
                raise _Refused("more bytes than it holds")
        self.stack.append(made)

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if not isinstance(target, (_Dtype, _Array)) or not isinstance(state, tuple):
            raise _Refused("a state of something that is no array")
        target.build(state)

    def name(self, name: str) -> None:
        if name not in _NAMES:
            raise _Refused(name.replace(" ", "."))
        self.stack.append(_NAMES[name])

    def step(self, opcode: str, argument: Any) -> None:
        stack = self.stack
        if opcode in _VALUES:
            stack.append(argument)
        elif opcode in _STRINGS:
            stack.append(argument.encode("latin1"))
        elif opcode in _CONSTANTS:
            stack.append(_CONSTANTS[opcode])
        elif opcode in _EMPTY:
            stack.append(_EMPTY[opcode]())
        elif opcode in _TUPLES:
            count = _TUPLES[opcode]
            stack[-count:] = [tuple(stack[-count:])]
        elif opcode == "MARK":
            self.marks.append(len(stack))
        elif opcode in ("TUPLE", "LIST"):
            stack.append((tuple if opcode == "TUPLE" else list)(self.since_mark()))
        elif opcode in ("APPEND", "APPENDS"):
            self.extend(self.since_mark() if opcode == "APPENDS" else [stack.pop()])
        elif opcode in ("SETITEM", "SETITEMS", "DICT"):
            pairs = self.since_mark() if opcode != "SETITEM" else [stack.pop(-2), stack.pop()]
            if opcode == "DICT":
                stack.append({})
            self.fill(pairs)
        elif opcode in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self.memo[len(self.memo) if opcode == "MEMOIZE" else argument] = stack[-1]
        elif opcode in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif opcode == "GLOBAL":
            self.name(argument)
        elif opcode == "STACK_GLOBAL":
            name, module = _text(stack.pop()), _text(stack.pop())
            self.name(f"{module} {name}")
        elif opcode == "REDUCE":
            self.call()
        elif opcode == "BUILD":
            self.build()
        elif opcode == "POP":
            stack.pop()
        elif opcode not in ("PROTO", "FRAME", "STOP"):
            asked = argument.replace(" ", ".") if opcode == "INST" else f"the operation {opcode}"
            raise _Refused(asked)


def _unwrap(value: Any, done: dict[int, Any]) -> Any:
    """Replace `_Array` objects by their arrays; a value that occurs twice is converted once."""
    if id(value) in done:
        if done[id(value)] is _Machine:
            raise _Refused("a value that holds itself")
        return done[id(value)]
    if isinstance(value, _Array) and value.array is not None:
        return value.array[()]  # a number if it has no axes, else the array itself
    done[id(value)] = _Machine  # begun
    if isinstance(value, dict):
        result: Any = {key: _unwrap(each, done) for key, each in value.items()}
    elif isinstance(value, (list, tuple)):
        result = type(value)(_unwrap(each, done) for each in value)
    elif isinstance(value, _PLAIN):
        result = value
    else:
        raise _Refused(f"a value of type {type(value).__name__.lstrip('_')}")
    done[id(value)] = result
    return result


def read_plain_pickle(stream: Stream, name: str) -> Any:
    """Read a pickle of numpy arrays, dicts, lists, tuples, strings, bytes and numbers; strings of Python 2 are bytes.

    Messages call the file `name`. A pickle that needs anything else is a ValueError, and nothing in it is run.

    >>> read_plain_pickle(io.BytesIO(pickle.dumps({"data": np.arange(3, dtype=np.uint8)})), "batch")
    {'data': array([0, 1, 2], dtype=uint8)}
    >>> read_plain_pickle(io.BytesIO(pickle.dumps(print)), "batch")
    Traceback (most recent call last):
    ValueError: batch: expected only numpy arrays and plain types, got a pickle that asks for builtins.print; nothing \
in it was run, get the file again from a source you trust
    """
    content = read_at_most(stream, MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(
            f"{name}: expected a pickle of at most {MOST_BYTES / 1e6:.0f} MB, got more; save its arrays as .npz"
        )
    machine = _Machine(len(content))
    try:
        for opcode, argument, _ in pickletools.genops(content):
            machine.step(opcode.name, argument)
        (result,) = machine.stack
        return _unwrap(result, {})
    except _Refused as error:
        raise ValueError(
            f"{name}: expected only numpy arrays and plain types, got a pickle that asks for {error}; "
            "nothing in it was run, get the file again from a source you trust"
        ) from error
    except (  # what a truncated or damaged pickle makes the machine, its arguments' readers or numpy raise
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
