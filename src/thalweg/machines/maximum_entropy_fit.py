"""The result of a fit of maximum entropy."""

from typing import NamedTuple

from jaxtyping import Array

from thalweg.core import Estimate
from thalweg.energies.maximum_entropy import MaximumEntropy


class MaximumEntropyFit(NamedTuple):
    """What `fit_maximum_entropy` returns.

    ``energy`` is p as an energy, ``natural`` is η, ``means`` are the means of the features under p. ``entropy`` is that
    of p in nats. ``gap`` is the duality gap ``η·(E_p[f] - μ)``, the dual value minus the entropy of p, zero at the
    solution. Both are exact, but for rounding, by enumeration and quadrature, and have an interval by chains.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> fit = tw.machines.fit_maximum_entropy(lambda x: x, 0.8, tw.Binary(()))
    >>> round(float(fit.natural[0]), 4)  # log 0.8/0.2
    1.3863
    """

    energy: MaximumEntropy
    natural: Array
    means: Array
    entropy: Estimate
    gap: Estimate
