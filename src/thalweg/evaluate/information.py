"""Entropy and the Kullback-Leibler divergence of models: exact where sums or integrals are, otherwise from samples."""

import math
from typing import Any

import jax
from jaxtyping import PRNGKeyArray, PyTree

from thalweg import exact
from thalweg.core import (
    Estimate,
    HasLogZ,
    HasSampler,
    Space,
    as_energy,
    check_scalar,
    compiled,
    require_energy,
    space_of,
    typed_key,
)
from thalweg.evaluate.flat_samples import as_finite_points, require_rows
from thalweg.evaluate.intervals import check_confidence, mean_estimate, sum_of_estimates
from thalweg.spaces import Finite, Interval, Positive, Real

# the largest number of states and of dimensions that are summed and integrated over without samples
_STATES, _DIMENSIONS = 2**20, 3
_DRAWS = 10_000
_POINTS = 1024


def entropy(
    energy: Any,
    samples: Any = None,
    *,
    key: PRNGKeyArray | None = None,
    space: Space | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """``H(p) = -E_p log p = E_p[E(x)] + log Z`` in nats, differential on continuous spaces.

    Without samples it is exact on finite spaces of up to 2^20 states, and by quadrature on `Real`, `Positive` and
    `Interval` of at most three dimensions (see `tw.exact.entropy`). Otherwise it is the mean energy of samples plus
    log Z: the energy's own, or the estimate of `log_z`.

    Args:
        energy: any energy.
        samples: independent samples of p ``(n, *event)``, at least 2; by default 10 000 of the energy's own if it can
            draw them.
        key: a random key, needed where samples are drawn or log Z is estimated.
        space: where the points live, if the energy has no space.
        confidence: of the interval.

    Returns:
        `Estimate`; from samples its parts are ``mean_energy`` and ``log_z``.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> round(tw.evaluate.entropy(lambda x: 0.5 * x**2, space=tw.Real(())).value, 4)  # ½ log 2πe
    1.4189
    >>> wide = tw.energies.Gaussian(jnp.zeros(10))
    >>> result = tw.evaluate.entropy(wide, key=jax.random.key(0))
    >>> result.low < 14.189 < result.high
    True
    """
    confidence = check_confidence(confidence)
    energy, known = _model("entropy", energy, space)
    if samples is None and _is_small(known):
        return _exact(float(exact.entropy(energy)), known, confidence)
    keys = _split(key)
    x = _samples("entropy", energy, known, samples, keys[0])
    mean = mean_estimate(_energies(energy, x), confidence, f"mean over {len(jax.tree.leaves(x)[0])} samples")
    parts = {"mean_energy": (1, mean), "log_z": (1, _log_z(energy, keys[1], x, confidence))}
    return sum_of_estimates(parts, confidence, "mean energy of samples + log Z")


def kl(
    p: Any,
    q: Any,
    samples: Any = None,
    *,
    key: PRNGKeyArray | None = None,
    space: Space | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """``KL(p‖q) = E_p[E_q - E_p] + log Z_q - log Z_p`` in nats, of two energies on one space.

    Without samples it is exact on finite spaces of up to 2^20 states, and by quadrature on `Real`, `Positive` and
    `Interval` of at most three dimensions (see `tw.exact.kl`). Otherwise the mean is over samples of p, and log Z is
    each energy's own, or the estimate of `log_z`.

    Args:
        p: any energy.
        q: an energy on the same space.
        samples: independent samples of p ``(n, *event)``, at least 2; by default 10 000 of the energy's own if it can
            draw them.
        key: a random key, needed where samples are drawn or log Z is estimated.
        space: where the points live, if the energies have no space.
        confidence: of the interval.

    Returns:
        `Estimate`; from samples its parts are ``mean_difference``, ``log_z_q`` and ``log_z_p``.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> p, q = (lambda x: 0.5 * x**2), (lambda x: 0.5 * (x - 1.0) ** 2)
    >>> round(tw.evaluate.kl(p, q, space=tw.Real(())).value, 4)
    0.5
    >>> p, q = tw.energies.Gaussian(jnp.zeros(10)), tw.energies.Gaussian(jnp.ones(10))
    >>> result = tw.evaluate.kl(p, q, key=jax.random.key(0))
    >>> result.low < 5.0 < result.high
    True
    """
    confidence = check_confidence(confidence)
    (p, known), (q, other) = _model("kl", p, space), _model("kl", q, space)
    if known is not None and other is not None and known != other:
        raise ValueError(f"expected two energies on one space, got {known} and {other}; compare like with like")
    # one of them may be a plain function
    (p, known), (q, _) = _model("kl", p, known or other), _model("kl", q, known or other)
    if samples is None and _is_small(known):
        return _exact(float(exact.kl(p, q)), known, confidence)
    keys = _split(key)
    x = _samples("kl", p, known, samples, keys[0])
    check_scalar(q, x)
    gaps = _energies(q, x) - _energies(p, x)
    parts = {
        "mean_difference": (1, mean_estimate(gaps, confidence, f"mean over {len(gaps)} samples of p")),
        "log_z_q": (1, _log_z(q, keys[1], None, confidence)),
        "log_z_p": (-1, _log_z(p, keys[2], x, confidence)),
    }
    return sum_of_estimates(parts, confidence, "mean over samples of p, and both log Z")


def _model(name: str, energy: Any, space: Space | None) -> tuple[Any, Space | None]:
    require_energy(name, energy)
    energy = as_energy(energy, space)
    return energy, space_of(energy)


def _is_small(space: Space | None) -> bool:
    if isinstance(space, Finite):
        return space.size <= _STATES
    return isinstance(space, (Real, Positive, Interval)) and math.prod(space.shape) <= _DIMENSIONS


def _exact(value: float, space: Space | None, confidence: float) -> Estimate:
    method = "sum over all states" if isinstance(space, Finite) else "quadrature"
    return Estimate(value, value, value, confidence, method, standard_error=0.0)


def _split(key: Any) -> list[Any]:
    return [None] * 3 if key is None else list(jax.random.split(typed_key(key), 3))


def _samples(name: str, energy: Any, space: Space | None, samples: Any, key: Any) -> PyTree:
    if samples is None:
        if not isinstance(energy, HasSampler):
            where = "without a space" if space is None else f"on {space}, too large to sum or integrate over"
            raise ValueError(
                f"expected samples of p for {name} of an energy {where}, got none; give samples or its space"
            )
        return energy.sample(typed_key(key), (_DRAWS,))
    x = as_finite_points(space, samples, "samples")
    require_rows(x, 2, "samples", f"{name} with an interval")
    check_scalar(energy, x)
    return x


@compiled
def _energies(energy: Any, x: PyTree) -> Any:
    return jax.lax.map(energy, x, batch_size=_POINTS)


def _log_z(energy: Any, key: Any, samples: Any, confidence: float) -> Estimate:
    if isinstance(energy, HasLogZ):
        value = float(energy.log_z)
        return Estimate(value, value, value, confidence, "the energy's own", standard_error=0.0)
    from thalweg.evaluate.partition import log_z

    return log_z(energy, key=typed_key(key), samples=samples, confidence=confidence)
