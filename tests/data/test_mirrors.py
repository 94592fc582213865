"""Downloads against a server on this machine: mirrors, broken transfers, ranges, wrong bytes, no network at all."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from thalweg.data import CATALOGUE, RemoteFile, Source, data_folder, download, listing

CONTENT = np.random.default_rng(0).bytes(600_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `files`; `ranges` says whether it can resume, `break_after` at how many bytes it hangs up (once)."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/good": CONTENT}
        self.ranges = True
        self.lengths = True
        self.break_after = None
        self.asked = []

    def url(self, path):
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        given = self.headers.get("Range")
        self.server.asked.append((self.path, given))
        if self.path not in self.server.files:
            return self.send_error(404)
        content = self.server.files[self.path]
        start = int(given.removeprefix("bytes=").removesuffix("-")) if given and self.server.ranges else 0
        if start:
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        if self.server.lengths:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        stop, self.server.break_after = self.server.break_after, None
        self.wfile.write(content[start : stop or len(content)])
        return None

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


@pytest.fixture
def closed():
    """The address of a port nobody listens on."""
    server = Server()
    server.server_close()
    return server.url("/good")


def source(*urls):
    file = RemoteFile("data.bin", len(CONTENT), SHA256, urls, instead=("unpacked",))
    return Source("things", "for a test", "2", (file,))


def test_download_is_whole_and_leaves_no_part(server, tmp_path):
    folder = download(source(server.url("/good")), tmp_path, progress=True)
    assert folder == tmp_path / "things"
    assert [file.name for file in folder.iterdir()] == ["data.bin"]
    assert (folder / "data.bin").read_bytes() == CONTENT
    download(source(server.url("/good")), tmp_path)
    assert len(server.asked) == 1, "what is there and right is not fetched again"


def test_folder_is_the_environments(server, tmp_path, monkeypatch):
    monkeypatch.setenv("THALWEG_DATA", str(tmp_path / "mine"))
    assert download(source(server.url("/good"))) == tmp_path / "mine" / "things"


def test_broken_transfer_is_resumed_by_the_next_run(server, tmp_path):
    server.break_after = 250_000
    with pytest.raises(ConnectionError, match=r"broke off after 250000 of 600000 bytes"):
        download(source(server.url("/good")), tmp_path)
    part = tmp_path / "things" / "data.bin.part"
    assert part.read_bytes() == CONTENT[:250_000], "what has arrived is kept"
    folder = download(source(server.url("/good")), tmp_path)
    assert (folder / "data.bin").read_bytes() == CONTENT
    assert server.asked == [("/good", None), ("/good", "bytes=250000-")]
    assert not part.exists()


def test_broken_transfer_is_resumed_by_the_next_mirror(server, tmp_path):
    server.files["/other"] = CONTENT
    server.break_after = 100_000
    folder = download(source(server.url("/good"), server.url("/other")), tmp_path)
    assert (folder / "data.bin").read_bytes() == CONTENT
    assert server.asked == [("/good", None), ("/other", "bytes=100000-")]


def test_a_server_without_ranges_starts_again(server, tmp_path):
    server.ranges = False
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "data.bin.part").write_bytes(CONTENT[:1000])
    folder = download(source(server.url("/good")), tmp_path)
    assert (folder / "data.bin").read_bytes() == CONTENT
    assert len(server.asked) == 1, "the whole file replaces the part at once"


@pytest.mark.parametrize("left", [CONTENT, CONTENT + b"more", b"x" * 1000, b"x" * 600_000, b""])
def test_any_part_left_behind_ends_well(left, server, tmp_path):
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "data.bin.part").write_bytes(left)
    folder = download(source(server.url("/good")), tmp_path)
    assert (folder / "data.bin").read_bytes() == CONTENT
    if left == CONTENT:
        assert server.asked == [], "a part that is whole needs no server"


def test_wrong_bytes_never_become_the_file(server, tmp_path):
    server.files["/bad"] = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    with pytest.raises(ValueError, match=f"things: expected data.bin from .*SHA-256 .* instead of {SHA256}") as caught:
        download(source(server.url("/bad")), tmp_path)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "things").iterdir()) == []
    folder = download(source(server.url("/bad"), server.url("/good")), tmp_path)
    assert (folder / "data.bin").read_bytes() == CONTENT


def test_another_file_is_refused_before_the_part_is_touched(server, tmp_path):
    server.files["/page"] = b"<html>over quota</html>"
    part = tmp_path / "things" / "data.bin.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT[:1000])
    for ranges in (True, False):
        server.ranges = ranges
        with pytest.raises(ConnectionError, match=r"instead of 600000|was answered by"):
            download(source(server.url("/page")), tmp_path)
        assert part.read_bytes() == CONTENT[:1000]


@pytest.mark.parametrize("extra", [0, 1, 400_000])
def test_a_server_that_tells_no_length(extra, server, tmp_path):
    server.lengths = False
    server.files["/long"] = CONTENT + bytes(extra)
    if extra:
        with pytest.raises(ValueError, match=r"SHA-256"):
            download(source(server.url("/long")), tmp_path)
        assert list((tmp_path / "things").iterdir()) == []
    else:
        assert (download(source(server.url("/long")), tmp_path) / "data.bin").read_bytes() == CONTENT


def test_mirrors_are_tried_in_turn(server, closed, tmp_path):
    folder = download(source(closed, server.url("/missing"), server.url("/good")), tmp_path)
    assert (folder / "data.bin").read_bytes() == CONTENT


def test_offline_is_one_sentence_that_says_what_to_put_where(closed, tmp_path):
    entry = source(closed)
    entry = entry._replace(files=(*entry.files, entry.files[0]._replace(name="labels.bin", instead=())))
    with pytest.raises(ConnectionError) as caught:
        download(entry, tmp_path)
    message = str(caught.value)
    assert "\n" not in message and "refused" in message
    assert message.endswith(f"or put data.bin, labels.bin into {tmp_path / 'things'}")


def test_the_users_own_files_are_left_alone(closed, tmp_path):
    (tmp_path / "things").mkdir()
    own = tmp_path / "things" / "data.bin"
    own.write_bytes(b"mine")
    with pytest.raises(ValueError, match=f"data.bin: expected SHA-256 {SHA256}, got .*; move the file away"):
        download(source(closed), tmp_path)
    assert own.read_bytes() == b"mine"
    own.rename(tmp_path / "things" / "unpacked")
    assert download(source(closed), tmp_path) == tmp_path / "things"


def test_bad_requests(tmp_path):
    with pytest.raises(ValueError, match=r"digits: expected a data set with files to get, got one that is made"):
        download("digits", tmp_path)
    with pytest.raises(ValueError, match=r"minst: expected a data set of the catalogue, .*; choose one of mnist, fash"):
        download("minst", tmp_path)
    with pytest.raises(ValueError, match=r"expected an http or https address, got another scheme"):
        download(source(f"file://{tmp_path}/secret"), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"expected a folder to put the files in, got Not a directory"):
        download(source("http://127.0.0.1:1/x"), tmp_path / "file")


def test_catalogue_is_sound():
    hosts = []
    for name, entry in CATALOGUE.items():
        assert entry.name == name
        for file in entry.files:
            assert len(bytes.fromhex(file.sha256)) == 32 and file.size > 0 and file.urls
            hosts += file.urls
    assert all(url.startswith(("https://", "http://fashion-mnist.s3-website")) for url in hosts)
    sums = [file.sha256 for entry in CATALOGUE.values() for file in entry.files]
    assert len(set(sums)) == len(sums) == 12


def test_listing_says_what_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("THALWEG_DATA", str(tmp_path))
    rows = {row.name: row for row in listing()}
    assert list(rows) == list(CATALOGUE)
    assert rows["digits"].present and rows["rings"].present and rows["rings"].size == 0
    assert not rows["mnist"].present and rows["mnist"].size == 9912422 + 28881 + 1648877 + 4542
    place = tmp_path / "mnist"
    place.mkdir()
    for part in ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte", "t10k-images.idx3-ubyte"):
        (place / part).touch()
    assert not {row.name: row for row in listing()}["mnist"].present
    (place / "t10k-labels-idx1-ubyte.gz").touch()
    assert {row.name: row for row in listing()}["mnist"].present
    assert not {row.name: row for row in listing(tmp_path / "elsewhere")}["mnist"].present
    (tmp_path / "celeba" / "img_align_celeba").mkdir(parents=True)
    (tmp_path / "celeba" / "list_attr_celeba.txt").touch()
    assert {row.name: row for row in listing()}["celeba"].present, "it loads without the partition file"


def test_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("THALWEG_DATA", "~/d")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert data_folder() == tmp_path / "d"
    for platform, variable, value, expected in [
        ("linux", "XDG_CACHE_HOME", None, tmp_path / ".cache"),
        ("linux", "XDG_CACHE_HOME", str(tmp_path / "xdg"), tmp_path / "xdg"),
        ("darwin", "XDG_CACHE_HOME", None, tmp_path / "Library" / "Caches"),
        ("win32", "LOCALAPPDATA", str(tmp_path / "local"), tmp_path / "local"),
    ]:
        monkeypatch.setenv("THALWEG_DATA", "")
        monkeypatch.setattr("sys.platform", platform)
        monkeypatch.delenv(variable, raising=False)
        if value:
            monkeypatch.setenv(variable, value)
        assert data_folder() == expected / "thalweg" / "data"
