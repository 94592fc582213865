r"""Noise-contrastive estimation: the model learns to tell data from noise of known density, and log Z with it.

``G(x) = log p̃_θ(x) - log p_n(x)`` is all that is needed, with ``log p̃_θ = -E_θ - log Z`` and log Z a parameter.
"""

import abc
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from thalweg.core import Energy, HasLogZ, Objective, Step, as_energy, positive
from thalweg.exact import enumeration
from thalweg.exact.streaming import log_density
from thalweg.noise.densities import Uniform, as_noise, fit_gaussian, require_support
from thalweg.noise.discrete import fit_independent
from thalweg.samplers.run import check_scalar
from thalweg.samplers.starts import distinct, point_space
from thalweg.spaces import Finite, Interval, Real

# the first log Z is a sum over all states where there are no more than these, else a mean over so many noise points
_STATES, _POINTS = 4096, 1000


class LogZ(NamedTuple):
    """The parameter that is learnt with the energy, a scalar."""

    log_z: Array


class Carried(NamedTuple):
    """What is carried: the noise fitted to the first batch, ``None`` where it was given, and the noise points and their
    ``log_prob`` where these are fixed."""

    fitted: Any
    points: Array | None
    log_probs: Array | None


class NoiseContrast(Objective):
    """A mean over data and noise of losses that `terms` gives from ``log νg``, g being ``p̃_θ/p_n``."""

    divergence: ClassVar[bool] = True
    noise: Any
    nu: float = eqx.field(static=True, converter=float)
    fixed: int | None = eqx.field(static=True)

    def __check_init__(self):
        if not 0 < self.nu < math.inf:
            raise ValueError(f"expected nu > 0, got {self.nu}; 0.5 means two noise points to a data point")
        if self.fixed is not None and self.fixed < 1:
            raise ValueError(f"expected fixed >= 1 noise points, got {self.fixed}; leave it out for fresh ones")

    @abc.abstractmethod
    def terms(self, data: Float[Array, " rows"], noise: Float[Array, " draws"]) -> tuple[Array, Array]:
        """The loss of every data point and of every noise point, from ``log νg`` there."""

    def init(self, key: PRNGKeyArray, energy: Any, batch: Array) -> tuple[LogZ, Carried]:
        energy = as_energy(energy)
        noise, fitted = ready(self.noise, energy, batch)
        key_fixed, key_start = jax.random.split(key)
        points = log_probs = None
        if self.fixed is not None:
            if self.fixed < self._count(batch):
                raise ValueError(
                    f"expected at least {self._count(batch)} fixed noise points for a batch of {len(batch)}, got "
                    f"{self.fixed}; raise fixed"
                )
            points, log_probs = drawn(key_fixed, noise, self.fixed, batch)
        log_z = first_log_z(key_start, energy, noise, batch)
        return LogZ(log_z), Carried(fitted, points, log_probs)

    def loss(self, key: PRNGKeyArray, energy: Any, params: LogZ, state: Carried, batch: Array) -> tuple[Array, Step]:
        noise = self.noise if state.fitted is None else state.fitted
        count = self._count(batch)
        if state.points is None or state.log_probs is None:
            y, log_noise = drawn(key, noise, count, batch)
        else:
            chosen = distinct(key, len(state.points), count)
            y, log_noise = state.points[chosen], state.log_probs[chosen]
        log_probs = jnp.concatenate([jax.vmap(noise.log_prob)(batch), log_noise])
        loss, told = contrast(self.terms, self.nu, as_energy(energy), params.log_z, batch, y, log_probs)
        return loss, Step(state, told)

    def _count(self, batch: Array) -> int:
        """Noise points to a batch."""
        return max(1, round(batch.shape[0] / self.nu))


def contrast(
    terms: Callable[[Array, Array], tuple[Array, Array]],
    nu: float,
    energy: Energy,
    log_z: Array,
    batch: Array,
    y: Array,
    log_probs: Array,
) -> tuple[Array, dict[str, Array]]:
    """The loss against noise points ``y``, and the metrics of `NCE`; ``log_probs`` are the noise's, of data and y."""
    rows = batch.shape[0]
    log_ratios = log_densities(energy, batch, y) - log_z - log_probs
    weighted = log_ratios + math.log(nu)
    data, noise = terms(weighted[:rows], weighted[rows:])
    right = nu * jnp.mean(weighted[:rows] > 0) + jnp.mean(weighted[rows:] < 0)
    told = {"log_z": log_z, "accuracy": right / (1 + nu)} | told_of_ratios(log_ratios, log_probs, rows)
    told["not_finite"] = jnp.mean(~jnp.isfinite(jnp.concatenate([data, noise])))
    return jnp.mean(data) + jnp.mean(noise) / nu, told


class NCE(NoiseContrast):
    r"""Noise-contrastive estimation: logistic regression between data and noise,

    ``E_data softplus(-G - log ν) + (1/ν) E_noise softplus(G + log ν)``, ν = (data points)/(noise points).

    Smallest where ``exp(-E_θ - log Z)`` is the data's density, normalised: log Z is learnt, as ``params.log_z``. It
    starts at the energy's own where it has one, at the sum over all states on a small finite space, else at an
    importance-sampling estimate from the noise. Works while noise and data overlap; noise like the data is best, and
    the model should begin near them too: from afar the loss is flat (Liu et al. 2022, ICLR).
    Metrics: ``log_z``; ``accuracy``, the share of points told apart (a half when noise is like the data);
    ``log_ratio_data`` and ``log_ratio_noise``, means of G; ``data_outside``, the share of data where the noise has no
    density; ``not_finite``, the share of points whose loss is not finite. Reference: Gutmann and Hyvärinen (2012),
    JMLR 13.

    Args:
        noise: any density with ``sample(key, shape)`` and ``log_prob(x)``, of `tw.noise`, flowjax or an energy; by
            default a Gaussian fitted to the first batch, the space's own uniform density on `Interval`, independent
            sites on finite spaces.
        nu: ν > 0; a small one means much noise.
        fixed: so many noise points are drawn once, and every update takes its own from them at random; by default
            fresh noise every time.

    >>> import jax, optax, thalweg as tw
    >>> key = jax.random.key(0)
    >>> data = 2.0 + jax.random.normal(key, (1000, 1))
    >>> energy = tw.energies.Gaussian([0.0], [1.0])
    >>> run = tw.fit(energy, data, tw.objectives.NCE(), optimizer=optax.adam(0.05), steps=200, batch_size=200, key=key)
    >>> bool(abs(run.energy.mean[0] - 2.0) < 0.3), bool(abs(run.params.log_z - 0.9189) < 0.2)
    (True, True)
    """

    def __init__(self, noise: Any = None, nu: float = 1.0, fixed: int | None = None):
        self.noise, self.nu, self.fixed = noise, nu, fixed

    def terms(self, data: Float[Array, " rows"], noise: Float[Array, " draws"]) -> tuple[Array, Array]:
        return logistic(data, noise)


def logistic(data: Array, noise: Array) -> tuple[Array, Array]:
    """What is lost by taking data for noise and noise for data, from ``log νg``."""
    return jax.nn.softplus(-data), jax.nn.softplus(noise)


class RankNCE(Objective):
    r"""Which of L points is the data? One data point x among L - 1 noise points, at a place drawn from the priors ρ,

    ``-log softmax(G + log ρ)`` at that place.

    log Z cancels, so it is neither needed nor learnt. With two candidates and even priors it is
    ``softplus(G(y) - G(x))``. Metrics: ``accuracy``, the share of data points ranked first; ``log_ratio_data`` and
    ``log_ratio_noise``, means of G up to log Z; ``data_outside``, as in `NCE`. Reference: Ma and Collins (2018), EMNLP.

    Args:
        noise: as in `NCE`.
        candidates: L ≥ 2.
        priors: ρ, ``(L,)``, positive; even by default.

    >>> import jax, optax, thalweg as tw
    >>> key = jax.random.key(0)
    >>> data = 2.0 + jax.random.normal(key, (1000, 1))
    >>> energy, objective = tw.energies.Gaussian([0.0], [1.0]), tw.objectives.RankNCE(candidates=5)
    >>> run = tw.fit(energy, data, objective, optimizer=optax.adam(0.05), steps=200, batch_size=200, key=key)
    >>> bool(abs(run.energy.mean[0] - 2.0) < 0.3)
    True
    """

    divergence: ClassVar[bool] = True
    noise: Any
    candidates: int = eqx.field(static=True)
    priors: Array | None

    def __init__(self, noise: Any = None, candidates: int = 10, priors: Any = None):
        if candidates < 2:
            raise ValueError(f"expected candidates >= 2, got {candidates}; one of them is the data point")
        priors = None if priors is None else positive("every prior", priors)
        if priors is not None and priors.shape != (candidates,):
            raise ValueError(f"expected one prior for each of {candidates} candidates, got {priors.shape}; give them")
        self.noise, self.candidates, self.priors = noise, int(candidates), priors

    def init(self, key: PRNGKeyArray, energy: Any, batch: Array) -> tuple[None, Any]:
        return None, ready(self.noise, as_energy(energy), batch)[1]

    def loss(self, key: PRNGKeyArray, energy: Any, params: None, state: Any, batch: Array) -> tuple[Array, Step]:
        noise = self.noise if state is None else state
        rows, others = batch.shape[0], self.candidates - 1
        y, log_noise = drawn(key, noise, rows * others, batch)
        log_probs = jnp.concatenate([jax.vmap(noise.log_prob)(batch), log_noise])
        log_ratios = log_densities(as_energy(energy), batch, y) - log_probs
        # the data point first, whatever its place among the candidates
        ranked = jnp.concatenate([log_ratios[:rows, None], log_ratios[rows:].reshape(rows, others)], axis=1)
        if self.priors is not None:
            ranked += _log_priors(jax.random.fold_in(key, 1), self.priors, rows)
        loss = jnp.mean(jax.nn.logsumexp(ranked, axis=1) - ranked[:, 0])
        first = jnp.mean(ranked[:, 0] > jnp.max(ranked[:, 1:], axis=1))
        return loss, Step(state, {"accuracy": first} | told_of_ratios(log_ratios, log_probs, rows))


def _log_priors(key: PRNGKeyArray, priors: Array, rows: int) -> Float[Array, "rows candidates"]:
    """Those of the place where the data point stands, and of the others in turn."""
    log_priors = jnp.log(priors / jnp.sum(priors))
    place = jax.random.categorical(key, log_priors, shape=(rows, 1))
    # the prior of the first place changes places with that of the data's
    others = jnp.where(jnp.arange(1, len(priors)) == place, log_priors[0], log_priors[1:])
    return jnp.concatenate([log_priors[place], others], axis=1)


def ready(noise: Any, energy: Energy, batch: Array) -> tuple[Any, Any]:
    """The noise to use, checked against the first batch; and once more where it was fitted to it, else ``None``."""
    check_scalar(energy, batch)
    if noise is not None:
        noise = as_noise(noise, batch.shape[1:])
        require_support(noise, batch)
        return noise, None
    space = point_space(energy, batch)
    if isinstance(space, Finite):
        made = fit_independent(batch, space)
    elif isinstance(space, Interval):
        made = Uniform(space.low, space.high, space.shape)
    elif isinstance(space, Real):
        made = fit_gaussian(batch)
    else:
        raise ValueError(f"expected noise for {space}, which has no usual one, got none; give a density on it")
    require_support(made, batch)
    return made, made


def drawn(key: PRNGKeyArray, noise: Any, count: int, batch: Array) -> tuple[Array, Array]:
    """Noise points of the batch's type, and their ``log_prob``."""
    y = noise.sample(key, (count,)).astype(batch.dtype)
    return y, jax.vmap(noise.log_prob)(y)


def log_densities(energy: Energy, *points: Array) -> Array:
    """``-E`` of all points in one pass: the same matrix products at a larger batch."""
    return jax.vmap(lambda x: log_density(energy, x))(jnp.concatenate(points))


def told_of_ratios(log_ratios: Array, log_probs: Array, rows: int) -> dict[str, Array]:
    """The means of G over data (the first ``rows``) and noise, and the share of data where the noise has no density."""
    outside = jnp.mean(~jnp.isfinite(log_probs[:rows]))
    means = {"log_ratio_data": jnp.mean(log_ratios[:rows]), "log_ratio_noise": jnp.mean(log_ratios[rows:])}
    return means | {"data_outside": outside}


def first_log_z(key: PRNGKeyArray, energy: Energy, noise: Any, batch: Array) -> Array:
    """Where the learnt log Z starts: the truth where it is at hand, else an importance-sampling estimate."""
    if isinstance(energy, HasLogZ):
        log_z = energy.log_z
    elif isinstance(energy.space, Finite) and energy.space.size <= _STATES:
        log_z = enumeration.log_z(energy, energy.space)
    else:
        y, log_probs = drawn(key, noise, _POINTS, batch)
        log_z = jax.nn.logsumexp(log_densities(energy, y) - log_probs) - math.log(_POINTS)
    return jnp.asarray(log_z, jnp.result_type(float))
