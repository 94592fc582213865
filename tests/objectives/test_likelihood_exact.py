import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.core import Energy
from thalweg.objectives.exact_likelihood import ExactLikelihood

CORRELATED = tw.energies.Gaussian(
    jnp.array([0.5, 0.0, -1.0]), jnp.array([[1.0, 0.3, 0.0], [0.3, 0.7, 0.2], [0.0, 0.2, 1.2]])
)
ISING = tw.energies.Ising(tw.energies.Graph([(0, 1), (1, 2), (2, 3), (0, 3)], [0.5, -1.0, 0.3, 0.8]), [0.2, 0, 0, -0.4])


def evaluate(objective, energy, batch):
    """The loss, its metrics and its gradient, compiled whole."""
    _, state = objective.init(jax.random.key(0), energy, batch)
    (loss, step), gradient = _evaluated(objective, energy, state, batch)
    return loss, step.metrics, gradient


@eqx.filter_jit
def _evaluated(objective, energy, state, batch):
    def loss(energy):
        return objective.loss(jax.random.key(0), energy, None, state, batch)

    return eqx.filter_value_and_grad(loss, has_aux=True)(energy)


def assert_same(first, second, atol):
    for left, right in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert np.allclose(left, right, atol=atol)


class Halfnormal(Energy):
    """``scale·x²/2`` above zero."""

    scale: jax.Array
    space: tw.Positive = eqx.field(static=True, default=tw.Positive(1))

    def __call__(self, x):
        return 0.5 * self.scale * jnp.sum(x**2)


@pytest.mark.slow
def test_on_a_finite_space_everything_is_summed():
    batch = ISING.space.states(3, 6)
    loss, metrics, gradient = evaluate(ExactLikelihood(), ISING, batch)
    assert np.allclose(metrics["log_z"], tw.exact.log_z(ISING), atol=1e-5)
    log_p = jnp.log(tw.exact.probabilities(ISING))[3:9]
    assert np.allclose(loss, -np.mean(log_p), atol=1e-5)
    assert np.allclose(metrics["log_likelihood"], np.mean(log_p), atol=1e-5)
    slope = eqx.filter_grad(lambda energy, x: energy(x))
    data = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), jax.vmap(lambda x: slope(ISING, x))(batch))
    model = tw.exact.expectation(ISING, lambda x: slope(ISING, x))
    assert np.max(np.abs(gradient.bias)) > 0.1
    assert_same(gradient, jax.tree.map(jnp.subtract, data, model), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("energy", [tw.energies.two_bumps(), CORRELATED], ids=["line", "room"])
def test_the_grid_has_the_log_z_and_the_gradient_of_the_closed_form(energy):
    batch = energy.sample(jax.random.key(1), (300,))
    # wide enough for the tails; one cell of 8 nodes a dimension per standard deviation or so
    objective = ExactLikelihood(points={1: 512, 3: 64**3}[batch.shape[1]], margin=1.0)
    loss, metrics, gradient = evaluate(objective, energy, batch)
    closed, told, right = evaluate(ExactLikelihood(), energy, batch)
    assert set(told) == {"log_z", "log_likelihood"}
    assert np.allclose(metrics["log_z"], energy.log_z, atol=1e-4)
    assert np.allclose(loss, closed, atol=1e-4)
    assert_same(gradient, right, atol=1e-3)
    assert metrics["edge_share"] < 1e-4
    assert metrics["data_outside"] == 0


def test_the_grid_agrees_with_exact_log_z_where_there_is_no_closed_form():
    energy = tw.as_energy(lambda x: jnp.sum(x**4) - jnp.prod(x) + jnp.sum(jnp.sin(3 * x)), tw.Real(2))
    _, metrics, _ = evaluate(ExactLikelihood(bounds=(-4.0, 4.0)), energy, jnp.zeros((3, 2)))
    assert np.allclose(metrics["log_z"], tw.exact.log_z(energy), atol=1e-4)


def test_the_grid_keeps_to_the_space():
    below = Halfnormal(jnp.ones(()))
    batch = jnp.abs(jax.random.normal(jax.random.key(1), (200, 1)))
    _, box = ExactLikelihood(margin=2.0).init(jax.random.key(0), below, batch)
    assert box.low[0] == 0
    assert np.allclose(box.high, 3 * np.max(batch) - 2 * np.min(batch), rtol=1e-5)
    assert box.open.tolist() == [[False], [True]]
    _, metrics, _ = evaluate(ExactLikelihood(margin=2.0), below, batch)
    assert np.allclose(metrics["log_z"], 0.5 * np.log(jnp.pi / 2), atol=1e-4)
    flat = tw.as_energy(lambda x: 0.0 * jnp.sum(x), tw.Interval(-1.0, 2.0, shape=2))
    _, metrics, _ = evaluate(ExactLikelihood(), flat, jnp.zeros((3, 2)))
    assert np.allclose(metrics["log_z"], np.log(9.0), atol=1e-5)
    assert metrics["edge_share"] == 0  # the space ends there: nothing leaks


def test_mass_at_the_edge_and_data_beyond_it_are_reported():
    flat = tw.as_energy(lambda x: 0.0 * jnp.sum(x), tw.Real(2))
    batch = jnp.array([[0.0, 0.0], [0.9, 0.9], [3.0, 0.0], [0.0, -3.0]])
    _, metrics, _ = evaluate(ExactLikelihood(points=80**2, bounds=(-1.0, 1.0)), flat, batch)
    # ten cells a side, of which the outer ring has 36 in a hundred
    assert np.allclose(metrics["edge_share"], 0.36, atol=1e-5)
    assert metrics["data_outside"] == 0.5
    half = tw.as_energy(lambda x: 0.0 * jnp.sum(x), tw.Positive(1))
    _, metrics, _ = evaluate(ExactLikelihood(points=80, bounds=(0.0, 1.0)), half, jnp.ones((1, 1)))
    assert np.allclose(metrics["edge_share"], 0.1, atol=1e-5)


def test_one_compilation_serves_every_box_and_every_parameter():
    traces = []

    class Counted(Energy):
        scale: jax.Array
        space: tw.Real = eqx.field(static=True, default=tw.Real(()))

        def __call__(self, x):
            traces.append(1)
            return 0.5 * self.scale * x**2

    objective = ExactLikelihood(points=64)
    step = eqx.filter_jit(lambda energy, box, batch: objective.loss(jax.random.key(0), energy, None, box, batch)[0])
    first, second = jnp.linspace(-5.0, 5.0, 11), jnp.linspace(-9.0, 9.0, 11)
    _, box = objective.init(jax.random.key(0), Counted(jnp.ones(())), first)
    _, wider = objective.init(jax.random.key(0), Counted(jnp.ones(())), second)
    traces.clear()
    values = [step(Counted(jnp.asarray(scale)), where, first) for scale, where in ((1.0, box), (0.5, wider))]
    count = len(traces)
    assert count > 0
    assert step(Counted(jnp.asarray(2.0)), box, second) > 0
    assert len(traces) == count
    right = [0.5 * s * jnp.mean(first**2) + 0.5 * jnp.log(2 * jnp.pi / s) for s in (1.0, 0.5)]
    assert np.allclose(jnp.array(values), jnp.array(right), atol=1e-4)


def test_bad_inputs_get_one_sentence(key):
    rows = jax.random.normal(key, (5, 4))
    with pytest.raises(ValueError, match="at most 3 dimensions for quadrature, got 4"):
        ExactLikelihood().init(key, tw.energies.MLP(4, key=key), rows)
    big = tw.as_energy(lambda x: jnp.sum(x), tw.Binary(40))
    with pytest.raises(ValueError, match=r"at most 33554432 states for ExactLikelihood.*use PseudoLikelihood"):
        ExactLikelihood().init(key, big, jnp.zeros((2, 40), int))
    with pytest.raises(ValueError, match="no points and no bounds"):
        ExactLikelihood(points=100).init(key, ISING, ISING.space.states(0, 2))
    plane = tw.as_energy(lambda x: jnp.sum(x**2), tw.Real(2))
    with pytest.raises(ValueError, match="spans a range in every coordinate"):
        ExactLikelihood().init(key, plane, jnp.ones((5, 2)))
    with pytest.raises(ValueError, match="knows its space for points of type int32"):
        ExactLikelihood().init(key, lambda x: jnp.sum(x), jnp.ones((5, 2), int))
    with pytest.raises(ValueError, match="expected points >= 64 in 2 dimensions, got 30"):
        ExactLikelihood(points=30).init(key, plane, rows[:, :2])
    with pytest.raises(ValueError, match="expected margin >= 0, got -1"):
        ExactLikelihood(margin=-1.0)
    with pytest.raises(ValueError, match=r"expected bounds=\(low, high\), got 3.0"):
        ExactLikelihood(bounds=3.0)
    with pytest.raises(ValueError, match="expected points to be a whole number >= 1, got 0"):
        ExactLikelihood(points=0)
