"""The units of a Boltzmann machine: Bernoulli, spin, Gaussian, categorical, replicated softmax, rectified linear."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, log_ndtr, ndtri
from jax.scipy.stats import norm
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Module, Space, finite, positive, whole_number
from thalweg.core.random import log_uniform, normal, uniform
from thalweg.spaces import Binary, Categorical, Counts, Positive, Real, Spin

# below this mean a rectified normal is drawn in the tail of the normal distribution
_TAIL = -4.0


class AbstractUnits(Module):
    """A layer of units, independent of each other given the other layer.

    Their distribution given the other layer is ``p(x | θ) = exp(T(x)·θ - B(x) - A(θ))``: the statistics ``T`` couple to
    the other layer, the natural parameter ``θ`` is the bias plus what the other layer adds. Methods take a batch of any
    leading shape. Statistics and natural parameters are ``(..., features)``; ``B`` and ``A`` are ``(..., units)``, one
    number for each independent unit.
    """

    bias: eqx.AbstractVar[Array]

    @property
    @abc.abstractmethod
    def space(self) -> Space:
        """Where the units live."""

    @property
    def units(self) -> int:
        """The number of independent units."""
        return self.bias.shape[-1]

    @property
    def features(self) -> int:
        """The number of statistics: rows (or columns) of the weights."""
        return self.bias.size

    @property
    def natural(self) -> Array:
        """The natural parameter without the other layer, ``(features,)``."""
        return self.bias

    @property
    def slope(self) -> Array | float:
        """The derivative of the bias in the natural parameter: σ of Gaussian units, otherwise 1."""
        return 1.0

    @property
    def constant(self) -> Array:
        """The part of the units' energy that depends on parameters alone, ``(units,)``."""
        return jnp.zeros(self.units)

    def statistics(self, x: Array) -> Array:
        """``T(x)``, ``(..., features)``."""
        return x.astype(self.bias.dtype)

    def base(self, x: Array) -> Array:
        """``B(x)``, ``(..., units)``."""
        return jnp.zeros((*x.shape[: -len(self.space.shape)], self.units), self.bias.dtype)

    @abc.abstractmethod
    def log_normaliser(self, natural: Array, weight: Array | float = 1.0) -> Array:
        """``A(θ) = log Σ_x exp(T(x)·θ - B(x))`` (an integral for real x), ``(..., units)``."""

    @abc.abstractmethod
    def mean(self, natural: Array, weight: Array | float = 1.0) -> Array:
        """``E[T(x)]``, ``(..., features)``."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, natural: Array, weight: Array | float = 1.0) -> Array:
        """Draws of x, one for each natural parameter, in the dtype of the space."""

    def weight(self, x: Array) -> Array:
        """How many times the biases of the other layer count: the length of a document, otherwise 1."""
        return jnp.ones(x.shape[: -len(self.space.shape)], self.bias.dtype)

    def spread(self, mask: Array) -> Array:
        """A mask of units ``(..., units)`` over their features, ``(..., features)``."""
        return mask

    def scaled(self, factor: Array) -> tuple["AbstractUnits", Array]:
        """The units of ``factor`` times their energy, and by what their statistics are multiplied.

        The quadratic term of real units keeps its form: σ changes, or x itself (`rescaled`).
        """
        return eqx.tree_at(lambda units: units.bias, self, self.bias * factor), jnp.ones(())

    def rescaled(self, x: Array, root: Array) -> Array:
        """``x`` as a point of `scaled` units; ``root`` is what their statistics are multiplied by."""
        return x

    def redraw(self, key: PRNGKeyArray, natural: Array, x: Array, free: Array | None = None) -> Array:
        """``x`` with its units, or those of the mask ``free`` ``(..., units)``, drawn anew."""
        drawn = self.sample(key, natural, self.weight(x)).astype(x.dtype)
        return drawn if free is None else jnp.where(free, drawn, x)

    @abc.abstractmethod
    def fitted(self, statistics: Array) -> "AbstractUnits":
        """The same units with biases for which, without the other layer, the means are those of the data."""


class BernoulliUnits(AbstractUnits):
    r"""Units in {0, 1}: ``p(x_i = 1 | θ_i) = σ(θ_i)`` and ``A(θ_i) = log(1 + e^θ_i)``.

    Args:
        bias: the biases ``(n,)``, or the number of units.

    >>> import thalweg as tw
    >>> tw.energies.BernoulliUnits(784).space
    Binary(shape=(784,))
    """

    bias: Array

    def __init__(self, bias: Any):
        self.bias = _biases(bias)

    @property
    def space(self) -> Binary:
        return Binary(self.units)

    def log_normaliser(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return jax.nn.softplus(natural)

    def mean(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return jax.nn.sigmoid(natural)

    def sample(self, key: PRNGKeyArray, natural: Array, weight: Array | float = 1.0) -> Array:
        # u < σ(θ), with one exponential and no division
        return (uniform(key, natural.shape) * (1 + jnp.exp(-natural)) < 1).astype(self.space.dtype)

    def fitted(self, statistics: Array) -> "BernoulliUnits":
        share = _shares(statistics)
        return BernoulliUnits(jnp.log(share) - jnp.log1p(-share))


class SpinUnits(AbstractUnits):
    r"""Units in {-1, +1}: ``p(x_i = 1 | θ_i) = σ(2θ_i)`` and ``A(θ_i) = log 2cosh θ_i``.

    Args:
        bias: the biases ``(n,)``, or the number of units.

    >>> import thalweg as tw
    >>> tw.energies.SpinUnits(10).space
    Spin(shape=(10,))
    """

    bias: Array

    def __init__(self, bias: Any):
        self.bias = _biases(bias)

    @property
    def space(self) -> Spin:
        return Spin(self.units)

    def log_normaliser(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return jnp.logaddexp(natural, -natural)

    def mean(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return jnp.tanh(natural)

    def sample(self, key: PRNGKeyArray, natural: Array, weight: Array | float = 1.0) -> Array:
        up = uniform(key, natural.shape) * (1 + jnp.exp(-2 * natural)) < 1
        return jnp.where(up, 1, -1).astype(self.space.dtype)

    def fitted(self, statistics: Array) -> "SpinUnits":
        share = _shares((statistics + 1) / 2)
        return SpinUnits((jnp.log(share) - jnp.log1p(-share)) / 2)


class GaussianUnits(AbstractUnits):
    r"""Real units with energy ``(x_i - b_i)²/2σ_i²`` that couple by ``x_i/σ_i``: given the other layer,
    ``x_i ~ N(b_i + σ_i·field_i, σ_i²)``. Both b and σ are trained; σ as its logarithm.

    Args:
        bias: the means b ``(n,)``, or the number of units.
        scale: σ, ``(n,)`` or one number for all.

    >>> import thalweg as tw
    >>> tw.energies.GaussianUnits(5, scale=0.5).scale.tolist()
    [0.5, 0.5, 0.5, 0.5, 0.5]
    """

    bias: Array
    log_scale: Array

    def __init__(self, bias: Any, scale: Any = 1.0):
        self.bias = _biases(bias)
        scale = positive("scale", scale)
        if scale.shape not in ((), self.bias.shape):
            raise ValueError(f"expected scale of shape {self.bias.shape}, got {scale.shape}; give one for each unit")
        self.log_scale = jnp.broadcast_to(jnp.log(scale), self.bias.shape)

    @property
    def space(self) -> Real:
        return Real(self.units)

    @property
    def scale(self) -> Array:
        """σ, ``(n,)``."""
        return jnp.exp(self.log_scale)

    @property
    def natural(self) -> Array:
        return self.bias / self.scale

    @property
    def slope(self) -> Array:
        return self.scale

    @property
    def constant(self) -> Array:
        return 0.5 * self.natural**2

    def statistics(self, x: Array) -> Array:
        return x / self.scale

    def base(self, x: Array) -> Array:
        return 0.5 * (x / self.scale) ** 2

    def log_normaliser(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return 0.5 * natural**2 + 0.5 * np.log(2 * np.pi) + self.log_scale

    def mean(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return natural

    def sample(self, key: PRNGKeyArray, natural: Array, weight: Array | float = 1.0) -> Array:
        return self.scale * (natural + normal(key, natural.shape))

    def scaled(self, factor: Array) -> tuple["GaussianUnits", Array]:
        root = jnp.sqrt(factor)
        return eqx.tree_at(lambda units: units.log_scale, self, self.log_scale - jnp.log(root)), root

    def fitted(self, statistics: Array) -> "GaussianUnits":
        x = statistics * self.scale
        spread = jnp.std(x, axis=0)
        return GaussianUnits(jnp.mean(x, axis=0), jnp.where(spread > 0, spread, 1.0))


class CategoricalUnits(AbstractUnits):
    r"""Units with one of k labels (Potts units, ratings): ``p(x_i = c | θ) = softmax(θ_i)[c]``.

    The statistics are one-hot rows, so the weights have one row for each unit and label. Reference: Salakhutdinov, Mnih
    and Hinton (2007), ICML.

    Args:
        bias: the biases ``(n, k)``, or the number of units.
        k: the number of labels, if ``bias`` is the number of units.

    >>> import thalweg as tw
    >>> tw.energies.CategoricalUnits(10, k=5).features
    50
    """

    bias: Array

    def __init__(self, bias: Any, k: int | None = None):
        if k is not None:
            shape = (
                whole_number("the number of units", bias),
                whole_number("k", k, 2, "a unit with one label is fixed"),
            )
            self.bias = jnp.zeros(shape)
            return
        self.bias = finite("bias", bias)
        if self.bias.ndim != 2 or self.bias.shape[1] < 2:
            raise ValueError(
                f"expected biases (units, labels), got shape {self.bias.shape}; give them, or the numbers of units and "
                "of labels k"
            )

    @property
    def space(self) -> Categorical:
        return Categorical(*self.bias.shape)

    @property
    def units(self) -> int:
        return self.bias.shape[0]

    @property
    def natural(self) -> Array:
        return self.bias.reshape(-1)

    def statistics(self, x: Array) -> Array:
        rows = x if self._is_one_hot(x) else jax.nn.one_hot(x, self.bias.shape[1], dtype=self.bias.dtype)
        return rows.reshape(*rows.shape[:-2], self.features)

    def base(self, x: Array) -> Array:
        leading = x.shape[: -2 if self._is_one_hot(x) else -1]
        return jnp.zeros((*leading, self.units), self.bias.dtype)

    def weight(self, x: Array) -> Array:
        return jnp.ones(x.shape[: -2 if self._is_one_hot(x) else -1], self.bias.dtype)

    def _is_one_hot(self, x: Array) -> bool:
        """Whether points are given as one-hot rows of floats, in which energies have gradients."""
        return x.shape[-2:] == self.bias.shape and jnp.issubdtype(x.dtype, jnp.floating)

    def log_normaliser(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return jax.nn.logsumexp(self._rows(natural), axis=-1)

    def mean(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return jax.nn.softmax(self._rows(natural), axis=-1).reshape(natural.shape)

    def sample(self, key: PRNGKeyArray, natural: Array, weight: Array | float = 1.0) -> Array:
        # Gumbel noise: θ_c + noise_c is largest at c with probability softmax(θ)[c]
        rows = self._rows(natural)
        noise = -jnp.log(-log_uniform(key, rows.shape))
        return jnp.argmax(rows + noise, axis=-1).astype(self.space.dtype)

    def spread(self, mask: Array) -> Array:
        return jnp.repeat(mask, self.bias.shape[1], axis=-1)

    def _rows(self, natural: Array) -> Array:
        return natural.reshape(*natural.shape[:-1], *self.bias.shape)

    def fitted(self, statistics: Array) -> "CategoricalUnits":
        share = _shares(statistics).reshape(self.bias.shape)
        return CategoricalUnits(jnp.log(share / jnp.sum(share, axis=1, keepdims=True)))


class Documents(Counts):
    """Word counts of documents, of ``length`` words each if it is given."""

    length: int | None = eqx.field(static=True, default=None)

    def inside(self, x: Any, xp: Any) -> Any:
        return super().inside(x, xp) & (True if self.length is None else xp.sum(x, axis=-1) == self.length)

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        if self.length is None:
            raise ValueError(
                "expected chains that start at documents, whose lengths they keep, got a start from noise; use "
                "start=tw.samplers.from_data(), or give the units a length if it is the same for all"
            )
        words = jnp.full((*shape, *self.shape), 1 / self.shape[0])
        drawn = jax.random.multinomial(key, jnp.full(shape, float(self.length)), words)
        return jnp.round(drawn).astype(self.dtype)


class ReplicatedSoftmaxUnits(AbstractUnits):
    r"""Word counts of a document of D words: given the other layer, ``x ~ Multinomial(D, softmax(θ))``.

    D is the sum of the counts of the document, which a sweep keeps, and the hidden biases count D times:
    ``E(v, h) = -vᵀWh - bᵀv - D·cᵀh - log(D!/Π_k v_k!)``. The last term is the number of orders of the words, so that
    ``exp(-E)`` is a probability of counts. Energies of documents of different lengths are not comparable:
    ``p(v | D)`` has a log Z for each D, and chains must start at documents of the data's lengths. Reference:
    Salakhutdinov and Hinton (2009), NIPS.

    Args:
        bias: the biases ``(words,)``, or the number of words in the vocabulary.
        length: D, if it is the same for all documents; log Z and chains that start from noise need it.

    >>> import thalweg as tw
    >>> tw.energies.ReplicatedSoftmaxUnits(2000, length=50).space
    Documents(shape=(2000,), length=50)
    """

    bias: Array
    length: int | None = eqx.field(static=True)

    def __init__(self, bias: Any, length: int | None = None):
        self.bias = _biases(bias)
        self.length = None if length is None else whole_number("length", length)

    @property
    def space(self) -> Documents:
        return Documents(self.bias.shape, self.length)

    @property
    def units(self) -> int:
        return 1

    def base(self, x: Array) -> Array:
        counts = x.astype(self.bias.dtype)
        orders = gammaln(jnp.sum(counts, axis=-1) + 1) - jnp.sum(gammaln(counts + 1), axis=-1)
        return -orders[..., None]

    def weight(self, x: Array) -> Array:
        return jnp.sum(x, axis=-1).astype(self.bias.dtype)

    def log_normaliser(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return (weight * jax.nn.logsumexp(natural, axis=-1))[..., None]

    def mean(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return jnp.asarray(weight)[..., None] * jax.nn.softmax(natural, axis=-1)

    def sample(self, key: PRNGKeyArray, natural: Array, weight: Array | float = 1.0) -> Array:
        words = jnp.broadcast_to(jnp.asarray(weight, self.bias.dtype), natural.shape[:-1])
        counts = jax.random.multinomial(key, words, jax.nn.softmax(natural, axis=-1))
        return jnp.round(counts).astype(self.space.dtype)

    def redraw(self, key: PRNGKeyArray, natural: Array, x: Array, free: Array | None = None) -> Array:
        """With a mask of words ``(words,)``, the words outside it keep their counts."""
        if free is None:
            return super().redraw(key, natural, x)
        words = jnp.sum(jnp.where(free, x, 0), axis=-1)
        drawn = self.sample(key, jnp.where(free, natural, -jnp.inf), words)
        return jnp.where(free, drawn.astype(x.dtype), x)

    def spread(self, mask: Array) -> Array:
        return jnp.broadcast_to(mask, (*mask.shape[:-1], self.features))

    def fitted(self, statistics: Array) -> "ReplicatedSoftmaxUnits":
        words = jnp.sum(statistics, axis=0) + 1.0
        return ReplicatedSoftmaxUnits(jnp.log(words / jnp.sum(words)), self.length)


class ReLUUnits(AbstractUnits):
    r"""Rectified units ``x_i ≥ 0`` with energy ``x_i²/2 - b_i x_i``: given the other layer, a normal ``N(θ_i, 1)``
    restricted to positive numbers; ``A(θ_i) = θ_i²/2 + ½log 2π + log Φ(θ_i)``.

    Reference: the one-sided case of the units in Tubiana and Monasson (2017), Phys. Rev. Lett. 118.

    Args:
        bias: the biases ``(n,)``, or the number of units.

    >>> import thalweg as tw
    >>> tw.energies.ReLUUnits(10).space
    Positive(shape=(10,))
    """

    bias: Array

    def __init__(self, bias: Any):
        self.bias = _biases(bias)

    @property
    def space(self) -> Positive:
        return Positive(self.units)

    def base(self, x: Array) -> Array:
        return 0.5 * x**2

    def log_normaliser(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return 0.5 * natural**2 + 0.5 * np.log(2 * np.pi) + log_ndtr(natural)

    def mean(self, natural: Array, weight: Array | float = 1.0) -> Array:
        return natural + jnp.exp(norm.logpdf(natural) - log_ndtr(natural))

    def sample(self, key: PRNGKeyArray, natural: Array, weight: Array | float = 1.0) -> Array:
        """By inversion: with u uniform, ``P(x > t) = Φ(θ - t)/Φ(θ)`` gives ``x = θ - Φ⁻¹(uΦ(θ))``."""
        log_u = jnp.log1p(-uniform(key, natural.shape))  # never of zero
        near = jnp.maximum(natural, _TAIL)
        direct = near - ndtri(jnp.exp(log_u + log_ndtr(near)))
        return jnp.maximum(
            jnp.where(natural > _TAIL, direct, _draw_tail(natural, log_u)), jnp.finfo(natural.dtype).tiny
        )

    def scaled(self, factor: Array) -> tuple["ReLUUnits", Array]:
        root = jnp.sqrt(factor)
        return eqx.tree_at(lambda units: units.bias, self, self.bias * root), root

    def rescaled(self, x: Array, root: Array) -> Array:
        return x * root

    def fitted(self, statistics: Array) -> "ReLUUnits":
        raise ValueError("expected visible units of data, got ReLUUnits; use them as hidden units")


def _draw_tail(natural: Array, log_u: Array) -> Array:
    """A draw of ``N(θ, 1)`` above 0 for θ far below 0, where Φ(θ) underflows.

    Newton's method solves ``log Φ(-z) = log u + log Φ(θ)`` for ``z = x - θ``; it starts at the solution for the density
    ``z·exp(-z²/2)``.
    """
    far = jnp.minimum(natural, _TAIL)
    target = log_u + log_ndtr(far)
    z = jnp.sqrt(far**2 - 2 * log_u)
    for _ in range(3):
        z = z + (log_ndtr(-z) - target) * jnp.exp(log_ndtr(-z) - norm.logpdf(z))
    return z + far


def _biases(bias: Any) -> Array:
    """Biases ``(n,)`` from an array, or zeros from a number of units."""
    if np.ndim(bias) == 0:
        return jnp.zeros(whole_number("the number of units", bias))
    biases = finite("bias", bias)
    if biases.ndim != 1:
        raise ValueError(f"expected biases (units,), got shape {biases.shape}; give one for each unit")
    return biases


def _shares(statistics: Array) -> Array:
    """The share of ones of every column, kept away from 0 and 1 as if half a row of each had been added."""
    rows = statistics.shape[0]
    return (jnp.sum(statistics, axis=0) + 0.5) / (rows + 1)
