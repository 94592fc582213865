"""Metrics of a run that compare the energies of rows: likelihoods, gaps, and how well other data are told apart."""

import math
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from scipy.special import ndtri

from thalweg import evaluate
from thalweg.core import Estimate, compiled
from thalweg.objectives import PseudoLikelihood
from thalweg.objectives.pseudo_likelihood import log_ratios
from thalweg.runs.evaluation_rows import Computed, from_estimate
from thalweg.runs.subject import Rows, Subject
from thalweg.samplers import Langevin
from thalweg.spaces import Finite, Interval
from thalweg.train.evaluation import spread_rows

_FLOW_ROWS = 1000  # rows whose probability flow is solved, at most
_MOMENT_ROWS = 5000  # training rows from which its base density is taken, at most


def log_likelihood(subject: Subject, key: PRNGKeyArray) -> Computed:
    """The mean log-likelihood of rows in nats, and log Z."""
    rows, metric = subject.rows, "log_likelihood"
    if subject.sigmas is not None:
        return _flow_likelihood(subject, rows, key)
    if subject.is_conditional:
        return _conditional_likelihood(subject, rows)
    x, log_z = _inside(subject, rows), subject.log_z()
    found = evaluate.log_likelihood(subject.model, x, key=key, log_z=log_z, confidence=subject.confidence)
    found = found._replace(method=f"{rows.words}, log Z by {log_z.method}", warning=None)
    # the warning of log Z stands beside it
    remark = "; ".join(each for each in (log_z.warning, *_say_density(subject)) if each)
    return Computed([from_estimate(metric, metric, found, remark=remark), from_estimate(metric, "log_z", log_z)])


def _inside(subject: Subject, rows: Rows) -> np.ndarray:
    """The rows inside the interval that chains are clipped to; those at its ends, of which it has none, move inside."""
    space = subject.space
    if not isinstance(space, Interval):
        return rows.x
    outside = int(np.sum(np.any((rows.x < space.low) | (rows.x > space.high), axis=tuple(range(1, rows.x.ndim)))))
    if outside:
        raise ValueError(
            f"expected rows within [{space.low:g}, {space.high:g}], to which the chains are clipped, got {outside} of "
            f"{len(rows.x)} rows outside, where the density is zero; widen clip_x and train again"
        )
    ends = np.array([space.low, space.high], rows.x.dtype)
    return np.clip(rows.x, *np.nextafter(ends, ends[::-1]))


def _say_density(subject: Subject) -> list[str]:
    """What to know about the density: its support, and the temperature of the chains."""
    said, space, kernel = [], subject.space, subject.kernel
    if isinstance(space, Interval):
        flat = -space.dimension * math.log(space.high - space.low)
        said.append(
            f"as a density on [{space.low:g}, {space.high:g}]^{space.dimension}, to which the chains are clipped; "
            f"the uniform density has {flat:.5g}"
        )
    if isinstance(kernel, Langevin):
        temperature = float(kernel.noise_scale**2 / kernel.step_size)
        if not math.isclose(temperature, 1.0, rel_tol=0.05):
            said.append(
                f"the density is that of temperature 1, while the chains have noise of temperature {temperature:.2g}"
            )
    return said


def _flow_likelihood(subject: Subject, rows: Rows, key: PRNGKeyArray) -> Computed:
    assert subject.sigmas is not None
    chosen = spread_rows(len(rows.x), _FLOW_ROWS)
    words = rows.words if len(chosen) == len(rows.x) else f"{len(chosen)} of {rows.words}"
    seen = None if subject.data is None else subject.data.x_train
    found = evaluate.probability_flow_log_likelihood(
        subject.run.energy,
        rows.x[chosen],
        sigmas=subject.sigmas,
        key=key,
        training_data=None if seen is None else seen[spread_rows(len(seen), _MOMENT_ROWS)],
        confidence=subject.confidence,
    )
    remark = f"of rows with noise of standard deviation {subject.sigmas[-1]:.3g}, the smallest of the model"
    return _one("log_likelihood", found._replace(method=f"{words}, {found.method}"), remark)


def _conditional_likelihood(subject: Subject, rows: Rows) -> Computed:
    """``log p(x | y)``, with a Z for each class."""
    assert rows.y is not None
    classes, place = np.unique(rows.y, return_inverse=True)
    log_z = [subject.log_z(condition=int(each)) for each in classes]
    values = -subject.energies(rows.x, rows.y) - np.array([each.value for each in log_z])[place]
    errors = [each.standard_error or 0.0 for each in log_z]
    shares = np.bincount(place) / len(place)
    error = math.hypot(np.std(values, ddof=1) / math.sqrt(len(values)), *(shares * errors))
    method = f"{rows.words} given their classes, log Z by {log_z[0].method}"
    found = _normal(float(np.mean(values)), error, subject.confidence, method)
    warnings = dict.fromkeys(each.warning for each in log_z if each.warning)
    return _one("log_likelihood", found._replace(warning="; ".join(warnings) or None))


def bits_per_dim(subject: Subject, key: PRNGKeyArray) -> Computed:
    """Bits per pixel of images, or per site of discrete points."""
    rows, log_z = subject.rows, subject.log_z()
    bins = {} if subject.is_discrete else {"low": -1.0, "high": 1.0, "levels": subject.pixel_levels}
    x = _inside(subject, rows)
    found = evaluate.bits_per_dim(subject.model, x, key=key, log_z=log_z, confidence=subject.confidence, **bins)
    remark = "" if subject.is_discrete else f"pixels of {subject.pixel_levels} values, spread over their bins"
    return _one("bits_per_dim", found._replace(method=f"{rows.words}, log Z by {log_z.method}"), remark)


def ood(subject: Subject, key: PRNGKeyArray) -> Computed:
    """AUROC, AUPR and FPR95 of the energy between rows and other data."""
    rows, other = subject.rows, subject.other
    assert other is not None
    inside, outside = (subject.detection_energies(each.x) for each in (rows, other))
    found = evaluate.detection(inside, outside, key=key, confidence=subject.confidence)
    words = f"energy, {rows.words} against {other.words}"
    ideals = {"auroc": 1.0, "aupr": 1.0, "fpr95": 0.0}
    computed = [
        from_estimate("ood", f"{name} {other.name}", getattr(found, name)._replace(method=words), ideal=ideal)
        for name, ideal in ideals.items()
    ]
    curve = evaluate.roc_curve(inside, outside)
    kept = spread_rows(len(curve.inside), 1000)
    arrays = {"roc_inside": curve.inside[kept], "roc_outside": curve.outside[kept]}
    return Computed(computed, {**arrays, "inside": inside, "outside": outside})


def calibration(subject: Subject, key: PRNGKeyArray) -> Computed:
    """The accuracy of ``p(y | x)`` and how far it is from calibrated."""
    rows, metric = subject.rows, "calibration"
    assert rows.y is not None
    chances = subject.class_probabilities(rows.x)
    error = evaluate.expected_calibration_error(chances, rows.y, key=key, confidence=subject.confidence)
    right = (chances.argmax(axis=1) == rows.y).astype(float)
    table = evaluate.reliability(chances, rows.y)
    computed = [
        from_estimate(metric, "accuracy", _mean(right, subject.confidence, rows.words), ideal=1.0),
        from_estimate(metric, "calibration_error", error._replace(method=f"{rows.words}, {error.method}"), ideal=0.0),
    ]
    return Computed(computed, table._asdict())


def pseudo_likelihood(subject: Subject, key: PRNGKeyArray) -> Computed:
    """``Σ_i log p(x_i | rest)``, the mean over rows; Z cancels."""
    rows, space = subject.rows, subject.space
    assert isinstance(space, Finite)
    values = np.asarray(_pseudo_likelihoods(subject.model, space, rows.x))
    return _one("pseudo_likelihood", _mean(values, subject.confidence, f"mean of {rows.words}"))


@compiled
def _pseudo_likelihoods(model: Any, space: Finite, x: Array) -> Array:
    return jax.lax.map(lambda x: -PseudoLikelihood().point(log_ratios(model, space, x)), x, batch_size=64)


def energy_gap(subject: Subject, key: PRNGKeyArray) -> Computed:
    """The mean energy of rows minus that of samples."""
    rows, samples = subject.rows, subject.samples
    drawn = subject.energies(samples["x"], samples.get("conditions"))
    held = subject.energies(rows.x, rows.y)
    estimate = _difference(held, drawn, subject.confidence, f"{rows.words} minus {len(drawn)} samples")
    return _one("energy_gap", estimate, ideal=0.0)


def overfitting(subject: Subject, key: PRNGKeyArray) -> Computed:
    """The mean energy of test rows minus that of training rows, which is the log-likelihood lost on new rows."""
    rows, trained = subject.rows, subject.training_rows
    held, seen = subject.energies(rows.x, rows.y), subject.energies(trained.x, trained.y)
    estimate = _difference(held, seen, subject.confidence, f"energies of {rows.words} minus {trained.words}")
    return _one("overfitting", estimate, ideal=0.0)


def _one(name: str, estimate: Estimate, remark: str = "", ideal: float | None = None) -> Computed:
    return Computed([from_estimate(name, name, estimate, remark=remark, ideal=ideal)])


def _mean(values: np.ndarray, confidence: float, method: str) -> Estimate:
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
    return _normal(float(np.mean(values)), error, confidence, method, float(len(values)))


def _difference(one: np.ndarray, other: np.ndarray, confidence: float, method: str) -> Estimate:
    error = math.sqrt(sum(np.var(each, ddof=1) / len(each) for each in (one, other)))
    return _normal(float(np.mean(one) - np.mean(other)), error, confidence, method)


def _normal(value: float, error: float, confidence: float, method: str, ess: float | None = None) -> Estimate:
    reach = float(ndtri((1 + confidence) / 2)) * error
    return Estimate(value, value - reach, value + reach, confidence, method, ess, standard_error=error)
