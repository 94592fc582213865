"""Word counts as units of a Boltzmann machine: the replicated softmax."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import whole_number
from thalweg.energies.units import AbstractUnits, biases_of
from thalweg.spaces import Counts


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
        self.bias = biases_of(bias)
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
