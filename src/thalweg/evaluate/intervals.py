"""What confidence intervals share: their level, the normal quantile, and the random numbers of a bootstrap."""

from typing import Any

import jax
import numpy as np

from thalweg.core import static_number, typed_key
from thalweg.core.checks import real


def check_confidence(confidence: Any) -> float:
    """``confidence`` as a number between 0 and 1, both excluded.

    >>> check_confidence(95)
    Traceback (most recent call last):
    ValueError: expected confidence between 0 and 1, got 95; give for example 0.95
    """
    level = static_number("confidence", confidence, real)
    if not 0 < level < 1:
        raise ValueError(f"expected confidence between 0 and 1, got {confidence}; give for example 0.95")
    return level


def normal_quantile(confidence: float) -> float:
    """How many standard errors an interval reaches to either side.

    >>> round(normal_quantile(0.95), 3)
    1.96
    """
    from scipy.special import ndtri

    return float(ndtri((1 + confidence) / 2))


def bootstrap_generator(key: Any) -> np.random.Generator:
    """The random numbers of a bootstrap, from a random key; those of ``jax.random.key(0)`` without one."""
    return np.random.default_rng(np.asarray(jax.random.key_data(jax.random.key(0) if key is None else typed_key(key))))
