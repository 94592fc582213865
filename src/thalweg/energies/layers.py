"""The layers of neural energies: dense and convolutional maps of ONE point, with optional spectral normalisation.

XLA's convolutions are fast on accelerators and slow on CPUs, where their gradients cost several times a matrix product
of the same size. On CPUs a convolution therefore runs as im2col + matrix product. It is a primitive of its own, because
`jax.vmap` then folds the batch into the rows of one large matrix in all three products (the output, the gradient in the
image, the gradient in the weight), and because derivatives of any order stay such products.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, PRNGKeyArray
from paramax import NonTrainable, unwrap

from thalweg.core import Refreshable, flag


class _Geometry(NamedTuple):
    """The sizes of a convolution that do not follow from its operands."""

    height: int
    width: int
    kernel: int
    stride: int
    padding: int

    @property
    def rows(self) -> int:
        return (self.height + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def columns(self) -> int:
        return self._replace(height=self.width).rows


def _patches(x: Array, geometry: _Geometry) -> Array:
    """im2col of images ``(n, height, width, c)``: one row per output position, ``(n·rows·columns, kernel²·c)``."""
    n, height, width, channels = x.shape
    kernel, stride, padding = geometry.kernel, geometry.stride, geometry.padding
    # the part of the padded image that the kernel covers, possibly not all of it
    tall, wide = stride * (geometry.rows - 1) + kernel, stride * (geometry.columns - 1) + kernel
    edges = ((0, 0, 0), (padding, tall - height - padding, 0), (padding, wide - width - padding, 0), (0, 0, 0))
    x = lax.pad(x, jnp.zeros((), x.dtype), edges)
    if geometry.rows == geometry.columns == 1:
        return x.reshape(n, -1)
    # neighbours in a row are adjacent in memory: if the stride divides the kernel they are copied together, so a 4×4
    # kernel of stride 2 takes eight long slices instead of sixteen short ones
    run = stride if kernel % stride == 0 else 1
    x = x.reshape(n, tall, wide // run, run * channels)
    down, across = stride * (geometry.rows - 1) + 1, stride // run * (geometry.columns - 1) + 1
    slices = [
        x[:, i : i + down : stride, j : j + across : stride // run] for i in range(kernel) for j in range(kernel // run)
    ]
    return jnp.concatenate(slices, axis=-1).reshape(-1, kernel * kernel * channels)


# A convolution belongs to the trilinear form T(x, w, y) = Σ x[stride·p + i - padding]·w[i]·y[p]. The derivative of T in
# one of the three is the convolution (y), its gradient in the image (x) or its gradient in the weight (w), each a
# function of the other two: one bilinear primitive, whose transpose is the same primitive with another `wanted`.
_OPERANDS = {"y": ("x", "w"), "x": ("w", "y"), "w": ("x", "y")}


def _derivative(first: Array, second: Array, *, wanted: str, geometry: _Geometry) -> Array:
    """``∂T/∂wanted``: images ``x (n, height, width, c)``, ``y (n, rows, columns, o)``, weight ``w (k, k, c, o)``."""
    if wanted == "y":
        x, w = first, second
        y = _patches(x, geometry) @ w.reshape(-1, w.shape[-1])
        return y.reshape(len(x), geometry.rows, geometry.columns, -1)
    if wanted == "x":
        w, y = first, second
        shape = (len(y), geometry.height, geometry.width, w.shape[2])
        col2im = jax.linear_transpose(partial(_patches, geometry=geometry), jax.ShapeDtypeStruct(shape, y.dtype))
        return col2im(y.reshape(-1, y.shape[-1]) @ w.reshape(-1, w.shape[-1]).T)[0]
    x, y = first, second
    w = _patches(x, geometry).T @ y.reshape(-1, y.shape[-1])
    return w.reshape(geometry.kernel, geometry.kernel, x.shape[-1], -1)


def _shape(first: Any, second: Any, *, wanted: str, geometry: _Geometry) -> Any:
    if wanted == "y":
        return first.update(shape=(first.shape[0], geometry.rows, geometry.columns, second.shape[-1]))
    if wanted == "x":
        return second.update(shape=(second.shape[0], geometry.height, geometry.width, first.shape[2]))
    return first.update(shape=(geometry.kernel, geometry.kernel, first.shape[-1], second.shape[-1]))


def _bind(wanted: str, values: dict[str, Array], geometry: _Geometry) -> Array:
    first, second = (values[name] for name in _OPERANDS[wanted])
    return _convolution.bind(first, second, wanted=wanted, geometry=geometry)


def _transpose(position: int, cotangent: Array, *operands: Any, wanted: str, geometry: _Geometry) -> Array:
    names = _OPERANDS[wanted]
    return _bind(names[position], {names[1 - position]: operands[1 - position], wanted: cotangent}, geometry)


def _batch(operands: Any, axes: Any, *, wanted: str, geometry: _Geometry) -> tuple[Array, int]:
    values = [jnp.moveaxis(v, a, 0) if a is not None else v for v, a in zip(operands, axes, strict=True)]
    weight = _OPERANDS[wanted].index("w") if wanted != "w" else None
    if weight is not None and axes[weight] is None:
        images = values[1 - weight]
        values[1 - weight] = images.reshape(-1, *images.shape[2:])
        out = _convolution.bind(*values, wanted=wanted, geometry=geometry)
        return out.reshape(len(images), -1, *out.shape[1:]), 0
    # one weight per point: several networks at once, or per-point gradients in the weight
    single = partial(_derivative, wanted=wanted, geometry=geometry)
    return jax.vmap(single, in_axes=[a if a is None else 0 for a in axes])(*values), 0


_convolution = Primitive("im2col_convolution")
_convolution.def_impl(jax.jit(_derivative, static_argnames=("wanted", "geometry")))
_convolution.def_abstract_eval(_shape)
ad.defbilinear(_convolution, partial(_transpose, 0), partial(_transpose, 1))
batching.primitive_batchers[_convolution] = _batch
mlir.register_lowering(_convolution, mlir.lower_fun(_derivative, multiple_results=False))


def convolve(x: Array, weight: Array, *, stride: int = 1, padding: int = 0, method: str | None = None) -> Array:
    """``y[p, o] = Σ_{i,c} x[stride·p + i - padding, c]·w[i, c, o]``: the convolution of one image, without bias.

    Args:
        x: ``(height, width, channels)``, padded with zeros.
        weight: ``(kernel, kernel, channels, out)``.
        method: ``"im2col"`` or ``"native"``, which give the same numbers; by default im2col on CPUs, native elsewhere.

    Returns:
        ``(rows, columns, out)`` with ``rows = (height + 2·padding - kernel) // stride + 1``, columns likewise.

    >>> import jax.numpy as jnp
    >>> from thalweg.energies.layers import convolve
    >>> convolve(jnp.ones((8, 8, 3)), jnp.ones((4, 4, 3, 5)), stride=2, padding=1).shape
    (4, 4, 5)
    """
    kernel, _, channels, _ = weight.shape
    if x.ndim != 3 or x.shape[-1] != channels:
        raise ValueError(f"expected one image (height, width, {channels}), got {x.shape}; batch with jax.vmap")
    geometry = _Geometry(x.shape[0], x.shape[1], kernel, stride, padding)
    if geometry.rows < 1 or geometry.columns < 1:
        raise ValueError(
            f"expected at least {kernel} pixels a side for a kernel of {kernel}, got {x.shape} and padding {padding}; "
            "use a smaller kernel, fewer layers or larger images"
        )
    dtype = jnp.result_type(x, weight)
    x, weight = x.astype(dtype), weight.astype(dtype)
    if method is None:
        method = "im2col" if jax.default_backend() == "cpu" else "native"
    if method == "im2col":
        return _bind("y", {"x": x[None], "w": weight}, geometry)[0]
    if method == "native":
        strides, edges, layout = (stride, stride), [(padding, padding)] * 2, ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x[None], weight, strides, edges, dimension_numbers=layout)[0]
    raise ValueError(f"expected the method im2col or native, got {method!r}; leave it out for the faster one")


def _power_iteration(matrix: Array, vectors: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    """One step of power iteration for the largest singular value, with vectors ``(left, right, last move)``.

    Plain power iteration, ``v ← WᵀWv``, needs hundreds of steps if many singular values are close to the largest, as in
    a random matrix. Here v becomes the best unit vector in the span of v, ``WᵀWv`` and the last move (Rayleigh-Ritz;
    LOBPCG, Knyazev 2001). This costs one more product, the estimate never decreases, and 20 steps give it to 1 %.
    """
    matrix, (_, right, move) = lax.stop_gradient((matrix, vectors))
    basis, _ = jnp.linalg.qr(jnp.stack([right, matrix.T @ (matrix @ right), move], axis=1))
    image = matrix @ basis
    best = jnp.linalg.eigh(image.T @ image)[1][:, -1]
    left, new = image @ best, basis @ best
    return left / jnp.linalg.norm(left), new, new - right * (right @ new)


@partial(jax.jit, static_argnames=("shape", "spectral_norm"))
def _draw(key: PRNGKeyArray, shape: tuple[int, ...], spectral_norm: bool) -> tuple[Array, NonTrainable | None]:
    """A weight of independent normal numbers, and its singular vectors after 20 iterations."""
    inputs, outputs = math.prod(shape[:-1]), shape[-1]
    # drawn flat: the random generator compiles several times slower for four axes
    matrix = jax.random.normal(key, (inputs * outputs,)).reshape(inputs, outputs)
    if not spectral_norm:
        return matrix.reshape(shape), None
    start = (jnp.zeros(inputs), jnp.full(outputs, outputs**-0.5), jnp.zeros(outputs))
    vectors = lax.fori_loop(0, 20, lambda _, vectors: _power_iteration(matrix, vectors), start)
    return matrix.reshape(shape), NonTrainable(vectors)


class Weight(Refreshable):
    """A weight of a linear map, read as the matrix W of shape ``(inputs, outputs)``, and the norm it is divided by.

    Drawn from ``N(0, 2 / ((1 + slope²)·inputs))`` (He et al., 2015), which preserves the scale of activations through
    leaky ReLUs of that slope. With spectral normalisation the norm is ``σ = uᵀWv``, where the stored vectors u, v count
    as constants, so that its gradient in W is ``uvᵀ`` (Miyato et al., 2018); `refresh` advances them once. Without it
    the norm is 1.

    >>> import jax, jax.numpy as jnp
    >>> from thalweg.energies.layers import Weight
    >>> weight = Weight((32, 16), key=jax.random.key(0), spectral_norm=True)
    >>> bool(jnp.isclose(weight.norm, jnp.linalg.norm(weight.array, 2), rtol=0.01))
    True
    """

    array: Array
    vectors: NonTrainable | None

    def __init__(self, shape: tuple[int, ...], *, key: PRNGKeyArray, slope: float = 0.0, spectral_norm: bool = False):
        normal, self.vectors = _draw(key, shape, flag("spectral_norm", spectral_norm))
        self.array = math.sqrt(2 / ((1 + slope**2) * math.prod(shape[:-1]))) * normal

    @property
    def matrix(self) -> Array:
        """``(inputs, outputs)``: all axes but the last are merged."""
        return self.array.reshape(-1, self.array.shape[-1])

    @property
    def norm(self) -> Array | float:
        """What the output is divided by."""
        if self.vectors is None:
            return 1.0
        # `unwrap` instead of `.unwrap()`: the vectors may already have been unwrapped together with a whole model
        left, right, _ = lax.stop_gradient(unwrap(self.vectors))
        return left @ (self.matrix @ right)

    def refresh(self) -> "Weight":
        if self.vectors is None:
            return self
        advanced = NonTrainable(_power_iteration(self.matrix, unwrap(self.vectors)))
        return eqx.tree_at(lambda weight: weight.vectors, self, advanced)


class Dense(eqx.Module):
    """``y = xW/σ + b`` for one vector ``x (inputs,)``; ``W`` and σ are a `Weight`, which takes the options.

    With spectral normalisation the map is 1-Lipschitz, up to the accuracy of σ.

    >>> import jax, jax.numpy as jnp
    >>> from thalweg.energies.layers import Dense
    >>> Dense(3, 2, key=jax.random.key(0))(jnp.ones(3)).shape
    (2,)
    """

    weight: Weight
    bias: Array

    def __init__(self, inputs: int, outputs: int, *, key: PRNGKeyArray, **options: Any):
        self.weight = Weight((inputs, outputs), key=key, **options)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: Array) -> Array:
        # the output is divided instead of the weight: the same numbers without a second copy of every weight
        return x @ self.weight.array / self.weight.norm + self.bias


class Conv(eqx.Module):
    """``y = conv(x, w)/σ + b`` for one image ``(height, width, inputs)``; ``w (kernel, kernel, inputs, outputs)``.

    With spectral normalisation σ is the norm of w reshaped to ``(kernel²·inputs, outputs)``, as in Miyato et al.
    (2018). This does not bound the operator norm: the normalised convolution can still stretch an image by 1.5 to 3.

    >>> import jax, jax.numpy as jnp
    >>> from thalweg.energies.layers import Conv
    >>> Conv(1, 64, kernel=3, padding=1, key=jax.random.key(0))(jnp.ones((28, 28, 1))).shape
    (28, 28, 64)
    """

    weight: Weight
    bias: Array
    stride: int = eqx.field(static=True)
    padding: int = eqx.field(static=True)
    method: str | None = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        *,
        key: PRNGKeyArray,
        method: str | None = None,
        **options: Any,
    ):
        self.weight = Weight((kernel, kernel, inputs, outputs), key=key, **options)
        self.bias = jnp.zeros(outputs)
        self.stride, self.padding, self.method = stride, padding, method

    def __call__(self, x: Array) -> Array:
        y = convolve(x, self.weight.array, stride=self.stride, padding=self.padding, method=self.method)
        return y / self.weight.norm + self.bias
