"""Read folders of image files, in the order of their paths."""

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from thalweg.core import as_path
from thalweg.core.progress import progress_bar
from thalweg.data.bounds import MOST_BYTES, read_bounded, require_file
from thalweg.data.checks import Dataset
from thalweg.data.pickles import Stream
from thalweg.data.pictures import SUFFIXES, Crop, Size, decode_image, is_grey, open_picture

MOST_FILE = 2**28  # bytes of one picture
_MOST_FILES = 2_000_000
_ORIENTATION = 0x0112


class Pictures(NamedTuple):
    """The pictures of a folder: their number, their height and width, and whether they are grey.

    >>> Pictures(count=100, height=32, width=32, grey=False).height
    32
    """

    count: int
    height: int
    width: int
    grey: bool


def measure_pictures(folder: str | Path, *, same_size: bool = True, same_kind: bool = True) -> Pictures:
    """Read the headers of all images in a folder; a ValueError if one differs from the first in size or kind.

    `same_size` and `same_kind` (grey or colour) say what must agree; the size and kind returned are those of the first.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("L", (6, 4), 255).save(Path(folder) / "white.png")
    ...     measure_pictures(folder)
    Pictures(count=1, height=4, width=6, grey=True)
    """
    first: tuple[Path, int, int, bool] | None = None
    files = _image_files(_folder(folder))
    for file in files:
        with file_opener(file)() as stream, open_picture(stream, str(file)) as image:
            turned = image.getexif().get(_ORIENTATION, 1) >= 5  # stored rotated by a quarter turn
            width, height = image.size[::-1] if turned else image.size
            found = (file, height, width, is_grey(image))
        first = first or found
        if same_size and found[1:3] != first[1:3]:
            raise ValueError(
                f"{file}: expected {first[2]} × {first[1]} pixels like {first[0].name}, got {width} × {height}; "
                "give one size for all with size=64 (--set data.size=64)"
            )
        if same_kind and found[3] != first[3]:
            kinds = ("grey", "colour") if first[3] else ("colour", "grey")
            raise ValueError(
                f"{file}: expected {kinds[0]} like {first[0].name}, got {kinds[1]}; "
                "say what all shall be with grey=True or False (--set data.grey=true)"
            )
    if first is None:
        raise AssertionError("a folder without images has been refused")
    return Pictures(len(files), *first[1:])


def read_image_folder(
    folder: str | Path, *, size: Size = None, crop: Crop = None, grey: bool | None = False, progress: bool = False
) -> Dataset:
    """Read all images in a folder, in the order of their paths, as (n, height, width, channels) uint8.

    If the folder holds `train` and `test` and no other images, these are the training and test images. If every image
    of a part is in a subfolder, the subfolders in alphabetical order are the classes 0, 1, …; else there are no labels.
    `size`, `crop` and `grey` are those of `decode_image`; without `size` all images must have the same shape. Links are
    followed only within the folder, and nothing outside it is read.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("L", (6, 6), 255).save(Path(folder) / "white.png")
    ...     read_image_folder(folder, size=4, grey=True).x_train.shape
    (1, 4, 4, 1)
    """
    place = _folder(folder)

    def read(part: Path, classes: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray | None]:
        files = _image_files(part)
        pictures = stack_images(
            [file_opener(file) for file in files], list(map(str, files)), size, crop, grey, progress
        )
        labels = np.array([classes.index(_class(file, part)) for file in files], np.int32) if classes else None
        return pictures, labels

    if {_class(file, place) for file in _image_files(place)} == {"train", "test"}:
        classes = _classes(place / "train")  # test classes are numbered as training classes
        extra = set(_classes(place / "test")) - set(classes)
        if classes and extra:
            raise ValueError(
                f"{place}: expected the classes of train in test, got also {sorted(extra)}; make them equal"
            )
        return Dataset(*read(place / "train", classes), *read(place / "test", classes))
    return Dataset(*read(place, _classes(place)))


def _folder(folder: str | Path) -> Path:
    place = as_path("folder", folder)
    if not place.is_dir():
        got = "a file" if place.exists() else "nothing"
        raise ValueError(f"{place}: expected a folder of images, got {got}; check the path")
    return place


def _image_files(folder: Path) -> list[Path]:
    files: list[Path] = []
    for place, _, names in os.walk(folder):  # does not follow links to folders
        found = (Path(place) / name for name in names if not name.startswith("."))
        files += [require_inside(file, folder) for file in found if file.suffix.lower() in SUFFIXES]
        if len(files) > _MOST_FILES:
            raise ValueError(f"{folder}: expected at most {_MOST_FILES} images, got more; give a smaller folder")
    if not files:
        kinds = " ".join(sorted(SUFFIXES))
        raise ValueError(f"{folder}: expected a folder with images ({kinds}), got none; check the path")
    return sorted(files)


def require_inside(file: Path, folder: Path, what: str = "an image") -> Path:
    """The file, if it is a regular file inside the folder; reading a pipe could block forever."""
    require_file(file, what)
    if file.is_symlink() and not file.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{file}: expected {what}, got a link out of the folder; put the image itself there")
    return file


def _class(file: Path, folder: Path) -> str:
    """The subfolder that contains an image; empty at the top level."""
    parts = file.relative_to(folder).parts
    return parts[0] if len(parts) > 1 else ""


def _classes(folder: Path) -> tuple[str, ...]:
    names = {_class(file, folder) for file in _image_files(folder)}
    return () if "" in names else tuple(sorted(names))


def file_opener(file: Path) -> Callable[[], Stream]:
    """A function that opens the file."""
    return lambda: io.BytesIO(read_bounded(file, MOST_FILE, "make the picture smaller"))


def stack_images(
    openers: Sequence[Callable[[], Stream]],
    names: Sequence[str],
    size: Size,
    crop: Crop,
    grey: bool | None,
    progress: bool,
) -> np.ndarray:
    """Decode the images one by one into a single array, allocated once, since large sets fill much of the memory."""
    pictures: np.ndarray | None = None
    with progress_bar("reading images", len(names), shown=progress) as advance:
        for i, (opener, name) in enumerate(zip(openers, names, strict=True)):
            with opener() as stream:
                pixels = decode_image(stream, name, size=size, crop=crop, grey=grey)
            if pictures is None:
                if pixels.size * len(names) > MOST_BYTES:
                    raise ValueError(
                        f"{name}: expected images that fill at most {MOST_BYTES / 1e6:.0f} MB together, got "
                        f"{len(names)} of shape {pixels.shape}; give a smaller size"
                    )
                pictures = np.empty((len(names), *pixels.shape), np.uint8)
            if pixels.shape[:2] != pictures.shape[1:3]:
                raise ValueError(
                    f"{name}: expected {pictures.shape[1:]} like the images before it, got {pixels.shape}; give a size"
                )
            if pixels.shape != pictures.shape[1:]:
                kinds = ("colour", "grey") if pixels.shape[2] == 1 else ("grey", "colour")
                raise ValueError(
                    f"{name}: expected {kinds[0]} like the images before it, got {kinds[1]}; give grey=True or False"
                )
            pictures[i] = pixels
            advance()
    if pictures is None:
        raise ValueError("images: expected at least one, got none; check the folder")
    return pictures
