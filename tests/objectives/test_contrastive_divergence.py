"""Contrastive divergence on four spins, exactly: every law is a vector of 16 numbers, every chain a matrix."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.objectives.likelihood import MaximumLikelihood

EDGES = list(itertools.combinations(range(4), 2))
SPINS = tw.energies.Ising(tw.energies.Graph(EDGES, 0.0))
STATES = SPINS.space.states(0, SPINS.space.size)
THETA = np.random.default_rng(1).normal(size=10).astype(np.float32) * 0.6
DATA = np.exp(np.random.default_rng(2).normal(size=16)).astype(np.float32)
DATA /= DATA.sum()


def model(theta):
    return eqx.tree_at(lambda e: (e.coupling.weights, e.bias), SPINS, (theta[:6], theta[6:]))


def energies(theta):
    return jax.vmap(model(theta))(STATES)


def after(theta, steps):
    """The law of ``steps`` sweeps of Gibbs sampling from the data."""
    return DATA @ jnp.linalg.matrix_power(tw.samplers.Gibbs().transition_matrix(model(theta)), steps)


def kl(p, theta):
    return jnp.sum(p * (jnp.log(p) - jax.nn.log_softmax(-energies(theta))))


def contrastive_divergence(theta, steps):
    return kl(DATA, theta) - kl(after(theta, steps), theta)


@eqx.filter_jit
def gradients(theta, steps):
    """``∇CD_t`` by autodiff; the gradient that CD-t uses; the term it drops; the gradient of the likelihood."""

    def mean_energy(p):
        return jax.grad(lambda t: jnp.sum(p * energies(t)))(theta)

    law = after(theta, steps)
    frozen = energies(theta) + jnp.log(law)
    dropped = jax.grad(lambda t: jnp.sum(after(t, steps) * frozen))(theta)
    whole = jax.grad(contrastive_divergence)(theta, steps)
    return whole, mean_energy(DATA) - mean_energy(law), dropped, jax.grad(lambda t: kl(DATA, t))(theta)


@pytest.mark.parametrize("steps", [1, 3])
def test_the_gradient_has_the_two_phases_and_the_term_that_is_dropped(steps):
    whole, used, dropped, _ = gradients(THETA, steps)
    assert np.allclose(whole, used - dropped, atol=2e-6)
    # the dropped term is there to be seen, and so is its sign
    assert np.max(np.abs(dropped)) > 0.01


def test_it_is_never_negative_grows_with_the_chain_and_reaches_the_likelihood():
    values = eqx.filter_jit(lambda theta: jnp.stack([contrastive_divergence(theta, t) for t in (0, 1, 2, 4, 64)]))
    for theta in (THETA, -THETA, 2 * THETA):
        curve = values(theta)
        assert abs(curve[0]) < 1e-6
        assert np.all(np.diff(curve) > 0)
        assert np.allclose(curve[-1], kl(DATA, theta), atol=1e-5)


def test_the_gradient_used_becomes_that_of_the_likelihood():
    misses = []
    for steps in (1, 3, 30):
        _, used, _, likelihood = gradients(THETA, steps)
        misses.append(float(jnp.max(jnp.abs(used - likelihood))))
    assert misses[0] > 0.02
    assert misses[0] > misses[1] > misses[2]
    assert misses[2] < 1e-5


def test_the_objective_follows_the_two_phases_and_not_the_likelihood(key):
    counts = jnp.round(DATA * 20_000).astype(int)
    batch = jnp.repeat(STATES, counts, axis=0, total_repeat_length=int(counts.sum()))
    objective = MaximumLikelihood(tw.samplers.Gibbs(), steps=1, start=tw.samplers.from_data())
    ours = jax.jit(jax.grad(lambda theta: objective.loss(key, model(theta), None, None, batch)[0]))(THETA)
    _, used, _, likelihood = gradients(THETA, 1)
    # every statistic is ±1, so a mean of n has an error below 1/√n; 5.5 of them: a false alarm in 1e-6 of all seeds
    limit = 5.5 / len(batch) ** 0.5
    assert np.max(np.abs(ours - used)) < limit
    assert np.max(np.abs(ours - likelihood)) > limit
