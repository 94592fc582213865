"""The spaces that points live in, their bijections to R^d, and checks of the points a user gives."""

from thalweg.core import Space, shorten_signatures
from thalweg.spaces.continuous import Continuous, Interval, Positive, PositiveDefinite, Real, Simplex
from thalweg.spaces.coordinates import Coordinates, coordinates_of, from_real, on_reals, scores_on_reals, to_real
from thalweg.spaces.discrete import Binary, Categorical, Counts, Discrete, Finite, Spin
from thalweg.spaces.points import as_points, point_space, require_gradient
from thalweg.spaces.product import Product, is_continuous

__all__ = [
    "Binary",
    "Categorical",
    "Continuous",
    "Coordinates",
    "Counts",
    "Discrete",
    "Finite",
    "Interval",
    "Positive",
    "PositiveDefinite",
    "Product",
    "Real",
    "Simplex",
    "Space",
    "Spin",
    "as_points",
    "coordinates_of",
    "from_real",
    "is_continuous",
    "on_reals",
    "point_space",
    "require_gradient",
    "scores_on_reals",
    "to_real",
]

shorten_signatures(globals(), __all__)
