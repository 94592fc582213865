"""config.toml is the truth: what was changed on the way is in it, with its update, and is trained again with it."""

import shutil
import tomllib
from pathlib import Path

import pytest
from tests.cli.folders import assert_same, snapshot

from thalweg.runs import sampling


@pytest.fixture(autouse=True)
def no_report(monkeypatch):
    """Drawing a page takes longer than all else here."""
    monkeypatch.setattr(sampling, "write_report", lambda folder: folder / "report.html")


def config(folder: Path) -> dict:
    return tomllib.loads((folder / "config.toml").read_text())


def sets(*assignments: str) -> list[str]:
    return [word for each in assignments for word in ("--set", each)]


def test_the_file_of_a_run_gives_the_same_run(thalweg, trained, tmp_path):
    again = tmp_path / "again"
    assert thalweg("train", trained / "config.toml", "--run-dir", again).code == 0
    assert_same(again, trained)
    assert config(again) == config(trained) and config(again)["schema"] == 1


def test_a_run_that_was_changed_twice_is_trained_again_with_its_changes(thalweg, trained, tmp_path):
    """Another learning rate at update 12 and another kernel at 16; the replay passes 12 and 16 without stopping."""
    changes = sets("optimizer.learning_rate=0.01", "train.steps=16")
    assert thalweg("train", "--resume", trained, *changes).code == 0
    more = sets("objective.kernel.type=MALA", "objective.kernel.step_size=0.2", "train.steps=20", "sample.chains=7")
    assert "other arrays" in thalweg("train", "--resume", trained, *more).refusal
    more = sets("objective.kernel.step_size=0.2", "train.steps=20", "sample.chains=7")
    assert thalweg("train", "--resume", trained, *more).code == 0
    written = config(trained)
    assert [change["update"] for change in written["changes"]] == [12, 16]
    assert set(written["changes"][0]["set"]) == {"optimizer.learning_rate=0.01", "train.steps=16"}
    assert written["train"]["steps"] == 12 and written["optimizer"]["learning_rate"] == 1e-3
    replayed, straight = tmp_path / "replayed", tmp_path / "straight"
    assert thalweg("train", trained / "config.toml", "--run-dir", replayed).code == 0
    assert_same(replayed, trained)
    assert (replayed / "config.toml").read_bytes() == (trained / "config.toml").read_bytes()
    # the changes were no matter of taste: without them it is another run
    assert thalweg("train", "tiny.toml", "--run-dir", straight, *sets("train.steps=20", "sample.chains=7")).code == 0
    with pytest.raises(AssertionError):
        assert_same(straight, trained)


def test_a_run_that_lost_its_newest_checkpoints_comes_to_its_changes_again(thalweg, trained, tmp_path):
    """Only the checkpoint of update 8 is left of a run that was changed at 12."""
    old = tmp_path / "8"
    shutil.copytree(trained / "checkpoints" / "8", old)
    assert thalweg("train", "--resume", trained, *sets("optimizer.learning_rate=0.01", "train.steps=14")).code == 0
    cut = tmp_path / "cut"
    shutil.copytree(trained, cut)
    shutil.rmtree(cut / "checkpoints")
    shutil.copytree(old, cut / "checkpoints" / "8")
    assert thalweg("train", "--resume", cut).code == 0
    assert_same(cut, trained)
    assert config(cut) == config(trained)


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("seed=1", "seed: expected it as the run was begun with"),
        ("data.name=rings", "data.name: expected it as the run was begun with"),
        ("data.sigma=0.5", "data.sigma: expected it as the run was begun with"),
        ("energy.width=64", "energy.width: expected it as the run was begun with"),
        ("objective.type=AdaNCE", "objective.type: expected it as the run was begun with"),
        ("train.batch_size=10", "train.batch_size: expected it as the run was begun with"),
        ("train.steps=8", "expected at least the 12 updates already done, got 8"),
        ("optimizer.learning_rate=0.5", "expected updates to come that it takes effect in"),
        ("train.ema=0.5", "expected updates to come that it takes effect in"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_touched(thalweg, trained, assignment, says):
    before = snapshot(trained)
    assert says in thalweg("train", "--resume", trained, "--set", assignment).refusal
    assert snapshot(trained) == before


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_a_schedule_is_not_stretched(thalweg, tmp_path, schedule):
    run = tmp_path / "run"
    assert thalweg("train", "tiny.toml", "--run-dir", run, *sets(f"optimizer.schedule={schedule}")).code == 0
    before = snapshot(run)
    refusal = thalweg("train", "--resume", run, *sets("train.steps=24")).refusal
    assert f"expected 12, for which the {schedule} schedule" in refusal
    assert snapshot(run) == before


def test_how_it_is_sampled_can_be_changed_after_the_last_update(thalweg, trained, tmp_path):
    assert thalweg("train", "--resume", trained, *sets("sample.chains=5")).code == 0
    assert config(trained)["changes"] == [{"update": 12, "set": ["sample.chains=5"]}]
    assert thalweg("train", "--resume", trained).code == 0
    assert len(config(trained)["changes"]) == 1
    again = tmp_path / "again"
    assert thalweg("train", trained / "config.toml", "--run-dir", again).code == 0
    assert_same(again, trained)


def test_nothing_is_written_where_nothing_is_changed(thalweg, trained):
    before = (trained / "config.toml").read_bytes()
    assert thalweg("train", "--resume", trained, *sets("train.steps=12", "sample.chains=20")).code == 0
    assert (trained / "config.toml").read_bytes() == before


def test_a_change_before_the_first_checkpoint_is_the_configuration(thalweg, trained, tmp_path):
    killed = tmp_path / "killed"
    killed.mkdir()
    (killed / "config.toml").write_text((trained / "config.toml").read_text())
    assert thalweg("train", "--resume", killed, *sets("optimizer.learning_rate=0.01")).code == 0
    assert config(killed)["optimizer"]["learning_rate"] == 0.01 and "changes" not in config(killed)


def test_a_dry_run_shows_the_changes_and_writes_nothing(thalweg, trained):
    before = snapshot(trained)
    shown = thalweg("train", "--resume", trained, "--dry-run", *sets("train.steps=16"))
    assert tomllib.loads(shown.out)["changes"] == [{"update": 12, "set": ["train.steps=16"]}]
    assert snapshot(trained) == before


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ('[[changes]]\nset = ["train.steps=3"]\n', "expected [[changes]] with a rising update"),
        ("changes = 3\n", "expected [[changes]] with a rising update"),
        ('[[changes]]\nupdate = 5\nset = ["seed=3"]\n', "seed: expected it as the run was begun with"),
        ('[[changes]]\nupdate = 5\nset = ["train.steps=3"]\n', "expected at least the 5 updates already done"),
    ],
)
def test_changes_that_cannot_have_been_are_refused(thalweg, tmp_path, damage, says):
    text = (tmp_path / "tiny.toml").read_text()
    (tmp_path / "odd.toml").write_text(damage + text if damage.startswith("changes") else text + "\n" + damage)
    assert says in thalweg("train", "odd.toml").refusal
