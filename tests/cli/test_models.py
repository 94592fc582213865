"""Models of every kind from the command line: each trains two updates and is sampled, twice the same."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.runs import sampling

BASE = """
[data]
name = "{data}"
{options}

[energy]
{energy}

[objective]
{objective}

[optimizer]
type = "adam"
learning_rate = 1e-3

[train]
steps = 2
batch_size = 8

[sample]
chains = 6
{sample}
"""

TOY = ("two_moons", "n = 40\nn_test = 10")
LADDER = "sigmas = [2.0, 1.0, 0.5]"
ANNEALED = f'steps = 6\nkernel = {{ type = "AnnealedLangevin", {LADDER}, steps = 2 }}'
CASES = {
    "ising, pseudo-likelihood": ("spins.npy", 'type = "Ising"', 'type = "PseudoLikelihood"', "steps = 3"),
    "ising, ratio matching": ("bits.npy", 'type = "Ising"\nvalues = "binary"', 'type = "RatioMatching"', "steps = 3"),
    "ising on a lattice, likelihood by Gibbs": (
        "spins.npy",
        'type = "Ising"\ngrid = [3, 3]',
        'type = "MaximumLikelihood"\nsteps = 2\nkernel = { type = "Gibbs" }\nstart = { type = "from_noise" }',
        "steps = 3",
    ),
    "ising, Gibbs with gradients": (
        "spins.npy",
        'type = "Ising"',
        'type = "MaximumLikelihood"\nsteps = 2\nkernel = { type = "GibbsWithGradients" }',
        "steps = 3",
    ),
    "potts, pseudo-likelihood": ("labels.npy", 'type = "Potts"\nlabels = 3', 'type = "PseudoLikelihood"', "steps = 3"),
    "potts, ratio matching, a kernel said": (
        "labels.npy",
        'type = "Potts"\nlabels = 3\ngrid = [3, 3]\nperiodic = false',
        'type = "RatioMatching"',
        'steps = 3\nkernel = { type = "Gibbs", scan = "random" }',
    ),
    "labels": (
        "labelled.npz",
        'type = "LabelledMLP"\nclasses = 3\nwidth = 8',
        'type = "MaximumLikelihood"\nsteps = 2',
        "steps = 3",
    ),
    "noise-conditional energy": (
        *TOY,
        'type = "NoiseConditionalMLP"\nwidth = 8',
        f'type = "NoiseConditionalScoreMatching"\n{LADDER}',
        ANNEALED,
    ),
    "noise-conditional energy, all by default": (
        *TOY,
        'type = "NoiseConditionalMLP"\nwidth = 8',
        'type = "NoiseConditionalScoreMatching"',
        "steps = 4",
    ),
    "noise-conditional score": (
        *TOY,
        'type = "NoiseConditionalScoreMLP"\nwidth = 8',
        f'type = "NoiseConditionalScoreMatching"\n{LADDER}',
        ANNEALED,
    ),
    "noise-conditional images": (
        "images.npy",
        'type = "NoiseConditionalUNet"\nchannels = [4]',
        f'type = "NoiseConditionalScoreMatching"\n{LADDER}',
        ANNEALED,
    ),
    "noise-conditional score of images": (
        "images.npy",
        'type = "NoiseConditionalScoreUNet"\nchannels = [4]',
        f'type = "NoiseConditionalScoreMatching"\n{LADDER}',
        ANNEALED,
    ),
    "score matching, a kernel by default": (
        *TOY,
        'type = "MLP"\nwidth = 8',
        'type = "DenoisingScoreMatching"',
        "steps = 3",
    ),
}


@pytest.fixture(autouse=True)
def no_report(monkeypatch):
    """Drawing a page takes longer than all else here."""
    monkeypatch.setattr(sampling, "write_report", lambda folder: folder / "report.html")


@pytest.fixture
def rows(tmp_path):
    random = np.random.default_rng(0)
    np.save(tmp_path / "spins.npy", random.choice([-1, 1], (20, 9)))
    np.save(tmp_path / "bits.npy", random.choice([0, 1], (20, 9)))
    np.save(tmp_path / "labels.npy", random.choice(3, (20, 9)))
    np.save(tmp_path / "images.npy", random.normal(size=(20, 4, 4, 1)).astype(np.float32))
    x, y = random.normal(size=(45, 2)).astype(np.float32), np.arange(45) % 3
    np.savez(tmp_path / "labelled.npz", x=x + 3 * y[:, None], y=y)


@pytest.mark.parametrize("case", CASES)
def test_two_updates_and_samples(thalweg, tmp_path, rows, case):
    data, *rest = CASES[case]
    options = rest.pop(0) if data == "two_moons" else ""
    energy, objective, sample = rest
    text = BASE.format(data=data, options=options, energy=energy, objective=objective, sample=sample)
    (tmp_path / "case.toml").write_text(text)
    outcome = thalweg("train", "case.toml", "--run-dir", "run")
    assert outcome.code == 0, outcome
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["updates"] == 2 and results["chains"] == 6
    with np.load(tmp_path / "run" / "samples" / "samples.npz") as samples:
        first = {name: samples[name] for name in samples.files}
    assert first["x"].shape[0] == 6 and np.isfinite(first["x"]).all()
    score = "Score" in energy
    assert ("energy_data" in results) != score and ("energy_samples" in first) != score
    if case == "labels":
        assert first["conditions"].tolist() == [0, 1, 2, 0, 1, 2] and "classes" in results
    assert thalweg("sample", "run").code == 0
    with np.load(tmp_path / "run" / "samples" / "samples.npz") as samples:
        assert all(np.array_equal(samples[name], first[name]) for name in first)
    run = tw.load_run(tmp_path / "run")
    space = tw.space_of(run.energy)
    assert space is not None and all(bool(space.contains(jnp.asarray(x))) for x in first["x"])
    assert thalweg("train", "--resume", "run", "--set", "train.steps=3").code == 0


@pytest.mark.parametrize(
    ("data", "energy", "says"),
    [
        ("spins.npy", 'type = "Ising"\ngrid = [2, 3]', "expected at least 3 sites round a torus"),
        ("spins.npy", 'type = "Ising"\ngrid = [4, 4]', "expected a grid of 9 sites"),
        ("spins.npy", 'type = "Ising"\nvalues = "bits"', 'expected "spin" or "binary"'),
        ("spins.npy", 'type = "Potts"', "energy.labels: expected a whole number, got nothing"),
        ("spins.npy", 'type = "Ising"\nvalues = "binary"', "expected"),
        ("images.npy", 'type = "Ising"', "expected points that are vectors of sites"),
        ("two_moons", 'type = "LabelledMLP"\nclasses = 3', "expected labels for LabelledMLP"),
    ],
)
def test_what_does_not_go_together_is_refused(thalweg, tmp_path, rows, data, energy, says):
    text = BASE.format(data=data, options="", energy=energy, objective='type = "MaximumLikelihood"', sample="")
    (tmp_path / "case.toml").write_text(text)
    assert says in thalweg("train", "case.toml", "--run-dir", "run").refusal
    assert not (tmp_path / "run").exists()
