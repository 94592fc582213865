"""Configurations: complete, replayable, and strict about names and types."""

import inspect
import tomllib

import jax
import jax.numpy as jnp
import pytest
from tests.runs.signatures import settings

from thalweg.cli import configurations
from thalweg.core.assignments import assign
from thalweg.core.toml import write_toml
from thalweg.runs.build import _made, rules
from thalweg.runs.config import complete, takes
from thalweg.runs.energy_table import ENERGIES
from thalweg.runs.objective_table import OBJECTIVES
from thalweg.runs.optimizer_tables import OPTIMIZERS
from thalweg.runs.sampler_tables import KERNELS, STARTS
from thalweg.runs.settings import NUMBERS, Setting, check

TINY = {
    "data": {"name": "two_moons"},
    "energy": {"type": "MLP"},
    "objective": {"type": "MaximumLikelihood"},
    "optimizer": {"type": "adam", "learning_rate": 1e-3},
    "train": {"steps": 10, "batch_size": 10},
}


def changed(*assignments: str) -> dict:
    return complete(assign(TINY, list(assignments), takes))


@pytest.mark.parametrize("name", configurations.presets())
def test_presets_are_complete_once_completed_and_can_be_built(name):
    config = complete(configurations.find(name))
    assert complete(tomllib.loads(write_toml(config))) == config
    assert write_toml(complete(tomllib.loads(write_toml(config)))) == write_toml(config)
    rules(config)
    assert configurations.about(configurations.presets()[name]).endswith(".")


def test_dry_run_prints_a_configuration_that_prints_the_same_when_passed_back(thalweg, tmp_path):
    first = thalweg("train", "two-moons", "--set", "objective.kernel.step_size=0.125", "--dry-run")
    assert first.code == 0 and "step_size = 0.125" in first.out
    (tmp_path / "saved.toml").write_text(first.out)
    assert thalweg("train", "saved.toml", "--dry-run").out == first.out
    assert not (tmp_path / "runs").exists()


def test_defaults_are_those_of_the_constructors():
    config = changed()
    signature = inspect.signature(OBJECTIVES["MaximumLikelihood"].maker).parameters
    assert config["objective"]["steps"] == signature["steps"].default
    # the objective makes its own kernel and start; they are spelt out
    made = OBJECTIVES["MaximumLikelihood"].maker()
    assert config["objective"]["kernel"]["type"] == type(made.kernel).__name__
    assert config["objective"]["kernel"]["step_size"] == 0.1 == pytest.approx(float(made.kernel.step_size))
    assert config["objective"]["start"]["size"] == made.start.size
    assert config["objective"]["start"]["noise"] == "none"


def test_sampling_uses_the_kernel_and_noise_of_training_unless_told_otherwise():
    base = ["objective.start.type=from_noise", "objective.start.noise={low=-2, high=2}", "objective.kernel.type=MALA"]
    config = changed(*base, "objective.kernel.step_size=0.3")
    assert config["sample"]["kernel"] == {"type": "MALA", "step_size": 0.3}
    assert config["sample"]["noise"] == {"low": -2.0, "high": 2.0}
    config = changed(*base, "objective.kernel.step_size=0.3", "sample.kernel.step_size=0.1", "sample.noise=none")
    assert config["sample"]["kernel"] == {"type": "MALA", "step_size": 0.1}
    assert config["sample"]["noise"] == "none"
    config = changed(*base, "objective.kernel.step_size=0.3", "sample.kernel.type=RandomWalk", "sample.kernel.scale=1")
    assert config["sample"]["kernel"] == {"type": "RandomWalk", "scale": 1.0}


@pytest.mark.parametrize(
    ("assignment", "key", "says"),
    [
        ("objective.kernal.step_size=1", "objective.kernal", "did you mean 'kernel'?"),
        ("objective.kernel.type=Langevn", "objective.kernel.type", "did you mean 'Langevin'?"),
        ("objective.start.sise=10", "objective.start.sise", "did you mean 'size'?"),
        ("objective.start.size=10.5", "objective.start.size", "expected a whole number, got 10.5"),
        ("objective.start.noise={low=0, hihg=1}", "objective.start.noise.hihg", "did you mean 'high'?"),
        ("objective.start.noise={low=0}", "objective.start.noise.high", "expected a number, got nothing"),
        ("objective.start.noise=5", "objective.start.noise", "expected a table"),
        ("objective.type=MaximumLikelyhood", "objective.type", "did you mean 'MaximumLikelihood'?"),
        ("optimizer.type=adm", "optimizer.type", "did you mean 'adam'?"),
        ("optimizer.schedule=cosin", "optimizer.schedule", "did you mean 'cosine'?"),
        ("optimizer.learning_rate=fast", "optimizer.learning_rate", 'expected a number, got "fast"'),
        ("optimizer.nesterov=1", "optimizer.nesterov", "expected true or false, got 1"),
        ("train.steps=ten", "train.steps", 'expected a whole number, got "ten"'),
        ("train.steps=true", "train.steps", "expected a whole number, got true"),
        ("train.ema=high", "train.ema", 'expected a number or "none"'),
        ("data.name=two_mons", "data.name", "did you mean 'two_moons'?"),
        ("data.sgma=1", "data.sgma", "did you mean 'sigma'?"),
        ("energy.type=MLPP", "energy.type", "did you mean 'MLP'?"),
        ("energy.type=[1]", "energy.type", "expected one of"),
        ("steps=10", "steps", "did you mean 'train.steps'?"),
        ("trian.steps=10", "trian", "did you mean 'train'?"),
        ("train=10", "train", "expected a table"),
        ("seed=1.5", "seed", "expected a whole number"),
        ("seed=-1", "seed", "expected a whole number from 0"),
        ("sample.chans=10", "sample.chans", "did you mean 'chains'?"),
    ],
)
def test_unknown_names_and_wrong_types_are_refused_by_key_with_the_nearest_name(assignment, key, says):
    with pytest.raises(ValueError) as refusal:
        changed(assignment)
    assert str(refusal.value).startswith(f"{key}: ")
    assert says in str(refusal.value)


@pytest.mark.parametrize("section", ["data", "energy", "objective", "optimizer", "train"])
def test_what_cannot_be_guessed_is_asked_for(section):
    with pytest.raises(ValueError, match=rf"^{section}\.\w+: expected .+, got nothing; add it"):
        complete({name: table for name, table in TINY.items() if name != section})


@pytest.mark.parametrize("assignment", ["objective.kernel.step_size=-1", "optimizer.learning_rate=0"])
def test_values_that_only_constructors_can_refuse_are_refused_with_their_table(assignment):
    with pytest.raises(ValueError, match=rf"^{assignment.rpartition('.')[0]}: expected"):
        rules(changed(assignment))


def test_a_refusal_is_one_sentence_and_exit_code_2(thalweg, tmp_path):
    assert "did you mean 'step_size'?" in thalweg("train", "two-moons", "--set", "objective.kernel.stepsize=1").refusal
    assert "expected key=value" in thalweg("train", "two-moons", "--set", "seed").refusal
    assert "got none; did you mean 'two-moons'?" in thalweg("train", "two_moons").refusal
    assert "nothing there" in thalweg("train", "missing.toml").refusal
    assert "lists the presets" in thalweg("train", "--dry-run").refusal
    (tmp_path / "cut.toml").write_text('[data]\nname = "two_mo')
    assert thalweg("train", "cut.toml").refusal.startswith("cut.toml: expected TOML")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    assert thalweg("train", "binary.toml").refusal.startswith("binary.toml: ")


def test_another_type_starts_its_table_anew():
    given = {
        "kernel": {"type": "Langevin", "noise_scale": 0.1},
        "start": {"type": "from_data"},
        "type": "X",
        "steps": 3,
    }
    assert assign({"o": given}, ["o.kernel.type=MALA"])["o"]["kernel"] == {"type": "MALA"}
    assert assign({"o": given}, ["o.kernel.type=Langevin"])["o"] == given
    kept = assign({"o": given}, ["o.type=Y"])["o"]
    assert kept == {"type": "Y", "kernel": given["kernel"], "start": given["start"]}
    assert given["steps"] == 3  # the original is left alone


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1e-3", 1e-3),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ("{low=1}", {"low": 1}),
        ('"a b"', "a b"),
        ("MLP", "MLP"),
        ("none", "none"),
        ("a=b", "a=b"),
        ("1\nb = 2", "1\nb = 2"),
        ("", ""),
    ],
)
def test_set_reads_values_as_toml_and_else_as_words(text, value):
    assert assign({}, [f"a.b={text}"]) == {"a": {"b": value}}


def test_toml_survives_writing_and_reading():
    config = {
        "seed": 3,
        "data": {"name": 'a "quoted" \\ path\nwith é, 点 and \x7f', "values": [1e-8, -1.5, 1e300], "flag": False},
        "objective": {"type": "X", "nested": [[1, 2], [3, 4]], "start": {"type": "Y", "noise": {"low": -1.0}}},
    }
    assert tomllib.loads(write_toml(config)) == config


@pytest.mark.parametrize("table", [KERNELS, STARTS, OPTIMIZERS, ENERGIES, OBJECTIVES])
def test_every_name_has_keys_whose_defaults_its_own_checks_admit(table):
    for entry in table.values():
        for name, setting in entry.keys.items():
            if not setting.required and isinstance(setting.default, (bool, int, float, str)):
                assert check(name, setting.default, setting) == setting.default


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_can_be_had_by_name(name):
    required = [key for key, setting in KERNELS[name].keys.items() if setting.required]
    given = {key: "[0.5, 0.25]" if key == "sigmas" else "0.25" for key in required}
    config = changed(f"objective.kernel.type={name}", *(f"objective.kernel.{key}={given[key]}" for key in required))
    assert type(rules(config).kernel) is KERNELS[name].maker
    assert config["sample"]["kernel"] == config["objective"]["kernel"]


@pytest.mark.parametrize("name", STARTS)
def test_every_start_can_be_had_by_name(name):
    required = [key for key, setting in STARTS[name].keys.items() if setting.required]
    config = changed(f"objective.start.type={name}", *(f"objective.start.{key}=100" for key in required))
    assert config["objective"]["start"]["type"] == name
    rules(config)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear"])
def test_every_optimiser_takes_a_schedule_and_a_bound(name, schedule):
    sets = [f"optimizer.type={name}", "optimizer.learning_rate=0.5", f"optimizer.schedule={schedule}"]
    optimizer = rules(changed(*sets, "optimizer.clip_gradient=1e-3", "train.steps=4")).optimizer
    state = optimizer.init(jnp.ones(3))
    moves = []
    for _ in range(5):
        move, state = optimizer.update(jnp.full(3, 100.0), state, jnp.ones(3))
        moves.append(float(jnp.max(jnp.abs(jnp.asarray(move)))))
    if name == "sgd":
        assert moves[0] == pytest.approx(0.5e-3 / 3**0.5, rel=1e-5)
    # after the last update a schedule has come down to nothing
    assert moves[-1] > 0 if schedule == "constant" else moves[-1] == 0


def test_types_of_signatures():
    def maker(a: int, b: float | None = None, *, c: tuple[int, ...] = (1,), d: jax.Array, e: list[str] = [], f=None):  # noqa: B006
        """Nothing is made."""

    known = settings(maker)
    assert list(known) == ["a", "b", "c", "d", "e"]
    assert check("c", [1, 2], known["c"]) == [1, 2]
    assert check("b", 1, known["b"]) == 1.0 and isinstance(check("b", 1, known["b"]), float)
    assert check("b", "none", known["b"]) == "none"
    assert check("d", [[1, 2], [3, 4.5]], known["d"]) == [[1.0, 2.0], [3.0, 4.5]]
    for name, bad in [("a", 1.0), ("a", "none"), ("b", True), ("c", [1.5]), ("d", ["x"]), ("e", ["a", 1])]:
        with pytest.raises(ValueError, match=f"^{name}: expected"):
            check(name, bad, known[name])


def test_a_number_where_a_list_may_stand():
    scale = Setting((NUMBERS,))
    assert check("scale", 2, scale) == 2.0
    assert check("scale", [1, 2], scale) == [1.0, 2.0]
    kernel = _made("kernel", {"type": "RandomWalk", "scale": [1.0, 2.0]}, KERNELS)
    assert kernel.scale.shape == (2,)


def test_another_objective_drops_what_it_does_not_take_and_keeps_the_kernel_to_sample_with():
    base = ["objective.kernel.type=MALA", "objective.kernel.step_size=0.3"]
    config = changed(*base, "objective.type=DenoisingScoreMatching", "objective.sigma=0.2")
    assert config["objective"] == {"type": "DenoisingScoreMatching", "sigma": 0.2}
    assert config["sample"]["kernel"] == {"type": "MALA", "step_size": 0.3}
    with pytest.raises(ValueError, match=r"objective\.kernel: expected a key of \[objective\]"):
        changed("objective.type=DenoisingScoreMatching", "objective.kernel.type=MALA")


@pytest.mark.parametrize("name", sorted(set(OBJECTIVES) - {"MaximumLikelihood"}))
def test_every_objective_is_configured_by_its_name(name):
    config = changed("objective.type=" + name, "sample.kernel.type=MALA", "sample.kernel.step_size=0.1")
    made = rules(config).objective
    assert type(made).__name__ == name
