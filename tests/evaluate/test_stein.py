"""Fisher divergence and kernel Stein discrepancy: closed forms, autodiff, uniform p-values, power, and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

import thalweg as tw
from thalweg.core import ScoreNetwork
from thalweg.evaluate import fisher_divergence, flat_samples, kernel_stein_discrepancy, stein

PLANE = tw.energies.Gaussian(jnp.zeros(2))
PROFILES = {"imq": lambda r2, w: (1 + r2 / w**2) ** -0.5, "rbf": lambda r2, w: jnp.exp(-r2 / (2 * w**2))}


def brute_force(model, x, kernel, width):
    """The matrix of h by automatic differentiation of the kernel."""

    def k(a, b):
        return PROFILES[kernel](jnp.sum((a - b) ** 2), width)

    def h(a, b):
        sa, sb = tw.score(model, a), tw.score(model, b)
        by_a, by_b = jax.grad(k)(a, b), jax.grad(k, argnums=1)(a, b)
        mixed = jnp.trace(jax.jacfwd(jax.grad(k), argnums=1)(a, b))
        return jnp.vdot(sa, sb) * k(a, b) + jnp.vdot(sa, by_b) + jnp.vdot(sb, by_a) + mixed

    return np.asarray(jax.vmap(lambda a: jax.vmap(lambda b: h(a, b))(x))(x))


@pytest.mark.parametrize("kernel", ["imq", "rbf"])
def test_statistics_are_those_of_automatic_differentiation(kernel, key, monkeypatch):
    monkeypatch.setattr(flat_samples, "_ENTRIES", 200)  # several blocks, the last of them not full
    model, x = tw.energies.Banana(), 1.0 + jax.random.normal(key, (53, 2))
    h = brute_force(model, x, kernel, 1.7)
    options = {"kernel": kernel, "bandwidth": 1.7, "bootstrap": 0}
    u = kernel_stein_discrepancy(model, x, statistic="u", **options).statistic
    v = kernel_stein_discrepancy(model, x, statistic="v", **options).statistic
    assert u == pytest.approx((h.sum() - np.trace(h)) / (53 * 52), rel=1e-4)
    assert v == pytest.approx(h.mean(), rel=1e-4)
    assert v == pytest.approx((52 * u + np.diag(h).mean()) / 53, rel=1e-4)
    linear = kernel_stein_discrepancy(model, x, statistic="linear", kernel=kernel, bandwidth=1.7).statistic
    assert linear == pytest.approx(np.diag(h, 1)[:52:2].mean(), rel=1e-4)


def test_the_statistic_is_unbiased_for_the_closed_form(key):
    # p = N(0, 1) and q = N(m, 1) have scores that differ by m, so KSD² = m² E k(x, x') = m² (1 + 2/ℓ²)^(-1/2)
    shift, width, model = 0.7, 1.3, tw.energies.Gaussian(jnp.zeros(1))
    x = shift + jax.random.normal(key, (400, 30, 1))
    options = {"kernel": "rbf", "bandwidth": width, "bootstrap": 0}
    values = np.array([kernel_stein_discrepancy(model, each, **options).statistic for each in x])
    error = values.std(ddof=1) / np.sqrt(len(values))
    assert abs(values.mean() - shift**2 / np.sqrt(1 + 2 / width**2)) < 4 * error
    assert error < 0.02


def test_scalars_images_trees_and_supports_are_compared_in_real_coordinates(key):
    keys = jax.random.split(key, 4)
    flat = jax.random.normal(keys[0], (40, 4))
    energy = lambda x: jnp.sum(x**4) / 4 + jnp.sum(x)
    options = {"bandwidth": 2.0, "bootstrap": 0}
    expected = kernel_stein_discrepancy(energy, flat, **options).statistic
    assert kernel_stein_discrepancy(energy, flat.reshape(40, 2, 2, 1), **options).statistic == pytest.approx(expected)
    tree = lambda point: energy(jnp.concatenate([point["a"], point["b"]]))
    split = {"a": flat[:, :1], "b": flat[:, 1:]}
    assert kernel_stein_discrepancy(tree, split, **options).statistic == pytest.approx(expected, rel=1e-5)
    scalar = kernel_stein_discrepancy(lambda x: x**2 / 2, flat[:, 0], **options).statistic
    assert scalar == pytest.approx(kernel_stein_discrepancy(lambda x: x[0] ** 2 / 2, flat[:, :1], **options).statistic)
    positive = tw.energies.Gamma(2.0, 1.0)
    x = positive.sample(keys[1], (50,))
    space = tw.space_of(positive)
    on_reals = lambda z: positive(space.from_real(z)) - space.log_det(z)
    z = jax.vmap(space.to_real)(x)
    assert kernel_stein_discrepancy(positive, x, **options).statistic == pytest.approx(
        kernel_stein_discrepancy(on_reals, z, **options).statistic, rel=1e-4
    )
    assert kernel_stein_discrepancy(positive, x, key=keys[2]).p_value > 0.01
    network = tw.as_score(lambda x: -(x**3) - 1)
    assert isinstance(network, ScoreNetwork)
    assert kernel_stein_discrepancy(network, flat, **options).statistic == pytest.approx(expected, rel=1e-5)


def test_double_precision_agrees_and_is_kept(key):
    x = 100.0 + np.asarray(jax.random.normal(key, (60, 3)), np.float64)
    model = tw.energies.Gaussian(100.0 * np.ones(3))
    single = kernel_stein_discrepancy(model, x, bandwidth=1.0, bootstrap=0).statistic
    with jax.enable_x64(True):
        model = tw.energies.Gaussian(100.0 * np.ones(3))
        double = kernel_stein_discrepancy(model, x, bandwidth=1.0, bootstrap=0).statistic
        h = brute_force(model, jnp.asarray(x), "imq", 1.0)
    assert double == pytest.approx((h.sum() - np.trace(h)) / (60 * 59), rel=1e-10)
    assert single == pytest.approx(double, abs=1e-4)  # data at 100 have single-precision errors of 1e-5


def p_values(replicates, rows, shift=0.0, seed=0, **options):
    found = []
    for key in jax.random.split(jax.random.key(seed), replicates):
        key_data, key_test = jax.random.split(key)
        x = shift + jax.random.normal(key_data, (rows, 2))
        own = options if options.get("statistic") == "linear" else options | {"key": key_test, "bootstrap": 500}
        found.append(kernel_stein_discrepancy(PLANE, x, **own).p_value)
    return np.array(found)


CASES = [("imq", "u", 200), ("rbf", "u", 200), ("imq", "linear", 1000)]


@pytest.mark.parametrize(("kernel", "statistic", "rows"), CASES)
def test_p_values_are_uniform_in_a_hundred_replicates(kernel, statistic, rows):
    assert kstest(p_values(100, rows, kernel=kernel, statistic=statistic), "uniform").pvalue > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "statistic", "rows"), [*CASES, ("rbf", "linear", 1000)])
def test_p_values_are_uniform_in_500_replicates(kernel, statistic, rows):
    assert kstest(p_values(500, rows, seed=1, kernel=kernel, statistic=statistic), "uniform").pvalue > 0.01


@pytest.mark.parametrize(
    ("kernel", "statistic", "rows"), [("imq", "u", 200), ("rbf", "u", 200), ("imq", "linear", 4000)]
)
def test_a_shift_of_three_tenths_is_found(kernel, statistic, rows):
    found = p_values(60, rows, shift=0.3, kernel=kernel, statistic=statistic)
    assert np.mean(found <= 0.05) >= 0.9


def test_u_and_v_have_one_p_value(key):
    key_data, *keys = jax.random.split(key, 3)
    x = 0.1 + jax.random.normal(key_data, (80, 2))
    u, v = (kernel_stein_discrepancy(PLANE, x, key=keys[0], statistic=each).p_value for each in "uv")
    assert u == v
    assert (u * 1001) == pytest.approx(round(u * 1001))  # (1 + a count) / (1 + 1000)
    assert u != kernel_stein_discrepancy(PLANE, x, key=keys[1]).p_value


def chain(key, rows, memory):
    noise = jax.random.normal(key, (rows, 1))
    step = lambda x, e: (memory * x + np.sqrt(1 - memory**2) * e,) * 2
    return jax.lax.scan(step, noise[0], noise)[1]


@pytest.mark.slow
def test_signs_that_seldom_change_are_right_for_a_chain():
    model = tw.energies.Gaussian(jnp.zeros(1))
    rejected = {0.5: 0, 0.05: 0}
    for key in jax.random.split(jax.random.key(3), 60):
        key_data, *keys = jax.random.split(key, 3)
        x = chain(key_data, 500, 0.8)
        for change, own in zip(rejected, keys, strict=True):
            result = kernel_stein_discrepancy(model, x, key=own, bootstrap=200, change_probability=change)
            rejected[change] += result.p_value <= 0.05
    # as if independent, half of the chains are rejected; a binomial of 60 and 0.05 exceeds 9 with probability 1e-3
    assert rejected[0.5] > 20
    assert rejected[0.05] <= 9


def test_equal_and_repeated_samples_do_not_break_the_bandwidth(key):
    collapsed = kernel_stein_discrepancy(PLANE, jnp.ones((50, 2)), key=key)
    assert collapsed.p_value < 0.01 and "bandwidth 1," in collapsed.method
    repeated = jnp.concatenate([jnp.zeros((90, 2)), jnp.ones((10, 2))])
    assert float(flat_samples.distance_quantiles(repeated, 0.5)) == pytest.approx(np.sqrt(2), rel=1e-5)
    far = 1e4 + jnp.arange(10.0)[:, None]
    assert float(flat_samples.distance_quantiles(far, 0.5)) == pytest.approx(3.0)
    heavy = jnp.concatenate([jnp.arange(100.0), jnp.array([1e7])])[:, None]
    assert 20 < float(flat_samples.distance_quantiles(heavy, 0.5)) < 40


def test_the_fisher_divergence_is_that_of_score_matching(key):
    x = tw.energies.Banana().sample(key, (500,))
    model = tw.energies.Gaussian(jnp.array([1.0, 0.0]), jnp.array([[2.0, 0.5], [0.5, 1.0]]))
    result = fisher_divergence(model, x, score=tw.energies.Banana())
    loss, _ = tw.objectives.ExplicitScoreMatching(tw.energies.Banana()).loss(key, model, None, None, x)
    assert result.value == pytest.approx(float(loss), rel=1e-5)
    assert result.low < result.value < result.high
    same = fisher_divergence(tw.energies.Banana(), x, score=lambda x: tw.score(tw.energies.Banana(), x))
    assert same.value < 1e-10


def test_the_fisher_interval_covers_the_closed_form():
    # ½E‖x/2‖² = 0.25 for x ~ N(0, I) in two dimensions: a binomial of 80 and 0.95 is below 70 with probability 2e-3
    wide, covered = tw.energies.Gaussian(jnp.zeros(2), 2 * jnp.eye(2)), 0
    for x in jax.random.normal(jax.random.key(4), (80, 400, 2)):
        result = fisher_divergence(wide, x, score=lambda x: -x)
        covered += result.low < 0.25 < result.high
    assert covered >= 70


SPINS = tw.energies.Ising(tw.energies.Grid((3, 3)))


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (r"expected samples of shape \(n, 2\), got \(10, 3\)", lambda x, k: stein_test(PLANE, x, key=k)),
        ("at least 2 samples for a p-value, got one", lambda x, k: stein_test(PLANE, x[:1, :2], key=k)),
        ("at least 4 samples for a p-value, got 3", lambda x, k: stein_test(PLANE, x[:3, :2], statistic="linear")),
        ("expected a continuous model for kernel_stein", lambda x, k: stein_test(SPINS, x, key=k)),
        ("expected a continuous model for fisher", lambda x, k: fisher_divergence(SPINS, x, score=PLANE)),
        ("expected floating-point numbers", lambda x, k: stein_test(jnp.sum, np.ones((5, 2), int), key=k)),
        ("NaN or infinity in row 1", lambda x, k: stein_test(PLANE, x[:, :2].at[1, 0].set(jnp.nan), key=k)),
        ("expected a random key, got None", lambda x, k: stein_test(PLANE, x[:, :2])),
        ("expected kernel to be one of", lambda x, k: stein_test(PLANE, x[:, :2], key=k, kernel="gauss")),
        ("expected bandwidth > 0", lambda x, k: stein_test(PLANE, x[:, :2], key=k, bandwidth=0.0)),
        ("change_probability <= 0.5", lambda x, k: stein_test(PLANE, x[:, :2], key=k, change_probability=0.7)),
        ("neither bootstrap nor", lambda x, k: stein_test(PLANE, x[:, :2], statistic="linear", bootstrap=9)),
        ("score is finite", lambda x, k: stein_test(lambda x: jnp.sum(jnp.sqrt(x)), x - 10, key=k)),
        ("the known score", lambda x, k: fisher_divergence(PLANE, x[:, :2], score=None)),
        ("at least 2 samples", lambda x, k: fisher_divergence(PLANE, x[:1, :2], score=PLANE)),
        ("confidence between", lambda x, k: fisher_divergence(PLANE, x[:, :2], score=PLANE, confidence=1.5)),
        ("fix its condition", lambda x, k: stein_test(tw.core.as_conditional(lambda x, c: c), x, key=k)),
    ],
)
def test_bad_input_is_one_sentence(words, call, key):
    key_data, key_test = jax.random.split(key)
    with pytest.raises(ValueError, match=words) as problem:
        call(jax.random.normal(key_data, (10, 3)), key_test)
    assert "\n" not in str(problem.value)


def stein_test(model, x, **options):
    return stein.kernel_stein_discrepancy(model, x, **options)
