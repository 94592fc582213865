"""The log-likelihood of data under a model, and the perplexity, with the errors of log Z and of the data."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import (
    ConditionalEnergy,
    Estimate,
    HasFreeEnergy,
    LatentEnergy,
    ScoreNetwork,
    Space,
    as_energy,
    check_scalar,
    compiled,
    finite,
    positive,
    require_energy,
    space_of,
    typed_key,
)
from thalweg.data import Dataset
from thalweg.energies import marginal
from thalweg.evaluate import partition
from thalweg.evaluate.intervals import check_confidence, falling, join_sides, student_quantile
from thalweg.spaces import Counts, Discrete, Product, as_points

LEAST_ROWS = 2
# the number of values in the points whose energies are computed at once, and of points at most: bounds the memory
_NUMBERS, _POINTS = 2**18, 4096


def log_likelihood(
    energy: Any,
    data: PyTree,
    *,
    key: PRNGKeyArray,
    space: Space | None = None,
    log_z: Estimate | float | None = None,
    confidence: float = 0.95,
    **options: Any,
) -> Estimate:
    r"""The mean log-likelihood of the rows, ``1/n Σ_i log p(x_i) = -1/n Σ_i E(x_i) - log Z``, in nats per row.

    The interval is that of the expected log-likelihood of a new row. It combines two independent errors: of the mean
    over the rows (Student's interval), and of log Z. They are in ``parts``: ``data`` is the log-likelihood with the
    rows' error alone, ``log_z`` the estimate of log Z. A warning of log Z is passed on. A lower bound of log Z only
    bounds the log-likelihood from above, so ``bound`` is None.

    A row outside the support has density zero: the log-likelihood is then ``-inf``, with a warning.

    Args:
        energy: an `Energy`, a plain function of one point, or a latent energy with known free energy, which is read by
            `tw.energies.marginal`. Fix the condition of a conditional energy by `tw.given`.
        data: points ``(rows, *event)``, at least two, or a tree of such; or a `tw.data.Dataset`, whose test rows are
            used.
        key: random key for the estimate of log Z.
        space: where ``x`` lives, if the energy has no space.
        log_z: log Z if it is known: a number, or an `Estimate` of the same confidence.
        confidence: the probability that the interval covers the truth.
        options: passed to `tw.evaluate.log_z`. Samples given there must not be the rows of ``data``: the two errors
            would not be independent.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> key_data, key = jax.random.split(jax.random.key(0))
    >>> energy = tw.energies.Gaussian(jnp.zeros(2))
    >>> estimate = tw.evaluate.log_likelihood(energy, energy.sample(key_data, (1000,)), key=key)
    >>> bool(estimate.low < -1 - jnp.log(2 * jnp.pi) < estimate.high)  # minus the entropy
    True
    >>> sorted(estimate.parts)
    ['data', 'log_z']
    """
    rows = evaluate_rows(energy, data, key=key, space=space, log_z=log_z, confidence=confidence, **options)
    estimate, data_part, _ = per_unit(rows, np.ones(len(rows.values)))
    return estimate._replace(parts={"data": data_part, "log_z": rows.log_z})


def perplexity(
    energy: Any,
    data: PyTree,
    *,
    key: PRNGKeyArray,
    space: Space | None = None,
    tokens: Any = None,
    log_z: Estimate | float | None = None,
    confidence: float = 0.95,
    **options: Any,
) -> Estimate:
    r"""``exp(-Σ_i log p(x_i) / Σ_i n_i)`` with n_i tokens in row i: the number of equally likely words that would be
    as hard to predict. Reference: Blei, Ng and Jordan (2003), JMLR 3.

    On a finite space each site is a token (the words of a sequence), so ``n_i`` is the number of sites. For `Counts`,
    ``n_i`` is the sum of the counts, and p is the probability of the counts, not of an order of the words. The interval
    of the ratio is by the delta method. ``parts`` holds the ``log_likelihood`` per token in nats, and the perplexity
    with the error of the ``data`` alone and of ``log_z`` alone.

    Args:
        energy: an energy on a finite space or on `Counts`, as in `log_likelihood`.
        data: as in `log_likelihood`.
        key: as in `log_likelihood`.
        space: as in `log_likelihood`.
        tokens: the numbers of tokens ``(rows,)``, or one number for all rows, where they are others.
        log_z: as in `log_likelihood`.
        confidence: as in `log_likelihood`.
        options: passed to `tw.evaluate.log_z`.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> fair = tw.as_energy(lambda x: 0.0 * x.sum(), tw.Categorical(3, k=6))  # three throws of a fair die
    >>> x = jax.random.randint(jax.random.key(0), (10, 3), 0, 6)
    >>> round(tw.evaluate.perplexity(fair, x, key=jax.random.key(1)).value, 4)
    6.0
    """
    known = space_of(energy) if space is None else space
    if not is_discrete(known):
        got = "one without a space" if known is None else f"one on {known}"
        fix = "give space=..." if known is None else "use log_likelihood or bits_per_dim for continuous points"
        raise ValueError(f"expected an energy of words, on a finite space or Counts, for perplexity, got {got}; {fix}")
    rows = evaluate_rows(energy, data, key=key, space=space, log_z=log_z, confidence=confidence, **options)
    estimate, data_part, log_z_part = per_unit(rows, _tokens(known, rows, tokens))

    def as_perplexity(part: Estimate) -> Estimate:
        return falling(part, _exp_negative, _exp_negative(part.value))

    parts = {"log_likelihood": estimate, "data": as_perplexity(data_part), "log_z": as_perplexity(log_z_part)}
    return as_perplexity(estimate)._replace(parts=parts)


def _exp_negative(value: float) -> float:
    return math.exp(-value) if value > -700 else math.inf


def _tokens(space: Space | None, rows: "Rows", tokens: Any) -> np.ndarray:
    count = len(rows.values)
    if tokens is not None:
        given = np.asarray(positive("tokens", tokens), float)
        if given.shape not in ((), (count,)):
            raise ValueError(
                f"expected tokens as one number or of shape ({count},), one for each row, got shape {given.shape}; "
                "count the tokens of every row"
            )
        return np.broadcast_to(given, (count,))
    if isinstance(space, Counts):
        totals = np.asarray(rows.points, float).reshape(count, -1).sum(axis=1)
        if not totals.sum() > 0:
            raise ValueError("expected rows with at least one word, got counts of zero only; leave empty rows out")
        return totals
    if _holds_counts(space):
        raise ValueError(f"expected the number of tokens of every row on {space}, got none; give tokens=...")
    return np.full(count, float(count_sites(space)))


def _holds_counts(space: Space | None) -> bool:
    return any(map(_holds_counts, space.parts)) if isinstance(space, Product) else isinstance(space, Counts)


class Rows(NamedTuple):
    """The points of the rows, ``-E(x)`` of every row ``(rows,)``, and the estimate of log Z."""

    points: PyTree
    values: np.ndarray
    log_z: Estimate


def evaluate_rows(
    energy: Any,
    data: PyTree,
    *,
    key: PRNGKeyArray,
    space: Space | None,
    log_z: Estimate | float | None,
    confidence: float,
    **options: Any,
) -> Rows:
    """Check the arguments of `log_likelihood`, evaluate every row, and estimate log Z unless it is known."""
    confidence, key = check_confidence(confidence), typed_key(key)
    energy = as_energy(as_energy_of_points(energy), space)
    points = as_points(space_of(energy), rows_of(data), "data")
    require_rows(points)
    values = -energies_of(energy, points)
    if log_z is None:
        known = partition.log_z(energy, key=key, confidence=confidence, **options)
    elif options:
        raise ValueError(
            f"expected options of log_z or a known log_z, got both (log_z and {', '.join(options)}); leave one out"
        )
    else:
        known = _known_log_z(log_z, confidence)
    return Rows(points, values, known)


def as_energy_of_points(energy: Any) -> Any:
    """The energy itself, or the free energy of a latent one; a ValueError for models that have no ``log p(x)``."""
    if isinstance(energy, HasFreeEnergy):
        return marginal(energy)
    name = type(energy).__name__
    if isinstance(energy, LatentEnergy):
        raise ValueError(
            f"expected a latent energy with free_energy(x) for a log-likelihood, got {name} without; "
            "write free_energy (HasFreeEnergy)"
        )
    if isinstance(energy, ConditionalEnergy):
        raise ValueError(
            f"expected an energy of x alone for a log-likelihood, got the conditional energy {name}; fix its condition "
            "by tw.given(energy, c), or use probability_flow_log_likelihood where c is a noise level"
        )
    if isinstance(energy, ScoreNetwork):
        raise ValueError(
            f"expected an energy for a log-likelihood, got the score network {name}, which has no energy; "
            "use probability_flow_log_likelihood for a noise-conditional one"
        )
    require_energy("log_likelihood", energy)
    return energy


def rows_of(data: Any) -> Any:
    """The test rows of a `Dataset`; anything else as it is."""
    if not isinstance(data, Dataset):
        return data
    if data.x_test is None:
        raise ValueError(
            "expected a data set with test rows, got one without; give the rows to evaluate, such as dataset.x_train"
        )
    return data.x_test


def require_rows(points: PyTree) -> None:
    """Raise if there are too few rows for an interval."""
    rows = len(jax.tree.leaves(points)[0])
    if rows < LEAST_ROWS:
        raise ValueError(f"expected at least {LEAST_ROWS} rows of data for an interval, got {rows}; give more of them")


def energies_of(energy: Any, points: PyTree) -> np.ndarray:
    """The energy of every row in double precision, ``(rows,)``; infinity for rows of zero density."""
    check_scalar(energy, points)
    values = np.asarray(_energies(energy, points), float)
    bad = np.isnan(values) | np.isneginf(values)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"expected energies above -inf, got {values[row]} in row {row} of the data; look for what overflows there"
        )
    return values


@compiled
def _energies(energy: Any, points: PyTree) -> Array:
    leaves = jax.tree.leaves(points)
    size = sum(math.prod(leaf.shape[1:]) for leaf in leaves)
    count = min(len(leaves[0]), max(1, min(_POINTS, _NUMBERS // max(1, size))))
    return jax.lax.map(lambda x: jnp.asarray(energy(x), float), points, batch_size=count)


def _known_log_z(log_z: Any, confidence: float) -> Estimate:
    if not isinstance(log_z, Estimate):
        value = float(finite("log_z", log_z, scalar=True))
        return Estimate(value, value, value, confidence, "given", standard_error=0.0)
    if log_z.low < log_z.high and not math.isclose(log_z.confidence, confidence):
        raise ValueError(
            f"expected an estimate of log Z at the confidence {confidence:g} of the result, got one at "
            f"{log_z.confidence:g}; estimate it at {confidence:g}, or give confidence={log_z.confidence:g}"
        )
    return log_z._replace(confidence=confidence)


def per_unit(rows: Rows, units: np.ndarray) -> tuple[Estimate, Estimate, Estimate]:
    """``Σ_i log p(x_i) / Σ_i n_i`` with ``units`` n_i, and the same with the error of the rows or of log Z alone.

    The error of the ratio is by the delta method; with equal units it is that of a mean.
    """
    values, log_z, count = rows.values, rows.log_z, len(rows.values)
    confidence, unit = log_z.confidence, float(np.mean(units))
    method = f"mean of {count} rows, log Z by {log_z.method}"
    lost = int(np.sum(np.isneginf(values)))
    if lost:
        warning = f"{lost} of {count} rows have zero density under the model"
        nothing = Estimate(-math.inf, -math.inf, -math.inf, confidence, method, warning=warning)
        return nothing, nothing, nothing
    log_p = values - log_z.value
    value = float(np.mean(log_p)) / unit
    error = float(np.std(log_p - value * units, ddof=1)) / (unit * math.sqrt(count))
    side = student_quantile(confidence, count - 1) * error
    sides = (log_z.high - log_z.value) / unit, (log_z.value - log_z.low) / unit
    data = Estimate(value, value - side, value + side, confidence, f"mean of {count} rows", count, None, error)
    z_error = 0.0 if log_z.low == log_z.high else log_z.standard_error
    z_error = None if z_error is None else z_error / unit
    own = Estimate(value, value - sides[0], value + sides[1], confidence, log_z.method, log_z.ess, None, z_error)
    total = None if z_error is None else math.hypot(error, z_error)
    low, high = join_sides(value, (side, side), sides)
    return Estimate(value, low, high, confidence, method, None, log_z.warning, total), data, own


def is_discrete(space: Space | None) -> bool:
    """Whether a space is discrete, or a product of discrete spaces."""
    return all(map(is_discrete, space.parts)) if isinstance(space, Product) else isinstance(space, Discrete)


def count_sites(space: Space | None) -> int:
    """The number of coordinates of a point.

    >>> import thalweg as tw
    >>> count_sites(tw.Product(tw.Binary(3), tw.Categorical((2, 2), k=5)))
    7
    """
    if isinstance(space, Product):
        return sum(map(count_sites, space.parts))
    assert space is not None
    return math.prod(space.shape)
