"""Centred and standardised gradients and the sparsity term, on machines small enough to enumerate."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg import energies as te
from thalweg.core import partition_trainable

PCD = tw.objectives.MaximumLikelihood(tw.samplers.Gibbs(), 1, tw.samplers.persistent())
EXACT = tw.objectives.ExactLikelihood()


def numbers(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def small():
    return te.RBM(te.BernoulliUnits(numbers(1, 4)), te.BernoulliUnits(numbers(2, 3)), numbers(3, 4, 3))


DATA = jnp.asarray(np.random.default_rng(4).integers(0, 2, (64, 4)) * np.array([1, 1, 1, 0]) + np.array([0, 0, 0, 1]))


def gradient(objective, rbm, data, state=None):
    state = objective.init(jax.random.key(0), rbm, data)[1] if state is None else state
    trained, rest = partition_trainable(rbm)
    loss = lambda trained: objective.loss(jax.random.key(1), eqx.combine(trained, rest), None, state, data)[0]
    return jax.grad(loss)(trained)


@pytest.mark.parametrize("standardise", [False, True])
def test_the_centred_gradient_is_that_of_the_centred_parameters(standardise):
    """One step along it equals a step of gradient descent on (W', b', c') of the centred energy."""
    rbm, objective = small(), tw.objectives.Centred(EXACT, standardise, rate=1.0)
    state = objective.init(jax.random.key(0), rbm, DATA)[1]
    moments = objective.loss(jax.random.key(1), rbm, None, state, DATA)[1].state.moments
    s, t = (
        (jnp.sqrt(moments.visible_variance + 0.01), jnp.sqrt(moments.hidden_variance + 0.01))
        if standardise
        else (jnp.ones(4), jnp.ones(3))
    )

    def machine(w, b, c):
        weights = w / s[:, None] / t
        units = (
            te.BernoulliUnits(b - weights @ moments.hidden_mean),
            te.BernoulliUnits(c - moments.visible_mean @ weights),
        )
        return te.RBM(*units, weights)

    w = rbm.weights * s[:, None] * t
    b = rbm.visible.bias + rbm.weights @ moments.hidden_mean
    c = rbm.hidden.bias + moments.visible_mean @ rbm.weights
    loss = lambda parts: EXACT.loss(jax.random.key(1), machine(*parts), None, None, DATA)[0]
    np.testing.assert_allclose(machine(w, b, c).visible.bias, rbm.visible.bias, atol=1e-5)
    slopes = jax.grad(loss)((w, b, c))
    _, change = jax.jvp(lambda parts: machine(*parts), ((w, b, c),), (slopes,))
    own = gradient(objective, rbm, DATA, state)
    for got, want in zip(jax.tree.leaves(own), jax.tree.leaves(change), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_flipping_every_pixel_flips_the_centred_training():
    """The plain gradient depends on whether a pixel or its negative is learned; the centred one does not."""
    rbm = small()
    # v' = 1 - v is the same machine with W' = -W, b' = -b, c' = c + Wᵀ1
    flipped = te.RBM(
        te.BernoulliUnits(-rbm.visible.bias), te.BernoulliUnits(rbm.hidden.bias + rbm.weights.sum(0)), -rbm.weights
    )
    np.testing.assert_allclose(rbm(DATA[0]), flipped(1 - DATA[0]) - rbm.visible.bias.sum(), rtol=1e-5)
    for objective, same in ((EXACT, False), (tw.objectives.Centred(EXACT, rate=1.0), True)):
        one, other = gradient(objective, rbm, DATA), gradient(objective, flipped, 1 - DATA)
        assert np.allclose(one.weights, -other.weights, atol=1e-4) is same


@pytest.mark.parametrize("visible", ["gaussian", "categorical", "replicated softmax"])
def test_centring_keeps_the_machine_s_law_of_other_units_in_view(visible):
    """A step along the centred gradient lowers the loss of every kind of unit, and the offsets change nothing else."""
    data, units = {
        "gaussian": (numbers(1, 200, 2) * [1.0, 3.0] + [2.0, 0.0], te.GaussianUnits(2)),
        "categorical": (np.random.default_rng(1).integers(0, 3, (200, 3)) // 2 * 2, te.CategoricalUnits(3, k=3)),
        "replicated softmax": (
            np.random.default_rng(1).multinomial(5, [0.7, 0.2, 0.1], 200),
            te.ReplicatedSoftmaxUnits(3, 5),
        ),
    }[visible]
    rbm = te.RBM(units, te.BernoulliUnits(numbers(2, 2)), 0.3 * numbers(3, units.features, 2))
    data = tw.spaces.as_points(rbm.space, data)
    objective = tw.objectives.Centred(EXACT)
    trained, rest = partition_trainable(rbm)
    before = EXACT.loss(jax.random.key(0), rbm, None, None, data)[0]
    step = jax.tree.map(lambda leaf, slope: leaf - 0.01 * slope, trained, gradient(objective, rbm, data))
    after = EXACT.loss(jax.random.key(0), eqx.combine(step, rest), None, None, data)[0]
    assert after < before - 1e-3


@pytest.mark.parametrize("objective", [tw.objectives.Centred(PCD), tw.objectives.Centred(PCD, standardise=True)])
def test_a_machine_learns_from_zero_weights(objective):
    """Hidden units that start equal become different, and the machine learns what one unit could not."""
    data = jnp.tile(jnp.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]]), (25, 1))
    # standardised steps are longer by the inverse variances, and so are the oscillations of persistent chains
    schedule = optax.linear_schedule(0.02 if objective.standardise else 0.3, 0.0, 2000)
    zero, settings = te.RBM(4, 3, 0.0), dict(steps=2000, batch_size=100, key=jax.random.key(0))
    run = tw.fit(zero, data, objective, optimizer=optax.sgd(schedule), **settings)
    columns = np.asarray(run.energy.weights).T
    assert min(np.abs(columns[i] - columns[j]).max() for i, j in ((0, 1), (0, 2), (1, 2))) > 0.3
    # the bound is -log 4 = -1.386, four independent bits have -2.77
    assert float(jax.vmap(run.energy.log_prob)(data).mean()) > -1.7


def test_sparse_pulls_hidden_units_to_their_target():
    data = jnp.asarray(np.random.default_rng(0).integers(0, 2, (200, 4)))
    rbm = te.RBM(4, 3, 0.1 * numbers(5, 4, 3))
    for weight, low, high in ((0.0, 0.4, 0.6), (20.0, 0.08, 0.14)):
        objective = tw.objectives.Sparse(PCD, target=0.1, weight=weight)
        run = tw.fit(rbm, data, objective, optimizer=optax.sgd(0.05), steps=400, batch_size=200, key=jax.random.key(1))
        means = run.energy.hidden_means(data).mean(0)
        assert bool(jnp.all((means > low) & (means < high))), means
        np.testing.assert_allclose(run.history["hidden_activity"][-1], means.mean(), atol=0.02)


def test_an_energy_without_hidden_units_is_refused():
    with pytest.raises(ValueError, match="expected a machine with hidden units for Centred, got Ising"):
        tw.fit(
            te.Ising(jnp.zeros((4, 4)), space=tw.Binary(4)),
            DATA,
            tw.objectives.Centred(PCD),
            optimizer=optax.sgd(0.1),
            steps=1,
            batch_size=8,
            key=jax.random.key(0),
        )
    with pytest.raises(ValueError, match="expected an objective inside Centred, got Gibbs"):
        tw.objectives.Centred(tw.samplers.Gibbs())


def stochastic_gradients(objective, rbm, data, updates=400, burn_in=200):
    """The gradients of many updates of one machine, after its persistent chains have reached their law."""
    trained, rest = partition_trainable(rbm)

    def one(state, key):
        loss = lambda trained: objective.loss(key, eqx.combine(trained, rest), None, state, data)
        gradient, step = jax.grad(loss, has_aux=True)(trained)
        return step.state, gradient

    keys = jax.random.split(jax.random.key(4), burn_in + updates)
    drawn = jax.jit(lambda state: jax.lax.scan(one, state, keys)[1])(objective.init(jax.random.key(0), rbm, data)[1])
    return jax.tree.map(lambda leaf: leaf[burn_in:], drawn)


@pytest.mark.parametrize("kind", ["plain", "centred", "tempered"])
def test_stochastic_gradients_agree_with_enumeration(kind):
    """Within 4 standard errors, which allow for the correlation between updates by batch means."""
    rbm = small()
    ladder = tw.samplers.ParallelTempering(tw.samplers.Gibbs(), [1.0, 2.0])
    objective = {
        "plain": PCD,
        "centred": tw.objectives.Centred(PCD, rate=1e-6),  # offsets that stay where they are
        "tempered": tw.objectives.MaximumLikelihood(ladder, 1, tw.samplers.persistent()),
    }[kind]
    drawn, expected = stochastic_gradients(objective, rbm, DATA), gradient(EXACT, rbm, DATA)
    if kind == "centred":
        expected = rbm.centre(expected, objective.init(jax.random.key(0), rbm, DATA)[1].moments, False)
    for got, want in zip(jax.tree.leaves(drawn), jax.tree.leaves(expected), strict=True):
        means = np.asarray(got, np.float64).reshape(20, 20, -1).mean(1)
        error = means.std(0, ddof=1) / np.sqrt(20)
        assert np.all(np.abs(means.mean(0) - np.asarray(want).reshape(-1)) < 4 * error + 1e-6)
