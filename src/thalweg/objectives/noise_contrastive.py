r"""Noise-contrastive estimation: the model learns to tell data from noise of known density, and learns log Z.

Everything depends on ``G(x) = log p̃_θ(x) - log p_n(x)``, with ``log p̃_θ = -E_θ - log Z`` and log Z a parameter.
"""

import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from thalweg.core import (
    ConditionalEnergy,
    HasLogZ,
    Objective,
    Step,
    bind,
    compiled,
    concatenate,
    count_chains,
    energies,
    positive,
    space_of,
    split_batch,
    static_number,
    whole_number,
)
from thalweg.core.random import distinct
from thalweg.objectives.batches import check_batch
from thalweg.objectives.finite_sums import count_states, is_finite, log_z_sums
from thalweg.objectives.noise_density import as_density, draw_noise, prepare_noise
from thalweg.objectives.psi import AbstractPsi, Logistic

# the initial log Z is a sum over all states if there are at most _STATES, otherwise a mean over _POINTS noise points
_STATES, _POINTS = 4096, 1000


class LogZ(NamedTuple):
    """The parameter that is trained with the energy, a scalar."""

    log_z: Array


class NoiseContrastState(NamedTuple):
    """The objective's state: the noise fitted to the first batch (``None`` if it was given), and, with fixed noise
    points, the points and their ``log_prob``."""

    fitted: Any
    points: PyTree
    log_probs: Array | None


class AbstractNoiseContrast(Objective):
    r"""``(1/ν) E_noise S0(νg) - E_data S1(νg)`` with ``g = p̃_θ/p_n`` and the S0, S1 of a convex ψ."""

    minimised_at_truth: ClassVar[bool] = True
    psi: eqx.AbstractVar[AbstractPsi]
    noise: eqx.AbstractVar[Any]
    nu: eqx.AbstractVar[float]
    fixed: eqx.AbstractVar[int | None]

    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[LogZ, NoiseContrastState]:
        refuse_conditions(self, energy)
        check_batch(self, energy, batch)
        key_noise, key_fixed, key_start = jax.random.split(key, 3)
        noise, fitted = prepare_noise(type(self).__name__, key_noise, self.noise, energy, batch)
        points = log_probs = None
        if self.fixed is not None:
            needed = count_noise(self.nu, batch)
            if self.fixed < needed:
                raise ValueError(
                    f"expected at least {needed} fixed noise points for a batch of {count_chains(batch)}, got "
                    f"{self.fixed}; raise fixed"
                )
            points, log_probs = draw_noise(key_fixed, noise, self.fixed, batch)
        log_z = initial_log_z(key_start, energy, noise, batch)
        return LogZ(log_z), NoiseContrastState(fitted, points, log_probs)

    def loss(
        self, key: PRNGKeyArray, energy: Any, params: LogZ, state: NoiseContrastState, batch: PyTree
    ) -> tuple[Array, Step]:
        noise = self.noise if state.fitted is None else state.fitted
        count = count_noise(self.nu, batch)
        if state.log_probs is None:
            y, log_noise = draw_noise(key, noise, count, batch)
        else:
            chosen = distinct(key, len(state.log_probs), count)
            y, log_noise = jax.tree.map(lambda leaf: leaf[chosen], (state.points, state.log_probs))
        log_probs = jnp.concatenate([jax.vmap(noise.log_prob)(batch), log_noise])
        loss, metrics = contrast(self.psi, self.nu, energy, params.log_z, batch, y, log_probs)
        return loss, Step(state, metrics)


def contrast(
    psi: AbstractPsi, nu: float, energy: Any, log_z: Array, batch: PyTree, y: PyTree, log_probs: Array
) -> tuple[Array, dict[str, Array]]:
    """The loss against noise points ``y``, and the metrics of `NCE`; ``log_probs`` are ``log p_n`` at the data, then
    y."""
    rows = count_chains(batch)
    log_ratios = log_densities(energy, batch, y) - log_z - log_probs
    weighted = log_ratios + math.log(nu)
    data, noise = -psi.s1(weighted[:rows]), psi.s0(weighted[rows:])
    right = nu * jnp.mean(weighted[:rows] > 0) + jnp.mean(weighted[rows:] < 0)
    metrics = {"log_z": log_z, "accuracy": right / (1 + nu)} | ratio_metrics(log_ratios, log_probs, rows)
    metrics["not_finite"] = jnp.mean(~jnp.isfinite(jnp.concatenate([data, noise])))
    return jnp.mean(data) + jnp.mean(noise) / nu, metrics


class NCE(AbstractNoiseContrast):
    r"""Noise-contrastive estimation: logistic regression between data and noise,

    ``E_data softplus(-G - log ν) + (1/ν) E_noise softplus(G + log ν)``, ν = (data points)/(noise points).

    The loss is smallest where ``exp(-E_θ - log Z)`` is the normalised density of the data: log Z is learned, as
    ``params.log_z``. It starts at the energy's own log Z if that is known, at the sum over all states on a small finite
    space, otherwise at an importance-sampling estimate from the noise. Noise and data must overlap; noise that
    resembles the data is best. The model should start near the data too, because far away the loss is flat (Liu et al.
    2022, ICLR).
    Metrics: ``log_z``; ``accuracy``, the share of points classified correctly (a half if noise resembles the data);
    ``log_ratio_data`` and ``log_ratio_noise``, the means of G; ``data_outside``, the share of data where the noise has
    no density; ``not_finite``, the share of points whose loss is not finite. Reference: Gutmann and Hyvärinen (2012),
    JMLR 13.

    Args:
        noise: any density with ``sample(key, shape)`` and ``log_prob(x)``: from `tw.noise`, flowjax, or an energy. By
            default a Gaussian fitted to the first batch (to its real coordinates on constrained spaces), the uniform
            density on `Interval`, independent sites on finite spaces.
        nu: ν > 0; a smaller ν means more noise points.
        fixed: the number of noise points that are drawn once, from which every update takes a random subset; by
            default every update draws fresh noise.

    >>> import jax, optax, thalweg as tw
    >>> key_data, key_fit = jax.random.split(jax.random.key(0))
    >>> data = 2.0 + jax.random.normal(key_data, (1000, 1))
    >>> energy, objective = tw.energies.Gaussian([0.0], [1.0]), tw.objectives.NCE()
    >>> run = tw.fit(energy, data, objective, optimizer=optax.adam(0.05), steps=400, batch_size=200, key=key_fit)
    >>> bool(abs(run.energy.mean[0] - 2.0) < 0.3), bool(abs(run.params.log_z - 0.9189) < 0.2)
    (True, True)
    """

    noise: Any
    nu: float = eqx.field(static=True)
    fixed: int | None = eqx.field(static=True)

    def __init__(self, noise: Any = None, nu: float = 1.0, fixed: int | None = None):
        self.noise, self.nu, self.fixed = as_density(noise), as_nu(nu), as_fixed(fixed)

    @property
    def psi(self) -> Logistic:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Logistic()


class RankNCE(Objective):
    r"""Ranking NCE: the model learns to find the data point x among L - 1 noise points, at a place drawn from priors ρ,

    ``-log softmax(G + log ρ)`` at that place.

    log Z cancels, so it is neither needed nor learned. With two candidates and equal priors the loss is
    ``softplus(G(y) - G(x))``. Metrics: ``accuracy``, the share of data points ranked first; ``log_ratio_data`` and
    ``log_ratio_noise``, the means of G up to log Z; ``data_outside``, as in `NCE`. Reference: Ma and Collins (2018),
    EMNLP.

    Args:
        noise: as in `NCE`.
        candidates: L ≥ 2.
        priors: ρ, ``(L,)``, positive; equal by default.

    >>> import jax, optax, thalweg as tw
    >>> key_data, key_fit = jax.random.split(jax.random.key(0))
    >>> data = 2.0 + jax.random.normal(key_data, (1000, 1))
    >>> energy, objective = tw.energies.Gaussian([0.0], [1.0]), tw.objectives.RankNCE(candidates=5)
    >>> run = tw.fit(energy, data, objective, optimizer=optax.adam(0.05), steps=200, batch_size=200, key=key_fit)
    >>> bool(abs(run.energy.mean[0] - 2.0) < 0.3)
    True
    """

    minimised_at_truth: ClassVar[bool] = True
    conditional: ClassVar[bool] = True
    noise: Any
    candidates: int = eqx.field(static=True)
    priors: Array | None

    def __init__(self, noise: Any = None, candidates: int = 10, priors: Any = None):
        candidates = whole_number("candidates", candidates, 2, "one of them is the data point")
        priors = None if priors is None else positive("every prior", priors)
        if priors is not None and priors.shape != (candidates,):
            raise ValueError(f"expected one prior for each of {candidates} candidates, got {priors.shape}; give them")
        self.noise, self.candidates, self.priors = as_density(noise), candidates, priors

    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[None, Any]:
        check_batch(self, energy, batch)
        x = split_batch(energy, batch)[0]
        return None, prepare_noise(type(self).__name__, key, self.noise, energy, x)[1]

    def loss(self, key: PRNGKeyArray, energy: Any, params: None, state: Any, batch: PyTree) -> tuple[Array, Step]:
        noise = self.noise if state is None else state
        x, conditions = split_batch(energy, batch)
        rows, others = count_chains(x), self.candidates - 1
        key_noise, key_place = jax.random.split(key)
        y, log_noise = draw_noise(key_noise, noise, rows * others, x)
        log_probs = jnp.concatenate([jax.vmap(noise.log_prob)(x), log_noise])
        if conditions is not None:
            # the noise points of a row are evaluated at that row's condition
            spread = jax.tree.map(lambda leaf: jnp.repeat(leaf, others, axis=0), conditions)
            conditions = concatenate(conditions, spread)
        log_ratios = log_densities(bind(energy, conditions), x, y) - log_probs
        # the data point first, whatever its place among the candidates
        ranked = jnp.concatenate([log_ratios[:rows, None], log_ratios[rows:].reshape(rows, others)], axis=1)
        if self.priors is not None:
            ranked += _log_priors(key_place, self.priors, rows)
        loss = jnp.mean(jax.nn.logsumexp(ranked, axis=1) - ranked[:, 0])
        first = jnp.mean(ranked[:, 0] > jnp.max(ranked[:, 1:], axis=1))
        return loss, Step(state, {"accuracy": first} | ratio_metrics(log_ratios, log_probs, rows))


def _log_priors(key: PRNGKeyArray, priors: Array, rows: int) -> Float[Array, "rows candidates"]:
    """The log prior of the data point's place first, then those of the noise points' places."""
    log_priors = jnp.log(priors / jnp.sum(priors))
    place = jax.random.categorical(key, log_priors, shape=(rows, 1))
    # the prior of the first place is swapped with that of the data point's place
    others = jnp.where(jnp.arange(1, len(priors)) == place, log_priors[0], log_priors[1:])
    return jnp.concatenate([log_priors[place], others], axis=1)


def as_nu(nu: Any) -> float:
    """ν as a static number; raises if it is not finite and positive."""
    return static_number("nu", nu, positive)


def as_fixed(fixed: Any) -> int | None:
    """The number of fixed noise points, or ``None``."""
    return None if fixed is None else whole_number("fixed", fixed, hint="leave it out for fresh noise points")


def count_noise(nu: float, batch: PyTree) -> int:
    """The number of noise points for a batch."""
    return max(1, round(count_chains(batch) / nu))


def refuse_conditions(objective: Objective, energy: Any) -> None:
    """Raise for a conditional energy in objectives that learn one log Z."""
    if isinstance(energy, ConditionalEnergy):
        raise ValueError(
            f"expected an energy of one point for {type(objective).__name__}, which learns one log Z, got the "
            f"conditional energy {type(energy).__name__}, whose log Z(c) depends on c; use RankNCE or ConditionalNCE, "
            "in which log Z(c) cancels"
        )


def log_densities(energy: Any, *points: PyTree) -> Float[Array, " rows"]:
    """``-E`` of all points in one batched evaluation."""
    # an energy may return whole numbers
    return -energies(energy, concatenate(*points)).astype(jnp.result_type(float))


def ratio_metrics(log_ratios: Array, log_probs: Array, rows: int) -> dict[str, Array]:
    """The means of G over data (the first ``rows``) and noise, and the share of data where the noise has no density."""
    outside = jnp.mean(~jnp.isfinite(log_probs[:rows]))
    means = {"log_ratio_data": jnp.mean(log_ratios[:rows]), "log_ratio_noise": jnp.mean(log_ratios[rows:])}
    return means | {"data_outside": outside}


def initial_log_z(key: PRNGKeyArray, energy: Any, noise: Any, batch: PyTree) -> Array:
    """The initial value of the learned log Z: exact if possible, otherwise an importance-sampling estimate."""
    space = space_of(energy)
    if isinstance(energy, HasLogZ):
        log_z = energy.log_z
    elif is_finite(space) and count_states(space) <= _STATES:
        log_z = log_z_sums(energy, space)
    else:
        log_z = _mean_over_noise(key, noise, energy, batch)
    return jnp.asarray(log_z, jnp.result_type(float))


@compiled
def _mean_over_noise(key: PRNGKeyArray, noise: Any, energy: Any, batch: PyTree) -> Array:
    """``log Z`` as the mean of ``exp(-E)/p_noise`` over points of the noise."""
    y, log_probs = draw_noise(key, noise, _POINTS, batch)
    return jax.nn.logsumexp(log_densities(energy, y) - log_probs) - math.log(_POINTS)
