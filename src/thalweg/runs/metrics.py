"""The metrics of a run by name: what each one is, what it needs, and for which runs it is computed by default."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from jaxtyping import PRNGKeyArray

from thalweg.runs import energy_metrics, sample_metrics
from thalweg.runs.evaluation_rows import Computed
from thalweg.runs.hints import did_you_mean
from thalweg.runs.requirements import (
    Requirement,
    has_class_conditions,
    has_classes,
    has_energy,
    has_images,
    has_levels,
    has_likelihood,
    has_other_data,
    has_rows,
    has_score_on_reals,
    has_test_rows,
    has_training_rows,
    is_finite,
    is_unconditional,
)
from thalweg.runs.subject import Subject

ALL = "all"


class Metric(NamedTuple):
    """One metric of a run.

    ``about`` is its line in the list, ``compute(subject, key)`` computes it. Each of ``requires`` returns None, or the
    reason why the metric does not fit a run. ``uses`` are the inputs whose change makes it out of date: ``rows``,
    ``training``, ``samples``, ``other``. ``by_default`` says for which runs it is computed if no metric is named; it is
    asked only where the requirements are met, unless ``explained``: then the reason is a row of the table. ``has_bar``
    says that it shows a progress bar of its own.
    """

    about: str
    compute: Callable[[Subject, PRNGKeyArray], Computed]
    requires: tuple[Requirement, ...]
    uses: tuple[str, ...]
    by_default: Callable[[Subject], bool] = lambda subject: True
    explained: bool = False
    has_bar: bool = False

    def refusal(self, subject: Subject) -> str | None:
        """The reason why the metric does not fit a run; None if it does."""
        return next((reason for requires in self.requires if (reason := requires(subject)) is not None), None)


METRICS: Mapping[str, Metric] = {
    "log_likelihood": Metric(
        "Mean log p(x) of test rows in nats, with the errors of the rows and of log Z.",
        energy_metrics.log_likelihood,
        (has_rows, has_likelihood),
        ("rows", "training"),
        explained=True,
        has_bar=True,
    ),
    "bits_per_dim": Metric(
        "Bits for each pixel of an image, or each site of a discrete point.",
        energy_metrics.bits_per_dim,
        (has_rows, is_unconditional, has_energy, has_levels),
        ("rows", "training"),
        has_bar=True,
    ),
    "pseudo_likelihood": Metric(
        "Mean over rows of Σᵢ log p(xᵢ | rest), in nats; needs no Z. Discrete data.",
        energy_metrics.pseudo_likelihood,
        (is_finite, is_unconditional, has_energy, has_rows),
        ("rows",),
    ),
    "energy_gap": Metric(
        "Mean energy of rows minus that of samples; 0 if the model fits and its chains have converged.",
        energy_metrics.energy_gap,
        (has_energy, has_rows),
        ("rows", "samples"),
    ),
    "overfitting": Metric(
        "Mean log-likelihood of training rows minus that of test rows, in nats; Z cancels.",
        energy_metrics.overfitting,
        (has_energy, has_test_rows, has_training_rows),
        ("rows", "training"),
    ),
    "ood": Metric(
        "AUROC, AUPR and FPR95 of the energy between test rows and the data of --against.",
        energy_metrics.ood,
        (has_other_data, has_rows, has_energy),
        ("rows", "other"),
    ),
    "calibration": Metric(
        "Accuracy of the classifier p(y | x) of a model E(x, y), and how well calibrated it is.",
        energy_metrics.calibration,
        (has_class_conditions, has_rows),
        ("rows",),
    ),
    "mmd": Metric(
        "Do samples and test rows have one source? Maximum mean discrepancy, with a p-value.",
        sample_metrics.mmd,
        (has_rows, is_unconditional),
        ("rows", "samples"),
        by_default=lambda subject: not subject.is_image,
    ),
    "classifier_two_sample": Metric(
        "Do samples and test rows have one source? How often a classifier tells them apart, with a p-value.",
        sample_metrics.classifier_two_sample,
        (has_rows, is_unconditional),
        ("rows", "samples"),
        by_default=lambda subject: not subject.is_image,
    ),
    "kernel_stein_discrepancy": Metric(
        "Do the samples come from the model, that is, have its chains converged? With a p-value.",
        sample_metrics.kernel_stein_discrepancy,
        (is_unconditional, has_score_on_reals),
        ("samples",),
        by_default=lambda subject: not subject.is_image,
    ),
    "class_scores": Metric(
        "How sure a classifier of the data is of the samples, and how many classes they cover.",
        sample_metrics.class_scores,
        (has_training_rows, has_classes),
        ("training", "rows", "samples"),
    ),
    "frechet_distance": Metric(
        "Fréchet distance and Inception score of images, by a classifier of the data (trained once, kept).",
        sample_metrics.frechet_distance,
        (has_images, has_training_rows, has_classes),
        ("training", "rows", "samples"),
        has_bar=True,
    ),
    "kernel_inception_distance": Metric(
        "Kernel distance of images over the same features: unbiased, with an interval.",
        sample_metrics.kernel_inception_distance,
        (has_images, has_training_rows, has_classes),
        ("training", "rows", "samples"),
        has_bar=True,
    ),
    "precision_recall": Metric(
        "Share of samples that look like data, and of data that look like samples, over the same features.",
        sample_metrics.precision_recall,
        (has_images, has_training_rows, has_classes),
        ("training", "rows", "samples"),
        has_bar=True,
    ),
    "density_coverage": Metric(
        "The same two questions, less sensitive to outliers.",
        sample_metrics.density_coverage,
        (has_images, has_training_rows, has_classes),
        ("training", "rows", "samples"),
        by_default=lambda subject: False,
        has_bar=True,
    ),
}


def choose_metrics(subject: Subject, asked: Sequence[str]) -> list[str]:
    """The names of the metrics to compute: those asked for, or those that suit the run if none is."""
    if asked:
        return list(asked)
    return [name for name, metric in METRICS.items() if _suits(metric, subject)]


def _suits(metric: Metric, subject: Subject) -> bool:
    return metric.by_default(subject) and (metric.explained or metric.refusal(subject) is None)


def parse_metrics(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Names of metrics, as a text with commas or as a list; ``all`` stands for all of them, None for none.

    >>> parse_metrics("energy_gap, overfitting")
    ('energy_gap', 'overfitting')
    """
    given = names.split(",") if isinstance(names, str) else [] if names is None else names
    if not isinstance(given, (list, tuple)) or not all(isinstance(name, str) for name in given):
        raise ValueError(f"expected metrics as a list of names, or {ALL!r}, got {names!r:.60}; give for example 'mmd'")
    asked = [name.strip() for name in given]
    if isinstance(names, str) and not any(asked):
        raise ValueError(f"expected metrics among {', '.join(METRICS)}, got none; name some, or {ALL}")
    if ALL in asked:
        return tuple(METRICS)
    for name in asked:
        if name not in METRICS:
            near = did_you_mean(name, METRICS, f"choose among them, or {ALL}")
            raise ValueError(f"expected a metric among {', '.join(METRICS)}, got {name!r}; {near}")
    return tuple(dict.fromkeys(asked))
