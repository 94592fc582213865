"""The experiments of Hopfield networks and maximum entropy: known numbers, and figures that are drawn."""

import json

import jax
import numpy as np
import pytest

from thalweg.experiments.free_energy import softplus_free_energy
from thalweg.experiments.hopfield_capacity import _capacity, _fit, _overlap_of, _overlaps, hopfield_capacity, theory
from thalweg.experiments.hopfield_completion import hopfield_completion
from thalweg.experiments.maximum_entropy import maxent_dice
from thalweg.report.figures import png


def check_figure(figure, numbers, panels):
    assert png(figure)[1:4] == b"PNG" and len(figure.axes) == panels
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers


def test_the_theory_is_that_of_amit_gutfreund_and_sompolinsky():
    known = theory()
    assert known["capacity"] == pytest.approx(0.1379, abs=1e-4) and known["overlap"] == pytest.approx(0.967, abs=1e-3)
    # the overlap at the end of the retrieval phase, and nearly one far from it
    assert _overlap_of(known["capacity"] - 1e-7) == pytest.approx(known["overlap"], abs=2e-3)
    assert _overlap_of(0.05) > 0.9999


def test_the_capacity_is_where_the_overlap_falls_through_the_mark():
    loads = np.array([0.05, 0.08, 0.1, 0.11, 0.12, 0.125, 0.13, 0.135, 0.14, 0.145, 0.15, 0.16, 0.18, 0.2])
    noise = np.random.default_rng(0).normal(scale=0.01, size=(14, 20))
    found = _capacity(tuple(loads), (1.105 - loads)[:, None] + noise, 0.967)  # falls through it at 0.138
    assert found["low"] < 0.138 < found["high"] and found["high"] - found["low"] < 0.01


def test_the_fit_finds_the_common_point_of_all_sizes():
    from scipy.stats import norm

    generator = np.random.default_rng(1)
    rows = [
        (n, load, norm.cdf(1.2 + (0.138 - load) * np.sqrt(n) / 0.6) + generator.normal(scale=0.02))
        for n in (500, 1000, 2000)
        for load in np.linspace(0.1, 0.2, 11)
        for _ in range(5)
    ]
    found = _fit(np.array(rows))
    assert found["low"] < 0.138 < found["high"] and found["high"] - found["low"] < 0.01


@pytest.mark.slow
def test_a_network_retrieves_below_the_capacity_and_not_above(key):
    from thalweg.energies import hebb

    below, above = (
        _overlaps(own, hebb, 1000, load) for own, load in zip(jax.random.split(key), (0.1, 0.2), strict=True)
    )
    assert below.mean() == pytest.approx(_overlap_of(0.1), abs=0.004)
    assert 0.2 < above.mean() < 0.5


@pytest.mark.slow
def test_capacity_draws_its_figure(key):
    figure, numbers = hopfield_capacity(key, scale="smoke")
    check_figure(figure, numbers, 3)
    rules = {name: [row["overlap"] for row in numbers["rules"][name]] for name in ("Hebb", "Storkey", "pseudo-inverse")}
    assert rules["pseudo-inverse"] == [1.0] * 3
    assert all(h < s for h, s in zip(rules["Hebb"], rules["Storkey"], strict=True))
    with pytest.raises(ValueError, match="expected a scale among smoke, small"):
        hopfield_capacity(key, scale="huge")


@pytest.mark.slow
def test_completion_orders_the_rules(key):
    figure, numbers = hopfield_completion(key, sets=6)
    check_figure(figure, numbers, 2)
    pixels = {row["method"]: row["pixels"] for row in numbers["rows"] if row["patterns"] == 15}
    assert pixels["modern"] > pixels["pseudo-inverse"] > pixels["Storkey"] > pixels["Hebb"] > 0.75
    assert numbers["shown"]["modern"]["digits"] == 1.0


@pytest.mark.slow
def test_the_free_energy_is_the_sum_over_the_hidden_units(key):
    figure, numbers = softplus_free_energy(key)
    check_figure(figure, numbers, 3)
    assert numbers["largest_difference"] < 1e-4
    assert numbers["minima"]["rbm"] == {"patterns": 3, "inverses": 0, "others": 0}
    # three patterns, their inverses, and eight mixtures of the three with either sign
    assert numbers["minima"]["hopfield"] == {"patterns": 3, "inverses": 3, "others": 8}


def test_the_dice(key):
    figure, numbers = maxent_dice(key)
    check_figure(figure, numbers, 3)
    np.testing.assert_allclose(numbers["probabilities"], numbers["jaynes"], atol=6e-6)
    assert numbers["naturals"][24] == pytest.approx(0, abs=1e-5) and numbers["means"][24] == pytest.approx(3.5)
