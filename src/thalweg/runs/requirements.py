"""What a metric needs of a run: each function returns None, or the reason why the metric does not fit the run."""

from collections.abc import Callable

import numpy as np

from thalweg.runs.subject import Subject
from thalweg.spaces import Finite, Real

Requirement = Callable[[Subject], str | None]


def has_rows(subject: Subject) -> str | None:
    """Rows of data."""
    if subject.data is not None or subject.given is not None:
        return None
    return "needs data, which a run begun in Python does not record; give them with --data FILE (data= in Python)"


def has_test_rows(subject: Subject) -> str | None:
    """Rows that the model was not trained on."""
    if has_rows(subject) is None and not subject.is_held_out:
        return "needs rows that were not trained on, and all were; train with --set data.test_fraction=0.2"
    return has_rows(subject)


def has_training_rows(subject: Subject) -> str | None:
    """The data that the model was trained on."""
    return has_rows(subject) if subject.data is not None else "needs the data that the run was trained on"


def has_other_data(subject: Subject) -> str | None:
    """A second data set."""
    return None if subject.other is not None else "needs a second data set; give one with --against DATA"


def has_energy(subject: Subject) -> str | None:
    """An energy of a point."""
    if subject.is_score:
        return "needs an energy E(x), and a score network has only its gradient"
    if subject.is_latent:
        return "needs an energy E(x), and this latent energy has no free_energy(x)"
    return None


def has_likelihood(subject: Subject) -> str | None:
    """An energy, or the noise levels of a noise-conditional model, whose probability flow has a density."""
    if subject.sigmas is not None:
        return None
    if subject.is_score:
        return "a score network has no density, unless it is trained at several noise levels"
    if subject.is_conditional and (not subject.has_classes or subject.rows.y is None):
        return "needs the class of each row, to compute Z for each of them"
    return has_energy(subject)


def is_unconditional(subject: Subject) -> str | None:
    """A model of points alone."""
    return "needs a model of points alone, and this one is conditional on labels" if subject.is_conditional else None


def is_finite(subject: Subject) -> str | None:
    """Points of a finite space."""
    if isinstance(subject.space, Finite):
        return None
    return "needs discrete points with finitely many values; those of this run are others"


def has_score_on_reals(subject: Subject) -> str | None:
    """A score on all of R^d."""
    if subject.is_discrete:
        return "needs the gradient of the energy, and the points are discrete"
    if not isinstance(subject.space, Real | None):
        return "needs a density on all of R^d, and the chains of this run are clipped to an interval"
    return "needs a score of x, and this is a latent energy" if subject.is_latent else None


def has_classes(subject: Subject) -> str | None:
    """Data with one class for each row."""
    return None if subject.has_classes else "needs data with one class for each row, at least five rows of each"


def has_class_conditions(subject: Subject) -> str | None:
    """A model that gives probabilities of classes."""
    if subject.is_conditional and not subject.is_score and subject.has_classes and subject.rows.y is not None:
        return None
    return "needs a model of points and classes, E(x, y), which gives probabilities of classes"


def has_images(subject: Subject) -> str | None:
    """Images with pixels from -1 to 1."""
    if not subject.is_image or subject.is_discrete:
        return "needs images"
    assert subject.data is not None
    return None if np.abs(subject.data.x_train).max() <= 1 else "needs images with pixels between -1 and 1"


def has_levels(subject: Subject) -> str | None:
    """Points with finitely many values of a coordinate."""
    if subject.is_discrete or subject.pixel_levels is not None:
        return None
    return "needs discrete points, or images whose pixels are whole numbers scaled to -1 … 1"
