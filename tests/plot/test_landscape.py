"""Landscapes: what is drawn is the energy, where its mass is; what cannot be drawn is refused in a sentence."""

import sys

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest

import thalweg as tw
from thalweg.plot.views import view
from thalweg.samplers import Chains

BOWL = tw.energies.Gaussian(jnp.array([3.0, -1.0]), jnp.diag(jnp.array([4.0, 0.25])))
FIVE = tw.energies.Gaussian(jnp.arange(5.0), jnp.eye(5))
LINE = tw.as_energy(lambda x: (x[0] - 2.0) ** 2 / 2, tw.Real(1))


def walk(event: tuple[int, ...], chains: int = 6, draws: int = 40) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(chains, draws, *event))


def named(figure) -> bool:
    axes = figure.axes[0]
    return bool(axes.get_xlabel() and axes.get_ylabel() and axes.get_title(loc="left"))


@pytest.mark.parametrize("theme", [tw.plot.LIGHT, tw.plot.DARK])
@pytest.mark.parametrize(
    "draw",
    [
        lambda **how: tw.plot.energy(BOWL, **how),
        lambda **how: tw.plot.energy(BOWL, walk((2,))[0], **how),
        lambda **how: tw.plot.energy(LINE, **how),
        lambda **how: tw.plot.energy(LINE, walk((1,))[0], **how),
        lambda **how: tw.plot.energy(FIVE, coordinates=(1, 4), **how),
        lambda **how: tw.plot.energy(FIVE, coordinates=2, **how),
        lambda **how: tw.plot.score(BOWL, **how),
        lambda **how: tw.plot.score(LINE, **how),
        lambda **how: tw.plot.score(FIVE, coordinates=(0, 1), **how),
        lambda **how: tw.plot.chains(BOWL, walk((2,)), **how),
        lambda **how: tw.plot.chains(LINE, walk((1,)), **how),
    ],
)
def test_figures_have_names_show_themselves_and_leave_no_state(draw, theme):
    before = dict(matplotlib.rcParams)
    figure = draw(theme=theme)
    assert named(figure)
    assert figure._repr_png_()[1:4] == b"PNG"
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_limits_hold_the_mass():
    seen = view("plot.energy", BOWL)
    # three deviations to both sides are inside, and ten are not
    assert (seen.low < [3 - 2 * 3, -1 - 0.5 * 3]).all() and (seen.high > [3 + 2 * 3, -1 + 0.5 * 3]).all()
    assert (seen.low > [3 - 2 * 10, -1 - 0.5 * 10]).all() and (seen.high < [3 + 2 * 10, -1 + 0.5 * 10]).all()


def test_far_and_narrow_modes_are_found():
    seen = view("plot.energy", tw.energies.Gaussian(jnp.array([200.0]), jnp.array([[9.0]])))
    assert 165 < seen.low[0] < 191 < 209 < seen.high[0] < 235


def test_a_bounded_support_is_kept():
    seen = view("plot.energy", tw.energies.Gamma(2.0, 1.0))
    (axes,) = tw.plot.energy(seen.model).axes
    x, y = axes.lines[0].get_data()
    assert np.isnan(np.asarray(y)[np.asarray(x) <= 0]).all()
    assert np.isfinite(np.asarray(y)[np.asarray(x) > 0]).all()


def test_the_curve_is_the_energy():
    (axes,) = tw.plot.energy(LINE, limits=(-1, 5)).axes
    x, y = (np.asarray(side, float) for side in axes.lines[0].get_data())
    assert x[0] == -1 and x[-1] == 5
    assert np.allclose(y, (x - 2) ** 2 / 2, atol=1e-4)


def test_the_map_is_the_energy_with_x1_across():
    seen = view("plot.energy", BOWL, limits=((0, 6), (-2, 1)))
    lines = seen.mesh(7)
    values = seen.energies(lines)
    assert values.shape == (7, 7)
    for row in range(7):
        for column in range(7):
            point = jnp.array([lines[0][column], lines[1][row]], jnp.float32)
            assert values[row, column] == pytest.approx(float(BOWL(point)), abs=1e-4)


def test_a_slice_holds_the_other_coordinates_where_it_is_told():
    at = np.array([9.0, 8.0, 7.0, 6.0, 5.0])
    seen = view("plot.energy", FIVE, None, (4, 1), at, ((0, 2), (0, 3)))
    assert seen.names == ("x₅", "x₂")
    expected = FIVE(jnp.asarray(at, jnp.float32).at[4].set(2.0).at[1].set(0.0))
    assert seen.energies([np.array([2.0]), np.array([0.0])])[0, 0] == pytest.approx(float(expected), rel=1e-5)


def test_a_slice_goes_through_the_mean_of_the_data():
    data = np.random.default_rng(0).normal(size=(50, 5))
    assert np.allclose(view("plot.energy", FIVE, data, (0, 1)).at, data.mean(axis=0), atol=1e-6)


def test_several_energies_are_drawn_side_by_side_within_the_same_limits():
    shifted = tw.energies.Gaussian(jnp.zeros(2), jnp.eye(2))
    figure = tw.plot.energy({"one": BOWL, "other": shifted, "third": BOWL, "a": BOWL, "b": BOWL})
    panels = figure.axes[:5]
    assert [axes.get_title(loc="left") for axes in panels] == ["one", "other", "third", "a", "b"]
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in panels}) == 1
    (axes,) = tw.plot.energy({"one": LINE, "two": lambda x: 2 * LINE(x)}, limits=(0, 4)).axes
    one, two = (np.asarray(line.get_ydata(), float) for line in axes.lines)
    assert np.allclose(two, 2 * one, atol=1e-4)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one", "two"]


def test_coordinates_have_the_names_given():
    figure = tw.plot.energy(FIVE, coordinates=(4, 1), names=("a", "b", "c", "d", "e"))
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("e", "b")


def test_arrows_point_along_the_score():
    figure = tw.plot.score(BOWL, limits=((0, 6), (-3, 1)))
    arrows = figure.axes[0].collections[-1]
    places = np.stack([arrows.X, arrows.Y], axis=1)
    expected = np.asarray(jax.vmap(lambda x: tw.score(BOWL, x))(jnp.asarray(places, jnp.float32)))
    length = np.linalg.norm(expected, axis=1, keepdims=True)
    drawn = np.stack([arrows.U, arrows.V], axis=1)
    assert np.allclose(drawn * length, expected, atol=1e-3)


def test_a_score_network_is_drawn_without_an_energy():
    field = tw.core.as_score(lambda x: jnp.stack([-x[1], x[0]]), tw.Real(2))
    arrows = tw.plot.score(field).axes[0].collections[-1]
    assert np.allclose(arrows.U * arrows.X + arrows.V * arrows.Y, 0, atol=1e-5)


def test_the_score_on_the_line_is_the_slope():
    x, y = (np.asarray(side, float) for side in tw.plot.score(LINE, limits=(0, 4)).axes[0].lines[-1].get_data())
    assert np.allclose(y, 2 - x, atol=1e-4)


def test_chains_are_drawn_where_they_went():
    x = walk((2,), chains=6, draws=400)
    figure = tw.plot.chains(BOWL, Chains(jnp.asarray(x), {}, None), most=2)
    lines = figure.axes[0].lines
    assert len(lines) == 2
    assert np.allclose(np.stack(lines[1].get_data(), axis=1), x[1, :300], atol=1e-6)
    assert figure.axes[0].get_title(loc="left") == "Chains on the energy: 2 of 6 chains, their first 300 draws"


def test_modes_that_no_chain_has_found_are_in_the_picture():
    wells = tw.energies.DoubleWell(8.0)
    stuck = 1 + 0.1 * walk((2,))
    axes = tw.plot.chains(wells, stuck).axes[0]
    assert axes.get_xlim()[0] < -1 and axes.get_ylim()[0] < -1


def test_chains_that_ran_off_do_not_hide_the_rest():
    x = walk((2,), chains=4, draws=500)
    x[0, 400:] = np.nan
    assert tw.plot.chains(BOWL, x).axes[0].get_xlim()[1] < 40


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: tw.plot.energy(FIVE), "expected points of one or two dimensions, got 5; choose two of them by coord"),
        (lambda: tw.plot.energy(lambda x: jnp.sum(x**2)), "knows its space, got a plain function"),
        (lambda: tw.plot.energy(lambda x: x**2, limits=(-1, 1)), "expected an energy to return a scalar"),
        (lambda: tw.plot.energy(tw.energies.Banana), "got the class Banana"),
        (lambda: tw.plot.energy(tw.energies.Ising(tw.energies.Grid((3, 3), 0.1))), "expected a continuous space"),
        (lambda: tw.plot.energy(BOWL, limits=(0, 1)), "expected limits for 2 coordinates, got 1"),
        (lambda: tw.plot.energy(BOWL, limits=((1, 0), (0, 1))), "expected limits \\(low, high\\)"),
        (lambda: tw.plot.energy(BOWL, limits="wide"), "expected limits \\(low, high\\)"),
        (lambda: tw.plot.energy(BOWL, walk((3,))[0]), "expected points of one shape, got \\(2,\\) in the energy's"),
        (lambda: tw.plot.energy(FIVE, coordinates=(0, 5)), "expected a coordinate below 5"),
        (lambda: tw.plot.energy(FIVE, coordinates=(1, 1)), "expected one or two different coordinates"),
        (lambda: tw.plot.energy(FIVE, coordinates=(0, 1, 2)), "expected one or two different coordinates"),
        (lambda: tw.plot.energy(tw.energies.Gamma(2.0, 1.0), limits=(-2, -1)), "expected a finite energy to draw"),
        (lambda: tw.plot.energy(tw.core.as_score(lambda x: -x, tw.Real(2))), "a vector field has no energy"),
        (lambda: tw.plot.energy({}), "expected at least one energy"),
        (lambda: tw.plot.energy({"a": BOWL, "b": 3}), "expected an energy, a callable"),
        (lambda: tw.plot.energy(BOWL, names=("a",)), "expected a name for each of 2 coordinates, got 1"),
        (lambda: tw.plot.chains(FIVE, walk((5,))), "expected draws of one or two dimensions, got 5"),
        (lambda: tw.plot.chains(BOWL, {"x": walk((2,))}), "expected draws in one array, got a dict"),
        (lambda: tw.plot.chains(BOWL, walk((2,)), most=0), "expected at least one chain"),
        (lambda: tw.plot.chains(LINE, walk((2,))), "expected points of one shape"),
        (lambda: tw.plot.chains(BOWL, np.full((2, 9, 2), np.nan)), "expected finite numbers to draw"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(draw, words):
    with pytest.raises(ValueError, match=words) as refused:
        draw()
    assert "\n" not in str(refused.value)
