import io
import os
import pickle
import struct

import numpy as np
import pytest

from thalweg.data.pickles import read_plain_pickle


def read(content):
    return read_plain_pickle(io.BytesIO(content), "batch")


def python2_batch(data=b"abcdef", module=b"numpy.core.multiarray"):
    """A dict with a uint8 array (2, 3), opcode by opcode as Python 2 with numpy 1 wrote CIFAR-10."""
    array = (
        b"c" + module + b"\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x02K\x03\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89U" + bytes([len(data)]) + data + b"tb"
    )
    return b"\x80\x02}(U\x04data" + array + b"U\x06labels](K\x05K\x09eu."


@pytest.mark.parametrize("module", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_python_2_batch(module):
    batch = read(python2_batch(module=module))
    assert set(batch) == {b"data", b"labels"} and batch[b"labels"] == [5, 9]
    np.testing.assert_array_equal(batch[b"data"], np.frombuffer(b"abcdef", np.uint8).reshape(2, 3))


ARRAYS = {
    "uint8": np.arange(6, dtype=np.uint8).reshape(2, 3),
    "big endian": np.array([1, -2, 300], ">i2"),
    "Fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "bool": np.array([True, False]),
    "half": np.array([0.5, -2], np.float16),
    "complex": np.array([1 + 2j]),
    "no axes": np.array(3.5),
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_of_every_protocol(kind, protocol):
    got = read(pickle.dumps([ARRAYS[kind]], protocol=protocol))[0]
    assert got.dtype == ARRAYS[kind].dtype and got.shape == ARRAYS[kind].shape
    np.testing.assert_array_equal(got, ARRAYS[kind])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_types(protocol):
    content = {"a": [1, 2.5, None, True, b"bytes", "wörd", (2**70, -1)], 3: {"deep": [{}]}, "s": np.float32(1.5)}
    assert read(pickle.dumps(content, protocol=protocol)) == content


class Calls:
    """Pickles as a call of any function: what a malicious file does."""

    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


def evil(path):
    touch = f"touch {path}"
    write = f"open({str(path)!r}, 'w').close()"
    inner = np.empty(1, object)
    inner[0] = Calls(os.system, touch)
    name = struct.pack("<I", len(touch)) + touch.encode()
    return {
        "os.system": pickle.dumps(Calls(os.system, touch)),
        "system, protocol 0": f"cposix\nsystem\n(S'{touch}'\ntR.".encode(),
        "exec": pickle.dumps({"data": Calls(exec, write)}),
        "getattr": pickle.dumps(Calls(getattr, np.ndarray, "tofile")),
        "in an object array": pickle.dumps({"data": inner}),
        "dotted name": b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.",
        "runstring": b"cnumpy.testing._private.utils\nrunstring\n(V" + write.encode() + b"\n}tR.",
        "io.open": pickle.dumps(Calls(io.open, str(path), "w")),
        "instance": b"(X" + name + b"iposix\nsystem\n.",
        "subclass": python2_batch().replace(b"cnumpy\nndarray\n", b"cnumpy\nmatrix\n"),
        "other class in _reconstruct": python2_batch().replace(b"cnumpy\nndarray\n", b"cnumpy\ndtype\n"),
    }


@pytest.mark.parametrize("attack", evil("x"))
def test_malicious_pickles_are_refused_and_never_run(attack, tmp_path):
    canary = tmp_path / "ran"
    content = evil(canary)[attack]
    with pytest.raises(
        ValueError, match=r"^batch: expected only numpy arrays and plain types, got a pickle that asks for"
    ):
        read(content)
    assert not canary.exists()


def test_the_attacks_are_real(tmp_path):
    """The same bytes do run in an ordinary unpickler, so that the test above can fail."""
    canary = tmp_path / "ran"
    pickle.loads(evil(canary)["os.system"])
    assert canary.exists()


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(np.dtype("u1")),
        pickle.dumps(np.zeros(2, [("a", "f4"), ("b", "i4")])),
        pickle.dumps(np.array(["text"])),
        pickle.dumps(np.ndarray),
        python2_batch().replace(b"NNNJ", b"N(U\x01atNJ"),  # a dtype that claims fields in its state
    ],
)
def test_anything_but_arrays_of_numbers_is_refused(content):
    with pytest.raises(ValueError, match=r"expected only numpy arrays and plain types"):
        read(content)


def test_attributes_cannot_be_hung_on_the_stand_ins():
    """BUILD with a slot state calls setattr on any object; on ours it must fail rather than alter later reads."""
    for name in (
        b"cnumpy\nndarray\n",
        b"c_codecs\nencode\n",
        b"cnumpy.core.multiarray\n_reconstruct\n",
        b"cnumpy\ndtype\n",
    ):
        with pytest.raises(ValueError, match=r"batch: expected"):
            read(b"\x80\x02" + name + b"N}U\x08__call__K\x01s\x86b.")
    assert read(python2_batch())[b"labels"] == [5, 9]


def test_every_truncation_is_a_sentence():
    for content in (python2_batch(), pickle.dumps({"data": ARRAYS["uint8"], "labels": [1, 2]})):
        for length in range(len(content)):
            with pytest.raises(ValueError, match=r"^batch: expected"):
                read(content[:length])


def test_damaged_bytes_are_read_or_refused_but_never_crash():
    rng = np.random.default_rng(0)
    original = pickle.dumps({"data": ARRAYS["uint8"], "labels": [1, 2]}, protocol=2)
    refused = 0
    for _ in range(1000):
        content = bytearray(original)
        content[rng.integers(len(content))] = rng.integers(256)
        try:
            read(bytes(content))
        except ValueError as error:
            assert str(error).startswith("batch: expected")
            refused += 1
    assert 300 < refused < 1000
