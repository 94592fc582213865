import csv

import numpy as np
import pytest

from thalweg.data import Columns, fit_columns, load, read_csv, read_table
from thalweg.data.columns import describe


def customers(count=400, seed=0):
    """Rows of text with a tail, ties, whole numbers, two and four categories, one value, and gaps."""
    random = np.random.default_rng(seed)
    income = np.exp(random.normal(10, 1, count))
    visits = np.where(random.random(count) < 0.6, 0, random.poisson(3, count))
    city = random.choice(["Rome", "Oslo", "Bern", "Lima"], count, p=[0.5, 0.3, 0.15, 0.05])
    rows = [
        [f"{income[i]:.2f}", str(visits[i]), str(city[i]), "yes" if random.random() < 0.3 else "no", "EU"]
        for i in range(count)
    ]
    rows[3][0], rows[5][2], rows[8][1] = "", "NA", "?"
    return rows


NAMES = ("income", "visits", "city", "member", "region")


def test_coordinates_are_uncorrelated_of_mean_zero_and_spread_one():
    columns = fit_columns(customers(), NAMES)
    x = columns.encode(customers())
    assert x.dtype == np.float32 and x.shape == (400, columns.width) == (400, 7)
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(np.cov(x.T), np.eye(7), atol=0.01)
    assert np.abs(x).max() < 8  # an income of a hundred times the median is no outlier any more


def test_rows_come_back_as_they_were_but_for_gaps():
    rows = customers()
    columns = fit_columns(rows, NAMES)
    for seed in (0, 1):
        back = columns.decode(columns.encode(rows, seed=seed))
        for number, (row, got) in enumerate(zip(rows, back, strict=True)):
            assert got[1:] == [int(row[1]) if number != 8 else 0, row[2] if number != 5 else "Rome", row[3], "EU"]
            if number != 3:
                assert got[0] == pytest.approx(float(row[0]), rel=0.03)
    incomes = np.array([float(row[0]) for row in rows if row[0]])
    assert back[3][0] == pytest.approx(np.median(incomes), rel=0.03)
    assert all(isinstance(got[1], int) for got in back)


def test_noise_decodes_to_the_columns_own_values_and_shares():
    rows = customers(2000)
    columns = fit_columns(rows, NAMES)
    noise = np.random.default_rng(1).standard_normal((20_000, columns.width))
    drawn = columns.decode(noise)
    cities = [row[2] for row in drawn]
    assert set(cities) == {"Rome", "Oslo", "Bern", "Lima"} and {row[4] for row in drawn} == {"EU"}
    incomes = np.array([float(row[0]) for row in rows if row[0]])
    drawn_incomes = np.array([row[0] for row in drawn])
    assert incomes.min() <= drawn_incomes.min() and drawn_incomes.max() <= incomes.max()
    np.testing.assert_allclose(np.median(drawn_incomes), np.median(incomes), rtol=0.1)
    # the margins left between two levels make the shares a little wrong before anything is trained, not more
    assert np.mean([row[3] == "yes" for row in drawn]) == pytest.approx(0.3, abs=0.08)
    far = columns.decode(1e6 * noise[:100])
    assert all(incomes.min() <= row[0] <= incomes.max() for row in far)


def test_the_columns_survive_json():
    import json

    columns = fit_columns(customers(), NAMES)
    again = Columns.from_json(json.loads(json.dumps(columns.to_json())))
    assert again == columns
    np.testing.assert_array_equal(again.encode(customers()), columns.encode(customers()))
    for tree in ({}, {"version": 2, "columns": []}, {"version": 1, "columns": [{"nam": 1}]}, {"version": 1}):
        with pytest.raises(ValueError, match=r"expected the columns of a table as to_json gives them"):
            Columns.from_json(tree)


def test_what_the_screen_says():
    columns = fit_columns(customers(), NAMES).columns
    said = [describe(column) for column in columns]
    assert said[0].startswith("numbers from ") and "; 1 missing, set to the median " in said[0]
    assert said[1].startswith("whole numbers from 0 to ") and said[1].endswith("1 missing, set to the median 0")
    assert said[2] == "4 categories: Bern, Lima, Oslo, Rome; 1 missing, set to the most frequent Rome"
    assert said[3] == "2 categories: no, yes"
    assert said[4] == "always EU, kept aside and written back as it is"
    empty = fit_columns([["", "1"], ["", "2"]], ["a", "b"]).columns[0]
    assert describe(empty) == "nothing but missing cells, kept aside and written back as it is"


DATES = [
    "2021-03-04",
    "2021-03-04T10:11:12Z",
    "2021-03-04 10:11",
    "04/03/2021",
    "3/14/21",
    "04.03.2021",
    "2021/3/4",
    "4 Mar 2021",
    "March 4, 2021",
    "04-Mar-2021",
    "10:35:00",
]


@pytest.mark.parametrize("date", DATES)
def test_dates_are_refused_by_column(date):
    rows = [["1", date], ["2", date], ["3", ""], ["5", date]]
    with pytest.raises(ValueError, match=r"^table: expected numbers or categories in column 'when', got dates such as"):
        fit_columns(rows, ["size", "when"])


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([f"name {i}" for i in range(60)], r"at most 50 categories in column 'a', got 60 different texts such as"),
        ([f"name {i % 20}" for i in range(30)], r"got 20 different texts"),
        ([str(i) for i in range(7, 27)], r"expected measured numbers in column 'a', got a count of the rows, 7 to 26"),
        ([*map(str, range(0, 40, 2)), "x1"], r"expected a number in row 21, column 'a', as in the others, got 'x1'"),
        (["1,5", "2,5", "1,5", "3,0"], r"expected decimals with a point in column 'a', got '1,5' in row 1"),
        (["1", "2", "1e40", "5"], r"expected a number below 1e30 in row 3, column 'a', got '1e40'"),
        (["7", "7", "7"], r"expected columns of more than one value"),
    ],
)
def test_columns_that_cannot_be_trained_on_are_refused_by_place(cells, message):
    with pytest.raises(ValueError, match=message) as caught:
        fit_columns([[cell] for cell in cells], ["a"])
    assert "\n" not in str(caught.value)


def test_cells_that_the_columns_do_not_know():
    columns = fit_columns([["1", "a"], ["2", "b"], ["3", "c"]], ["size", "kind"])
    with pytest.raises(ValueError, match=r"row 2, column 'kind': expected one of a, b, c, got 'd'"):
        columns.encode([["1", "a"], ["1", "d"]])
    with pytest.raises(ValueError, match=r"row 1, column 'size': expected a number, got 'big'"):
        columns.encode([["big", "a"]])
    with pytest.raises(ValueError, match=r"row 1: expected 2 cells \(size, kind\), got 1"):
        columns.encode([["1"]])
    with pytest.raises(ValueError, match=r"expected points of shape \(rows, 4\), got \(3, 2\)"):
        columns.decode(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"expected finite points"):
        columns.decode(np.full((3, 4), np.nan))
    with pytest.raises(ValueError, match=r"expected columns of different names, got 'a' twice"):
        fit_columns([["1", "2"]], ["a", "a"])


def test_a_table_from_a_file(tmp_path):
    path = tmp_path / "customers.csv"
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([["id", *NAMES], *([f"c{i}", *row] for i, row in enumerate(customers()))])
    with pytest.raises(ValueError, match=r"customers.csv: expected numbers or .* in column 'id'.*drop=\[\"id\"\]"):
        read_table(path)
    table = read_table(path, drop=["id"])
    assert table.columns.names == NAMES
    np.testing.assert_array_equal(table.x, fit_columns(customers(), NAMES).encode(customers()))
    np.testing.assert_array_equal(load(path, drop=["id"], standardise=True).x_train, table.x)
    with pytest.raises(ValueError, match=r"expected columns to drop among id, income, .*, got 'ID'"):
        read_table(path, drop=["ID"])
    with pytest.raises(ValueError, match=r"expected at least one column that is not dropped, got none"):
        read_table(path, drop=["id", *NAMES])
    with pytest.raises(ValueError, match=r"expected no label where the columns are standardised"):
        load(path, label="city", standardise=True)
    path.write_text("a,b,c\n1,2,3\n4,5,6\n")
    assert read_csv(path, drop=["b"]).columns == ("a", "c")
    np.testing.assert_array_equal(load(path, drop=["a"]).x_train, [[2, 3], [5, 6]])


def test_broken_tables_name_file_line_and_column(tmp_path):
    path = tmp_path / "t.csv"
    for content, message in {
        b"a,b\n1,2\n3\n": r"t.csv, line 3: expected 2 cells as in the first line, got 1",
        b'a,b\n1,2\n3,"4\n': r"t.csv, line 3: expected a line of a CSV table, got a broken one",
        b"a,b\n1,2\n3,caf\xe9\n": r"t.csv: expected text in UTF-8, got other bytes \(.*0xe9 in line 3, column 2\)",
        "a,b\n1,2\n".encode("utf-16"): r"t.csv: expected text in UTF-8, got other bytes \(UTF-16",
        b"": r"t.csv: expected at least one row of numbers, got an empty table",
        b"a,b\n1,2020-01-01\n2,2020-01-02\n": r"t.csv: .* in column 'b', got dates such as '2020-01-01' in row 1",
    }.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message) as caught:
            read_table(path)
        assert "\n" not in str(caught.value)
