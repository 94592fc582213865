"""Checks of images, and labelled images for a classifier: split into training and test images, with class indices."""

import hashlib
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray

from thalweg.data import Dataset, check_array, check_labels, hold_out

_FEWEST = 5


class LabelledImages(NamedTuple):
    """Training and test images ``(n, height, width, channels)`` in [-1, 1], with their class indices.

    ``labels`` are the names of the classes.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    labels: tuple[Any, ...]

    def digest(self) -> str:
        """A hash of every pixel and every label."""
        total = hashlib.sha256(repr(self.labels).encode())
        for array in self[:4]:
            total.update(f"{array.dtype} {array.shape}".encode())
            total.update(np.ascontiguousarray(array).data)
        return total.hexdigest()


def check_images(images: Any, *, name: str, event_shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Images ``(n, height, width, channels)`` as float32; raises for anything else.

    >>> check_images(np.zeros((5, 8, 8)), name="samples")
    Traceback (most recent call last):
    ValueError: samples: expected images (n, height, width, channels), got shape (5, 8, 8); give grey ones one channel
    """
    array = np.asarray(check_array(images, event_shape=event_shape, name=name), dtype=np.float32)
    if array.ndim != 4:
        raise ValueError(
            f"{name}: expected images (n, height, width, channels), got shape {array.shape}; give grey ones one channel"
        )
    return array


def check_scaled(images: Any, *, name: str, event_shape: tuple[int, ...] | None = None) -> np.ndarray:
    """`check_images` that also raises if values lie outside [-1, 1].

    >>> check_scaled(np.full((5, 8, 8, 1), 255.0), name="real")
    Traceback (most recent call last):
    ValueError: real: expected values in [-1, 1], got 255 to 255; scale pixels with thalweg.data.scale_pixels
    """
    array = check_images(images, name=name, event_shape=event_shape)
    if np.abs(array).max() > 1 + 1e-6:
        raise ValueError(
            f"{name}: expected values in [-1, 1], got {array.min():.4g} to {array.max():.4g}; "
            "scale pixels with thalweg.data.scale_pixels"
        )
    return array


def labelled_images(dataset: Dataset, name: str, *, key: PRNGKeyArray) -> LabelledImages:
    """The images of a dataset with one class each; without labelled test images, a random fifth is held out.

    >>> import jax
    >>> from thalweg.data import digits
    >>> labelled_images(digits()._replace(y_test=None), "digits", key=jax.random.key(0)).x_test.shape
    (300, 8, 8, 1)
    """
    if dataset.y_train is None:
        raise ValueError(
            f"{name}: expected labels to train a classifier on, got none; choose a labelled set such as digits or mnist"
        )
    x = check_scaled(dataset.x_train, name=f"{name}, x_train")
    y = _one_each(dataset.y_train, len(x), f"{name}, y_train")
    if dataset.x_test is None or dataset.y_test is None:
        x, y, x_test, y_test = hold_out(x, y, fraction=0.2, key=key)
        assert y is not None and x_test is not None and y_test is not None
    else:
        x_test = check_scaled(dataset.x_test, name=f"{name}, x_test", event_shape=x.shape[1:])
        y_test = _one_each(dataset.y_test, len(x_test), f"{name}, y_test")
    labels, index, counts = np.unique(y, return_inverse=True, return_counts=True)
    if len(labels) < 2 or counts.min() < _FEWEST:
        raise ValueError(
            f"{name}: expected at least two classes with {_FEWEST} training images each, got {len(labels)} with at "
            f"least {counts.min()}; leave small classes out, or give class labels where these are measurements"
        )
    new = np.setdiff1d(y_test, labels)
    if len(new):
        raise ValueError(
            f"{name}: expected test images of the {len(labels)} classes trained on, got class {new[0]} too; "
            "leave those images out"
        )
    return LabelledImages(x, index, x_test, np.searchsorted(labels, y_test), tuple(labels.tolist()))


def _one_each(y: Any, rows: int, name: str) -> np.ndarray:
    labels = check_labels(y, rows, name=name)
    if labels.ndim != 1:
        raise ValueError(f"{name}: expected one class per image, got labels of shape {labels.shape}; choose one column")
    return labels
