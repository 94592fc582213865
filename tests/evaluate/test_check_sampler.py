"""`check_sampler`: its false alarms, its power, its starts; the wrong kernels it must catch: `test_mutations.py`."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.core import Info
from thalweg.samplers.langevin import Position

LADDER = (1.0, 2.0, 4.0)
NORMAL = tw.energies.Gaussian(jnp.zeros(1), jnp.ones(1))
SPINS = tw.energies.Ising(tw.energies.Graph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)], [0.8, -0.5, 0.4, 0.3, 0.6]), 0.2)
FIELD = tw.energies.GaussianField(tw.energies.Graph([(0, 1), (1, 2)], 0.4), 1.0, [1.0, 0.0, -0.5])


class Redraw(tw.core.Kernel):
    """Forgets where it was: ``x' ~ N(shift, 1)``, which leaves N(0, 1) as it is only without a shift."""

    shift: jax.Array = eqx.field(converter=jnp.asarray, default=0.0)

    def init(self, key, energy, x):
        return Position(x)

    def step(self, key, energy, state):
        return Position(self.shift + jax.random.normal(key, state.x.shape)), Info()


def verdicts(kernel, count, **settings):
    keys = jax.random.split(jax.random.key(7), count)
    return [tw.check_sampler(kernel, NORMAL, key=key, chains=1000, steps=1, **settings) for key in keys]


def test_false_alarms_are_no_more_frequent_than_stated():
    failed = sum(not verdict.passed for verdict in verdicts(Redraw(), 40, false_alarm=0.2))
    # at most 8 in the mean, 20 one time in 10^5; fewer, since the statistics of one run go together, but not none
    assert 1 <= failed <= 20
    assert tw.check_sampler(Redraw(), NORMAL, key=jax.random.key(0), chains=1000).false_alarm == 1e-6


def test_a_bias_of_the_size_stated_is_seen_and_a_quarter_of_it_is_not():
    detectable = verdicts(Redraw(), 1)[0].detectable
    # the drift of tanh x, in its standard deviations, for a shift of one
    x = np.linspace(-8, 8, 4001)
    law = np.exp(-(x**2) / 2) / np.exp(-(x**2) / 2).sum()  # 0.97 is its deviation with the outer percents clipped
    rate = (law / np.cosh(x / 0.97) ** 2).sum() / 0.97 / math.sqrt((law * np.tanh(x / 0.97) ** 2).sum())
    seen = sum(not verdict.passed for verdict in verdicts(Redraw(1.1 * detectable / rate), 20))
    assert seen >= 17  # 0.99 each
    seen = sum(not verdict.passed for verdict in verdicts(Redraw(0.25 * detectable / rate), 20))
    assert seen <= 2


def test_four_times_the_chains_see_half_the_bias(key):
    few, many = (tw.check_sampler(Redraw(), NORMAL, key=key, chains=chains).detectable for chains in (5000, 20_000))
    assert few / many == pytest.approx(2, rel=0.1)


def test_the_verdict_can_be_read(key):
    right = tw.check_sampler(Redraw(), NORMAL, key=key, chains=5000)
    wrong = tw.check_sampler(Redraw(0.5), NORMAL, key=key, chains=5000)
    assert str(right).startswith("passed: of ") and "a drift of " in str(right) and "1e-06" in str(right)
    assert str(wrong).startswith("FAILED: of ") and "standard errors (limit " in str(wrong)
    exact = tw.check_sampler(tw.samplers.Gibbs(), SPINS, key=key, chains=2000, steps=2)
    assert "Exactly, πT = π" in str(exact)


def test_starts_come_from_the_energy_from_enumeration_or_from_the_user(key):
    calls = []

    def given(key, shape):
        calls.append(shape)
        return jax.random.normal(key, (*shape, 1))

    plain = tw.as_energy(lambda x: 0.5 * jnp.sum(x**2), tw.Real(1))
    assert tw.check_sampler(Redraw(), plain, key=key, exact=given, chains=2000).passed
    assert calls == [(2000,)]
    assert tw.check_sampler(Redraw(), NORMAL, key=key, chains=2000).passed
    # samples of another law are what the drift is measured from
    assert not tw.check_sampler(Redraw(), NORMAL, key=key, exact=lambda k, s: 1 + given(k, s), chains=2000).passed
    flips = tw.as_energy(lambda x: 0.3 * jnp.sum(x), tw.Spin(3))
    assert tw.check_sampler(tw.samplers.GibbsWithGradients(), flips, key=key, chains=2000).passed


@pytest.mark.slow
def test_every_rung_starts_at_its_own_law(key):
    """One step is enough to tell: rungs that all start at the coldest law swap a drift into it."""
    kernel = tw.samplers.ParallelTempering(tw.samplers.RandomWalk(1.0), LADDER)
    laws = [tw.energies.Gaussian(jnp.zeros(2), temperature).sample for temperature in LADDER]
    target = tw.energies.Gaussian(jnp.zeros(2), 1.0)
    settings = {"key": key, "chains": 20_000, "steps": 3}
    verdict = tw.check_sampler(kernel, target, exact=laws, **settings)
    assert verdict.passed and "not stationary" not in verdict.text, verdict
    unsettled = tw.check_sampler(kernel, target, **settings)
    assert not unsettled.passed
    assert "All rungs started at the target" in unsettled.text
    # a field's tempered laws have samplers of their own
    field = tw.samplers.ParallelTempering(tw.samplers.Gibbs(), LADDER)
    verdict = tw.check_sampler(field, FIELD, **settings)
    assert verdict.passed and "not stationary" not in verdict.text, verdict


def test_chains_that_stand_still_or_run_off_fail(key):
    still = tw.check_sampler(tw.samplers.RandomWalk(1e30), NORMAL, key=key, chains=1000, steps=2)
    assert not still.passed and "no chain moved" in still.text
    quartic = tw.as_energy(lambda x: jnp.sum(x**4), tw.Real(1))
    off = tw.check_sampler(tw.samplers.Langevin(50.0), quartic, key=key, exact=NORMAL.sample, chains=1000, steps=20)
    assert not off.passed and "ran off to non-finite values" in off.text


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"chains": 10}, "expected chains to be a whole number >= 1000, got 10"),
        ({"steps": 0}, "expected steps to be a whole number >= 1, got 0"),
        ({"false_alarm": 0.0}, "expected a false_alarm between 0 and 1, got 0.0; 1e-6 is usual"),
        ({"energy": lambda x: jnp.sum(x**2)}, "expected a way to sample .* exactly, got none; give exact"),
        ({"exact": [NORMAL.sample]}, "expected one exact sampler for Redraw, got a sequence of 1; give a function"),
        (
            {"exact": [NORMAL.sample], "kernel": tw.samplers.ParallelTempering(tw.samplers.RandomWalk(1.0), LADDER)},
            "expected an exact sampler for each of 3 temperatures, got 1; give as many",
        ),
    ],
)
def test_bad_input_gets_one_sentence(key, change, sentence):
    with pytest.raises(ValueError, match=sentence):
        tw.check_sampler(**{"kernel": Redraw(), "energy": NORMAL, "key": key, **change})
