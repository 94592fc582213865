"""The script that asks other libraries for log Z: what it converts, and that it always finishes."""

import itertools
import json
import math
import os
import subprocess
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp

from thalweg.experiments import peers_log_z
from thalweg.experiments.peers_log_z import Effort, Worker, read_models, spins_of_rbm

PEERS_PYTHON = Path(__file__).parents[2] / ".venv-peers" / "bin" / "python"


def states(levels, sites):
    return np.array(list(itertools.product(levels, repeat=sites)))


def ising_log_z(couplings, bias):
    x = states((-1, 1), len(bias))
    return logsumexp(0.5 * np.einsum("si,ij,sj->s", x, couplings, x) + x @ bias)


def small_models():
    """One model of every kind with its exact log Z; no symmetry hides a wrong sign or a transposed matrix."""
    rng = np.random.default_rng(0)
    weights, visible, hidden = rng.normal(size=(6, 4)), rng.normal(size=6), rng.normal(size=4)
    v, h = states((0, 1), 6), states((0, 1), 4)
    rbm = {"kind": "rbm", "weights": weights, "visible": visible, "hidden": hidden}
    rbm_log_z = logsumexp(v @ weights @ h.T + (v @ visible)[:, None] + h @ hidden)
    couplings = np.triu(0.5 * rng.normal(size=(7, 7)), 1)
    couplings += couplings.T
    bias = 0.5 * rng.normal(size=7)
    ising = {"kind": "ising", "couplings": couplings, "bias": bias}
    level_bias = rng.normal(size=(5, 3))
    potts = {"kind": "potts", "couplings": couplings[:5, :5], "levels": 3, "bias": level_bias}
    x = states(range(3), 5)
    same = x[:, :, None] == x[:, None, :]
    potts_log_z = logsumexp(np.sum(np.triu(couplings[:5, :5], 1) * same, (1, 2)) + level_bias[range(5), x].sum(1))
    roots = np.array([[[1.0, 0.0], [0.5, 0.7]], [[0.6, 0.0], [-0.3, 0.9]]])
    means = np.array([[-1.0, 0.5], [1.5, 0.0]])
    covariances = roots @ roots.transpose(0, 2, 1)
    mixture = {"kind": "mixture", "weights": np.array([0.3, 0.7]), "means": means, "covariances": covariances}
    funnel = {"kind": "funnel", "dim": 2, "scale": 1.5}
    models = [
        {field: np.asarray(value) for field, value in model.items()} for model in (rbm, ising, potts, mixture, funnel)
    ]
    truths = (rbm_log_z, ising_log_z(couplings, bias), potts_log_z, 0.0, math.log(2 * math.pi) + math.log(1.5))
    return models, truths


def write_models(path, models):
    np.savez(
        path, **{f"{number}/{field}": value for number, model in enumerate(models) for field, value in model.items()}
    )
    return path


def test_spins_of_rbm_have_its_log_z():
    (rbm, *_), (truth, *_) = small_models()
    couplings, bias, constant = spins_of_rbm(rbm)
    assert ising_log_z(couplings, bias) + constant == pytest.approx(truth, abs=1e-10)


def test_models_are_read_by_number(tmp_path):
    models, _ = small_models()
    found = read_models(write_models(tmp_path / "models.npz", models))
    assert list(found) == ["0", "1", "2", "3", "4"]
    assert [str(model["kind"]) for model in found.values()] == [str(model["kind"]) for model in models]
    np.testing.assert_array_equal(found["0"]["weights"], models[0]["weights"])


def test_a_library_that_is_not_installed_is_an_error_of_every_model(tmp_path, monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(peers_log_z, "version", missing)
    path = write_models(tmp_path / "models.npz", small_models()[0])
    peers_log_z.main([str(path), str(tmp_path / "answers.json")])
    answers = json.loads((tmp_path / "answers.json").read_text())
    assert answers["versions"] == {}
    assert answers["ferrotherm"] == {str(number): {"error": "ferrotherm is not installed"} for number in range(5)}


class Fatal(np.ndarray):
    """Ends the process that reads it."""

    def __reduce__(self):
        return os._exit, (3,)


def test_a_process_that_hangs_or_ends_is_an_error_of_its_model():
    worker, effort = Worker("ferrotherm"), Effort(chains=10, temperatures=4, seconds=120.0)
    potts = {"kind": np.array("potts")}
    try:
        assert worker.solve(potts, 0, effort) == {"error": "ferrotherm has spins only, not the model 'potts'"}
        late = worker.solve({"kind": np.array("potts"), "fill": np.zeros(10**6)}, 0, effort._replace(seconds=0.0))
        assert late == {"error": "ferrotherm had not finished after 0 seconds"}
        assert worker.solve({"kind": np.zeros(1).view(Fatal)}, 0, effort) == {
            "error": "the process of ferrotherm ended with code 3"
        }
        assert "spins only" in worker.solve(potts, 0, effort)["error"]  # a new process answers the next model
    finally:
        worker.end()


@pytest.mark.slow
@pytest.mark.skipif(not PEERS_PYTHON.exists(), reason="needs the other libraries: make peers")
def test_both_libraries_find_known_values(tmp_path):
    models, truths = small_models()
    path, found = write_models(tmp_path / "models.npz", models), tmp_path / "answers.json"
    command = [
        PEERS_PYTHON,
        peers_log_z.__file__,
        path,
        found,
        "--chains",
        "512",
        "--temperatures",
        "200",
        "--jobs",
        "2",
    ]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    answers = json.loads(found.read_text())
    assert set(answers["versions"]) == {"ebmkit", "ferrotherm"}
    for peer, solved in (("ebmkit", range(5)), ("ferrotherm", range(2))):
        for number in solved:
            answer = answers[peer][str(number)]
            error = (answer["high"] - answer["low"]) / (2 * peers_log_z.REACH)
            assert 0 < error < 0.1
            # three standard errors of Gaussian tails would fail 2 % of runs over seven models, and seeds are fixed
            assert abs(answer["value"] - truths[number]) < 5 * error, (peer, number)
    assert all("spins only" in answers["ferrotherm"][str(number)]["error"] for number in (2, 3, 4))
