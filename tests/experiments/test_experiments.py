"""Experiments: listed without loading anything, each leaving a figure and its numbers, and the numbers right."""

import json
import math
import subprocess
import sys

import jax
import pytest
from PIL import Image

from thalweg.experiments import EXPERIMENTS, save
from thalweg.report.figures import canvas


@pytest.fixture(scope="module")
def two_bumps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduced") / "new"
    return folder, EXPERIMENTS["two-bumps"].run(jax.random.key(0), folder)


def test_every_row_is_under_its_own_name_with_a_title_and_a_source():
    for name, experiment in EXPERIMENTS.items():
        assert experiment.name == name
        assert experiment.title
        assert experiment.source


def test_listing_loads_neither_jax_nor_matplotlib():
    code = "import sys, thalweg.experiments as e; assert e.EXPERIMENTS; print({'jax', 'matplotlib'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


@pytest.mark.slow
def test_figure_and_numbers_are_written(two_bumps):
    folder, numbers = two_bumps
    assert sorted(path.name for path in folder.iterdir()) == ["two-bumps.json", "two-bumps.png"]
    assert json.loads((folder / "two-bumps.json").read_text(encoding="utf-8")) == numbers
    assert Image.open(folder / "two-bumps.png").size[0] > 1000


@pytest.mark.slow
def test_log_z_is_that_of_the_slides(two_bumps):
    log_z = two_bumps[1]["log_z"]
    assert log_z["exact"] == pytest.approx(math.log(5 * math.sqrt(2 * math.pi)), rel=1e-12)
    assert log_z["quadrature"] == pytest.approx(log_z["exact"], abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "exact"), [("mean", 0.4), ("variance", 10.84)])
def test_moments_agree_within_their_errors(two_bumps, name, exact):
    row = two_bumps[1][name]
    assert row["exact"] == exact
    assert row["quadrature"] == pytest.approx(exact, rel=1e-4)
    # four standard errors: a false alarm in 16 000 seeds, and the errors are small enough to see a bias of 1 %
    # of the standard deviation (exact samples) or a few (chains)
    for how, most in (("exact_samples", 0.012), ("chains", 0.05)):
        assert abs(row[how] - exact) < 4 * row[f"{how}_error"]
        assert row[f"{how}_error"] < most * (exact if name == "variance" else math.sqrt(10.84))


@pytest.mark.slow
def test_masses_agree_within_their_errors(two_bumps):
    masses = two_bumps[1]["masses"]
    assert masses["exact"] == [0.6, 0.4]
    assert masses["quadrature"] == pytest.approx([0.6, 0.4], abs=1e-4)
    for how in ("exact_samples", "chains"):
        assert abs(masses[how][0] - 0.6) < 4 * masses[f"{how}_error"][0]
        assert masses[f"{how}_error"][0] < 0.01
        assert sum(masses[how]) == pytest.approx(1)


@pytest.mark.slow
def test_the_chains_mixed(two_bumps):
    chains = two_bumps[1]["chains"]
    assert chains["rhat"] < 1.01
    assert chains["ess_bulk"] > 10_000
    assert chains["verdict"].startswith("The chains have mixed")


def test_a_number_that_is_not_finite_costs_none_of_the_others(tmp_path):
    rows = [{"kl": 0.5, "diverged": False}, {"kl": math.nan, "diverged": True}]
    save(tmp_path, "half", canvas(2, 1), {"rows": rows, "largest": math.inf})
    text = (tmp_path / "half.json").read_text()
    assert json.loads(text) == {"rows": [rows[0], {"kl": None, "diverged": True}], "largest": None}
    assert (tmp_path / "half.png").exists()


@pytest.mark.slow
def test_other_keys_give_other_samples(two_bumps, tmp_path):
    other = EXPERIMENTS["two-bumps"].run(jax.random.key(1), tmp_path)
    assert other["mean"]["chains"] != two_bumps[1]["mean"]["chains"]
    assert other["log_z"] == two_bumps[1]["log_z"]
