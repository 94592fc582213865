"""The test log-likelihood along a training: near the truth, restarted when it must be, kept by, and drawn."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg.core import Estimate
from thalweg.evaluate import trajectory

KEY = jax.random.key(0)
SIZE = 5
X = np.asarray(1.0 + 0.5 * jax.random.normal(KEY, (400, SIZE)))
TEST = X[300:]


class Diagonal(tw.core.Energy):
    """``½ Σ e^{a_i} (x_i - m_i)² + b``, whose log Z the library is not told."""

    log_precision: jax.Array = eqx.field(default_factory=lambda: jnp.full(SIZE, 0.3))
    mean: jax.Array = eqx.field(default_factory=lambda: jnp.zeros(SIZE))
    shift: jax.Array = eqx.field(default_factory=lambda: jnp.zeros(()))
    space = tw.Real(SIZE)

    def __call__(self, x):
        return 0.5 * jnp.sum(jnp.exp(self.log_precision) * (x - self.mean) ** 2) + self.shift


def exact_log_z(energy):
    return float(0.5 * SIZE * math.log(2 * math.pi) - 0.5 * jnp.sum(energy.log_precision) - energy.shift)


def exact(run):
    log_z = exact_log_z(run.energy)
    return {"exact_log_z": log_z, "exact_fit": float(-jnp.mean(jax.vmap(run.energy)(TEST))) - log_z}


def fit(evaluation, steps=40, **settings):
    defaults = {"optimizer": optax.adam(0.05), "batch_size": 50, "key": jax.random.key(1)}
    callbacks = [tw.train.every(10, evaluation), tw.train.every(10, exact)]
    objective = tw.objectives.ImplicitScoreMatching()
    return tw.fit(Diagonal(), X[:300], objective, steps=steps, callbacks=callbacks, **defaults | settings)


def carried(**options):
    return tw.train.TrajectoryLogZ(TEST, **{"key": jax.random.key(2), "chains": 512} | options)


def test_the_curve_is_near_the_truth_and_follows_one_population():
    evaluation = carried()
    rows = fit(evaluation).evaluations
    assert evaluation.restarts == 1 and isinstance(evaluation.log_z, Estimate)
    found, truth = rows[::2], rows[1::2]
    assert [row["step"] for row in found] == [10, 20, 30, 40]
    for row, known in zip(found, truth, strict=True):
        side = row["log_z_high"] - row["log_z"]
        assert abs(row["log_z"] - known["exact_log_z"]) < 2.5 * side < 0.6
        assert math.isclose(
            row["test_log_likelihood"] + row["log_z"], known["exact_fit"] + known["exact_log_z"], rel_tol=1e-4
        )
        # the band holds both errors, and is wider than that of log Z alone
        assert row["test_log_likelihood_high"] - row["test_log_likelihood"] > side
        assert row["test_log_likelihood_low"] < known["exact_fit"] < row["test_log_likelihood_high"]
    # the model learns, by more than the band
    assert found[-1]["test_log_likelihood_low"] > found[0]["test_log_likelihood_high"]


def test_it_starts_anew_when_the_interval_is_too_wide():
    evaluation = carried(widest=1e-6)
    fit(evaluation, steps=20)
    assert evaluation.restarts == 2


def test_a_resumed_run_starts_anew(tmp_path):
    evaluation = carried()
    fit(evaluation, steps=20, run_dir=tmp_path, checkpoint_every=10)
    assert evaluation.restarts == 1
    # the same object is used again, as in a notebook
    run = fit(evaluation, steps=40, run_dir=tmp_path, resume=True)
    assert evaluation.restarts == 2
    assert [row["step"] for row in run.evaluations[::2]] == [10, 20, 30, 40]
    for row, known in zip(run.evaluations[::2], run.evaluations[1::2], strict=True):
        assert abs(row["log_z"] - known["exact_log_z"]) < 2.5 * (row["log_z_high"] - row["log_z"])


def test_the_best_checkpoint_is_kept_by_it_and_the_report_draws_its_band(tmp_path):
    run = fit(carried(), run_dir=tmp_path, keep_best="test_log_likelihood")
    values = {row["step"]: row["test_log_likelihood"] for row in run.evaluations[::2]}
    assert tw.load_run(tmp_path, energy=Diagonal(), best=True).step == max(values, key=values.get)
    assert "Training curves" in tw.report(run).read_text(encoding="utf-8")


def test_exact_log_z_is_used_where_there_is_one():
    evaluation = tw.train.TrajectoryLogZ(TEST[:, :2], key=jax.random.key(2))
    callbacks = [tw.train.every(5, evaluation)]
    energy = tw.energies.Gaussian(jnp.zeros(2))
    objective = tw.objectives.ImplicitScoreMatching()
    options = {"optimizer": optax.adam(0.05), "steps": 5, "batch_size": 50, "key": KEY, "callbacks": callbacks}
    run = tw.fit(energy, X[:, :2], objective, **options)
    assert evaluation.restarts == 0 and evaluation.log_z is not None and evaluation.log_z.low == evaluation.log_z.high
    assert math.isclose(run.evaluations[0]["log_z"], float(run.energy.log_z), rel_tol=1e-6)


@pytest.mark.parametrize(("hidden", "restarts"), [(8, 0), (19, 1)])
def test_a_boltzmann_machine_is_summed_or_carried(hidden, restarts):
    data = np.asarray(jax.random.bernoulli(KEY, 0.3, (100, 30)), np.int32)
    evaluation = tw.train.TrajectoryLogZ(data[60:], key=jax.random.key(2), chains=256)
    callbacks = [tw.train.every(2, evaluation)]
    options = {"optimizer": optax.adam(0.05), "steps": 6, "batch_size": 20, "key": KEY, "callbacks": callbacks}
    machine = tw.energies.RBM(30, hidden, key=jax.random.key(3))
    run = tw.fit(machine, data[:60], tw.objectives.MaximumLikelihood(tw.samplers.Gibbs(), 1), **options)
    last, truth = run.evaluations[-1], float(run.energy.log_z)
    error = evaluation.log_z.standard_error
    assert evaluation.restarts == restarts and (error > 0) == (restarts > 0)
    assert abs(last["log_z"] - truth) < 4 * error + 1e-3 < 0.5
    # far from the machine that was begun with
    assert abs(truth - float(run.energy.log_z_uncoupled())) > 1


def test_what_cannot_be_reached_is_not_a_number(monkeypatch):
    monkeypatch.setattr(trajectory, "MOST_RUNGS", 1)
    evaluation = carried(chains=400)
    run = fit(evaluation, steps=10)
    assert math.isnan(run.evaluations[0]["log_z"]) and math.isnan(run.evaluations[0]["test_log_likelihood_low"])
    assert evaluation.log_z is not None and "did not reach" in (evaluation.log_z.warning or "")


BAD = {
    "groups": ({"groups": 2}, "groups"),
    "chains": ({"chains": 16}, "chains"),
    "not a multiple": ({"chains": 500}, "multiple of the 16 groups"),
    "widest": ({"widest": 0.0}, "widest"),
    "a class as kernel": ({"kernel": tw.samplers.HMC}, "instance"),
    "confidence": ({"confidence": 1.5}, "confidence"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_a_sentence(case):
    changed, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        carried(**changed)


def test_models_without_a_likelihood_are_refused():
    rows = {"shape": (TEST[:, :3], r"shape \(n, 5\)"), "one row": (TEST[:1], "at least 2 rows")}
    for data, words in rows.values():
        with pytest.raises(ValueError, match=words):
            fit(tw.train.TrajectoryLogZ(data, key=KEY), steps=10)
