"""Evaluating a run: which metrics suit it, what is said of the others, and when results are reused."""

import dataclasses
import json
import math
import shutil
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg.core.files import read_json
from thalweg.data import Dataset
from thalweg.runs import evaluation, metrics
from thalweg.runs.digests import digest_model
from thalweg.runs.evaluation_rows import Computed, Row, cells, from_json, to_json
from thalweg.runs.subject import Rows, Subject

FAST = ["energy_gap", "overfitting"]


def moons(key, rows=120, test=60):
    one, other = jax.random.split(key)
    return Dataset(np.asarray(tw.data.two_moons(one, rows)), None, np.asarray(tw.data.two_moons(other, test)), None)


def train(folder, energy, data, objective=None, **options):
    """A run of three updates, begun in Python."""
    objective = objective or tw.objectives.MaximumLikelihood(steps=2)
    options = {"optimizer": optax.adam(1e-3), "steps": 3, "batch_size": 10, "key": jax.random.key(1)} | options
    return tw.fit(energy, data, objective, run_dir=folder, **options)


@pytest.fixture(scope="module")
def _run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    energy = tw.energies.confined(tw.energies.MLP(2, 8, key=jax.random.key(0)))
    return train(folder, energy, moons(jax.random.key(2))), folder


@pytest.fixture
def run(_run, tmp_path):
    """A copy of a small run, with its data."""
    made, folder = _run
    shutil.copytree(folder, tmp_path / "run")
    source = type(made.source)(made.source.objective, made.source.data, tmp_path / "run")
    return dataclasses.replace(made, source=source)


def counted(monkeypatch, name="energy_gap"):
    """The calls of a metric."""
    calls, metric = [], metrics.METRICS[name]

    def compute(subject, key):
        calls.append(name)
        return metric.compute(subject, key)

    monkeypatch.setitem(metrics.METRICS, name, metric._replace(compute=compute))
    return calls


def test_the_energy_gap_is_that_of_the_energies(run):
    found = tw.runs.evaluate(run, FAST)
    with np.load(run.folder / "samples" / "samples.npz") as samples:
        drawn = jax.vmap(run.energy)(jnp.asarray(samples["x"]))
    data = run.source.data
    held = jax.vmap(run.energy)(data.x_test)
    row = found["energy_gap"]
    assert row.value == pytest.approx(float(held.mean() - drawn.mean()), abs=1e-5)
    error = np.sqrt(held.var(ddof=1) / 60 + drawn.var(ddof=1) / 100)
    assert row.high - row.low == pytest.approx(2 * 1.959964 * error, rel=1e-3)
    assert (row.method, row.ideal) == ("60 test rows minus 100 samples", 0.0)
    trained = jax.vmap(run.energy)(data.x_train[np.unique(np.linspace(0, 119, 60).astype(int))])
    assert found["overfitting"].value == pytest.approx(float(held.mean() - trained.mean()), abs=1e-5)


def test_results_are_reused_until_something_changes(run, monkeypatch):
    calls = counted(monkeypatch)
    first = tw.runs.evaluate(run, FAST)
    assert not any(row.kept for row in first.rows)
    again = tw.runs.evaluate(run, FAST)
    assert all(row.kept for row in again.rows) and calls == ["energy_gap"]
    assert [row._replace(kept="") for row in again.rows] == list(first.rows)
    # each of these is another question
    for change in ({"confidence": 0.9}, {"seed": 5}, {"fresh": True}, {"data": run.source.data.x_test[:30]}):
        before = len(calls)
        assert not tw.runs.evaluate(run, "energy_gap", **change)["energy_gap"].kept
        assert len(calls) == before + 1, change


def test_another_checkpoint_has_new_samples_and_new_results(run, monkeypatch):
    tw.runs.evaluate(run, FAST)
    before = read_json(run.folder / "results.json")
    samples = (run.folder / "samples" / "samples.npz").read_bytes()
    changed = jax.tree.map(lambda leaf: leaf + 0.1 if jnp.ndim(leaf) == 2 else leaf, run.energy)
    assert digest_model(changed) != digest_model(run.energy)
    found = tw.runs.evaluate(dataclasses.replace(run, energy=changed), "energy_gap")
    assert not found["energy_gap"].kept
    assert (run.folder / "samples" / "samples.npz").read_bytes() != samples
    # numbers of the other model are gone
    assert list(before["evaluation"]["metrics"]) == FAST
    assert list(read_json(run.folder / "results.json")["evaluation"]["metrics"]) == ["energy_gap"]


def test_samples_of_the_checkpoint_are_not_drawn_again(run, monkeypatch):
    tw.runs.sample(run.folder, chains=7, steps=3)
    monkeypatch.setattr(evaluation, "write_samples", lambda *arguments, **options: pytest.fail("drawn again"))
    assert tw.runs.evaluate(run, "energy_gap")["energy_gap"].method == "60 test rows minus 7 samples"


def test_a_metric_that_fails_has_a_row_and_the_others_go_on(run, monkeypatch):
    def fail(subject, key):
        raise ValueError("expected luck, got none; try again")

    monkeypatch.setitem(metrics.METRICS, "energy_gap", metrics.METRICS["energy_gap"]._replace(compute=fail))
    found = tw.runs.evaluate(run, FAST)
    assert found["energy_gap"].value is None and "expected luck" in found["energy_gap"].remark
    assert found["overfitting"].computed
    assert "expected luck" in tw.report(run).read_text(encoding="utf-8")


def test_what_was_computed_before_an_interruption_is_kept(run, monkeypatch):
    def stop(subject, key):
        raise KeyboardInterrupt

    metric = metrics.METRICS["overfitting"]
    monkeypatch.setitem(metrics.METRICS, "overfitting", metric._replace(compute=stop))
    with pytest.raises(KeyboardInterrupt):
        tw.runs.evaluate(run, FAST)
    json.loads((run.folder / "results.json").read_text())
    monkeypatch.setitem(metrics.METRICS, "overfitting", metric)
    found = tw.runs.evaluate(run, FAST)
    assert found["energy_gap"].kept and not found["overfitting"].kept


def test_an_interrupted_write_leaves_the_old_results(run, monkeypatch):
    tw.runs.evaluate(run, "energy_gap")
    before = (run.folder / "results.json").read_bytes()

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(ValueError, match=r"results\.json: expected to write it"):
        tw.runs.evaluate(run, "overfitting")
    assert (run.folder / "results.json").read_bytes() == before
    assert not list(run.folder.rglob("*.part"))


def test_damaged_results_are_refused(run):
    tw.runs.evaluate(run, "energy_gap")
    path = run.folder / "results.json"
    results = read_json(path)
    results["evaluation"]["metrics"]["energy_gap"]["rows"] = [{"metric": "energy_gap", "colour": "red"}]
    path.write_text(json.dumps(results))
    with pytest.raises(ValueError, match="evaluate again with --fresh"):
        tw.runs.evaluate(run, "energy_gap")
    assert tw.runs.evaluate(run, "energy_gap", fresh=True)["energy_gap"].computed


def test_a_run_without_test_rows_says_that_it_used_training_rows(tmp_path):
    data = moons(jax.random.key(3))._replace(x_test=None)
    run = train(tmp_path / "run", tw.energies.confined(tw.energies.MLP(2, 8, key=jax.random.key(0))), data)
    found = tw.runs.evaluate(run, FAST)
    assert "120 training rows" in found["energy_gap"].method
    assert "needs rows that were not trained on" in found["overfitting"].remark
    assert "data.test_fraction" in found["overfitting"].remark


def test_a_run_begun_in_python_asks_for_its_data(run):
    loaded = run.folder
    found = tw.runs.evaluate(loaded, FAST)
    assert not any(row.computed for row in found.rows) and "--data" in found["energy_gap"].remark
    given = tw.runs.evaluate(loaded, FAST, data=run.source.data)
    assert all(row.computed for row in given.rows)
    rows = tw.runs.evaluate(loaded, "energy_gap", data=np.asarray(run.source.data.x_test))
    assert rows["energy_gap"].value == given["energy_gap"].value
    assert rows["energy_gap"].method == "60 given rows minus 100 samples"


def test_other_data_are_told_apart(run, tmp_path):
    far = np.asarray(run.source.data.x_test) + 20.0
    found = tw.runs.evaluate(run, "ood", against=far)
    assert found["auroc given"].value == 1.0 and found["fpr95 given"].value == 0.0
    same = tw.runs.evaluate(run, "ood", against=run.source.data.x_test)["auroc given"]
    assert same.value == pytest.approx(0.5) and same.low < 0.5 < same.high
    np.save(tmp_path / "far.npy", far.astype(np.float32))
    named = tw.runs.evaluate(run, against=tmp_path / "far.npy", metrics="ood")
    assert named["auroc far.npy"].value == 1.0
    page = tw.report(run).read_text(encoding="utf-8")
    assert "ROC curve against far.npy" in page and "ROC curve against given" in page


def test_data_of_another_shape_are_refused(run):
    with pytest.raises(ValueError, match=r"shape \(2,\)|shape \(60, 3\)"):
        tw.runs.evaluate(run, "ood", against=np.zeros((60, 3), np.float32))
    with pytest.raises(ValueError, match="expected a data set's name or a path, got neither; did you mean 'rings'"):
        tw.runs.evaluate(run, "ood", against="ringz")
    with pytest.raises(ValueError, match="digits: expected points of shape"):
        tw.runs.evaluate(run, "ood", against="digits")


def test_names_of_metrics():
    assert metrics.parse_metrics("all") == tuple(metrics.METRICS)
    assert metrics.parse_metrics("mmd, mmd,energy_gap") == ("mmd", "energy_gap")
    with pytest.raises(ValueError, match="did you mean 'energy_gap'"):
        metrics.parse_metrics("enrgy_gap")
    with pytest.raises(ValueError, match="got none"):
        metrics.parse_metrics("")


@pytest.fixture
def unchecked():
    """Types as a user has them, without the checker of the tests, which would refuse bad input before us."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def test_bad_arguments_are_refused_in_a_sentence(run, unchecked):
    wrong = [{"metrics": 5}, {"metrics": [5]}, {"confidence": 95}, {"seed": -1}, {"fresh": "no"}, {"against": object()}]
    for each in wrong:
        with pytest.raises(ValueError, match="expected"):
            tw.runs.evaluate(run, **each)
    with pytest.raises(ValueError, match="expected run to be a path"):
        tw.runs.evaluate(5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="train with run_dir"):
        tw.runs.evaluate(dataclasses.replace(run, source=type(run.source)()))


def test_every_metric_explains_itself_and_is_reached():
    for name, metric in metrics.METRICS.items():
        assert metric.about.endswith(".") and len(metric.about) <= 100, name
        assert set(metric.uses) <= {"rows", "training", "samples", "other"} and metric.requires, name


class Formula(tw.core.Energy):
    """A function as an energy, with a weight that changes nothing: a model must have one to be trained."""

    function: Any = eqx.field(static=True)
    space: Any = eqx.field(static=True)
    weight: Any = eqx.field(default_factory=lambda: jnp.zeros(()))

    def __call__(self, x):
        return self.function(x) + 0.0 * self.weight


class ByClass(tw.core.ConditionalEnergy):
    """``N(c, I)`` of the class c."""

    space: Any = eqx.field(static=True, default=tw.Real(2))
    condition_space: Any = eqx.field(static=True, default=tw.Categorical((), 3))
    weight: Any = eqx.field(default_factory=lambda: jnp.zeros(()))

    def __call__(self, x, c):
        return 0.5 * jnp.sum((x - jnp.asarray(c, float)) ** 2) + 0.0 * self.weight


def evaluated(energy, data, objective=None, **state):
    """A run of one update that changes nothing, to be evaluated; its samples are the training rows."""
    objective = objective or tw.objectives.MaximumLikelihood(steps=1)
    labelled = isinstance(energy, tw.core.ConditionalEnergy) and data.y_train is not None
    rows = (data.x_train, data.y_train) if labelled else data.x_train
    run = tw.fit(energy, rows, objective, optimizer=optax.sgd(0.0), steps=1, batch_size=5, key=jax.random.key(0))
    return Subject(run, data, lambda: {"x": np.asarray(data.x_train)})


def compute(name, subject):
    metric = metrics.METRICS[name]
    assert metric.refusal(subject) is None
    rows = metric.compute(subject, subject.key_of(name)).rows
    return {row.name: row for row in rows}


def test_the_log_likelihood_is_exact_in_the_plane():
    energy = tw.energies.confined(tw.energies.MLP(2, 8, key=jax.random.key(0)))
    subject = evaluated(energy, moons(jax.random.key(3)))
    found = compute("log_likelihood", subject)
    log_z = float(tw.exact.log_z(energy))
    values = -np.asarray(jax.vmap(energy)(subject.data.x_test)) - log_z
    row = found["log_likelihood"]
    assert row.value == pytest.approx(values.mean(), abs=1e-4) and row.low < row.value < row.high
    assert row.method.startswith("60 test rows, log Z by ")
    assert found["log_z"].value == pytest.approx(log_z, abs=1e-4)


def test_a_network_that_falls_in_some_direction_has_no_likelihood():
    subject = evaluated(Formula(lambda x: x[0] + jnp.abs(x[1]), tw.Real(2)), moons(jax.random.key(3)))
    with pytest.raises(ValueError, match="falls without end"):
        compute("log_likelihood", subject)


def test_chains_clipped_to_an_interval_have_a_density_on_it():
    kernel = tw.samplers.Langevin(3.0, noise_scale=0.005, clip_x=(-4.0, 4.0))
    flat = Formula(lambda x: 0.0 * jnp.sum(x), tw.Real(2))
    subject = evaluated(flat, moons(jax.random.key(3)), tw.objectives.MaximumLikelihood(kernel=kernel, steps=1))
    row = compute("log_likelihood", subject)["log_likelihood"]
    assert row.value == pytest.approx(-2 * math.log(8.0), abs=1e-4)
    assert "[-4, 4]^2" in row.remark and "temperature 8.3e-06" in row.remark
    reason = metrics.METRICS["kernel_stein_discrepancy"].refusal(subject)
    assert reason is not None and "clipped" in reason
    # rows at the ends count, rows outside do not fit
    ends = np.array([[-4.0, 4.0], [0.0, 0.0], [1.0, 2.0]], np.float32)
    given = Subject(subject.run, subject.data, dict, rows=Rows(ends, None, "3 rows"))
    assert compute("log_likelihood", given)["log_likelihood"].value == pytest.approx(-2 * math.log(8.0), abs=1e-4)
    given = Subject(subject.run, subject.data, dict, rows=Rows(1.5 * ends, None, "3 rows"))
    with pytest.raises(ValueError, match="got 1 of 3 rows outside"):
        compute("log_likelihood", given)


def test_the_number_of_values_of_a_pixel_is_seen():
    energy = tw.energies.ConvNet("digits", 0.05, key=jax.random.key(0))
    run = Subject(evaluated(energy, Dataset(tw.data.digits().x_train[:50])).run, tw.data.digits(), dict)
    assert run.pixel_levels == 17
    noise = np.random.default_rng(0)
    grey = tw.data.scale_pixels(noise.integers(0, 256, (50, 8, 8, 1)).astype(np.uint8))
    assert Subject(run.run, Dataset(grey), dict).pixel_levels == 256
    continuous = Subject(run.run, Dataset(noise.uniform(-1, 1, (50, 8, 8, 1)).astype(np.float32)), dict)
    assert continuous.pixel_levels is None
    assert "whole numbers" in (metrics.METRICS["bits_per_dim"].refusal(continuous) or "")


def test_the_log_likelihood_of_discrete_points_is_exact_and_the_pseudo_likelihood_that_of_training():
    coupling = tw.energies.Matrix(0.3 * (jnp.ones((4, 4)) - jnp.eye(4)))
    energy = tw.energies.Ising(coupling, jnp.array([0.1, -0.2, 0.3, 0.0]), tw.Binary(4))
    x = np.asarray(jax.random.bernoulli(jax.random.key(4), 0.5, (90, 4)), np.float32)
    subject = evaluated(energy, Dataset(x[:40], None, x[40:], None), tw.objectives.PseudoLikelihood())
    points = jnp.asarray(x[40:], jnp.int32)
    expected = -jax.vmap(energy)(points).mean() - tw.exact.log_z(energy)
    found = compute("log_likelihood", subject)
    assert found["log_likelihood"].value == pytest.approx(float(expected), abs=1e-5)
    bits = compute("bits_per_dim", subject)["bits_per_dim"].value
    assert bits == pytest.approx(-float(expected) / (4 * math.log(2)), abs=1e-5)
    objective = tw.objectives.PseudoLikelihood()
    loss, _ = objective.loss(jax.random.key(5), energy, None, None, points)
    assert compute("pseudo_likelihood", subject)["pseudo_likelihood"].value == pytest.approx(-float(loss), abs=1e-5)
    assert "mmd" in metrics.choose_metrics(subject, ())


def test_a_conditional_model_has_a_log_z_for_each_class():
    y = np.arange(90) % 3
    x = np.asarray(jax.random.normal(jax.random.key(6), (90, 2))) + y[:, None].astype(np.float32)
    data = Dataset(x[:30], y[:30], x[30:], y[30:])
    kernel = tw.samplers.Langevin(0.1)
    subject = evaluated(ByClass(), data, tw.objectives.MaximumLikelihood(kernel=kernel, steps=1))
    distance = np.sum((data.x_test - data.y_test[:, None]) ** 2, axis=1)
    row = compute("log_likelihood", subject)["log_likelihood"]
    assert row.value == pytest.approx(np.mean(-0.5 * distance) - math.log(2 * math.pi), abs=1e-4)
    found = compute("calibration", subject)
    chances = np.exp(-0.5 * np.sum((data.x_test[:, None] - np.arange(3)[:, None]) ** 2, axis=2))
    assert found["accuracy"].value == pytest.approx(np.mean(chances.argmax(axis=1) == data.y_test))
    assert subject.class_probabilities(data.x_test) == pytest.approx(
        chances / chances.sum(axis=1, keepdims=True), abs=1e-5
    )
    assert subject.detection_energies(data.x_test) == pytest.approx(-np.log(chances.sum(axis=1)), abs=1e-4)
    reason = metrics.METRICS["mmd"].refusal(subject)
    assert reason is not None and "conditional" in reason


def test_a_score_network_says_what_it_lacks():
    score = tw.energies.ScoreMLP(2, 8, key=jax.random.key(0))
    subject = evaluated(score, moons(jax.random.key(3)), tw.objectives.DenoisingScoreMatching(0.1))
    reasons = {name: metrics.METRICS[name].refusal(subject) for name in ("log_likelihood", "energy_gap")}
    assert "several noise levels" in (reasons["log_likelihood"] or "")
    assert "only its gradient" in (reasons["energy_gap"] or "")
    # the reason is a row of the table, also if nobody asked for the metric
    assert "log_likelihood" in metrics.choose_metrics(subject, ())
    assert "energy_gap" not in metrics.choose_metrics(subject, ())


def test_the_probability_flow_of_a_noise_conditional_model():
    energy = tw.energies.NoiseConditionalScoreMLP(2, 8, 1, key=jax.random.key(0))
    data = moons(jax.random.key(3), test=20)
    subject = evaluated(energy, data, tw.objectives.NoiseConditionalScoreMatching(jnp.array([3.0, 1.0, 0.3])))
    row = compute("log_likelihood", subject)["log_likelihood"]
    assert row.low < row.value < row.high and "standard deviation 0.3" in row.remark and "20 test rows" in row.method


def test_samples_of_the_source_pass_the_tests_and_others_fail():
    data = moons(jax.random.key(3), rows=200, test=200)
    subject = evaluated(tw.energies.confined(tw.energies.MLP(2, 8, key=jax.random.key(0))), data)
    tests = ("mmd", "classifier_two_sample")
    assert all(compute(name, subject)[name].p_value > 0.01 for name in tests)
    moved = Subject(subject.run, data, lambda: {"x": np.asarray(data.x_train) + 1.0})
    assert all(compute(name, moved)[name].p_value < 0.01 for name in tests)
    assert compute("classifier_two_sample", moved)["classifier_two_sample"].low > 0.5


@pytest.mark.slow
def test_images_are_compared_by_a_classifier(tmp_path, monkeypatch):
    monkeypatch.setenv("THALWEG_DATA", str(tmp_path))
    network = tw.evaluate.digit_network
    monkeypatch.setattr(
        tw.evaluate, "digit_network", lambda *given, **more: network(*given, **more, channels=(8,), steps=60)
    )
    data = tw.data.digits()
    data = Dataset(data.x_train[:300], data.y_train[:300], data.x_test[:60], data.y_test[:60])
    subject = evaluated(tw.energies.ConvNet("digits", 0.1, key=jax.random.key(0)), data)
    chosen = metrics.choose_metrics(subject, ())
    names = ("frechet_distance", "kernel_inception_distance", "precision_recall")
    assert {"log_likelihood", "bits_per_dim", "class_scores", *names} <= set(chosen) and "mmd" not in chosen
    real = {name: compute(name, subject) for name in (*names, "density_coverage")}
    noise = Subject(
        subject.run, data, lambda: {"x": np.random.default_rng(0).uniform(-1, 1, data.x_train.shape).astype("f4")}
    )
    worse = {name: compute(name, noise) for name in names}
    for name in names[:2]:
        assert worse[name][name].value > 2 * real[name][name].value
    assert worse["precision_recall"]["precision"].value < real["precision_recall"]["precision"].value
    row = real["kernel_inception_distance"]["kernel_inception_distance"]
    assert row.low < row.value < row.high


def test_the_keys_of_metrics_differ_and_do_not_depend_on_each_other(run):
    made = Subject(run, run.source.data, dict)
    keys = {name: tuple(jax.random.key_data(made.key_of(name)).tolist()) for name in metrics.METRICS}
    assert len(set(keys.values())) == len(keys)


def test_rows_as_json_and_as_cells():
    row = Row("mmd", "mmd", 0.5, p_value=0.01, method="permutations", remark="few rows")
    assert from_json(json.loads(json.dumps(to_json([row]))), "")[0] == row
    assert cells(row) == ("mmd", "0.5", "p = 0.01", "permutations", "few rows")
    with pytest.raises(KeyError, match="evaluate it first"):
        tw.runs.Evaluation(None, 1, (row,))["ood"]  # pyright: ignore[reportArgumentType]
    assert Computed([row]).arrays == {}
