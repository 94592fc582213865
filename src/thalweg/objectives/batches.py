"""A model and a batch that an objective is given: refused in a sentence where they do not go together."""

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

# what learns p(x|c), for the sentence in which the others say that they do not
_CONDITIONAL = "MaximumLikelihood, AdaNCE, RankNCE, ConditionalNCE or score matching"


def check_batch(objective: Objective, energy: Any, batch: PyTree, *, scores: bool = False) -> None:
    """Refuse a model that is no energy of the batch's points, with the objective's name.

    Args:
        objective: who asks.
        energy: the model; a `ConditionalEnergy` where the objective is conditional.
        batch: points ``(rows, *event)``, or ``(x, c)`` of a conditional energy.
        scores: whether a score network serves too.
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
    """Refuse points that are not of the model's space."""
    space = space_of(energy)
    if isinstance(x, tuple) and space is not None and not isinstance(space, Product):
        raise ValueError(
            f"expected batches of points of {space} for {name}, got a tuple of {len(x)}; leave the labels out, or give "
            "a ConditionalEnergy to learn p(x|c)"
        )
    as_points(space, x, "the batch")


def check_conditions(energy: ConditionalEnergy, x: PyTree, conditions: PyTree) -> None:
    """Refuse conditions that are not one for each point, or not of their space."""
    as_points(energy.condition_space, conditions, "the conditions")
    rows = {leaf.shape[0] for leaf in jax.tree.leaves((x, conditions))}
    if len(rows) > 1:
        raise ValueError(
            f"expected one condition for each point, got {' and '.join(map(str, sorted(rows)))} rows; "
            "give x and c of the same length"
        )


def on_real_coordinates(name: str, energy: Any, batch: PyTree) -> tuple[Any, Array]:
    """The model of every row of a batch and the rows' points, both in real coordinates.

    On R^d these are the model and the points themselves.
    """
    model, x = bind_batch(energy, batch)
    coordinates = coordinates_of(name, model, x)
    return on_reals(model, coordinates), to_real(coordinates, x)


def require_array(name: str, x: PyTree, instead: str) -> None:
    """Refuse points that are trees, with the name of what takes arrays alone."""
    if not isinstance(x, (jax.Array, np.ndarray)):
        raise ValueError(f"expected points that are one array for {name}, got a tree of several; {instead}")
