"""Tests run with the types of every public function checked, and keep compiled programs between runs.

In the folders of `KEYS_ONCE`, which together run every public kernel, objective and experiment, JAX's check for keys
used twice is on; runs of the command line are compared bit for bit across processes, so they have a test of their own.
``JAX_DEBUG_KEY_REUSE=1`` switches it on for all tests. It knows typed keys only, it does not see that
``split(key, n)[i]`` equals ``fold_in(key, i)``, and programs are slower with it, since random numbers are then made by
JAX's own functions. Where the same numbers are wanted twice, ``jax.random.clone(key)`` says so. It takes keys that
``vmap`` carries into a scan for used ones, so tests of such programs are marked ``vmapped_keys``.
"""

import functools
import itertools
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

# whole numbers are welcome where real ones are asked for, as everywhere in Python
_beartyped = beartype(conf=BeartypeConf(is_pep484_tower=True))  # pyright: ignore[reportCallIssue]


def check(function: Any) -> Callable[..., Any]:
    """``function`` with its types checked; the check is made at the first call, since most functions are not called by
    the tests at hand and making all checks takes as long as all other imports."""
    if isinstance(function, type):
        return _beartyped(function)

    @functools.wraps(function)
    def first(*arguments: Any, **options: Any) -> Any:
        nonlocal checked
        if checked is None:
            checked = _beartyped(function)
        return checked(*arguments, **options)  # pyright: ignore[reportOptionalCall]

    checked: Callable[..., Any] | None = None
    return first


checker = types.ModuleType("thalweg_type_checker")
checker.check = check  # pyright: ignore[reportAttributeAccessIssue]
sys.modules[checker.__name__] = checker
install_import_hook("thalweg", "thalweg_type_checker.check")

import jax
import pytest


def pytest_configure(config):
    config.addinivalue_line("markers", "vmapped_keys: keys in a scan under vmap, which JAX's check takes for used ones")


KEYS_ONCE = ("contracts", "experiments", "report", "test_documents.py")


@pytest.fixture(autouse=True)
def keys_once(request):
    """JAX's check for keys used twice, in the folders that have it."""
    folder = request.path.relative_to(Path(__file__).parent).parts[0]
    everywhere = jax.config.jax_debug_key_reuse  # pyright: ignore[reportAttributeAccessIssue]
    wanted = bool(everywhere) or folder in KEYS_ONCE
    with jax.debug_key_reuse(wanted and request.node.get_closest_marker("vmapped_keys") is None):
        yield


# every compiled program takes a dozen memory maps, of which Linux gives a process 65 530
MAPS = 12_000
_tests = itertools.count(1)


@pytest.fixture(autouse=True)
def few_programs():
    """Forgets compiled programs before a long run of tests has used up the process's memory maps."""
    yield
    maps = Path("/proc/self/maps")
    if next(_tests) % 4 == 0 and maps.exists() and maps.read_bytes().count(b"\n") > MAPS:
        jax.clear_caches()


@pytest.fixture
def key():
    return jax.random.key(20261115)
