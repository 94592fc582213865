"""The sampling experiments: numbers that agree with the exact ones within their errors, and figures that are drawn."""

import json
import math

import jax
import numpy as np
import pytest

from thalweg.experiments.banana import mala_banana
from thalweg.experiments.compare import histogram_distance, ks_distance, mixture_cdf
from thalweg.experiments.mixing import _exact_walk, mh_proposal_width, slow_mixing
from thalweg.experiments.slides import mh_example
from thalweg.report.figures import png

# whole experiments, as a user runs them
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def example():
    return mh_example(jax.random.key(0), draws=20_000)


@pytest.fixture(scope="module")
def banana():
    # shorter chains would still remember that they started in the middle of the banana
    return mala_banana(jax.random.key(0), draws=10_000)


@pytest.fixture(scope="module")
def slow():
    return slow_mixing(jax.random.key(0))


@pytest.fixture(scope="module")
def widths():
    return mh_proposal_width(jax.random.key(0), widths=5, chains=32, draws=4000)


@pytest.mark.parametrize(("name", "panels"), [("example", 3), ("banana", 4), ("slow", 5), ("widths", 2)])
def test_figures_are_drawn_and_numbers_fit_into_a_file(name, panels, request):
    figure, numbers = request.getfixturevalue(name)
    assert png(figure)[1:4] == b"PNG"
    assert len(figure.axes) == panels
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers


def test_distances_are_those_of_their_definitions():
    x, cdf = np.random.default_rng(0).normal(size=2000), mixture_cdf([1.0], [0.0], [1.0])
    # the 0.999 quantile of √n·D is 1.95
    assert ks_distance(x, cdf) < 1.95 / math.sqrt(2000)
    # a shift by a deviation moves Φ by 2Φ(½) - 1 = 0.383 at most, and is that far off in total variation
    edges = np.linspace(-5, 5, 201)
    assert ks_distance(x + 1, cdf) == pytest.approx(0.383, abs=0.04)
    assert histogram_distance(np.random.default_rng(1).normal(1.0, size=10**6), edges, cdf) == pytest.approx(
        0.383, abs=0.005
    )


@pytest.mark.parametrize("name", ["mean", "first_mass"])
def test_mh_example_agrees_within_its_errors(example, name):
    row = example[1][name]
    # four standard errors: a false alarm in some thousand seeds, as an error from 700 effective draws is known to 5 %
    for how in ("chain", "chains", "exact_samples"):
        assert abs(row[how] - row["exact"]) < 4 * row[f"{how}_error"]
    assert row["chains_error"] < 0.15 * (1 if name == "mean" else 0.3)


def test_mh_example_is_near_the_law_and_knows_how_far(example):
    numbers = example[1]
    acceptance, time = _exact_walk(1.0)
    # 80000 draws over τ = 109, counted by ranks instead of values: the same within a third
    assert numbers["ess_bulk"] == pytest.approx(80_000 / time, rel=0.33)
    assert numbers["acceptance"] == pytest.approx(acceptance, abs=0.01)
    # Kolmogorov's 0.999 quantile, for the effective number of draws
    assert numbers["ks"]["chains"] < 1.95 / math.sqrt(numbers["ess_bulk"])
    assert numbers["ks"]["exact_samples"] < 1.95 / math.sqrt(20_000)
    assert numbers["total_variation"]["exact_samples"] < numbers["total_variation"]["chain"] < 0.2


def test_mala_banana_agrees_within_its_errors(banana):
    numbers = banana[1]
    assert [row["exact"] for row in numbers["variance"]] == [4.0, 3.0]
    for name, most in (("mean", 0.25), ("variance", 1.0)):
        for row in numbers[name]:
            # five errors: so few excursions into the ends of the banana leave the estimated error up to half too small
            assert abs(row["chains"] - row["exact"]) < 5 * row["chains_error"]
            assert abs(row["exact_samples"] - row["exact"]) < 4 * row["exact_samples_error"]
            assert row["chains_error"] < most
    for row in numbers["ks"]:
        assert row["exact_samples"] < 1.95 / math.sqrt(10_000)
        assert row["chains"] < 1.95 / math.sqrt(numbers["ess_bulk"])
    assert 0.6 < numbers["acceptance"] < 0.85


def test_langevin_gets_the_weights_wrong_and_the_others_right(slow):
    numbers = slow[1]
    assert numbers["weights"] == [0.8, 0.2]
    # the standard error of 1000 independent chains is 0.013
    assert numbers["langevin"]["weights"][0] < 0.8 - 0.15
    for name in ("annealed", "tempering", "exact_samples"):
        row = numbers[name]
        assert row["weights"][0] == pytest.approx(0.8, abs=0.03)
        assert row["weights_error"] == pytest.approx(math.sqrt(0.16 / 1000), rel=0.1)
        assert row["ks"] < 0.05 < numbers["langevin"]["ks"]
        assert np.all(np.abs(np.subtract(row["mean"], 3.0)) < 4 * np.array(row["mean_error"]))


def test_r_hat_tells_which_chains_are_stuck(slow):
    numbers = slow[1]
    assert numbers["langevin"]["rhat"] > 1.5
    assert numbers["tempering"]["rhat"] < 1.05
    assert all(0.3 < rate < 0.9 for rate in numbers["tempering"]["swap_rates"])


def test_acceptance_and_effective_size_are_the_exact_ones(widths):
    for row in widths[1]["widths"]:
        assert row["acceptance"] == pytest.approx(row["acceptance_exact"], abs=0.012)
        if row["ess_per_draw_exact"] * 4000 > 40:  # shorter chains than 40 autocorrelation times cannot tell
            assert row["ess_per_draw"] == pytest.approx(row["ess_per_draw_exact"], rel=0.2)


def test_the_optimum_lies_between_too_timid_and_too_bold(widths):
    best = widths[1]["optimum"]
    assert 4 < best["width"] < 12
    assert best["ess_per_draw"] > 3 * max(
        widths[1]["widths"][0]["ess_per_draw"], widths[1]["widths"][-1]["ess_per_draw"]
    )


def test_the_mesh_has_the_time_of_a_walk_that_is_known():
    """With steps far wider than the density a proposal is accepted rarely and then forgets: τ → 2/acceptance - 1."""
    acceptance, time = _exact_walk(1000.0)
    held = 1 - acceptance
    assert time > (1 + held) / (1 - held) * 0.9
    assert _exact_walk(0.5)[1] / _exact_walk(1.0)[1] == pytest.approx(4, rel=0.15)  # diffusion: τ ∝ 1/w²
