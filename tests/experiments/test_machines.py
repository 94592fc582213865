"""The experiments of the Boltzmann machines: numbers that are exact, and figures that are drawn."""

import json
import os
from pathlib import Path

import jax
import numpy as np
import pytest

from thalweg.data import Dataset, binarized_mnist
from thalweg.experiments.bars_and_stripes import _learn, bars_and_stripes, bound, patterns
from thalweg.experiments.rbm_mnist_small import rbm_mnist_small
from thalweg.objectives import Centred, MaximumLikelihood
from thalweg.report.figures import png
from thalweg.samplers import Gibbs, ParallelTempering, from_data, persistent


def test_bars_and_stripes_are_thirty_patterns_of_which_two_occur_twice():
    rows = patterns()
    unique, counts = np.unique(rows, axis=0, return_counts=True)
    assert rows.shape == (32, 16) and len(unique) == 30 and sorted(counts)[-2:] == [2, 2]
    assert bound(rows) == pytest.approx(-(28 * np.log(32) + 4 * np.log(16)) / 32)
    for row in rows.reshape(-1, 4, 4):
        assert np.all(row == row[:1]) or np.all(row == row[:, :1])


@pytest.mark.slow
def test_tempered_chains_come_near_the_bound_and_contrastive_divergence_does_not():
    tempering = ParallelTempering(Gibbs(), [1.0, 1.5, 2.2, 3.3, 5.0, 8.0])
    best, rows = bound(patterns()), patterns()
    gaps = []
    for kernel, start in ((tempering, persistent()), (Gibbs(), from_data())):
        objective = Centred(MaximumLikelihood(kernel, 1, start))
        gaps.append(best - _learn(jax.random.key(0), rows, objective, 4000, 0.2, False)[0][-1][1])
    assert 0 < gaps[0] < 0.2 < 0.4 < gaps[1]  # no model is better than the bound


def test_the_figure_of_bars_and_stripes_is_drawn():
    figure, numbers = bars_and_stripes(jax.random.key(0), updates=10)
    assert all(method["gap"] > 0 for method in numbers["methods"].values())
    assert len(figure.axes) == 3 and png(figure)[1:4] == b"PNG"
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers


@pytest.mark.slow
def test_a_small_machine_learns_binary_mnist(monkeypatch):
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("THALWEG_TEST_DATA", beside))
    if not (folder / "binarized_mnist.npz").is_file():
        pytest.skip("binarized_mnist.npz is not here; THALWEG_TEST_DATA names the folder it is in")
    data = binarized_mnist(folder)
    assert data.x_train.shape == (50_000, 784) and data.x_test.shape == (10_000, 784)
    # fewer rows, of all classes, and fewer hidden units, over which log Z is quick to sum
    few = Dataset(data.x_train[::5], None, data.x_test[::10])
    monkeypatch.setattr("thalweg.experiments.rbm_mnist_small._HIDDEN", 6)
    figure, numbers = rbm_mnist_small(jax.random.key(0), epochs=10, data=few)
    # independent pixels have -206 nats
    assert -175 < numbers["methods"]["centred"]["test"] < -150
    assert numbers["methods"]["plain"]["test"] < numbers["methods"]["centred"]["test"]
    assert len(figure.axes) == 4 and png(figure)[1:4] == b"PNG"
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers


def test_binary_mnist_is_read_or_drawn(tmp_path):
    bits = np.random.default_rng(0).integers(0, 2, (5, 784)).astype(np.uint8)
    np.savez(tmp_path / "binarized_mnist.npz", x_train=bits, x_test=bits[:2])
    data = binarized_mnist(tmp_path)
    np.testing.assert_array_equal(data.x_train, bits)
    np.savez(tmp_path / "binarized_mnist.npz", x_train=bits + 1, x_test=bits[:2])
    with pytest.raises(ValueError, match="expected rows of 784 zeros and ones"):
        binarized_mnist(tmp_path)
    np.savez(tmp_path / "binarized_mnist.npz", x_train=bits)
    with pytest.raises(ValueError, match="expected the arrays x_train and x_test, got no x_test"):
        binarized_mnist(tmp_path)
