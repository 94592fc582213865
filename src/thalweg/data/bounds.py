"""Read files safely: regular files only, with limits on their size, packed and unpacked."""

import gzip
import stat
import zipfile
import zlib
from io import BufferedIOBase, BytesIO
from pathlib import Path

from thalweg.core import as_path

MOST_BYTES = 2**32  # of memory for one file: a damaged or hostile file may claim any size
MOST_UNPACKED = 2**30  # of one compressed file; the largest of the catalogue unpacks to 180 MB
_COMPRESSIONS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_CHUNK = 2**20


def require_file(path: str | Path, what: str) -> Path:
    """The path, if it is a regular file; else a ValueError that says what was expected.

    Reading a pipe could block forever, and a device may have no end.
    """
    place = as_path("path", path)
    if place.is_file():
        return place
    got = "a folder" if place.is_dir() else "a pipe, a socket or a device" if place.exists() else "nothing"
    raise ValueError(f"{place}: expected {what}, got {got}; check the path")


def read_bounded(place: Path, most: int, fix: str) -> bytes:
    """The content of a file of at most ``most`` bytes; ``fix`` says in the error what to do about a larger one."""
    size = place.stat().st_size
    if size > most:
        raise ValueError(f"{place}: expected at most {most / 1e6:.0f} MB, got {size / 1e6:.0f} MB; {fix}")
    with place.open("rb") as stream:
        return read_at_most(stream, most)


def read_at_most(stream: BufferedIOBase, most: int) -> bytes:
    """At most ``most`` bytes of a stream, read in pieces, since ``read(most)`` may allocate ``most`` bytes at once."""
    content = bytearray()
    while len(content) < most and (piece := stream.read(min(_CHUNK, most - len(content)))):
        content += piece
    return bytes(content)


def read_gzipped(place: Path) -> bytes:
    """The content of a file, unpacked if its content is gzipped; browsers often unpack a file and keep its name."""
    content = read_bounded(place, MOST_UNPACKED, "split it, or save its arrays as .npy")
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        with gzip.GzipFile(fileobj=BytesIO(content)) as stream:
            unpacked = read_at_most(stream, MOST_UNPACKED + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{place}: expected a complete gzip file, got a damaged one ({error}); get it again"
        ) from error
    if len(unpacked) > MOST_UNPACKED:
        raise ValueError(
            f"{place}: expected at most {MOST_UNPACKED / 1e6:.0f} MB unpacked, got more from "
            f"{len(content) / 1e6:.3g} MB; get it again from a source you trust"
        )
    return unpacked


def check_member(member: zipfile.ZipInfo, archive: Path, most: int) -> zipfile.ZipInfo:
    """The member of a zip archive, if it is a plain file, stored or deflated, not encrypted and not too large."""
    mode = member.external_attr >> 16
    if member.is_dir() or (stat.S_IFMT(mode) not in (0, stat.S_IFREG)):
        problem, fix = "a folder, a link or a device", "pack files only"
    elif member.flag_bits & 1:
        problem, fix = "an encrypted one", "pack it without a password"
    elif member.compress_type not in _COMPRESSIONS:
        problem, fix = f"compression method {member.compress_type}", "pack it anew, stored or deflated"
    elif member.file_size > most:
        problem, fix = f"{member.file_size / 1e6:.0f} MB (the limit is {most / 1e6:.0f} MB)", "save it in parts"
    else:
        return member
    raise ValueError(f"{archive}: expected a plain file as its member {member.filename[:80]!r}, got {problem}; {fix}")
