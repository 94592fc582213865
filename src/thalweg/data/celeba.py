"""CelebA: faces in a folder or a zip archive, with the attribute file beside them."""

import io
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thalweg.core import as_path
from thalweg.data.bounds import check_member, read_bounded, require_file
from thalweg.data.checks import Dataset
from thalweg.data.folders import MOST_FILE, file_opener, require_inside, stack_images
from thalweg.data.pickles import Stream
from thalweg.data.pictures import Crop


class Attributes(NamedTuple):
    """CelebA's attribute file: `values` (images, attributes) is 1 where the attribute is present, else 0.

    >>> attributes = Attributes(("000001.jpg",), ("Bald", "Smiling"), np.array([[0, 1]]))
    >>> attributes.values[:, attributes.names.index("Smiling")].tolist()
    [1]
    """

    files: tuple[str, ...]
    names: tuple[str, ...]
    values: np.ndarray


def read_celeba_attributes(path: str | Path) -> Attributes:
    """Read `list_attr_celeba.txt`: a count, a line of names, then a file name and ±1 for each attribute.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "list_attr_celeba.txt"
    ...     _ = file.write_text("1\\nMale Smiling\\n000001.jpg -1 1\\n")
    ...     read_celeba_attributes(file)
    Attributes(files=('000001.jpg',), names=('Male', 'Smiling'), values=array([[0, 1]], dtype=int8))
    """
    place = require_file(path, "CelebA's attribute file")
    lines = _lines(place)
    if len(lines) < 3 or not lines[0].strip().isdigit():
        raise ValueError(
            f"{place}: expected a count, a line of attribute names and rows, got another text; get it again"
        )
    names, rows = lines[1].split(), [line.split() for line in lines[2:] if line.strip()]
    if len(rows) != int(lines[0]):
        raise ValueError(
            f"{place}: expected {int(lines[0])} rows, got {len(rows)}; the file is truncated, get it again"
        )
    for number, row in enumerate(rows, start=3):
        if len(row) != 1 + len(names) or not set(row[1:]) <= {"1", "-1"}:
            raise ValueError(
                f"{place}, line {number}: expected a file name and {len(names)} times 1 or -1, "
                f"got {' '.join(row)[:60]!r}; get the file again"
            )
        if not _is_plain_name(row[0]):
            raise ValueError(
                f"{place}, line {number}: expected the name of a file in the images' folder, got {row[0][:60]!r}; "
                "get the file again"
            )
    values = np.array([[value == "1" for value in row[1:]] for row in rows], np.int8)
    return Attributes(tuple(row[0] for row in rows), tuple(names), values)


def _lines(place: Path) -> list[str]:
    content = read_bounded(place, MOST_FILE, "get it again")
    try:
        return content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{place}: expected text in UTF-8, got other bytes ({error}); get it again") from error


def _is_plain_name(name: str) -> bool:
    """Whether a name is a plain file name, not a path."""
    return name.isprintable() and not any(mark in name for mark in ("/", "\\", ":")) and name not in (".", "..")


def read_celeba(
    folder: str | Path,
    *,
    size: int = 32,
    crop: Crop = 140,
    grey: bool = False,
    attributes: Sequence[str] | None = None,
    limit: int | None = None,
    progress: bool = False,
) -> Dataset:
    """Read CelebA: images (n, size, size, channels) uint8, labels (n, attributes) in {0, 1} (Liu et al. 2015).

    The folder holds the images, as `img_align_celeba/` or `img_align_celeba.zip` (read without unpacking),
    `list_attr_celeba.txt`, and optionally `list_eval_partition.txt`: its part 0 is for training, part 2 for testing,
    and part 1 (validation) is left out. Without it all rows are training rows. The crop of 140 pixels keeps the face
    (Song and Ermon 2019). `attributes` chooses columns by name, `limit` takes the first rows of each part.

    >>> read_celeba("no/such/folder")
    Traceback (most recent call last):
    ValueError: no/such/folder/list_attr_celeba.txt: expected CelebA's attribute file, got nothing; check the path
    """
    place = as_path("folder", folder)
    table = read_celeba_attributes(place / "list_attr_celeba.txt")
    unknown = [name for name in attributes or () if name not in table.names]
    if unknown:
        raise ValueError(f"attributes: expected names among {', '.join(table.names)}, got {unknown}; choose from these")
    columns = [table.names.index(name) for name in (table.names if attributes is None else attributes)]
    part = _partition(place / "list_eval_partition.txt", table.files)
    openers, close = _celeba_images(place)

    def read(which: int) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
        rows = np.flatnonzero(part == which)[:limit]
        if len(rows) == 0:
            return None, None
        names = [table.files[row] for row in rows]
        pictures = stack_images([openers(name) for name in names], names, size, crop, grey, progress)
        return pictures, table.values[rows][:, columns]

    try:
        x_train, y_train = read(0)
        x_test, y_test = read(2)
    finally:
        close()
    if x_train is None:
        raise ValueError(f"{place}: expected at least one training image (part 0), got none; check the partition file")
    return Dataset(x_train, y_train, x_test, y_test)


def _partition(path: Path, files: tuple[str, ...]) -> np.ndarray:
    if not path.exists():
        return np.zeros(len(files), np.int8)
    lines = _lines(require_file(path, "CelebA's partition file"))
    pairs = dict(line.split() for line in lines if len(line.split()) == 2)
    missing = [file for file in files if pairs.get(file) not in {"0", "1", "2"}]
    if missing:
        raise ValueError(
            f"{path}: expected a part 0, 1 or 2 for every image, got none for {missing[0]} "
            f"and {len(missing) - 1} more; get the file again"
        )
    return np.array([int(pairs[file]) for file in files], np.int8)


def _celeba_images(place: Path) -> tuple[Callable[[str], Callable[[], Stream]], Callable[[], Any]]:
    """A function from an image's name to its opener, and a function that closes the archive."""
    folder, archive = place / "img_align_celeba", place / "img_align_celeba.zip"
    if folder.is_dir():
        return lambda name: file_opener(require_inside(folder / name, place, "a CelebA image")), lambda: None
    require_file(archive, "CelebA's images (or the folder img_align_celeba beside it)")
    try:
        opened = zipfile.ZipFile(archive)
    except zipfile.BadZipFile as error:
        raise ValueError(
            f"{archive}: expected a complete zip archive, got a damaged one ({error}); get it again"
        ) from error

    def read(name: str) -> Stream:
        try:
            member = check_member(opened.getinfo(f"img_align_celeba/{name}"), archive, MOST_FILE)
            return io.BytesIO(opened.read(member))
        except (KeyError, zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError) as error:
            raise ValueError(f"{archive}: expected the image {name}, got {error}; get the archive again") from error

    return lambda name: lambda: read(name), opened.close
