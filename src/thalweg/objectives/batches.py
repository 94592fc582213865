"""Checks that a model and a batch fit together and fit the objective."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, PyTree

from thalweg.core import (
    ConditionalEnergy,
    LatentEnergy,
    Objective,
    bind_batch,
    check_scalar,
    require_energy,
    require_model,
    space_of,
    split_batch,
)
from thalweg.spaces import Product, as_points, coordinates_of, on_reals, to_real

# the objectives that learn p(x|c), for the error messages of the others
_CONDITIONAL = "MaximumLikelihood, AdaNCE, RankNCE, ConditionalNCE or score matching"


def check_batch(objective: Objective, energy: Any, batch: PyTree, *, scores: bool = False) -> None:
    """Raise if the model is not an energy of the batch's points.

    Args:
        objective: the objective, for the message.
        energy: the model; it may be a `ConditionalEnergy` if the objective is conditional.
        batch: points ``(rows, *event)``, or ``(x, c)`` for a conditional energy.
        scores: whether the model may also be a score network.
    """
    name = type(objective).__name__
    (require_model if scores else require_energy)(name, energy)
    if isinstance(energy, LatentEnergy):
        raise ValueError(
            f"expected an energy of one point for {name}, got the latent energy {type(energy).__name__}; "
            "use LatentLikelihood, or tw.energies.marginal(energy) where its free energy is known"
        )
    if isinstance(energy, ConditionalEnergy) and not objective.conditional:
        raise ValueError(
            f"expected an energy of one point for {name}, got the conditional energy {type(energy).__name__}; "
            f"use {_CONDITIONAL}, which learn p(x|c), or fix the condition by tw.given(energy, c)"
        )
    x, conditions = split_batch(energy, batch)
    check_points(name, energy, x)
    if conditions is not None:
        check_conditions(energy, x, conditions)
    check_scalar(bind_batch(energy, batch)[0], x)


def check_points(name: str, energy: Any, x: PyTree) -> None:
    """Raise if the points do not lie in the model's space."""
    space = space_of(energy)
    if isinstance(x, tuple) and space is not None and not isinstance(space, Product):
        raise ValueError(
            f"expected batches of points of {space} for {name}, got a tuple of {len(x)}; leave the labels out, or give "
            "a ConditionalEnergy to learn p(x|c)"
        )
    as_points(space, x, "the batch")


def check_conditions(energy: ConditionalEnergy, x: PyTree, conditions: PyTree) -> None:
    """Raise if there is not one condition for each point, or if they do not lie in their space."""
    as_points(energy.condition_space, conditions, "the conditions")
    rows = {leaf.shape[0] for leaf in jax.tree.leaves((x, conditions))}
    if len(rows) > 1:
        raise ValueError(
            f"expected one condition for each point, got {' and '.join(map(str, sorted(rows)))} rows; "
            "give x and c of the same length"
        )


def on_real_coordinates(name: str, energy: Any, batch: PyTree) -> tuple[Any, Array]:
    """The model of every row of a batch and the rows' points, both in real coordinates.

    On R^d they are returned unchanged.
    """
    model, x = bind_batch(energy, batch)
    coordinates = coordinates_of(name, model, x)
    return on_reals(model, coordinates), to_real(coordinates, x)


def require_array(name: str, x: PyTree, instead: str) -> None:
    """Raise if points are trees instead of one array; ``name`` is the caller, ``instead`` the advice."""
    if not isinstance(x, (jax.Array, np.ndarray)):
        raise ValueError(f"expected points that are one array for {name}, got a tree of several; {instead}")
