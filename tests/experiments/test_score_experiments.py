"""The experiments on scores and noise: numbers that are right, figures that are drawn, at a scale of seconds."""

import io
import json

import jax
import numpy as np
import pytest
from PIL import Image

from thalweg.experiments import EXPERIMENTS, save
from thalweg.experiments.landscape import cd_landscape
from thalweg.experiments.ncsn import ncsn_digits
from thalweg.experiments.score_fields import noisy_marginals, score_field
from thalweg.experiments.score_limits import low_density_score, manifold_hypothesis
from thalweg.experiments.score_modes import ncsn_modes
from thalweg.report.figures import png


def first_key():
    return jax.random.key(0)


# made once for several tests
MADE = {
    "noisy-marginals": lambda: noisy_marginals(first_key(), rows=20_000),
    "score-field": lambda: score_field(first_key(), rows=10_000, updates=1500, width=64),
    "manifold-hypothesis": lambda: manifold_hypothesis(first_key(), rows=4000, updates=600, width=32),
    "low-density-score": lambda: low_density_score(first_key(), rows=10_000, updates=1500, width=64),
    "ncsn-modes": lambda: ncsn_modes(first_key(), rows=10_000, updates=1500, chains=3000, width=64, steps=60),
    "cd-landscape": lambda: cd_landscape(first_key(), rows=2000, updates=150, frames=4),
    "ncsn-digits": lambda: ncsn_digits(first_key(), updates=150, chains=64, channels=(16, 32), steps=3),
}
SLOW = ("cd-landscape", "ncsn-modes", "ncsn-digits", "score-field", "low-density-score", "manifold-hypothesis")


@pytest.fixture(scope="module")
def made():
    kept = {}

    def get(name):
        if name not in kept:
            kept[name] = MADE[name]()
        return kept[name]

    return get


NAMES = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in MADE]


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_drawn_with_named_axes_and_numbers_fit_into_a_file(name, made):
    figure, numbers = made(name)[:2]
    assert png(figure)[1:4] == b"PNG"
    assert figure.axes
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    # pictures of digits have no axes to name
    plotted = [axes for axes in figure.axes if axes.axison and len(axes.get_xticks()) and len(axes.get_title("left"))]
    assert plotted and all(axes.get_xlabel() for axes in plotted)


@pytest.mark.parametrize("name", MADE)
def test_it_is_in_the_table(name):
    assert name in EXPERIMENTS


def test_noise_joins_modes_and_adds_its_variance(made):
    rows = made("noisy-marginals")[1]["levels"]
    modes = [row["modes"] for row in rows]
    assert modes[0] == 3
    assert modes[-1] == 1
    assert modes == sorted(modes, reverse=True)
    for row in rows:
        # the 0.999 quantile of √n·D is 1.95
        assert row["ks"] < 1.95 / np.sqrt(20_000)
        assert row["variance_samples"] == pytest.approx(row["variance"], rel=0.04)


@pytest.mark.slow
def test_an_update_lowers_the_data_against_the_chains_and_training_brings_the_divergence_down(made):
    _, numbers, files = made("cd-landscape")
    change = numbers["first_update"]
    assert change["data"] < change["chains"]
    frames = numbers["frames"]
    assert [frame["update"] for frame in frames][:2] == [0, 1]
    assert frames[-1]["update"] == 150
    assert frames[-1]["kl"] < 0.5 * frames[0]["kl"]
    moving = Image.open(io.BytesIO(files[".gif"]))
    assert moving.format == "GIF"
    assert moving.n_frames == len(frames)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.slow
def test_a_landscape_that_does_not_confine_yet_has_a_divergence_too():
    # after 60 updates from this key exp(-E) has no finite integral over the plane
    numbers = cd_landscape(jax.random.key(2), rows=1000, updates=60, frames=2)[1]
    assert [frame["update"] for frame in numbers["frames"]] == [0, 1, 60]
    kl = [frame["kl"] for frame in numbers["frames"]]
    assert 0 < kl[-1] < 0.3 * kl[0]


@pytest.mark.slow
def test_the_animation_is_written_next_to_the_figure(made, tmp_path):
    save(tmp_path, "cd-landscape", *made("cd-landscape"))
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["cd-landscape.gif", "cd-landscape.json", "cd-landscape.png"]


@pytest.mark.slow
def test_learned_scores_are_near_the_exact_ones(made):
    numbers = made("score-field")[1]
    for place in ("line", "plane"):
        for name in ("denoising", "sliced"):
            assert numbers[place][name]["relative_error"] < 0.35


@pytest.mark.slow
def test_the_sliced_loss_has_a_floor_only_with_noise(made):
    numbers = made("manifold-hypothesis")[1]
    assert numbers["without"]["loss_end"] < 1.2 * numbers["with"]["loss_end"]
    # the loss of a batch of data may lie below the floor of its expectation by its own error
    assert numbers["with"]["loss_end"] > 1.1 * numbers["floor"]


@pytest.mark.slow
def test_the_learned_score_is_wrong_where_there_are_no_data(made):
    numbers = made("low-density-score")[1]
    tenths = numbers["deciles"]
    assert sum(row["data_share"] for row in tenths) == pytest.approx(1)
    # a property of the mixture and the mesh, not of training: nine tenths of the mass, give or take the draw
    assert tenths[-1]["data_share"] == pytest.approx(0.9, abs=0.02)
    assert numbers["relative_error_data"] < 0.2 < numbers["relative_error_mesh"]
    assert max(row["error"] for row in tenths[:5]) > 3 * tenths[-1]["error"]


@pytest.mark.slow
def test_annealed_weights_are_right_where_plain_ones_are_wrong(made):
    numbers = made("ncsn-modes")[1]
    for name in ("two", "eight"):
        assert numbers[name]["annealed"]["largest_error"] < 0.03 + 3 * numbers[name]["annealed"]["standard_error"]
        assert numbers[name]["langevin_exact"]["largest_error"] > 0.08
    # between eight modes a learned score may lead anywhere, even to near the right weights
    assert numbers["two"]["langevin_learnt"]["largest_error"] > 0.08


@pytest.mark.slow
def test_samples_from_noise_are_digits(made):
    classes = made("ncsn-digits")[1]["classes"]
    assert classes["classes_covered"] >= 6
    assert classes["mean_top_probability"] > 0.5
