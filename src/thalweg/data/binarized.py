"""MNIST in black and white, as likelihoods of Boltzmann machines are reported on."""

from pathlib import Path

import numpy as np

from thalweg.data.checks import Dataset
from thalweg.data.images import mnist
from thalweg.data.sources import data_folder
from thalweg.data.tables import read_npz

_FILE = "binarized_mnist.npz"
_TRAIN = 50_000


def binarized_mnist(folder: str | Path | None = None) -> Dataset:
    """Binary MNIST, 784 pixels of 0 and 1: 50 000 training and 10 000 test rows.

    The fixed binarisation of Larochelle, if the folder has it as ``binarized_mnist.npz`` with arrays ``x_train`` and
    ``x_test``. Otherwise `mnist` is binarised here: every pixel is drawn once, white with its intensity as the
    probability (Salakhutdinov and Murray 2008), always with the same random numbers.

    Args:
        folder: where the file, or the files of `mnist`, are; by default `data_folder()` and its folder ``mnist``.

    >>> binarized_mnist("no/such/folder")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: mnist: expected train-images-idx3-ubyte.gz, ...
    """
    file = (data_folder() if folder is None else Path(folder)) / _FILE
    if file.is_file():
        arrays = read_npz(file)
        missing = [name for name in ("x_train", "x_test") if name not in arrays]
        if missing:
            raise ValueError(f"{file}: expected the arrays x_train and x_test, got no {missing[0]}; add it")
        return Dataset(_bits(arrays["x_train"], file), None, _bits(arrays["x_test"], file), arrays.get("y_test"))
    grey = mnist(folder, raw=True)
    generator = np.random.default_rng(0)
    draw = lambda pixels: (generator.uniform(size=(len(pixels), 784)) * 255 < pixels.reshape(-1, 784)).astype(np.uint8)
    train, test = draw(grey.x_train[:_TRAIN]), draw(grey.x_test)
    return Dataset(train, None if grey.y_train is None else grey.y_train[:_TRAIN], test, grey.y_test)


def _bits(pixels: np.ndarray, file: Path) -> np.ndarray:
    rows = np.asarray(pixels).reshape(len(pixels), -1)
    if rows.shape[1] != 784 or not np.isin(rows, (0, 1)).all():
        raise ValueError(f"{file}: expected rows of 784 zeros and ones, got others; look where the file is from")
    return rows.astype(np.uint8)
