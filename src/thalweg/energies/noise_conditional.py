r"""Dense score networks, and noise-conditional models: energies ``E(x, σ)`` and score networks ``s(x, σ)``.

The density of ``x + σε`` changes by orders of magnitude with σ. The known part of this change is built in, so that one
network covers noise levels over four decades: for data of scale c, with ``h = x/√(σ² + c²)``,

``s(x, σ) = -x/(σ² + c²) + c/(σ√(σ² + c²))·F(h, log σ)``.

The first term is the score of noisy Gaussian data of standard deviation c. F is a network whose inputs and outputs are
of order 1 at every level, since ``σs + ε`` is. Its denoiser ``x + σ²s`` is that of Karras et al. (2022), NeurIPS.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from thalweg.core import (
    ConditionalEnergy,
    ScoreNetwork,
    Space,
    check_point,
    positive,
    static_number,
    typed_key,
    whole_number,
)
from thalweg.energies.layers import Dense
from thalweg.spaces import Positive, Real

_FREQUENCIES = 8


class Preconditioning(eqx.Module):
    r"""A network F read as a score or, if it is scalar, as an energy, scaled for every noise level.

    Args:
        data_scale: c, about the root mean square of the data's coordinates.

    >>> import jax.numpy as jnp
    >>> from thalweg.energies.noise_conditional import Preconditioning
    >>> still = Preconditioning(2.0).score(lambda h, log_sigma: jnp.zeros_like(h), jnp.ones(1), 1.0)
    >>> round(float(still[0]), 3)  # the score of N(0, 2² + 1²)
    -0.2
    """

    data_scale: float = eqx.field(static=True, converter=lambda value: static_number("data_scale", value, positive))

    def score(self, network: Callable[[Array, Array], Array], x: Array, sigma: Any) -> Array:
        """``-x/(σ² + c²) + c/(σ√(σ² + c²))·F(h, log σ)``."""
        sigma = _level(sigma)
        total = jnp.sqrt(sigma**2 + self.data_scale**2)
        return -x / total**2 + self.data_scale / (sigma * total) * network(x / total, jnp.log(sigma))

    def energy(self, network: Callable[[Array, Array], Array], x: Array, sigma: Any) -> Array:
        """``½‖x‖²/(σ² + c²) + (c/σ)·f(h, log σ)``; its score is that of `score` with ``F = -∇f``."""
        sigma = _level(sigma)
        total = jnp.sqrt(sigma**2 + self.data_scale**2)
        h = x / total
        return 0.5 * jnp.sum(h**2) + self.data_scale / sigma * network(h, jnp.log(sigma))


def _level(sigma: Any) -> Array:
    sigma = positive("sigma", sigma)
    if sigma.ndim != 0:
        raise ValueError(f"expected one noise level for one point, got sigma of shape {sigma.shape}; batch by jax.vmap")
    return sigma


class NoiseEmbedding(eqx.Module):
    """``φ(W·[cos ω_k log σ, sin ω_k log σ] + b)``: the noise level as an input of a network, ``(units,)``.

    The frequencies range geometrically from one turn in fifty decades to one turn per decade. The embedding is smooth
    in log σ, so that a network interpolates between the levels it was trained on.

    >>> import jax, jax.numpy as jnp
    >>> from thalweg.energies.noise_conditional import NoiseEmbedding
    >>> NoiseEmbedding(32, key=jax.random.key(0))(jnp.log(0.1)).shape
    (32,)
    """

    dense: Dense

    def __init__(self, units: int, *, key: PRNGKeyArray):
        self.dense = Dense(2 * _FREQUENCIES, units, key=key)

    def __call__(self, log_sigma: Array) -> Float[Array, " units"]:
        turns = log_sigma * (2 * np.pi / np.log(10)) * np.geomspace(1 / 50, 1.0, _FREQUENCIES)
        return jax.nn.silu(self.dense(jnp.concatenate([jnp.cos(turns), jnp.sin(turns)])))


class Modulation(eqx.Module):
    """``h·(1 + γ(σ)) + β(σ)`` per channel, with γ and β linear in the noise embedding and initialised to zero.

    Reference: Perez et al. (2018), AAAI, FiLM.
    """

    dense: Dense

    def __init__(self, units: int, channels: int, *, key: PRNGKeyArray):
        self.dense = zero_init(Dense(units, 2 * channels, key=key))

    def __call__(self, h: Array, embedding: Array) -> Array:
        gamma, beta = jnp.split(self.dense(embedding), 2)
        return h * (1 + gamma) + beta


def zero_init(layer: Any) -> Any:
    """A layer whose output is zero until it is trained."""
    return eqx.tree_at(lambda each: each.weight.array, layer, jnp.zeros_like(layer.weight.array))


class _Body(eqx.Module):
    """Dense layers, each followed by a scale and shift that depend on σ and by SiLU; the last layer is linear."""

    embedding: NoiseEmbedding
    layers: tuple[Dense, ...]
    modulations: tuple[Modulation, ...]

    def __init__(self, sizes: Sequence[int], *, key: PRNGKeyArray):
        key_embedding, *keys = jax.random.split(typed_key(key), 2 * len(sizes))
        units = sizes[1]
        self.embedding = NoiseEmbedding(units, key=key_embedding)
        pairs = list(pairwise(sizes))
        hidden = [Dense(a, b, key=k) for (a, b), k in zip(pairs[:-1], keys, strict=False)]
        # with a network that is zero at first, the model starts as the Gaussian of the data's scale
        self.layers = (*hidden, zero_init(Dense(*pairs[-1], key=keys[-1])))
        self.modulations = tuple(
            Modulation(units, size, key=k) for size, k in zip(sizes[1:-1], keys[len(sizes) :], strict=False)
        )

    def __call__(self, h: Array, log_sigma: Array) -> Array:
        known = self.embedding(log_sigma)
        for layer, modulation in zip(self.layers[:-1], self.modulations, strict=True):
            h = jax.nn.silu(modulation(layer(h), known))
        return self.layers[-1](h)


def _sizes(space: Real, width: int, depth: int, outputs: int | None = None) -> list[int]:
    width, depth = whole_number("width", width), whole_number("depth", depth)
    inputs = math.prod(space.shape)
    return [inputs, *[width] * depth, inputs if outputs is None else outputs]


class ScoreMLP(ScoreNetwork):
    """``s(x) = W_L φ(… φ(x W_1 + b_1) …) + b_L``, of x's shape: a dense score network with SiLU, ``depth`` hidden
    layers of ``width`` units.

    Args:
        shape: the shape of a point; it is flattened before the first layer.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> network = tw.energies.ScoreMLP(2, width=16, key=jax.random.key(0))
    >>> jax.vmap(network)(jnp.zeros((5, 2))).shape
    (5, 2)
    """

    layers: tuple[Dense, ...]
    space: Real = eqx.field(static=True)

    def __init__(self, shape: int | tuple[int, ...], width: int = 128, depth: int = 2, *, key: PRNGKeyArray):
        self.space = Real(shape)
        sizes = _sizes(self.space, width, depth)
        keys = jax.random.split(typed_key(key), len(sizes) - 1)
        slopes = [*[0.0] * depth, 1.0]
        self.layers = tuple(
            Dense(a, b, key=k, slope=s) for a, b, k, s in zip(sizes[:-1], sizes[1:], keys, slopes, strict=True)
        )

    def __call__(self, x: Array) -> Array:
        check_point(x, self.space.shape)
        h = x.reshape(-1)
        for layer in self.layers[:-1]:
            h = jax.nn.silu(layer(h))
        return self.layers[-1](h).reshape(x.shape)


class NoiseConditionalMLP(ConditionalEnergy):
    r"""``E(x, σ) = ½‖x‖²/(σ² + c²) + (c/σ)·f(x/√(σ² + c²), log σ)`` with a dense network f: the energy of vectors with
    added noise of standard deviation σ.

    The scaling of its score with σ is built in (see the module docstring). Train it with
    `NoiseConditionalScoreMatching`, sample it with `AnnealedLangevin`; ``tw.given(energy, sigma)`` is an energy of x
    alone. Before training it is the Gaussian of standard deviation ``√(c² + σ²)``.

    Args:
        shape: the shape of a point; it is flattened before the first layer.
        width: the number of units of a hidden layer.
        depth: the number of hidden layers.
        data_scale: c, about the root mean square of the data's coordinates.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.NoiseConditionalMLP(2, key=jax.random.key(0))
    >>> round(float(energy(jnp.ones(2), 1.0)), 4)
    0.5
    >>> jnp.round(tw.score(tw.given(energy, 1.0), jnp.ones(2)), 4).tolist()
    [-0.5, -0.5]
    """

    body: _Body
    preconditioning: Preconditioning
    space: Real = eqx.field(static=True)

    def __init__(
        self,
        shape: int | tuple[int, ...],
        width: int = 128,
        depth: int = 3,
        data_scale: float = 1.0,
        *,
        key: PRNGKeyArray,
    ):
        self.space = Real(shape)
        self.body = _Body(_sizes(self.space, width, depth, 1), key=key)
        self.preconditioning = Preconditioning(data_scale)

    @property
    def condition_space(self) -> Space:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Positive(())

    def __call__(self, x: Array, c: Any) -> Array:
        check_point(x, self.space.shape)
        return self.preconditioning.energy(lambda h, level: self.body(h, level)[0], x.reshape(-1), c)


class NoiseConditionalScoreMLP(ScoreNetwork):
    r"""``s(x, σ) = -x/(σ² + c²) + c/(σ√(σ² + c²))·F(x/√(σ² + c²), log σ)`` with a dense network F: the score of vectors
    with added noise of standard deviation σ.

    Arguments as in `NoiseConditionalMLP`. Twice as fast, but it has no energy.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> network = tw.energies.NoiseConditionalScoreMLP(2, key=jax.random.key(0))
    >>> jnp.round(network(jnp.ones(2), 1.0), 4).tolist()
    [-0.5, -0.5]
    """

    body: _Body
    preconditioning: Preconditioning
    space: Real = eqx.field(static=True)

    def __init__(
        self,
        shape: int | tuple[int, ...],
        width: int = 128,
        depth: int = 3,
        data_scale: float = 1.0,
        *,
        key: PRNGKeyArray,
    ):
        self.space = Real(shape)
        self.body = _Body(_sizes(self.space, width, depth), key=key)
        self.preconditioning = Preconditioning(data_scale)

    def __call__(self, x: Array, sigma: Any) -> Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        check_point(x, self.space.shape)
        return self.preconditioning.score(self.body, x.reshape(-1), sigma).reshape(x.shape)
