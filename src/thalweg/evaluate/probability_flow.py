r"""The likelihood of a noise-conditional model by its probability flow.

Points with noise of standard deviation σ have the density ``p_σ`` with the score ``s(x, σ)``. The flow
``dx/dσ = -σ s(x, σ)`` carries p_σ from one noise level to the next, and along it
``d log p_σ(x)/dσ = σ ∇·s(x, σ)``. With the density of the largest level known, that of the smallest follows:

``log p_{σ_L}(x) = log p_{σ_1}(x(σ_1)) - ∫_{σ_L}^{σ_1} σ ∇·s(x(σ), σ) dσ``.

The equation is solved in ``log σ``, in which the flow is smooth at every level. Reference: Song et al. (2021),
ICLR, section 4.3 and appendix D.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from thalweg.core import (
    Estimate,
    between,
    check_instance,
    check_scalar,
    compiled,
    finite,
    given,
    one_of,
    positive,
    require_model,
    score,
    space_of,
    takes,
    typed_key,
    whole_number,
)
from thalweg.energies import Gaussian
from thalweg.evaluate.intervals import check_confidence, student_estimate, student_quantile
from thalweg.evaluate.likelihood import require_rows, rows_of
from thalweg.spaces import Real, as_points

_EXACT_DIMENSIONS = 64  # up to here the exact trace is the default
_LEAST_PROBES = 2
# the number of values in the directional derivatives that are computed at once, and of rows: bounds the memory
_NUMBERS, _ROWS = 2**18, 1024


class _Flow(NamedTuple):
    """The arguments of the two functions, checked. ``levels`` are ``log σ_L`` and ``log σ_1``; no ``probes`` means the
    exact trace; ``base_shape`` is the shape of a point of the base."""

    model: Any
    x: Array
    base: Any
    base_shape: tuple[int, ...]
    levels: Array
    probes: int


def probability_flow_log_prob(
    model: Any,
    x: Any,
    *,
    sigmas: Any,
    key: PRNGKeyArray,
    base: Any = None,
    training_data: Any = None,
    trace: str | None = None,
    probes: int = 8,
    tolerance: float = 1e-5,
    most_steps: int = 4096,
) -> Float[Array, " rows"]:
    r"""``log p_{σ_L}(x)`` of every row under the probability flow of a noise-conditional model, in nats.

    This is the density of the points that the flow carries from the ``base`` at σ_1 to σ_L. It is normalised, also if
    the scores are not exactly those of any p_σ.

    Args:
        model: a score network ``s(x, σ)`` or an energy ``E(x, σ)`` on R^d, such as `NoiseConditionalMLP`.
        x: points ``(rows, *event)``.
        sigmas: the noise levels it was trained on, in decreasing order; only the first and the last are used.
        key: random key of the probes; an exact trace uses none.
        base: the density at the largest noise level, an object with ``log_prob(x)``; by default ``N(0, σ_1² I)``.
        training_data: rows ``(n, *event)`` for the base ``N(m, V + σ_1² I)`` with their mean m and covariance V (from
            65 coordinates on, the variances alone), which is closer to the density of noisy data.
        trace: ``"exact"``, d derivatives at each step, or ``"hutchinson"``: the mean of ``εᵀ(∂s/∂x)ε`` over probes ε of
            independent signs, an unbiased estimate of ``log p``. By default exact up to 64 dimensions.
        probes: the number of probes for each row.
        tolerance: the relative and absolute tolerance of a step of the solver (Tsit5 with adaptive steps).
        most_steps: the largest number of steps of the solver for a row.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> noisy = tw.energies.smoothed(tw.energies.Gaussian(jnp.zeros(2)))  # N(0, (1 + σ²) I)
    >>> base = tw.energies.Gaussian(jnp.zeros(2), 1 + 10.0**2)
    >>> log_prob = tw.evaluate.probability_flow_log_prob(
    ...     noisy, jnp.zeros((1, 2)), sigmas=[10.0, 0.01], key=jax.random.key(0), base=base)
    >>> round(float(log_prob[0]), 3)  # -log 2π
    -1.838
    """
    flow, key = _check(model, x, sigmas, base, training_data, trace, probes), typed_key(key)
    return jnp.mean(_solve(flow, key, tolerance, most_steps), axis=1)


def probability_flow_log_likelihood(
    model: Any,
    data: Any,
    *,
    sigmas: Any,
    key: PRNGKeyArray,
    base: Any = None,
    training_data: Any = None,
    trace: str | None = None,
    probes: int = 8,
    tolerance: float = 1e-5,
    most_steps: int = 4096,
    confidence: float = 0.95,
) -> Estimate:
    r"""The mean of ``log p_{σ_L}(x)`` over the rows under the probability flow of a noise-conditional model.

    The interval (Student's) is that of the expected value for a new row. With Hutchinson's trace it contains the error
    of the probes, which is independent from row to row; ``parts`` holds the estimate with the error of the ``data``
    alone and of the ``trace`` alone.

    Args:
        model: as in `probability_flow_log_prob`, and so are the other arguments.
        data: points ``(rows, *event)``, at least two; or a `tw.data.Dataset`, whose test rows are used.
        sigmas: the noise levels, in decreasing order.
        key: random key of the probes.
        base: the density at the largest noise level.
        training_data: rows whose mean and covariance give the base.
        trace: ``"exact"`` or ``"hutchinson"``.
        probes: the number of probes for each row, at least 2.
        tolerance: that of a step of the solver.
        most_steps: the largest number of steps of the solver for a row.
        confidence: the probability that the interval covers the truth.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Gaussian(jnp.zeros(2))
    >>> key_data, key = jax.random.split(jax.random.key(0))
    >>> estimate = tw.evaluate.probability_flow_log_likelihood(
    ...     tw.energies.smoothed(energy), energy.sample(key_data, (200,)), sigmas=[20.0, 0.01], key=key)
    >>> bool(estimate.low < -1 - jnp.log(2 * jnp.pi) < estimate.high)  # minus the entropy
    True
    """
    confidence, key = check_confidence(confidence), typed_key(key)
    data = rows_of(data)
    flow = _check(model, data, sigmas, base, training_data, trace, probes)
    require_rows(flow.x)
    values = np.asarray(_solve(flow, key, tolerance, most_steps), float)
    rows = len(values)
    kind = f"{flow.probes} Hutchinson probes" if flow.probes else "exact trace"
    method = f"probability flow, {kind}, mean of {rows} rows"
    estimate = student_estimate(values.mean(axis=1), confidence, method)
    total = estimate.standard_error or 0.0
    probe_error = math.sqrt(np.mean(np.var(values, axis=1, ddof=1)) / flow.probes / rows) if flow.probes else 0.0
    errors = {"data": math.sqrt(max(0.0, total**2 - probe_error**2)), "trace": probe_error}
    sides = {name: student_quantile(confidence, rows - 1) * error for name, error in errors.items()}
    parts = {
        name: estimate._replace(
            low=estimate.value - side,
            high=estimate.value + side,
            standard_error=errors[name],
        )
        for name, side in sides.items()
    }
    return estimate._replace(parts=parts)


def _check(model: Any, data: Any, sigmas: Any, base: Any, training_data: Any, trace: Any, probes: Any) -> _Flow:
    name = "probability_flow_log_likelihood"
    require_model(name, model)
    space = space_of(model)
    if space is not None and not isinstance(space, Real):
        raise ValueError(f"expected a noise-conditional model on R^d, got one on {space}; use log_likelihood")
    if not takes(model, 2):
        raise ValueError(
            f"expected a noise-conditional model of (x, sigma), got {type(model).__name__} with other arguments; "
            "use log_likelihood for an energy of x alone"
        )
    x = as_points(space, data, "data")
    if not isinstance(x, jax.Array) or not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError("expected data as one array (rows, *event) of floating-point numbers, got others; convert it")
    x = finite("data", x)
    ladder = np.asarray(positive("every sigma", sigmas), float)
    if ladder.ndim != 1 or len(ladder) < 2 or np.any(np.diff(ladder) >= 0):
        raise ValueError(f"expected at least two falling noise levels, got {ladder}; sort them, largest first")
    check_scalar(given(model, float(ladder[0])), x)
    dimensions = math.prod(x.shape[1:])
    if trace is None:
        trace = "exact" if dimensions <= _EXACT_DIMENSIONS else "hutchinson"
    exact = one_of("trace", trace, ("exact", "hutchinson")) == "exact"
    probes = whole_number("probes", probes, _LEAST_PROBES, "two or more show the error of the trace")
    if base is not None and training_data is not None:
        raise ValueError("expected a base or training_data for one, got both; leave one out")
    base_shape = (dimensions,) if base is None else x.shape[1:]
    base = _gaussian_base(x, ladder[0], training_data) if base is None else base
    _check_base(base, base_shape)
    levels = jnp.asarray(np.log(ladder[[-1, 0]]), float)
    return _Flow(model, x, base, base_shape, levels, 0 if exact else probes)


def _check_base(base: Any, shape: tuple[int, ...]) -> None:
    what, example = "a density at the largest noise level", "tw.energies.Gaussian(mean, variance)"
    check_instance(what, base, ("log_prob",), example)
    got = jax.tree.map(lambda leaf: leaf.shape, eqx.filter_eval_shape(base.log_prob, jnp.zeros(shape)))
    if got != ():
        raise ValueError(f"expected log_prob of one point to be a scalar in {what}, got shape {got}; return one number")


def _gaussian_base(x: Array, sigma: float, training_data: Any) -> Gaussian:
    """``N(0, σ²I)``, or ``N(m, V + σ²I)`` with the moments of training data; of flat points."""
    shape = x.shape[1:]
    dimensions = math.prod(shape)
    if training_data is None:
        return Gaussian(jnp.zeros(dimensions), jnp.full(dimensions, sigma**2))
    rows = np.asarray(as_points(Real(shape), training_data, "training_data"), float).reshape(-1, dimensions)
    rows = np.asarray(finite("training_data", rows), float)
    if dimensions > _EXACT_DIMENSIONS:
        return Gaussian(rows.mean(axis=0), rows.var(axis=0) + sigma**2)
    covariance = np.cov(rows, rowvar=False, bias=True).reshape(dimensions, dimensions)
    return Gaussian(rows.mean(axis=0), covariance + sigma**2 * np.eye(dimensions))


def _solve(flow: _Flow, key: PRNGKeyArray, tolerance: Any, most_steps: Any) -> Float[Array, "rows probes"]:
    """``log p`` of every row, by every probe (one column for an exact trace)."""
    between("tolerance", tolerance, 1e-12, 0.1, "1e-5 is the default", scalar=True)
    steps = whole_number("most_steps", most_steps, hint="4096 is the default")
    keys = jax.random.split(key, len(flow.x)) if flow.probes else None
    values, solved = _log_probs(flow, keys, jnp.asarray(tolerance, float), steps)
    lost = int(np.sum(~np.asarray(solved)))
    if lost:
        raise ValueError(
            f"expected a flow that the solver follows to the largest noise level, got {lost} of {len(flow.x)} rows "
            f"where it did not get there in {steps} steps; raise most_steps or tolerance, or look for scores that are "
            "not finite"
        )
    return values


@compiled
def _log_probs(flow: _Flow, keys: Array | None, tolerance: Array, steps: int) -> tuple[Array, Array]:
    import diffrax  # takes a second, and only this needs it

    shape = flow.x.shape[1:]
    dimensions = math.prod(shape)

    def one(row):
        x, key = row
        # an exact trace is a sum over the axes
        axes = jnp.eye(dimensions) if key is None else jax.random.rademacher(key, (flow.probes, dimensions), float)

        def field(log_sigma, state, _):
            sigma = jnp.exp(log_sigma)
            at_level = given(flow.model, sigma)
            drift = lambda z: -(sigma**2) * score(at_level, z.reshape(shape)).reshape(-1)
            slope, derivative = jax.linearize(drift, state[0])
            traces = jax.vmap(lambda axis: jnp.vdot(axis, derivative(axis)))(axes)
            return slope, jnp.sum(traces, keepdims=True) if key is None else traces

        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            diffrax.Tsit5(),
            t0=flow.levels[0],
            t1=flow.levels[1],
            dt0=None,
            y0=(x.reshape(-1), jnp.zeros(flow.probes or 1)),
            stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
            max_steps=steps,
            throw=False,
        )
        end, change = jax.tree.map(lambda leaf: leaf[-1], solution.ys)
        value = flow.base.log_prob(end.reshape(flow.base_shape)) + change
        solved = (solution.result == diffrax.RESULTS.successful) & jnp.all(jnp.isfinite(value))
        return value, solved

    size = min(len(flow.x), max(1, min(_ROWS, _NUMBERS // (dimensions * (flow.probes or dimensions)))))
    return jax.lax.map(one, (flow.x, keys), batch_size=size)
