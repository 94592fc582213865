"""Conditional noise-contrastive estimation: its formula, the width of its noise, and that log Z is not seen."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.core import Energy
from thalweg.objectives import ConditionalNCE
from thalweg.objectives.conditional_nce import signal_to_noise

MODEL = tw.energies.Gaussian(jnp.array([0.5, -1.0]), jnp.array([[1.0, 0.4], [0.4, 0.7]]))
BATCH = 0.3 + jax.random.normal(jax.random.key(5), (48, 2))
SPINS = tw.energies.Ising(jnp.array([[0.0, 0.6, -0.4], [0.6, 0.0, 0.5], [-0.4, 0.5, 0.0]]), jnp.array([0.3, -0.2, 0.1]))


class Mean(Energy):
    """``½‖x - μ‖² + c``, with μ and c its parameters."""

    mean: jax.Array
    constant: jax.Array
    space: tw.Real = eqx.field(static=True, default=tw.Real(2))

    def __call__(self, x):
        return 0.5 * jnp.sum((x - self.mean) ** 2) + self.constant


class Shrinking(eqx.Module):
    """``y ~ N(x/2, 1)``: not symmetric."""

    def sample(self, key, x):
        return 0.5 * x + jax.random.normal(key, x.shape)

    def log_prob(self, y, x):
        return -0.5 * jnp.sum((y - 0.5 * x) ** 2)


def test_the_loss_is_its_formula_for_noise_that_is_not_symmetric(key):
    objective = ConditionalNCE(noise=Shrinking())
    params, state = objective.init(key, MODEL, BATCH)
    assert params is state is None
    value, step = objective.loss(key, MODEL, None, None, BATCH)
    y = 0.5 * BATCH + jax.random.normal(key, BATCH.shape)
    there, back = (np.sum((np.asarray(a) - 0.5 * np.asarray(b)) ** 2, axis=1) / 2 for a, b in ((y, BATCH), (BATCH, y)))
    g = np.asarray(jax.vmap(MODEL)(y) - jax.vmap(MODEL)(BATCH)) - there + back
    assert float(value) == pytest.approx(np.mean(np.log1p(np.exp(-g))), rel=1e-5)
    assert float(step.metrics["accuracy"]) == pytest.approx(np.mean(g > 0))
    assert float(step.metrics["log_ratio"]) == pytest.approx(g.mean(), rel=1e-4)


def test_log_z_does_not_matter(key):
    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def loss(energy):
        return ConditionalNCE(0.5).loss(key, energy, None, None, BATCH)[0]

    (value, slope), (other, shifted) = (loss(Mean(jnp.ones(2), jnp.array(c))) for c in (0.0, 4.0))
    assert float(value) == pytest.approx(float(other), rel=1e-5)
    assert np.max(np.abs(slope.mean)) > 1e-2
    assert np.allclose(slope.mean, shifted.mean, rtol=1e-5, atol=1e-6)
    assert abs(float(slope.constant)) < 1e-6


@pytest.mark.slow
def test_the_width_is_chosen_between_two_ends_where_the_gradient_vanishes(key):
    data = MODEL.sample(key, (2000,))
    model = Mean(jnp.zeros(2), jnp.zeros(()))
    objective = ConditionalNCE()
    _, sigma = objective.init(key, model, data)
    assert 0.1 < float(sigma) < 10
    noises = jax.vmap(tw.noise.Jitter)(jnp.array([0.003, 1.0, 1000.0]) * sigma)
    found = signal_to_noise(key, model, data, noises)
    assert float(found[1]) > 0.01
    assert np.all(np.abs(found[jnp.array([0, 2])]) < 0.1 * found[1])

    @eqx.filter_jit
    @jax.vmap
    def slopes(key, x):
        return eqx.filter_grad(lambda model: objective.loss(key, model, None, sigma, x[None])[0])(model).mean

    # pair by pair; of 16 parts the variance is known to a third
    each = slopes(jax.random.split(key, 2000), data)
    plain = float(jnp.sum(each.mean(axis=0) ** 2) / jnp.sum(each.var(axis=0)))
    assert float(found[1]) == pytest.approx(plain, rel=0.6)
    _, step = objective.loss(key, model, None, sigma, data)
    assert step.metrics["noise_scale"] == sigma == step.state


def test_where_the_first_model_fits_no_width_is_chosen_out_of_noise(key):
    model = tw.energies.Gaussian(jnp.zeros(16), jnp.linspace(0.5, 2.0, 16))
    for each in jax.random.split(key, 8):
        key_data, key_width, key_loss = jax.random.split(each, 3)
        batch = model.sample(key_data, (250,))
        _, sigma = ConditionalNCE().init(key_width, model, batch)
        # too near it would be log 2, too far 0
        assert 0.15 < float(ConditionalNCE().loss(key_loss, model, None, sigma, batch)[0]) < 0.55


def test_on_finite_spaces_sites_are_flipped_as_often_as_teaches_most(key):
    batch = tw.exact.sample(SPINS, (500,), key=key)
    flat = tw.energies.Ising(jnp.zeros((3, 3)), jnp.zeros(3))
    objective = ConditionalNCE()
    _, probability = objective.init(key, flat, batch)
    assert 0.15 < float(probability) <= 0.5

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def loss(energy):
        return objective.loss(key, energy, None, probability, batch)[0]

    value, slope = loss(flat)
    assert float(value) == pytest.approx(np.log(2), rel=1e-5)  # a flat energy cannot tell points apart
    assert np.max(np.abs(slope.bias)) > 1e-3


@pytest.mark.parametrize(
    ("objective", "energy"),
    [
        pytest.param(ConditionalNCE(1.0), MODEL, id="gaussian"),
        pytest.param(ConditionalNCE(noise=Shrinking()), MODEL, id="not symmetric", marks=pytest.mark.slow),
        pytest.param(ConditionalNCE(noise=tw.noise.Flips(0.3, (-1, 1))), SPINS, id="spins"),
    ],
)
def test_the_truth_is_where_the_loss_is_smallest(objective, energy, key):
    verdict = tw.check_objective(objective, key=key, energy=energy, batches=200)
    assert verdict.passed, verdict.text
    assert verdict.detectable < 0.25


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda key: ConditionalNCE(0.0), "expected sigma > 0"),
        (lambda key: ConditionalNCE(0.5, tw.noise.Jitter(0.5)), "expected sigma or noise, got both"),
        (
            lambda key: ConditionalNCE(0.5).init(key, SPINS, jnp.ones((4, 3), int)),
            "got a Gaussian kernel on Spin.*leave sigma out",
        ),
        (lambda key: ConditionalNCE(noise=BATCH).init(key, MODEL, BATCH), r"expected noise with sample\(key, x\)"),
        (lambda key: ConditionalNCE().init(key, MODEL, BATCH[:1]), "expected at least 2 rows"),
        (
            lambda key: ConditionalNCE().init(key, tw.as_energy(jnp.sum, tw.Counts(2)), jnp.ones((3, 2), int)),
            "expected noise for Counts",
        ),
    ],
)
def test_bad_input_gets_one_sentence(make, sentence, key):
    with pytest.raises(ValueError, match=sentence):
        make(key)
