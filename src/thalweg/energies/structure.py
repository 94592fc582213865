"""The fixed structure of a graph: its edges, its colouring and its table of neighbours."""

from functools import lru_cache

import numpy as np


class Structure:
    """An immutable, hashable numpy array, for use as a static argument of ``jax.jit``."""

    def __init__(self, array: np.ndarray):
        self.array = np.array(array)
        self.array.setflags(write=False)
        self._hash = hash((self.array.shape, self.array.dtype.str, self.array.tobytes()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Structure) and hash(other) == hash(self) and np.array_equal(self.array, other.array)

    def __repr__(self) -> str:
        return f"Structure{self.array.shape}"


def colour(sites: int, edges: np.ndarray) -> np.ndarray:
    """Greedy colouring in order of decreasing degree: boolean ``(colours, sites)``."""
    neighbours: list[set[int]] = [set() for _ in range(sites)]
    for first, second in edges.tolist():
        neighbours[first].add(second)
        neighbours[second].add(first)
    colours = np.full(sites, -1)
    for site in sorted(range(sites), key=lambda s: -len(neighbours[s])):
        taken = {colours[other] for other in neighbours[site]}
        colours[site] = next(c for c in range(sites) if c not in taken)
    return colours == np.arange(colours.max() + 1)[:, None]


@lru_cache(32)
def colours_of_mask(mask: Structure) -> np.ndarray:
    """The colours of the graph with a boolean adjacency matrix."""
    return colour(len(mask.array), np.argwhere(np.triu(mask.array)))


@lru_cache(32)
def colours_of_edges(sites: int, edges: Structure) -> np.ndarray:
    """The colours of the graph with a list of edges."""
    return colour(sites, edges.array)


@lru_cache(32)
def colours_of_torus(shape: tuple[int, int]) -> np.ndarray:
    """The colours of a 2-D torus with sides of any length."""
    number = np.arange(shape[0] * shape[1]).reshape(shape)
    edges = [np.stack([number, np.roll(number, -1, axis)], axis=-1).reshape(-1, 2) for axis in (0, 1)]
    return colour(number.size, np.concatenate(edges))


@lru_cache(32)
def neighbours_of(sites: int, edges: Structure) -> tuple[np.ndarray, np.ndarray] | None:
    """The neighbours of every site and the edges to them, ``(sites, degree)``, padded with the weightless edge ``m``;
    ``None`` if the padding would outweigh the edges."""
    count = len(edges.array)
    ends = edges.array.T.reshape(-1)
    others = edges.array[:, ::-1].T.reshape(-1)
    order = np.argsort(ends, kind="stable")
    degrees = np.bincount(ends, minlength=sites)
    most = int(degrees.max())
    if most * sites > 8 * len(ends) + 64:
        return None
    place = np.arange(len(ends)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    table, numbers = np.zeros((sites, most), np.int32), np.full((sites, most), count, np.int32)
    table[ends[order], place], numbers[ends[order], place] = others[order], order % count
    return table, numbers
