"""Everything shown is run: README and docs code blocks, and the examples in docstrings.

JAX's check for keys used twice is on; two equal keys made apart, which it cannot see, are looked for in the text.
"""

import doctest
import importlib
import inspect
import pkgutil
import re
from collections import Counter
from pathlib import Path

import pytest

import thalweg

ROOT = Path(__file__).parent.parent
GALLERY = ROOT / "docs" / "gallery.md"
# the blocks of these are one program; of each the first few are quick
PROGRAMS = {
    GALLERY: 2,
    ROOT / "docs" / "tutorials" / "teacher.md": 2,
    ROOT / "docs" / "tutorials" / "physicist.md": 0,
    ROOT / "docs" / "tutorials" / "data-scientist.md": 0,
    ROOT / "docs" / "tutorials" / "researcher.md": 1,
}
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if page not in PROGRAMS)]


def blocks_of(page: Path) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}") for page in PAGES for number, block in enumerate(blocks_of(page))
]
# the examples of these train and sample, if little
LONG = ("thalweg.experiments", "thalweg.noise.flows", "thalweg.samplers.tempering", "thalweg.energies.unet")
# log_z_many maps keys over models
VMAPPED = ("thalweg.evaluate.partition",)
MODULES = [
    pytest.param(
        module.name,
        marks=[pytest.mark.slow] * module.name.startswith(LONG) + [pytest.mark.vmapped_keys] * (module.name in VMAPPED),
    )
    for module in pkgutil.walk_packages(thalweg.__path__, "thalweg.")
]

# every package that exports names; what the floor exports is for the other packages, and mostly checks and helpers
PACKAGES = sorted(
    path.parent.name for path in (ROOT / "src" / "thalweg").glob("*/__init__.py") if "__all__ = " in path.read_text()
)
FLOOR = ("core", "spaces")


def test_the_packages_that_users_meet_are_among_those_looked_at():
    assert {name for name in thalweg.__all__ if (ROOT / "src" / "thalweg" / name).is_dir()} <= set(PACKAGES)


@pytest.mark.parametrize("block", BLOCKS)
def test_code_blocks_run(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "<block>", "exec"), {"__name__": "__block__"})


@pytest.mark.slow
def test_the_first_example_ends_in_chains_that_have_mixed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__block__"}
    exec(compile(blocks_of(ROOT / "README.md")[0], "<block>", "exec"), names)
    assert names["chains"].summary().mixed  # pyright: ignore[reportAttributeAccessIssue]


def run_program(blocks: list[str]) -> None:
    names = {"__name__": "__block__"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"<block {number}>", "exec"), names)


@pytest.mark.parametrize("page", [page for page, quick in PROGRAMS.items() if quick], ids=lambda page: page.name)
def test_the_first_blocks_of_a_program_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_program(blocks_of(page)[: PROGRAMS[page]])


def marked(page):
    """A page whose programs train many seeds at once has keys that ``vmap`` carries into a scan."""
    return pytest.param(page, marks=[pytest.mark.vmapped_keys] if "fit_many" in page.read_text() else [])


@pytest.mark.slow
@pytest.mark.parametrize("page", [marked(page) for page in PROGRAMS], ids=lambda page: page.name)
def test_a_program_runs_and_makes_every_picture_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_program(blocks_of(page))
    made = {path.name for path in tmp_path.iterdir()}
    shown = set(re.findall(r"figures/((?:plot|tutorial)-[\w-]+\.\w+)", re.sub(r"(?m)^\|.*$", "", page.read_text())))
    assert shown and shown <= made


def test_every_tutorial_is_run_and_short_enough_to_read():
    tutorials = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
    assert set(tutorials) == {page for page in PROGRAMS if page.parent.name == "tutorials"}
    assert all(len(page.read_text().splitlines()) <= 150 for page in tutorials)


def test_the_gallery_has_every_figure_and_what_makes_it():
    text = GALLERY.read_text()
    figures = {path.name for path in (ROOT / "docs" / "figures").iterdir()}
    assert figures == set(re.findall(r"figures/([\w.-]+)\)", text))
    for name in (Path(figure).stem for figure in figures if not figure.startswith(("plot-", "tutorial-"))):
        assert re.search(rf"`thalweg reproduce {name}( [\w -]+)?`", text), name
    for figure in (each for each in figures if each.startswith("plot-")):
        assert f'"{figure}"' in text


def test_every_picture_a_page_shows_is_there():
    for page in [*PAGES, *PROGRAMS]:
        for place in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text()):
            assert (page.parent / place).is_file(), (page.name, place)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0


def keys_made_twice(code):
    """The numbers from which an example makes more than one key."""
    counts = Counter(re.findall(r"random\.key\((\d+)\)", code))
    return [number for number, count in counts.items() if count > 1]


@pytest.mark.parametrize("block", BLOCKS)
def test_no_code_block_makes_a_key_twice(block):
    assert keys_made_twice(block) == []


def test_no_docstring_makes_a_key_twice():
    found = {}
    for module in pkgutil.walk_packages(thalweg.__path__, "thalweg."):
        for example in doctest.DocTestFinder().find(importlib.import_module(module.name)):
            found[example.name] = keys_made_twice("".join(each.source for each in example.examples))
    assert len(found) > 300 and {name: numbers for name, numbers in found.items() if numbers} == {}


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_has_a_docstring(name):
    package = importlib.import_module(f"thalweg.{name}")
    assert [each for each in package.__all__ if not (getattr(package, each).__doc__ or "").strip()] == []


# these come out of a training, and are shown where it is
SHOWN_ELSEWHERE = {"DigitNetwork", "DivergedError", "Run", "eight_gaussians_density", "skewed_mixture"}


@pytest.mark.parametrize("name", [name for name in PACKAGES if name not in FLOOR])
def test_every_public_function_and_class_has_an_example(name):
    package = importlib.import_module(f"thalweg.{name}")
    shown = {each: getattr(package, each) for each in package.__all__ if each not in SHOWN_ELSEWHERE}
    shown = {each: value for each, value in shown.items() if inspect.isfunction(value) or inspect.isclass(value)}
    assert [each for each, value in shown.items() if ">>> " not in (value.__doc__ or "")] == []
