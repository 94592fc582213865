"""Control variates: nothing is added in expectation, and less noise is left."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.core import Info, Kernel, combine, partition_trainable, score, with_gradient
from thalweg.objectives import AdaBregman, AdaNCE
from thalweg.objectives.control_variates import anchor_control, init_anchor, stein_weights
from thalweg.samplers import from_data
from thalweg.samplers.states import Position

PAST = tw.energies.Gaussian(jnp.array([0.3, -0.2]), jnp.array([[1.5, 0.4], [0.4, 0.8]]))
MOVED = tw.energies.Gaussian(jnp.array([0.35, -0.25]), jnp.array([[1.4, 0.35], [0.35, 0.85]]))
TRUTH = tw.energies.Gaussian(jnp.array([1.0, 0.5]), jnp.array([[1.0, -0.3], [-0.3, 1.2]]))
ROWS = 100


class Exact(Kernel):
    """Independent samples of the energy, as no chain gives them."""

    def init(self, key, energy, x):
        return Position(x)

    def step(self, key, energy, state):
        return Position(energy.sample(key, state.x.shape[:1])), Info()


@eqx.filter_jit
def after_freezing(objective, key, pool):
    """The gradient at `MOVED` of the second update, `PAST` having been frozen with batches of the pool seen before."""
    batches = TRUTH.sample(jax.random.fold_in(key, 0), (pool + 1, ROWS))
    _, state = objective.init(key, PAST, batches[0])
    if state.anchor is not None:
        state = state._replace(anchor=state.anchor._replace(batches=batches[:pool]))
    # all batches seen, and the next update freezes
    state = state._replace(updates=jnp.asarray(pool * 1000))
    _, step = objective.loss(jax.random.fold_in(key, 1), PAST, None, state, batches[0])
    trained, rest = partition_trainable(MOVED)

    def loss(trained):
        return objective.loss(jax.random.fold_in(key, 2), combine(trained, rest), None, step.state, batches[pool])[0]

    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(jax.grad(loss)(trained))])


def gradients(objective, pool=1, count=1000):
    keys = jax.random.split(jax.random.key(7), count)
    return np.asarray(jax.lax.map(lambda key: after_freezing(objective, key, pool), keys, batch_size=100))


def test_stein_weights_make_the_moments_of_a_gaussian_exact(key):
    turn = jnp.array([[1.0, 0.2, 0.0], [0.0, 0.7, -0.4], [0.0, 0.0, 1.3]])
    mean, covariance = jnp.array([1.0, -2.0, 0.5]), turn @ turn.T
    gaussian = tw.energies.Gaussian(mean, covariance)
    x = gaussian.sample(key, (200,))
    weights = stein_weights(x, jax.vmap(lambda point: score(gaussian, point))(x))
    assert float(jnp.sum(weights)) == pytest.approx(1.0, abs=1e-5)
    apart = x - mean
    assert np.allclose(weights @ x, mean, atol=1e-3)
    assert np.allclose(apart.T @ (weights[:, None] * apart), covariance, atol=2e-3)
    assert not np.allclose(x.mean(axis=0), mean, atol=2e-2)


def test_stein_weights_of_few_samples_keep_to_the_trace_and_the_mean(key):
    gaussian = tw.energies.Gaussian(jnp.full(8, 0.5), jnp.diag(jnp.linspace(0.5, 2.0, 8)))
    x = gaussian.sample(key, (80,))
    weights = stein_weights(x, jax.vmap(lambda point: score(gaussian, point))(x))
    assert np.allclose(weights @ x, 0.5, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "half", "left"),
    # of the variance of the samples' half hardly anything is left, since the model is Gaussian; of the data's half a
    # 32nd and what comes of having moved
    [({"stein": True}, "samples", 0.15), ({"anchor": 32}, "data", 0.3), ({"stein": True, "anchor": 32}, "both", 0.2)],
)
def test_controls_leave_the_mean_and_take_the_variance(options, half, left):
    plain = gradients(AdaNCE(2, Exact(), 1, from_data()))
    pool = options.get("anchor", 1)
    ours = gradients(AdaNCE(2, Exact(), 1, from_data(), **options), pool)
    error = np.sqrt((plain.var(axis=0) + ours.var(axis=0)) / len(plain))
    # regression on controls has a bias of the order of their number over that of the samples
    slack = 0.02 * np.sqrt(plain.var(axis=0)) if "stein" in options else 0.0
    assert np.all(np.abs(plain.mean(axis=0) - ours.mean(axis=0)) <= 4.5 * error + slack)
    share = ours.var(axis=0).sum() / plain.var(axis=0).sum()
    other = {"samples": 0.5, "data": 0.5, "both": 0.0}[half]
    assert share < other + left, share


def test_an_anchor_is_the_mean_over_the_newest_batches_as_of_the_last_freezing(key):
    batches = TRUTH.sample(key, (4, ROWS))
    trained, rest = partition_trainable(PAST)

    def mean_gradient(rows):
        return jax.grad(lambda trained: jnp.mean(jax.vmap(combine(trained, rest))(rows)))(trained)

    anchor = init_anchor(PAST, batches[0], 3)
    for number, due in enumerate((True, False, False, True)):
        anchor, control = anchor_control(anchor, PAST, batches[number], jnp.asarray(number), jnp.asarray(due))
        seen = {0: batches[:1], 1: batches[:1], 2: batches[:1], 3: batches[1:]}[number].reshape(-1, 2)
        right = jax.tree.map(jnp.subtract, mean_gradient(seen), mean_gradient(batches[number]))
        for ours, theirs in zip(jax.tree.leaves(control), jax.tree.leaves(right), strict=True):
            assert np.allclose(ours, theirs, atol=1e-5)
    value, gradient = jax.value_and_grad(lambda trained: with_gradient(combine(trained, rest), control))(trained)
    assert value == 0
    assert all(map(np.array_equal, jax.tree.leaves(gradient), jax.tree.leaves(control)))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: AdaNCE(anchor=-1), "expected anchor to be a whole number >= 0, got -1"),
        (
            lambda: AdaNCE(stein=True).init(jax.random.key(0), PAST, jnp.zeros((10, 2))),
            "expected at least 24 samples for Stein's control in 2 dimensions, got 10",
        ),
        (lambda: AdaBregman(anchor=-2), "expected anchor to be a whole number >= 0, got -2"),
        (
            lambda: AdaNCE(kernel=tw.samplers.Gibbs(), stein=True, start=from_data()).init(
                jax.random.key(0), tw.energies.Ising(jnp.zeros((3, 3)), jnp.zeros(3)), jnp.ones((40, 3), int)
            ),
            "expected a continuous space for Stein's control",
        ),
    ],
)
def test_bad_input_gets_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
