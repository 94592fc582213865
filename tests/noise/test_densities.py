"""Noise densities against quadrature and enumeration, their samples against their own log_prob."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import thalweg as tw
from thalweg.core import partition_trainable
from thalweg.noise import densities

SKEWED = np.random.default_rng(0).gamma(2.0, size=(400, 1)).astype(np.float32)
BENT = np.random.default_rng(1).normal(size=(400, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]]) + np.array([1.0, -2.0])
BENT = (BENT + 0.3 * BENT[:, ::-1] ** 2).astype(np.float32)


@eqx.filter_jit
def log_probs(noise, x):
    return jax.vmap(noise.log_prob)(x)


@eqx.filter_jit
def draw(noise, key, shape):
    return noise.sample(key, shape)


def flow(key):
    """A flow with weights far from their initial values, so that it is not a Gaussian."""
    made = tw.noise.flow(1, key=key, layers=2, mean=1.0, deviation=2.0)
    trained, rest = partition_trainable(made)
    leaves, structure = jax.tree.flatten(trained)
    moved = [leaf + 0.5 * jax.random.normal(key, leaf.shape) for leaf in leaves]
    return eqx.combine(jax.tree.unflatten(structure, moved), rest)


MADE = {
    "uniform": lambda key: tw.noise.Uniform([-1.0, 0.5], [2.0, 1.5]),
    "gaussian": lambda key: tw.noise.fit_gaussian(BENT),
    "marginals": lambda key: tw.noise.fit_marginals(SKEWED),
    "kde": lambda key: tw.noise.fit_kde(SKEWED[:50]),
    "kde in the plane": lambda key: tw.noise.fit_kde(BENT[:30]),
    "mixture": lambda key: tw.noise.fit_mixture(BENT, 3, key=key, steps=20),
    "flow": flow,
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n == "flow" else ()) for n in MADE])
def test_densities_integrate_to_one_and_their_samples_follow_them(name, key):
    """The mean of log p and the mean of x over samples against quadrature, at 5.5 standard errors."""
    density = MADE[name](key)
    sample = draw(density, key, (20_000,))
    energy = tw.from_density(density, tw.Real(sample.shape[1:]))
    bounds = ([-1.0, 0.5], [2.0, 1.5]) if name == "uniform" else (-60.0, 60.0)
    assert float(tw.exact.log_z(energy, bounds=bounds)) == pytest.approx(0.0, abs=2e-4)
    entropy, mean = tw.exact.expectation(energy, lambda x: (energy(x), x), bounds=bounds, tolerance=1e-4)
    surprise = -np.asarray(log_probs(density, sample), float)
    error = surprise.std() / np.sqrt(len(surprise))
    assert abs(surprise.mean() - float(entropy)) < 5.5 * error + 1e-3
    error = np.asarray(sample).std(axis=0) / np.sqrt(len(sample))
    assert np.all(np.abs(np.mean(sample, axis=0) - np.asarray(mean)) < 5.5 * error + 1e-3)


def test_a_fitted_gaussian_has_the_moments_of_the_data():
    noise = tw.noise.fit_gaussian(BENT)
    assert np.allclose(noise.mean, BENT.mean(axis=0), atol=1e-5)
    right = np.cov(BENT.T, bias=True)
    right[0, 1] = right[1, 0] = right[0, 1] * 400 / 402  # correlations are shrunk by n/(n + d)
    assert np.allclose(noise.covariance, right, rtol=1e-4)


@pytest.mark.slow
def test_fewer_rows_than_dimensions_and_pixels_that_never_change_still_make_a_gaussian(key):
    images = np.random.default_rng(0).normal(size=(20, 6, 6, 1)).astype(np.float32)
    images[:, 0] = -1.0
    for noise in (tw.noise.fit_gaussian(images), tw.noise.fit_marginals(images), tw.noise.fit_kde(images)):
        sample = draw(noise, key, (20,))
        assert sample.shape == images.shape
        assert np.isfinite(log_probs(noise, images)).all()
        # a thousandth of the typical standard deviation
        assert np.allclose(sample[:, 0], -1.0, atol=0.02)


def test_a_kernel_density_is_the_mean_of_its_kernels():
    noise = tw.noise.fit_kde(BENT[:100], bandwidth=0.4)
    shape = 0.16 * np.asarray(tw.noise.fit_gaussian(BENT[:100]).covariance, float)
    at = BENT[100:110]
    right = [np.mean([stats.multivariate_normal(row, shape).pdf(x) for row in BENT[:100]]) for x in at]
    assert np.allclose(log_probs(noise, at), np.log(right), atol=1e-3)
    scott = tw.noise.fit_kde(BENT[:100]).whitening
    assert np.allclose(scott * 100 ** (-1 / 6), noise.whitening * 0.4, rtol=1e-4)


def test_marginals_have_the_shape_of_every_coordinate_and_no_correlation(key):
    data = np.concatenate([SKEWED, np.sign(SKEWED - 1.5) * 4 + 0.3 * BENT[:, :1]], axis=1)
    noise = tw.noise.fit_marginals(data)
    each = [tw.noise.fit_marginals(data[:, [column]]) for column in (0, 1)]
    total = sum(log_probs(one, data[:, [column]]) for column, one in enumerate(each))
    assert np.allclose(log_probs(noise, data), total, atol=1e-4)
    sample = np.asarray(draw(noise, key, (20_000,)))
    assert abs(np.corrcoef(sample.T)[0, 1]) < 0.04
    # both modes of the second coordinate, with their weights, and the first as skewed as the data
    assert np.mean(sample[:, 1] > 0) == pytest.approx(np.mean(data[:, 1] > 0), abs=0.03)
    assert np.mean(np.abs(sample[:, 1]) < 1) < 0.02
    assert np.quantile(sample[:, 0], [0.1, 0.5, 0.9]) == pytest.approx(
        np.quantile(data[:, 0], [0.1, 0.5, 0.9]), abs=0.25
    )


@pytest.mark.slow
def test_a_fitted_mixture_finds_its_modes_as_another_library_does(key):
    from sklearn.mixture import GaussianMixture

    data = np.asarray(tw.data.eight_gaussians(key, 1000))
    noise = tw.noise.fit_mixture(data, 8, key=key)
    ours = float(np.mean(log_probs(noise, data)))
    theirs = GaussianMixture(8, random_state=0, n_init=3).fit(data).score(data)
    assert ours == pytest.approx(theirs, abs=0.05)
    assert np.allclose(np.sum(noise.weights), 1.0, atol=1e-5)


@pytest.mark.slow
def test_a_fitted_flow_comes_near_a_bent_density(key):
    truth = tw.energies.Banana()
    data, new = truth.sample(key, (3000,)), truth.sample(jax.random.key(5), (3000,))
    noise = tw.noise.fit_flow(data, key=key, epochs=40, layers=4, width=32)
    best = float(np.mean(log_probs(truth, new)))
    gap = best - float(np.mean(log_probs(noise, new)))
    plain = best - float(np.mean(log_probs(tw.noise.fit_gaussian(data), new)))
    assert gap < 0.2 * plain


@pytest.mark.slow
def test_a_flow_takes_points_of_any_shape_and_keeps_its_scale(key):
    made = tw.noise.flow((2, 2, 1), key=key, layers=1, width=4, knots=3, mean=3.0, deviation=0.01)
    sample = draw(made, key, (50,))
    assert sample.shape == (50, 2, 2, 1)
    assert np.allclose(sample, 3.0, atol=0.2)
    assert np.isfinite(log_probs(made, sample)).all()
    trained = jax.tree.leaves(partition_trainable(made)[0])
    assert trained
    assert not any(np.allclose(leaf, 3.0) for leaf in trained)


SPACES = {"bits": tw.Binary(3), "spins": tw.Spin(3), "labels": tw.Categorical(2, 3), "square": tw.Spin((2, 1))}


@pytest.mark.parametrize("name", SPACES)
def test_independent_sites_are_normalised_and_sampled_correctly(name, key):
    space = SPACES[name]
    data = space.noise(key, (7,))
    noise = tw.noise.fit_independent(data, space)
    states = space.states(0, space.size)
    chances = np.exp(np.asarray(log_probs(noise, states), float))
    assert chances.sum() == pytest.approx(1.0, abs=1e-5)
    assert chances.min() > 0
    counts = (np.asarray(data)[:, None] == np.array(space.levels).reshape(1, -1, *[1] * len(space.shape))).sum(axis=0)
    shares = (counts + 1 / len(space.levels)) / 8
    right = [np.prod([shares[(space.levels.index(v), *i)] for i, v in np.ndenumerate(s)]) for s in np.asarray(states)]
    assert np.allclose(chances, right, rtol=1e-4)
    seen = np.bincount(np.asarray(jax.vmap(space.index)(draw(noise, key, (20_000,)))), minlength=space.size)
    assert stats.chisquare(seen, chances / chances.sum() * 20_000).pvalue > 1e-6
    assert np.isneginf(noise.log_prob(jnp.full(space.shape, 7)))


def test_conditional_noise_is_normalised_symmetric_and_sampled_correctly(key):
    space, x = tw.Categorical(2, 3), jnp.array([2, 0])
    noise = tw.noise.Flips(0.3, space.levels)
    states = space.states(0, 9)
    log_probs = jax.vmap(lambda y: noise.log_prob(y, x))(states)
    assert float(jnp.exp(log_probs).sum()) == pytest.approx(1.0, abs=1e-5)
    assert np.array_equal(log_probs, jax.vmap(lambda y: noise.log_prob(x, y))(states))
    flipped = noise.sample(key, jnp.broadcast_to(x, (20_000, 2)))
    seen = np.bincount(np.asarray(jax.vmap(space.index)(flipped)), minlength=9)
    chances = np.exp(np.asarray(log_probs, float))
    assert stats.chisquare(seen, chances / chances.sum() * 20_000).pvalue > 1e-6
    jitter, y = tw.noise.Jitter(0.5), jnp.array([0.3, -0.2])
    right = tw.energies.Gaussian(jnp.ones(2), 0.25).log_prob(y)
    assert np.allclose(jitter.log_prob(y, jnp.ones(2)), right, rtol=1e-5)
    moved = jitter.sample(key, jnp.ones((20_000, 2)))
    assert np.allclose(np.cov(np.asarray(moved).T), 0.25 * np.eye(2), atol=0.02)
    density = tw.energies.Gaussian(jnp.zeros(2), 1.0)
    whatever = tw.noise.Unconditional(density)
    assert np.allclose(whatever.log_prob(y, jnp.ones(2)), density.log_prob(y))
    assert np.array_equal(whatever.sample(key, jnp.ones((4, 2))), density.sample(key, (4,)))


def test_a_refitted_density_is_not_compiled_again(key):
    traces = []

    @eqx.filter_jit
    def mean(noise, x):
        traces.append(1)
        return jax.vmap(noise.log_prob)(x).mean()

    for fit in (tw.noise.fit_gaussian, tw.noise.fit_marginals, tw.noise.fit_kde):
        before = len(traces)
        values = [mean(fit(data), BENT) for data in (BENT, 2 * BENT)]
        assert len(traces) == before + 1
        assert values[0] != values[1]


class Unnormalised:
    def sample(self, key, shape):
        return jnp.zeros((*shape, 2))


def test_bad_noise_is_refused_when_it_is_given():
    with pytest.raises(ValueError, match="without log_prob; give for example"):
        densities.as_noise(Unnormalised(), (2,))
    with pytest.raises(ValueError, match="without sample"):
        densities.as_noise(lambda x: x, (2,))
    with pytest.raises(ValueError, match=r"points of shape \(2,\).*got Gaussian on points of shape \(3,\)"):
        densities.as_noise(tw.energies.Gaussian(jnp.zeros(3), 1.0), (2,))
    data = jnp.array([[0.5], [3.0], [-0.5], [jnp.nan]])
    with pytest.raises(ValueError, match=r"at 2 of 4 points: point 1 = \[3.\] \(log_prob -inf\), point 3 = \[nan\]"):
        densities.require_support(tw.noise.Uniform(-1.0, 1.0, shape=1), data)
    densities.require_support(tw.noise.Uniform(-1.0, 1.0, shape=1), data[:1])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda key: tw.noise.Uniform(1.0, 1.0), "expected low < high"),
        (lambda key: tw.noise.Uniform(np.nan, 1.0), "expected low to be finite"),
        (lambda key: tw.noise.Uniform(np.zeros(2), np.ones(3)), "expected sides and a shape that agree"),
        (lambda key: tw.noise.Unconditional(tw.energies.Gaussian), "got the class Gaussian; create an instance"),
        (lambda key: tw.noise.fit_gaussian(np.ma.array(np.eye(3), mask=np.eye(3))), "without masked entries"),
        (lambda key: tw.noise.fit_gaussian(np.ones((5, 2))), "expected data that differ"),
        (lambda key: tw.noise.fit_gaussian(np.ones((1, 2))), "expected data .* at least 2 rows"),
        (lambda key: tw.noise.fit_kde(np.array([[1.0], [np.nan]])), "expected finite data"),
        (lambda key: tw.noise.fit_kde(np.eye(2), bandwidth=0.0), "expected bandwidth > 0, got 0.0"),
        (lambda key: tw.noise.fit_marginals(np.eye(2), bins=1), "expected bins to be a whole number >= 2"),
        (lambda key: tw.noise.fit_mixture(np.eye(3), 4, key=key), "expected between 1 and 3 components"),
        (lambda key: tw.noise.fit_mixture(np.eye(3), 2, key=key, steps=0), "expected steps to be a whole number >= 1"),
        (lambda key: tw.noise.flow((), key=key, layers=0), "expected layers to be a whole number >= 1"),
        (lambda key: tw.noise.fit_flow(np.eye(10), key=key, batch_size=10), "batch_size between 1 and nine tenths"),
        (lambda key: tw.noise.IndependentBernoulli([0.0, 0.5]), "expected every probability > 0"),
        (lambda key: tw.noise.IndependentBernoulli([1.0, 0.5]), "expected probabilities below 1"),
        (lambda key: tw.noise.IndependentBernoulli([0.5], (1, 1)), "expected at least two rising whole numbers"),
        (lambda key: tw.noise.IndependentCategorical([[0.5, 0.5]], (0, 1, 2)), "got 2 for 3 levels"),
        (lambda key: tw.noise.fit_independent(jnp.zeros((3, 2), int), tw.Spin(2)), r"among the levels \[-1, 1\]"),
        (lambda key: tw.noise.fit_independent(jnp.zeros((3, 3), int), tw.Binary(2)), "expected data of shape"),
        (lambda key: tw.noise.Jitter(0.0), "expected sigma > 0"),
        (lambda key: tw.noise.Flips(1.0), "expected a probability below 1"),
        (lambda key: tw.noise.Flips(0.5, (0,)), "expected at least two rising whole numbers"),
    ],
)
def test_bad_input_gets_one_sentence(make, sentence, key):
    with pytest.raises(ValueError, match=sentence):
        make(key)
