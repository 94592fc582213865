import gzip
import os
import pickle
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image

from thalweg.data import CATALOGUE, TOYS, digits, load, two_moons


@pytest.mark.parametrize("name", TOYS)
def test_toys_by_name(name):
    data = load(name, n=20, n_test=5)
    assert data.x_train.shape == (20, 2) and data.x_train.dtype == np.float32 and data.y_train is None
    assert data.x_test is not None and data.x_test.shape == (5, 2)
    assert not np.isin(data.x_test[:, 0], data.x_train[:, 0]).any(), "test rows are other draws"
    np.testing.assert_array_equal(load(name, n=20, n_test=5).x_train, data.x_train)
    assert not np.array_equal(load(name, n=20, n_test=5, key=jax.random.key(1)).x_train, data.x_train)


def test_a_toys_own_options():
    train, _ = jax.random.split(jax.random.key(0))
    np.testing.assert_array_equal(load("two_moons", n=5, sigma=0.0).x_train, two_moons(train, 5, sigma=0.0))
    with pytest.raises(ValueError, match=r"two_moons: expected options among n, n_test, key, sigma, got 'noise'"):
        load("two_moons", noise=0.1)


def test_every_name_of_the_catalogue_has_a_loader(tmp_path, monkeypatch):
    monkeypatch.setenv("THALWEG_DATA", str(tmp_path))
    for name, entry in CATALOGUE.items():
        if entry.files:
            with pytest.raises(ValueError, match=f"{name}: expected .*run `thalweg data get {name}`"):
                load(name)
    assert {name for name, entry in CATALOGUE.items() if not entry.files} == {*TOYS, "digits"}
    np.testing.assert_array_equal(load("digits").x_train, digits().x_train)
    assert load("digits", raw=True).x_train.dtype == np.uint8


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mnits", "mnits: expected a data set's name or a path, got neither; did you mean 'mnist'?"),
        ("fashion-mnist", "did you mean 'fashion_mnist'?"),
        ("zzz", "choose one of two_moons, rings"),
        ("no/such.npz", "no/such.npz: expected a file or folder, got nothing there; check the path"),
        ("absent.csv", "absent.csv: expected a file or folder, got nothing there"),
    ],
)
def test_unknown_names(name, message):
    with pytest.raises(ValueError) as caught:
        load(name)
    assert message in str(caught.value)


def test_npz_with_parts(tmp_path):
    rng = np.random.default_rng(0)
    parts = {
        "x_train": rng.integers(0, 256, (6, 4, 5), np.uint8),
        "y_train": np.arange(6, dtype=np.uint8),
        "x_test": rng.integers(0, 2, (2, 4, 5), np.uint8),
        "y_test": np.arange(2),
        "x_val": np.zeros((1, 4, 5)),
    }
    np.savez(tmp_path / "d.npz", **parts)
    data = load(tmp_path / "d.npz")
    assert data.x_train.shape == (6, 4, 5, 1) and data.x_train.dtype == np.float32
    np.testing.assert_allclose(data.x_train[..., 0], 2 * (parts["x_train"] + 0.5) / 256 - 1, rtol=1e-6, atol=1e-7)
    # test rows that happen to be dark are scaled as the training rows are
    np.testing.assert_allclose(data.x_test[..., 0], 2 * (parts["x_test"] + 0.5) / 256 - 1, rtol=1e-6)
    np.testing.assert_array_equal(data.y_train, parts["y_train"])
    np.testing.assert_array_equal(data.y_test, parts["y_test"])
    for name, array in load(tmp_path / "d.npz", raw=True)._asdict().items():
        np.testing.assert_array_equal(array, parts[name])
    with pytest.raises(
        ValueError, match=r"test_fraction: expected 0 where the source has its own 2 test rows, got 0.5"
    ):
        load(tmp_path / "d.npz", test_fraction=0.5)
    chosen = load(tmp_path / "d.npz", x="x_test", y="y_test")
    assert chosen.x_train.shape == (2, 4, 5, 1) and chosen.x_test is None
    np.testing.assert_array_equal(chosen.y_train, parts["y_test"])
    assert load(tmp_path / "d.npz", x="x_test").y_train is None


@pytest.mark.parametrize(("x_name", "y_name"), [("X", "y"), ("x", "labels"), ("data", "target"), ("arr_0", None)])
def test_npz_with_one_part(x_name, y_name, tmp_path):
    x = np.arange(20.0).reshape(10, 2)
    arrays = {x_name: x} | ({y_name: np.arange(10)} if y_name else {})
    np.savez(tmp_path / "d.npz", other=np.zeros(3), **arrays)
    data = load(tmp_path / "d.npz")
    np.testing.assert_array_equal(data.x_train, x)
    assert (data.y_train is None) == (y_name is None) and data.x_test is None
    split = load(tmp_path / "d.npz", test_fraction=0.3)
    assert split.x_train.shape == (7, 2) and split.x_test is not None and split.x_test.shape == (3, 2)
    np.testing.assert_array_equal(np.sort(np.concatenate([split.x_train, split.x_test])[:, 0]), x[:, 0])
    if y_name:
        np.testing.assert_array_equal(split.x_test[:, 0], 2 * split.y_test)


def test_values_that_are_not_images_keep_their_values(tmp_path):
    for stored in (
        np.array([[[0, 1], [1, 1]]], np.uint8),  # a binary image
        np.array([[0, 255]], np.uint8),  # a table of bytes
        np.array([[3, -4]], np.int64),
        np.array([[True, False]]),
        np.array([[0.5, 2.0]]),
    ):
        np.save(tmp_path / "x.npy", stored)
        got = load(tmp_path / "x.npy").x_train
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got.reshape(stored.shape), stored)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((0, 2))}, "d.npz, x_train: expected at least one row, got an empty array"),
        ({"x": np.array([[1.0, np.nan]])}, r"x_train: expected finite numbers, got nan at index \(0, 1\)"),
        ({"x": np.array([["a"]])}, "x_train: expected real numbers, got <U1"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(2)}, "y_train: expected one label per row, that is 3"),
        ({"x_train": np.zeros((3, 2)), "x_test": np.zeros((3, 4))}, r"x_test: expected rows of shape \(2,\)"),
        ({"x_train": np.zeros((3, 2)), "y_test": np.zeros(3)}, "y_test: expected one label per row, that is 0"),
        ({"x_test": np.zeros((3, 2))}, "expected an array x_train or x, X, .*, got x_test; say which to take with x="),
        ({}, "got no arrays"),
    ],
)
def test_bad_arrays(arrays, message, tmp_path):
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "d.npz")


def test_misspelt_options_are_refused(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"expected options among x, y, raw, test_fraction, key, got 'lable'"):
        load(tmp_path / "d.npz", lable="y")
    with pytest.raises(ValueError, match=r"expected an array 'z', got x; choose one of these"):
        load(tmp_path / "d.npz", x="z")
    with pytest.raises(ValueError, match=r"digits: expected options among raw, got 'size'"):
        load("digits", size=4)


def test_csv_and_other_files(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,kind\n1,2,x\n3,4,y\n5,6,x\n7,8,x\n")
    data = load(str(tmp_path / "t.csv"), label="kind", test_fraction=0.25)
    assert data.x_train.shape == (3, 2) and data.x_test is not None and data.x_test.shape == (1, 2)
    (tmp_path / "t.tsv").write_text("1\t2\n3\t4\n")
    np.testing.assert_array_equal(load(tmp_path / "t.tsv").x_train, [[1, 2], [3, 4]])
    (tmp_path / "t.doc").write_text("words")
    with pytest.raises(ValueError, match=r"t.doc: expected .npy, .npz, .csv, .* got another kind of file"):
        load(tmp_path / "t.doc")


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + b"".join(s.to_bytes(4, "big") for s in array.shape) + array.tobytes()


def test_idx_file_and_folder(tmp_path):
    pixels = np.arange(2 * 4 * 4, dtype=np.uint8).reshape(2, 4, 4)
    for part in ("train", "t10k"):
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(pixels)))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.array([3, 1], np.uint8)))
    data = load(tmp_path)
    assert data.x_train.shape == (2, 4, 4, 1)
    np.testing.assert_array_equal(data.y_test, [3, 1])
    single = load(tmp_path / "train-images-idx3-ubyte.gz")
    np.testing.assert_array_equal(single.x_train, data.x_train)
    np.testing.assert_array_equal(load(tmp_path / "train-labels-idx1-ubyte", raw=True).x_train, [3, 1])


def test_cifar_folder(tmp_path):
    for name in [f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]:
        batch = {"data": np.full((2, 3072), 255, np.uint8), "labels": [0, 1]}
        (tmp_path / name).write_bytes(pickle.dumps(batch))
    data = load(tmp_path)
    assert data.x_train.shape == (10, 32, 32, 3)
    np.testing.assert_allclose(data.x_train, 2 * 255.5 / 256 - 1, rtol=1e-6)


def test_image_folder(tmp_path):
    for i in range(5):
        Image.fromarray(np.full((6, 8), 50 * i, np.uint8)).save(tmp_path / f"{i}.png")
    data = load(tmp_path, size=4, crop="square", grey=True, test_fraction=0.4)
    assert data.x_train.shape == (3, 4, 4, 1) and data.x_test is not None and data.x_test.shape == (2, 4, 4, 1)
    values = np.sort(np.concatenate([data.x_train, data.x_test])[:, 0, 0, 0])
    np.testing.assert_allclose(values, 2 * (50 * np.arange(5) + 0.5) / 256 - 1, rtol=1e-5)
    assert load(tmp_path, raw=True).x_train.dtype == np.uint8


def real(name):
    """A file of real data, where this machine has it."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    file = Path(os.environ.get("THALWEG_TEST_DATA", beside)) / name
    if not file.is_file():
        pytest.skip(f"{name} is not here; THALWEG_TEST_DATA names the folder it is in")
    return file


def test_real_mnist():
    data = load(real("mnist.npz"))
    assert (
        data.x_train.shape == (60000, 28, 28, 1) and data.x_test is not None and data.x_test.shape == (10000, 28, 28, 1)
    )
    np.testing.assert_array_equal(data.y_train[:5], [5, 0, 4, 1, 9])
    np.testing.assert_array_equal(data.y_test[:5], [7, 2, 1, 0, 4])
    # the well-known mean of MNIST's training pixels
    np.testing.assert_allclose((data.x_train.mean(dtype=np.float64) + 1) * 128 - 0.5, 255 * 0.1307, rtol=1e-3)


def test_real_table():
    data = load(real("adbench/45_wine.npz"))
    assert data.x_train.shape == (129, 13) and set(np.unique(data.y_train)) == {0, 1}
