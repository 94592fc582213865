"""Files made to hurt: each is refused in one sentence, before it has taken memory or time out of proportion."""

import gzip
import io
import os
import pickle
import struct
import tarfile
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from thalweg.data import (
    bounds,
    decode_image,
    load,
    pickles,
    pictures,
    read_celeba,
    read_cifar10,
    read_csv,
    read_idx,
    read_image_folder,
    read_npy,
    read_npz,
    read_table,
)
from thalweg.data import folders as folders_module
from thalweg.data.pickles import read_plain_pickle


def refused(read, message):
    """The sentence of a refusal, which took less than 50 MB."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message) as caught:
            read()
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value) and str(caught.value).count("; ") >= 1
    return str(caught.value)


def unpickle(content):
    return read_plain_pickle(io.BytesIO(content), "batch")


def nested_tuples(depth):
    """``t = (t, t)`` again and again: a hundred bytes that have 2^depth leaves."""
    return b"\x80\x02K\x01" + b"q\x00h\x00\x86" * depth


PICKLES = {
    # a C unpickler takes 16 bytes for every slot up to the largest
    "far slot of the memo": b"\x80\x02K\x01r" + struct.pack("<I", 80_000_000) + b".",
    "claimed length": b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"abc.",
    "claimed frame": b"\x80\x04\x95" + struct.pack("<Q", 2**60) + b"K\x01.",
    "tuples as a key": b"\x80\x02}" + nested_tuples(60)[2:] + b"K\x01s.",
    "tuples in an array's shape": b"\x80\x02cnumpy\ndtype\n" + nested_tuples(60)[2:] + b"R.",
    "a list that holds itself": b"\x80\x02]q\x00h\x00a.",
    "one string encoded a thousand times": b"\x80\x02"
    + (b"c_codecs\nencode\nX" + struct.pack("<I", 100_000) + b"a" * 100_000 + b"q\x00X\x06\x00\x00\x00latin1q\x01\x86R")
    + b"0" * 0
    + b"q\x02("
    + b"c_codecs\nencode\nh\x00h\x01\x86R" * 1000
    + b"t\x86.",
    "persistent id": b"\x80\x02K\x01Q.",
    "build on a list": b"\x80\x02]}b.",
}


@pytest.mark.parametrize("attack", PICKLES)
def test_pickles_take_no_more_than_their_size(attack):
    content = PICKLES[attack]
    if attack in ("far slot of the memo", "claimed frame"):  # which are no harm to our reader
        tracemalloc.start()
        assert unpickle(content) == 1 and tracemalloc.get_traced_memory()[1] < 1e6
        tracemalloc.stop()
    else:
        refused(lambda: unpickle(content), r"^batch: expected")


def test_tuples_within_tuples_are_gone_through_once():
    value, depth = unpickle(nested_tuples(200) + b"."), 0
    while isinstance(value, tuple):
        value, depth = value[0], depth + 1
    assert depth == 200


def test_labels_within_labels(tmp_path):
    rows = np.zeros((2, 3072), np.uint8)
    labels = b"\x80\x02" + nested_tuples(60)[2:]
    batch = pickle.dumps({"data": rows, "labels": "here"}, protocol=2).replace(
        pickle.dumps("here", protocol=2)[2:-3], labels[2:]
    )
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        (tmp_path / name).write_bytes(batch)
    refused(lambda: read_cifar10(tmp_path), r"data_batch_1: expected")


def test_a_large_pickle_is_refused_unread(monkeypatch):
    monkeypatch.setattr(pickles, "MOST_BYTES", 100)
    refused(lambda: unpickle(pickle.dumps(np.zeros(200))), r"batch: expected a pickle of at most 0 MB, got more")


def test_gzip_bombs(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "MOST_UNPACKED", 2_000_000)
    bomb = tmp_path / "train-images-idx3-ubyte.gz"
    bomb.write_bytes(gzip.compress(bytes(100_000_000)))
    refused(lambda: read_idx(bomb), r"ubyte.gz: expected at most 2 MB unpacked, got more from 0.0972 MB; get it again")
    archive = tmp_path / "cifar-10-python.tar.gz"
    archive.write_bytes(bomb.read_bytes())
    refused(lambda: read_cifar10(archive), r"tar.gz: expected at most 2 MB unpacked")


def npy(shape, values=b"", dtype="'<f8'"):
    header = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values


@pytest.mark.parametrize(
    "content",
    [
        npy("(100000000000,)", b"\0" * 80),
        npy("(2,)", b"\0" * 80),
        npy("(10,)", b"\0" * 8),
        npy("(1000000000000000000,)", dtype="'|V0'"),
        npy("(-1, -10)", b"\0" * 80),
        npy("('a',)", b"\0" * 80),
        npy("(" * 200 + ")" * 200, b""),
    ],
)
def test_arrays_that_claim_other_sizes(content, tmp_path):
    (tmp_path / "x.npy").write_bytes(content)
    refused(lambda: read_npy(tmp_path / "x.npy"), r"x.npy: expected a complete numpy array of numbers, got none")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", content)
    refused(lambda: read_npz(tmp_path / "x.npz"), r"x.npz: x: expected a complete numpy array of numbers, got none")


def test_npz_bombs(tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, x=np.zeros(20_000_000, np.uint8))
    with monkeypatch.context() as patch:
        patch.setattr("thalweg.data.tables.MOST_UNPACKED", 10_000_000)
        refused(
            lambda: read_npz(path), r"expected a plain file as its member 'x.npy', got 20 MB \(the limit is 10 MB\)"
        )
    # a header that lies about the size: the reader stops at what it claims
    raw = bytearray(path.read_bytes())
    size = struct.pack("<I", 20_000_128)
    for start in [i for i in range(len(raw)) if raw.startswith(size, i)]:
        raw[start : start + 4] = struct.pack("<I", 1000)
    path.write_bytes(bytes(raw))
    refused(lambda: read_npz(path), r"bomb.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_odd_compressions(method, tmp_path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("x.npy", npy("(1,)", b"\0" * 8))
    refused(lambda: read_npz(path), rf"member 'x.npy', got compression method {method}; pack it anew")


def test_an_unknown_compression_and_an_encrypted_member(tmp_path):
    path = tmp_path / "x.npz"
    for offsets, value, message in (((8, 10), 99, r"compression method 99"), ((6, 8), 1, r"got an encrypted one")):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", npy("(1,)", b"\0" * 8))
        raw = bytearray(path.read_bytes())
        for mark, offset in zip((b"PK\x03\x04", b"PK\x01\x02"), offsets, strict=True):
            struct.pack_into("<H", raw, raw.index(mark) + offset, value)
        path.write_bytes(bytes(raw))
        refused(lambda: read_npz(path), message)


@pytest.mark.parametrize("name", ["../../x.npy", "/etc/x.npy", "a\\b.npy", "x\n.npy", ".npy", "n" * 300])
def test_odd_names_of_members(name, tmp_path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), npy("(1,)", b"\0" * 8))
    refused(lambda: read_npz(path), r"x.npz: expected arrays with plain names, got")


def test_links_and_folders_in_archives(tmp_path):
    path = tmp_path / "x.npz"
    link = zipfile.ZipInfo("x.npy")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(link, "/etc/hostname")
    refused(lambda: read_npz(path), r"member 'x.npy', got a folder, a link or a device; pack files only")
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("x.npy", npy("(1,)", b"\0" * 8))
        archive.writestr("x.npy", npy("(1,)", b"\0" * 8))
    refused(lambda: read_npz(path), r"arrays of different names, got 2 of which 1 differ")
    tar = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(tar, "w:gz") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            member = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
            member.type, member.linkname = kind, "/etc/hostname"
            archive.addfile(member)
    refused(lambda: read_cifar10(tar), r"expected the CIFAR-10 batches .*, got no data_batch_1")


def test_pipes_and_devices_are_not_waited_for(tmp_path):
    for name, read in {
        "x.npy": read_npy,
        "x.npz": read_npz,
        "x.csv": read_csv,
        "y.csv": read_table,
        "x-ubyte": read_idx,
        "cifar-10-python.tar.gz": read_cifar10,
        "z.csv": load,
    }.items():
        os.mkfifo(tmp_path / name)
        refused(lambda place=tmp_path / name, read=read: read(place), rf"{name}: expected .*got a")
    os.mkfifo(tmp_path / "a.png")
    refused(lambda: read_image_folder(tmp_path), r"a.png: expected an image, got a pipe, a socket or a device")
    refused(lambda: read_csv("/dev/zero"), r"/dev/zero: expected a CSV file, got a pipe, a socket or a device")
    refused(lambda: load("/dev/zero"), r"/dev/zero: expected .*got a")


def test_links_out_of_the_folder(tmp_path):
    outside, folder = tmp_path / "secret.png", tmp_path / "pictures"
    Image.new("RGB", (4, 4)).save(outside)
    (folder / "deep").mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(folder / "a.png")
    (folder / "b.png").symlink_to("a.png")
    assert len(read_image_folder(folder).x_train) == 2
    (folder / "deep" / "c.png").symlink_to(outside)
    refused(lambda: read_image_folder(folder), r"c.png: expected an image, got a link out of the folder")
    (folder / "deep" / "c.png").unlink()
    (folder / "up").symlink_to(tmp_path)  # links to folders are not followed
    assert len(read_image_folder(folder).x_train) == 2


@pytest.mark.parametrize("name", ["../secret.jpg", "/etc/passwd", "..", "a\\b.jpg", "C:x.jpg"])
def test_attribute_files_name_no_paths(name, tmp_path):
    (tmp_path / "img_align_celeba").mkdir()
    Image.new("RGB", (200, 200)).save(tmp_path / "secret.jpg")
    (tmp_path / "list_attr_celeba.txt").write_text(f"1\nMale\n{name} 1\n")
    refused(
        lambda: read_celeba(tmp_path),
        r"list_attr_celeba.txt, line 3: expected the name of a file in the images' folder, got",
    )


def test_only_the_named_formats_are_opened(tmp_path):
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n(pwned) print\n%%EOF\n"
    with Image.open(io.BytesIO(eps)) as opened:
        assert opened.format == "EPS"  # so that it is ours that refuses it
    (tmp_path / "a.png").write_bytes(eps)
    refused(lambda: read_image_folder(tmp_path), r"a.png: expected a complete image, got a damaged file \(no PNG, JPEG")
    assert set(pictures.FORMATS).isdisjoint({"EPS", "PDF", "WMF", "FITS", "HDF5", "GRIB", "BUFR", "MPO", "PSD"})


def png_bomb(side):
    """A picture of one colour whose header and pixels are a few kilobytes."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    packer = zlib.compressobj(9)
    line = b"\0" * (side // 8 + 1)
    pixels = b"".join(packer.compress(line) for _ in range(min(side, 1000))) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [8_000, 60_000])
def test_picture_bombs(side):
    refused(lambda: decode_image(io.BytesIO(png_bomb(side)), "a.png"), r"a.png: expected")


def test_large_files_are_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(folders_module, "MOST_FILE", 10)
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    refused(lambda: read_image_folder(tmp_path), r"a.png: expected at most 0 MB, got 0 MB; make the picture smaller")
    sparse = tmp_path / "t.csv"
    with sparse.open("wb") as stream:
        stream.truncate(2**40)  # takes no room on the disk
    refused(lambda: read_csv(sparse), r"t.csv: expected at most 268 MB, got 1099512 MB; take fewer rows")
    with (tmp_path / "x.npy").open("wb") as stream:
        stream.write(npy(f"({2**37 - 16},)"))
        stream.truncate(2**40)
    refused(lambda: read_npy(tmp_path / "x.npy"), r"x.npy: expected a complete numpy array of numbers, got none \(1099")
    monkeypatch.setattr("thalweg.data.cells._MOST_CELLS", 10)
    (tmp_path / "s.csv").write_text("1,2\n" * 20)
    refused(lambda: read_csv(tmp_path / "s.csv"), r"s.csv: expected at most 10 cells, got more by line 6")
