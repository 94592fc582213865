"""A missing extra is an ``ImportError`` that names it."""

import sys
import types

import jax
import jax.numpy as jnp
import pytest

import thalweg as tw
from thalweg.cli import main
from thalweg.core import MissingExtraError, import_extra


def test_arviz_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    energy, kernel = lambda x: 0.5 * jnp.sum(x**2), tw.samplers.MALA(0.5)
    chains = tw.sample(energy, kernel, jnp.zeros((2, 1)), key=jax.random.key(0), draws=4)
    with pytest.raises(ImportError, match=r"expected arviz for to_arviz, got .*; get it .* install thalweg\[arviz\]"):
        chains.to_arviz()


@pytest.mark.parametrize(("version", "groups"), [("0.23.4", ()), ("1.2.0", ("posterior",))])
def test_arviz_is_given_the_draws_as_its_version_wants_them(version, groups, monkeypatch):
    arviz = types.ModuleType("arviz")
    arviz.__version__, arviz.from_dict = version, lambda data: data
    monkeypatch.setitem(sys.modules, "arviz", arviz)
    given = tw.Chains(jnp.zeros((2, 3, 1)), {}).to_arviz()
    for group in groups:
        given = given[group]
    assert given["x"].shape == (2, 3, 1)


def test_a_command_that_misses_an_extra_is_refused_in_a_sentence(monkeypatch, capsys):
    def report(run):
        import_extra("no_such_module", "fid", "Inception-v3")

    monkeypatch.setattr(main, "app", lambda *_, **__: report("run"))
    with pytest.raises(SystemExit) as ended:
        main.run(["report", "run"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.endswith("get it with `pip install thalweg[fid]`\n")


def test_any_other_failed_import_is_no_refusal(monkeypatch):
    def fail(*_, **__):
        raise ImportError("a bug")

    monkeypatch.setattr(main, "app", fail)
    with pytest.raises(ImportError, match="a bug") as raised:
        main.run(["report", "run"])
    assert not isinstance(raised.value, MissingExtraError)


def test_what_is_there_is_imported():
    assert import_extra("json", "fid", "nothing") is sys.modules["json"]
