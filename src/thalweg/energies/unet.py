r"""Noise-conditional models of images: a small residual U-Net, read as a score network or as an energy.

The U-Net (Ronneberger et al., 2015) processes the image at several resolutions, each half the one before, with skip
connections between equal resolutions on the way down and up. Its convolutions are matrix products on CPUs (see
`layers`), where few pixels with many channels are much faster than many pixels with few channels: ``patch`` folds
squares of pixels into channels before the first layer and unfolds them after the last.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import ConditionalEnergy, ScoreNetwork, Space, check_point, typed_key, whole_number
from thalweg.energies.layers import Conv
from thalweg.energies.noise_conditional import Modulation, NoiseEmbedding, Preconditioning, zero_init
from thalweg.spaces import Positive, Real
from thalweg.spaces.checks import as_shape


def fold(x: Array, size: int) -> Array:
    """Squares of ``size²`` pixels as channels: ``(height, width, c)`` to ``(height/size, width/size, size²·c)``.

    >>> import jax.numpy as jnp
    >>> from thalweg.energies.unet import fold, unfold
    >>> fold(jnp.arange(16.0).reshape(4, 4, 1), 2)[0, 0].tolist()
    [0.0, 1.0, 4.0, 5.0]
    """
    height, width, channels = x.shape
    x = x.reshape(height // size, size, width // size, size, channels).swapaxes(1, 2)
    return x.reshape(height // size, width // size, size * size * channels)


def unfold(x: Array, size: int) -> Array:
    """The inverse of `fold`.

    >>> import jax.numpy as jnp
    >>> from thalweg.energies.unet import fold, unfold
    >>> image = jnp.arange(48.0).reshape(4, 4, 3)
    >>> bool(jnp.all(unfold(fold(image, 2), 2) == image))
    True
    """
    rows, columns, channels = x.shape
    x = x.reshape(rows, columns, size, size, channels // size**2).swapaxes(1, 2)
    return x.reshape(rows * size, columns * size, channels // size**2)


_HEAD = 32  # channels of an attention head


def _normalise(h: Array) -> Array:
    """``h`` scaled to mean square 1 over positions and channels."""
    return h * jax.lax.rsqrt(jnp.mean(h**2) + 1e-5)


class _Block(eqx.Module):
    """``h + conv(φ(modulate(conv(φ(h/rms h)))))``, initialised as the identity."""

    first: Conv
    modulation: Modulation
    second: Conv

    def __init__(self, channels: int, units: int, *, key: PRNGKeyArray):
        key_first, key_modulation, key_second = jax.random.split(key, 3)
        self.first = Conv(channels, channels, 3, padding=1, key=key_first)
        self.modulation = Modulation(units, channels, key=key_modulation)
        self.second = zero_init(Conv(channels, channels, 3, padding=1, key=key_second))

    def __call__(self, h: Array, known: Array) -> Array:
        inner = self.modulation(self.first(jax.nn.silu(_normalise(h))), known)
        return h + self.second(jax.nn.silu(inner))


class _Attention(eqx.Module):
    """``h + W·softmax(qᵀk/√d)v`` over the positions of the coarsest image, in heads of ``d`` channels; initialised as
    the identity. Reference: Vaswani et al. (2017), NeurIPS.
    """

    ask: Conv
    answer: Conv
    heads: int = eqx.field(static=True)

    def __init__(self, channels: int, *, key: PRNGKeyArray):
        key_ask, key_answer = jax.random.split(key)
        self.ask = Conv(channels, 3 * channels, 1, key=key_ask, slope=1.0)
        self.answer = zero_init(Conv(channels, channels, 1, key=key_answer))
        self.heads = math.gcd(channels, max(1, channels // _HEAD))

    def __call__(self, h: Array) -> Array:
        rows, columns, channels = h.shape
        asked = self.ask(_normalise(h)).reshape(rows * columns, 3, self.heads, -1)
        query, key, value = asked[:, 0], asked[:, 1], asked[:, 2]
        seen = jax.nn.dot_product_attention(query, key, value)
        return h + self.answer(seen.reshape(rows, columns, channels))


class UNet(eqx.Module):
    """The network F: from an image and log σ to an image of the same shape; its output is zero before training.

    Arguments as in `NoiseConditionalScoreUNet`.
    """

    embedding: NoiseEmbedding
    stem: Conv
    down: tuple[tuple[_Block, ...], ...]
    narrow: tuple[Conv, ...]
    middle: tuple[_Block, ...]
    attention: tuple[_Attention, ...]
    widen: tuple[Conv, ...]
    up: tuple[tuple[_Block, ...], ...]
    head: Conv
    patch: int = eqx.field(static=True)

    def __init__(
        self, shape: tuple[int, int, int], channels: tuple[int, ...], blocks: int, patch: int, *, key: PRNGKeyArray
    ):
        _check(shape, channels, blocks, patch)
        keys = iter(jax.random.split(typed_key(key), 4 + 2 * (len(channels) + 1) * (blocks + 1)))
        units = 2 * channels[0]

        def make_blocks(count, width):
            return tuple(_Block(width, units, key=next(keys)) for _ in range(count))

        inputs, finer, coarser = shape[-1] * patch**2, channels[:-1], channels[1:]
        steps = list(zip(finer, coarser, strict=True))
        self.embedding = NoiseEmbedding(units, key=next(keys))
        self.stem = Conv(inputs, channels[0], 3, padding=1, key=next(keys))
        self.down = tuple(make_blocks(blocks, width) for width in finer)
        # 2×2 squares become one position, and a 1×1 convolution expands one position into such a square again
        self.narrow = tuple(Conv(a, b, 2, stride=2, key=next(keys), slope=1.0) for a, b in steps)
        self.middle = make_blocks(2 * blocks, channels[-1])
        self.attention = tuple(_Attention(channels[-1], key=next(keys)) for _ in range(2 * blocks))
        self.widen = tuple(Conv(b, 4 * a, 1, key=next(keys), slope=1.0) for a, b in steps)
        self.up = tuple(make_blocks(blocks, width) for width in finer)
        self.head = zero_init(Conv(channels[0], inputs, 3, padding=1, key=next(keys)))
        self.patch = patch

    def __call__(self, x: Array, log_sigma: Array) -> Array:
        known, kept = self.embedding(log_sigma), []
        h = self.stem(fold(x, self.patch))
        for blocks, narrow in zip(self.down, self.narrow, strict=True):
            h = _apply_blocks(blocks, h, known)
            kept.append(h)
            h = narrow(h)
        for block, attention in zip(self.middle, self.attention, strict=True):
            h = attention(block(h, known))
        for blocks, widen, seen in zip(self.up[::-1], self.widen[::-1], kept[::-1], strict=True):
            # the sum of two independent terms, rescaled to the variance of one
            h = (unfold(widen(h), 2) + seen) / math.sqrt(2)
            h = _apply_blocks(blocks, h, known)
        return unfold(self.head(jax.nn.silu(_normalise(h))), self.patch)


def _apply_blocks(blocks: tuple[_Block, ...], h: Array, known: Array) -> Array:
    for block in blocks:
        h = block(h, known)
    return h


def _check(shape: tuple[int, ...], channels: tuple[int, ...], blocks: int, patch: int) -> None:
    if len(as_shape(shape)) != 3:
        raise ValueError(
            f"expected the shape of an image (height, width, channels), got {shape}; for vectors use an MLP"
        )
    for name, value in (("blocks", blocks), ("patch", patch)):
        whole_number(name, value)
    if not as_shape(channels):
        raise ValueError("expected the channels of one resolution or more, got none; use for example (32, 64)")
    factor = patch * 2 ** (len(channels) - 1)
    if shape[0] % factor or shape[1] % factor:
        raise ValueError(
            f"expected height and width to be multiples of {factor} (patch {patch}, {len(channels)} resolutions), got "
            f"{shape}; pad the images or give fewer channels"
        )


class NoiseConditionalScoreUNet(ScoreNetwork):
    r"""``s(x, σ) = -x/(σ² + c²) + c/(σ√(σ² + c²))·F(x/√(σ² + c²), log σ)`` with a U-Net F: the score of images with
    added noise of standard deviation σ.

    Train it with `NoiseConditionalScoreMatching`, sample it with `AnnealedLangevin`. The U-Net has residual blocks
    whose scale and shift depend on the noise level, attention at the coarsest resolution, and additive skip
    connections. References: Song and Ermon (2019), NeurIPS; Karras et al. (2022), NeurIPS, for the terms around F.

    Args:
        shape: ``(height, width, channels)`` of an image; height and width multiples of ``patch·2^(resolutions - 1)``.
        channels: the number of channels at each resolution, finest first; each resolution is half the one before.
        blocks: the number of residual blocks at each resolution, on the way down and again on the way up.
        patch: squares of ``patch × patch`` pixels are folded into channels first; 2 is four times as fast as 1.
        data_scale: c, about the root mean square of the pixels.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> network = tw.energies.NoiseConditionalScoreUNet((8, 8, 1), channels=(8, 16), key=jax.random.key(0))
    >>> network(jnp.zeros((8, 8, 1)), 0.5).shape
    (8, 8, 1)
    """

    body: UNet
    preconditioning: Preconditioning
    space: Real = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, int, int],
        channels: tuple[int, ...] = (32, 64),
        blocks: int = 1,
        patch: int = 1,
        data_scale: float = 0.5,
        *,
        key: PRNGKeyArray,
    ):
        self.space = Real(shape)
        self.body = UNet(shape, as_shape(channels), blocks, patch, key=key)
        self.preconditioning = Preconditioning(data_scale)

    def __call__(self, x: Array, sigma: Any) -> Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        check_point(x, self.space.shape)
        return self.preconditioning.score(self.body, x, sigma)


class NoiseConditionalUNet(ConditionalEnergy):
    r"""``E(x, σ) = ½‖x‖²/(σ² + c²) - (c/σ)·⟨h, F(h, log σ)⟩``, ``h = x/√(σ² + c²)``, with a U-Net F: the energy of
    images with added noise of standard deviation σ.

    With the inner product the energy is a sum over all pixels, which learns far faster than a network with a single
    output; see Salimans and Ho (2021), ICLR workshop. Arguments as in `NoiseConditionalScoreUNet`, which is two to
    three times as fast but has no energy.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.NoiseConditionalUNet((8, 8, 1), channels=(8, 16), key=jax.random.key(0))
    >>> round(float(energy(jnp.ones((8, 8, 1)), 0.5)), 3)  # 64/2 over ½² + ½²
    64.0
    """

    body: UNet
    preconditioning: Preconditioning
    space: Real = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, int, int],
        channels: tuple[int, ...] = (32, 64),
        blocks: int = 1,
        patch: int = 1,
        data_scale: float = 0.5,
        *,
        key: PRNGKeyArray,
    ):
        self.space = Real(shape)
        self.body = UNet(shape, as_shape(channels), blocks, patch, key=key)
        self.preconditioning = Preconditioning(data_scale)

    @property
    def condition_space(self) -> Space:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Positive(())

    def __call__(self, x: Array, c: Any) -> Array:
        check_point(x, self.space.shape)
        return self.preconditioning.energy(lambda h, level: -jnp.sum(h * self.body(h, level)), x, c)
