"""The arguments of a restricted Boltzmann machine: its units, guessed from data or given, and its weights."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from thalweg.core import finite, is_concrete, whole_number
from thalweg.energies.units import AbstractUnits
from thalweg.energies.units_discrete import BernoulliUnits, CategoricalUnits, SpinUnits
from thalweg.energies.units_real import GaussianUnits, ReLUUnits
from thalweg.energies.units_words import ReplicatedSoftmaxUnits

VISIBLE = (BernoulliUnits, SpinUnits, GaussianUnits, CategoricalUnits, ReplicatedSoftmaxUnits)
HIDDEN = (BernoulliUnits, SpinUnits, GaussianUnits, ReLUUnits)
# whole numbers up to this one are read as labels, larger ones as counts
_MOST_LABELS = 10


def as_units(name: str, units: Any, allowed: tuple[type, ...]) -> AbstractUnits:
    """Units of one of the allowed types; a number is that number of Bernoulli units."""
    if isinstance(units, allowed):
        return units
    if isinstance(units, (AbstractUnits, type)) or np.ndim(units) > 0 or isinstance(units, str):
        got = units.__name__ if isinstance(units, type) else type(units).__name__
        names = ", ".join(kind.__name__ for kind in allowed)
        raise ValueError(f"expected {name} units, one of {names}, got {got}; or give the number of Bernoulli units")
    return BernoulliUnits(whole_number(f"the number of {name} units", units))


def as_weights(weights: Any, visible: AbstractUnits, shape: tuple[int, int]) -> Array:
    """Weights of one row for each visible and one column for each hidden feature."""
    array = finite("weights", weights)
    if array.shape == (*visible.bias.shape, shape[1]):  # one row of weights for each unit and label
        array = array.reshape(shape)
    if array.shape not in ((), shape):
        raise ValueError(
            f"expected weights of shape {shape}, one row for each visible and one column for each hidden unit, got "
            f"{array.shape}; transpose them, or change the units"
        )
    return jnp.broadcast_to(array, shape)


def check_normalisable(rbm: Any) -> None:
    """Raise if Z is infinite: two Gaussian layers with large weights."""
    both = isinstance(rbm.visible, GaussianUnits) and isinstance(rbm.hidden, GaussianUnits)
    if both and is_concrete(rbm.weights):
        largest = float(np.linalg.norm(np.asarray(rbm.weights), 2))
        if largest >= 1:
            raise ValueError(
                f"expected weights between Gaussian layers with singular values below 1, got {largest:.3g}, for which "
                "Z is infinite; make them smaller"
            )


def guess_units(table: np.ndarray) -> AbstractUnits:
    """The visible units for a table of numbers: see `RBM.from_data`."""
    count = table.shape[1]
    if table.dtype == bool or np.all((table == 0) | (table == 1)):
        return BernoulliUnits(count)
    if np.all(np.abs(table) == 1):
        return SpinUnits(count)
    if np.all(table == np.round(table)) and table.min() >= 0:
        most = int(table.max())
        if most <= _MOST_LABELS:
            return CategoricalUnits(count, k=most + 1)
        lengths = table.sum(axis=1)
        return ReplicatedSoftmaxUnits(count, int(lengths[0]) if np.all(lengths == lengths[0]) else None)
    return GaussianUnits(count)
