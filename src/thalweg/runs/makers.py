"""Build energies for data of a given shape, if the constructor needs more than a configuration can give."""

from typing import Literal

import jax.numpy as jnp

from thalweg.energies import Grid, Ising, Potts
from thalweg.energies.couplings import AbstractCoupling, Matrix
from thalweg.spaces import Binary


def ising(
    shape: tuple[int, ...],
    *,
    values: Literal["spin", "binary"] = "spin",
    grid: tuple[int, int] | None = None,
    periodic: bool = True,
) -> Ising:
    """An `Ising` model of vectors, with couplings and biases that are zero before training.

    Args:
        shape: of a point, ``(sites,)``.
        values: the values of a site: -1 and 1, or 0 and 1.
        grid: rows and columns of a lattice, read row by row, with one coupling for all neighbours; by default every
            pair of sites has its own coupling.
        periodic: whether the lattice is a torus.

    >>> from thalweg.runs.makers import ising
    >>> ising((16,), grid=(4, 4)).coupling.sites
    16
    """
    coupling = _coupling(shape, grid, periodic)
    return Ising(coupling, 0.0, Binary(coupling.sites) if values == "binary" else None)


def potts(shape: tuple[int, ...], *, labels: int, grid: tuple[int, int] | None = None, periodic: bool = True) -> Potts:
    """A `Potts` model of vectors of labels, with couplings and biases that are zero before training.

    >>> from thalweg.runs.makers import potts
    >>> potts((9,), labels=3).bias.shape
    (9, 3)
    """
    return Potts(_coupling(shape, grid, periodic), labels)


def _coupling(shape: tuple[int, ...], grid: tuple[int, int] | None, periodic: bool) -> AbstractCoupling:
    if len(shape) != 1:
        raise ValueError(f"expected points that are vectors of sites, got points of shape {shape}; flatten the data")
    if grid is None:
        return Matrix(jnp.zeros((shape[0], shape[0])))
    lattice = Grid(grid, 0.0, periodic)
    if lattice.sites != shape[0]:
        raise ValueError(f"expected a grid of {shape[0]} sites, as the data have, got {grid}; give rows and columns")
    return lattice
