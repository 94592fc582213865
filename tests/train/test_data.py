"""What `fit` reads: arrays, lists, frames, tables and data sets come to the same training."""

import jax
import numpy as np
import optax
import pandas
import polars
import pytest

import thalweg as tw
from thalweg.core import as_conditional
from thalweg.train.data import check_data

ROWS = [[0.5, 1.0], [2.0, -1.0], [3.0, 0.25]]
X = np.array(ROWS, np.float32)
LABELS = np.array([0, 2, 1])
ENERGY = tw.energies.Gaussian([0.0, 0.0], [1.0, 1.0])
CONDITIONAL = as_conditional(lambda x, c: x[0] + c, tw.Real(2), tw.Categorical((), 3))
COLUMNS = {"second": X[:, 0], "first": X[:, 1]}


@pytest.mark.parametrize(
    "data",
    [
        X,
        ROWS,
        tuple(map(tuple, ROWS)),
        pandas.DataFrame(COLUMNS),
        polars.DataFrame(COLUMNS),
        tw.data.Dataset(X, LABELS),
        tw.data.Table(X, ("a", "b"), LABELS),
    ],
    ids=["array", "lists", "tuples", "pandas", "polars", "Dataset", "Table"],
)
def test_all_kinds_of_data_are_the_same_rows(data):
    x, rows = check_data(ENERGY, data)
    assert rows == 3 and x.dtype.kind == "f" and np.array_equal(x, X)


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame])
def test_columns_of_whole_numbers_and_truth_values_become_floats(frame):
    data = frame({"count": [1, 2, 3], "wet": [True, False, True]})
    x, _ = check_data(ENERGY, data)
    assert x.dtype.kind == "f" and x.tolist() == [[1.0, 1.0], [2.0, 0.0], [3.0, 1.0]]
    assert check_data(ENERGY, [[1, 2], [3, 4]])[0].dtype.kind == "f"


@pytest.mark.parametrize(
    "data",
    [
        tw.data.Table(X, ("a", "b"), LABELS),
        tw.data.Dataset(X, LABELS),
        (pandas.DataFrame(COLUMNS), pandas.Series(LABELS)),
        (polars.DataFrame(COLUMNS), polars.Series(LABELS)),
        [ROWS, LABELS.tolist()],
    ],
    ids=["Table", "Dataset", "pandas", "polars", "lists"],
)
def test_conditions_come_along(data):
    (x, c), rows = check_data(CONDITIONAL, data)
    assert rows == 3 and np.array_equal(x, X) and np.array_equal(c, LABELS)


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame])
def test_a_column_that_is_no_number_is_named(frame):
    with pytest.raises(ValueError, match=r"expected columns of numbers, got 'kind' of (str|object|String); leave"):
        check_data(ENERGY, frame({"size": [1.0, 2.0], "kind": ["cat", "dog"]}))
    with pytest.raises(ValueError, match="expected finite numbers, got nan at index"):
        check_data(ENERGY, frame({"size": [1.0, None], "weight": [1.0, 2.0]}))
    with pytest.raises(ValueError, match="got one without columns"):
        check_data(ENERGY, frame())
    with pytest.raises(ValueError, match=r"expected rows of shape \(2,\)"):
        check_data(ENERGY, frame({"size": [1.0, 2.0]}))


def test_columns_of_one_name_are_refused():
    with pytest.raises(ValueError, match="expected columns of different names, got 'a' twice"):
        check_data(ENERGY, pandas.DataFrame(X, columns=["a", "a"]))


def test_a_frame_trains_as_its_array_does():
    settings = {"optimizer": optax.adam(0.1), "steps": 3, "batch_size": 2, "key": jax.random.key(0)}
    runs = [tw.fit(ENERGY, data, tw.objectives.NCE(), **settings) for data in (X, polars.DataFrame(COLUMNS))]
    assert np.array_equal(runs[0].history["loss"], runs[1].history["loss"])
