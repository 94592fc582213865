"""Energies that are neural networks: dense, convolutional and residual, each a function of ONE point.

You do not need these classes: any ``eqx.Module`` from a point to a scalar is an energy.
"""

import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Energy, check_point, finite, flag, static_number, typed_key, whole_number
from thalweg.energies.layers import Conv, Dense
from thalweg.spaces import Real
from thalweg.spaces.checks import as_shape

Function = str | Callable[[Array], Array]

# name: image (height, width, channels), convolutions (kernel, stride, padding, channels), hidden dense layers.
# A, B and C are those of Xu (2022), "Self-Adapting Noise-Contrastive Estimation for Energy-Based Models", master's
# thesis, Tsinghua University; they end in 1×1×1024 before the flatten.
_FIRST = ((3, 1, 1, 64), (4, 2, 1, 128), (4, 2, 1, 256))
_LAST = (4, 1, 0, 1024)
PRESETS = {
    "A": ((28, 28, 1), (*_FIRST, (3, 2, 1, 256), _LAST), (512,)),
    "B": ((32, 32, 3), (*_FIRST, (4, 2, 1, 256), _LAST), (512,)),
    "C": ((32, 32, 3), (*_FIRST, (4, 2, 1, 512), _LAST), (512, 256)),
    "digits": ((8, 8, 1), ((3, 1, 1, 32), (4, 2, 1, 64), (4, 2, 1, 128)), (128,)),
}

_ACTIVATIONS: dict[str, Callable[[Array, float], Array]] = {
    "leaky_relu": jax.nn.leaky_relu,
    "silu": lambda x, slope: jax.nn.silu(x),
    "lipswish": lambda x, slope: jax.nn.silu(x) / 1.1,
}


class Activation(eqx.Module):
    """An elementwise function, by name or any callable.

    ``leaky_relu`` is ``max(x, slope·x)``; ``silu`` is ``x·σ(x)``, whose derivative reaches 1.1; ``lipswish`` is
    ``silu/1.1`` (Chen et al., 2019), smooth and 1-Lipschitz. Score matching needs a smooth activation.

    >>> import jax.numpy as jnp
    >>> from thalweg.energies.neural import Activation
    >>> Activation("leaky_relu", slope=0.5)(jnp.array([-2.0, 2.0])).tolist()
    [-1.0, 2.0]
    """

    function: Function = eqx.field(static=True)
    slope: float = eqx.field(static=True, converter=lambda value: static_number("slope", value, finite), default=0.2)

    def __check_init__(self):
        if not callable(self.function) and not (isinstance(self.function, str) and self.function in _ACTIVATIONS):
            known = ", ".join(_ACTIVATIONS)
            raise ValueError(f"expected an activation among {known}, got {self.function!r}; or give a callable")

    @property
    def negative_slope(self) -> float:
        """The slope for He initialisation: the slope of a leaky ReLU, zero for any other activation."""
        return self.slope if self.function == "leaky_relu" else 0.0

    def __call__(self, x: Array) -> Array:
        return self.function(x) if callable(self.function) else _ACTIVATIONS[self.function](x, self.slope)


def _scale_width(size: int, width: float) -> int:
    return max(1, round(size * width))


def dense_layers(sizes: Sequence[int], key: PRNGKeyArray, *, slope: float, spectral_norm: bool) -> tuple[Dense, ...]:
    """Dense layers between the given ``sizes``; the last is initialised as a linear layer."""
    keys = jax.random.split(typed_key(key), len(sizes) - 1)
    slopes = [*[slope] * (len(sizes) - 2), 1.0]
    return tuple(
        Dense(inputs, outputs, key=k, slope=s, spectral_norm=spectral_norm)
        for inputs, outputs, k, s in zip(sizes[:-1], sizes[1:], keys, slopes, strict=True)
    )


def _apply_layers(layers: Sequence[Callable[[Array], Array]], activation: Activation, x: Array) -> Array:
    """Apply all layers, with the activation after each but the last; returns a scalar."""
    for layer in layers[:-1]:
        x = activation(layer(x))
    return layers[-1](x)[0]


class MLP(Energy):
    """``E(x) = W_L φ(… φ(x W_1 + b_1) …) + b_L``: a dense network with ``depth`` hidden layers of ``width`` units.

    With ``spectral_norm`` every matrix is divided by its largest singular value, and the energy is 1-Lipschitz if φ
    is: ``|E(x) - E(x')| ≤ ‖x - x'‖``, since the product of the layers' norms bounds the network's.

    Args:
        shape: the shape of a point; it is flattened before the first layer.
        activation: a name or a callable, see `Activation`. By default SiLU, which is smooth; with spectral
            normalisation ``lipswish``, SiLU/1.1, which is also 1-Lipschitz.
        slope: the negative slope, if the activation is a leaky ReLU.

    >>> import jax, jax.numpy as jnp
    >>> from thalweg.energies.neural import MLP
    >>> energy = MLP(2, width=16, depth=2, key=jax.random.key(0))
    >>> jax.vmap(energy)(jnp.zeros((5, 2))).shape
    (5,)
    """

    layers: tuple[Dense, ...]
    activation: Activation
    space: Real = eqx.field(static=True)

    def __init__(
        self,
        shape: int | tuple[int, ...],
        width: int = 128,
        depth: int = 2,
        *,
        key: PRNGKeyArray,
        activation: Function | None = None,
        slope: float = 0.2,
        spectral_norm: bool = False,
    ):
        width, depth = whole_number("width", width), whole_number("depth", depth, 0)
        self.space = Real(shape)
        usual = "lipswish" if flag("spectral_norm", spectral_norm) else "silu"
        self.activation = Activation(usual if activation is None else activation, slope)
        sizes = [math.prod(self.space.shape), *[width] * depth, 1]
        self.layers = dense_layers(sizes, key, slope=self.activation.negative_slope, spectral_norm=spectral_norm)

    def __call__(self, x: Array) -> Array:
        check_point(x, self.space.shape)
        return _apply_layers(self.layers, self.activation, x.reshape(-1))


class ConvNet(Energy):
    """Convolutions, a flatten, and dense layers down to a scalar, with a leaky ReLU after each layer but the last.

    ``ConvNet("A", key=key)`` builds a preset: ``A`` for (28, 28, 1), ``B`` and ``C`` for (32, 32, 3), ``digits`` for
    (8, 8, 1). ``ConvNet(shape=…, layers=…, dense=…, key=key)`` builds any other. Spectral normalisation is on by
    default; it bounds dense layers but not convolutions (see `Conv`), so the network is not 1-Lipschitz.

    Args:
        width: multiplies every number of channels and hidden units.
        slope: the negative slope of the leaky ReLU.
        shape, layers, dense: ``(height, width, channels)`` of an image, ``(kernel, stride, padding, channels)`` of
            each convolution, units of each hidden dense layer.
        method: how convolutions run, see `convolve`; by default the fastest method on this platform.

    >>> import jax, jax.numpy as jnp
    >>> from thalweg.energies.neural import ConvNet
    >>> energy = ConvNet("digits", width=0.25, key=jax.random.key(0))
    >>> energy(jnp.zeros((8, 8, 1))).shape
    ()
    """

    convolutions: tuple[Conv, ...]
    dense: tuple[Dense, ...]
    activation: Activation
    space: Real = eqx.field(static=True)

    def __init__(
        self,
        preset: str | None = None,
        width: float = 1.0,
        spectral_norm: bool = True,
        slope: float = 0.2,
        *,
        key: PRNGKeyArray,
        shape: tuple[int, int, int] | None = None,
        layers: Sequence[tuple[int, int, int, int]] | None = None,
        dense: Sequence[int] | None = None,
        activation: Function = "leaky_relu",
        method: str | None = None,
    ):
        if preset is not None:
            if not isinstance(preset, str) or preset not in PRESETS:
                known = ", ".join(PRESETS)
                raise ValueError(f"expected a preset among {known}, got {preset!r}; or give shape and layers")
            if any(part is not None for part in (shape, layers, dense)):
                raise ValueError(f"expected a preset or a shape with layers, got {preset!r} and more; leave one out")
            shape, layers, dense = PRESETS[preset]
        if shape is None or layers is None:
            raise ValueError(
                f"expected a preset or a shape with layers, got {shape} with {layers}; give one of the two"
            )
        # checked as a Python number: networks are also built while tracing, where array values are unknown
        if isinstance(width, bool) or not isinstance(width, (int, float)) or not 0 < width < math.inf:
            raise ValueError(f"expected width > 0, got {width!r}; 0.5 halves all channels and units")
        self.space = Real(shape)
        self.activation = Activation(activation, slope)
        options = {"slope": self.activation.negative_slope, "spectral_norm": spectral_norm}
        key_dense, *keys = jax.random.split(typed_key(key), len(layers) + 1)
        x, convolutions = jax.ShapeDtypeStruct(shape, jnp.result_type(float)), []
        for (kernel, stride, padding, channels), k in zip(layers, keys, strict=True):
            outputs = _scale_width(channels, width)
            layer = Conv(x.shape[-1], outputs, kernel, stride, padding, key=k, method=method, **options)
            x = eqx.filter_eval_shape(layer, x)
            convolutions.append(layer)
        self.convolutions = tuple(convolutions)
        sizes = [math.prod(x.shape), *(_scale_width(units, width) for units in dense or ()), 1]
        self.dense = dense_layers(sizes, key_dense, **options)

    def __call__(self, x: Array) -> Array:
        check_point(x, self.space.shape)
        for convolution in self.convolutions:
            x = self.activation(convolution(x))
        return _apply_layers(self.dense, self.activation, x.reshape(-1))


class Residual(eqx.Module):
    """``x + G(φ(F(φ(x))))``; if the shape changes, the first x goes through a linear map."""

    first: Dense | Conv
    second: Dense | Conv
    shortcut: Dense | Conv | None

    def __call__(self, x: Array, activation: Activation) -> Array:
        kept = x if self.shortcut is None else self.shortcut(x)
        return kept + self.second(activation(self.first(activation(x))))


class ResNet(Energy):
    """A residual network (He et al., 2016; as an energy Du and Mordatch, 2019) of an image or of a vector.

    Every stage has ``blocks`` residual blocks; on images each stage but the first halves height and width, and the
    positions are averaged before the last, linear layer. Not 1-Lipschitz even with spectral normalisation of every
    layer, because a block adds its input to its output.

    Args:
        shape: ``(height, width, channels)`` of an image, or ``n`` of a vector.
        channels: the number of channels of each stage; the number of units if points are vectors.
        activation: a name or a callable, see `Activation`.

    >>> import jax, jax.numpy as jnp
    >>> from thalweg.energies.neural import ResNet
    >>> ResNet((8, 8, 1), channels=(8, 16), key=jax.random.key(0))(jnp.zeros((8, 8, 1))).shape
    ()
    """

    stem: Dense | Conv
    blocks: tuple[Residual, ...]
    head: Dense
    activation: Activation
    space: Real = eqx.field(static=True)

    def __init__(
        self,
        shape: int | tuple[int, ...],
        channels: Sequence[int] = (64, 128, 256),
        blocks: int = 1,
        *,
        key: PRNGKeyArray,
        activation: Function = "silu",
        slope: float = 0.2,
        spectral_norm: bool = False,
        method: str | None = None,
    ):
        self.space = Real(shape)
        image = len(self.space.shape) == 3
        if not image and len(self.space.shape) != 1:
            raise ValueError(f"expected an image (height, width, channels) or a vector, got {shape}; reshape the data")
        blocks = whole_number("blocks", blocks)
        channels = as_shape(channels)
        if not channels:
            raise ValueError("expected the channels of at least one stage, got none; give for example (64, 128)")
        self.activation = Activation(activation, slope)
        options = {"slope": self.activation.negative_slope, "spectral_norm": spectral_norm}
        key_stem, key_blocks, key_head = jax.random.split(typed_key(key), 3)

        def linear(inputs: int, outputs: int, sizes: tuple[int, int, int], key: PRNGKeyArray) -> Dense | Conv:
            if not image:
                return Dense(inputs, outputs, key=key, **options)
            return Conv(inputs, outputs, *sizes, key=key, method=method, **options)

        same, halved = (3, 1, 1), (4, 2, 1)
        self.stem = linear(self.space.shape[-1], channels[0], same, key_stem)
        made, inputs = [], channels[0]
        for stage, outputs in enumerate(channels):
            for number in range(blocks):
                key_blocks, *keys = jax.random.split(key_blocks, 4)
                halves = image and stage > 0 and number == 0
                first = linear(inputs, outputs, halved if halves else same, keys[0])
                second = linear(outputs, outputs, same, keys[1])
                # a 2×2 convolution of stride 2 and a 4×4 one of stride 2 and padding 1 have outputs of the same size
                sizes = (2, 2, 0) if halves else (1, 1, 0)
                shortcut = linear(inputs, outputs, sizes, keys[2]) if halves or inputs != outputs else None
                made.append(Residual(first, second, shortcut))
                inputs = outputs
        self.blocks = tuple(made)
        self.head = Dense(inputs, 1, key=key_head, slope=1.0, spectral_norm=spectral_norm)

    def __call__(self, x: Array) -> Array:
        check_point(x, self.space.shape)
        x = self.stem(x)
        for block in self.blocks:
            x = block(x, self.activation)
        x = self.activation(x)
        return self.head(jnp.mean(x, axis=(0, 1)) if x.ndim == 3 else x)[0]
