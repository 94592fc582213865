"""Images that are files: any folder of images, and CelebA with its attribute file."""

import io
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from thalweg.core import as_path
from thalweg.core.progress import progress_bar
from thalweg.data.checks import Dataset
from thalweg.data.formats import require_file
from thalweg.data.pickles import Stream

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"})
Crop = int | Literal["square"] | None


class Attributes(NamedTuple):
    """CelebA's attribute file: `values` (images, attributes) is 1 where the attribute is present, else 0.

    >>> attributes = Attributes(("000001.jpg",), ("Bald", "Smiling"), np.array([[0, 1]]))
    >>> attributes.values[:, attributes.names.index("Smiling")].tolist()
    [1]
    """

    files: tuple[str, ...]
    names: tuple[str, ...]
    values: np.ndarray


def decode_image(
    stream: Stream, name: str, *, size: int | None = None, crop: Crop = None, grey: bool = False
) -> np.ndarray:
    """One image file as (height, width, channels) uint8: cropped about its centre, resized to a square, made grey.

    `crop` is a side in pixels, or "square" for the largest centred square; cropping comes first. Resizing is bicubic
    with antialiasing and does not keep the aspect ratio. One channel if `grey`, else three; transparency is dropped.

    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (6, 4), (255, 0, 0)).save(file, "PNG")
    >>> decode_image(file, "red.png", size=2, crop="square")[0, 0]
    array([255,   0,   0], dtype=uint8)
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(stream) as opened:
            if opened.mode in ("I", "F") or opened.mode.startswith("I;"):
                raise ValueError(
                    f"{name}: expected an image of 8 bits a channel, got mode {opened.mode}; convert it first"
                )
            image = ImageOps.exif_transpose(opened).convert("L" if grey else "RGB")
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:  # Pillow's ways of refusing a damaged file
        raise ValueError(
            f"{name}: expected a complete image, got a damaged file ({error}); remove or replace it"
        ) from error
    if crop is not None:
        image = image.crop(_centre(image.size, crop, name))
    if size is not None:
        image = image.resize((size, size), Image.Resampling.BICUBIC)
    pixels = np.asarray(image)
    return pixels[:, :, None] if grey else pixels


def _centre(size: tuple[int, int], crop: int | Literal["square"], name: str) -> tuple[int, int, int, int]:
    side = min(size) if crop == "square" else crop
    if not 0 < side <= min(size):
        raise ValueError(f"{name}: expected a crop of 1 to {min(size)} pixels, got {crop}; crop less, or 'square'")
    left, top = (size[0] - side) // 2, (size[1] - side) // 2
    return left, top, left + side, top + side


def read_image_folder(
    folder: str | Path, *, size: int | None = None, crop: Crop = None, grey: bool = False, progress: bool = False
) -> Dataset:
    """Read all images under a folder, in the order of their paths, as (n, height, width, channels) uint8.

    If the folder holds `train` and `test` and no other images, they are the two parts. In each part, where every image
    lies in a subfolder, the subfolders in order of name are the classes 0, 1, …; else there are no labels.
    `size`, `crop` and `grey` are those of `decode_image`; without `size` all images must have one shape already.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("L", (6, 6), 255).save(Path(folder) / "white.png")
    ...     read_image_folder(folder, size=4, grey=True).x_train.shape
    (1, 4, 4, 1)
    """
    place = as_path("folder", folder)
    if not place.is_dir():
        got = "a file" if place.exists() else "nothing"
        raise ValueError(f"{place}: expected a folder of images, got {got}; check the path")

    def read(part: Path, classes: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray | None]:
        files = _image_files(part)
        pictures = stack_images(
            [_file_opener(file) for file in files], list(map(str, files)), size, crop, grey, progress
        )
        labels = np.array([classes.index(_class(file, part)) for file in files], np.int32) if classes else None
        return pictures, labels

    if {_class(file, place) for file in _image_files(place)} == {"train", "test"}:
        classes = _classes(place / "train")  # the test part is numbered as the training part is
        extra = set(_classes(place / "test")) - set(classes)
        if classes and extra:
            raise ValueError(
                f"{place}: expected the classes of train in test, got also {sorted(extra)}; make them equal"
            )
        return Dataset(*read(place / "train", classes), *read(place / "test", classes))
    return Dataset(*read(place, _classes(place)))


def _image_files(folder: Path) -> list[Path]:
    files = sorted(
        file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")
    )
    if not files:
        kinds = " ".join(sorted(SUFFIXES))
        raise ValueError(f"{folder}: expected a folder with images ({kinds}), got none; check the path")
    return files


def _class(file: Path, folder: Path) -> str:
    """The subfolder an image lies in, empty at the top."""
    parts = file.relative_to(folder).parts
    return parts[0] if len(parts) > 1 else ""


def _classes(folder: Path) -> tuple[str, ...]:
    names = {_class(file, folder) for file in _image_files(folder)}
    return () if "" in names else tuple(sorted(names))


def _file_opener(file: Path) -> Callable[[], Stream]:
    return lambda: file.open("rb")


def stack_images(
    openers: Sequence[Callable[[], Stream]],
    names: Sequence[str],
    size: int | None,
    crop: Crop,
    grey: bool,
    progress: bool,
) -> np.ndarray:
    """Decode the images one by one into a single array, allocated once: sets of faces fill much of the memory."""
    pictures: np.ndarray | None = None
    with progress_bar("reading images", len(names), shown=progress) as advance:
        for i, (opener, name) in enumerate(zip(openers, names, strict=True)):
            with opener() as stream:
                pixels = decode_image(stream, name, size=size, crop=crop, grey=grey)
            if pictures is None:
                pictures = np.empty((len(names), *pixels.shape), np.uint8)
            if pixels.shape != pictures.shape[1:]:
                raise ValueError(
                    f"{name}: expected {pictures.shape[1:]} like the images before it, got {pixels.shape}; give a size"
                )
            pictures[i] = pixels
            advance()
    if pictures is None:
        raise ValueError("images: expected at least one, got none; check the folder")
    return pictures


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
    lines = place.read_text().splitlines()
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
    values = np.array([[value == "1" for value in row[1:]] for row in rows], np.int8)
    return Attributes(tuple(row[0] for row in rows), tuple(names), values)


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
    `list_attr_celeba.txt`, and where there is one `list_eval_partition.txt`: its part 0 is for training and 2 for
    testing, part 1 (validation) is left out; without it all rows are training rows. The crop of 140 pixels leaves the
    face (Song and Ermon 2019). `attributes` chooses columns by name, `limit` takes the first rows of each part.

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
    pairs = dict(line.split() for line in path.read_text().splitlines() if len(line.split()) == 2)
    missing = [file for file in files if pairs.get(file) not in {"0", "1", "2"}]
    if missing:
        raise ValueError(
            f"{path}: expected a part 0, 1 or 2 for every image, got none for {missing[0]} "
            f"and {len(missing) - 1} more; get the file again"
        )
    return np.array([int(pairs[file]) for file in files], np.int8)


def _celeba_images(place: Path) -> tuple[Callable[[str], Callable[[], Stream]], Callable[[], Any]]:
    """How to open an image by its name, and how to be done with it."""
    folder, archive = place / "img_align_celeba", place / "img_align_celeba.zip"
    if folder.is_dir():
        return lambda name: lambda: require_file(folder / name, "a CelebA image").open("rb"), lambda: None
    require_file(archive, "CelebA's images (or the folder img_align_celeba beside it)")
    try:
        opened = zipfile.ZipFile(archive)
    except zipfile.BadZipFile as error:
        raise ValueError(
            f"{archive}: expected a complete zip archive, got a damaged one ({error}); get it again"
        ) from error

    def read(name: str) -> Stream:
        try:
            return io.BytesIO(opened.read(f"img_align_celeba/{name}"))
        except (KeyError, zipfile.BadZipFile, EOFError) as error:
            raise ValueError(f"{archive}: expected the image {name}, got {error}; get the archive again") from error

    return lambda name: lambda: read(name), opened.close
