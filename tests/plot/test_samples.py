"""Samples are drawn by their shape; animations have the frames asked for, and are GIFs."""

import io
import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import thalweg as tw
from thalweg.samplers import Chains

WELLS = tw.energies.DoubleWell(8.0)
LINE = tw.as_energy(lambda x: (x[0] - 2.0) ** 2 / 2, tw.Real(1))


def points(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


def pictures(animation) -> list[np.ndarray]:
    image = Image.open(io.BytesIO(animation.gif()))
    frames = []
    for number in range(image.n_frames):
        image.seek(number)
        frames.append(np.asarray(image.convert("RGB"), float))
    return frames


def test_every_column_has_a_histogram_under_its_name():
    figure = tw.plot.samples(points(200, 3), points(100, 3), names=("width", "height", "weight"))
    assert [axes.get_xlabel() for axes in figure.axes] == ["width", "height", "weight"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["200 samples", "100 real ones"]


def test_of_many_columns_the_first_are_drawn_and_the_others_counted():
    figure = tw.plot.samples(points(50, 40))
    assert len(figure.axes) == 24
    assert figure.get_supxlabel() == "the first 24 of 40 columns"


def test_chains_are_taken_together():
    ran = Chains(jnp.asarray(points(4, 25, 2)), {}, None)
    assert tw.plot.samples(ran).axes[0].get_title(loc="left") == "100 samples"


def test_whole_numbers_have_a_bar_each():
    (axes,) = tw.plot.samples(np.array([0, 1, 1, 3])).axes
    heights, edges, _ = axes.patches[0].get_data()
    assert edges.tolist() == [-0.5, 0.5, 1.5, 2.5, 3.5]
    assert heights.tolist() == [0.25, 0.5, 0.0, 0.25]


@pytest.mark.parametrize(("low", "shade"), [(0.0, 0.0), (-1.0, 0.0)])
def test_images_of_bits_and_of_spins_use_all_of_black_and_white(low, shade):
    images = np.where(np.arange(16).reshape(1, 4, 4) % 2, 1.0, low)
    sheet = tw.plot.samples(images).axes[0].images[0].get_array()
    assert sheet[0, 0, 0] == shade and sheet[0, 1, 0] == 1.0


def test_an_animation_of_chains_moves_and_can_be_saved(tmp_path):
    animation = tw.plot.animate(WELLS, points(5, 30, 2), frames=4)
    frames = pictures(animation)
    assert len(frames) == animation.frames == 4
    assert all(np.abs(a - b).max() > 50 for a, b in itertools.pairwise(frames))
    assert animation.save(tmp_path / "new" / "chains.gif").read_bytes() == animation.gif()
    assert animation._repr_html_().startswith('<img alt="animation" src="data:image/gif;base64,R0lGOD')


def test_chains_on_the_line_sit_on_the_curve():
    assert len(pictures(tw.plot.animate(LINE, points(5, 30, 1), frames=2))) == 2


@pytest.mark.parametrize("data", [None, points(50, 2)])
def test_an_animation_of_training_has_a_picture_for_each_model(data):
    models = {0: tw.energies.DoubleWell(1.0), 10: tw.energies.DoubleWell(4.0), 20: WELLS}
    frames = pictures(tw.plot.animate(models, data))
    assert len(frames) == 3 and np.abs(frames[0] - frames[2]).max() > 50
    assert len(pictures(tw.plot.animate(list(models.values()), data, frames=2))) == 2


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: tw.plot.samples(np.zeros((0, 2))), "expected at least one row"),
        (lambda: tw.plot.samples(points(5, 3), names=("a",)), "expected a name for each of 3 columns, got 1"),
        (lambda: tw.plot.samples({"a": points(5, 3)}), "expected draws in one array"),
        (lambda: tw.plot.samples(np.array([["a"]])), "expected an array of numbers"),
        (lambda: tw.plot.animate(WELLS), "expected chains to move on the energy"),
        (lambda: tw.plot.animate([]), "expected at least one model"),
        (lambda: tw.plot.animate([WELLS, 3]), "expected an energy, a callable"),
        (lambda: tw.plot.animate(WELLS, points(4, 9, 3)), "expected draws of one or two dimensions, got 3"),
        (lambda: tw.plot.animate(WELLS, points(4, 9, 2), frames=1), "expected frames to be a whole number >= 2"),
        (lambda: tw.plot.animate(WELLS, points(4, 9, 2), frames=2).save("chains.mp4"), "ends in .gif"),
        (lambda: tw.plot.Animation([]), "expected at least one picture"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(draw, words):
    with pytest.raises(ValueError, match=words) as refused:
        draw()
    assert "\n" not in str(refused.value)
