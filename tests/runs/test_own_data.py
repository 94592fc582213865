"""One's own table or pictures: what is found, what is chosen, and what samples come back as."""

import csv
import json

import jax
import numpy as np
import pytest
from PIL import Image

from thalweg.cli.main import run as command
from thalweg.data import Columns
from thalweg.energies import ConvNet
from thalweg.runs.build import rules
from thalweg.runs.configuration import parse_configuration
from thalweg.runs.own_data import choose_layers, choose_settings, describe_settings


def table(path, rows=60, seed=0):
    random = np.random.default_rng(seed)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["name", "age", "price", "city", "country"])
        for i in range(rows):
            age = "" if i == 7 else random.integers(18, 80)
            city = random.choice(["Oslo", "Rome", "Bern"])
            writer.writerow([f"person {i}", age, f"{random.lognormal():.2f}", city, "EU"])
    return path


def pictures(folder, count=12, size=(9, 6), mode="RGB", seed=0):
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(seed)
    for i in range(count):
        shape = (size[1], size[0], 3) if mode == "RGB" else size[::-1]
        Image.fromarray(random.integers(0, 256, shape, np.uint8)).save(folder / f"{i:03d}.png")
    return folder


def run(*arguments):
    with pytest.raises(SystemExit) as caught:
        command([str(each) for each in arguments])
    return caught.value.code


def test_a_table_is_described_and_can_be_completed(tmp_path):
    path = table(tmp_path / "t.csv")
    with pytest.raises(ValueError, match=r"t.csv: expected .* in column 'name'.*--set data.drop='\[\"name\"\]'"):
        choose_settings(path)
    changes = ['data.drop=["name"]', "train.steps=7"]
    choice = choose_settings(path, changes)
    assert choice.sentences[0] == "t.csv: 60 rows, 4 columns as 5 coordinates of mean 0 and spread 1"
    assert choice.sentences[1].startswith("  age: whole numbers from ") and "1 missing" in choice.sentences[1]
    settings = parse_configuration(choice.config, "t.csv", changes)
    rules(settings.start)
    assert "7 updates of 60" in describe_settings(settings.start)
    with pytest.raises(ValueError, match=r"small.csv: expected at least 10 rows to train on, got 5"):
        choose_settings(table(tmp_path / "small.csv", rows=5), changes)


def test_pictures_are_described_and_can_be_completed(tmp_path):
    choice = choose_settings(pictures(tmp_path / "colour"))
    assert choice.sentences == ["colour: 12 pictures of 9 × 6 pixels, in colour", "  pixels scaled to -1 … 1"]
    rules(parse_configuration(choice.config, "colour").start)
    grey = choose_settings(pictures(tmp_path / "grey", mode="L"))
    assert grey.config["data"]["grey"] is True and "grey" in grey.sentences[0]
    large = choose_settings(pictures(tmp_path / "large", count=2, size=(200, 100)))
    assert large.config["data"]["size"] == [64, 128]
    assert large.sentences[1].startswith("  resized to 128 × 64, as larger ones train slowly; data.size")
    sized = choose_settings(tmp_path / "large", ["data.size=16"])
    assert sized.config["data"]["size"] == 16 and sized.sentences[1] == "  resized to 16 × 16 (data.size)"


def test_pictures_of_different_sizes_or_kinds_are_refused_by_file(tmp_path):
    folder = pictures(tmp_path / "mixed", count=2)
    Image.new("RGB", (5, 5)).save(folder / "z.png")
    with pytest.raises(ValueError, match=r"z.png: expected 9 × 6 pixels like 000.png, got 5 × 5; .*data.size=64"):
        choose_settings(folder)
    choose_settings(folder, ["data.size=8"])
    Image.new("L", (9, 6)).save(folder / "z.png")
    with pytest.raises(ValueError, match=r"z.png: expected colour like 000.png, got grey; .*data.grey=true"):
        choose_settings(folder)
    assert choose_settings(folder, ["data.grey=false"]).config["data"]["grey"] is False


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (8, 8), (17, 16), (28, 28), (32, 32), (41, 60), (64, 85)])
def test_layers_fit_pictures_of_every_size(shape):
    energy = ConvNet(shape=(*shape, 1), layers=choose_layers(*shape), dense=(4,), width=0.1, key=jax.random.key(0))
    assert jax.eval_shape(energy, jax.ShapeDtypeStruct((*shape, 1), np.float32)).shape == ()


def test_what_cannot_be_read_is_refused_with_what_can(tmp_path, capsys):
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    (tmp_path / "empty").mkdir()
    np.save(tmp_path / "x.npy", np.zeros((20, 3)))
    for name, said in {
        "t.parquet": "expected .npy, .npz, .csv, .tsv",
        "empty": "expected a folder with images",
        "x.npy": "expected a table (.csv, .tsv) or pictures, got rows of shape (3,)",
    }.items():
        assert run("train", tmp_path / name) == 2
        error = capsys.readouterr().err
        assert said in error and len(error.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_table_trains_and_comes_back(tmp_path, capsys):
    path, folder = table(tmp_path / "people.csv"), tmp_path / "run"
    changes = ["--set", 'data.drop=["name"]', "--set", "train.steps=3", "--set", "sample.steps=5"]
    assert run("train", path, "--run-dir", folder, "--set", "sample.chains=20", *changes) == 0
    said = capsys.readouterr().err
    assert "people.csv: 60 rows" in said and "3 updates of 60" in said
    with (folder / "samples" / "samples.csv").open() as stream:
        rows = list(csv.reader(stream))
    assert rows[0] == ["age", "price", "city", "country"] and len(rows) == 21
    assert all(18 <= int(row[0]) < 80 and row[2] in ("Oslo", "Rome", "Bern") and row[3] == "EU" for row in rows[1:])
    assert (folder / "samples" / "samples.png").read_bytes()[1:4] == b"PNG"
    columns = Columns.from_json(json.loads((folder / "columns.json").read_text()))
    assert columns.names == ("age", "price", "city", "country")
    (folder / "samples" / "samples.csv").unlink()
    assert run("sample", folder, "--seed", 5, "--chains", 7) == 0
    with (folder / "samples" / "samples.csv").open() as stream:
        assert len(list(csv.reader(stream))) == 8


@pytest.mark.slow
def test_pictures_train_and_come_back(tmp_path):
    folder = tmp_path / "run"
    few = ["--set", "train.steps=2", "--set", "sample.chains=4", "--set", "objective.steps=2"]
    assert run("train", pictures(tmp_path / "p", mode="L"), "--run-dir", folder, *few) == 0
    assert (folder / "samples" / "samples.png").read_bytes()[1:4] == b"PNG"
    with np.load(folder / "samples" / "samples.npz") as samples:
        assert samples["x"].shape == (4, 6, 9, 1)
