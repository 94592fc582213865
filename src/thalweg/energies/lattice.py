"""Energies on graphs and lattices: Ising (pairwise Markov random fields), Potts and Gaussian fields."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import HasConditionals, HasLogits, HasLogZ, HasSampler, Space, is_concrete
from thalweg.spaces import Binary, Categorical, Finite, Real, Spin


class Coupling(eqx.Module):
    """A symmetric matrix W with zero diagonal, in whatever form: what it does to a vector, and which sites it ties."""

    sites: eqx.AbstractVar[int]

    @abc.abstractmethod
    def field(self, x: Array) -> Array:
        """``Σ_j W_kj x_j`` for every site k; ``x`` is ``(sites, ...)``."""

    @abc.abstractmethod
    def colours(self) -> np.ndarray:
        """Boolean ``(colours, sites)``: groups of sites no two of which are tied."""


class Matrix(Coupling):
    """A full matrix."""

    weights: Array

    def __init__(self, weights: Any):
        matrix = jnp.asarray(weights, float)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"expected a square matrix of couplings, got shape {matrix.shape}; give one row per site")
        if is_concrete(matrix):
            whole = np.asarray(matrix)
            if not np.array_equal(whole, whole.T) or np.any(np.diag(whole)):
                raise ValueError(
                    "expected symmetric couplings with a zero diagonal, got others; "
                    "use (W + W.T) / 2 and put the diagonal into the bias"
                )
        self.weights = matrix

    @property
    def sites(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.weights.shape[0]

    def field(self, x: Array) -> Array:
        # of a matrix in training only the symmetric part off the diagonal is a coupling, and only that has a gradient
        couplings = (self.weights + self.weights.T) / 2 * (1 - jnp.eye(self.sites))
        return couplings @ x

    def colours(self) -> np.ndarray:
        if not is_concrete(self.weights):
            return np.eye(self.sites, dtype=bool)
        first, second = np.nonzero(np.triu(np.asarray(self.weights)))
        return colour(self.sites, np.stack([first, second], axis=1))


class Graph(Coupling):
    """A sparse graph: ``edges`` ``(m, 2)``, each listed once, and one weight per edge."""

    sites: int = eqx.field(static=True)
    edges: Array
    weights: Array

    def __init__(self, edges: Any, weights: Any, sites: int | None = None):
        pairs = np.asarray(edges)
        if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
            raise ValueError(f"expected edges as whole numbers (m, 2), got shape {pairs.shape}; give pairs of sites")
        if np.any(pairs[:, 0] == pairs[:, 1]) or len(np.unique(np.sort(pairs, axis=1), axis=0)) < len(pairs):
            raise ValueError("expected every edge once and none from a site to itself, got others; remove them")
        self.sites = int(pairs.max()) + 1 if sites is None else int(sites)
        self.edges = jnp.asarray(pairs)
        self.weights = jnp.broadcast_to(jnp.asarray(weights, float), (len(pairs),))

    def field(self, x: Array) -> Array:
        first, second = self.edges[:, 0], self.edges[:, 1]
        weights = self.weights.reshape(-1, *[1] * (x.ndim - 1))
        return jnp.zeros(x.shape, weights.dtype).at[first].add(weights * x[second]).at[second].add(weights * x[first])

    def colours(self) -> np.ndarray:
        return colour(self.sites, np.asarray(self.edges))


class Grid(Coupling):
    """A 2-D lattice, ``rows × columns`` sites in reading order, one weight for all nearest neighbours."""

    shape: tuple[int, int] = eqx.field(static=True)
    weight: Array
    periodic: bool = eqx.field(static=True)

    def __init__(self, shape: tuple[int, int], weight: Any = 1.0, periodic: bool = True):
        if periodic and min(shape) < 3:
            raise ValueError(
                f"expected at least 3 sites round a torus, got {shape}; use periodic=False for small lattices"
            )
        self.shape, self.weight, self.periodic = shape, jnp.asarray(weight, float), periodic

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

    def colours(self) -> np.ndarray:
        rows, columns = np.indices(self.shape)
        if not self.periodic or (self.shape[0] % 2 == 0 and self.shape[1] % 2 == 0):
            even = ((rows + columns) % 2 == 0).reshape(-1)
            return np.stack([even, ~even])
        number = np.arange(self.sites).reshape(self.shape)
        edges = [np.stack([number, np.roll(number, -1, axis)], axis=-1).reshape(-1, 2) for axis in (0, 1)]
        return colour(self.sites, np.concatenate(edges))


def colour(sites: int, edges: np.ndarray) -> np.ndarray:
    """Greedy colouring, the most tied sites first: boolean ``(colours, sites)``."""
    neighbours: list[set[int]] = [set() for _ in range(sites)]
    for first, second in edges.tolist():
        neighbours[first].add(second)
        neighbours[second].add(first)
    colours = np.full(sites, -1)
    for site in sorted(range(sites), key=lambda s: -len(neighbours[s])):
        taken = {colours[other] for other in neighbours[site]}
        colours[site] = next(c for c in range(sites) if c not in taken)
    return colours == np.arange(colours.max() + 1)[:, None]


def _coupling(value: Any) -> Coupling:
    return value if isinstance(value, Coupling) else Matrix(value)


class Ising(HasLogits):
    r"""A pairwise Markov random field, ``E(x) = -½ xᵀWx - bᵀx``, W symmetric with zero diagonal.

    On spins (±1) the full conditionals are ``p(x_k = 1 | rest) = σ(2b_k + 2Σ_j W_kj x_j)``, on bits ({0, 1})
    ``σ(b_k + Σ_j W_kj x_j)``. Reference: Besag (1974), J. R. Stat. Soc. B 36.

    Args:
        coupling: a matrix ``(n, n)``, or a `Graph` (sparse), or a `Grid` (2-D lattice).
        bias: b, ``(n,)`` or one number for all.
        space: `Spin` (the default) or `Binary` of n sites.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> lattice = tw.energies.Ising(tw.energies.Grid((4, 4), weight=0.4))
    >>> float(lattice(jnp.ones(16, int)))
    -12.8...
    """

    coupling: Coupling
    bias: Array
    space: Finite = eqx.field(static=True)
    blocks: Array

    def __init__(self, coupling: Any, bias: Any = 0.0, space: Space | None = None):
        self.coupling = _coupling(coupling)
        sites = self.coupling.sites
        self.bias = _per_site("bias", bias, (sites,))
        self.space = Spin(sites) if space is None else space  # pyright: ignore[reportAttributeAccessIssue]
        if not isinstance(self.space, (Spin, Binary)) or self.space.shape != (sites,):
            raise ValueError(f"expected Spin({sites}) or Binary({sites}), got {space}; leave it out for spins")
        self.blocks = jnp.asarray(self.coupling.colours())

    def __call__(self, x: Array) -> Array:
        point = x.astype(self.bias.dtype)
        return -0.5 * jnp.dot(point, self.coupling.field(point)) - jnp.dot(self.bias, point)

    def logits(self, x: Array) -> Array:
        local = self.bias + self.coupling.field(x.astype(self.bias.dtype))
        return local[:, None] * jnp.array(self.space.levels)

    def resample(self, key: PRNGKeyArray, x: Array, block: Array) -> Array:
        low, high = self.space.levels
        logits = self.logits(x)
        up = jax.random.bernoulli(key, jax.nn.sigmoid(logits[:, 1] - logits[:, 0]))
        return jnp.where(block, jnp.where(up, high, low).astype(x.dtype), x)

    def scaled(self, factor: Array) -> "Ising":
        return _scaled(self, factor)


class Potts(HasLogits):
    r"""The Potts model, ``E(x) = -Σ_{i<j} W_ij [x_i = x_j] - Σ_i b_i[x_i]``, on {0, …, k-1}^n.

    Full conditionals: ``p(x_i = c | rest) ∝ exp(b_i[c] + Σ_j W_ij [x_j = c])``.
    Reference: Wu (1982), Rev. Mod. Phys. 54.

    Args:
        coupling: a matrix ``(n, n)``, a `Graph` or a `Grid`.
        k: the number of labels.
        bias: ``(n, k)``, or anything that broadcasts to it.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Potts(tw.energies.Graph([(0, 1), (1, 2)], 1.0), k=3)
    >>> float(energy(jnp.array([2, 2, 0])))
    -1.0
    """

    coupling: Coupling
    bias: Array
    space: Categorical = eqx.field(static=True)
    blocks: Array

    def __init__(self, coupling: Any, k: int, bias: Any = 0.0):
        self.coupling = _coupling(coupling)
        self.space = Categorical(self.coupling.sites, k)
        self.bias = _per_site("bias", bias, (self.coupling.sites, k))
        self.blocks = jnp.asarray(self.coupling.colours())

    def __call__(self, x: Array) -> Array:
        # an array of shape (n, k) is the same point with its labels spelt out: what gradients are taken in
        labels = x if x.ndim == 2 else jax.nn.one_hot(x, self.space.k, dtype=self.bias.dtype)
        return -0.5 * jnp.sum(labels * self.coupling.field(labels)) - jnp.sum(self.bias * labels)

    def logits(self, x: Array) -> Array:
        return self.bias + self.coupling.field(jax.nn.one_hot(x, self.space.k, dtype=self.bias.dtype))

    def resample(self, key: PRNGKeyArray, x: Array, block: Array) -> Array:
        return jnp.where(block, jax.random.categorical(key, self.logits(x)).astype(x.dtype), x)

    def scaled(self, factor: Array) -> "Potts":
        return _scaled(self, factor)


class GaussianField(HasConditionals, HasLogZ, HasSampler):
    r"""A Gaussian Markov random field, ``E(x) = ½xᵀJx - gᵀx`` with ``J ≻ 0``: mean ``J⁻¹g``, covariance ``J⁻¹``.

    ``J = diag(d) - W`` with W a coupling, so J may be sparse. ``log Z = ½gᵀJ⁻¹g - ½log det(J/2π)``. Full conditionals:
    ``x_k | rest ~ N((g_k + Σ_j W_kj x_j)/d_k, 1/d_k)``. Reference: Rue and Held (2005), Gaussian Markov Random Fields.

    Args:
        coupling: W, minus the off-diagonal part of J: a matrix, a `Graph` or a `Grid`.
        diagonal: d, ``(n,)`` or one number for all.
        shift: g, ``(n,)`` or one number for all.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> field = tw.energies.GaussianField(tw.energies.Grid((3, 3), weight=0.2), diagonal=1.0, shift=1.0)
    >>> field.mean.shape
    (9,)
    """

    coupling: Coupling
    diagonal: Array
    shift: Array
    blocks: Array

    def __init__(self, coupling: Any, diagonal: Any, shift: Any = 0.0):
        self.coupling = _coupling(coupling)
        sites = self.coupling.sites
        self.diagonal = _per_site("diagonal", diagonal, (sites,))
        self.shift = _per_site("shift", shift, (sites,))
        self.blocks = jnp.asarray(self.coupling.colours())
        precision = self.precision
        if is_concrete(precision) and np.linalg.eigvalsh(precision)[0] <= 0:
            raise ValueError(
                f"expected a positive-definite J = diag(d) - W, got one with smallest eigenvalue "
                f"{np.linalg.eigvalsh(precision)[0]:.3g}; raise the diagonal or weaken the couplings"
            )

    @property
    def space(self) -> Real:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Real(self.coupling.sites)

    @property
    def precision(self) -> Array:
        """J as a full matrix."""
        return jnp.diag(self.diagonal) - self.coupling.field(jnp.eye(self.coupling.sites))

    @property
    def mean(self) -> Array:
        """``J⁻¹g``."""
        return jnp.linalg.solve(self.precision, self.shift)

    @property
    def covariance(self) -> Array:
        """``J⁻¹``."""
        return jnp.linalg.inv(self.precision)

    @property
    def log_z(self) -> Array:
        sign_and_log = jnp.linalg.slogdet(self.precision / (2 * jnp.pi))
        return 0.5 * jnp.dot(self.shift, self.mean) - 0.5 * sign_and_log[1]

    def __call__(self, x: Array) -> Array:
        return 0.5 * jnp.dot(x, self.diagonal * x - self.coupling.field(x)) - jnp.dot(self.shift, x)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        # J = LLᵀ, so L⁻ᵀε has covariance J⁻¹
        factor = jnp.linalg.cholesky(self.precision)
        noise = jax.random.normal(key, (*shape, self.coupling.sites))
        solved = jax.scipy.linalg.solve_triangular(factor.T, noise.reshape(-1, self.coupling.sites).T, lower=False)
        return self.mean + solved.T.reshape(noise.shape)

    def resample(self, key: PRNGKeyArray, x: Array, block: Array) -> Array:
        mean = (self.shift + self.coupling.field(x)) / self.diagonal
        return jnp.where(block, mean + jax.random.normal(key, x.shape) / jnp.sqrt(self.diagonal), x)

    def scaled(self, factor: Array) -> "GaussianField":
        return _scaled(self, factor)


def _scaled(energy: Any, factor: Array) -> Any:
    """All floating-point parameters times ``factor``: these energies are linear in them."""
    return jax.tree.map(lambda leaf: leaf * factor if eqx.is_inexact_array(leaf) else leaf, energy)


def _per_site(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    array = jnp.asarray(value, float)
    try:
        return jnp.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"expected {name} of shape {shape}, got {array.shape}; give one entry per site") from None
