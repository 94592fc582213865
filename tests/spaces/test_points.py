"""Points that users give are converted where nothing is lost and refused in one sentence elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.spaces import as_points, require_gradient

MIXED = tw.Product(a=tw.Real(2), b=tw.Binary(3))
NESTED = tw.Product(tw.Real(), MIXED)


def good(rows=4):
    return {"a": jnp.zeros((rows, 2)), "b": np.ones((rows, 3), np.uint8)}


@pytest.mark.parametrize("kind", ["bool", "uint8", "int8", "int64", "uint64", "float16", "float32", "float64"])
def test_whole_numbers_of_every_kind_become_those_of_the_space(kind):
    given = np.array([[0, 1, 1], [1, 0, 0]])
    on_device = jnp.asarray(given).astype(kind.replace("64", "32"))
    for points in (
        as_points(tw.Binary(3), given.astype(kind)),
        as_points(tw.Binary(3), on_device),
    ):
        assert points.dtype == jnp.int32 and points.tolist() == given.tolist()
    assert as_points(tw.Counts(3), given.astype(kind)).dtype == jnp.int32


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
@pytest.mark.parametrize("space", [tw.Real(2), tw.Positive(2), None])
def test_real_numbers_of_every_width_become_those_of_the_space(kind, space):
    points = as_points(space, np.full((3, 2), 0.5, kind))
    assert isinstance(points, jax.Array) and points.dtype == jnp.float32 and points.shape == (3, 2)


def test_floating_starts_of_any_width_work_in_double_precision():
    with jax.enable_x64(True):
        for kind in ("float16", "float32", "float64"):
            assert as_points(tw.Real(2), jnp.ones((3, 2), kind)).dtype == jnp.float64
            assert as_points(tw.Positive(2), np.ones((3, 2), kind)).dtype == jnp.float64


def test_an_array_that_is_right_is_passed_on_as_it_is():
    for space, x in ((tw.Real(2), jnp.full((3, 2), jnp.nan)), (None, jnp.zeros((3, 2))), (tw.Positive(), jnp.ones(4))):
        assert np.shares_memory(np.asarray(as_points(space, x)), np.asarray(x))


def test_trees_keep_their_form():
    points = as_points(NESTED, [np.zeros(4), good()])
    assert isinstance(points, tuple) and set(points[1]) == {"a", "b"}
    assert points[1]["b"].dtype == jnp.int32 and points[0].shape == (4,)
    unknown = as_points(None, {"w": np.zeros((4, 2)), "n": (np.arange(4),)})
    assert unknown["w"].shape == (4, 2) and unknown["n"][0].dtype == jnp.int32
    assert as_points(None, [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]).shape == (3, 2)
    assert as_points(tw.Real(2), [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]).shape == (3, 2)


def test_inside_a_traced_function_shapes_and_types_are_checked_alone():
    assert jax.jit(lambda x: as_points(tw.Spin(2), x))(jnp.zeros((3, 2))).dtype == jnp.int32
    assert jax.jit(lambda x: as_points(None, x))(jnp.zeros((3, 2), jnp.uint8)).dtype == jnp.int32
    with pytest.raises(ValueError, match=r"expected init of shape \(n, 2\), got \(3, 4\)"):
        jax.jit(lambda x: as_points(tw.Spin(2), x))(jnp.zeros((3, 4)))


class Disc(tw.spaces.Space):
    """A user's own space, which knows `contains` alone."""

    shape: tuple[int, ...] = (2,)

    @property
    def dtype(self):
        return jnp.result_type(float)

    def contains(self, x):
        return jnp.sum(x**2) < 1

    def noise(self, key, shape):
        return jax.random.uniform(key, (*shape, 2)) / 2


def test_a_users_own_space_is_asked():
    assert as_points(Disc(), jnp.full((3, 2), 0.5)).shape == (3, 2)
    with pytest.raises(ValueError, match=r"expected points of Disc.* in init, got \[2. 0.\] in row 1"):
        as_points(Disc(), jnp.array([[0.5, 0.5], [2.0, 0.0]]))


REFUSED = [
    (tw.Real(2), "abc", r"expected arrays of numbers in init, got the text 'abc'"),
    (tw.Real(2), None, r"expected arrays of numbers in init, got None"),
    (tw.Real(2), [[1.0, "a"]], r"expected arrays of numbers in init, got a list of 1"),
    (tw.Real(2), [[1.0, 2.0], [3.0]], r"expected arrays of numbers in init, got a list of 2"),
    (tw.Real(2), object(), r"expected arrays of numbers in init, got a object"),
    (tw.Real(2), {"a": 1}, r"expected arrays of numbers in init, got a dict of 1"),
    (None, {"a": jnp.zeros((2, 2)), "b": "abc"}, r"expected arrays of numbers in init, got the text 'abc'"),
    (None, {"a": jnp.zeros((2, 2)), "b": None}, r"expected arrays of numbers in init, got None"),
    (None, {}, r"expected at least one array in init, got a dict of 0"),
    (None, {"a": jnp.zeros(2), 1: jnp.zeros(2)}, r"expected a tree of arrays in init, got one whose keys"),
    (None, {"a": jnp.zeros((2, 2)), "b": jnp.zeros(3)}, r"same number of points in all parts of init, got 2, 3"),
    (None, jax.random.key(0)[None], r"expected real numbers in init, got key<fry>"),
    (None, 3.0, r"expected init of shape \(n, \*event\), got a scalar"),
    (None, np.array([[1.0], [np.nan]]), r"expected finite numbers in init, got \[nan\] in row 1"),
    (tw.Real(1), np.ma.masked_array([[1.0], [2.0]], mask=[[0], [1]]), r"plain numbers in init, got a masked array"),
    (None, np.ma.masked_array([1.0, 2.0]), r"plain numbers in init, got a masked array"),
    (tw.Real(1), np.array([[1j]]), r"expected real numbers in init, got complex128"),
    (tw.Binary(1), jnp.array([[1j]]), r"expected real numbers in init, got complex64"),
    (tw.Real(2), np.array([["2020-01-01", "2020-01-02"]], "datetime64[D]"), r"expected arrays of numbers in init"),
    (tw.Real(2), jnp.zeros((3, 4)), r"expected init of shape \(n, 2\), got \(3, 4\)"),
    (tw.Real(2), jnp.zeros(2), r"expected init of shape \(n, 2\), got \(2,\)"),
    (tw.Real(()), jnp.zeros(()), r"expected init of shape \(n, \), got a scalar"),
    (tw.Real(2), jnp.zeros((0, 2)), r"expected at least one point in init, got none"),
    (tw.Real(2), jnp.zeros((3, 2), int), r"expected floating-point numbers in init, got int32; convert with init.ast"),
    (tw.Real(2), np.zeros((3, 2), bool), r"expected floating-point numbers in init, got bool"),
    (tw.Real(1), np.array([[1.0], [np.inf]]), r"expected points of Real\(shape=\(1,\)\) in init, got \[inf\] in row 1"),
    (tw.Real(1), np.array([[1e300]]), r"expected points of Real.* in init, got \[inf\] in row 0"),
    (tw.Spin(2), jnp.zeros((3, 2)), r"expected points of Spin\(shape=\(2,\)\) in init, got \[0 0\] in row 0"),
    (tw.Spin(2), np.full((3, 2), 7, np.uint8), r"expected points of Spin.* in init, got \[7 7\] in row 0"),
    (tw.Categorical(2, 3), np.array([[0, 2], [1, 3]]), r"expected points of Categorical.* got \[1 3\] in row 1"),
    (tw.Counts(1), np.array([[2**40]]), r"expected whole numbers below 2\^31 in init, got 1099511627776 in row 0"),
    (tw.Counts(1), np.array([[2.0**40]]), r"expected whole numbers below 2\^31 in init, got 1099511627776.0 in row 0"),
    (tw.Counts(1), np.array([[2.0**31]], np.float32), r"expected whole numbers below 2\^31 in init, got 2147483648.0"),
    (tw.Counts(1), np.array([[1.0], [0.5]]), r"expected whole numbers in init, got 0.5 in row 1"),
    (tw.Counts(1), np.array([[np.nan]]), r"expected whole numbers below 2\^31 in init, got nan in row 0"),
    (None, np.array([[2**40]]), r"expected whole numbers below 2\^31 in init, got 1099511627776"),
    (tw.Positive(1), jnp.array([[1.0], [-2.5]]), r"expected points of Positive.* in init, got \[-2.5\] in row 1"),
    (tw.Interval(0, 1), jnp.array([0.5, 1.0]), r"expected points of Interval.* in init, got 1. in row 1"),
    (tw.Simplex(2), jnp.array([[0.5, 0.6]]), r"expected points of Simplex\(n=2\) in init, got \[0.5 0.6\] in row 0"),
    (
        tw.PositiveDefinite(2),
        -jnp.eye(2)[None],
        r"expected points of PositiveDefinite.* got \[\[-1. -0.\] \[-0. -1.\]\]",
    ),
    (MIXED, jnp.zeros((3, 2)), r"expected a dictionary with the keys \['a', 'b'\] in init, got an array of float32"),
    (
        MIXED,
        {"a": jnp.zeros((3, 2))},
        r"expected a dictionary with the keys \['a', 'b'\] in init, got the keys \['a'\]",
    ),
    (MIXED, good() | {"b": jnp.full((4, 3), 2)}, r"points of Binary.* in init\['b'\], got \[2 2 2\] in row 0"),
    (MIXED, good() | {"a": jnp.zeros((5, 2))}, r"same number of points in all parts of init, got 4, 5"),
    (
        NESTED,
        (jnp.zeros(4),),
        r"expected a tuple of 2 arrays in init, one for each part of the product, got a tuple of 1",
    ),
    (NESTED, (jnp.zeros(4), good() | {"b": "x"}), r"expected arrays of numbers in init\[1\]\['b'\], got the text 'x'"),
]


@pytest.mark.parametrize(("space", "x", "message"), REFUSED)
def test_input_that_is_not_a_point_is_refused_in_one_sentence(space, x, message):
    with pytest.raises(ValueError, match=message) as error:
        as_points(space, x)
    assert len(str(error.value)) < 400 and not str(error.value).endswith(".")


def test_the_refusal_names_what_was_checked():
    with pytest.raises(ValueError, match=r"in data, got .*convert with data.astype"):
        as_points(tw.Real(2), jnp.zeros((3, 2), int), "data")


def test_gradients_are_asked_of_every_part():
    require_gradient("HMC", tw.Product(tw.Real(2), tw.Product(a=tw.Positive())), (jnp.zeros(2), {"a": jnp.ones(())}))
    with pytest.raises(
        ValueError, match=r"expected a continuous space for HMC, got Binary\(shape=\(3,\)\) in a product"
    ):
        require_gradient("HMC", NESTED, None)
    with pytest.raises(ValueError, match="expected floating-point numbers for HMC, got int32"):
        require_gradient("HMC", None, {"a": jnp.zeros(2), "b": jnp.arange(3)})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tw.Real("2"), "expected a shape of positive sizes, got"),
        (lambda: tw.Real(2.5), "expected a shape of positive sizes, got"),
        (lambda: tw.Real(True), "expected a shape of positive sizes, got"),
        (lambda: tw.Positive((2, None)), "expected a shape of positive sizes, got"),
        (lambda: tw.Binary(-1), "expected a shape of positive sizes, got"),
        (lambda: tw.Simplex(0), "expected a size n >= 1, got 0"),
        (lambda: tw.Simplex(2.5), "expected a size n >= 1, got 2.5"),
        (lambda: tw.PositiveDefinite(True), "expected a size n >= 1, got True"),
        (lambda: tw.Categorical(2, 2.5), "expected k >= 2 labels, got 2.5"),
        (lambda: tw.Categorical(2, "3"), "expected k >= 2 labels, got '3'"),
        (lambda: tw.Interval(float("nan"), 1.0), "expected a finite bound of an interval, got nan"),
        (lambda: tw.Interval(0.0, float("inf")), "expected a finite bound of an interval, got inf"),
        (lambda: tw.Interval("0", 1.0), "expected a number as a bound of an interval, got '0'"),
        (lambda: tw.Interval(0.0, None), "expected a number as a bound of an interval, got None"),
        (lambda: tw.Interval(1.0, 1.0 + 1e-9), "expected an interval that float32 numbers can fill"),
        (lambda: tw.Interval(-3e38, 3e38), "expected an interval that float32 numbers can fill"),
        (lambda: tw.Product(tw.Real(2), a=tw.Real(2)), "expected spaces all with names or all without, got both"),
        (lambda: tw.Product(2), "expected a space for every part, got 2"),
        (lambda: tw.Product(tw.Real), "expected a space for every part, got <class"),
    ],
)
def test_impossible_spaces_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
