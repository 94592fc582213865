"""The command that looks at an installation."""

import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import thalweg as tw
from thalweg.cli import doctor

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def usual_settings(monkeypatch):
    for name in ("XLA_FLAGS", *doctor._SLOW):
        monkeypatch.delenv(name, raising=False)


def problems(findings):
    return {finding.what: finding.problem for finding in findings if finding.problem}


def test_a_sound_installation_is_one_table_and_code_0(thalweg, usual_settings, monkeypatch, tmp_path):
    monkeypatch.setenv("THALWEG_DATA", str(tmp_path / "sets"))
    monkeypatch.setattr(doctor, "_free_memory", lambda: 8e9)
    outcome = thalweg("doctor")
    assert outcome.code == 0 and outcome.out.splitlines()[-1] == "All is well."
    for said in (tw.__version__, metadata.version("jax"), "python", "devices", "cores", "memory", "extra fid"):
        assert said in outcome.out
    assert "right; compiled in" in outcome.out


def test_every_extra_is_looked_for():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(doctor.EXTRAS) == set(declared) - {"dev"}


def test_what_is_wrong_is_said_and_the_code_is_1(thalweg, usual_settings, monkeypatch):
    monkeypatch.setenv("JAX_DISABLE_JIT", "1")
    outcome = thalweg("doctor")
    assert outcome.code == 1
    assert "setting: programs are not compiled, which is slow; unset it" in outcome.out
    assert outcome.out.splitlines()[-1] == "1 problem found."


def test_slow_settings_are_found():
    given = {"XLA_FLAGS": "--xla_backend_optimization_level=0", "JAX_DEBUG_NANS": "true", "JAX_DISABLE_JIT": "0"}
    found = list(doctor._settings(given))
    assert [finding.found for finding in found] == ["JAX_DEBUG_NANS=true", "XLA_FLAGS"]
    assert all(finding.problem for finding in found) and not list(doctor._settings({}))


def test_packages_of_other_versions_are_found(monkeypatch):
    wanted = ["jax>=99", "no-such-package>=1", "optax>=0.1", 'torch-fidelity>=0.3; extra == "fid"']
    monkeypatch.setattr(metadata, "requires", lambda name: wanted)
    (found,) = doctor._requirements()
    assert found.found == "2 not as required"
    assert "jax>=99 (here: " in found.problem and "no-such-package>=1 (here: none)" in found.problem
    assert "optax" not in found.problem and "fidelity" not in found.problem


def test_little_memory_and_a_blocked_folder_are_found(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "_free_memory", lambda: 1e8)
    assert "little is free" in problems(doctor._machine())["memory"]
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("THALWEG_DATA", str(tmp_path / "file" / "sets"))
    assert "set THALWEG_DATA to another folder" in problems(doctor._data())["data"]


def test_a_card_that_is_not_used_is_found(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    assert "pip install thalweg[cuda]" in problems(doctor._devices())["devices"]


def test_a_chain_that_comes_out_wrong_is_found(monkeypatch):
    def shifted(*arguments, **options):
        chains = sample(*arguments, **options)
        return tw.Chains(chains.draws + 1.0, chains.stats, chains.state)

    sample = tw.samplers.sample
    monkeypatch.setattr(tw.samplers, "sample", shifted)
    assert "the numbers are wrong" in problems(doctor._chain())["chain"]


def test_what_fails_is_a_finding_too(monkeypatch):
    def devices():
        raise RuntimeError("no driver")

    monkeypatch.setattr("jax.devices", devices)
    monkeypatch.setattr(doctor, "_chain", lambda: iter(()))
    assert problems(doctor.examine({}))["devices"] == "RuntimeError: no driver"
