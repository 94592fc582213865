"""A neural sampler: a network maps a few normal numbers z to the distribution of a point. It is cheap to sample; its
density is known only as an expectation over z."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from paramax import NonTrainable, non_trainable, unwrap

from thalweg.core import Module, key_and_shape, typed_key, whole_number
from thalweg.energies.layers import Dense
from thalweg.noise.densities import flatten_points, variances
from thalweg.noise.independent import check_finite_space
from thalweg.spaces import Finite

# the initial standard deviation given z, relative to that of the data, and the weight of the network's output in its
# logarithm: with the weight 1 of the mean, the deviations would differ by orders of magnitude
_NARROW, _GENTLE = 0.5, 0.25


class PointsWithLatents(NamedTuple):
    """Points ``x (n, *event)`` and the latent values ``z (n, latent)`` they were drawn from."""

    x: Array
    z: Array


class NeuralSampler(Module):
    r"""``x = μ(z) + σ(z)ε`` with ``z, ε ~ N(0, I)`` and μ, log σ from one network; on finite spaces the levels of every
    site have the probabilities ``softmax(l(z))``.

    Its density ``p(x) = E_z p(x|z)`` has no closed form. `log_probs` estimates log p from many z and is on average too
    low; `own_log_probs`, for the sampler's own points, includes the z they were drawn from and is on average too high.
    The difference between the two bounds the bias. References: Bose, Ling and Cao (2018), ACL, "Adversarial Contrastive
    Estimation"; Burda, Grosse and Salakhutdinov (2016), ICLR, for the many-sample bound.

    Args:
        data: ``(rows, *event)``, which gives the shape, the mean and the standard deviation.
        space: the finite space of discrete points; ``None`` if points are real.
        latent: the dimension of z.
        width: the number of units of the two hidden layers.

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
        flat, self.shape = flatten_points(data)
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
        return self.draw_with_latents(key, math.prod(shape)).x.reshape(*shape, *self.shape)

    def draw_with_latents(self, key: PRNGKeyArray, count: int) -> PointsWithLatents:
        """``count`` points with their z; real points are differentiable in the weights."""
        key_z, key_x = jax.random.split(key)
        z = self.latents(key_z, count)
        if self.levels is None:
            mean, log_deviation = self._law(z)
            x = mean + jnp.exp(log_deviation) * jax.random.normal(key_x, mean.shape)
        else:
            x = jnp.array(self.levels, jnp.int32)[jax.random.categorical(key_x, self._law(z)[0])]
        return PointsWithLatents(x.reshape(count, *self.shape), z)

    def latents(self, key: PRNGKeyArray, count: int) -> Float[Array, "count latent"]:
        """``count`` values of z."""
        return jax.random.normal(key, (count, self.latent))

    def log_probs(self, x: Array, z: Float[Array, "many latent"]) -> Float[Array, " rows"]:
        """``log (1/S)Σ_s p(x|z_s)`` of every row, with the same S values of z for all rows."""
        flat = x.reshape(len(x), -1)
        pairs = jax.vmap(lambda row: self._log_given(row, self._law(z)))(flat)
        return jax.nn.logsumexp(pairs, axis=1) - math.log(len(z))

    def own_log_probs(self, points: PointsWithLatents, z: Float[Array, "many latent"]) -> Float[Array, " rows"]:
        """The same for the sampler's own points, each with its own z among the values of z."""
        flat = points.x.reshape(len(points.x), -1)
        own = jax.vmap(lambda row, z: self._log_given(row, self._law(z[None]))[0])(flat, points.z)
        others = self.log_probs(points.x, z) + math.log(len(z))
        return jnp.logaddexp(own, others) - math.log(len(z) + 1)

    def _law(self, z: Float[Array, "many latent"]) -> tuple[Array, Array]:
        """The mean and log standard deviation of every coordinate given each z; on finite spaces the log probabilities
        of the levels."""
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
        """``log p(x|z)`` of one flat point, for every z."""
        if self.levels is not None:
            which = jnp.searchsorted(jnp.array(self.levels), row)
            return jnp.sum(jnp.take_along_axis(law[0], which[None, :, None], axis=2)[..., 0], axis=1)
        mean, log_deviation = law
        apart = (row - mean) * jnp.exp(-log_deviation)
        return -jnp.sum(0.5 * apart**2 + log_deviation, axis=1) - 0.5 * row.size * np.log(2 * np.pi)
