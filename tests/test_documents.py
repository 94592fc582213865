"""Everything shown is run: README and docs code blocks, and the examples in docstrings."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import thalweg

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]
# the examples of these train and sample, if little
LONG = ("thalweg.experiments", "thalweg.noise.flows", "thalweg.samplers.tempering", "thalweg.energies.unet")
MODULES = [
    pytest.param(module.name, marks=pytest.mark.slow if module.name.startswith(LONG) else ())
    for module in pkgutil.walk_packages(thalweg.__path__, "thalweg.")
]


@pytest.mark.parametrize("block", BLOCKS)
def test_code_blocks_run(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "<block>", "exec"), {"__name__": "__block__"})


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0


def test_every_public_name_has_a_docstring_and_every_function_an_example():
    for module in ("samplers", "objectives", "energies", "train"):
        exported = importlib.import_module(f"thalweg.{module}")
        for name in exported.__all__:
            text = getattr(exported, name).__doc__
            assert text, f"{module}.{name} has no docstring"
