"""A training that runs away is named in words; one that is well is left alone."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg.core import Objective, Step
from thalweg.train.doctor import Doctor, Scale, measure_scale, write_findings

MOONS = np.asarray(tw.data.two_moons(jax.random.key(0), 2000))
SCALE = Scale(norm=1.0, greatest=2.0, deviation=0.5, coordinates=2, real=2)
CALM = {"gradient_norm": 4.0, "energy_gap": -0.3, "acceptance": 0.8, "sample_norm": 1.0, "weight_norm": 20.0}
CALM |= {"divergences": 0.0}


def findings(rows, steps=1000):
    """What is found until training would be stopped."""
    doctor = Doctor(SCALE, steps=steps, chains=10, weights=20.0)
    for step, row in enumerate(rows, 1):
        seen = doctor.look(step, row)
        if seen is not None and seen.stops:
            break
    return doctor.findings


def test_a_calm_training_has_no_findings_whatever_its_loss():
    assert findings([{**CALM, "loss": -(10.0 ** (step / 50))} for step in range(1000)]) == []


@pytest.mark.parametrize(
    "metric, value, stops",
    [
        ("gradient_norm", 500.0, False),
        ("gradient_norm", 5e4, True),
        ("energy_gap", -200.0, False),
        ("energy_gap", 200.0, False),
        ("energy_gap", -2e4, True),
        ("weight_norm", 2100.0, False),
        ("weight_norm", 2.1e6, True),
        ("sample_norm", 21.0, False),
        ("sample_norm", 2100.0, True),
        ("sample_norm", 0.009, False),
        ("acceptance", 0.005, False),
        ("acceptance", 0.0, True),
        ("divergences", 10.0, False),
    ],
)
def test_what_is_named_and_since_when(metric, value, stops):
    rows = [CALM] * 300 + [{**CALM, metric: value}] * 300
    found = findings(rows)
    assert {each.name for each in found} == {metric} and found[-1].stops == stops
    assert found[0].since == 301 and "since update 301" in found[0].words
    assert len(found) <= 2 and not any(each.stops for each in found[:-1])  # each is said once
    assert all(seen.words.startswith("expected ") and "; " in seen.words for seen in found)


@pytest.mark.parametrize(
    "metric, value",
    [
        ("gradient_norm", 390.0),
        ("energy_gap", 140.0),
        ("weight_norm", 1990.0),
        ("sample_norm", 19.9),
        ("sample_norm", 0.011),
        ("acceptance", 0.02),
        ("divergences", 9.0),
    ],
)
def test_what_is_within_bounds_is_left_alone(metric, value):
    assert findings([CALM] * 300 + [{**CALM, metric: value}] * 300) == []


def test_chains_that_never_come_to_the_data_are_named_after_long():
    lagging = {**CALM, "energy_gap": -2.0}
    found = findings([CALM] * 300 + [lagging] * 300)
    assert [(each.name, each.since) for each in found] == [("energy_gap", 301)]
    assert "expected chains that come to where the data are" in found[0].words
    assert findings([lagging] * 240 + [CALM] * 300) == []
    assert findings([{**CALM, "energy_gap": -1.3}] * 600) == []


def test_a_single_bad_update_is_no_finding():
    wild = {**CALM, "gradient_norm": 1e9, "energy_gap": 1e9, "acceptance": 0.0, "sample_norm": 1e9}
    assert findings(([CALM] * 15 + [wild] * 4) * 20) == []


def test_an_energy_that_begins_flat_or_wild_does_not_set_the_measure():
    flat = [{"gradient_norm": 1e-6}] * 100
    assert findings([*flat, *[{"gradient_norm": 10.0}] * 100]) == []
    assert findings([{"gradient_norm": 1e8}] * 100)[0].stops


def test_not_a_number_is_beyond_every_bound():
    assert findings([CALM] * 200 + [{**CALM, "gradient_norm": float("nan")}] * 30)[-1].stops


def test_the_scale_of_points():
    points = {"place": np.array([[3.0, 4.0], [3.0, 4.0]]), "spin": np.ones((2, 3), int)}
    assert measure_scale(points) == Scale(5.0, 5.0, 0.0, 5, 2)
    assert measure_scale(np.ones((4, 3), int)) == Scale(0.0, 0.0, 0.0, 3, 0)
    # data that never vary have no scale to divide by
    assert Doctor(measure_scale(points), steps=10, chains=2, weights=0.0).look(1, CALM) is None
    assert Doctor(measure_scale(np.full((4, 3), 1e-200)), steps=10, chains=2, weights=0.0).look(1, CALM) is None


def train(kernel=None, start=None, rate=5e-3, data=MOONS, steps=400, objective=None, chain_steps=5, **settings):
    kernel, start = kernel or tw.samplers.MALA(0.01), start or tw.samplers.ReplayBuffer(500, 0.05)
    objective = objective or tw.objectives.MaximumLikelihood(kernel, chain_steps, start)
    energy = settings.pop("energy", None) or tw.energies.MLP(2, 32, key=jax.random.key(1))
    settings = {"optimizer": optax.adam(rate), "batch_size": 64, "key": jax.random.key(2), **settings}
    return tw.fit(energy, data, objective, steps=steps, **settings)


LANGEVIN = tw.samplers.Langevin(0.01)
RUNAWAYS = {
    "a learning rate too large": {"kernel": LANGEVIN, "rate": 1.0},
    "a step size too large": {"kernel": tw.samplers.Langevin(1.0)},
    # the same with spectral normalisation is among the healthy ones
    "no normalisation": {"kernel": tw.samplers.Langevin(0.1), "chain_steps": 20},
    "data too large": {"kernel": LANGEVIN, "data": MOONS * 1000},
    "data too small": {"kernel": LANGEVIN, "data": MOONS / 1000},
    "MALA that accepts nothing": {"kernel": tw.samplers.MALA(1e4), "start": tw.samplers.persistent()},
    "a learning rate too large, no chains": {"objective": tw.objectives.DenoisingScoreMatching(0.1), "rate": 10.0},
}


@pytest.mark.parametrize("name", RUNAWAYS)
def test_runaways_are_named(name, capsys):
    try:
        said = [each.words for each in train(**RUNAWAYS[name]).findings]
        assert said and all(words in capsys.readouterr().err for words in said[:1])
    except tw.train.DivergedError as stopped:
        said = [str(stopped)]
        assert len(stopped.history["loss"]) < 400
    assert all("since update" in words for words in said)


GAUSSIAN = tw.energies.Gaussian(jnp.zeros(2), jnp.ones(2))
NORMALISED = tw.energies.MLP(2, 32, spectral_norm=True, key=jax.random.key(1))
HEALTHY = {
    "MALA": {},
    "HMC": {"kernel": tw.samplers.HMC(0.1, steps=3), "start": tw.samplers.persistent()},
    "CD": {"start": tw.samplers.from_data()},
    "short run": {"start": tw.samplers.from_noise(), "kernel": tw.samplers.MALA(0.05)},
    "spectral norm": {"kernel": tw.samplers.Langevin(0.1), "energy": NORMALISED, "rate": 5e-3},
    "AdaNCE": {"objective": tw.objectives.AdaNCE(5, tw.samplers.MALA(0.03), 20)},
    "NCE": {"objective": tw.objectives.NCE()},
    "denoising": {"objective": tw.objectives.DenoisingScoreMatching(0.1)},
    "a Gaussian from afar": {"energy": GAUSSIAN, "data": MOONS + 20.0, "rate": 0.1},
    "sliced score matching": {"objective": tw.objectives.SlicedScoreMatching()},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_trainings_are_left_alone(name, capsys):
    settings = {"kernel": tw.samplers.MALA(0.03), "rate": 1e-3, "chain_steps": 20, **HEALTHY[name]}
    assert train(**settings, steps=1200).findings == () and capsys.readouterr().err == ""


def test_what_is_found_is_kept_in_the_run_folder_and_weights_of_before_remain(tmp_path):
    settings = {**RUNAWAYS["MALA that accepts nothing"], "run_dir": tmp_path, "checkpoint_every": 30}
    with pytest.raises(tw.train.DivergedError, match=r"an acceptance below 0\.001") as caught:
        train(**settings)
    results = json.loads((tmp_path / "results.json").read_text())["findings"]
    assert [each["stops"] for each in results] == [False] * (len(results) - 1) + [True]
    assert results[-1]["words"] in str(caught.value)
    stopped_after = len(caught.value.history["acceptance"])
    assert results[-1]["since"] == stopped_after - 199
    assert all(int(each.name) < results[-1]["since"] for each in (tmp_path / "checkpoints").iterdir())


class Scripted(Objective):
    """An objective whose v is what a script says at each update."""

    script: jax.Array

    def init(self, key, energy, batch):
        return None, jnp.zeros((), int)

    def loss(self, key, energy, params, state, batch):
        return jnp.mean(jax.vmap(energy)(batch)), Step(state + 1, {"gradient_norm": self.script[state]})


class Quadratic(tw.core.Energy):
    centre: jax.Array
    space: tw.core.Space | None = eqx.field(static=True, default=tw.Real(2))

    def __call__(self, x):
        return 0.5 * jnp.sum((x - self.centre) ** 2)


def scripted(values, **settings):
    settings = {"objective": Scripted(jnp.asarray(values)), "energy": Quadratic(jnp.ones(2)), **settings}
    return train(steps=len(values), **settings)


CALM_THEN_WILD = np.where(np.arange(300) < 150, 3.0, 1e6)


def test_no_checkpoint_is_made_of_what_may_be_a_runaway(tmp_path):
    with pytest.raises(tw.train.DivergedError, match=r"at update 165.* since update 151, .*; .*, and resume"):
        scripted(CALM_THEN_WILD, run_dir=tmp_path, checkpoint_every=10)
    assert sorted(int(each.name) for each in (tmp_path / "checkpoints").iterdir()) == [140, 150]
    # the same script cured goes on from there, and the finding is gone
    cured = scripted(np.full(300, 3.0), run_dir=tmp_path, resume=True)
    assert cured.step == 300 and cured.findings == ()
    assert json.loads((tmp_path / "results.json").read_text())["findings"] == []


def test_a_finding_that_does_not_stop_is_told_once_and_lives_through_a_resume(tmp_path, capsys):
    warm = np.where(np.arange(300) < 100, 3.0, 3e3)
    callback = tw.train.every(120, lambda run: {"findings": len(run.findings)})
    run = scripted(warm, run_dir=tmp_path, callbacks=[callback])
    assert [(each.name, each.since, each.stops) for each in run.findings] == [("gradient_norm", 101, False)]
    assert [each["findings"] for each in run.evaluations] == [1, 1, 1]
    assert capsys.readouterr().err.splitlines() == [run.findings[0].words]
    again = scripted(np.concatenate([warm, np.full(20, 3.0)]), run_dir=tmp_path, resume=True)
    assert again.findings == run.findings and again.step == 320


def test_the_doctor_can_be_sent_away():
    assert scripted(CALM_THEN_WILD, doctor=False).findings == ()


def test_every_seed_has_a_doctor(capsys):
    keys = jax.random.split(jax.random.key(0), 2)
    settings = {"keys": keys, "optimizer": optax.sgd(0.0), "steps": 300, "batch_size": 10}
    energy = Quadratic(jnp.ones(2))
    with pytest.raises(tw.train.DivergedError, match="stopped at update 165 of seed 0"):
        tw.train.fit_many(energy, MOONS, Scripted(jnp.asarray(CALM_THEN_WILD)), **settings)
    warm = Scripted(jnp.where(jnp.arange(300) < 100, 3.0, 3e3))
    runs = tw.train.fit_many(energy, MOONS, warm, **settings)
    assert [run.findings[0].since for run in runs] == [101, 101] and "seed 1: expected v" in capsys.readouterr().err
    assert tw.train.fit_many(energy, MOONS, warm, doctor=False, **settings)[0].findings == ()


def test_findings_leave_other_results_alone(tmp_path):
    (tmp_path / "results.json").write_text('{"updates": 3}')
    write_findings(tmp_path, [])
    assert json.loads((tmp_path / "results.json").read_text()) == {"updates": 3}
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(ValueError, match=r"results\.json: expected JSON, got .*; delete it"):
        write_findings(tmp_path, [])
