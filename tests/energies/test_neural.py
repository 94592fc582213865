"""Networks as energies: shapes and sizes counted by hand, bounds sampled, one compilation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import paramax
import pytest

from thalweg.core import refresh
from thalweg.energies.layers import Dense
from thalweg.energies.neural import MLP, Activation, ConvNet, Residual, ResNet


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype=jnp.float32)


def parameters(model):
    """How many numbers are trained: everything but the carried vectors."""
    is_vectors = lambda node: isinstance(node, paramax.NonTrainable)
    leaves = jax.tree.leaves(model, is_leaf=is_vectors)
    return sum(leaf.size for leaf in leaves if not is_vectors(leaf))


def abstract(*args, **options):
    """A network without its numbers, so that even the large presets cost nothing."""
    return eqx.filter_eval_shape(ConvNet, *args, key=jax.random.key(0), **options)


# kernel²·inputs·outputs + outputs of each convolution, then inputs·outputs + outputs of each dense layer
COUNTS = {
    "A": (640 + 131_200 + 524_544 + 590_080 + 4_195_328) + (524_800 + 513),
    "B": (1_792 + 131_200 + 524_544 + 1_048_832 + 4_195_328) + (524_800 + 513),
    "C": (1_792 + 131_200 + 524_544 + 2_097_664 + 8_389_632) + (524_800 + 131_328 + 257),
    "digits": (320 + 32_832 + 131_200) + (65_664 + 129),
}
# what every convolution leaves of the image
IMAGES = {
    "A": [(28, 28, 1), (28, 28, 64), (14, 14, 128), (7, 7, 256), (4, 4, 256), (1, 1, 1024)],
    "B": [(32, 32, 3), (32, 32, 64), (16, 16, 128), (8, 8, 256), (4, 4, 256), (1, 1, 1024)],
    "C": [(32, 32, 3), (32, 32, 64), (16, 16, 128), (8, 8, 256), (4, 4, 512), (1, 1, 1024)],
    "digits": [(8, 8, 1), (8, 8, 32), (4, 4, 64), (2, 2, 128)],
}


@pytest.mark.parametrize("preset", COUNTS)
def test_presets_are_the_published_models(preset):
    # A, B and C: Xu (2022), Self-Adapting Noise-Contrastive Estimation for Energy-Based Models, Table 5.1
    model = abstract(preset)
    assert parameters(model) == COUNTS[preset]
    assert model.space.shape == IMAGES[preset][0]
    images = [jax.ShapeDtypeStruct(model.space.shape, jnp.float32)]
    for convolution in model.convolutions:
        images.append(eqx.filter_eval_shape(lambda layer, x: layer(x), convolution, images[-1]))
    assert [image.shape for image in images] == IMAGES[preset]
    layers = [layer.weight for layer in (*model.convolutions, *model.dense)]
    assert all(layer.vectors is not None for layer in layers)
    assert eqx.filter_eval_shape(lambda m, x: m(x), model, images[0]).shape == ()


def test_width_multiplies_channels_and_units():
    model = abstract("A", width=0.25)
    assert [layer.weight.array.shape[-1] for layer in (*model.convolutions, *model.dense)] == [
        16,
        32,
        64,
        64,
        256,
        128,
        1,
    ]
    assert abstract("digits", width=2.0).dense[0].weight.array.shape == (1024, 256)
    assert abstract("digits", width=1e-3).convolutions[0].weight.array.shape == (3, 3, 1, 1)


@pytest.fixture(scope="module")
def models():
    key = jax.random.key(0)
    return {
        "MLP": MLP(3, width=8, depth=2, key=key),
        "ConvNet": ConvNet(shape=(5, 6, 2), layers=[(3, 1, 1, 3), (4, 2, 1, 4)], dense=[8], key=key),
        "image ResNet": ResNet((6, 5, 1), channels=(2, 2), key=key),
        "vector ResNet": ResNet(3, channels=(8,), key=key),
    }


NAMES = ["MLP", "ConvNet", "image ResNet", "vector ResNet"]


@pytest.mark.parametrize("name", NAMES)
def test_an_energy_is_a_scalar_of_one_point(models, name):
    traces = []

    @eqx.filter_jit
    def evaluate(model, batch):
        traces.append(batch.shape)
        return jax.vmap(jax.value_and_grad(model))(batch)

    model = models[name]
    batch = normal(1, 4, *model.space.shape)
    energies, scores = evaluate(model, batch)
    assert energies.shape == (4,)
    assert scores.shape == batch.shape
    assert len(set(energies.tolist())) == 4
    assert jnp.all(jnp.any(scores.reshape(4, -1) != 0, axis=1))
    single = eqx.filter_jit(lambda model, x: model(x))
    np.testing.assert_allclose(energies, [single(model, x) for x in batch], rtol=1e-4, atol=1e-5)
    # new weights are the same program
    other = jax.tree.map(lambda leaf: 1.5 * leaf + 0.1 if eqx.is_inexact_array(leaf) else leaf, model)
    assert not jnp.any(evaluate(other, batch)[0] == energies)
    assert traces == [batch.shape]


def test_a_description_is_a_program():
    one, other, slower = (MLP(3, width=8, key=jax.random.key(k), slope=s) for k, s in ((0, 0.2), (1, 0.2), (0, 0.1)))
    assert jax.tree.structure(one) == jax.tree.structure(other) != jax.tree.structure(slower)


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_shape_is_refused_when_traced(models, name):
    model = models[name]
    with pytest.raises(ValueError, match=r"expected one point of shape .*, got .*; batch by jax\.vmap"):
        jax.eval_shape(lambda x: model(x), jax.ShapeDtypeStruct((4, *model.space.shape), jnp.float32))


def test_both_convolutions_give_the_same_network():
    options = {"shape": (6, 6, 1), "layers": [(4, 2, 1, 3)], "activation": "silu", "key": jax.random.key(3)}
    im2col, native = (ConvNet(method=method, **options) for method in ("im2col", "native"))
    batch = normal(3, 5, 6, 6, 1)

    def results(model):
        loss = lambda model: jnp.mean(jax.vmap(model)(batch) ** 2)
        gradient = jax.tree.leaves(eqx.filter(eqx.filter_grad(loss)(model), eqx.is_array))
        return jax.vmap(model)(batch), jax.vmap(jax.grad(model))(batch), gradient

    for one, other in zip(*(jax.tree.leaves(eqx.filter_jit(results)(m)) for m in (im2col, native)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5 * float(jnp.max(jnp.abs(other))) + 1e-12)


def test_several_networks_at_once():
    keys = jax.random.split(jax.random.key(4), 3)
    build = lambda key: ConvNet(shape=(6, 6, 1), layers=[(4, 2, 1, 3)], key=key)
    x = normal(4, 6, 6, 1)
    energies = eqx.filter_jit(eqx.filter_vmap(lambda key: build(key)(x)))(keys)
    np.testing.assert_allclose(energies, [build(key)(x) for key in keys], rtol=1e-4)


advance = eqx.filter_jit(refresh)


def scale_weights(model, factor):
    """The same network with weights ``factor`` times as large, and its vectors refreshed 20 times."""
    arrays = lambda layers: [layer.weight.array for layer in layers]
    layers = eqx.tree_at(arrays, model.layers, [factor * array for array in arrays(model.layers)])
    for _ in range(20):
        layers = advance(layers)
    return eqx.tree_at(lambda m: m.layers, model, layers)


@eqx.filter_jit
def steepest(model):
    """The largest slope between sampled pairs, near and far, small and large, and the largest gradient."""
    x, y = (jnp.concatenate([0.3 * normal(seed, 1000, 10), 10 * normal(seed, 1000, 10)]) for seed in (5, 6))
    energy = jax.vmap(model)
    slopes = [jnp.abs(energy(x) - energy(z)) / jnp.linalg.norm(x - z, axis=1) for z in (y, x + 0.01 * (y - x))]
    return jnp.max(jnp.stack([*slopes, jnp.linalg.norm(jax.vmap(jax.grad(model))(x), axis=1)]))


@pytest.mark.parametrize("activation", [None, "leaky_relu", jnp.tanh], ids=["default", "leaky_relu", "tanh"])
def test_a_normalised_dense_network_is_1_lipschitz(activation):
    options = {"width": 32, "depth": 3, "key": jax.random.key(5), "activation": activation}
    # 1 % is what the norms are right to, layer by layer
    assert steepest(scale_weights(MLP(10, spectral_norm=True, **options), 5.0)) <= 1.01**4


def test_without_normalisation_it_is_not():
    assert steepest(scale_weights(MLP(10, width=32, depth=3, key=jax.random.key(5)), 5.0)) > 1.5


def test_the_lipschitz_bound_is_attained():
    # one unit a layer, all pulling the same way: slopes multiply, and those of the default activation come close to 1
    model = MLP(1, width=1, depth=2, spectral_norm=True, key=jax.random.key(6))
    arrays = lambda m: [layer.weight.array for layer in m.layers]
    model = eqx.tree_at(arrays, model, [5 * jnp.abs(array) for array in arrays(model)])
    slopes = eqx.filter_jit(lambda m, x: jax.vmap(jax.grad(m))(x))(advance(model), jnp.linspace(-5, 5, 1001)[:, None])
    assert 0.97 < float(jnp.max(jnp.abs(slopes))) <= 1.0 + 1e-5


def test_training_leaves_the_vectors_to_refresh(models):
    model = models["ConvNet"]
    gradient = eqx.filter_jit(eqx.filter_grad(lambda m: m(normal(7, 5, 6, 2))))(model)
    for layer in (*gradient.convolutions, *gradient.dense):
        assert all(not jnp.any(leaf) for leaf in jax.tree.leaves(layer.weight.vectors))
        assert jnp.any(layer.weight.array != 0)


def test_activations():
    x = jnp.linspace(-4.0, 4.0, 2001)
    slopes = {name: jax.vmap(jax.grad(Activation(name, slope=0.3)))(x) for name in ("leaky_relu", "silu", "lipswish")}
    np.testing.assert_allclose(slopes["leaky_relu"], jnp.where(x >= 0, 1.0, 0.3))
    assert 1.09 < float(jnp.max(slopes["silu"])) < 1.1
    assert 0.99 < float(jnp.max(slopes["lipswish"])) < 1.0
    assert Activation(jnp.cos)(jnp.zeros(())) == 1.0
    assert MLP(2, width=8, key=jax.random.key(0)).activation.function == "silu"
    assert abstract("digits").activation == Activation("leaky_relu", 0.2)
    assert abstract("digits", slope=0.1).activation.slope == 0.1


def test_a_residual_block_adds():
    zero = eqx.tree_at(lambda d: d.weight.array, Dense(4, 4, key=jax.random.key(0)), jnp.zeros((4, 4)))
    layer = Dense(4, 4, key=jax.random.key(1))
    x, silu = normal(8, 4), Activation("silu")
    np.testing.assert_array_equal(Residual(layer, zero, None)(x, silu), x)
    np.testing.assert_array_equal(Residual(layer, zero, layer)(x, silu), layer(x))
    expected = x + layer(jax.nn.silu(layer(jax.nn.silu(x))))
    np.testing.assert_allclose(Residual(layer, layer, None)(x, silu), expected, rtol=1e-6)


def test_a_residual_net_halves_the_image():
    build = lambda key: ResNet((7, 6, 2), channels=(4, 4, 8), blocks=2, key=key)
    model = eqx.filter_eval_shape(build, jax.random.key(0))
    assert [block.shortcut is None for block in model.blocks] == [True, True, False, True, False, True]

    def images(model, x):
        x = model.stem(x)
        return [x := block(x, model.activation) for block in model.blocks]

    sizes = [image.shape for image in eqx.filter_eval_shape(images, model, jnp.zeros((7, 6, 2)))]
    assert sizes == [(7, 6, 4), (7, 6, 4), (3, 3, 4), (3, 3, 4), (1, 1, 8), (1, 1, 8)]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda key: ConvNet("D", key=key), "expected a preset among A, B, C, digits, got 'D'"),
        (
            lambda key: ConvNet("A", shape=(28, 28, 1), key=key),
            "expected a preset or a shape with layers, got 'A' and more",
        ),
        (lambda key: ConvNet(key=key), "expected a preset or a shape with layers, got None with None"),
        (lambda key: ConvNet("digits", width=0, key=key), "expected width > 0, got 0"),
        (lambda key: ConvNet(shape=(8, 8, 1), layers=[(9, 1, 0, 4)], key=key), "expected at least 9 pixels a side"),
        (lambda key: MLP(2, width=0, key=key), "expected width to be a whole number >= 1, got 0"),
        (lambda key: MLP(2, activation="swish", key=key), "expected an activation among leaky_relu, silu, lipswish"),
        (lambda key: ResNet((8, 8), key=key), "expected an image .* or a vector"),
        (lambda key: ResNet((8, 8, 1), channels=(), key=key), "expected the channels of at least one stage"),
    ],
)
def test_bad_descriptions_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build(jax.random.key(0))
