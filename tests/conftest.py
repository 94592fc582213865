"""Tests run with the types of every public function checked, and keep compiled programs between runs."""

import os
import sys
import types

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

# whole numbers are welcome where real ones are asked for, as everywhere in Python
checker = types.ModuleType("thalweg_type_checker")
checker.check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # pyright: ignore[reportAttributeAccessIssue]
sys.modules[checker.__name__] = checker
install_import_hook("thalweg", "thalweg_type_checker.check")

import jax
import pytest


@pytest.fixture
def key():
    return jax.random.key(20261115)
