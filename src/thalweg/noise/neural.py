"""A neural sampler: a network makes the law of a point from a few normal numbers, cheap to draw from, whose density is
known only as a mean over these numbers."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from paramax import NonTrainable, non_trainable, unwrap

from thalweg.core import key_and_shape, typed_key, whole_number
from thalweg.energies.layers import Dense
from thalweg.noise.densities import flattened, variances
from thalweg.noise.independent import check_finite_space
from thalweg.spaces import Finite

# points are at first so much narrower around their mean than the data around theirs, and so much of the network's
# output goes into the logarithm of that: as much as into the mean makes deviations of all orders of magnitude
_NARROW, _GENTLE = 0.5, 0.25


class Drawn(NamedTuple):
    """Points ``x (n, *event)`` and what they were made from, ``z (n, latent)``."""

    x: Array
    z: Array


class NeuralSampler(eqx.Module):
    r"""``x = μ(z) + σ(z)ε`` with ``z, ε ~ N(0, I)`` and μ, log σ from one network; on finite spaces every site has the
    levels' probabilities ``softmax(l(z))`` of its own.

    Its density ``p(x) = E_z p(x|z)`` has no closed form. `log_probs` estimates it from many z, from below on average
    for points of elsewhere, from above for the sampler's own points when their own z is among them; the distance
    between the two is the bias there is at most. Reference: Bose, Ling and Cao (2018), ACL, "Adversarial Contrastive
    Estimation"; Burda, Grosse and Salakhutdinov (2016), ICLR, for the many-sample bound.

    Args:
        data: ``(rows, *event)``, from which the shape, the mean and the deviation are taken.
        space: a finite one where points are discrete; otherwise they are real.
        latent: numbers in z.
        width: of the two hidden layers.

    >>> import jax, thalweg as tw
    >>> data = tw.data.two_moons(jax.random.key(0), 500)
    >>> sampler = tw.noise.NeuralSampler(data, key=jax.random.key(1))
    >>> sampler.sample(jax.random.key(2), (5,)).shape
    (5, 2)
    """

    layers: tuple[Dense, ...]
    mean: NonTrainable
    deviation: NonTrainable
    shape: tuple[int, ...] = eqx.field(static=True)
    levels: tuple[int, ...] | None = eqx.field(static=True)
    latent: int = eqx.field(static=True)

    def __init__(self, data: Any, space: Finite | None = None, *, key: PRNGKeyArray, latent: int = 8, width: int = 128):
        flat, self.shape = flattened(data)
        latent, width = whole_number("latent", latent), whole_number("width", width)
        if space is not None:
            check_finite_space(space)
        self.latent, self.levels = latent, None if space is None else tuple(space.levels)
        size = flat.shape[1]
        outputs = 2 * size if self.levels is None else len(self.levels) * size
        sizes = (latent, width, width, outputs)
        keys = jax.random.split(typed_key(key), len(sizes) - 1)
        slopes = (0.0, 0.0, 1.0)
        made = zip(sizes[:-1], sizes[1:], keys, slopes, strict=True)
        self.layers = tuple(Dense(a, b, key=k, slope=s) for a, b, k, s in made)
        self.mean = non_trainable(jnp.mean(flat, axis=0))
        self.deviation = non_trainable(jnp.sqrt(variances(flat)))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        return self.drawn(key, math.prod(shape)).x.reshape(*shape, *self.shape)

    def drawn(self, key: PRNGKeyArray, count: int) -> Drawn:
        """So many points, with their z; real ones can be differentiated in the weights."""
        key_z, key_x = jax.random.split(key)
        z = self.latents(key_z, count)
        if self.levels is None:
            mean, log_deviation = self._law(z)
            x = mean + jnp.exp(log_deviation) * jax.random.normal(key_x, mean.shape)
        else:
            x = jnp.array(self.levels, jnp.int32)[jax.random.categorical(key_x, self._law(z)[0])]
        return Drawn(x.reshape(count, *self.shape), z)

    def latents(self, key: PRNGKeyArray, count: int) -> Float[Array, "count latent"]:
        return jax.random.normal(key, (count, self.latent))

    def log_probs(self, x: Array, z: Float[Array, "many latent"]) -> Float[Array, " rows"]:
        """``log (1/S)Σ_s p(x|z_s)`` of every row, over the same S values of z for all."""
        flat = x.reshape(len(x), -1)
        pairs = jax.vmap(lambda row: self._log_given(row, self._law(z)))(flat)
        return jax.nn.logsumexp(pairs, axis=1) - math.log(len(z))

    def log_probs_of_own(self, drawn: Drawn, z: Float[Array, "many latent"]) -> Float[Array, " rows"]:
        """The same for the sampler's own points, each with the z it was made from among the others."""
        flat = drawn.x.reshape(len(drawn.x), -1)
        own = jax.vmap(lambda row, z: self._log_given(row, self._law(z[None]))[0])(flat, drawn.z)
        others = self.log_probs(drawn.x, z) + math.log(len(z))
        return jnp.logaddexp(own, others) - math.log(len(z) + 1)

    def _law(self, z: Float[Array, "many latent"]) -> tuple[Array, Array]:
        """The mean and log deviation of every coordinate given each z; of discrete sites the log probabilities."""
        h = z
        for layer in self.layers[:-1]:
            h = jax.nn.silu(jax.vmap(layer)(h))
        out = jax.vmap(self.layers[-1])(h)
        if self.levels is not None:
            out = out.reshape(len(z), -1, len(self.levels))
            return jax.nn.log_softmax(out), out
        mean, deviation = unwrap(self.mean), unwrap(self.deviation)
        first, second = jnp.split(out, 2, axis=1)
        return mean + deviation * first, jnp.log(_NARROW * deviation) + _GENTLE * second

    def _log_given(self, row: Array, law: tuple[Array, Array]) -> Float[Array, " many"]:
        """``log p(x|z)`` of one flat point, for every z of a law."""
        if self.levels is not None:
            which = jnp.searchsorted(jnp.array(self.levels), row)
            return jnp.sum(jnp.take_along_axis(law[0], which[None, :, None], axis=2)[..., 0], axis=1)
        mean, log_deviation = law
        apart = (row - mean) * jnp.exp(-log_deviation)
        return -jnp.sum(0.5 * apart**2 + log_deviation, axis=1) - 0.5 * row.size * np.log(2 * np.pi)
