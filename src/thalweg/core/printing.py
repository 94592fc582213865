"""How objects and signatures print: scalars as numbers, without settings that have their default, types by name."""

import inspect
import re
import types
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import wadler_lindig as wl
from jax.core import Tracer
from jaxtyping import PRNGKeyArray


class Module(eqx.Module):
    """An ``eqx.Module`` that prints like its constructor call: scalars as numbers, larger arrays as ``f32[100,100]``.

    A field that is ``None`` or ``()`` by default is left out if it has that value. A class with ``omits_defaults``
    leaves out every field that has its default value.

    >>> import thalweg as tw
    >>> tw.samplers.HMC(0.3, steps=5), tw.energies.Banana()
    (HMC(step_size=0.3, steps=5), Banana(curvature=0.5, scale=2.0))
    """

    omits_defaults: ClassVar[bool] = False

    def __pdoc__(self, **options: Any) -> wl.AbstractDoc:
        """The document that equinox's ``repr`` prints."""
        outer = options["custom"]

        def custom(value: Any) -> wl.AbstractDoc | None:
            return wl.TextDoc(str(np.asarray(value))) if _is_known_scalar(value) else outer(value)

        defaults = inspect.signature(type(self)).parameters
        fields = [
            (name, value)
            for name, value in _fields(self)
            if name not in defaults or not self._is_omitted(value, defaults[name].default)
        ]
        return wl.bracketed(
            begin=wl.TextDoc(type(self).__name__.lstrip("_") + "("),
            docs=wl.named_objs(fields, **options | {"custom": custom}),
            sep=wl.comma,
            end=wl.TextDoc(")"),
            indent=options["indent"],
        )

    def _is_omitted(self, value: Any, default: Any) -> bool:
        if value is None or (isinstance(value, tuple) and value == ()):
            return value == default
        return self.omits_defaults and _is_default(value, default)


def _fields(module: eqx.Module) -> list[tuple[str, Any]]:
    """Names and values of the fields to print; leaves out fields that the constructor has not set yet."""
    fields = type(module).__dataclass_fields__.values()
    return [(field.name, vars(module)[field.name]) for field in fields if field.repr and field.name in vars(module)]


def _is_known_scalar(value: Any) -> bool:
    """Whether ``value`` is a scalar array whose value is available: not traced, not donated, not a random key."""
    if not isinstance(value, (jax.Array, np.ndarray)) or isinstance(value, Tracer) or value.shape != ():
        return False
    if isinstance(value, np.ndarray):
        return True
    return not (jnp.issubdtype(value.dtype, jax.dtypes.prng_key) or value.is_deleted())


def _is_default(value: Any, default: Any) -> bool:
    if value is default:
        return True
    if _is_known_scalar(value):
        return isinstance(default, (bool, int, float)) and bool(value == np.asarray(default, value.dtype))
    return isinstance(value, (bool, int, float, str)) and type(value) is type(default) and value == default


class _Signature(inspect.Signature):
    """A signature that prints types by name only; the annotations themselves are unchanged."""

    __slots__ = ()

    def __str__(self) -> str:
        return str(self._with_names())

    def format(self, **options: Any) -> str:
        """Called by ``help`` since Python 3.13."""
        return self._with_names().format(**options)  # pyright: ignore[reportAttributeAccessIssue]

    def _with_names(self) -> inspect.Signature:
        parameters = [each.replace(annotation=_Name.of(each.annotation)) for each in self.parameters.values()]
        return inspect.Signature(parameters, return_annotation=_Name.of(self.return_annotation))


class _Name:
    """The name of a type, used in place of the type when a signature is printed."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text

    @staticmethod
    def of(annotation: Any) -> Any:
        if annotation is inspect.Parameter.empty:
            return annotation
        return _Name(annotation if isinstance(annotation, str) else name_of_type(annotation))


_MODULE_PATH = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")


def name_of_type(annotation: Any) -> str:
    """A type as written in a signature, without module names.

    >>> from collections.abc import Callable
    >>> from jaxtyping import Array, PRNGKeyArray
    >>> name_of_type(Callable[[PRNGKeyArray], Array] | None)
    'Callable[[PRNGKeyArray], Array] | None'
    >>> name_of_type(PRNGKeyArray | None)
    'PRNGKeyArray | None'
    """
    text = _MODULE_PATH.sub("", inspect.formatannotation(annotation))
    # jaxtyping's key type is a union of three types, and prints as all three
    key = _MODULE_PATH.sub("", repr(PRNGKeyArray))
    text = text.replace("NoneType", "None").replace(f"{key[:-1]}, None]", "PRNGKeyArray | None")
    return text.replace(key, "PRNGKeyArray")


def shorten_signatures(names: dict[str, Any], public: list[str]) -> None:
    """Make ``help`` print types by name only, for public functions and for the methods of public classes.

    Called at the end of a package with its ``globals()`` and its ``__all__``. ``__annotations__``, which type checkers
    and beartype read, are unchanged.

    >>> import thalweg as tw
    >>> help(tw.given)
    Help on function given in module thalweg.core.models:
    <BLANKLINE>
    given(model: Callable, condition: PyTree) -> Any
    ...
    """
    for name in public:
        value = names[name]
        if isinstance(value, type) and issubclass(value, tuple):  # a named tuple has its fields as arguments
            fields = inspect.signature(value)
            value.__signature__ = _Signature(list(fields.parameters.values()))  # pyright: ignore[reportAttributeAccessIssue]
        members = vars(value).values() if isinstance(value, type) else (value,)
        for member in members:
            function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
            if isinstance(function, types.FunctionType) and function.__annotations__:
                signature = inspect.signature(function)
                function.__signature__ = _Signature(  # pyright: ignore[reportFunctionMemberAccess]
                    list(signature.parameters.values()), return_annotation=signature.return_annotation
                )
