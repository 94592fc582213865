"""A run had back from its folder: the same model, sampled, evaluated and reported on, wherever the folder is."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tests.cli.conftest import TINY

import thalweg as tw
from thalweg.cli.main import run as command

KEY = jax.random.key(0)
ROWS = np.asarray(tw.data.two_moons(KEY, 60))


def train(folder, energy=None, objective=None, data=ROWS, **options):
    energy = tw.energies.MLP(2, 8, key=KEY) if energy is None else energy
    objective = tw.objectives.MaximumLikelihood(steps=2) if objective is None else objective
    options = {"optimizer": optax.adam(1e-2), "steps": 4, "batch_size": 10, "ema": 0.5} | options
    return tw.fit(energy, data, objective, key=KEY, run_dir=folder, **options)


def thalweg(capsys, *arguments):
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        command([str(each) for each in arguments])
    return int(left.value.code or 0), capsys.readouterr()


def assert_same_run(one, other):
    for name in ("energy", "last", "params", "state"):
        left, right = jax.tree.flatten(getattr(one, name)), jax.tree.flatten(getattr(other, name))
        assert left[1] == right[1]
        assert all(np.array_equal(a, b) for a, b in zip(left[0], right[0], strict=True) if eqx.is_array(a))
    assert one.step == other.step and one.history.keys() == other.history.keys()
    assert all(np.array_equal(one.history[name], other.history[name]) for name in one.history)


def test_the_trained_model_comes_back_with_nothing_built(tmp_path):
    made = train(tmp_path / "run")
    again = tw.load_run(tmp_path / "run")
    assert isinstance(again, tw.Run) and again.folder == tmp_path / "run"
    assert_same_run(made, again)
    x = jnp.ones(2)
    assert again.energy(x) == made.energy(x) != again.last(x)


@pytest.mark.parametrize(
    "objective",
    [tw.objectives.NCE(), tw.objectives.AdaNCE(steps=2), tw.objectives.AdversarialNCE(width=4, many=4)],
    ids=lambda each: type(each).__name__,
)
def test_what_the_objective_learned_comes_back_too(tmp_path, objective):
    made = train(tmp_path, objective=objective, ema=None)
    again = tw.load_run(tmp_path)
    assert_same_run(made, again)
    assert type(again.source.objective) is type(objective)


def test_a_state_that_cannot_be_written_comes_back_as_its_arrays(tmp_path):
    made = train(tmp_path, objective=tw.objectives.FlowNCE(warm_start=0), ema=None)
    again = tw.load_run(tmp_path)
    expected = [leaf for leaf in jax.tree.leaves(made.state) if eqx.is_array(leaf)]
    assert all(np.array_equal(a, b) for a, b in zip(again.state, expected, strict=True))
    assert again.params.value == made.params.value if hasattr(made.params, "value") else again.params == made.params


def test_samples_and_numbers_are_those_of_the_run_before(tmp_path):
    made = train(tmp_path)
    again = tw.load_run(tmp_path)
    one, other = (run.sample(key=KEY, chains=6, draws=2, burn_in=5).draws for run in (made, again))
    assert one.shape == (6, 2, 2) and np.array_equal(one, other)
    options = {"key": KEY, "chains": 6, "steps": 5}
    numbers = made.evaluate(**options)
    assert numbers == again.evaluate(ROWS, **options)
    assert numbers["energy_gap"] == pytest.approx(numbers["energy_data"] - numbers["energy_samples"])
    assert numbers["energy_data"] == pytest.approx(float(np.mean(jax.vmap(made.energy)(ROWS))), rel=1e-5)
    # the rows of a run begun in Python are not in its folder
    assert set(again.evaluate(**options)) == {"chains", "steps", "energy_samples"}
    dataset = tw.data.Dataset(ROWS[:40], None, ROWS[40:])
    assert set(again.evaluate(dataset, **options)) == set(numbers) | {"energy_test"}


def test_a_folder_begun_in_python_is_sampled_and_reported_on_by_the_command_line(tmp_path, capsys):
    folder = tmp_path / "run"
    train(folder)
    code, said = thalweg(capsys, "sample", folder, "--chains", "5", "--steps", "4")
    assert code == 0 and str(folder / "samples" / "samples.npz") in said.out
    with np.load(folder / "samples" / "samples.npz") as samples:
        assert samples["x"].shape == (5, 2)
    results = json.loads((folder / "results.json").read_text())
    assert results["updates"] == 4 and results["chains"] == 5 and np.isfinite(results["energy_samples"])
    assert thalweg(capsys, "report", folder)[0] == 0
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "MaximumLikelihood" in page and "begun = &quot;python&quot;" in page
    for arguments in (["--resume", folder], [folder / "config.toml"]):
        code, said = thalweg(capsys, "train", *arguments)
        assert code == 2 and len(said.err.splitlines()) == 1
        assert "begun in Python" in said.err and "resume=True" in said.err


def test_the_report_takes_a_run_or_its_folder(tmp_path):
    made = train(tmp_path / "run")
    assert tw.report(made) == tmp_path / "run" / "report.html"
    (tmp_path / "run" / "report.html").unlink()
    assert tw.report(tw.load_run(tmp_path / "run")).is_file()
    assert tw.report(str(tmp_path / "run")).is_file()
    with pytest.raises(ValueError, match="expected a run with a folder to report on"):
        tw.report(train(None))


def test_a_resumed_run_says_what_was_changed(tmp_path):
    train(tmp_path)
    train(tmp_path, steps=6, resume=True)
    text = (tmp_path / "config.toml").read_text()
    assert "steps = 4" in text and 'update = 4\nset = ["train.steps=6"]' in text
    assert tw.load_run(tmp_path).step == 6
    before = (tmp_path / "config.toml").read_bytes()
    train(tmp_path, steps=6, resume=True)
    assert (tmp_path / "config.toml").read_bytes() == before


def test_a_moved_and_a_copied_folder_work(tmp_path):
    made = train(tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    (tmp_path / "run").rename(tmp_path / "moved")
    for name in ("copy", "moved"):
        assert_same_run(made, tw.load_run(tmp_path / name))


def test_a_run_is_read_in_another_process(tmp_path):
    made = train(tmp_path)
    code = "import sys, thalweg as tw, jax.numpy as jnp; print(float(tw.load_run(sys.argv[1]).energy(jnp.ones(2))))"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(float(made.energy(jnp.ones(2))), rel=1e-6)


class Well(tw.core.Energy):
    """A user's own energy."""

    depth: jax.Array
    space = tw.Real(2)

    def __call__(self, x):
        return self.depth * jnp.sum(x**2)


class Shaped(tw.core.Energy):
    """One with a function of the user's own inside."""

    depth: jax.Array
    shape: object = eqx.field(static=True)
    space = tw.Real(2)

    def __call__(self, x):
        return self.depth * self.shape(x)


def test_a_class_of_ones_own_is_given_by_type(tmp_path):
    made = train(tmp_path, energy=Well(jnp.array(1.0)))
    with pytest.raises(ValueError, match=r"model\.json: .*the class Well .*types=\[Well\]"):
        tw.load_run(tmp_path)
    again = tw.load_run(tmp_path, types=[Well])
    assert type(again.energy) is Well and again.energy.depth == made.energy.depth


def test_what_cannot_be_written_is_trained_and_asked_for(tmp_path):
    shape = lambda x: jnp.sum(x**2)
    made = train(tmp_path, energy=Shaped(jnp.array(1.0), shape))
    assert "unwritable" in json.loads((tmp_path / "model.json").read_text())["parts"]["energy"]
    with pytest.raises(ValueError, match=r"energy\.shape is the function .*<lambda>.*energy=energy"):
        tw.load_run(tmp_path, types=[Shaped])
    again = tw.load_run(tmp_path, energy=Shaped(jnp.array(0.0), shape))
    assert again.energy.depth == made.energy.depth and again.last.depth == made.last.depth
    with pytest.raises(ValueError, match="expected an energy of the structure of the trained one"):
        tw.load_run(tmp_path, energy=Shaped(jnp.zeros(3), shape))
    with pytest.raises(ValueError, match="expected an energy of the structure of the trained one"):
        tw.load_run(tmp_path, energy=tw.energies.MLP(2, 8, key=KEY))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda text: text[: len(text) // 2], "expected the description of a model, got a damaged file"),
        (lambda text: "[]", "expected the description of a model, got a damaged file"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "expected version 1, got 2"),
        (lambda text: text.replace("thalweg.energies.neural:MLP", "os:system"), "expected classes of thalweg, got the"),
        (lambda text: text.replace('"place"', '"plaice"'), "got a damaged file"),
        (lambda text: text.replace('"float32"', '"float64"'), "other arrays"),
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path, damage, says):
    train(tmp_path)
    path = tmp_path / "model.json"
    path.write_text(damage(path.read_text()))
    with pytest.raises(ValueError, match=says) as refusal:
        tw.load_run(tmp_path)
    assert str(tmp_path) in str(refusal.value) and len(str(refusal.value).splitlines()) == 1


def test_what_is_no_run_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="expected a run folder, got nothing there"):
        tw.load_run(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"expected a run folder with its config\.toml, got none"):
        tw.load_run(tmp_path)
    train(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(ValueError, match="expected a run with checkpoints, got none"):
        tw.load_run(tmp_path / "run")


def test_a_run_of_the_command_line_comes_back_with_its_data_and_its_sampler(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(TINY)
    assert thalweg(capsys, "train", "tiny.toml", "--run-dir", "run")[0] == 0
    run = tw.load_run("run")
    results = json.loads(Path("run/results.json").read_text())
    numbers = run.evaluate(key=KEY)
    assert numbers.keys() == {each for each in results if each.startswith("energy_")} | {"chains", "steps"}
    assert numbers["chains"] == 20 and numbers["steps"] == 10
    assert numbers["energy_data"] == pytest.approx(results["energy_data"], rel=1e-5)
    assert run.sample(key=KEY, chains=3).draws.shape == (3, 1, 2)
    assert type(run.source.kernel).__name__ == "Langevin" and len(run.source.dataset(run.energy).x_test) == 50
    # an older folder is built from its configuration, and is the same run
    (tmp_path / "run" / "model.json").unlink()
    assert_same_run(run, tw.load_run("run"))
