"""Score networks and noise-conditional models: shapes, scales over four decades, gradients, and that they learn."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg.energies.unet import fold, unfold

IMAGE = (8, 8, 1)
MAKE = {
    "NoiseConditionalMLP": lambda key: tw.energies.NoiseConditionalMLP(3, 16, 2, key=key),
    "NoiseConditionalScoreMLP": lambda key: tw.energies.NoiseConditionalScoreMLP(3, 16, 2, key=key),
    "NoiseConditionalUNet": lambda key: tw.energies.NoiseConditionalUNet(IMAGE, (4,), data_scale=1.0, key=key),
    "NoiseConditionalScoreUNet": lambda key: tw.energies.NoiseConditionalScoreUNet(
        IMAGE, (4, 8), patch=2, data_scale=1.0, key=key
    ),
}
# U-Nets take long to compile
MODELS = [pytest.param(make, id=name, marks=pytest.mark.slow if "UNet" in name else ()) for name, make in MAKE.items()]


# compiled once for each model: op by op a U-Net takes many times longer
@eqx.filter_jit
def call_model(model, x, sigma):
    return model(x, sigma)


@eqx.filter_jit
def score_at(model, x, sigma):
    return tw.score(tw.given(model, sigma), x)


def level(sigma):
    return jnp.asarray(sigma, float)


def perturb(model, key):
    """Every weight moved, so that what is zero before training is not."""
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)
    leaves, tree = jax.tree.flatten(arrays)
    keys = jax.random.split(key, len(leaves))
    moved = [leaf + 0.1 * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)]
    return eqx.combine(jax.tree.unflatten(tree, moved), rest)


@pytest.mark.slow
@pytest.mark.parametrize("make", MODELS)
def test_contract(make, key):
    model = perturb(make(key), key)
    x = jax.random.normal(key, model.space.shape)
    out = call_model(model, x, level(0.5))
    assert isinstance(model.space, tw.Real)
    assert out.shape == (x.shape if isinstance(model, tw.core.ScoreNetwork) else ())
    fixed = tw.given(model, 0.5)
    assert fixed.space == model.space
    assert score_at(model, x, level(0.5)).shape == x.shape
    assert isinstance(fixed, tw.core.ScoreNetwork) == isinstance(model, tw.core.ScoreNetwork)


@pytest.mark.parametrize("make", MODELS)
def test_before_training_it_is_the_gaussian_of_the_data_with_noise(make, key):
    model = make(key)
    x = jax.random.normal(key, model.space.shape)
    for sigma in (0.01, 1.0, 50.0):
        np.testing.assert_allclose(score_at(model, x, level(sigma)), -x / (1 + sigma**2), rtol=1e-4)


@pytest.mark.parametrize("make", MODELS)
def test_what_a_network_adds_is_of_one_scale_over_four_decades(make, key):
    """``σ·s`` is of the scale of the noise at every level: that is what the preconditioning is for."""
    model = perturb(make(key), key)
    gains = []
    for sigma in (0.01, 0.1, 1.0):
        x = jnp.sqrt(1 + sigma**2) * jax.random.normal(key, model.space.shape)
        added = score_at(model, x, level(sigma)) + x / (1 + sigma**2)
        gains.append(float(jnp.sqrt(jnp.mean((sigma * added) ** 2)) * jnp.sqrt(1 + sigma**2)))
    assert max(gains) < 30 * min(gains)
    assert min(gains) > 1e-3


@pytest.mark.parametrize("make", MODELS)
def test_gradients_are_finite_and_reach_every_weight(make, key):
    model = perturb(make(key), key)
    batch = jax.random.normal(key, (4, *model.space.shape))
    objective = tw.objectives.NoiseConditionalScoreMatching(tw.noise.geometric_ladder(50.0, 0.005, 10))
    _, state = objective.init(key, model, batch)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda each: objective.loss(key, each, None, state, batch)[0]))(model)
    leaves = jax.tree.leaves(gradient)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in leaves)
    # the constant of an energy is the one thing that a score does not depend on
    still = sum(not bool(jnp.any(leaf != 0)) for leaf in leaves)
    assert still <= (1 if isinstance(model, tw.energies.NoiseConditionalMLP) else 0)


@pytest.mark.parametrize("make", MODELS)
def test_two_points_at_two_levels_batch_as_one_by_one(make, key):
    model = perturb(make(key), key)
    x, sigma = jax.random.normal(key, (3, *model.space.shape)), jnp.array([0.1, 1.0, 10.0])
    together = eqx.filter_jit(lambda model: jax.vmap(model)(x, sigma))(model)
    alone = jnp.stack([call_model(model, *pair) for pair in zip(x, sigma, strict=True)])
    np.testing.assert_allclose(together, alone, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["NoiseConditionalMLP", "NoiseConditionalScoreMLP"])
def test_it_learns_a_gaussian_at_every_level(name, key):
    mean, deviation = jnp.array([1.0, -2.0]), jnp.array([0.5, 2.0])
    data = mean + deviation * jax.random.normal(key, (4000, 2))
    model = getattr(tw.energies, name)(2, 32, 2, data_scale=2.0, key=key)
    sigmas = tw.noise.geometric_ladder(8.0, 0.1, 8)
    objective = tw.objectives.NoiseConditionalScoreMatching(sigmas)
    optimizer = optax.adam(optax.cosine_decay_schedule(5e-3, 800))
    run = tw.fit(model, data, objective, optimizer=optimizer, steps=800, batch_size=256, key=key, ema=0.98)
    for sigma in (0.2, 1.0, 4.0):
        variance = deviation**2 + sigma**2
        x = mean + jnp.sqrt(variance) * jax.random.normal(jax.random.key(7), (500, 2))
        learned = eqx.filter_vmap(score_at, in_axes=(None, 0, None))(run.energy, x, level(sigma))
        # the slope of the score in each coordinate is one over the variance
        slope = -jnp.mean((x - mean) * learned, axis=0)
        np.testing.assert_allclose(slope, jnp.ones(2), atol=0.2)
    kernel = tw.samplers.AnnealedLangevin(sigmas, steps=50, denoise=True)
    init = 8.0 * jax.random.normal(key, (2000, 2))
    drawn = tw.sample(run.energy, kernel, init, key=key, draws=1, burn_in=kernel.length - 1).draws[:, 0]
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.3)
    np.testing.assert_allclose(drawn.std(axis=0), deviation, rtol=0.2)


@pytest.mark.slow
def test_an_energy_of_images_learns_their_scale(key):
    data = 0.3 * jax.random.normal(key, (512, *IMAGE))
    energy = tw.energies.NoiseConditionalUNet(IMAGE, (4,), data_scale=1.0, key=key)
    objective = tw.objectives.NoiseConditionalScoreMatching(tw.noise.geometric_ladder(1.0, 0.1, 4))
    run = tw.fit(energy, data, objective, optimizer=optax.adam(5e-3), steps=150, batch_size=64, key=key)
    x = jnp.sqrt(0.3**2 + 0.3**2) * jax.random.normal(jax.random.key(1), (32, *IMAGE))
    learned = eqx.filter_vmap(score_at, in_axes=(None, 0, None))(run.energy, x, level(0.3))
    # one over the variance is 5.6; before training it is 0.9
    assert float(-jnp.sum(x * learned) / jnp.sum(x**2)) == pytest.approx(1 / (0.3**2 + 0.3**2), rel=0.25)


@pytest.mark.slow
def test_the_score_network_learns_by_sliced_and_denoising(key):
    data = 2.0 + 0.5 * jax.random.normal(key, (2000, 2))
    for objective, variance in (
        (tw.objectives.SlicedScoreMatching(), 0.25),
        (tw.objectives.DenoisingScoreMatching(0.3), 0.25 + 0.09),
    ):
        network = tw.energies.ScoreMLP(2, 32, key=key)
        run = tw.fit(network, data, objective, optimizer=optax.adam(5e-3), steps=500, batch_size=256, key=key)
        x = 2.0 + jnp.sqrt(variance) * jax.random.normal(jax.random.key(3), (500, 2))
        slope = -jnp.mean((x - 2.0) * jax.vmap(run.energy)(x))
        assert float(slope) == pytest.approx(1.0, abs=0.2)


def test_folding_is_undone_and_keeps_neighbours():
    image = jnp.arange(6 * 4 * 3.0).reshape(6, 4, 3)
    assert fold(image, 2).shape == (3, 2, 12)
    np.testing.assert_array_equal(unfold(fold(image, 2), 2), image)


def test_another_level_does_not_compile_again(key):
    model = tw.energies.NoiseConditionalScoreMLP(2, 8, key=key)
    calls = []

    @eqx.filter_jit
    def counted(model, x):
        calls.append(1)
        return model(x)

    for sigma in (0.1, 1.0, 10.0):
        counted(tw.given(model, sigma), jnp.ones(2))
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda key: MAKE["NoiseConditionalMLP"](key)(jnp.ones(3), 0.0), "expected sigma > 0, got 0"),
        (lambda key: MAKE["NoiseConditionalScoreMLP"](key)(jnp.ones(3), jnp.ones(3)), "expected one noise level"),
        (lambda key: MAKE["NoiseConditionalScoreMLP"](key)(jnp.ones(2), 1.0), r"expected one point of shape \(3,\)"),
        (lambda key: tw.energies.NoiseConditionalMLP(2, data_scale=0.0, key=key), "expected data_scale > 0"),
        (lambda key: tw.energies.ScoreMLP(2, 0, key=key), "expected width to be a whole number >= 1"),
        (lambda key: tw.energies.ScoreMLP(2, key=key)(jnp.ones(3)), r"expected one point of shape \(2,\)"),
        (lambda key: tw.energies.NoiseConditionalUNet((9, 8, 1), key=key), "expected height and width to be multiples"),
        (lambda key: tw.energies.NoiseConditionalScoreUNet(IMAGE, (), key=key), "expected the channels of one"),
    ],
)
def test_bad_input_gets_one_sentence(make, sentence, key):
    with pytest.raises(ValueError, match=sentence):
        make(key)
