"""Conditional noise-contrastive estimation: each data point is compared with a noisy copy, so that log Z cancels."""

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from thalweg.core import (
    Objective,
    Step,
    bind_batch,
    combine,
    compiled,
    count_chains,
    partition_trainable,
    split_batch,
    tile,
)
from thalweg.noise.perturbations import Flips, Jitter, Unconditional
from thalweg.objectives.batches import check_batch, on_real_coordinates
from thalweg.objectives.noise_contrastive import log_densities
from thalweg.objectives.noise_density import prepare_noise
from thalweg.spaces import Finite, Space, is_continuous, point_space

# the range of σ in units of the data's standard deviation, and the number of candidates
_WIDTHS, _SCALES = (0.01, 10.0), 13
# the number of parts of the first batch from which the variance of the gradient is estimated, and the number of
# standard errors above which a signal is significant
_PARTS, _CLEAR = 16, 2.5


class ConditionalNCE(Objective):
    r"""The model learns to tell a data point x from a noisy copy ``y ~ p_n(y|x)``:

    ``softplus(-G)``, ``G = log p̃_θ(x) - log p̃_θ(y) + log p_n(y|x) - log p_n(x|y)``,

    where log Z cancels. The noise need not resemble the data, but its scale matters: the gradient vanishes for copies
    that are too close or too far. Unless it is given, the scale is chosen in `init` from a grid, by the largest ratio
    ``‖E∇‖² / tr Var ∇`` of the gradient at the initial model and the first batch (`signal_to_noise`), and stored as the
    objective's state. If no scale has a significant gradient, for example because the initial model is close to the
    data, the scale whose loss lies midway between the extremes is taken. On constrained spaces and for trees, Gaussian
    noise is added to the real coordinates. Metrics: ``accuracy``, the share of pairs classified correctly;
    ``log_ratio``, the mean of G; and, if the scale was chosen, ``noise_scale``: σ or the probability of a flip.
    Reference: Ceylan and Gutmann (2018), ICML.

    Args:
        sigma: σ of Gaussian noise around x; leave it out on finite spaces, where sites are flipped.
        noise: any other noise, with ``sample(key, x)`` of a batch and ``log_prob(y, x)`` of a pair: `tw.noise.Jitter`,
            `Flips`, `Unconditional`, or your own.

    >>> import jax, optax, thalweg as tw
    >>> key_data, key_fit = jax.random.split(jax.random.key(0))
    >>> data = 2.0 + jax.random.normal(key_data, (1000, 1))
    >>> energy, objective = tw.energies.Gaussian([0.0], [1.0]), tw.objectives.ConditionalNCE()
    >>> run = tw.fit(energy, data, objective, optimizer=optax.adam(0.05), steps=200, batch_size=200, key=key_fit)
    >>> bool(abs(run.energy.mean[0] - 2.0) < 0.3)
    True
    """

    minimised_at_truth: ClassVar[bool] = True
    conditional: ClassVar[bool] = True
    noise: Any

    def __init__(self, sigma: float | Array | None = None, noise: Any = None):
        if sigma is not None and noise is not None:
            raise ValueError("expected sigma or noise, got both; sigma=σ is noise=Jitter(σ)")
        self.noise = noise if sigma is None else Jitter(sigma)

    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[None, Array | None]:
        check_batch(self, energy, batch)
        x = split_batch(energy, batch)[0]
        space = point_space(energy, x)
        if self.noise is not None:
            _check(self.noise, key, energy, space, x)
            return None, None
        if not isinstance(space, Finite) and not is_continuous(space):
            raise ValueError(f"expected noise for {space}, which has no default, got none; give noise=")
        if count_chains(x) < 2:
            raise ValueError(f"expected at least 2 rows to choose the noise from, got {count_chains(x)}; give sigma")
        scales = _candidate_scales(space, _model_and_points(self.noise, energy, batch)[1])
        found = _measure_signals(key, energy, batch, jax.vmap(_default_noise(space))(scales))
        clear = found.ratio > _CLEAR * found.error
        halfway = jnp.argmin(jnp.abs(found.loss - (jnp.min(found.loss) + jnp.max(found.loss)) / 2))
        best = jnp.where(jnp.any(clear), jnp.argmax(jnp.where(clear, found.ratio, -jnp.inf)), halfway)
        return None, scales[best]

    def loss(self, key: PRNGKeyArray, energy: Any, params: None, state: PyTree, batch: PyTree) -> tuple[Array, Step]:
        noise, metrics = self.noise, {}
        if state is not None:
            space = point_space(energy, split_batch(energy, batch)[0])
            noise, metrics = _default_noise(space)(state), {"noise_scale": state}
        log_ratios = pair_log_ratios(key, energy, noise, batch)
        metrics |= {"accuracy": jnp.mean(log_ratios > 0), "log_ratio": jnp.mean(log_ratios)}
        return jnp.mean(jax.nn.softplus(-log_ratios)), Step(state, metrics)


def pair_log_ratios(key: PRNGKeyArray, energy: Any, noise: Any, batch: PyTree) -> Float[Array, " rows"]:
    """``log p̃(x) - log p̃(y) + log p_n(y|x) - log p_n(x|y)`` of every x of a batch and a y drawn for it."""
    model, x = _model_and_points(noise, energy, batch)
    y = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), noise.sample(key, x), x)
    log_p, log_q = jnp.split(log_densities(tile(model, 2), x, y), 2)
    return log_p - log_q + jax.vmap(noise.log_prob)(y, x) - jax.vmap(noise.log_prob)(x, y)


def _model_and_points(noise: Any, energy: Any, batch: PyTree) -> tuple[Any, PyTree]:
    """The model of every row and the points to which noise is added: real coordinates for Gaussian noise, which would
    leave a constrained space; the points themselves for any other noise."""
    space = point_space(energy, split_batch(energy, batch)[0])
    if is_continuous(space) and (noise is None or isinstance(noise, Jitter)):
        return on_real_coordinates("ConditionalNCE", energy, batch)
    return bind_batch(energy, batch)


def signal_to_noise(key: PRNGKeyArray, energy: Any, batch: Array, noises: Any) -> Float[Array, " scales"]:
    r"""``‖E∇‖² / tr Var ∇`` of the gradient of one pair ``(x, y)`` in the energy's parameters, for each noise.

    The estimate of ‖E∇‖² from 16 parts of the batch is unbiased, so it may be negative if there is no signal. All
    noises are tried with the same random numbers.

    Args:
        key: the random key of the noise.
        energy: the model.
        batch: data, at least two rows.
        noises: several noises of one kind with stacked arrays: ``jax.vmap(tw.noise.Jitter)(sigmas)``.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> from thalweg.objectives.conditional_nce import signal_to_noise
    >>> data = 1.0 + jax.random.normal(jax.random.key(0), (2000, 1))
    >>> sigmas = jnp.array([0.001, 2.0, 1000.0])
    >>> model = tw.energies.Gaussian([0.0], [1.0])
    >>> ratios = signal_to_noise(jax.random.key(1), model, data, jax.vmap(tw.noise.Jitter)(sigmas))
    >>> int(jnp.argmax(ratios))
    1
    """
    return _measure_signals(key, energy, batch, noises).ratio


class _Signal(NamedTuple):
    """For each noise: the ratio, its standard error in the absence of a signal, and the mean loss."""

    ratio: Array
    error: Array
    loss: Array


@compiled
def _measure_signals(key: PRNGKeyArray, energy: Any, batch: PyTree, noises: Any) -> _Signal:
    count = count_chains(batch)
    parts = min(_PARTS, count)
    rows = count // parts
    split = jax.tree.map(lambda leaf: leaf[: parts * rows].reshape(parts, rows, *leaf.shape[1:]), batch)
    keys = jax.random.split(key, parts)
    trained, fixed = partition_trainable(energy)

    @jax.value_and_grad
    def gradient(trained, noise, key, part):
        return jnp.mean(jax.nn.softplus(-pair_log_ratios(key, combine(trained, fixed), noise, part)))

    def measure(noise):
        def add(total, given):
            loss, slope = gradient(trained, noise, *given)
            # product with the sum so far: all pairs of parts, with the memory of one gradient
            return jax.tree.map(jnp.add, total, slope), (loss, _product(slope, total), _product(slope, slope))

        nothing = jax.tree.map(jnp.zeros_like, trained)
        # deliberately the same random numbers for every noise
        _, (losses, products, squares) = jax.lax.scan(add, nothing, (jax.random.clone(keys), split))
        pairs = parts * (parts - 1) / 2
        variance = jnp.mean(squares) - jnp.sum(products) / pairs
        products *= jnp.where(variance > 0, 1 / jnp.where(variance > 0, variance * rows * pairs, 1.0), 0.0)
        # without a signal each product has mean zero given the previous ones
        return _Signal(jnp.sum(products), jnp.linalg.norm(products), jnp.mean(losses))

    return jax.lax.map(measure, noises)


def _product(one: PyTree, other: PyTree) -> Array:
    return sum((jnp.vdot(a, b) for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True)), jnp.zeros(()))


def _default_noise(space: Space) -> Callable[[Array], Any]:
    """A function from a scale to the default noise of a space."""
    return (lambda scale: Flips(scale, space.levels)) if isinstance(space, Finite) else Jitter


def _candidate_scales(space: Space, x: Array) -> Float[Array, " scales"]:
    if isinstance(space, Finite):
        return jnp.geomspace(0.5 / max(1, math.prod(space.shape)), 0.5, _SCALES)
    deviation = jnp.sqrt(jnp.mean(jnp.var(x, axis=0)))
    # data without spread have no scale
    return jnp.where(deviation > 0, deviation, 1.0) * jnp.geomspace(*_WIDTHS, _SCALES)


def _check(noise: Any, key: PRNGKeyArray, energy: Any, space: Space, x: PyTree) -> None:
    """Raise if ``noise`` is not noise around points of the space."""
    if isinstance(noise, Jitter) and not is_continuous(space):
        raise ValueError(
            f"expected noise among the levels of discrete data, got a Gaussian kernel on {space}; leave sigma "
            "out, or give noise=tw.noise.Flips(0.1, levels)"
        )
    if isinstance(noise, Jitter) and np.shape(noise.sigma) not in ((), space.shape):
        raise ValueError(
            f"expected sigma as one number or of a point's shape {space.shape}, got {np.shape(noise.sigma)}; reshape it"
        )
    for method in ("sample", "log_prob"):
        if isinstance(noise, type) or not callable(getattr(noise, method, None)):
            got = noise.__name__ if isinstance(noise, type) else type(noise).__name__
            raise ValueError(
                f"expected noise with sample(key, x) and log_prob(y, x), got {got} without {method}; "
                "use tw.noise.Jitter or Flips, or tw.noise.Unconditional for a plain density"
            )
    if isinstance(noise, Flips) and not isinstance(space, Finite):
        raise ValueError(f"expected noise around points of {space}, got Flips, which changes levels; give sigma")
    if isinstance(noise, Unconditional):
        prepare_noise("ConditionalNCE", key, noise.density, energy, x)
