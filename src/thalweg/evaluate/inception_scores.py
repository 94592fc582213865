"""Inception score and Fréchet distance of images, never without the name of the network that looked at them."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from thalweg.data import check_array
from thalweg.evaluate.labelled import check_images, check_scaled

_SEED = 2020  # torch-fidelity's shuffle: the same seed and rows give its numbers


@runtime_checkable
class FeatureNetwork(Protocol):
    """What looks at images: a name for the report, and a call.

    The call takes images ``(n, height, width, channels)`` in [-1, 1] and gives features ``(n, d)`` and class
    probabilities ``(n, classes)``. `digit_network` and `InceptionNetwork` are two of them.

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
    """A network that knows its share of right answers on held-out images."""

    @property
    def accuracy(self) -> float: ...


class InceptionScore(NamedTuple):
    """The mean of the score over the splits, and the standard deviation between them (splits in the denominator).

    >>> import numpy as np
    >>> from thalweg.evaluate import inception_score
    >>> score = inception_score(np.full((20, 4), 0.25), splits=2)
    >>> round(score.mean, 4), round(score.deviation, 4)
    (1.0, 0.0)
    """

    mean: float
    deviation: float


def inception_score(probabilities: Any, splits: int = 10, *, seed: int | None = _SEED) -> InceptionScore:
    r"""``exp( (1/n) Σᵢ KL(p(y|xᵢ) ‖ p(y)) )`` with ``p(y) = (1/n) Σᵢ p(y|xᵢ)``, in each of ``splits`` parts.

    Salimans et al. (2016). It is 1 where all images look alike to the network, and the number of classes where it is
    sure of each image and all classes are equally frequent. Shuffle, parts and logarithms are torch-fidelity's, so that
    the numbers agree. A part of few rows scores low, since its own ``p(y)`` is fitted to it: compare scores of equally
    many images only.

    Args:
        probabilities: ``(n, classes)``, rows that sum to one.
        splits: the number of parts, of ``n / splits`` rows each.
        seed: of the shuffle before the rows are parted; None leaves their order.

    Returns:
        `InceptionScore`, the mean over the parts and the deviation between them.

    >>> import numpy as np
    >>> from thalweg.evaluate import inception_score
    >>> sure_and_even = np.tile(np.eye(4), (10, 1))
    >>> score = inception_score(sure_and_even, splits=1)
    >>> round(score.mean, 6), score.deviation
    (4.0, 0.0)
    >>> inception_score(np.full((40, 4), 0.25)).mean
    1.0
    """
    from scipy.special import rel_entr

    p = _matrix(probabilities, "probabilities")
    rows = len(p)
    off = np.abs(p.sum(axis=1) - 1)
    if p.min() < 0 or off.max() > 1e-3:
        worst = int(np.argmax(np.maximum(off, -p.min(axis=1))))
        raise ValueError(
            f"probabilities: expected rows that are not negative and sum to one, got row {worst} with sum "
            f"{p[worst].sum():.6g} and least value {p[worst].min():.6g}; take the softmax of logits first"
        )
    if not 1 <= splits <= rows:
        raise ValueError(
            f"splits: expected between 1 and the {rows} rows of probabilities, got {splits}; "
            "give more images or fewer splits"
        )
    if seed is not None:
        p = p[np.random.RandomState(seed).permutation(rows)]
    parts = [p[i * rows // splits : (i + 1) * rows // splits] for i in range(splits)]
    scores = [np.exp(rel_entr(part, part.mean(axis=0)).sum(axis=1).mean()) for part in parts]
    return InceptionScore(float(np.mean(scores)), float(np.std(scores)))


def frechet_distance(features: Any, other: Any) -> float:
    r"""``‖μ₁ - μ₂‖² + tr(C₁ + C₂ - 2(C₁C₂)^½)`` between two sets of rows with means μ and covariances C (n - 1 below).

    The squared 2-Wasserstein distance between the normal laws of these moments (Dowson and Landau 1982); over the
    features of Inception-v3 it is the FID of Heusel et al. (2017). With ``C = RᵀR``, R being the triangle of a QR of
    the centred rows, ``tr (C₁C₂)^½`` is the sum of the singular values of ``R₁R₂ᵀ``: no root of a matrix is taken, and
    rounding does not show where a covariance is singular. It is so where there are no more rows than features, and the
    distance is then far too large; from few rows it is always too large. Compare distances of equally many rows only.

    Args:
        features: ``(n, d)`` with n of at least 2.
        other: ``(m, d)``, likewise.

    >>> import numpy as np
    >>> from thalweg.evaluate import frechet_distance
    >>> rows = np.random.default_rng(0).normal(size=(500, 3))
    >>> round(frechet_distance(rows, rows + 2.0), 6)  # only the means differ, by 2 in each of 3 coordinates
    12.0
    >>> variances = rows.var(axis=0, ddof=1).sum()
    >>> bool(np.isclose(frechet_distance(rows, 3 * rows), 4 * (rows.mean(axis=0)**2).sum() + 4 * variances))
    True
    """
    (mean, triangle), (other_mean, other_triangle) = _moments(features, "features"), _moments(other, "other")
    if len(mean) != len(other_mean):
        raise ValueError(
            f"other: expected rows of {len(mean)} features, as many as the first have, got {len(other_mean)}; "
            "take both from one network"
        )
    shared = np.linalg.svd(triangle @ other_triangle.T, compute_uv=False).sum()
    distance = np.sum((mean - other_mean) ** 2) + np.sum(triangle**2) + np.sum(other_triangle**2) - 2 * shared
    return max(float(distance), 0.0)  # rounding takes the distance of equal sets to -1e-15 or so


def image_scores(
    samples: Any, real: Any, network: Any, *, splits: int = 10, seed: int | None = _SEED
) -> dict[str, Any]:
    """The Inception score of ``samples`` and their Fréchet distance to ``real`` images, as one network sees them.

    Numbers by different networks have nothing to do with each other, so the network's name stands beside them.

    Args:
        samples: ``(n, height, width, channels)``; what a sampler has left outside [-1, 1] is set to the nearest end,
            as when an image is shown.
        real: ``(m, height, width, channels)`` in [-1, 1]; held-out rows, as a rule.
        network: `digit_network`, `InceptionNetwork`, or anything else that is a `FeatureNetwork`.
        splits, seed: those of `inception_score`.

    Returns:
        A dict for JSON: ``network`` (its name), ``network_accuracy`` (where it knows), ``inception_score`` and
        ``inception_score_deviation`` (over ``inception_score_splits``), ``inception_score_real`` (of the real images,
        what a perfect model would get), ``frechet_distance``, ``features`` (their number), ``samples`` (n), ``real``
        (m).

    >>> import numpy as np
    >>> from thalweg.evaluate import image_scores
    >>> class Brightness:
    ...     name = "mean and deviation of the pixels, bright or dark"
    ...     def __call__(self, images):
    ...         mean, deviation = images.mean(axis=(1, 2, 3)), images.std(axis=(1, 2, 3))
    ...         bright = (mean > 0).astype(float)
    ...         return np.stack([mean, deviation], axis=1), np.stack([bright, 1 - bright], axis=1)
    >>> images = np.random.default_rng(0).uniform(-1, 1, (100, 8, 8, 1))
    >>> scores = image_scores(images / 2, images, Brightness())
    >>> scores["network"], scores["frechet_distance"] > 0.08
    ('mean and deviation of the pixels, bright or dark', True)
    """
    if not isinstance(network, FeatureNetwork):
        raise ValueError(
            f"network: expected something with a name and a call from images to (features, probabilities), got "
            f"{type(network).__name__}; make one with thalweg.evaluate.digit_network"
        )
    seen = check_scaled(real, name="real")
    drawn = np.clip(check_images(samples, name="samples", event_shape=seen.shape[1:]), -1, 1)
    features, probabilities = _seen(network, drawn)
    real_features, real_probabilities = _seen(network, seen)
    score = inception_score(probabilities, splits, seed=seed)
    return {
        "network": network.name,
        **({"network_accuracy": float(network.accuracy)} if isinstance(network, HasAccuracy) else {}),
        "inception_score": score.mean,
        "inception_score_deviation": score.deviation,
        "inception_score_splits": splits,
        "inception_score_real": inception_score(real_probabilities, splits, seed=seed).mean,
        "frechet_distance": frechet_distance(features, real_features),
        "features": features.shape[1],
        "samples": len(drawn),
        "real": len(seen),
    }


def _moments(features: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The mean μ of rows ``(n, d)`` and a triangle R with ``RᵀR = C``, their covariance."""
    rows = _matrix(features, name)
    if len(rows) < 2:
        raise ValueError(f"{name}: expected at least 2 rows for a covariance, got {len(rows)}; give more images")
    mean = rows.mean(axis=0)
    triangle = np.linalg.qr((rows - mean) / np.sqrt(len(rows) - 1), mode="r")
    return mean, np.asarray(triangle)


def _matrix(values: Any, name: str) -> np.ndarray:
    array = np.asarray(check_array(values, integers=True, name=name), dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(f"{name}: expected one row per image, (n, width), got shape {array.shape}; flatten each row")
    return array


def _seen(network: FeatureNetwork, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A network's features and probabilities, one row of each per image."""
    features, probabilities = (np.asarray(each) for each in network(images))
    if features.ndim != 2 or probabilities.ndim != 2 or not len(features) == len(probabilities) == len(images):
        raise ValueError(
            f"network: expected features and probabilities with a row for each of {len(images)} images, got shapes "
            f"{features.shape} and {probabilities.shape} from {network.name}; return two matrices"
        )
    return features, probabilities
