"""Decode one image file: only the listed formats, of limited size; cropped, resized and converted to grey."""

import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from thalweg.data.pickles import Stream

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"})
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # Pillow's names for the formats of these suffixes
Crop = int | Literal["square"] | None
Size = int | tuple[int, int] | None
_MOST_PIXELS = 50_000_000  # of one picture
_MOST_SIDE = 4096


def decode_image(
    stream: Stream, name: str, *, size: Size = None, crop: Crop = None, grey: bool | None = False
) -> np.ndarray:
    """Decode an image file as (height, width, channels) uint8: cropped about its centre, resized, made grey.

    `crop` is a side in pixels, or "square" for the largest centred square; cropping comes first. `size` is the side of
    a square, or (height, width). Resizing is bicubic with antialiasing and does not keep the aspect ratio. There is one
    channel with `grey=True`, three with False, and with None as many as in the file; transparency is dropped. Only the
    formats of `SUFFIXES`, recognised by content, and at most 50 million pixels are accepted.

    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (6, 4), (255, 0, 0)).save(file, "PNG")
    >>> decode_image(file, "red.png", size=2, crop="square")[0, 0]
    array([255,   0,   0], dtype=uint8)
    """
    from PIL import Image, ImageOps

    with open_picture(stream, name) as opened:
        grey = is_grey(opened) if grey is None else grey
        try:
            image = ImageOps.exif_transpose(opened).convert("L" if grey else "RGB")
        except _pillow_refuses() as error:
            raise _damaged_error(name, error) from error
    if crop is not None:
        image = image.crop(_centre(image.size, crop, name))
    if size is not None:
        height, width = (size, size) if isinstance(size, int) else size
        if not (0 < height <= _MOST_SIDE and 0 < width <= _MOST_SIDE):
            raise ValueError(f"size: expected sides from 1 to {_MOST_SIDE} pixels, got {size}; give for example 64")
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    pixels = np.asarray(image)
    return pixels[:, :, None] if grey else pixels


def _damaged_error(name: str, error: Exception) -> ValueError:
    return ValueError(f"{name}: expected a complete image, got a damaged file ({error}); remove or replace it")


@contextmanager
def open_picture(stream: Stream, name: str) -> Iterator[Any]:
    """Open an image and check its header; no pixel is decoded yet."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit is lower, and raises
            opened = Image.open(stream, formats=FORMATS)
    except Image.UnidentifiedImageError as error:
        raise _damaged_error(name, ValueError(f"no {', '.join(FORMATS)}")) from error
    except _pillow_refuses() as error:
        raise _damaged_error(name, error) from error
    with opened:
        if opened.width * opened.height > _MOST_PIXELS:
            raise ValueError(
                f"{name}: expected at most {_MOST_PIXELS // 10**6} million pixels, got {opened.width} × "
                f"{opened.height}; make it smaller"
            )
        if opened.mode in ("I", "F") or opened.mode.startswith("I;"):
            raise ValueError(f"{name}: expected an image of 8 bits a channel, got mode {opened.mode}; convert it first")
        yield opened


def _pillow_refuses() -> tuple[type[Exception], ...]:
    """The exceptions that Pillow raises for a damaged file."""
    from PIL import Image

    return (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, Image.DecompressionBombError)


def is_grey(image: Any) -> bool:
    """Whether an image opened by Pillow is grey."""
    return image.mode in ("1", "L", "LA", "La")


def _centre(size: tuple[int, int], crop: int | Literal["square"], name: str) -> tuple[int, int, int, int]:
    side = min(size) if crop == "square" else crop
    if not 0 < side <= min(size):
        raise ValueError(f"{name}: expected a crop of 1 to {min(size)} pixels, got {crop}; crop less, or 'square'")
    left, top = (size[0] - side) // 2, (size[1] - side) // 2
    return left, top, left + side, top + side
