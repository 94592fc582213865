import gzip
import io
import pickle
import tarfile

import numpy as np
import pytest

from thalweg.data import cifar10, digits, fashion_mnist, mnist, read_cifar10, read_idx, scale_pixels, to_pixels

IDX_CODES = {"u1": 0x08, "i1": 0x09, ">i2": 0x0B, ">i4": 0x0C, ">f4": 0x0D, ">f8": 0x0E}


def idx_bytes(array, code):
    axes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, IDX_CODES[code], array.ndim]) + axes + array.astype(code).tobytes()


def write_mnist(folder, train=5, test=3, seed=0, suffix=".gz"):
    """The four files with random pixels; returns what they hold."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    held = {}
    for part, n in (("train", train), ("t10k", test)):
        held[part] = rng.integers(0, 256, (n, 28, 28), np.uint8), rng.integers(0, 10, n, np.uint8)
        for kind, array in zip(("images-idx3", "labels-idx1"), held[part], strict=True):
            content = idx_bytes(array, "u1")
            name = f"{part}-{kind}-ubyte{suffix}"
            (folder / name).write_bytes(gzip.compress(content) if suffix == ".gz" else content)
    return held


def cifar_rows(n, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 3072), np.uint8), rng.integers(0, 10, n).tolist()


def write_cifar(folder, protocol=2):
    folder.mkdir(parents=True, exist_ok=True)
    held = {}
    for i, name in enumerate([f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]):
        held[name] = cifar_rows(2 + i, seed=i)
        batch = {b"data": held[name][0], b"labels": held[name][1], b"batch_label": b"made for a test"}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=protocol))
    return held


@pytest.mark.parametrize("levels", [256, 17, 2])
def test_scaling_is_inside_the_interval_and_invertible(levels):
    pixels = np.arange(levels, dtype=np.uint8)
    x = scale_pixels(pixels, levels)
    assert x.dtype == np.float32 and x.min() > -1 and x.max() < 1
    np.testing.assert_allclose(np.diff(x), 2 / levels, rtol=1e-4)
    np.testing.assert_allclose(x, -x[::-1], atol=1e-6)
    np.testing.assert_array_equal(to_pixels(x, levels), pixels)
    # noise of one bin's width stays in the bin, so dequantising loses nothing
    for shift in (-0.49, 0.49):
        np.testing.assert_array_equal(to_pixels(x + shift * 2 / levels, levels), pixels)


def test_scaling_refuses_what_is_not_pixels():
    with pytest.raises(ValueError, match=r"expected integers 0 to 255, got float32; they seem scaled already"):
        scale_pixels(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match=r"expected integers 0 to 16, got 0 to 17; give the right number of levels"):
        scale_pixels(np.arange(18), 17)


def test_digits_are_split_by_class_and_none_is_lost():
    from sklearn.datasets import load_digits

    data, raw = digits(), digits(raw=True)
    assert data.x_test is not None and data.y_test is not None and data.y_train is not None and raw.x_test is not None
    assert data.x_train.shape == (1500, 8, 8, 1) and data.x_test.shape == (297, 8, 8, 1)
    assert data.x_train.dtype == np.float32 and np.abs(data.x_train).max() < 1
    np.testing.assert_array_equal(to_pixels(data.x_train, 17), raw.x_train)
    bunch_x, bunch_y = load_digits(return_X_y=True)
    whole = np.concatenate([np.asarray(bunch_x), np.asarray(bunch_y)[:, None]], axis=1)
    rows = [np.c_[x.reshape(len(x), 64), y] for x, y in ((raw.x_train, data.y_train), (raw.x_test, data.y_test))]
    np.testing.assert_array_equal(np.sort(np.concatenate(rows), axis=0), np.sort(whole, axis=0))
    assert sorted(map(tuple, np.concatenate(rows))) == sorted(map(tuple, whole)), "labels stay with their images"
    share = np.bincount(data.y_test) - np.bincount(np.asarray(bunch_y)) * 297 / 1797
    assert np.abs(share).max() < 1
    np.testing.assert_array_equal(digits().y_test, data.y_test)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("code", IDX_CODES)
def test_idx_of_every_type(code, zipped, tmp_path):
    array = np.array([[[1, 2], [3, 100]], [[-5 if code != "u1" else 5, 6], [7, 8]]])
    content = idx_bytes(array, code)
    file = tmp_path / "a-name-without-a-hint"
    file.write_bytes(gzip.compress(content) if zipped else content)
    got = read_idx(file)
    assert got.dtype == np.dtype(code).newbyteorder("=") and got.dtype.isnative
    np.testing.assert_array_equal(got, array)


def test_every_truncated_idx_is_a_sentence(tmp_path):
    file = tmp_path / "labels"
    content = idx_bytes(np.arange(3), ">i2")
    for damaged in [content[:length] for length in range(len(content))] + [content + b"\0"]:
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"labels: expected .*got .*(get it again|check that it is)"):
            read_idx(file)
    zipped = gzip.compress(content)
    for damaged in (zipped[:-3], zipped[:12], zipped[:15] + b"\xff\xff" + zipped[17:]):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"labels: expected a complete gzip file, got a damaged one"):
            read_idx(file)


def test_idx_says_what_is_wrong(tmp_path):
    file = tmp_path / "x"
    with pytest.raises(ValueError, match=r"x: expected an IDX file, got nothing; check the path"):
        read_idx(file)
    with pytest.raises(ValueError, match=r"expected an IDX file, got a folder"):
        read_idx(tmp_path)
    file.write_bytes(b"\x89PNG and so on")
    with pytest.raises(
        ValueError, match=r"expected an IDX file \(two zero bytes, then a type\), got bytes 89 50 4e 47"
    ):
        read_idx(file)
    file.write_bytes(idx_bytes(np.arange(6).reshape(2, 3), "u1")[:-1])
    with pytest.raises(ValueError, match=r"expected 18 bytes for uint8 values of shape \(2, 3\), got 17"):
        read_idx(file)


@pytest.mark.parametrize("suffix", [".gz", ""])
@pytest.mark.parametrize(("loader", "name"), [(mnist, "mnist"), (fashion_mnist, "fashion_mnist")])
def test_mnist_from_the_data_folder(loader, name, suffix, tmp_path, monkeypatch):
    monkeypatch.setenv("THALWEG_DATA", str(tmp_path))
    with pytest.raises(
        ValueError, match=f"{name}: expected train-images-idx3-ubyte.gz, .* run `thalweg data get {name}`"
    ):
        loader()
    held = write_mnist(tmp_path / name, suffix=suffix)
    data, raw = loader(), loader(raw=True)
    assert data.x_train.shape == (5, 28, 28, 1) and data.x_test.shape == (3, 28, 28, 1)
    np.testing.assert_array_equal(raw.x_train[..., 0], held["train"][0])
    np.testing.assert_array_equal(raw.x_test[..., 0], held["t10k"][0])
    np.testing.assert_allclose(data.x_test, 2 * (raw.x_test + 0.5) / 256 - 1, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(data.y_train, held["train"][1])
    np.testing.assert_array_equal(data.y_test, held["t10k"][1])
    (tmp_path / name / f"t10k-labels-idx1-ubyte{suffix}").write_bytes(idx_bytes(np.arange(2), "u1"))
    with pytest.raises(ValueError, match=r"t10k labels: expected one label per row, that is 3, got shape \(2,\)"):
        loader()


@pytest.mark.parametrize("protocol", [2, 5])
def test_cifar_rows_become_images(protocol, tmp_path, monkeypatch):
    monkeypatch.setenv("THALWEG_DATA", str(tmp_path))
    held = write_cifar(tmp_path / "cifar10", protocol)
    data = read_cifar10(tmp_path / "cifar10")
    assert data.x_train.shape == (2 + 3 + 4 + 5 + 6, 32, 32, 3) and data.x_test is not None
    # row 2 is the first of the second batch: channel c of pixel (i, j) stands at 1024c + 32i + j
    rows = held["data_batch_2"][0]
    for i, j, c in [(0, 0, 0), (0, 5, 1), (17, 3, 2), (31, 31, 2)]:
        assert data.x_train[2, i, j, c] == rows[0, 1024 * c + 32 * i + j]
    np.testing.assert_array_equal(data.y_train, np.concatenate([held[f"data_batch_{k}"][1] for k in range(1, 6)]))
    np.testing.assert_array_equal(data.y_test, held["test_batch"][1])
    np.testing.assert_array_equal(to_pixels(cifar10().x_test), data.x_test)
    np.testing.assert_array_equal(cifar10(raw=True).x_train, data.x_train)


def test_cifar_archive_and_folders_are_one(tmp_path):
    write_cifar(tmp_path / "a" / "cifar-10-batches-py")
    (tmp_path / "b").mkdir()
    archive = tmp_path / "b" / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "a" / "cifar-10-batches-py", "cifar-10-batches-py")
    expected = read_cifar10(tmp_path / "a")
    for path in (tmp_path / "a" / "cifar-10-batches-py", tmp_path / "b", archive):
        for got, want in zip(read_cifar10(path), expected, strict=True):
            np.testing.assert_array_equal(got, want)
    archive.write_bytes(archive.read_bytes()[:-2000])
    with pytest.raises(ValueError, match=r"cifar-10-python.tar.gz: expected a complete gzip file, got a damaged one"):
        read_cifar10(archive)


def test_cifar_says_what_is_wrong(tmp_path):
    with pytest.raises(ValueError, match=r"expected the CIFAR-10 batches data_batch_1, .*, got no data_batch_1; put"):
        read_cifar10(tmp_path)
    write_cifar(tmp_path)
    (tmp_path / "test_batch").unlink()
    with pytest.raises(ValueError, match=r"got no test_batch; put the missing files there"):
        read_cifar10(tmp_path)
    for content, message in [
        ([1, 2], "test_batch: expected a CIFAR-10 batch with 'data' and 'labels', got something else"),
        ({b"data": np.zeros((2, 3072), np.uint8)}, "expected a CIFAR-10 batch with 'data' and 'labels'"),
        ({b"data": np.zeros((2, 3071), np.uint8), b"labels": [1, 2]}, r"expected uint8 rows .*, got uint8 \(2, 3071\)"),
        ({b"data": np.zeros((2, 3072)), b"labels": [1, 2]}, r"got float64 \(2, 3072\)"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}, r"labels: expected one label per row, that is 2"),
    ]:
        (tmp_path / "test_batch").write_bytes(pickle.dumps(content))
        with pytest.raises(ValueError, match=message):
            read_cifar10(tmp_path)
    whole = io.BytesIO()
    pickle.dump({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 2]}, whole)
    (tmp_path / "test_batch").write_bytes(whole.getvalue()[:-100])
    with pytest.raises(
        ValueError, match=r"test_batch: expected a complete pickle of numpy arrays, got a damaged or trunc"
    ):
        read_cifar10(tmp_path)
