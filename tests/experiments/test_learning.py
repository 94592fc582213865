"""Objectives learn targets of known density, and what they cannot see they do not."""

import jax
import pytest

from thalweg.experiments.learning import METHODS, SEPARATED, objective_table, separated_modes

NCE_FAMILY = ["NCE, fitted Gaussian", "conditional NCE", "flow NCE", "AdaNCE, interval 1", "AdaNCE, interval 5"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sliced", "denoising", "PCD-10", *NCE_FAMILY])
def test_objectives_come_near_every_target(name):
    figure, numbers = objective_table(jax.random.key(0), updates=600, methods={name: METHODS[name]})
    assert len(figure.axes) == 3
    assert [row["kl"] < 0.1 for row in numbers["rows"]] == [True] * 3, numbers["table"]
    assert all(row["megabytes"] > 0 and row["seconds"] > 0 for row in numbers["rows"])


@pytest.mark.slow
def test_exact_likelihood_sees_the_weights_of_far_modes_and_a_single_score_does_not():
    methods = {name: SEPARATED[name] for name in ("exact likelihood", "denoising, one level")}
    seen, blind = separated_modes(jax.random.key(0), updates=800, methods=methods)[1]["rows"]
    assert seen["kl"] < 0.1 and seen["error"] < 0.03
    assert blind["error"] > 0.05
