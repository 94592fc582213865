"""The reliability diagram and ROC curves: what is drawn is what was computed."""

import numpy as np
import pytest

import thalweg as tw
from thalweg.plot import DARK, LIGHT
from thalweg.plot.style import png


@pytest.fixture
def table():
    p = np.random.default_rng(0).uniform(0.5, 1, 200)
    right = np.random.default_rng(1).uniform(size=200) < p**2
    return np.stack([p, 1 - p], axis=1), (~right).astype(int)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_bars_are_the_accuracies_and_the_title_has_the_error(table, theme):
    numbers = tw.evaluate.reliability(*table, bins=10)
    figure = tw.plot.reliability(numbers, theme=theme)
    above, below = figure.axes
    assert [bar.get_height() for bar in above.patches] == pytest.approx(numbers.accuracy[5:].tolist())
    assert [bar.get_x() for bar in above.patches] == pytest.approx([0.5, 0.6, 0.7, 0.8, 0.9])
    assert sum(bar.get_height() for bar in below.patches) == pytest.approx(1)
    error = tw.evaluate.expected_calibration_error(*table, bins=10, resamples=100).value
    assert f"ECE {error:.3f}" in above.get_title(loc="left") and "200 rows" in above.get_title(loc="left")
    assert above.get_ylabel() == "accuracy" and "confidence" in below.get_xlabel() and below.get_ylabel()
    assert png(figure)[1:4] == b"PNG"


def test_tables_with_one_bin_and_with_empty_bins_are_drawn(table):
    one = tw.evaluate.reliability(np.tile([1.0, 0.0], (5, 1)), np.zeros(5, int), binning="mass", bins=3)
    assert png(tw.plot.reliability(one))[1:4] == b"PNG"
    assert len(tw.plot.reliability(tw.evaluate.reliability(*table, bins=100)).axes[0].patches) <= 50


def test_curves_are_drawn_with_their_areas():
    rng = np.random.default_rng(2)
    inside, outside = rng.normal(size=100), rng.normal(size=80) + 1
    curve = tw.evaluate.roc_curve(inside, outside)
    found = tw.evaluate.detection(inside, outside, resamples=100)
    (axes,) = tw.plot.roc({"energy": curve, "other": tw.evaluate.roc_curve(outside, inside)}).axes
    assert axes.lines[0].get_ydata() == pytest.approx(curve.outside)
    labels = [line.get_label() for line in axes.lines]
    assert labels[0] == f"energy, AUROC {found.auroc.value:.3f}"
    assert labels[1] == f"other, AUROC {1 - found.auroc.value:.3f}"
    # where the dotted line crosses, the curve has the height 1 - FPR95: 5 of 100 inside points are flagged there
    height = curve.outside[np.flatnonzero(curve.inside <= 0.05)[-1]]
    assert height == pytest.approx(1 - found.fpr95.value)
    assert tw.plot.roc(curve).axes[0].lines[0].get_label() == f"AUROC {found.auroc.value:.3f}"


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: tw.plot.reliability(3), "table: expected edges, count, .* as arrays, got int; give what"),
        (lambda: tw.plot.reliability(tw.evaluate.ReliabilityTable(*np.ones((4, 3)))), "got lengths 3, 3, 3 and 3"),
        (lambda: tw.plot.roc({}), "curves: expected between 1 and 4, got 0"),
        (lambda: tw.plot.roc("text"), "curves: expected inside, outside as arrays, got str"),
        (lambda: tw.plot.roc(tw.evaluate.RocCurve(np.ones(2), np.zeros(2), np.zeros(2))), "curves: expected shares"),
    ],
)
def test_other_objects_are_refused_in_a_sentence(draw, words):
    with pytest.raises(ValueError, match=words):
        draw()
