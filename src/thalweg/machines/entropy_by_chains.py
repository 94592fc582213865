"""Maximum entropy by Markov chains: stochastic approximation of η, then thermodynamic integration of the entropy."""

import math
from statistics import NormalDist
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Energy, Estimate, Space, compiled
from thalweg.energies import Gaussian
from thalweg.energies.maximum_entropy import MaximumEntropy
from thalweg.machines.maximum_entropy_fit import MaximumEntropyFit
from thalweg.samplers import HMC, GibbsWithGradients, MetropolisHastings, Proposal, advance, sample, warm_up
from thalweg.samplers.run import check_kernel
from thalweg.spaces import Binary, Categorical, Finite, Interval, Real, Spin

_CONFIDENCE = 0.95
# the size of update t is (1 + t/_DELAY)^-_POWER; averages of such steps are as good as the best single ones
_POWER, _DELAY = 0.7, 20.0
# no update moves the means by more than this many standard deviations of the features
_LARGEST = 0.5
# nodes of the path from the base to p, and the draws at each: before and while the slope is averaged
_PATH, _SETTLE, _AVERAGED = 16, 30, 60
_FINAL = 200


class _Path(Energy):
    """``(1 - s)·E_base + s·E``."""

    space: Space = eqx.field(static=True)
    base: Any
    end: MaximumEntropy
    s: Array

    def __call__(self, x: Array) -> Array:
        return (1 - self.s) * self.base(x) + self.s * self.end(x)


class _Uniform(Energy):
    """The energy zero."""

    space: Space = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return jnp.zeros(())


class _Flat(Energy):
    """A Gaussian of the coordinates of points of any shape."""

    space: Space = eqx.field(static=True)
    gaussian: Gaussian

    def __call__(self, x: Array) -> Array:
        return self.gaussian(x.reshape(-1))


class _OtherLabel(Proposal):
    """Another label at one site, all alike."""

    k: int = eqx.field(static=True)

    def propose(self, key: PRNGKeyArray, x: Array) -> Array:
        key_site, key_label = jax.random.split(key)
        site = jax.random.randint(key_site, (), 0, x.size)
        shift = jax.random.randint(key_label, (), 1, self.k, x.dtype)
        flat = x.reshape(-1)
        return flat.at[site].set((flat[site] + shift) % self.k).reshape(x.shape)

    def log_ratio(self, x: Array, proposed: Array) -> Array:
        return jnp.zeros(())


def fit_by_chains(
    energy: MaximumEntropy,
    target: np.ndarray,
    start: Array | None,
    kernel: Any,
    chains: int,
    updates: int,
    steps: int | None,
    key: PRNGKeyArray,
) -> MaximumEntropyFit:
    """η by stochastic approximation on persistent chains, preconditioned by the covariance of the features."""
    space = energy.space
    if not isinstance(space, (Binary, Spin, Categorical, Interval, Real)):
        raise ValueError(
            f"expected Binary, Spin, Categorical, Interval or Real for chains, got {space}; these have a density to "
            "start from"
        )
    if start is None and isinstance(space, Real):
        raise ValueError(
            f"expected a start for chains on {space}, where η = 0 is no density, got none; "
            "give natural parameters at which exp(η·f) has a finite integral"
        )
    key_start, key_warm, key_fit, key_final, key_path = jax.random.split(key, 5)
    energy = energy if start is None else MaximumEntropy(energy.features, start, space)
    x = space.noise(key_start, (chains,))
    if kernel is not None:
        check_kernel(kernel)
    elif isinstance(space, (Binary, Spin)):
        kernel = GibbsWithGradients()
    elif isinstance(space, Categorical):
        kernel = MetropolisHastings(_OtherLabel(space.k))
    else:
        kernel, x = warm_up(energy, HMC(0.1, steps=8), x, key=key_warm)
    if steps is None:
        steps = max(10, math.prod(space.shape)) if isinstance(space, Finite) else 10
    thin = math.ceil(steps / 10)
    wanted = jnp.asarray(target, energy.natural.dtype)
    natural, x = _approximate(energy, kernel, x, wanted, key_fit, updates, steps)
    if not bool(jnp.all(jnp.isfinite(natural))):
        raise ValueError(
            "expected means that some density has, got natural parameters that grow without bound; move the means "
            "inwards, or give a start closer to the solution"
        )
    fitted = MaximumEntropy(energy.features, natural, space)
    draws = sample(fitted, kernel, x, key=key_final, draws=_FINAL, thin=thin)
    rows = np.asarray(jax.vmap(jax.vmap(fitted.statistics))(draws.draws), float)  # (chains, draws, k)
    means, eta = rows.mean(axis=(0, 1)), np.asarray(natural, float)
    _refuse_far(rows, target)
    gap = _estimate((rows.mean(axis=1) - target) @ eta, "persistent chains")
    log_z = _log_z(fitted, kernel, draws.draws, key_path, thin)
    # H(p) = A(η) - η·E_p[f], chain by chain, so that the errors of both terms are counted together
    entropy = _estimate(log_z - rows.mean(axis=1) @ eta, "thermodynamic integration")
    return MaximumEntropyFit(fitted, natural, jnp.asarray(means), entropy, gap)


@compiled
def _approximate(
    energy: MaximumEntropy, kernel: Any, x: Array, target: Array, key: PRNGKeyArray, updates: int, steps: int
) -> tuple[Array, Array]:
    """``(η, x)`` of ``η += γ_t C⁻¹(μ - mean f)``, with C a running covariance of the features; the second half of the η
    is averaged."""
    count = energy.natural.size
    key_init, key_run = jax.random.split(key)
    at = lambda natural: eqx.tree_at(lambda energy: energy.natural, energy, natural)

    def update(carry, now):
        natural, state, covariance, total = carry
        t, key = now
        state, _ = advance(at(natural), kernel, kernel.retarget(at(natural), state), key=key, steps=steps)
        rows = jax.vmap(energy.statistics)(state.x)
        own = jnp.atleast_2d(jnp.cov(rows, rowvar=False))
        covariance = jnp.where(t == 0, own, covariance + (own - covariance) / jnp.minimum(t + 1, 20))
        # a little on the diagonal, for features that the chains do not vary
        ridge = 1e-6 * jnp.trace(covariance) / count + 1e-12
        step = jnp.linalg.solve(covariance + ridge * jnp.eye(count), target - jnp.mean(rows, axis=0))
        length = jnp.sqrt(jnp.maximum(step @ covariance @ step, 1e-30))
        step = step * jnp.minimum((1 + t / _DELAY) ** -_POWER, _LARGEST / length)
        natural = natural + step
        total = total + jnp.where(t >= updates // 2, natural, 0.0)
        return (natural, state, covariance, total), None

    state = kernel.init(key_init, energy, x)
    start = (energy.natural, state, jnp.eye(count), jnp.zeros(count))
    times = jnp.arange(updates, dtype=energy.natural.dtype)
    (_, state, _, total), _ = jax.lax.scan(update, start, (times, jax.random.split(key_run, updates)))
    return total / (updates - updates // 2), state.x


def _log_z(energy: MaximumEntropy, kernel: Any, draws: Array, key: PRNGKeyArray, thin: int) -> np.ndarray:
    """``A = log Z_base + ∫₀¹ E_s[E_base - E] ds`` from every chain, ``(chains,)``, along ``(1 - s)E_base + sE``.

    The base is uniform on a finite space and an `Interval`, and on `Real` a Gaussian with the moments of the draws.
    """
    space = energy.space
    if isinstance(space, Real):
        flat = draws.reshape(-1, *space.shape).astype(float)
        whole = flat.reshape(len(flat), -1)
        gaussian = Gaussian(whole.mean(axis=0), jnp.cov(whole, rowvar=False).reshape(whole.shape[1], -1))
        base, log_base = _Flat(space, gaussian), float(gaussian.log_z)
    elif isinstance(space, Finite):
        base, log_base = _Uniform(space), math.prod(space.shape) * math.log(len(space.levels))
    else:
        assert isinstance(space, Interval)
        base, log_base = _Uniform(space), math.prod(space.shape) * math.log(space.high - space.low)
    places, weights = np.polynomial.legendre.leggauss(_PATH)
    integral, x = np.zeros(len(draws)), draws[:, -1]
    slope = compiled(lambda path, points: jax.vmap(jax.vmap(lambda x: path.base(x) - path.end(x)))(points))
    # from p, where the chains are, to the base
    for number in reversed(range(_PATH)):
        path = _Path(space, base, energy, jnp.asarray((places[number] + 1) / 2, energy.natural.dtype))
        own = jax.random.fold_in(key, number)
        run = sample(path, kernel, x, key=own, draws=_AVERAGED, burn_in=_SETTLE * thin, thin=thin)
        integral += weights[number] / 2 * np.asarray(slope(path, run.draws), float).mean(axis=1)
        x = run.draws[:, -1]
    return log_base + integral


def _estimate(values: np.ndarray, method: str) -> Estimate:
    """The mean over independent chains with its normal interval."""
    value, error = float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))
    reach = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2) * error
    return Estimate(
        value, value - reach, value + reach, _CONFIDENCE, method, ess=float(len(values)), standard_error=error
    )


def _refuse_far(rows: np.ndarray, target: np.ndarray) -> None:
    """Raise if the means that the chains reached are far from the wanted ones."""
    means, spread = rows.mean(axis=(0, 1)), rows.std(axis=(0, 1))
    error = rows.mean(axis=1).std(axis=0, ddof=1) / math.sqrt(len(rows))
    off = np.abs(means - target)
    # beyond the error of the chains, and by more than a tenth of the feature's own spread
    far = (off > 6 * error) & (off > 0.1 * spread)
    if far.any():
        worst = int(np.argmax(far))
        raise ValueError(
            f"expected chains that reach the mean {target[worst]:.6g} of feature {worst}, got {means[worst]:.6g} after "
            "all updates; ask whether a density can have it, and give more updates or a kernel that mixes faster"
        )
