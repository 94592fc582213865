"""Energies on graphs and lattices: Ising (pairwise Markov random fields), Potts and Gaussian fields."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import (
    HasAnnealing,
    HasLogits,
    HasLogZ,
    HasSampler,
    Space,
    check_point,
    finite,
    is_concrete,
    key_and_shape,
    positive,
    whole_number,
)
from thalweg.core.random import log_uniform, normal, uniform
from thalweg.energies.couplings import AbstractCoupling, as_coupling
from thalweg.energies.pairwise import AbstractPairwise
from thalweg.spaces import Binary, Categorical, Finite, Real, Spin
from thalweg.spaces.continuous import real_space


class AbstractIsing(AbstractPairwise, HasLogits, HasAnnealing):
    """``E(x) = -½ xᵀWx - bᵀx`` on spins or bits: what `Ising` and `Hopfield` have in common."""

    bias: eqx.AbstractVar[Array]
    space: eqx.AbstractVar[Finite]

    def __call__(self, x: Array) -> Array:
        check_point(x, self.space.shape)
        point = x.astype(self.bias.dtype)
        return -0.5 * jnp.dot(point, self.coupling.field(point)) - jnp.dot(self.bias, point)

    def annealed(self, beta: Array, field: Array) -> Any:
        return eqx.tree_at(lambda model: model.bias, self.scaled(beta), beta * self.bias + (1 - beta) * field)

    @property
    def own_field(self) -> Array:
        return self.bias

    def logits(self, x: Array) -> Array:
        local = self.bias + self.coupling.field(x.astype(self.bias.dtype))
        return local[:, None] * jnp.array(self.space.levels)

    def _to_values(self, x: Array) -> Array:
        return x.T.astype(self.bias.dtype)

    def _to_points(self, values: Array) -> Array:
        return values.T

    def _noise(self, key: PRNGKeyArray, sites: int, chains: int) -> Array:
        return uniform(key, (sites, chains))

    def _draw(self, noise: Array, field: Array, sites: Any) -> Array:
        low, high = self.space.levels
        # u < σ(logit), with one exponential and no division
        up = noise * (1 + jnp.exp((low - high) * (self.bias[sites, None] + field))) < 1
        return jnp.where(up, high, low).astype(self.bias.dtype)


class Ising(AbstractIsing):
    r"""A pairwise Markov random field, ``E(x) = -½ xᵀWx - bᵀx``, W symmetric with zero diagonal.

    On spins (±1) the full conditionals are ``p(x_k = 1 | rest) = σ(2b_k + 2Σ_j W_kj x_j)``, on bits ({0, 1})
    ``σ(b_k + Σ_j W_kj x_j)``. Reference: Besag (1974), J. R. Stat. Soc. B 36.

    Args:
        coupling: a matrix ``(n, n)`` (or `Matrix`, which takes a mask), or a `Graph` (sparse), or a `Grid` (lattice).
        bias: b, ``(n,)`` or one number for all.
        space: `Spin` (the default) or `Binary` of n sites.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> lattice = tw.energies.Ising(tw.energies.Grid((4, 4), weight=0.4))
    >>> float(lattice(jnp.ones(16, int)))
    -12.8...
    """

    coupling: AbstractCoupling
    bias: Array
    space: Finite = eqx.field(static=True)

    def __init__(self, coupling: Any, bias: Any = 0.0, space: Space | None = None):
        self.coupling = as_coupling(coupling)
        sites = self.coupling.sites
        self.bias = per_site("bias", bias, (sites,))
        self.space = Spin(sites) if space is None else space  # pyright: ignore[reportAttributeAccessIssue]
        if not isinstance(self.space, (Spin, Binary)) or self.space.shape != (sites,):
            raise ValueError(f"expected Spin({sites}) or Binary({sites}), got {space}; leave it out for spins")


class Potts(AbstractPairwise, HasLogits, HasAnnealing):
    r"""The Potts model, ``E(x) = -Σ_{i<j} W_ij [x_i = x_j] - Σ_i b_i[x_i]``, on {0, …, k-1}^n.

    Full conditionals: ``p(x_i = c | rest) ∝ exp(b_i[c] + Σ_j W_ij [x_j = c])``. A point may also be given as one-hot
    rows ``(n, k)``, in which the energy has gradients. Reference: Wu (1982), Rev. Mod. Phys. 54.

    Args:
        coupling: a matrix ``(n, n)`` (or `Matrix`, which takes a mask), a `Graph` or a `Grid`.
        k: the number of labels.
        bias: ``(n, k)``, or anything that broadcasts to it.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Potts(tw.energies.Graph([(0, 1), (1, 2)], 1.0), k=3)
    >>> float(energy(jnp.array([2, 2, 0])))
    -1.0
    """

    coupling: AbstractCoupling
    bias: Array
    space: Categorical = eqx.field(static=True)

    def __init__(self, coupling: Any, k: int, bias: Any = 0.0):
        self.coupling = as_coupling(coupling)
        self.space = Categorical(self.coupling.sites, whole_number("k", k, 2, "a site with one label is a constant"))
        self.bias = per_site("bias", bias, (self.coupling.sites, self.space.k))

    def __call__(self, x: Array) -> Array:
        labels = x
        if jnp.shape(x) != self.bias.shape or not jnp.issubdtype(x.dtype, jnp.floating):
            check_point(x, self.space.shape)
            labels = jax.nn.one_hot(x, self.space.k, dtype=self.bias.dtype)
        return -0.5 * jnp.sum(labels * self.coupling.field(labels)) - jnp.sum(self.bias * labels)

    def annealed(self, beta: Array, field: Array) -> "Potts":
        return eqx.tree_at(lambda model: model.bias, self.scaled(beta), beta * self.bias + (1 - beta) * field)

    @property
    def own_field(self) -> Array:
        return self.bias

    def logits(self, x: Array) -> Array:
        return self.bias + self.coupling.field(jax.nn.one_hot(x, self.space.k, dtype=self.bias.dtype))

    def _to_values(self, x: Array) -> Array:
        return jax.nn.one_hot(x.T, self.space.k, dtype=self.bias.dtype)

    def _to_points(self, values: Array) -> Array:
        return jnp.argmax(values, axis=-1).T

    def _noise(self, key: PRNGKeyArray, sites: int, chains: int) -> Array:
        # Gumbel noise: log p_c + noise_c is largest at c with probability p_c
        return -jnp.log(-log_uniform(key, (sites, chains, self.space.k)))

    def _draw(self, noise: Array, field: Array, sites: Any) -> Array:
        best = jnp.argmax(noise + field + self.bias[sites, None], axis=-1)
        return jax.nn.one_hot(best, self.space.k, dtype=self.bias.dtype)


class GaussianField(AbstractPairwise, HasLogZ, HasSampler):
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

    coupling: AbstractCoupling
    diagonal: Array
    shift: Array

    def __init__(self, coupling: Any, diagonal: Any, shift: Any = 0.0):
        self.coupling = as_coupling(coupling)
        sites = self.coupling.sites
        self.diagonal = per_site("diagonal", positive("diagonal", diagonal), (sites,))
        self.shift = per_site("shift", shift, (sites,))
        precision = self.precision
        if is_concrete(precision) and np.linalg.eigvalsh(precision)[0] <= 0:
            raise ValueError(
                f"expected a positive-definite J = diag(d) - W, got one with smallest eigenvalue "
                f"{np.linalg.eigvalsh(precision)[0]:.3g}; raise the diagonal or weaken the couplings"
            )

    @property
    def space(self) -> Real:  # pyright: ignore[reportIncompatibleVariableOverride]
        return real_space(self.coupling.sites)

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
        check_point(x, self.shift.shape)
        return 0.5 * jnp.dot(x, self.diagonal * x - self.coupling.field(x)) - jnp.dot(self.shift, x)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        key, shape = key_and_shape(key, shape)
        # J = LLᵀ, so L⁻ᵀε has covariance J⁻¹
        factor = jnp.linalg.cholesky(self.precision)
        noise = jax.random.normal(key, (*shape, self.coupling.sites))
        solved = jax.scipy.linalg.solve_triangular(factor.T, noise.reshape(-1, self.coupling.sites).T, lower=False)
        return self.mean + solved.T.reshape(noise.shape)

    def _to_values(self, x: Array) -> Array:
        return x.T

    def _to_points(self, values: Array) -> Array:
        return values.T

    def _noise(self, key: PRNGKeyArray, sites: int, chains: int) -> Array:
        return normal(key, (sites, chains))

    def _draw(self, noise: Array, field: Array, sites: Any) -> Array:
        variance = 1 / self.diagonal[sites, None]
        return (self.shift[sites, None] + field) * variance + noise * jnp.sqrt(variance)


def per_site(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    """``value`` as an array of ``shape``, one entry per site, or one number for all sites."""
    array = finite(name, value)
    try:
        return jnp.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"expected {name} of shape {shape}, got {array.shape}; give one entry per site") from None
