"""Sums over finite spaces, and transition matrices on them, against brute force in double precision."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import thalweg as tw
from thalweg import exact

FALSE_ALARM = 1e-6

rng = np.random.default_rng(20261115)
COUPLING = np.triu(rng.normal(size=(4, 4)), 1)
FIELD = rng.normal(size=4)
SPACE = tw.Binary(4)
STATES = np.array(list(itertools.product([0, 1], repeat=4)))
ENERGIES = -np.einsum("si,ij,sj->s", STATES, COUPLING, STATES) - STATES @ FIELD
LOG_Z = special.logsumexp(-ENERGIES)
P = np.exp(-ENERGIES - LOG_Z)


class Pairwise(eqx.Module):
    """A plain module, whose arrays are parameters."""

    coupling: jax.Array
    field: jax.Array

    def __call__(self, x):
        return -x @ self.coupling @ x - self.field @ x


PAIRWISE = tw.as_energy(Pairwise(jnp.asarray(COUPLING, jnp.float32), jnp.asarray(FIELD, jnp.float32)), SPACE)


def forbidden(x):
    """No two ones in a row: 8 of the 16 states of SPACE."""
    return jnp.where(jnp.any(x[1:] & x[:-1]), jnp.inf, -0.7 * jnp.sum(x))


# finite spaces


def test_brute_force_in_double_precision_agrees():
    energy = PAIRWISE
    np.testing.assert_allclose(exact.log_z(energy), LOG_Z, rtol=1e-6)
    np.testing.assert_allclose(exact.probabilities(energy), P, rtol=1e-5)
    np.testing.assert_allclose(exact.marginals(energy)[:, 1], P @ STATES, rtol=1e-5)
    np.testing.assert_allclose(exact.entropy(energy), -P @ np.log(P), rtol=1e-5)
    mean, covariance = exact.moments(energy)
    np.testing.assert_allclose(mean, P @ STATES, rtol=1e-5)
    np.testing.assert_allclose(covariance, np.cov(STATES.T, aweights=P, ddof=0), atol=1e-6)
    answer = exact.expectation(energy, lambda x: {"pair": (x[0] * x[1], jnp.outer(x, x)), "all": jnp.all(x == 1)})
    np.testing.assert_allclose(answer["pair"][0], P @ (STATES[:, 0] * STATES[:, 1]), rtol=1e-5)
    np.testing.assert_allclose(answer["pair"][1], np.einsum("s,si,sj->ij", P, STATES, STATES), rtol=1e-5)
    np.testing.assert_allclose(answer["all"], P[-1], rtol=1e-5)
    q = np.exp(-STATES.sum(1)) / np.exp(-STATES.sum(1)).sum()
    np.testing.assert_allclose(exact.kl(energy, lambda x: jnp.sum(x), SPACE), P @ np.log(P / q), rtol=1e-5)


@pytest.mark.parametrize("space", [tw.Binary(15), tw.Spin((3, 5)), tw.Categorical(9, 3)])
def test_independent_sites_over_several_blocks(space):
    # 3^9 states end within a block, whose rest must not count
    levels = np.array(space.levels)
    field = np.random.default_rng(0).normal(size=(*space.shape, len(levels)))

    def energy(x):
        return -jnp.sum(jnp.asarray(field, jnp.float32) * (x[..., None] == levels))

    np.testing.assert_allclose(exact.log_z(energy, space), special.logsumexp(field, axis=-1).sum(), rtol=1e-6)
    np.testing.assert_allclose(exact.marginals(energy, space), special.softmax(field, axis=-1), rtol=2e-5)


def test_a_constant_keeps_its_digits_over_many_states():
    # a plain inner product of 2^14 single-precision numbers is off by 5e-5 here
    answer = exact.expectation(lambda x: 0.0 * x[0], lambda x: jnp.full(3, 7.123), tw.Binary(15))
    np.testing.assert_allclose(answer, 7.123, rtol=3e-6)


def test_states_of_infinite_energy_do_not_count():
    allowed = np.array([not np.any(x[1:] & x[:-1]) for x in STATES])
    weights = np.where(allowed, np.exp(0.7 * STATES.sum(1)), 0)
    np.testing.assert_allclose(exact.log_z(forbidden, SPACE), np.log(weights.sum()), rtol=1e-6)
    np.testing.assert_allclose(exact.probabilities(forbidden, SPACE), weights / weights.sum(), rtol=1e-5)
    p = weights[allowed] / weights.sum()
    np.testing.assert_allclose(exact.entropy(forbidden, SPACE), -p @ np.log(p), rtol=1e-5)
    assert exact.kl(PAIRWISE, forbidden, SPACE) == jnp.inf
    assert jnp.isfinite(exact.kl(forbidden, PAIRWISE, SPACE))


def test_the_gradient_of_log_z_is_minus_the_mean_gradient_of_the_energy():
    energy = PAIRWISE
    gradient = eqx.filter_grad(lambda e: exact.log_z(e))(energy)
    np.testing.assert_allclose(gradient.field, P @ STATES, rtol=1e-5)
    np.testing.assert_allclose(gradient.coupling, np.einsum("s,si,sj->ij", P, STATES, STATES), rtol=1e-5)


def test_the_gradient_of_an_expectation_is_a_covariance():
    # ∂E[f]/∂b_k = Cov(f, x_k)
    gradient = eqx.filter_grad(lambda e: exact.expectation(e, lambda x: x[0] * x[3]))(PAIRWISE).field
    f = STATES[:, 0] * STATES[:, 3]
    np.testing.assert_allclose(gradient, P @ (f[:, None] * STATES) - (P @ f) * (P @ STATES), atol=1e-6)


def test_new_weights_do_not_recompile():
    traces = []

    class Counted(Pairwise):
        def __call__(self, x):
            traces.append(1)
            return super().__call__(x)

    first = exact.log_z(Counted(PAIRWISE.coupling, PAIRWISE.field), SPACE)
    count = len(traces)
    second = exact.log_z(Counted(PAIRWISE.coupling, -PAIRWISE.field), SPACE)
    assert second != first
    assert len(traces) == count + 1  # the look at the shape of the answer


def chi_square(counts, p):
    expected = counts.sum() * p
    assert np.all(counts[p == 0] == 0)
    statistic = np.sum((counts - expected)[p > 0] ** 2 / expected[p > 0])
    return stats.chi2.sf(statistic, np.sum(p > 0) - 1)


def test_exact_samples_have_the_exact_frequencies(key):
    for energy in (PAIRWISE, tw.as_energy(forbidden, SPACE)):
        points = exact.sample(energy, (200, 100), key=key)
        assert points.shape == (200, 100, 4)
        counts = np.bincount(np.asarray(points).reshape(-1, 4) @ [8, 4, 2, 1], minlength=16)
        p = np.asarray(exact.probabilities(energy), float)
        assert chi_square(counts, p / p.sum()) > FALSE_ALARM
    # the test can fail: the same counts against the law of other weights
    assert chi_square(counts[p > 0], P[p > 0] / P[p > 0].sum()) < FALSE_ALARM


def test_exact_samples_reach_every_block(key):
    field = np.linspace(-1, 1, 15)
    points = np.asarray(exact.sample(lambda x: -jnp.dot(field, x), (20_000,), key=key, space=tw.Binary(15)), float)
    on = special.expit(field)
    # the first site says which block a state is in: it must not tell of the others
    pairs, both = points[:, :1] * points[:, 1:], on[0] * on[1:]
    for values, p in ((points, on), (pairs, both)):
        z = (values.mean(0) - p) / np.sqrt(p * (1 - p) / len(points))
        assert np.max(np.abs(z)) < stats.norm.isf(FALSE_ALARM / 60)


def test_one_exact_sample_has_the_shape_of_a_point(key):
    assert exact.sample(PAIRWISE, key=key).shape == (4,)


def test_the_old_order_of_arguments_warns_and_gives_the_same(key):
    with pytest.warns(DeprecationWarning, match=r"sample\(key, ...\) is now sample\(..., key=key\)"):
        old = exact.sample(key, PAIRWISE, (5,))
    np.testing.assert_array_equal(old, exact.sample(PAIRWISE, (5,), key=key))


# transition matrices


def flip_one(new, x):
    """Propose to flip one of the sites, the first as often as all others together: q is not symmetric in weight."""
    site = jnp.argmax(new != x)
    weights = jnp.array([3.0, 1.0, 1.0, 1.0]) / 6
    return jnp.where(jnp.sum(new != x) == 1, jnp.log(weights[site]), -jnp.inf)


def upward(new, x):
    """Propose a bit from a law that depends on where one is: ``q(x'|x) ≠ q(x|x')``."""
    return jnp.sum(jnp.log(jnp.where(new == 1, 0.8, 0.2))) * jnp.where(x[0] == 1, 1, 0) + jnp.where(
        x[0] == 1, 0.0, -4 * jnp.log(2.0)
    )


def test_a_transition_matrix_has_the_new_state_in_its_columns():
    matrix = np.asarray(exact.transition_matrix(upward, SPACE), float)
    np.testing.assert_allclose(matrix.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(matrix[0], 1 / 16, rtol=1e-5)
    np.testing.assert_allclose(matrix[-1], 0.8 ** STATES.sum(1) * 0.2 ** (4 - STATES.sum(1)), rtol=1e-5)


def test_gibbs_redraws_the_block_from_its_conditional_and_leaves_p():
    for block in ([True, False, False, False], [False, True, True, False], [True] * 4):
        matrix = np.asarray(exact.gibbs_matrix(PAIRWISE, jnp.array(block)), float)
        kept = ~np.array(block)
        same = np.all(STATES[:, None, kept] == STATES[None, :, kept], axis=2)
        expected = np.where(same, P, 0) / np.where(same, P, 0).sum(1, keepdims=True)
        np.testing.assert_allclose(matrix, expected, atol=1e-6)
        np.testing.assert_allclose(P @ matrix, P, atol=1e-6)
    # given the rest, one site is on with probability σ(b_k + Σ_j W_kj x_j)
    first = np.asarray(exact.gibbs_matrix(PAIRWISE, jnp.array([True, False, False, False])))
    on = special.expit(FIELD[0] + COUPLING[0] @ STATES.T)
    np.testing.assert_allclose(first @ STATES[:, 0], on, rtol=1e-5)


def test_gibbs_stays_where_no_conditional_exists():
    matrix = np.asarray(exact.gibbs_matrix(forbidden, jnp.array([False, False, False, True]), SPACE))
    np.testing.assert_allclose(matrix.sum(1), 1, rtol=1e-6)
    assert matrix[0b1101, 0b1101] == 1  # 1, 1 in front: neither value of the last bit is allowed
    assert matrix[0b0101, 0b0100] > 0


@pytest.mark.parametrize("proposal", [flip_one, upward])
def test_metropolis_is_the_textbook_formula_and_in_detailed_balance(proposal):
    matrix = np.asarray(exact.metropolis_matrix(PAIRWISE, proposal), float)
    q = np.asarray(exact.transition_matrix(proposal, SPACE), float)
    for i, j in itertools.permutations(range(16), 2):
        accept = min(1, P[j] * q[j, i] / (P[i] * q[i, j])) if q[i, j] > 0 else 0
        assert matrix[i, j] == pytest.approx(q[i, j] * accept, abs=1e-6)
    np.testing.assert_allclose(matrix.sum(1), 1, rtol=1e-6)
    flow = P[:, None] * matrix
    np.testing.assert_allclose(flow, flow.T, atol=1e-7)


def test_metropolis_without_hastings_correction_would_be_seen():
    q = np.asarray(exact.transition_matrix(upward, SPACE), float)
    moves = q * np.minimum(1, P / P[:, None]) * (1 - np.eye(16))
    wrong = moves + np.diag(1 - moves.sum(1))
    assert np.max(np.abs(P @ wrong - P)) > 1e-3


def test_metropolis_leaves_forbidden_states_and_never_enters_them():
    matrix = np.asarray(exact.metropolis_matrix(forbidden, flip_one, SPACE))
    p = np.asarray(exact.probabilities(forbidden, SPACE))
    assert np.all(np.isfinite(matrix))
    assert np.all(matrix[np.ix_(p > 0, p == 0)] == 0)
    np.testing.assert_allclose(matrix[0b1111, [7, 11, 13, 14, 15]], [3 / 6, 1 / 6, 1 / 6, 1 / 6, 0], atol=1e-6)
    np.testing.assert_allclose(p @ matrix, p, atol=1e-7)


# refusals


def quadratic(x):
    return 0.5 * jnp.sum(x**2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: exact.log_z(quadratic, tw.Binary(26)), "expected at most 33554432 states .* got 67108864"),
        (lambda: exact.probabilities(quadratic, tw.Binary(21)), "expected at most 1048576 states"),
        (lambda: exact.gibbs_matrix(quadratic, jnp.ones(13, bool), tw.Binary(13)), "expected at most 4096 states"),
        (
            lambda: exact.gibbs_matrix(quadratic, jnp.ones(3, bool), SPACE),
            r"boolean block of shape \(4,\), got bool of",
        ),
        (lambda: exact.gibbs_matrix(quadratic, jnp.ones(4), SPACE), r"boolean block of shape \(4,\), got float32"),
        (lambda: exact.marginals(quadratic, tw.Real(2)), "expected a finite space for marginals, got Real"),
        (lambda: exact.transition_matrix(lambda new, x: -1.0, SPACE), "sum to one from every state, got 5.88"),
        (
            lambda: exact.sample(lambda x: jnp.inf + x[0], key=jax.random.key(0), space=SPACE),
            "finite on one, got log Z = -inf",
        ),
        (lambda: exact.sample(lambda x: jnp.nan * x[0], key=jax.random.key(0), space=SPACE), "got log Z = nan"),
        (
            lambda: exact.log_z(lambda x: x**2, SPACE),
            r"return a scalar .* got shape \(4,\); sum over",
        ),
        (lambda: exact.sample(quadratic, key=0, space=SPACE), "expected a random key, got 0"),
        (lambda: exact.log_z(tw.energies.Banana), "got the class Banana; create an instance"),
        (lambda: exact.log_z(quadratic, SPACE, bounds=(0, 1)), "expected no bounds and no points on Binary"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()
