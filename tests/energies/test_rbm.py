"""The restricted Boltzmann machine against sums over all its states, for every pair of unit types."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

import thalweg as tw
from thalweg import energies as te

KEY = jax.random.key(7)


def numbers(seed, *shape, scale=0.7):
    return scale * np.random.default_rng(seed).normal(size=shape)


VISIBLE = {
    "bernoulli": lambda: te.BernoulliUnits(numbers(1, 4)),
    "spin": lambda: te.SpinUnits(numbers(1, 4)),
    "categorical": lambda: te.CategoricalUnits(numbers(1, 3, 3)),
    "gaussian": lambda: te.GaussianUnits(numbers(1, 2), [0.6, 1.4]),
    "replicated softmax": lambda: te.ReplicatedSoftmaxUnits(numbers(1, 3), length=3),
}
HIDDEN = {
    "bernoulli": lambda: te.BernoulliUnits(numbers(2, 3)),
    "spin": lambda: te.SpinUnits(numbers(2, 3)),
    "gaussian": lambda: te.GaussianUnits(numbers(2, 3), 0.8),
    "relu": lambda: te.ReLUUnits(numbers(2, 3)),
}
PAIRS = list(itertools.product(VISIBLE, HIDDEN))
FINITE = ("bernoulli", "spin", "categorical")


def machine(visible, hidden):
    visible, hidden = VISIBLE[visible](), HIDDEN[hidden]()
    scale = 0.2 if isinstance(visible, te.GaussianUnits) else 0.7
    return te.RBM(visible, hidden, numbers(3, visible.features, hidden.features, scale=scale))


def points(rbm):
    """All visible points of a finite machine, else some."""
    if isinstance(rbm.space, tw.spaces.Finite):
        return rbm.space.states(0, rbm.space.size)
    if isinstance(rbm.space, tw.Counts):
        return jnp.array([v for v in itertools.product(range(4), repeat=3) if sum(v) == 3])
    return jnp.asarray(numbers(5, 6, 2))


def sum_over_hidden(rbm, v):
    """``-log Σ_h exp(-E(v, h))`` from the joint energy: a sum over states, or an integral of one unit at a time."""
    if isinstance(rbm.hidden.space, tw.spaces.Finite):
        states = rbm.hidden.space.states(0, rbm.hidden.space.size)
        return -jax.nn.logsumexp(jnp.array([-rbm(v, h) for h in states]))
    # given v the units are independent: E(v, h) = E(v, 0) + Σ_j e_j(h_j)
    zero = jnp.zeros(3)
    grid = np.linspace(0 if isinstance(rbm.hidden, te.ReLUUnits) else -14, 14, 4001)
    total = float(rbm(v, zero))
    for j in range(3):
        one = jax.vmap(lambda value, j=j: rbm(v, zero.at[j].set(value)) - rbm(v, zero))(jnp.asarray(grid))
        total -= np.log(integrate.simpson(np.exp(-np.asarray(one, np.float64)), x=grid))
    return total


@pytest.mark.parametrize(("visible", "hidden"), PAIRS)
def test_free_energy_sums_the_joint_energy_over_hidden_units(visible, hidden):
    rbm = machine(visible, hidden)
    for v in points(rbm)[:5]:
        np.testing.assert_allclose(rbm(v), sum_over_hidden(rbm, v), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("visible", "hidden"), PAIRS)
def test_log_z_is_the_sum_over_visible_points(visible, hidden):
    rbm = machine(visible, hidden)
    if (visible not in FINITE and hidden == "relu") or (visible, hidden) == ("replicated softmax", "gaussian"):
        assert rbm.exact_log_z() is None
        return
    if visible == "gaussian":
        # through a function, so that the machine's own log Z is not used
        expected = tw.exact.log_z(lambda v: rbm(v), tw.Real(2))
    else:
        expected = jax.nn.logsumexp(-jax.vmap(rbm)(points(rbm)))
    np.testing.assert_allclose(rbm.log_z, expected, rtol=1e-5)


@pytest.mark.parametrize(("visible", "hidden"), PAIRS)
def test_conditionals_are_the_joint_normalised(visible, hidden):
    rbm = machine(visible, hidden)
    v = points(rbm)[2]
    h = rbm.posterior(v).sample(KEY)
    assert bool(rbm.hidden.space.contains(h))
    np.testing.assert_allclose(rbm.posterior(v).log_prob(h), rbm(v) - rbm(v, h), rtol=1e-4, atol=1e-5)
    everything = points(rbm)
    if visible != "gaussian":
        log_p = jax.vmap(rbm.likelihood(h).log_prob)(everything)
        np.testing.assert_allclose(log_p, jax.nn.log_softmax(-jax.vmap(lambda v: rbm(v, h))(everything)), atol=1e-4)


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("visible", FINITE)
def test_gibbs_and_tempering_leave_the_machine_invariant(visible, hidden):
    rbm = machine(visible, hidden)
    tempering = tw.samplers.ParallelTempering(tw.samplers.Gibbs(), [1.0, 2.0, 5.0])
    for kernel, seed in ((tw.samplers.Gibbs(), 1), (tempering, 2)):
        verdict = tw.check_sampler(kernel, rbm, key=jax.random.key(seed), chains=20_000, steps=5)
        assert verdict.passed, verdict


def test_a_machine_at_another_temperature_without_its_accept_step_is_another_distribution():
    """The free energy of E/T is not F/T: the check sees it."""
    rbm = machine("bernoulli", "bernoulli")
    laws = [tw.tempered(rbm, 3.0), rbm.heated(jnp.array(1 / 3))[0]]
    p, q = (tw.exact.probabilities(lambda v, law=law: law(v), tw.Binary(4)) for law in laws)
    assert float(jnp.sum(jnp.abs(p - q))) > 0.01
    np.testing.assert_allclose(jax.vmap(laws[0])(points(rbm)), jax.vmap(rbm)(points(rbm)) / 3.0, rtol=1e-6)


def test_log_z_of_a_large_machine_sums_the_smaller_layer_and_refuses_two_large_ones():
    small = te.RBM(60, te.BernoulliUnits(numbers(1, 8)), numbers(2, 60, 8))
    turned = te.RBM(te.BernoulliUnits(numbers(1, 8)), 60, numbers(2, 60, 8).T)
    np.testing.assert_allclose(small.log_z, turned.log_z, rtol=1e-6)
    np.testing.assert_allclose(tw.exact.log_z(small), small.log_z)
    large = te.RBM(26, 26, 0.0)
    assert large.exact_log_z() is None
    np.testing.assert_allclose(large.log_z_uncoupled(), 52 * np.log(2), rtol=1e-6)
    with pytest.raises(ValueError, match="expected a layer of at most 25 discrete units"):
        _ = large.log_z


def test_clamped_units_keep_their_values_and_the_others_their_conditional():
    rbm = machine("bernoulli", "bernoulli")
    held = tw.clamp(rbm, np.array([True, False, False, True]), np.array([1, 0, 0, 1]))
    for kernel in (tw.samplers.Gibbs(), tw.samplers.ParallelTempering(tw.samplers.Gibbs(), [1.0, 3.0])):
        verdict = tw.check_sampler(kernel, held, key=KEY, chains=20_000, steps=5)
        assert verdict.passed, verdict
