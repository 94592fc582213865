"""Log-likelihood, bits per dimension and perplexity: closed forms, coverage of the intervals, bad input."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import thalweg as tw
from thalweg.core import Estimate, HasFreeEnergy, LatentEnergy
from thalweg.data import Dataset
from thalweg.evaluate import bits_per_dim, log_likelihood, perplexity
from thalweg.evaluate.bits_per_dim import fill_bins
from thalweg.evaluate.likelihood import Rows, per_unit

KEY = jax.random.key(0)
NORMAL = tw.energies.Gaussian(jnp.zeros(2))


def rows(count=100, seed=1):
    return NORMAL.sample(jax.random.key(seed), (count,))


def test_it_is_the_mean_log_density_with_students_interval():
    x = rows()
    estimate = log_likelihood(NORMAL, x, key=KEY)
    log_p = stats.multivariate_normal(np.zeros(2)).logpdf(np.asarray(x, float))
    low, high = stats.t.interval(0.95, 99, log_p.mean(), stats.sem(log_p))
    assert np.allclose(estimate[:3], (log_p.mean(), low, high), rtol=1e-5)
    assert math.isclose(estimate.standard_error, stats.sem(log_p), rel_tol=1e-5)
    assert estimate.parts["log_z"].low == estimate.parts["log_z"].high and estimate.bound is None


def test_a_finite_model_agrees_with_its_enumeration():
    energy = tw.as_energy(lambda x: 0.3 * x[0] * x[1] - 0.7 * x[2] + 0.2 * x.sum() ** 2, tw.Spin(3))
    states = energy.space.states(0, 8)
    log_p = np.log(np.asarray(tw.exact.probabilities(energy), float))
    estimate = log_likelihood(energy, states, key=KEY)
    assert math.isclose(estimate.value, log_p.mean(), rel_tol=1e-5)
    bits = bits_per_dim(energy, states, key=KEY)
    assert math.isclose(bits.value, -log_p.mean() / math.log(2) / 3, rel_tol=1e-5)
    assert math.isclose(perplexity(energy, states, key=KEY).value, math.exp(-log_p.mean() / 3), rel_tol=1e-5)
    # better rows need fewer bits: the ends of the interval are exchanged
    assert math.isclose(bits.low, -estimate.high / math.log(2) / 3, rel_tol=1e-6)
    assert math.isclose(bits.parts["log_likelihood"].value, log_p.mean() / 3, rel_tol=1e-5)


def test_the_two_errors_are_combined_side_by_side():
    log_z = Estimate(0.0, -0.3, 0.4, 0.95, "by hand", warning="chains have not mixed", standard_error=0.2, bound=-1.0)
    x = rows()
    data = log_likelihood(NORMAL, x, key=KEY, log_z=0.0)
    both = log_likelihood(NORMAL, x, key=KEY, log_z=log_z)
    side = data.high - data.value
    # a larger log Z makes the likelihood smaller
    assert math.isclose(both.value - both.low, math.hypot(side, 0.4), rel_tol=1e-6)
    assert math.isclose(both.high - both.value, math.hypot(side, 0.3), rel_tol=1e-6)
    assert math.isclose(both.standard_error, math.hypot(data.standard_error, 0.2), rel_tol=1e-6)
    assert both.warning == log_z.warning and both.parts["log_z"] == log_z and both.bound is None
    assert np.allclose(both.parts["data"][:3], data[:3])


def test_the_combined_interval_covers_at_its_confidence():
    # 4000 replicates of 30 rows and an estimate of log Z with a normal error of the size of the rows' error
    rng, count, size, error = np.random.default_rng(0), 4000, 30, 0.15
    values = rng.normal(0.0, 1.0, (count, size))
    covered = 0
    for row, shift in zip(values, rng.normal(0.0, error, count), strict=True):
        side = stats.norm.ppf(0.95) * error
        log_z = Estimate(2.0 + shift, 2.0 + shift - side, 2.0 + shift + side, 0.9, "by hand", standard_error=error)
        estimate = per_unit(Rows(None, row, log_z), np.ones(size))[0]
        covered += estimate.low < -2.0 < estimate.high
    # 5 standard deviations of the binomial; without log Z's error the coverage is 0.79
    assert abs(covered / count - 0.9) < 5 * math.sqrt(0.09 / count)


def test_the_interval_of_the_perplexity_covers_with_rows_of_different_lengths():
    # rows of n_i words, each of log-probability -1 on average: the perplexity is e
    rng, covered, count = np.random.default_rng(1), 0, 2000
    exact = Estimate(0.0, 0.0, 0.0, 0.9, "by hand", standard_error=0.0)
    for _ in range(count):
        words = rng.integers(1, 20, 100)
        values = -rng.gamma(words, 1.0)
        estimate = per_unit(Rows(None, values, exact), words.astype(float))[0]
        covered += estimate.low < -1.0 < estimate.high
    assert abs(covered / count - 0.9) < 5 * math.sqrt(0.09 / count)


def test_perplexity_counts_words():
    # independent counts of two words: log p is known, tokens are the counts
    energy = tw.as_energy(
        lambda x: -jnp.sum(x * jnp.log(jnp.array([2.0, 5.0])) - jax.lax.lgamma(x + 1.0)), tw.Counts(2)
    )
    x = np.random.default_rng(0).poisson([2.0, 5.0], (50, 2))
    log_p = stats.poisson([2.0, 5.0]).logpmf(x).sum()
    estimate = perplexity(energy, x, key=KEY, log_z=7.0)
    assert math.isclose(estimate.value, math.exp(-log_p / x.sum()), rel_tol=1e-5)
    ten = perplexity(energy, x, key=KEY, log_z=7.0, tokens=10)
    assert math.isclose(ten.value, math.exp(-log_p / 500), rel_tol=1e-5)
    low, high = ten.parts["data"].low, ten.parts["data"].high
    assert ten.low == low < ten.value < high == ten.high
    assert ten.parts["log_z"].low == ten.parts["log_z"].high == ten.value


def test_bits_of_a_density_constant_in_each_bin_are_exact():
    # three bins of [-1, 1] with masses 1/2, 1/3, 1/6
    masses = jnp.array([1 / 2, 1 / 3, 1 / 6])
    space = tw.Interval(-1.0, 1.0, shape=4)

    def energy(x):
        places = jnp.clip(jnp.floor((x + 1) / 2 * 3), 0, 2).astype(int)
        return -jnp.sum(jnp.log(masses[places]))

    k = np.random.default_rng(0).integers(0, 3, (200, 4))
    log_z = 4 * math.log(2 / 3)  # each bin has the width 2/3
    exact = -np.log2(np.asarray(masses))[k].mean()
    estimate = bits_per_dim(energy, k, key=KEY, space=space, levels=3, log_z=log_z)
    assert math.isclose(estimate.value, exact, rel_tol=1e-5)
    # the same pixels as numbers: lower edges, middles, and evenly spaced from -1 to 1
    for numbers in (-1 + 2 * k / 3, -1 + 2 * (k + 0.5) / 3, -1 + k):
        same = bits_per_dim(energy, numbers.astype(np.float32), key=KEY, space=space, levels=3, log_z=log_z)
        assert math.isclose(same.value, exact, rel_tol=1e-5)


def test_bits_bound_those_of_the_discretised_density_from_above():
    # a logistic density, whose bins have known masses, on the scale [0, 10]
    levels, width = 8, 10 / 8
    logistic = stats.logistic(4.0, 0.6)
    edges = np.arange(levels + 1) * width
    masses = np.diff(logistic.cdf(edges))
    k = np.random.default_rng(0).choice(levels, (4000, 1), p=masses / masses.sum())
    energy = lambda x: jnp.sum((x - 4.0) / 0.6 + 2 * jax.nn.softplus(-(x - 4.0) / 0.6) + math.log(0.6))
    options = {"key": KEY, "space": tw.Real(1), "levels": levels, "low": 0.0, "high": 10.0, "log_z": 0.0}
    estimate = bits_per_dim(energy, k, **options)
    # E_u[log2 p] in each bin by quadrature
    inside = np.mean([logistic.logpdf(edges[:-1] + width * u) for u in (np.arange(1000) + 0.5) / 1000], axis=0)
    expected = -np.mean(inside[k]) / math.log(2) - math.log2(width)
    assert abs(estimate.value - expected) < 4 * estimate.standard_error
    assert estimate.value > -np.mean(np.log2(masses[k])) + 0.05
    filled = np.asarray(fill_bins(jax.random.split(KEY)[0], k, levels, 0.0, 10.0))
    assert math.isclose(bits_per_dim(energy, filled, dequantise=False, **options).value, estimate.value, rel_tol=1e-6)


def test_dequantised_points_stay_inside_of_the_interval():
    x = fill_bins(KEY, np.tile([0, 255], (20_000, 1)), 256, -1.0, 1.0)
    assert x.dtype == np.float32 and -1 < x.min() < -0.9999 and 0.9999 < x.max() < 1
    assert abs((x[:, 0] + 1).mean() * 128 - 0.5) < 0.02


def test_latent_energies_are_read_by_their_free_energy():
    class Blurred(HasFreeEnergy):
        space = tw.Real(())
        latent_space = tw.Real(())

        def __call__(self, x, z):
            return 0.5 * z**2 + 0.5 * (x - z) ** 2

        def free_energy(self, x):
            return x**2 / 4 - 0.5 * jnp.log(jnp.pi)

    x = math.sqrt(2) * jax.random.normal(KEY, (50,))
    estimate = log_likelihood(Blurred(), x, key=KEY)
    assert math.isclose(estimate.value, stats.norm(0, math.sqrt(2)).logpdf(np.asarray(x)).mean(), rel_tol=1e-4)


def test_trees_data_sets_and_functions_are_taken():
    space = tw.Product(a=tw.Real(2), b=tw.Binary(()))
    x = {"a": rows(), "b": jnp.ones(100, int)}
    energy = tw.as_energy(lambda x: 0.5 * jnp.sum(x["a"] ** 2) + 0.0 * x["b"], space)
    plain = log_likelihood(NORMAL, x["a"], key=KEY)
    log_z = math.log(2) + math.log(2 * math.pi)
    assert math.isclose(log_likelihood(energy, x, key=KEY, log_z=log_z).value, plain.value - math.log(2), rel_tol=1e-5)
    dataset = Dataset(np.zeros((3, 2), np.float32), x_test=np.asarray(x["a"]))
    assert log_likelihood(NORMAL, dataset, key=KEY) == plain
    function = log_likelihood(lambda x: 0.5 * jnp.sum(x**2), x["a"], key=KEY, space=tw.Real(2))
    assert math.isclose(function.value, plain.value, rel_tol=1e-5)


def test_many_rows_are_evaluated_in_pieces():
    x = np.random.default_rng(0).normal(size=(9001, 2)).astype(np.float32)
    estimate = log_likelihood(NORMAL, x, key=KEY)
    assert math.isclose(estimate.value, stats.norm.logpdf(x.astype(float)).sum(axis=1).mean(), rel_tol=1e-6)


def test_a_row_of_zero_density_makes_it_minus_infinity():
    energy = tw.as_energy(lambda x: jnp.where(x[0] > 2, jnp.inf, 0.0), tw.Categorical(1, k=4))
    estimate = log_likelihood(energy, np.array([[0], [3], [1]]), key=KEY)
    assert estimate[:3] == (-math.inf,) * 3 and "1 of 3 rows" in estimate.warning
    assert perplexity(energy, np.array([[0], [3], [1]]), key=KEY).value == math.inf


BAD = {
    "one row": (lambda: log_likelihood(NORMAL, rows(1), key=KEY), "at least 2 rows"),
    "other shape": (lambda: log_likelihood(NORMAL, jnp.zeros((5, 3)), key=KEY), r"shape \(n, 2\)"),
    "no space": (lambda: log_likelihood(lambda x: jnp.sum(x**2), rows(), key=KEY), "space"),
    "score": (lambda: log_likelihood(tw.as_score(lambda x: -x), rows(), key=KEY), "probability_flow"),
    "conditional": (
        lambda: log_likelihood(tw.energies.NoiseConditionalMLP(2, key=KEY), rows(), key=KEY),
        r"tw\.given",
    ),
    "log_z at another confidence": (
        lambda: log_likelihood(NORMAL, rows(), key=KEY, log_z=Estimate(0.0, -1.0, 1.0, 0.9, "by hand")),
        "confidence 0.95",
    ),
    "log_z and options": (lambda: log_likelihood(NORMAL, rows(), key=KEY, log_z=1.0, samples=rows()), "both"),
    "log_z not finite": (lambda: log_likelihood(NORMAL, rows(), key=KEY, log_z=math.nan), "log_z"),
    "confidence": (lambda: log_likelihood(NORMAL, rows(), key=KEY, confidence=1.0), "confidence"),
    "energy that is nan": (lambda: log_likelihood(lambda x: jnp.nan * x[0], rows(), key=KEY, log_z=0.0), "row 0"),
    "no test rows": (lambda: log_likelihood(NORMAL, Dataset(np.zeros((3, 2))), key=KEY), "test rows"),
    "continuous perplexity": (lambda: perplexity(NORMAL, rows(), key=KEY), "bits_per_dim"),
    "tokens": (
        lambda: perplexity(tw.energies.Bernoulli(jnp.full(3, 0.5)), np.zeros((5, 3), int), key=KEY, tokens=[1, 2]),
        r"shape \(5,\)",
    ),
    "no edges": (lambda: bits_per_dim(NORMAL, rows(), key=KEY), "low and high"),
    "edges exchanged": (lambda: bits_per_dim(NORMAL, rows(), key=KEY, low=1.0, high=-1.0), "low < high"),
    "pixels outside": (lambda: bits_per_dim(NORMAL, 5 + rows(), key=KEY, low=-1, high=1), "between low"),
    "pixels above the levels": (
        lambda: bits_per_dim(NORMAL, np.full((5, 2), 300), key=KEY, low=-1, high=1),
        "0 to 255",
    ),
    "rows of unequal length": (lambda: bits_per_dim(NORMAL, [[1], [2, 3]], key=KEY, low=-1, high=1), "array"),
    "levels of a discrete model": (
        lambda: bits_per_dim(tw.energies.Bernoulli(jnp.full(3, 0.5)), np.zeros((5, 3), int), key=KEY, levels=2),
        "levels",
    ),
    "bits on positive numbers": (
        lambda: bits_per_dim(tw.energies.Exponential(1.0), jnp.ones(5), key=KEY),
        "Interval",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_a_sentence(case):
    call, words = BAD[case]
    with pytest.raises(ValueError, match=words) as problem:
        call()
    assert str(problem.value).count("\n") == 0 and "expected" in str(problem.value) and "; " in str(problem.value)


def test_a_latent_energy_without_free_energy_is_refused():
    class Latent(LatentEnergy):
        space = tw.Real(())
        latent_space = tw.Real(())

        def __call__(self, x, z):
            return x**2 + z**2

    with pytest.raises(ValueError, match="free_energy"):
        log_likelihood(Latent(), jnp.zeros(5), key=KEY)
