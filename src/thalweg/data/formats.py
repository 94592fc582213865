"""The two formats that MNIST and CIFAR-10 are published in: IDX files and pickled batches."""

import io
import math
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from thalweg.core import as_path
from thalweg.data.bounds import read_gzipped, require_file
from thalweg.data.checks import Dataset, check_labels
from thalweg.data.pickles import Stream, read_plain_pickle

_IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_CIFAR_FOLDER = "cifar-10-batches-py"
_CIFAR_TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
_CIFAR_TEST = "test_batch"
_MOST_MEMBERS = 1000  # of an archive


def read_idx(path: str | Path) -> np.ndarray:
    """Read one IDX file, gzipped or not, as the array it holds (LeCun, the MNIST file format).

    The file starts with two zero bytes, a type byte, the number of axes and the axes as big-endian 32-bit integers;
    the values follow in C order. MNIST images come as (n, 28, 28) uint8, labels as (n,) uint8.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "tiny-labels-idx1-ubyte"
    ...     _ = file.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))
    ...     read_idx(file)
    array([7, 2, 1], dtype=uint8)
    """
    place = require_file(path, "an IDX file")
    content = read_gzipped(place)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _IDX_TYPES:
        raise ValueError(
            f"{place}: expected an IDX file (two zero bytes, then a type), got bytes {content[:4].hex(' ') or 'none'}; "
            "check that it is an MNIST-style file"
        )
    dtype, axes = np.dtype(_IDX_TYPES[content[2]]), content[3]
    start = 4 + 4 * axes
    shape = tuple(int(size) for size in np.frombuffer(content[4 : min(start, len(content)) // 4 * 4], ">u4"))
    expected = start + math.prod(shape) * dtype.itemsize
    if len(shape) < axes or len(content) != expected:
        raise ValueError(
            f"{place}: expected {expected} bytes for {dtype.name} values of shape {shape}, got {len(content)}; "
            "the file is truncated or damaged, get it again"
        )
    values = np.frombuffer(content, dtype, offset=start).reshape(shape)
    return values.astype(dtype.newbyteorder("="))


def read_cifar10(path: str | Path) -> Dataset:
    """Read CIFAR-10's python batches as they are: images (n, 32, 32, 3) uint8 and labels (n,) int32.

    `path` is the folder with `data_batch_1` … `data_batch_5` and `test_batch`, a folder that contains it as
    `cifar-10-batches-py`, a folder that contains the archive `cifar-10-python.tar.gz`, or the archive itself, which is
    read without unpacking. The batches are pickles (Krizhevsky 2009); they are read by `thalweg.data.pickles`, which
    runs no code.

    >>> read_cifar10("no/such/folder")
    Traceback (most recent call last):
    ValueError: no/such/folder: expected the folder or archive of CIFAR-10's python batches, got nothing; check the path
    """
    place = as_path("path", path)
    if place.is_dir():
        inner = place / _CIFAR_FOLDER
        archive = place / "cifar-10-python.tar.gz"
        if inner.is_dir() or not archive.is_file():
            return _assemble(place, _folder_opener(inner if inner.is_dir() else place))
        place = archive
    require_file(place, "the folder or archive of CIFAR-10's python batches")
    return _assemble(place, _archive_opener(place))


def _assemble(place: Path, open_batch: Callable[[str], Stream]) -> Dataset:
    def read(name: str) -> tuple[np.ndarray, np.ndarray]:
        with open_batch(name) as stream:
            return _batch(read_plain_pickle(stream, f"{place}: {name}"), f"{place}: {name}")

    images, labels = zip(*(read(name) for name in _CIFAR_TRAIN), strict=True)
    return Dataset(np.concatenate(images), np.concatenate(labels), *read(_CIFAR_TEST))


def _batch(content: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of one batch; a row holds the red, green and blue planes, each in row order."""
    batch = (
        {k.decode() if isinstance(k, bytes) else k: v for k, v in content.items()} if isinstance(content, dict) else {}
    )
    rows = batch.get("data")
    if not isinstance(rows, np.ndarray) or "labels" not in batch:
        raise ValueError(
            f"{name}: expected a CIFAR-10 batch with 'data' and 'labels', got something else; get it again"
        )
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != 3072 or len(rows) == 0:
        raise ValueError(f"{name}: expected uint8 rows (n, 3072), got {rows.dtype} {rows.shape}; get the file again")
    labels = batch["labels"]
    # checked one by one: numpy would descend into nested lists without limit
    if not isinstance(labels, (list, np.ndarray)) or not all(isinstance(each, (int, np.integer)) for each in labels):
        raise ValueError(f"{name}: expected labels that are whole numbers, got something else; get the file again")
    labels = check_labels(labels, len(rows), name=f"{name}, labels").astype(np.int32)
    return rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels


def _missing_error(place: Path, name: str) -> ValueError:
    batches = ", ".join((*_CIFAR_TRAIN, _CIFAR_TEST))
    return ValueError(f"{place}: expected the CIFAR-10 batches {batches}, got no {name}; put the missing files there")


def _folder_opener(folder: Path) -> Callable[[str], Stream]:
    def open_batch(name: str) -> Stream:
        if not (folder / name).exists():
            raise _missing_error(folder, name)
        return require_file(folder / name, "a CIFAR-10 batch").open("rb")

    return open_batch


def _archive_opener(archive: Path) -> Callable[[str], Stream]:
    """A function that opens batches in a tar archive by name; only regular files, no links and no sparse files."""
    content = io.BytesIO(read_gzipped(archive))  # of limited size, before tarfile reads headers of any length
    wanted: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=content, mode="r:") as tar:
            for count, member in enumerate(tar):
                if count == _MOST_MEMBERS:
                    raise ValueError(
                        f"{archive}: expected at most {_MOST_MEMBERS} files, got more; get the archive again"
                    )
                name = Path(member.name).name
                stream = tar.extractfile(member) if member.isreg() and not member.issparse() else None
                if stream is not None and name in (*_CIFAR_TRAIN, _CIFAR_TEST):
                    wanted[name] = stream.read()
    except (tarfile.TarError, EOFError, OSError, UnicodeError) as error:
        raise ValueError(
            f"{archive}: expected a complete tar archive, got a damaged one ({error}); get it again"
        ) from error

    def open_batch(name: str) -> Stream:
        if name not in wanted:
            raise _missing_error(archive, name)
        return io.BytesIO(wanted[name])

    return open_batch
