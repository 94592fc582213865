import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thalweg.data import check_array, check_labels, hold_out


def test_good_data_comes_back_itself():
    for x in (np.ones((4, 2)), jnp.ones((4, 2)), np.ones((4, 2), np.float16), jnp.ones((4, 2), jnp.bfloat16)):
        assert check_array(x, event_shape=(2,)) is x
    assert check_array([[1.0, 2.0]]).shape == (1, 2)
    for x in (np.ones((4, 2), np.int8), np.ones((4, 2), bool), jnp.ones((4, 2), jnp.int32)):
        assert check_array(x, integers=True) is x


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (np.zeros((0, 2)), {}, r"data: expected at least one row, got an empty array of shape \(0, 2\); check"),
        (np.zeros((3, 0)), {}, r"expected at least one row, got an empty array of shape \(3, 0\)"),
        (np.float32(1), {}, "expected an array .*, got a single number; give it"),
        (np.zeros((3, 2), np.uint8), {}, "expected floats, got uint8; scale images with thalweg.data.scale_pixels"),
        (np.zeros((3, 2), bool), {}, "expected floats, got bool"),
        (np.ma.masked_array(np.zeros((3, 2)), np.eye(3, 2)), {}, "expected plain numbers, got a masked array; fill it"),
        (np.zeros((3, 2), complex), {}, "expected real numbers, got complex128"),
        (np.array(["a"]), {"integers": True}, "expected real numbers, got <U1"),
        ([[1.0], [1.0, 2.0]], {}, "expected rows of one shape, got ragged ones"),
        (np.zeros((3, 2)), {"event_shape": (3,)}, r"expected rows of shape \(3,\), .*, got \(3, 2\); reshape"),
        (np.zeros((3, 8, 8)), {"event_shape": (8, 8, 1)}, r"expected rows of shape \(8, 8, 1\), .*, got \(3, 8, 8\)"),
        (np.array([[0, 1], [np.inf, np.nan]]), {}, r"got inf at index \(1, 0\) \(2 of 4 values\); remove or fill in"),
        (jnp.array([[0, 1], [2, jnp.nan]]), {}, r"got nan at index \(1, 1\) \(1 of 4 values\)"),
        (np.zeros((0, 2)), {"name": "held-out rows"}, "^held-out rows: "),
    ],
)
def test_bad_data_gets_one_sentence(x, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        check_array(x, **options)
    assert "\n" not in str(caught.value)


def test_labels_must_match_rows():
    with pytest.raises(ValueError, match=r"expected one label per row, that is 3, got shape \(2,\)"):
        check_labels([0, 1], 3)


def test_hold_out_keeps_every_row_once_with_its_label():
    x = np.arange(50, dtype=np.float32)[:, None] * np.ones((1, 3), np.float32)
    split = hold_out(x, np.arange(50), fraction=0.3, key=jax.random.key(1))
    assert split.x_test is not None and split.y_test is not None and split.y_train is not None
    assert (len(split.x_train), len(split.x_test)) == (35, 15)
    np.testing.assert_array_equal(split.x_train[:, 0], split.y_train)
    np.testing.assert_array_equal(split.x_test[:, 0], split.y_test)
    np.testing.assert_array_equal(np.sort(np.concatenate([split.y_train, split.y_test])), np.arange(50))
    assert not np.array_equal(np.sort(split.y_test), np.arange(15)), "the rows held out are drawn, not the first ones"
    again = hold_out(x, np.arange(50), fraction=0.3, key=jax.random.key(1))
    np.testing.assert_array_equal(again.x_test, split.x_test)


@pytest.mark.parametrize("fraction", [0.0, 0.001, 0.999, 1.0, -0.5, 2.0])
def test_hold_out_needs_rows_on_both_sides(fraction):
    with pytest.raises(ValueError, match=r"fraction: expected one that leaves rows on both sides"):
        hold_out(np.zeros((50, 2)), fraction=fraction, key=jax.random.key(0))
