"""Optional packages, imported when they are first used."""

import importlib
from types import ModuleType


class MissingExtraError(ImportError):
    """A package of an optional extra is not installed; the message names the extra."""


def import_extra(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional module; the error, if it is missing, says which extra to install.

    Args:
        module: the module to import, such as ``"arviz"``.
        extra: the extra of this package that installs it.
        purpose: what needs it, for the message.

    >>> from thalweg.core import import_extra
    >>> import_extra("no_such", "arviz", "to_arviz")
    Traceback (most recent call last):
        ...
    thalweg.core.extras.MissingExtraError: expected no_such for to_arviz, got "No module named 'no_such'"; \
get it with `pip install thalweg[arviz]`
    """
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise MissingExtraError(
            f'expected {module} for {purpose}, got "{missing}"; get it with `pip install thalweg[{extra}]`', name=module
        ) from missing
