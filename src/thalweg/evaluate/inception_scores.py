"""Inception score and Fréchet distance, and all scores of images with the name of the feature network."""

from typing import Any, NamedTuple

import numpy as np

from thalweg.core import whole_number
from thalweg.evaluate.features import FeatureNetwork, HasAccuracy, apply_network, check_probabilities, check_two_sets
from thalweg.evaluate.kernel_distance import kernel_inception_distance
from thalweg.evaluate.labelled import check_images, check_scaled
from thalweg.evaluate.manifold_scores import density_coverage, precision_recall

_SEED = 2020  # torch-fidelity's shuffle: the same seed and rows give its numbers


class InceptionScore(NamedTuple):
    """The mean of the score over the splits, and its population standard deviation between the splits.

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

    Reference: Salimans et al. (2016), NeurIPS. The score is 1 if all images look alike to the network, and the number
    of classes if the network is certain of each image and all classes are equally frequent. Shuffle, parts and
    logarithms are those of torch-fidelity, so that the numbers agree. Parts with few rows score low, since ``p(y)`` is
    estimated from the same rows: compare only scores of equally many images.

    Args:
        probabilities: ``(n, classes)``, rows that sum to one.
        splits: the number of parts, of ``n / splits`` rows each.
        seed: the seed of the shuffle before the split; ``None`` keeps the order of the rows.

    Returns:
        `InceptionScore`, the mean over the parts and the standard deviation between them.

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

    p = check_probabilities(probabilities)
    rows = len(p)
    splits = whole_number("splits", splits)
    if splits > rows:
        raise ValueError(
            f"splits: expected between 1 and the {rows} rows of probabilities, got {splits}; "
            "give more images or fewer splits"
        )
    if seed is not None:
        seed = whole_number("seed", seed, 0)
        p = p[np.random.RandomState(seed).permutation(rows)]
    parts = [p[i * rows // splits : (i + 1) * rows // splits] for i in range(splits)]
    scores = [np.exp(rel_entr(part, part.mean(axis=0)).sum(axis=1).mean()) for part in parts]
    return InceptionScore(float(np.mean(scores)), float(np.std(scores)))


def frechet_distance(features: Any, other: Any) -> float:
    r"""``‖μ₁ - μ₂‖² + tr(C₁ + C₂ - 2(C₁C₂)^½)`` between two sets of rows with means μ and covariances C (n - 1 below).

    The squared 2-Wasserstein distance between the Gaussians with these moments (Dowson and Landau 1982); on the
    features of Inception-v3 it is the FID of Heusel et al. (2017). With ``C = RᵀR``, where R is the triangle of a QR
    decomposition of the centred rows, ``tr (C₁C₂)^½`` is the sum of the singular values of ``R₁R₂ᵀ``. This avoids a
    matrix square root and is accurate for singular covariances too. A covariance is singular if there are no more rows
    than features; the distance is then far too large. With few rows it is always too large: compare only distances of
    equally many rows.

    Args:
        features: ``(n, d)`` with n ≥ 2.
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
    (mean, triangle), (other_mean, other_triangle) = map(_moments, check_two_sets(features, other, 2, "a covariance"))
    shared = np.linalg.svd(triangle @ other_triangle.T, compute_uv=False).sum()
    distance = np.sum((mean - other_mean) ** 2) + np.sum(triangle**2) + np.sum(other_triangle**2) - 2 * shared
    return max(float(distance), 0.0)  # for equal sets rounding gives about -1e-15


def image_scores(
    samples: Any, real: Any, network: Any, *, splits: int = 10, seed: int | None = _SEED
) -> dict[str, Any]:
    """All scores of ``samples`` and their distances to ``real`` images, with the features of a network.

    These are `inception_score`, `frechet_distance`, `kernel_inception_distance`, `precision_recall` and
    `density_coverage`, which say what each is for. At least 6 images of either kind are needed. Scores of different
    networks are not comparable, so the name of the network is reported with them.

    Args:
        samples: ``(n, height, width, channels)``; values outside [-1, 1] are clipped, as when an image is shown.
        real: ``(m, height, width, channels)`` in [-1, 1]; usually held-out rows.
        network: `digit_network`, `InceptionNetwork`, or any other `FeatureNetwork`.
        splits, seed: as in `inception_score`.

    Returns:
        A dict for JSON: ``network`` (its name), ``network_accuracy`` (if known), ``inception_score`` and
        ``inception_score_deviation`` (over ``inception_score_splits``), ``inception_score_real`` (of the real images,
        which a perfect model would reach), ``frechet_distance``, ``kernel_inception_distance`` and its 95 % interval
        from ``kernel_inception_distance_low`` to ``kernel_inception_distance_high``, ``precision`` and ``recall``,
        ``density`` and ``coverage``, ``features`` (their number), ``samples`` (n), ``real`` (m).

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
    features, probabilities = apply_network(network, drawn)
    real_features, real_probabilities = apply_network(network, seen)
    score = inception_score(probabilities, splits, seed=seed)
    kernel_distance = kernel_inception_distance(features, real_features)
    return {
        "network": network.name,
        **({"network_accuracy": float(network.accuracy)} if isinstance(network, HasAccuracy) else {}),
        "inception_score": score.mean,
        "inception_score_deviation": score.deviation,
        "inception_score_splits": splits,
        "inception_score_real": inception_score(real_probabilities, splits, seed=seed).mean,
        "frechet_distance": frechet_distance(features, real_features),
        "kernel_inception_distance": kernel_distance.value,
        "kernel_inception_distance_low": kernel_distance.low,
        "kernel_inception_distance_high": kernel_distance.high,
        **precision_recall(features, real_features)._asdict(),
        **density_coverage(features, real_features)._asdict(),
        "features": features.shape[1],
        "samples": len(drawn),
        "real": len(seen),
    }


def _moments(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean μ of rows ``(n, d)``, and a triangular R with ``RᵀR = C``, their covariance."""
    mean = rows.mean(axis=0)
    triangle = np.linalg.qr((rows - mean) / np.sqrt(len(rows) - 1), mode="r")
    return mean, np.asarray(triangle)
