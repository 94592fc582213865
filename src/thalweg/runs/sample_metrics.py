"""Metrics of a run that compare its samples with data, or with its model."""

from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from thalweg import evaluate
from thalweg.runs.evaluation_rows import Computed, Row, from_estimate, from_test
from thalweg.runs.subject import Subject
from thalweg.train.evaluation import spread_rows

_ROWS = 1000  # rows and samples that are compared pair by pair, at most
_SPLITS = 10


def mmd(subject: Subject, key: PRNGKeyArray) -> Computed:
    """The test by the maximum mean discrepancy that samples and rows have one source."""
    samples, rows, words = _both(subject)
    return Computed([from_test("mmd", evaluate.mmd(samples, rows, key=key), words)])


def classifier_two_sample(subject: Subject, key: PRNGKeyArray) -> Computed:
    """The test by a classifier that samples and rows have one source."""
    samples, rows, words = _both(subject)
    found = evaluate.classifier_two_sample(samples, rows, key=key, confidence=subject.confidence)
    auc = (found.parts or {}).get("auc")
    return Computed([from_test("classifier_two_sample", found, words, estimate=auc, ideal=0.5)])


def kernel_stein_discrepancy(subject: Subject, key: PRNGKeyArray) -> Computed:
    """The test that the samples come from the model: whether its chains have converged."""
    samples = subject.samples["x"]
    samples = samples[spread_rows(len(samples), _ROWS)]
    found = evaluate.kernel_stein_discrepancy(subject.model, samples, key=key)
    return Computed([from_test("kernel_stein_discrepancy", found, f"{len(samples)} samples against the model")])


def _both(subject: Subject) -> tuple[np.ndarray, np.ndarray, str]:
    """Samples and rows, at most a thousand of each, and what they are in words."""
    samples, rows = subject.samples["x"], subject.rows
    samples, x = (each[spread_rows(len(each), _ROWS)] for each in (samples, rows.x))
    words = rows.words if len(x) == len(rows.x) else f"{len(x)} of {rows.words}"
    return samples, x, f"{len(samples)} samples, {words}"


def class_scores(subject: Subject, key: PRNGKeyArray) -> Computed:
    """The confidence of a classifier trained on real rows in the samples, and the classes that they cover."""
    assert subject.data is not None
    found = evaluate.class_scores(subject.samples["x"], subject.data)
    method = f"classifier of the rows, right on {found['classifier_accuracy']:.1%} of held-out ones"
    held_out, classes = found["mean_top_probability_held_out"], found["classes"]
    said = f"held-out rows have {held_out:.3f}"
    rows = [
        Row("class_scores", "mean_top_probability", found["mean_top_probability"], method=method, remark=said),
        Row("class_scores", "classes_covered", float(found["classes_covered"]), remark=f"of {classes}"),
    ]
    return Computed([rows[0]._replace(ideal=held_out), rows[1]._replace(ideal=float(classes))])


def frechet_distance(subject: Subject, key: PRNGKeyArray) -> Computed:
    """The Fréchet distance of samples to rows, and their Inception score, over the features of a classifier."""
    metric, samples, rows = "frechet_distance", subject.samples["x"], subject.rows
    splits = max(1, min(_SPLITS, len(samples) // 10, len(rows.x) // 10))
    found = evaluate.image_scores(samples, rows.x, _network(subject), splits=splits)
    method, real = f"{found['samples']} samples, {rows.words}", found["inception_score_real"]
    parts = f"deviation {found['inception_score_deviation']:.2g} between {splits} parts; real rows have {real:.4g}"
    said = f"features of the {found['network']}"
    return Computed(
        [
            Row(metric, metric, found["frechet_distance"], method=method, remark=said, ideal=0.0),
            Row(metric, "inception_score", found["inception_score"], method=method, remark=parts, ideal=real),
        ]
    )


def kernel_inception_distance(subject: Subject, key: PRNGKeyArray) -> Computed:
    """The kernel distance of samples to rows over the features of a classifier."""
    samples, rows, words, said = _features(subject)
    found = evaluate.kernel_inception_distance(samples, rows, confidence=subject.confidence)
    row = from_estimate("kernel_inception_distance", "kernel_inception_distance", found, remark=said, ideal=0.0)
    return Computed([row._replace(method=f"{words}, {found.method}")])


def precision_recall(subject: Subject, key: PRNGKeyArray) -> Computed:
    """The share of samples among the real rows, and of real rows among the samples, over features."""
    return _shares(subject, "precision_recall", evaluate.precision_recall)


def density_coverage(subject: Subject, key: PRNGKeyArray) -> Computed:
    """How densely real rows surround the samples, and the share of them with a sample nearby, over features."""
    return _shares(subject, "density_coverage", evaluate.density_coverage)


def _shares(subject: Subject, metric: str, score: Any) -> Computed:
    samples, rows, words, said = _features(subject)
    count = min(len(samples), len(rows))  # both numbers depend on the sizes of the sets
    samples, rows = (each[spread_rows(len(each), count)] for each in (samples, rows))
    numbers = score(samples, rows)._asdict()
    method = f"{words}, {count} of each"
    return Computed([Row(metric, name, float(value), method=method, remark=said) for name, value in numbers.items()])


def _features(subject: Subject) -> tuple[np.ndarray, np.ndarray, str, str]:
    """The features of samples and rows, what was compared, and the network in words."""
    network, (samples, rows, words) = _network(subject), _both(subject)
    seen, real = (np.asarray(network(np.clip(each, -1, 1))[0]) for each in (samples, rows))
    return seen, real, words, f"features of the {network.name}"


def _network(subject: Subject) -> Any:
    """The classifier of the run's images, which is trained once and then read from disk."""
    assert subject.data is not None
    # the key of `thalweg data classifier`, so that both use one file
    return evaluate.digit_network(subject.data, key=jax.random.key(0), name=subject.name, progress=subject.progress)
