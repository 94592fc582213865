"""The thesis's experiments: they run, and say whether they agree."""

import jax
import jax.numpy as jnp
import pytest

import thalweg as tw
from thalweg.experiments import EXPERIMENTS
from thalweg.experiments.thesis import PUBLISHED, _scored, _verdict
from thalweg.experiments.thesis_methods import METHODS, divergence, target


@pytest.mark.slow
def test_a_small_table_of_scores_has_means_errors_and_the_published_numbers(tmp_path, monkeypatch):
    monkeypatch.setenv("THALWEG_DATA", str(tmp_path))
    numbers = EXPERIMENTS["thesis-table-5-2"].run(jax.random.key(0), tmp_path, scale="smoke")
    assert [row["interval"] for row in numbers["rows"]] == [1, 5]
    for row in numbers["rows"]:
        assert row["seeds"] == 2 and row["inception_score_error"] >= 0
        assert row["frechet_distance_published"] == PUBLISHED[row["interval"]]["frechet_distance"]
        # after four updates the samples are noise, to any classifier of digits
        assert row["frechet_distance"] > 100
    assert "digits classifier" in numbers["network"] and "accuracy" in numbers["network"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["thesis-figure-3-1", "thesis-figure-3-2", "thesis-figure-3-3"])
def test_figures_over_the_rejuvenation(tmp_path, name):
    numbers = EXPERIMENTS[name].run(jax.random.key(0), tmp_path, scale="smoke")
    shares = [row["rejuvenation"] for row in numbers["rows"]]
    assert shares == ([0.5, 1.0] if name == "thesis-figure-3-3" else [0.0, 0.25, 1.0])
    assert (tmp_path / f"{name}.png").stat().st_size > 5000


@pytest.mark.slow
def test_methods_are_measured_over_the_dimension(tmp_path):
    numbers = EXPERIMENTS["thesis-table-3-1"].run(jax.random.key(0), tmp_path, scale="smoke")
    assert [(row["method"], row["dimension"]) for row in numbers["rows"]] == [(m, d) for m in METHODS for d in (2, 4)]
    learns = {row["method"] for row in numbers["rows"] if row["self_normalising"]}
    assert learns == {"adversarial NCE", "flow NCE"}
    assert all(row["seconds_per_update"] > 0 and row["megabytes"] > 0 for row in numbers["rows"])


def test_the_divergence_of_two_gaussians_is_that_of_quadrature():
    p = target(jax.random.key(1), 2)
    q = tw.energies.Gaussian(jnp.array([0.3, -0.2]), jnp.array([[1.5, 0.3], [0.3, 0.8]]))
    assert divergence(p, q) == pytest.approx(float(tw.exact.kl(p, q)), rel=1e-4)


@pytest.mark.parametrize(("last", "word"), [(3.0, "agrees"), (5.0, "disagrees"), (4.01, "undecided")])
def test_the_verdict_weighs_a_difference_against_its_error(last, word):
    def scores(value):
        distance = 600 - 100 * value
        return [{"inception_score": value + e, "frechet_distance": distance + e} for e in (-0.1, 0.0, 0.1)]

    verdict = _verdict([_scored(1, scores(4.0)), _scored(50, scores(last))])
    inception, _ = verdict.split("; ")
    assert f": {word} with the thesis" in inception
    assert inception.startswith("inception score 4.00 at interval 1")
    assert f"{last:.2f} at 50" in inception


def test_scales_and_options_that_there_are_not_are_refused(tmp_path):
    with pytest.raises(ValueError, match="expected a scale among smoke, small, thesis"):
        EXPERIMENTS["thesis-table-5-2"].run(jax.random.key(0), tmp_path, scale="huge")
    with pytest.raises(ValueError, match="expected options among none at all, got scale"):
        EXPERIMENTS["two-bumps"].run(jax.random.key(0), tmp_path, scale="small")
