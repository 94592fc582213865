"""Entropy and KL: exact where they can be, with honest intervals elsewhere, and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.evaluate import entropy, kl
from thalweg.evaluate.intervals import sum_of_estimates, wilson

WIDE = tw.energies.Gaussian(jnp.zeros(10), 4 * jnp.eye(10))
NARROW = tw.energies.Gaussian(jnp.ones(10))
ENTROPY = 5 * np.log(2 * np.pi * np.e * 4)
# KL of N(1, I) from N(0, 4I) in ten dimensions
DIVERGENCE = 5 * (1 / 4 + 1 / 4 - 1 + np.log(4))


def test_small_spaces_are_exact():
    assert entropy(tw.energies.two_bumps()).method == "quadrature"
    banana = tw.energies.Banana()
    assert entropy(banana).value == pytest.approx(float(tw.exact.entropy(banana)))
    moved = lambda x: banana(x - 0.5)
    exact = kl(banana, moved)  # the space of one is the space of the other
    assert exact.value == exact.low == exact.high == pytest.approx(float(tw.exact.kl(banana, moved, tw.Real(2))))
    spins = tw.energies.Ising(tw.energies.Grid((3, 3), weight=0.3))
    result = entropy(spins)
    assert result.method == "sum over all states" and result.standard_error == 0
    assert result.value == pytest.approx(float(tw.exact.entropy(spins)))


def test_samples_and_known_log_z_give_intervals_that_cover(key):
    # a binomial of 60 and 0.95 is below 51 with probability 1e-3
    keys = jax.random.split(key, 60)
    entropies = [entropy(WIDE, key=each) for each in keys]
    divergences = [kl(NARROW, WIDE, NARROW.sample(each, (400,))) for each in keys]
    assert sum(each.low < ENTROPY < each.high for each in entropies) >= 51
    assert sum(each.low < DIVERGENCE < each.high for each in divergences) >= 51
    assert np.std([each.value for each in divergences]) == pytest.approx(divergences[0].standard_error, rel=0.5)
    assert set(entropies[0].parts) == {"mean_energy", "log_z"}
    assert set(divergences[0].parts) == {"mean_difference", "log_z_q", "log_z_p"}
    assert divergences[0].parts["log_z_q"].value == pytest.approx(float(WIDE.log_z))


def test_given_samples_are_used_where_the_sum_is_possible_too(key):
    bumps = tw.energies.two_bumps()
    result = entropy(bumps, bumps.sample(key, (5000,)))
    assert result.ess is None and result.parts["mean_energy"].ess == 5000
    assert result.low < float(tw.exact.entropy(bumps)) < result.high


def test_reaches_of_a_difference_change_sides():
    one = tw.core.Estimate(5.0, 4.0, 8.0, 0.9, "by hand", warning="careful")
    difference = sum_of_estimates({"a": (1, one), "b": (-1, one)}, 0.9, "difference")
    assert difference.value == 0 and difference.low == pytest.approx(-np.hypot(1, 3)) == -difference.high
    assert difference.warning == "careful; careful"


def test_wilson_is_the_inverse_of_the_score_test():
    from scipy.stats import norm

    count, total = np.array([0, 3, 20]), 20
    low, high = wilson(count, total, 0.9)
    for share, bound in zip(np.concatenate([count, count]) / total, np.concatenate([low, high]), strict=True):
        if 0 < bound < 1:
            assert abs(share - bound) == pytest.approx(norm.ppf(0.95) * np.sqrt(bound * (1 - bound) / total))
    assert low[0] == 0 and high[2] == 1 and high[0] > 0.1 and low[2] < 0.9


BINARY = tw.energies.Ising(tw.energies.Grid((5, 5), weight=0.1))


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (
            r"expected samples of p for entropy of an energy on Real",
            lambda k: entropy(lambda x: x @ x, space=tw.Real(9)),
        ),
        ("an energy without a space", lambda k: entropy(lambda x: x @ x)),
        ("expected samples of p for kl", lambda k: kl(BINARY, BINARY)),
        ("expected two energies on one space", lambda k: kl(NARROW, tw.energies.Banana())),
        (r"samples of shape \(n, 10\)", lambda k: entropy(WIDE, np.zeros((5, 2)))),
        ("at least 2 samples for entropy with an interval, got one", lambda k: entropy(WIDE, np.zeros((1, 10)))),
        ("expected a random key, got None", lambda k: entropy(WIDE)),
        ("expected an energy, got the score network", lambda k: entropy(tw.as_score(lambda x: -x))),
        ("NaN or infinity in row 0", lambda k: kl(WIDE, NARROW, jnp.full((3, 10), jnp.inf))),
    ],
)
def test_bad_input_is_one_sentence(words, call, key):
    with pytest.raises(ValueError, match=words) as problem:
        call(key)
    assert "\n" not in str(problem.value)
