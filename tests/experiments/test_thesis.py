"""The thesis's experiments: they run, and say whether they agree."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.experiments import EXPERIMENTS, thesis
from thalweg.experiments.thesis import PUBLISHED, _scored, _verdict, _verdict_on_shares, _verdict_on_signals
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
    assert words_of(numbers["verdict"]) == expected_words(name, numbers["rows"])


def words_of(verdict: str) -> list[str]:
    """The verdicts in a sentence, in order."""
    return re.findall(r"\b(?:dis)?agrees\b", verdict)


def expected_words(name: str, rows: list[dict]) -> list[str]:
    """What must be said of these numbers, computed from them anew.

    Figure 3.1: without rejuvenation noise lies less than a quarter as far above the data as it does between (the
    median), and with full rejuvenation fewer classes are covered than anywhere between. Figures 3.2 and 3.3: v ends
    above twice its value halfway, or not finite, if and only if there is no spectral normalisation.
    """
    if name == "thesis-figure-3-1":
        first, *between, last = rows
        gaps = sorted(row["energy_noise_above_data"] for row in between)
        middle = (gaps[(len(gaps) - 1) // 2] + gaps[len(gaps) // 2]) / 2
        fewest = min(row["classes_covered"] for row in between)
        right = [4 * abs(first["energy_noise_above_data"]) < middle, last["classes_covered"] < fewest]
    else:
        right = []
        for row in rows:
            stays = row["v_largest_last_tenth"] <= 2 * row["v_middle"] and row["updates_not_finite"] == 0
            right.append(stays == (name == "thesis-figure-3-3"))
    return ["agrees" if each else "disagrees" for each in right]


@pytest.mark.parametrize(("gap", "classes", "words"), [(0.1, 0, ("agrees", "agrees")), (1.5, 10, ("disagrees",) * 2)])
def test_the_verdict_on_rejuvenation_looks_at_both_ends(gap, classes, words):
    kept = {"energy_noise_above_data": 1.5, "classes_covered": 9}
    none, full = {**kept, "energy_noise_above_data": gap}, {**kept, "classes_covered": classes}
    rows = [{"rejuvenation": share, **row} for share, row in ((0.0, none), (0.25, kept), (1.0, full))]
    for half, word in zip(_verdict_on_shares(rows).split("; "), words, strict=True):
        assert f": {word} with the thesis" in half


@pytest.mark.parametrize(("last", "bad", "grows"), [(0.3, 0, False), (5.0, 0, True), (0.2, 3, True)])
@pytest.mark.parametrize("spectral_norm", [True, False])
def test_the_verdict_on_the_signal_knows_which_of_the_two_is_to_grow(last, bad, grows, spectral_norm):
    row = {"rejuvenation": 0.5, "v_middle": 0.2, "v_largest_last_tenth": last, "updates_not_finite": bad}
    verdict = _verdict_on_signals([row], spectral_norm)
    assert words_of(verdict) == ["disagrees" if grows == spectral_norm else "agrees"]


def test_a_training_that_breaks_down_is_drawn_up_to_there(tmp_path, monkeypatch):
    def broken(*args, **options):
        raise tw.train.DivergedError("expected a finite loss", {"gradient_norm": np.array([0.5, 30.0, np.inf])})

    monkeypatch.setattr(thesis, "train", broken)
    numbers = EXPERIMENTS["thesis-figure-3-2"].run(jax.random.key(0), tmp_path, scale="smoke")
    assert {row["v_last"] for row in numbers["rows"]} == {30.0}
    assert {row["updates_not_finite"] for row in numbers["rows"]} == {2}  # of four
    assert words_of(numbers["verdict"]) == ["agrees"] * 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adaptive-reuse", "adaptive-psi", "adaptive-chains"])
def test_self_adapting_variants_are_compared_over_the_interval(tmp_path, name):
    numbers = EXPERIMENTS[name].run(jax.random.key(0), tmp_path, scale="smoke")
    variants = {row["variant"] for row in numbers["rows"]}
    assert len(numbers["rows"]) == 2 * len(variants) * 4
    ended = [row for row in numbers["rows"] if row["kl"] is not None]
    assert all(row["kl"] > 0 and row["milliseconds"] > 0 for row in ended) and len(ended) > len(numbers["rows"]) / 2
    if name == "adaptive-reuse":
        by = {(row["target"], row["variant"], row["interval"]): row["kl"] for row in numbers["rows"]}
        # at interval 1 there is nothing to share
        assert by["ring", "fresh", 1] == pytest.approx(by["ring", "shared", 1], rel=1e-3)


@pytest.mark.slow
@pytest.mark.vmapped_keys
def test_control_variates_take_variance(tmp_path):
    numbers = EXPERIMENTS["adaptive-control"].run(jax.random.key(0), tmp_path, scale="smoke")
    first = {row["control"]: row["variance_share"] for row in numbers["rows"] if row["after"] == 0}
    assert first["plain"] == 1 and first["both"] < 0.6


@pytest.mark.slow
def test_methods_are_measured_over_the_dimension(tmp_path):
    numbers = EXPERIMENTS["thesis-table-3-1"].run(jax.random.key(0), tmp_path, scale="smoke")
    assert [(row["method"], row["dimension"]) for row in numbers["rows"]] == [(m, d) for m in METHODS for d in (2, 4)]
    learns = {row["method"] for row in numbers["rows"] if row["self_normalising"]}
    assert learns == {"ACE", "FCE"}
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
