"""Makes reference_scores.json: torch-fidelity's Inception scores and Fréchet distances of given features.

Run it in an environment with torch-fidelity (`pip install thalweg[fid]`); the tests need only numpy and its file.
The file holds the numbers and the versions; the features are made again from their seeds.
"""

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import numpy as np

REFERENCE = Path(__file__).with_name("reference_scores.json")

# (n, m, d): two sets of n and m rows of d features; in the last two a covariance is singular
FEATURES = {"few features": (500, 400, 8), "many": (700, 900, 192), "n < d": (60, 500, 100), "both < d": (40, 50, 128)}
# (n, classes, splits, seed, sharpness of the logits)
LOGITS = {
    "digits": (1000, 10, 10, 2020, 3.0),
    "uneven splits": (1003, 10, 7, 2020, 1.0),
    "another shuffle": (1003, 10, 7, 5, 1.0),
    "order kept": (500, 20, 10, None, 2.0),
    "thousand classes": (300, 1008, 10, 2020, 4.0),
    "very sure": (200, 10, 10, 2020, 300.0),
}


def features(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Two sets of correlated, skewed float32 features, positive as a ReLU leaves them, unlike in mean and spread."""
    n, m, d = FEATURES[name]
    rng = np.random.default_rng([1, n, m, d])
    mix, other = rng.normal(size=(d, d)) / np.sqrt(d), rng.normal(size=(d, d)) / np.sqrt(d)
    first = np.maximum(rng.normal(size=(n, d)) @ mix + 0.5, 0)
    second = np.maximum(1.5 * rng.normal(size=(m, d)) @ (mix + other / 2) + 0.7, 0)
    return first.astype(np.float32), second.astype(np.float32)


def logits(name: str) -> np.ndarray:
    """Float32 logits whose classes are unequally frequent, later rows unlike the earlier ones."""
    n, classes, _, _, sharpness = LOGITS[name]
    rng = np.random.default_rng([2, n, classes])
    drift = np.linspace(0, 1, n)[:, None] * rng.normal(size=classes)
    return (sharpness * (rng.normal(size=(n, classes)) + drift)).astype(np.float32)


def main() -> None:
    import torch  # pyright: ignore[reportMissingImports]
    from torch_fidelity.metric_fid import (  # pyright: ignore[reportMissingImports]
        fid_features_to_statistics,
        fid_statistics_to_metric,
    )
    from torch_fidelity.metric_isc import isc_features_to_metric  # pyright: ignore[reportMissingImports]

    scores: dict[str, Any] = {"versions": {}, "inception_score": {}, "frechet_distance": {}}
    for package in ("torch", "torch-fidelity", "numpy"):
        scores["versions"][package] = importlib.metadata.version(package)
    for name in FEATURES:
        both = [fid_features_to_statistics(torch.from_numpy(each)) for each in features(name)]
        metric = fid_statistics_to_metric(*both, False)
        scores["frechet_distance"][name] = float(metric["frechet_inception_distance"])
    for name, (_, _, splits, seed, _) in LOGITS.items():
        metric = isc_features_to_metric(torch.from_numpy(logits(name)), splits, seed is not None, seed or 0)
        scores["inception_score"][name] = [metric["inception_score_mean"], metric["inception_score_std"]]
    REFERENCE.write_text(json.dumps(scores, indent=2) + "\n")


if __name__ == "__main__":
    main()
