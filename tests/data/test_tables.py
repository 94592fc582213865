import numpy as np
import pytest

from thalweg.data import read_csv, read_npy, read_npz, standardise


def table(tmp_path, text, **options):
    file = tmp_path / "t.csv"
    file.write_text(text, encoding=options.pop("encoding", "utf-8"))
    return read_csv(file, **options)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("1,2\n3,4.5\n", ("0", "1")),
        ("a,b\n1,2\n3,4.5\n", ("a", "b")),
        ("\ufeffa;b\n1;2\n3;4.5\n", ("a", "b")),
        ("a\tb\r\n1\t2\r\n\r\n3\t4.5", ("a", "b")),
        ('"a, long",b\n 1 , 2\n3,"4.5"\n', ("a, long", "b")),
        ("1990,b\n1,2\n3,4.5\n", ("1990", "b")),
        (",b\n1,2\n3,4.5\n", ("0", "b")),
    ],
)
def test_headers_and_delimiters(text, columns, tmp_path):
    got = table(tmp_path, text)
    assert got.columns == columns and got.y is None and got.x.dtype == np.float32
    np.testing.assert_array_equal(got.x, [[1, 2], [3, 4.5]])


def test_labels(tmp_path):
    text = "a,kind,b\n1,7,2\n3,-2,4\n"
    for label in ("kind", 1, -2):
        got = table(tmp_path, text, label=label)
        assert got.columns == ("a", "b") and got.classes is None and got.y.dtype == np.int32
        np.testing.assert_array_equal(got.x, [[1, 2], [3, 4]])
        np.testing.assert_array_equal(got.y, [7, -2])
    words = table(tmp_path, "1,sun\n2,rain\n3,sun\n", label=1)
    assert words.classes == ("rain", "sun") and len(words.x) == 3, "text in every row is no header"
    np.testing.assert_array_equal(words.y, [1, 0, 1])
    assert table(tmp_path, "1,0.5\n2,1.5\n", label=1).classes == ("0.5", "1.5")
    with pytest.raises(ValueError, match=r"expected a label column among a, kind, b, got 'sort'"):
        table(tmp_path, text, label="sort")
    with pytest.raises(ValueError, match=r"expected a label column among a, kind, b, got 3"):
        table(tmp_path, text, label=3)
    with pytest.raises(ValueError, match=r"expected a label in row 2, column 'kind', got a missing value"):
        table(tmp_path, "a,kind\n1,x\n2,\n", label="kind")
    with pytest.raises(ValueError, match=r"expected a column of numbers beside the labels, got none"):
        table(tmp_path, "kind\n1\n2\n", label="kind")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.csv: expected at least one row of numbers, got an empty table"),
        ("a,b\n", "expected at least one row of numbers, got an empty table"),
        ("\n\n", "expected at least one row of numbers"),
        ("a,b\n1,2\n3,\n", "row 2, column 'b', got a missing value; fill in the value or remove the row"),
        ("a,b\n1,2\nNaN,4\n", "row 2, column 'a', got a missing value"),
        ("1,2\n3,NA\n", "row 2, column '1', got a missing value"),
        ("nan,2\n3,4\n", "row 1, column '0', got a missing value"),
        ("1,2\n3,inf\n", "row 2, column '1', got 'inf'; fill in the value or remove the row"),
        ("1,2\n3,1e300\n", "row 2, column '1', got '1e300'"),
        ("a,b\n1,2\n3,four\n", "row 2, column 'b', got 'four'; name the column as the label or remove it"),
        ("a,b\n1,x\n3,y\n", "row 1, column 'b', got 'x'; name the column as the label"),
        ("a,b\n1,2\n3\n", "t.csv, line 3: expected 2 cells as in the first line, got 1"),
        ("a,b\n1,2\n\n3,4,5\n", "line 4: expected 2 cells as in the first line, got 3"),
    ],
)
def test_bad_tables_are_refused_by_place(text, message, tmp_path):
    with pytest.raises(ValueError, match=message) as caught:
        table(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_other_bytes_are_no_table(tmp_path):
    with pytest.raises(ValueError, match=r"expected text in UTF-8, got other bytes"):
        table(tmp_path, "größe\n1\n", encoding="latin1")
    with pytest.raises(ValueError, match=r"none.csv: expected a CSV file, got nothing; check the path"):
        read_csv(tmp_path / "none.csv")


def test_npy_and_npz(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(4, 3)), np.arange(4)
    np.save(tmp_path / "x.npy", x)
    np.testing.assert_array_equal(read_npy(tmp_path / "x.npy"), x)
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "d.npz", x=x, y=y)
        got = read_npz(tmp_path / "d.npz")
        assert list(got) == ["x", "y"]
        np.testing.assert_array_equal(got["x"], x)
        np.testing.assert_array_equal(got["y"], y)


def test_pickled_objects_are_refused(tmp_path):
    objects = np.array([{"a": 1}, None], dtype=object)
    np.save(tmp_path / "o.npy", objects, allow_pickle=True)
    with pytest.raises(
        ValueError, match=r"o.npy: expected a complete numpy array of numbers, got none \(Object arrays"
    ):
        read_npy(tmp_path / "o.npy")
    np.savez(tmp_path / "o.npz", good=np.zeros(2), bad=objects)
    with pytest.raises(ValueError, match=r"o.npz: bad: expected a complete numpy array of numbers, got none"):
        read_npz(tmp_path / "o.npz")


def test_every_truncated_array_is_a_sentence(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(4.0))
    np.savez_compressed(tmp_path / "x.npz", x=np.arange(40.0))
    for name, read in (("x.npy", read_npy), ("x.npz", read_npz)):
        file = tmp_path / name
        content = file.read_bytes()
        for length in range(0, len(content), 3):
            file.write_bytes(content[:length])
            with pytest.raises(ValueError, match=f"{name}: expected a complete"):
                read(file)
        with pytest.raises(ValueError, match=r"expected an? .np[yz] file, got nothing"):
            read(tmp_path / f"none{name}")
    damaged = bytearray(content)
    damaged[60] ^= 0xFF
    (tmp_path / "x.npz").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"x.npz"):
        read_npz(tmp_path / "x.npz")


def test_standardise():
    rng = np.random.default_rng(0)
    x = rng.normal([3, -1e4, 0], [0.1, 50, 2], size=(500, 3)).astype(np.float32)
    x[:, 2] = 0.1  # never changes
    to_unit = standardise(x)
    z = to_unit(x)
    assert z.dtype == np.float32
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(z.std(axis=0), [1, 1, 0], atol=1e-4)
    np.testing.assert_allclose(to_unit.inverse(z), x, rtol=1e-4)
    # other rows are mapped with the training rows' numbers
    np.testing.assert_allclose(to_unit(to_unit.mean[None] + 2 * to_unit.scale), [[2, 2, 2]], rtol=1e-5)
    with pytest.raises(ValueError, match=r"got nan"):
        standardise(np.array([[np.nan]]))
