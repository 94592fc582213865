"""Other data for a run: by name, path or as an array, encoded and resized as the run's own."""

from pathlib import Path

import jax
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg.data import Dataset
from thalweg.runs.configuration import read_config
from thalweg.runs.other_data import load_rows
from thalweg.runs.own_data import choose_settings


@pytest.fixture(scope="module")
def images():
    """A run on images of 8×8 pixels."""
    energy = tw.energies.ConvNet("digits", 0.05, key=jax.random.key(0))
    data = Dataset(tw.data.digits().x_train[:20])
    objective = tw.objectives.MaximumLikelihood(steps=1)
    return tw.fit(energy, data, objective, optimizer=optax.sgd(0.1), steps=1, batch_size=5, key=jax.random.key(1))


def test_images_are_resized_and_called_so(images, tmp_path):
    large = np.zeros((6, 16, 24, 1), np.float32)
    large[:, :8] = 1.0  # the upper half is white
    np.save(tmp_path / "large.npy", large)
    rows = load_rows(tmp_path / "large.npy", images, tmp_path, {})
    assert rows.x.shape == (6, 8, 8, 1) and rows.words == "6 rows of large.npy, resized from 16×24"
    assert rows.x[:, :3] == pytest.approx(1.0, abs=1e-6) and rows.x[:, 5:] == pytest.approx(0.0, abs=1e-6)
    np.save(tmp_path / "colour.npy", np.zeros((6, 16, 16, 3), np.float32))
    with pytest.raises(ValueError, match=r"colour\.npy: expected points of shape \(8, 8, 1\)"):
        load_rows(tmp_path / "colour.npy", images, tmp_path, {})


def test_a_folder_of_pictures_is_read_in_the_size_and_kind_of_the_run(images, tmp_path):
    from PIL import Image

    for number in range(3):
        Image.fromarray(np.full((20, 20, 3), 40 * number, np.uint8)).save(tmp_path / f"{number}.png")
    rows = load_rows(tmp_path, images, tmp_path, {})
    assert rows.x.shape == (3, 8, 8, 1) and rows.name == tmp_path.name


def test_names_and_their_beginnings(images):
    rows = load_rows("digits", images, Path(), {})
    assert rows.words == "297 test rows of digits" and rows.y is not None
    assert load_rows("digi", images, Path(), {}).name == "digits"
    with pytest.raises(ValueError, match="got neither"):
        load_rows("c", images, Path(), {})  # checkerboard, cifar10 and celeba


def test_a_table_is_encoded_by_the_columns_of_the_run(tmp_path):
    random = np.random.default_rng(0)
    lines = [f"{a:.2f},{b},{['red', 'blue'][b % 2]}" for a, b in zip(random.normal(size=40), range(40), strict=True)]
    mine, other = tmp_path / "mine.csv", tmp_path / "other.csv"
    mine.write_text("size,count,kind\n" + "\n".join(lines[::-1] + lines[:3]))
    reordered = [",".join(line.split(",")[::-1]) for line in lines[:5]]
    other.write_text("kind,count,size\n" + "\n".join(reordered))
    changes = ["train.steps=2", "train.batch_size=5", "sample.chains=5", "sample.steps=2", "energy.width=4"]
    configuration = tw.runs.parse_configuration(choose_settings(mine, changes).config, "mine", changes)
    folder = tw.runs.train(configuration, "mine", tmp_path / "run")
    run = tw.load_run(folder)
    rows = load_rows(other, run, folder, read_config(folder))
    assert rows.x.shape == (5, run.energy.space.shape[0]) and rows.words == "5 rows of other.csv"
    own = run.source.dataset(run.energy).x_train
    # the last three rows of the run's table are the first three of the other; categories are spread at random
    columns = read_columns(folder)
    decoded = [[str(cell) for cell in row] for row in columns.decode(rows.x[:3])]
    assert decoded == [[str(cell) for cell in row] for row in columns.decode(own[-3:])]
    other.write_text("kind,count\nred,3\n")
    with pytest.raises(ValueError, match="expected a column 'size', as in the run's table, got none; add it"):
        load_rows(other, run, folder, read_config(folder))
    # the run has no test rows
    found = tw.runs.evaluate(folder, ["energy_gap", "overfitting"])
    assert "43 training rows" in found["energy_gap"].method and not found["overfitting"].computed


def read_columns(folder):
    import json

    return tw.data.Columns.from_json(json.loads((folder / "columns.json").read_text()))
