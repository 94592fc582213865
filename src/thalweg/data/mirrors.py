"""Download the files of the catalogue: mirrors are tried in turn, downloads resumed, and files verified."""

import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, Any, NoReturn
from urllib.parse import urlsplit

from thalweg.core import as_path
from thalweg.core.progress import progress_bar
from thalweg.data.sources import CATALOGUE, RemoteFile, Source, data_folder, find

TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 18


class _Mismatch(Exception):
    """The downloaded bytes are not the published ones."""


def download(source: str | Source, folder: str | Path | None = None, *, progress: bool = False) -> Path:
    """Download the files of a data set into `folder / name` and return that folder.

    `folder` is `data_folder()` by default. A file is first written as `.part`; an interrupted download continues there
    with an HTTP range request. It is renamed only after its SHA-256 agrees with the published one. Existing files are
    verified and left alone. If no mirror can be reached, a ConnectionError says which files to put where; wrong bytes
    are a ValueError.

    >>> download("two_moons")
    Traceback (most recent call last):
    ValueError: two_moons: expected a data set with files to get, got one that is made on the spot; just load it
    """
    entry = _entry(source) if isinstance(source, str) else source
    if not entry.files:
        raise ValueError(
            f"{entry.name}: expected a data set with files to get, got one that is made on the spot; just load it"
        )
    base = data_folder() if folder is None else as_path("folder", folder)
    place = base / entry.name
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"{place}: expected a folder to put the files in, got {error.strerror}; name another with THALWEG_DATA"
        ) from error
    for file in entry.files:
        present = find(file, place)
        if present is None:
            _fetch(file, entry, place, progress)
        elif present.name == file.name:
            _check_present(file, present)
    return place


def _entry(name: str) -> Source:
    if name not in CATALOGUE:
        known = ", ".join(entry.name for entry in CATALOGUE.values() if entry.files)
        raise ValueError(f"{name}: expected a data set of the catalogue, got an unknown name; choose one of {known}")
    return CATALOGUE[name]


def _check_present(file: RemoteFile, path: Path) -> None:
    digest = _sha256(path)
    if digest != file.sha256:
        # it may be the user's own file, so it is never deleted here
        raise ValueError(f"{path}: expected SHA-256 {file.sha256}, got {digest}; move the file away and get it again")


def _fetch(file: RemoteFile, entry: Source, place: Path, progress: bool) -> None:
    part = place / f"{file.name}.part"
    failures: list[Exception] = []
    for url in file.urls:
        resumed = part.exists() and part.stat().st_size > 0
        try:
            _attempt(url, file, part, progress)
        except _Mismatch as error:
            failures.append(error)
            if not resumed:
                continue
            # the partial file of an earlier run may be wrong, so this mirror is tried once more from the start
            try:
                _attempt(url, file, part, progress)
            except (_Mismatch, OSError, http.client.HTTPException) as second:
                failures.append(second)
                continue
        except (OSError, http.client.HTTPException) as error:
            failures.append(error)
            continue
        part.replace(place / file.name)
        return
    _give_up(entry, file, place, failures)


def _give_up(entry: Source, file: RemoteFile, place: Path, failures: list[Exception]) -> NoReturn:
    wanted = ", ".join(each.name for each in entry.files if find(each, place) is None)
    hosts = ", ".join(dict.fromkeys(urlsplit(url).netloc for url in file.urls))
    why = ", ".join(dict.fromkeys(_reason(failure) for failure in failures))
    kind = ValueError if any(isinstance(failure, _Mismatch) for failure in failures) else ConnectionError
    raise kind(
        f"{entry.name}: expected {file.name} from {hosts}, got no good copy ({why}); "
        f"try again when online, which resumes, or put {wanted} into {place}"
    ) from failures[-1]


def _reason(failure: Exception) -> str:
    if isinstance(failure, urllib.error.URLError) and not isinstance(failure, urllib.error.HTTPError):
        return str(failure.reason)  # without urllib's brackets around it
    return str(failure) or type(failure).__name__


def _attempt(url: str, file: RemoteFile, part: Path, progress: bool) -> None:
    """Complete the partial file from one mirror and verify it; remove it if that fails."""
    done = part.stat().st_size if part.exists() else 0
    if done > file.size:
        part.unlink()
        done = 0
    if done < file.size:
        _transfer(url, file, part, done, progress)
    digest = _sha256(part)
    if digest != file.sha256:
        part.unlink()
        raise _Mismatch(f"SHA-256 {digest} instead of {file.sha256}")


def _transfer(url: str, file: RemoteFile, part: Path, done: int, progress: bool) -> None:
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{url}: expected an http or https address, got another scheme; correct the mirror")
    request = urllib.request.Request(url, headers={"User-Agent": "thalweg", "Accept-Encoding": "identity"})
    if done:
        request.add_header("Range", f"bytes={done}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        start = _start(response, file, done)
        with part.open("ab") as out:
            out.truncate(start)  # a mirror without ranges sends the whole file again
            _copy(response, out, file, start, progress)
            out.flush()
            os.fsync(out.fileno())
    arrived = part.stat().st_size
    if arrived < file.size:
        raise OSError(f"{urlsplit(url).netloc} broke off after {arrived} of {file.size} bytes")


def _start(response: Any, file: RemoteFile, done: int) -> int:
    """The offset at which the response begins; an OSError, before a byte is written, if it cannot be our file."""
    if response.status == 206:
        given = response.headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", given)
        if match is None or int(match[1]) != done or int(match[2]) != file.size:
            raise OSError(f"a range 'bytes {done}-' of {file.size} bytes was answered by {given!r}")
        return done
    length = response.headers.get("Content-Length")
    if length is not None and length != str(file.size):
        raise OSError(f"{length} bytes on offer instead of {file.size}")
    return 0


def _copy(response: Any, out: IO[bytes], file: RemoteFile, start: int, progress: bool) -> None:
    megabytes = lambda count: f"{count / 1e6:.1f} MB"
    with progress_bar(file.name, file.size, shown=progress, done=start, count=megabytes) as advance:
        room = file.size - start
        # one byte more than expected is enough to know that this is another file
        while room >= 0 and (chunk := response.read(min(_CHUNK, room + 1))):
            out.write(chunk)
            room -= len(chunk)
            advance(len(chunk))


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
