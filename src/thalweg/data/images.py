"""Image sets by name, as (n, height, width, channels) float32 with values in (-1, 1)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from thalweg.core import as_path, finite, flag, whole_number
from thalweg.data.celeba import read_celeba
from thalweg.data.checks import Dataset, check_labels
from thalweg.data.formats import read_cifar10, read_idx
from thalweg.data.pictures import Crop
from thalweg.data.sources import CATALOGUE, data_folder, require


def scale_pixels(pixels: np.ndarray, levels: int = 256) -> np.ndarray:
    """Map integers 0 … levels-1 to float32 in the open interval (-1, 1): `2(k + ½)/levels - 1`, the middle of bin k.

    The bins fill the interval, so dequantised values, with uniform noise of one bin's width added, stay inside it.

    >>> scale_pixels(np.array([0, 255], np.uint8))
    array([-0.99609375,  0.99609375], dtype=float32)
    """
    levels = whole_number("levels", levels, 2, "pictures of bytes have 256")
    if isinstance(pixels, np.ma.MaskedArray) or not isinstance(pixels, np.ndarray):
        raise ValueError(f"pixels: expected a numpy array of integers, got {type(pixels).__name__}; convert it first")
    if not np.issubdtype(pixels.dtype, np.integer):
        raise ValueError(f"pixels: expected integers 0 to {levels - 1}, got {pixels.dtype}; they seem scaled already")
    if pixels.size and (pixels.min() < 0 or pixels.max() >= levels):
        raise ValueError(
            f"pixels: expected integers 0 to {levels - 1}, got {pixels.min()} to {pixels.max()}; "
            "give the right number of levels"
        )
    scaled = pixels.astype(np.float32)
    scaled += 0.5  # in place: image sets fill much of the memory
    scaled *= 2 / levels
    scaled -= 1
    return scaled


def to_pixels(x: np.ndarray, levels: int = 256) -> np.ndarray:
    """The inverse of `scale_pixels`: values to uint8 levels; values outside (-1, 1) are clipped.

    >>> to_pixels(np.array([-0.99609375, 0.0, 0.99609375, 1.2]))
    array([  0, 128, 255, 255], dtype=uint8)
    """
    levels = whole_number("levels", levels, 2, "pictures of bytes have 256")
    if levels > 256:
        raise ValueError(f"expected levels <= 256, which fit a byte, got {levels}; give fewer")
    values = np.asarray(finite("x", x))
    return np.clip(np.floor((values + 1) * (levels / 2)), 0, levels - 1).astype(np.uint8)


def _scale(data: Dataset, raw: bool, levels: int = 256) -> Dataset:
    if flag("raw", raw):
        return data
    x_test = None if data.x_test is None else scale_pixels(data.x_test, levels)
    return data._replace(x_train=scale_pixels(data.x_train, levels), x_test=x_test)


def digits(*, raw: bool = False) -> Dataset:
    """Handwritten digits 8×8×1: 1500 training and 297 test images, stratified by class, in a fixed split.

    They are part of scikit-learn, so nothing is downloaded. They have 17 grey levels 0 … 16 (`raw=True` gives them as
    uint8). This is the test set of the UCI Optical Recognition of Handwritten Digits data (Alpaydin and Kaynak 1998).

    >>> digits().x_train.shape
    (1500, 8, 8, 1)
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    rows, classes = load_digits(return_X_y=True)
    pixels = np.asarray(rows, np.uint8).reshape(-1, 8, 8, 1)
    labels = np.asarray(classes, np.int32)
    train, test = train_test_split(np.arange(len(labels)), test_size=297, stratify=labels, random_state=0)
    return _scale(Dataset(pixels[train], labels[train], pixels[test], labels[test]), raw, levels=17)


def mnist(folder: str | Path | None = None, *, raw: bool = False) -> Dataset:
    """MNIST, 28×28×1, 60 000 + 10 000 with labels (LeCun et al. 1998), from four IDX files, gzipped or not.

    `folder` is `data_folder() / "mnist"` unless given. `raw=True` gives uint8 pixels.

    >>> mnist("no/such/folder")
    Traceback (most recent call last):
    ValueError: mnist: expected train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, \
t10k-labels-idx1-ubyte.gz in no/such/folder, got nothing there; run `thalweg data get mnist` or put the files there
    """
    return _idx_set("mnist", folder, raw)


def fashion_mnist(folder: str | Path | None = None, *, raw: bool = False) -> Dataset:
    """Fashion-MNIST, 28×28×1, 60 000 + 10 000 with labels (Xiao et al. 2017): the files and options of `mnist`.

    >>> fashion_mnist("no/such/folder")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: fashion_mnist: expected train-images-idx3-ubyte.gz, ...
    """
    return _idx_set("fashion_mnist", folder, raw)


def _idx_set(name: str, folder: str | Path | None, raw: bool) -> Dataset:
    source = CATALOGUE[name]
    place = _place(name, folder)
    paths = require(source, place)

    def read(part: str) -> tuple[np.ndarray, np.ndarray]:
        pictures = read_idx(paths[f"{part}-images-idx3-ubyte.gz"])
        labels = read_idx(paths[f"{part}-labels-idx1-ubyte.gz"])
        if pictures.ndim != 3 or len(pictures) == 0:
            raise ValueError(
                f"{place}: expected {part} images (n, height, width), got {pictures.shape}; get them again"
            )
        check_labels(labels, len(pictures), name=f"{place}, {part} labels")
        return pictures[..., None], labels.astype(np.int32)

    return _scale(Dataset(*read("train"), *read("t10k")), raw)


def cifar10(folder: str | Path | None = None, *, raw: bool = False) -> Dataset:
    """CIFAR-10, 32×32×3, 50 000 + 10 000 with labels (Krizhevsky 2009), from the python batches or their archive.

    `folder` is `data_folder() / "cifar10"` unless given. `raw=True` gives uint8 pixels.

    >>> cifar10("no/such/folder")
    Traceback (most recent call last):
    ValueError: cifar10: expected cifar-10-python.tar.gz in no/such/folder, got nothing there; run `thalweg data get \
cifar10` or put the files there
    """
    place = _place("cifar10", folder)
    require(CATALOGUE["cifar10"], place)
    return _scale(read_cifar10(place), raw)


def celeba(
    folder: str | Path | None = None,
    *,
    size: int = 32,
    crop: Crop = 140,
    grey: bool = False,
    attributes: Sequence[str] | None = None,
    limit: int | None = None,
    raw: bool = False,
    progress: bool = False,
) -> Dataset:
    """CelebA faces, resized, labels (n, attributes) in {0, 1} (Liu et al. 2015): the options of `read_celeba`.

    `folder` is `data_folder() / "celeba"` unless given. All 162 770 training faces at 32×32 take 2 GB as floats.

    >>> celeba("no/such/folder")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: celeba: expected list_attr_celeba.txt, img_align_celeba.zip in no/such/folder, got nothing there...
    """
    place = _place("celeba", folder)
    require(CATALOGUE["celeba"], place)
    data = read_celeba(place, size=size, crop=crop, grey=grey, attributes=attributes, limit=limit, progress=progress)
    return _scale(data, raw)


def _place(name: str, folder: str | Path | None) -> Path:
    return data_folder() / name if folder is None else as_path("folder", folder)
