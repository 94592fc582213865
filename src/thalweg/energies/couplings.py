"""Couplings: symmetric matrices W with zero diagonal, as a full matrix, a sparse graph or a 2-D lattice.

Which sites are connected is structure, fixed when a coupling is made. Only the weights are arrays that training
changes, so the groups of sites that Gibbs sampling redraws together stay valid for all weights.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from thalweg.core import Module, finite, flag, is_concrete, real, whole_number
from thalweg.energies.structure import Structure, colours_of_edges, colours_of_mask, colours_of_torus, neighbours_of

LocalField = Callable[[Array, Any], Array]


class AbstractCoupling(Module):
    """A symmetric matrix W with zero diagonal in any storage: its product with a vector, and its graph colouring."""

    sites: eqx.AbstractVar[int]

    @abc.abstractmethod
    def field(self, x: Array) -> Array:
        """``Σ_j W_kj x_j`` for every site k; ``x`` is ``(sites, ...)``."""

    @abc.abstractmethod
    def local_field(self) -> LocalField | None:
        """A function ``(x, sites)`` that computes the field at the given sites only, ``(len(sites), ...)``.

        ``None`` if the whole field costs no more than a part of it.
        """

    @abc.abstractmethod
    def colours(self) -> np.ndarray:
        """Boolean ``(colours, sites)``: groups of sites no two of which are connected."""


class Matrix(AbstractCoupling):
    """A full matrix ``W``.

    Every site is connected to every other, whatever the weights are now, so each is a group of its own; with a ``mask``
    only the marked pairs are connected, and the other weights stay at zero.

    Args:
        weights: ``(n, n)``, symmetric with a zero diagonal.
        mask: boolean ``(n, n)``, symmetric: which pairs are connected. Weights outside it are read as zero.

    >>> import jax.numpy as jnp
    >>> from thalweg.energies import Matrix
    >>> Matrix(jnp.zeros((4, 4))).colours().shape
    (4, 4)
    >>> two_layers = jnp.array([[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]], bool)
    >>> Matrix(jnp.zeros((4, 4)), two_layers).colours().shape
    (2, 4)
    """

    weights: Array
    mask: Structure | None = eqx.field(static=True)

    def __init__(self, weights: Any, mask: Any = None):
        matrix = finite("couplings", weights)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
            raise ValueError(f"expected a square matrix of couplings, got shape {matrix.shape}; give one row per site")
        if is_concrete(matrix):
            whole = np.asarray(matrix)
            if not np.array_equal(whole, whole.T) or np.any(np.diag(whole)):
                raise ValueError(
                    "expected symmetric couplings with a zero diagonal, got others; "
                    "use (W + W.T) / 2 and put the diagonal into the bias"
                )
        self.mask = None if mask is None else Structure(_as_mask(mask, matrix.shape))
        self.weights = matrix if self.mask is None else jnp.where(self.mask.array, matrix, 0.0)

    @property
    def sites(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.weights.shape[-1]

    @property
    def couplings(self) -> Array:
        """W: the symmetric part of ``weights`` at the connected pairs, so that only this part has a gradient."""
        connected = ~np.eye(self.sites, dtype=bool) if self.mask is None else self.mask.array
        return jnp.where(connected, (self.weights + self.weights.T) / 2, 0.0)

    def field(self, x: Array) -> Array:
        return jnp.tensordot(self.couplings, x, 1)

    def local_field(self) -> LocalField:
        couplings = self.couplings
        return lambda x, sites: jnp.tensordot(couplings[sites], x, 1)

    def colours(self) -> np.ndarray:
        return np.eye(self.sites, dtype=bool) if self.mask is None else colours_of_mask(self.mask)


class Graph(AbstractCoupling):
    """A sparse graph: ``W_ij = W_ji = w_e`` for every edge e = (i, j), zero for all other pairs.

    Args:
        edges: whole numbers ``(m, 2)``, pairs of sites, each listed once.
        weights: one for each edge, ``(m,)``, or one for all edges.
        sites: the number of sites; by default the largest site in ``edges`` plus one.

    >>> from thalweg.energies import Graph
    >>> Graph([(0, 1), (1, 2)], 0.5).sites
    3
    """

    sites: int = eqx.field(static=True)
    structure: Structure = eqx.field(static=True)
    weights: Array

    def __init__(self, edges: Any, weights: Any, sites: Any = None):
        if isinstance(edges, np.ma.MaskedArray) or not is_concrete(edges):
            raise ValueError("expected plain numbers as edges, got masked or traced ones; give a numpy array of pairs")
        try:
            pairs = np.asarray(edges)
        except ValueError:
            raise ValueError("expected edges as whole numbers (m, 2), got ragged rows; give pairs of sites") from None
        if pairs.ndim != 2 or pairs.shape[1] != 2 or len(pairs) == 0 or not np.issubdtype(pairs.dtype, np.integer):
            raise ValueError(
                f"expected edges as whole numbers (m, 2), got {pairs.dtype} of shape {pairs.shape}; give pairs of sites"
            )
        pairs = pairs.astype(np.int64)
        if np.any(pairs[:, 0] == pairs[:, 1]) or len(np.unique(np.sort(pairs, axis=1), axis=0)) < len(pairs):
            raise ValueError("expected every edge once and none from a site to itself, got others; remove them")
        self.sites = int(pairs.max()) + 1 if sites is None else whole_number("sites", sites)
        if pairs.min() < 0 or pairs.max() >= self.sites:
            raise ValueError(
                f"expected edges between the sites 0 to {self.sites - 1}, got sites {pairs.min()} to {pairs.max()}; "
                "number the sites from 0 and give `sites` where some have no edge"
            )
        self.structure = Structure(pairs.astype(np.int32))
        self.weights = _broadcast("one weight per edge", finite("weights", weights), (len(pairs),))

    @property
    def edges(self) -> np.ndarray:
        """Pairs of sites, ``(m, 2)``."""
        return self.structure.array

    def field(self, x: Array) -> Array:
        first, second = self.edges[:, 0], self.edges[:, 1]
        weights = self.weights.reshape(-1, *[1] * (x.ndim - 1))
        return jnp.zeros(x.shape, weights.dtype).at[first].add(weights * x[second]).at[second].add(weights * x[first])

    def local_field(self) -> LocalField:
        table = neighbours_of(self.sites, self.structure)
        if table is None:  # a few sites have very many neighbours: a table would be as large as a full matrix
            return lambda x, sites: self.field(x)[sites]
        others, edges = table
        weights = jnp.append(self.weights, 0.0)

        def local(x, sites):
            near, strength = x[jnp.asarray(others)[sites]], weights[jnp.asarray(edges)[sites]]
            return jnp.sum(near * strength.reshape(*strength.shape, *[1] * (x.ndim - 1)), axis=1)

        return local

    def colours(self) -> np.ndarray:
        return colours_of_edges(self.sites, self.structure)


class Grid(AbstractCoupling):
    """A 2-D lattice, ``rows × columns`` sites in reading order, one weight for all nearest neighbours.

    Args:
        shape: ``(rows, columns)``.
        weight: the weight of every pair of neighbours.
        periodic: whether rows and columns wrap around, as on a torus.

    >>> from thalweg.energies import Grid
    >>> Grid((4, 6), weight=0.3).sites
    24
    """

    shape: tuple[int, int] = eqx.field(static=True)
    weight: Array
    periodic: bool = eqx.field(static=True)

    def __init__(self, shape: Any, weight: Any = 1.0, periodic: Any = True):
        if not isinstance(shape, (tuple, list)) or len(shape) != 2:
            raise ValueError(f"expected a lattice of (rows, columns), got {shape!r:.60}; give for example (8, 8)")
        rows, columns = (whole_number("rows and columns", side) for side in shape)
        if not isinstance(periodic, (bool, np.bool_)):
            raise ValueError(f"expected periodic to be True or False, got {periodic!r:.60}; choose one")
        if periodic and min(rows, columns) < 3:
            raise ValueError(
                f"expected at least 3 sites round a torus, got {(rows, columns)}; use periodic=False for small lattices"
            )
        self.shape, self.weight, self.periodic = (rows, columns), finite("weight", weight), flag("periodic", periodic)
        if self.weight.shape != ():
            raise ValueError(
                f"expected one weight for all neighbours on a Grid, got shape {self.weight.shape}; "
                "use a Graph for one weight per edge"
            )

    @property
    def sites(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.shape[0] * self.shape[1]

    def field(self, x: Array) -> Array:
        grid = x.reshape(*self.shape, *x.shape[1:])
        total = jnp.zeros(grid.shape, self.weight.dtype)
        for axis in (0, 1):
            if self.periodic:
                total += jnp.roll(grid, 1, axis) + jnp.roll(grid, -1, axis)
            else:
                rest = [(0, 0)] * (grid.ndim - 1)
                pad = jnp.pad(jnp.moveaxis(grid, axis, 0), [(1, 1), *rest])
                total += jnp.moveaxis(pad[2:] + pad[:-2], 0, axis)
        return (self.weight * total).reshape(x.shape)

    def local_field(self) -> None:
        return None

    def colours(self) -> np.ndarray:
        rows, columns = np.indices(self.shape)
        if not self.periodic or (self.shape[0] % 2 == 0 and self.shape[1] % 2 == 0):
            even = ((rows + columns) % 2 == 0).reshape(-1)
            return np.stack([even, ~even]) if self.sites > 1 else even[None]
        return colours_of_torus(self.shape)


def as_coupling(value: Any) -> AbstractCoupling:
    """A coupling itself; anything else as a full `Matrix`."""
    return value if isinstance(value, AbstractCoupling) else Matrix(value)


def _as_mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    if isinstance(mask, np.ma.MaskedArray) or not is_concrete(mask):
        raise ValueError("expected a mask of plain booleans, got a masked or traced one; give a numpy array")
    real("mask", mask)
    pairs = np.asarray(mask)
    if pairs.dtype != bool or pairs.shape != shape:
        raise ValueError(
            f"expected a boolean mask of the couplings' shape {shape}, got {pairs.dtype} of shape {pairs.shape}; "
            "True marks the pairs that are connected"
        )
    if not np.array_equal(pairs, pairs.T):
        raise ValueError("expected a symmetric mask, got one that ties a pair one way only; use mask | mask.T")
    return pairs & ~np.eye(len(pairs), dtype=bool)


def _broadcast(what: str, array: Array, shape: tuple[int, ...]) -> Array:
    try:
        return jnp.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"expected {what}, shape {shape}, got {array.shape}; give as many or one for all") from None
