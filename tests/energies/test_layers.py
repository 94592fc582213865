"""Convolutions two ways, and the norms that layers are divided by."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import paramax
import pytest

from thalweg.core import refresh
from thalweg.energies.layers import Conv, Dense, Weight, convolve

# kernel, stride, padding, height, width: all layers of the presets, and shapes that leave a rest or miss a divisor
GEOMETRIES = [
    (3, 1, 1, 6, 6),
    (4, 2, 1, 8, 8),
    (4, 2, 1, 7, 9),
    (3, 2, 1, 7, 7),
    (4, 1, 0, 4, 4),
    (2, 2, 0, 7, 6),
    (1, 1, 0, 5, 4),
    (5, 3, 2, 11, 8),
    (3, 2, 0, 3, 8),
    (1, 2, 0, 6, 5),
]


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype=jnp.float32)


def assert_same(one, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-4), one, other)


@pytest.mark.parametrize(("kernel", "stride", "padding", "height", "width"), GEOMETRIES)
def test_im2col_equals_the_native_convolution(kernel, stride, padding, height, width):
    x, weight = normal(0, height, width, 3), normal(1, kernel, kernel, 3, 5)

    def results(method):
        def curved(x, weight):
            return jnp.sum(jnp.sin(convolve(x, weight, stride=stride, padding=padding, method=method)))

        value = convolve(x, weight, stride=stride, padding=padding, method=method)
        return value, *jax.grad(curved, argnums=(0, 1))(x, weight)

    native = jax.jit(partial(results, "native"))()
    rows, columns = ((size + 2 * padding - kernel) // stride + 1 for size in (height, width))
    assert native[0].shape == (rows, columns, 5)
    assert_same(jax.jit(partial(results, "im2col"))(), native)


def test_im2col_agrees_under_every_transformation():
    weight = normal(1, 4, 4, 3, 5)
    batch = normal(2, 6, 8, 8, 3)
    weights = jnp.stack([weight, 2 * weight[::-1], weight - 1])

    def results(method):
        def curved(weight, x):
            return jnp.sum(jnp.sin(0.3 * convolve(x, weight, stride=2, padding=1, method=method)))

        def squared_score(weight, x):
            return jnp.sum(jax.grad(curved, argnums=1)(weight, x) ** 2)

        def product(x):  # forward over reverse
            return jax.jvp(jax.grad(partial(curved, weight)), (x,), (jnp.cos(x),))[1]

        return {
            "batch": jax.vmap(curved, (None, 0))(weight, batch),
            "other axis": jax.vmap(curved, (None, 2))(weight, jnp.moveaxis(batch, 0, 2)),
            "gradient in x": jax.vmap(jax.grad(curved, argnums=1), (None, 0))(weight, batch),
            "gradient in the weight": jax.grad(lambda w: jnp.mean(jax.vmap(curved, (None, 0))(w, batch)))(weight),
            "one gradient in the weight per point": jax.vmap(jax.grad(curved), (None, 0))(weight, batch),
            "one weight per point": jax.vmap(jax.grad(curved, argnums=(0, 1)))(weights, batch[:3]),
            "two axes": jax.vmap(jax.vmap(curved, (None, 0)), (0, None))(weights, batch),
            "forward": jax.jvp(partial(curved, weight), (batch[0],), (batch[1],)),
            "Hessian-vector product": jax.vmap(product)(batch),
            "weight gradient of a score": jax.grad(lambda w: jnp.mean(jax.vmap(squared_score, (None, 0))(w, batch)))(
                weight
            ),
        }

    assert_same(jax.jit(partial(results, "im2col"))(), jax.jit(partial(results, "native"))())


def test_a_batch_is_one_matrix_product():
    weight = normal(1, 4, 4, 3, 5)
    batch = jnp.ones((6, 8, 8, 3))

    def loss(weight, batch):
        y = jax.vmap(partial(convolve, stride=2, padding=1, method="im2col"), (0, None))(batch, weight)
        return jnp.sum(y**2)

    text = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(weight, batch).as_text()
    products = [line.split(" : ")[-1] for line in text.splitlines() if "stablehlo.dot_general" in line]
    rows, patch, out = 6 * 4 * 4, 4 * 4 * 3, 5
    assert sorted(products) == sorted(
        [
            f"(tensor<{rows}x{patch}xf32>, tensor<{patch}x{out}xf32>) -> tensor<{rows}x{out}xf32>",
            f"(tensor<{rows}x{out}xf32>, tensor<{out}x{patch}xf32>) -> tensor<{rows}x{patch}xf32>",
            f"(tensor<{patch}x{rows}xf32>, tensor<{rows}x{out}xf32>) -> tensor<{patch}x{out}xf32>",
        ]
    )


@pytest.mark.parametrize(("backend", "operation"), [("cpu", "im2col_convolution"), ("gpu", "conv_general_dilated")])
def test_the_platform_decides(monkeypatch, backend, operation):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    layer = Conv(3, 5, kernel=3, key=jax.random.key(0))
    assert operation in str(jax.make_jaxpr(layer)(jnp.ones((8, 8, 3))))


def test_convolve_refuses_what_does_not_fit():
    weight = normal(1, 4, 4, 3, 5)
    with pytest.raises(ValueError, match=r"expected one image \(height, width, 3\), got \(2, 8, 8, 3\)"):
        convolve(jnp.ones((2, 8, 8, 3)), weight)
    with pytest.raises(ValueError, match=r"expected one image \(height, width, 3\), got \(8, 8, 1\)"):
        convolve(jnp.ones((8, 8, 1)), weight)
    with pytest.raises(ValueError, match="expected at least 4 pixels a side"):
        convolve(jnp.ones((3, 8, 3)), weight)
    with pytest.raises(ValueError, match="expected the method im2col or native, got 'fft'"):
        convolve(jnp.ones((8, 8, 3)), weight, method="fft")


def matrix_with(singular_values):
    n, rng = len(singular_values), np.random.default_rng(3)
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    return jnp.asarray(left * singular_values @ right.T, dtype=jnp.float32)


MATRICES = {
    "random": lambda: normal(3, 128, 128),
    "ill-conditioned": lambda: matrix_with(np.geomspace(1e3, 1e-3, 128)),
    "all but one alike": lambda: matrix_with(np.r_[1.02, np.ones(127)]),
    "crowded below the top": lambda: matrix_with(np.linspace(1.0, 0.5, 128)),
    "tall": lambda: normal(4, 400, 60),
    "one column": lambda: normal(5, 64, 1),
    "one row": lambda: normal(6, 1, 64),
}


advance = eqx.filter_jit(refresh)


@pytest.mark.parametrize("name", MATRICES)
def test_the_norm_is_right_after_twenty_refreshes(name):
    matrix = MATRICES[name]()
    weight = Weight(matrix.shape, key=jax.random.key(0), spectral_norm=True)
    # the vectors were made for another weight
    weight = eqx.tree_at(lambda w: w.array, weight, matrix)
    norms = [float((weight := advance(weight)).norm) for _ in range(20)]
    exact = np.linalg.svd(matrix, compute_uv=False)[0]
    assert 0.99 * exact <= norms[-1] <= exact * (1 + 1e-5)
    assert np.all(np.diff(norms) >= -1e-5 * exact)


def test_a_fresh_layer_divides_by_the_right_norm():
    layer = Dense(48, 32, key=jax.random.key(1), spectral_norm=True)
    assert float(layer.weight.norm) == pytest.approx(np.linalg.norm(layer.weight.array, 2), rel=0.01)
    assert np.linalg.norm(jax.vmap(layer)(jnp.eye(48)), 2) == pytest.approx(1.0, abs=0.01)


def test_a_convolution_is_divided_by_the_norm_of_its_reshaped_kernel():
    layer = Conv(4, 6, kernel=3, padding=1, key=jax.random.key(2), spectral_norm=True)
    plain = Conv(4, 6, kernel=3, padding=1, key=jax.random.key(2))
    x = normal(7, 8, 8, 4)
    exact = np.linalg.norm(np.asarray(layer.weight.array).reshape(36, 6), 2)
    np.testing.assert_allclose(layer(x), plain(x) / exact, rtol=0.01, atol=1e-4)


def test_no_gradient_reaches_the_carried_vectors():
    layer = Dense(48, 32, key=jax.random.key(4), spectral_norm=True)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda layer: jnp.sum(layer(jnp.arange(48.0)) ** 2)))(layer)
    assert all(not jnp.any(leaf) for leaf in jax.tree.leaves(gradient.weight.vectors))
    left, right, _ = paramax.unwrap(layer.weight.vectors)
    # the norm is uᵀWv with u and v held fixed: its gradient in W is their outer product
    slope = eqx.filter_jit(eqx.filter_grad(lambda weight: weight.norm))(layer.weight)
    np.testing.assert_allclose(slope.array, np.outer(left, right), atol=1e-6)
    # a normalised layer ignores the scale of its weight, so the gradient is orthogonal to it
    cosine = jnp.vdot(gradient.weight.array, layer.weight.array) / jnp.linalg.norm(gradient.weight.array)
    assert jnp.linalg.norm(gradient.weight.array) > 1
    assert abs(float(cosine)) < 1e-3


def test_refresh_changes_the_vectors_alone():
    layer = Dense(48, 32, key=jax.random.key(5), spectral_norm=True)
    layer = eqx.tree_at(lambda dense: dense.weight.array, layer, normal(8, 48, 32))
    plain = Dense(48, 32, key=jax.random.key(6))
    (after, same) = advance((layer, plain))
    assert eqx.tree_equal(same, plain)
    assert jax.tree.structure(after) == jax.tree.structure(layer)
    for before, now in zip(jax.tree.leaves(layer.weight.vectors), jax.tree.leaves(after.weight.vectors), strict=True):
        assert float(jnp.max(jnp.abs(before - now))) > 1e-3
    assert eqx.tree_equal(eqx.tree_at(lambda dense: dense.weight.vectors, after, layer.weight.vectors), layer)


def test_an_unwrapped_layer_computes_the_same():
    layer = Dense(48, 32, key=jax.random.key(9), spectral_norm=True)
    assert jnp.array_equal(paramax.unwrap(layer)(jnp.ones(48)), layer(jnp.ones(48)))


@pytest.mark.parametrize("slope", [0.0, 0.2, 1.0])
def test_initialisation_keeps_the_scale(slope):
    # y = φ(x)W has the second moment of x where Var W = 1 / (inputs·E[φ(x)²]/E[x²]), and for a leaky ReLU of a
    # symmetric x that ratio is (1 + slope²)/2; 1 % is four standard errors, and half of what slope 0.2 makes
    layer = Conv(32, 64, kernel=6, key=jax.random.key(10), slope=slope)
    assert float(jnp.std(layer.weight.array)) == pytest.approx((2 / (1 + slope**2) / (6 * 6 * 32)) ** 0.5, rel=0.01)
    assert not jnp.any(layer.bias)
