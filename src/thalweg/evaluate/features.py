"""Feature networks, and the checks of what they return: rows of features."""

from typing import Any, Protocol, runtime_checkable

import numpy as np

from thalweg.data import check_array


@runtime_checkable
class FeatureNetwork(Protocol):
    """A network that extracts features from images: a name for the report, and a call.

    The call takes images ``(n, height, width, channels)`` in [-1, 1] and returns features ``(n, d)`` and class
    probabilities ``(n, classes)``. `digit_network` and `InceptionNetwork` provide two of them.

    >>> import numpy as np
    >>> from thalweg.evaluate import FeatureNetwork
    >>> class Halves:
    ...     name = "mean of the upper and of the lower half"
    ...     def __call__(self, images):
    ...         features = np.stack([half.mean(axis=(1, 2, 3)) for half in np.array_split(images, 2, axis=1)], axis=1)
    ...         weights = np.exp(features)
    ...         return features, weights / weights.sum(axis=1, keepdims=True)
    >>> isinstance(Halves(), FeatureNetwork), Halves()(np.zeros((3, 8, 8, 1)))[1].shape
    (True, (3, 2))
    """

    @property
    def name(self) -> str: ...

    def __call__(self, images: Any) -> tuple[Any, Any]: ...


@runtime_checkable
class HasAccuracy(Protocol):
    """A network with a known accuracy on held-out images."""

    @property
    def accuracy(self) -> float: ...


def check_rows(values: Any, name: str, least: int = 1, why: str = "") -> np.ndarray:
    """Rows ``(n, width)`` of finite numbers in double precision; raises for anything else, or fewer than ``least``.

    >>> check_rows([[1, 2], [3, 4]], "features").shape
    (2, 2)
    """
    array = np.asarray(check_array(values, integers=True, name=name), dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(f"{name}: expected one row per image, (n, width), got shape {array.shape}; flatten each row")
    if len(array) < least:
        raise ValueError(f"{name}: expected at least {least} rows for {why}, got {len(array)}; give more images")
    return array


def check_two_sets(
    features: Any, other: Any, least: int, why: str, name: str = "other"
) -> tuple[np.ndarray, np.ndarray]:
    """Two sets of rows over the same features, with at least ``least`` rows each; ``name`` is that of the second."""
    first, second = check_rows(features, "features", least, why), check_rows(other, name, least, why)
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"{name}: expected rows of {first.shape[1]} features, as many as the first have, got {second.shape[1]}; "
            "take both from one network"
        )
    return first, second


def check_probabilities(probabilities: Any) -> np.ndarray:
    """Probabilities ``(n, classes)`` in double precision; raises unless every row is one distribution."""
    p = check_rows(probabilities, "probabilities")
    off = np.abs(p.sum(axis=1) - 1)
    if p.min() < 0 or off.max() > 1e-3:
        worst = int(np.argmax(np.maximum(off, -p.min(axis=1))))
        raise ValueError(
            f"probabilities: expected rows that are not negative and sum to one, got row {worst} with sum "
            f"{p[worst].sum():.6g} and least value {p[worst].min():.6g}; take the softmax of logits first"
        )
    return p


def apply_network(network: FeatureNetwork, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The features and probabilities of a network, one row per image; raises if their shapes are wrong."""
    features, probabilities = (np.asarray(each) for each in network(images))
    if features.ndim != 2 or probabilities.ndim != 2 or not len(features) == len(probabilities) == len(images):
        raise ValueError(
            f"network: expected features and probabilities with a row for each of {len(images)} images, got shapes "
            f"{features.shape} and {probabilities.shape} from {network.name}; return two matrices"
        )
    return features, probabilities
