"""Figures: drawn for every kind of point, with named axes, and without leaving anything behind in matplotlib."""

import io
import sys

import matplotlib
import numpy as np
import pytest
from PIL import Image

from thalweg.plot.points import as_colour, bins, frame, mosaic, spread
from thalweg.report import figures

STEPS = np.array([0, 1, 4, 9, 16])


def points(event: tuple[int, ...], rows: int = 50, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, *event))


def pixels(figure) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(figures.png(figure))).convert("RGB"))


def named(figure) -> bool:
    return all(axes.get_xlabel() and axes.get_ylabel() for axes in figure.axes)


@pytest.mark.parametrize("event", [(), (1,), (2,), (5,), (8, 8), (8, 8, 1), (6, 9, 3)])
@pytest.mark.parametrize("beside", [False, True])
def test_samples_of_any_shape_are_drawn(event, beside):
    figure = figures.sample_grid(points(event), points(event, 70, 1) if beside else None)
    assert pixels(figure).std() > 1
    # one panel per set, but the two histograms of a column share theirs
    assert len(figure.axes) == (5 if event == (5,) else 2 if beside and event not in ((), (1,)) else 1)
    if len(event) < 2:
        assert named(figure)


@pytest.mark.parametrize("event", [(), (1,), (2,), (5,), (8, 8), (8, 8, 1), (6, 9, 3)])
def test_chains_of_any_shape_are_drawn(event):
    path = points((7, *event), len(STEPS))
    figure = figures.chain_trace(points((5,), 7), STEPS, path, energy_data=points((), 30))
    assert len(figure.axes) == (1 if event == (5,) else 2)
    assert named(figure)
    figures.png(figure)


def test_image_tiles_are_where_they_belong():
    tiles = as_colour(np.stack([np.full((4, 4, 1), value) for value in (-1.0, 0.0, 1.0)]))
    sheet = mosaic(tiles, columns=2)
    assert sheet.shape == (9, 9, 4)
    assert (sheet[:4, :4, :3] == 0).all()
    assert (sheet[:4, 5:, :3] == 0.5).all()
    assert (sheet[5:, :4, :3] == 1).all()
    # neither the gaps nor the place without an image are painted
    assert (sheet[4, :, 3] == 0).all()
    assert (sheet[5:, 5:, 3] == 0).all()


def test_colours_keep_their_channels_and_ends():
    image = np.stack([np.full((2, 2), value) for value in (-3.0, 0.0, 3.0)], axis=-1)[None]
    assert as_colour(image)[0, 0, 0].tolist() == [0, 0.5, 1, 1]


def test_the_film_of_a_chain_runs_from_left_to_right():
    path = np.linspace(-1, 1, len(STEPS))[:, None, None, None, None] * np.ones((1, 3, 8, 8, 1))
    film = figures.chain_trace(np.zeros((3, len(STEPS))), STEPS, path).axes[1]
    sheet = film.images[0].get_array()
    assert sheet[0, 0, 0] == 0
    assert sheet[0, -1, 0] == 1
    assert sheet[-1, 0, 0] == 0
    assert [label.get_text() for label in film.get_xticklabels()] == ["0", "1", "4", "9", "16"]


def test_a_runaway_does_not_hide_the_rest():
    x = points((2,), 1000)
    x[0] = 1e6
    low, high = frame(x)
    assert (high - low < 12).all()
    outside = int((~((x >= low) & (x <= high)).all(axis=1)).sum())
    assert 1 <= outside < 10
    assert [text.get_text() for text in figures.sample_grid(x).axes[0].texts] == [f"{outside} outside"]


def test_histogram_areas_are_one():
    values = points((), 400)
    edges = bins(values)
    figure = figures.energy_histograms(values, values + 1, values - 1)
    for patch in figure.axes[0].patches:
        heights, edges, _ = patch.get_data()
        assert 0.98 < (heights * np.diff(edges)).sum() <= 1 + 1e-9


def test_curves_say_what_a_gap_is_not_and_leave_nothing_out():
    history = {name: points((), 300) for name in ("loss", "gradient_norm", "energy_gap")} | {"new_thing": [1.0]}
    figure = figures.training_curves(history, {"mean_top_probability": (np.array([100, 200]), np.array([0.5, 0.9]))})
    titles = [axes.get_title(loc="right") for axes in figure.axes]
    assert titles[0] == "an energy gap is no convergence signal"
    assert not any(titles[1:])
    assert {axes.get_ylabel() for axes in figure.axes} == {
        "loss", "mean ‖∇E(x)‖", "new thing", "mean top probability"
    }  # fmt: skip
    assert named(figure)


def test_an_interval_is_drawn_as_a_band():
    updates = np.array([100, 200])
    series = {"fit": [1.0, 2.0], "fit_low": [0.5, 1.0], "fit_high": [3.0, 4.0], "fit_tail": [1.0, 1.0]}
    figure = figures.training_curves({}, {name: (updates, np.array(values)) for name, values in series.items()})
    fit, tail = figure.axes
    assert (fit.get_ylabel(), tail.get_ylabel()) == ("fit", "fit tail")
    (band,) = fit.collections
    assert {tuple(point) for point in band.get_paths()[0].vertices} >= {(100, 0.5), (200, 1.0), (100, 3.0), (200, 4.0)}
    assert not tail.collections


def test_running_mean_is_centred():
    values = np.arange(1.0, 501.0)
    axes = figures.training_curves({"loss": values}).axes[0]
    strong = axes.lines[1]
    assert np.allclose(strong.get_xdata(), strong.get_ydata())


def test_a_loss_that_is_the_gap_is_drawn_once():
    gap = points((), 30)
    (axes,) = figures.training_curves({"loss": gap, "energy_gap": gap}).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["loss = energy gap"]


def test_class_shares_are_bars():
    (axes,) = figures.class_shares([0.2, 0.8], ["cat", "dog"]).axes
    assert [bar.get_height() for bar in axes.patches] == [0.2, 0.8]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["cat", "dog"]


def test_themes_differ_and_no_state_is_left():
    before = dict(matplotlib.rcParams)
    light, dark = (pixels(figures.sample_grid(points((2,)), theme=theme)) for theme in (figures.LIGHT, figures.DARK))
    assert light.mean() > 200
    assert dark.mean() < 60
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_spread_keeps_both_ends():
    assert spread(np.arange(100), 4).tolist() == [0, 33, 66, 99]
    assert spread(np.arange(3), 10).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: figures.sample_grid(np.zeros((0, 2))), "samples: expected at least one row"),
        (lambda: figures.sample_grid(np.zeros((3, 2)), np.zeros((3, 4))), "samples' shape"),
        (lambda: figures.sample_grid(np.full((3, 2), np.nan)), "expected finite numbers to draw"),
        (lambda: figures.training_curves({}), "at least one metric"),
        (lambda: figures.chain_trace(np.zeros((5, 3)), STEPS), "transpose it"),
        (lambda: figures.chain_trace(np.zeros((3, 5)), STEPS, np.zeros((4, 3, 2))), "expected 5 frames in path"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(draw, words):
    with pytest.raises(ValueError, match=words):
        draw()


def test_metrics_that_never_change_are_named_below():
    falling = np.linspace(1.0, 0.0, 20)
    noise = 1e-7 * np.sin(np.arange(20))
    history = {"loss": falling, "effective_share": 1 + noise, "log_ratio_data": noise, "log_z": falling}
    figure = figures.training_curves(history)
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "log z"]
    assert figure.get_supxlabel() == "unchanged throughout: effective share 1, log ratio data 0"
    # a metric that is all there is keeps its panel, and one that is not finite is no constant
    assert len(figures.training_curves({"share": np.ones(5)}).axes) == 1
    assert len(figures.training_curves({"loss": falling, "share": np.full(20, np.nan)}).axes) == 2
