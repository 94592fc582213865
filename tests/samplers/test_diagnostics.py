"""R-hat, effective sizes and errors, against blackjax on continuous draws and known values on discrete ones."""

import re

import blackjax.diagnostics
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import thalweg as tw
from thalweg.samplers import convergence
from thalweg.samplers.chains import Chains
from thalweg.samplers.convergence import Convergence, measure_convergence
from thalweg.samplers.diagnostics import _assess, _show, summarise

CHAINS, DRAWS, COORDINATES = 4, 1000, 60
SHAPE = (CHAINS, DRAWS, COORDINATES)


@pytest.fixture
def rng():
    return np.random.default_rng(20261115)


def autoregressive(rng, correlation, shape=SHAPE):
    noise = rng.normal(size=shape)
    x = noise.copy()
    for t in range(1, shape[1]):
        x[:, t] = correlation * x[:, t - 1] + np.sqrt(1 - correlation**2) * noise[:, t]
    return x


def sticky(rng, correlation, fresh):
    """With probability ``correlation`` the last draw again, else a fresh one: autocorrelation ``correlation^t``."""
    x = fresh.copy()
    stays = rng.random(fresh.shape) < correlation
    for t in range(1, fresh.shape[1]):
        x[:, t] = np.where(stays[:, t], x[:, t - 1], fresh[:, t])
    return x


def balanced_spins(rng, shape=SHAPE):
    """As many -1 as +1 in every coordinate: |x - median| is the same for all draws."""
    half = shape[0] * shape[1] // 2
    return rng.permuted(np.tile(np.repeat([-1, 1], half)[:, None], shape[2]), axis=0).reshape(shape)


INDEPENDENT = {
    "balanced spins": balanced_spins,
    "spins": lambda rng: rng.choice([-1, 1], SHAPE),
    "rare ones": lambda rng: rng.binomial(1, 0.02, SHAPE),
    "rare zeros": lambda rng: rng.binomial(1, 0.98, SHAPE),
    "booleans": lambda rng: rng.random(SHAPE) < 0.3,
    "three values": lambda rng: rng.choice([0.1, 0.2, 0.9], SHAPE, p=[0.2, 0.5, 0.3]).astype(np.float32),
    "counts": lambda rng: rng.poisson(3.0, SHAPE),
    "rare counts": lambda rng: rng.poisson(0.03, SHAPE),
    "normal": lambda rng: rng.normal(size=SHAPE),
}


@jax.jit
def reference(x):
    given = blackjax.diagnostics
    return given.rhat(x), given.ess_bulk(x), given.ess_tail(x), given.effective_sample_size(x)


@pytest.mark.parametrize("draws", [1000, 501])
def test_continuous_draws_give_what_blackjax_gives(rng, draws):
    """Where Geyer's sum ends before the chain does; where it does not, blackjax takes off one term too many."""
    x = np.concatenate([autoregressive(rng, correlation, (4, draws, 8)) for correlation in (0.0, 0.7, -0.4)], axis=2)
    found = measure_convergence(x)
    with jax.enable_x64(True):
        rhat, ess_bulk, ess_tail, ess_mean = (np.asarray(value) for value in reference(x))
    np.testing.assert_allclose(found.rhat, rhat, rtol=1e-5)
    np.testing.assert_allclose(found.ess_bulk, ess_bulk, rtol=1e-3)
    np.testing.assert_allclose(found.ess_tail, ess_tail, rtol=1e-3)
    np.testing.assert_allclose(found.mean, x.mean(axis=(0, 1)), rtol=1e-9)
    np.testing.assert_allclose(found.mcse, x.std(axis=(0, 1), ddof=1) / np.sqrt(ess_mean), rtol=1e-3)


@pytest.mark.parametrize("kind", INDEPENDENT)
def test_independent_draws_are_all_effective(rng, kind):
    x = INDEPENDENT[kind](rng)
    found = summarise(jnp.asarray(x), {})
    assert found.mixed, found.verdict
    assert np.all((found.rhat > 0.998) & (found.rhat < 1.007))
    for size in (found.ess_bulk, found.ess_tail, (found.sd / found.mcse) ** 2):
        # Geyer's sum is a noisy estimate: 6 % of deviation for one coordinate
        assert np.median(size) == pytest.approx(CHAINS * DRAWS, rel=0.05)
        assert np.all(np.abs(size / (CHAINS * DRAWS) - 1) < 0.35)
    # the errors are right: the known mean is z of them away
    exact = {"balanced spins": None, "spins": 0.0, "rare ones": 0.02, "counts": 3.0, "rare counts": 0.03}.get(kind)
    if exact is not None:
        z = (found.mean - exact) / found.mcse
        assert 0.6 < np.mean(z**2) < 1.6  # a mean of 60 squares: 0.18 of deviation


@pytest.mark.parametrize("correlation", [0.5, 0.9])
@pytest.mark.parametrize("share", [0.5, 0.2])
def test_a_sticky_two_valued_chain_has_its_known_effective_size(rng, correlation, share):
    """``n (1 - ρ)/(1 + ρ)``, for autocorrelation ``ρ^t``; and the error of the mean that goes with it."""
    x = sticky(rng, correlation, rng.binomial(1, share, (CHAINS, 4000, COORDINATES)))
    expected = CHAINS * 4000 * (1 - correlation) / (1 + correlation)
    found = measure_convergence(x)
    for size in (found.ess_bulk, found.ess_tail, (found.sd / found.mcse) ** 2):
        assert np.median(size) == pytest.approx(expected, rel=0.08)
    z = (found.mean - share) / found.mcse
    assert 0.5 < np.mean(z**2) < 1.7


def test_sticky_counts_have_their_known_effective_size(rng):
    found = measure_convergence(sticky(rng, 0.8, rng.poisson(2.0, (CHAINS, 4000, COORDINATES))))
    for size in (found.ess_bulk, found.ess_tail, (found.sd / found.mcse) ** 2):
        assert np.median(size) == pytest.approx(CHAINS * 4000 / 9, rel=0.08)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_two_values_have_one_effective_size(rng, share):
    """Every function of a two-valued draw is linear in it: bulk, tail and mean must agree, whichever tail varies."""
    found = measure_convergence(rng.binomial(1, share, SHAPE))
    np.testing.assert_allclose(found.ess_bulk, found.ess_tail, rtol=1e-9)
    # and the names of the values do not matter
    renamed = measure_convergence(np.where(rng.binomial(1, 0.3, SHAPE), -7.5, 1e6))
    assert np.all(np.isfinite(renamed.rhat)) and np.all(renamed.ess_tail > 2500)


def test_equal_draws_get_the_average_of_their_ranks(rng):
    x = rng.poisson(2.0, (3, 2, 50)).astype(float)
    order, ordered = convergence._sort(x)
    ranks = stats.rankdata(x.reshape(3, -1), method="average", axis=1)
    expected = special.ndtri((ranks - 3 / 8) / (100 + 1 / 4)).reshape(x.shape)
    np.testing.assert_allclose(convergence._normal_scores(order, ordered, x.shape), expected, rtol=1e-12, atol=1e-12)
    for level in (0.05, 0.5, 0.95):
        np.testing.assert_allclose(
            convergence._quantile(ordered, level), np.quantile(x.reshape(3, -1), level, axis=1), rtol=1e-12
        )


def test_chains_of_one_mean_and_different_spread_have_not_mixed(rng):
    """Only the folded draws see it."""
    zero = rng.random((CHAINS, DRAWS, 2)) < np.array([0.8, 0.2, 0.8, 0.2])[:, None, None]
    x = np.where(zero, 0, rng.choice([-1, 1], zero.shape))
    found = summarise(jnp.asarray(x), {})
    assert np.all(found.rhat > 1.1) and not found.mixed


def test_a_rare_value_that_comes_in_spells_shows_in_the_tail(rng):
    """Bulk draws are fresh, the largest value comes and stays: fewer effective draws in the tail than in the bulk."""
    x = rng.integers(0, 5, SHAPE)
    spells = sticky(rng, 0.9, rng.binomial(1, 0.12, SHAPE)).astype(bool)
    found = measure_convergence(np.where(spells, 9, x))
    assert np.median(found.ess_tail) < 0.6 * np.median(found.ess_bulk)
    mirrored = measure_convergence(-np.where(spells, 9, x))
    np.testing.assert_allclose(mirrored.ess_tail, found.ess_tail, rtol=1e-9)


def test_chains_that_stand_at_different_points_are_told_from_a_coordinate_that_is_constant(rng):
    x = rng.choice([-1.0, 1.0], (6, 100, 3))
    x[..., 1] = np.array([0.1, 0.7, 0.1, 0.1, 0.1, 0.1])[:, None]
    x[..., 2] = 0.1
    found = summarise(jnp.asarray(x), {})
    assert found.rhat[1] == np.inf and found.ess_bulk[1] == found.ess_tail[1] == 0 and found.mcse[1] == np.inf
    assert found.sd[2] == 0 and found.mean[2] == pytest.approx(0.1)
    assert all(np.isnan(value[2]) for value in (found.mcse, found.ess_bulk, found.ess_tail, found.rhat))
    assert not found.mixed
    assert found.verdict.startswith("Never moved: x[2] (nothing was accepted, or it is held fixed). In the other")
    assert "the chains have NOT mixed (R-hat up to inf, should be below 1.01)" in found.verdict
    still = summarise(jnp.ones((2, 10, 3)), {})
    assert still.verdict == "No coordinate ever moved: nothing was accepted, or all are held fixed."
    assert "nan" in str(still)


def test_non_finite_draws_are_said_with_their_chains(rng):
    x = rng.normal(size=(5, 100, 3))
    x[1, 20, 0], x[3, 0, 1] = np.nan, np.inf
    found = summarise(jnp.asarray(x), {"divergences": jnp.array([0, 1, 0, 0, 0])})
    assert not found.mixed
    expected = "2 of 5 chains ran off to non-finite values (numbered from 0: 1, 3): take a smaller step size."
    assert found.verdict == expected
    assert np.all(np.isnan([found.mean[:2], found.rhat[:2], found.ess_bulk[:2], found.ess_tail[:2], found.mcse[:2]]))
    assert np.isfinite(found.rhat[2])
    many = summarise(jnp.full((40, 10), jnp.nan), {}).verdict
    assert "40 of 40 chains" in many and "8, 9 and 30 more)" in many


@pytest.mark.parametrize("chains", [3, 6, 7])
def test_a_constant_is_constant_in_any_number_of_chains(chains):
    """The mean of seven times 0.1 is not 0.1: rounding must not make a constant coordinate into stuck chains."""
    found = measure_convergence(np.full((chains, 50, 1), 0.1))
    assert not found.varies[0]
    assert np.all(np.isnan([found.rhat, found.ess_bulk, found.ess_tail, found.mcse]))
    # the effective size of the draws themselves, whose ranks are all exact
    assert np.isnan(convergence._effective_size(np.full((1, chains, 50), 0.1))[0])


def test_draws_in_double_precision_are_read_and_never_written(rng):
    """Draws of one coordinate in float64 need no conversion: they are the caller's own array, at times read-only."""
    x = rng.normal(size=(2, 50, 1))
    x[0, 3, 0] = np.nan
    kept = x.copy()
    measure_convergence(x)
    assert np.array_equal(x, kept, equal_nan=True)
    x.flags.writeable = False
    assert np.isnan(measure_convergence(x).rhat[0])


def test_blocks_do_not_change_the_numbers(rng, monkeypatch):
    x = rng.poisson(1.0, (3, 50, 7))
    whole = measure_convergence(x)
    monkeypatch.setattr(convergence, "_BLOCK", 400)  # two coordinates, and one in the last block
    for found, expected in zip(measure_convergence(x), whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_fewest_draws_that_are_accepted_give_numbers(rng):
    found = summarise(jnp.asarray(rng.normal(size=(2, 4))), {})
    assert np.all(np.isfinite([found.rhat, found.ess_bulk, found.ess_tail, found.mcse]))
    assert found.rhat.shape == ()


# trees and functions


def test_a_tree_of_draws_has_a_tree_of_numbers(rng):
    draws = {
        "mu": jnp.asarray(rng.normal(size=(CHAINS, DRAWS))),
        "theta": (
            jnp.asarray(rng.poisson(3.0, (CHAINS, DRAWS, 2, 3))),
            jnp.asarray(rng.normal(size=(CHAINS, DRAWS, 4))),
        ),
    }
    found = Chains(draws, {}).summary()
    assert found.mixed
    for field in (found.mean, found.sd, found.mcse, found.ess_bulk, found.ess_tail, found.rhat):
        assert jax.tree.map(np.shape, field) == {"mu": (), "theta": ((2, 3), (4,))}
    alone = Chains(draws["theta"][0], {}).summary()
    np.testing.assert_array_equal(found.rhat["theta"][0], alone.rhat)
    # one bad coordinate, in the last leaf, decides the verdict and is printed by its name
    shifted = draws["theta"][1].at[:, :, 2].add(jnp.arange(4.0)[:, None])
    unmixed = Chains({"mu": draws["mu"], "theta": (draws["theta"][0], shifted)}, {}).summary()
    assert not unmixed.mixed and "NOT mixed" in unmixed.verdict
    printed = str(unmixed)
    assert "theta[1][2]" in printed and "theta[0][1,2]" in printed and "(the 10 worst-mixed of 11" in printed


def test_coordinates_are_printed_by_name(rng):
    x = jnp.asarray(rng.normal(size=(CHAINS, DRAWS, 2)))
    assert "x[0]" in str(Chains(x, {}).summary())
    assert "x[1][0]" in str(Chains((x[..., 0], x), {}).summary())
    held = Chains({"mu": x[..., 0], "theta": x.at[..., 1].set(0.5)}, {}).summary()
    assert held.verdict.startswith("Never moved: theta[1] (")
    assert "mu" in str(held)


def test_the_summary_of_a_function_is_that_of_its_values(rng):
    x = jnp.asarray(rng.choice([-1, 1], (CHAINS, DRAWS, 16)))
    chains = Chains(x, {"acceptance": jnp.array([0.2, 0.4, 0.6, 0.8])})
    found = chains.summary(lambda x: x.mean())
    by_hand = Chains(x.mean(axis=-1), {}).summary()
    assert found.mean.shape == ()
    np.testing.assert_allclose(found.rhat, by_hand.rhat, rtol=1e-4)
    assert found.acceptance == pytest.approx(0.5)
    assert "f(x)" in str(found)
    several = chains.summary(lambda x: {"first": x[:2], "positive": x[0] > 0})
    np.testing.assert_allclose(several.mean["first"], x[..., :2].mean(axis=(0, 1)), atol=1e-6)
    assert several.mixed and "positive" in str(several) and "first[1]" in str(several)
    of_tree = Chains({"a": x, "b": x}, {}).summary(lambda point: point["a"][0] * point["b"][1])
    np.testing.assert_allclose(of_tree.mean, (x[..., 0] * x[..., 1]).mean(), atol=1e-6)


# words


def numbers(rhat, ess_bulk):
    one = np.ones(2)
    return Convergence(one, one, one, np.array([5000.0, ess_bulk]), one, np.array([1.0, rhat]), one.astype(bool))


@pytest.mark.parametrize("rhat", [1.0100000001, 1.01004, 1.0104, 1.0149, 1.2, 57.3, 1e7, np.inf])
def test_an_unmixed_verdict_never_prints_an_rhat_that_would_pass(rhat):
    mixed, verdict = _assess(numbers(rhat, 5000.0), 4, np.array([]), "")
    assert not mixed
    printed = re.search(r"R-hat up to (\S+), should be below 1.01\)", verdict)
    assert printed and float(printed[1]) > 1.01
    assert printed[1] == _show("rhat", rhat)


def test_a_mixed_verdict_never_prints_an_rhat_or_size_that_would_fail():
    mixed, verdict = _assess(numbers(1.00996, 400.2), 4, np.array([]), "")
    assert mixed
    printed = re.search(r"R-hat (\S+), at least (\d+) effective", verdict)
    assert printed and float(printed[1]) < 1.01 and int(printed[2]) == 400
    mixed, verdict = _assess(numbers(1.004, 399.8), 4, np.array([]), "")
    assert not mixed and "only 399 draws are effective (should be 400)" in verdict
    assert "R-hat 1.004)" in verdict


def test_divergent_steps_are_counted_over_the_chains(rng):
    x = jnp.asarray(rng.normal(size=(CHAINS, DRAWS, 1)))
    found = summarise(x, {"divergences": jnp.array([1, 0, 2, 0])})
    assert found.divergences == 3 and found.verdict.endswith("3 steps diverged: take a smaller step size.")
    assert summarise(x, {"divergences": jnp.zeros(4, int)}).verdict.endswith("effective draws).")


@pytest.mark.parametrize(
    "draws, sentence",
    [
        (jnp.zeros((1, 100, 2)), "expected at least 2 chains of 4 draws to judge mixing, got 1 of 100; run more"),
        (jnp.zeros((4, 3, 2)), "got 4 of 3"),
        (jnp.zeros(5), r"expected draws of shape \(chains, draws, \*event\), .* got \(5,\)"),
        (jnp.zeros((4, 100, 0)), r"none empty, got \(4, 100, 0\)"),
        ({"a": jnp.zeros((4, 100)), "b": jnp.zeros((4, 50, 2))}, r"got \(4, 100\), \(4, 50, 2\)"),
        ((), "got no arrays"),
    ],
)
def test_bad_draws_get_one_sentence(draws, sentence):
    with pytest.raises(ValueError, match=sentence):
        summarise(draws, {})


def test_spins_of_a_gibbs_chain_have_mixed(key):
    spins = tw.energies.Ising(tw.energies.Grid((4, 4), 0.15))
    start = jnp.where(jax.random.bernoulli(key, 0.5, (4, 16)), 1, -1).astype(spins.space.dtype)
    chains = tw.sample(spins, tw.samplers.Gibbs(), start, key=key, draws=1000, burn_in=50)
    found = chains.summary()
    assert found.mixed, found.verdict
    assert np.all(np.abs(found.mean) < 5 * found.mcse)
