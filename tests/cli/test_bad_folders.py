"""Run folders that are not what they should be: one sentence each, naming the file."""

import shutil

import pytest

COMMANDS = (["sample"], ["report"], ["train", "--resume"])


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_was_moved_away(thalweg, trained, tmp_path, command):
    shutil.move(trained, tmp_path / "elsewhere")
    refusal = thalweg(*command, trained).refusal
    assert f"{trained}: expected a run folder, got nothing there" in refusal and "did you mean" not in refusal
    assert not trained.exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_right_name_is_proposed_where_it_is_near(thalweg, trained, tmp_path, command):
    trained.rename(tmp_path / "digits-11")
    assert "did you mean 'digits-11'?" in thalweg(*command, tmp_path / "digits-1").refusal


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_without_its_configuration(thalweg, trained, command):
    (trained / "config.toml").unlink()
    (trained / "model.json").unlink()
    assert f"{trained}: expected a run folder with its config.toml, got none" in thalweg(*command, trained).refusal


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("damage", [b'schema = 1\n[data]\nname = "two', b"\xff\xfe\x00", b"[data]\nname = 3"])
def test_a_damaged_configuration(thalweg, trained, command, damage):
    (trained / "config.toml").write_bytes(damage)
    if command == ["report"] and damage.endswith(b"3"):
        return  # the page shows whatever TOML there is
    assert str(trained / "config.toml") in thalweg(*command, trained).refusal


@pytest.mark.parametrize("command", COMMANDS)
def test_a_configuration_of_a_newer_version(thalweg, trained, command):
    text = (trained / "config.toml").read_text()
    (trained / "config.toml").write_text(text.replace("schema = 1", "schema = 2") + "\n[weather]\nsun = true\n")
    refusal = thalweg(*command, trained).refusal
    assert f"{trained / 'config.toml'}: expected a configuration of version 1 or older, got schema = 2" in refusal


def test_a_newer_configuration_is_not_trained(thalweg, tmp_path):
    (tmp_path / "newer.toml").write_text("schema = 7\n" + (tmp_path / "tiny.toml").read_text())
    assert thalweg("train", "newer.toml").refusal.startswith("newer.toml: expected a configuration of version 1")


def test_an_old_folder_is_read(thalweg, trained, tmp_path):
    """Neither a version nor a model file: as earlier versions left it."""
    text = (trained / "config.toml").read_text()
    (trained / "config.toml").write_text(text.removeprefix("schema = 1\n"))
    (trained / "model.json").unlink()
    samples = (trained / "samples" / "samples.npz").read_bytes()
    assert thalweg("sample", trained).code == 0
    assert (trained / "samples" / "samples.npz").read_bytes() == samples
    assert thalweg("report", trained).code == 0
    assert thalweg("train", "--resume", trained, "--set", "train.steps=13").code == 0
    assert (trained / "model.json").is_file()
