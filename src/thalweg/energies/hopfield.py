"""Hopfield networks: energies of spins with stored patterns as their minima, and three rules to store them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from thalweg.core import is_concrete, one_of, typed_key, whole_number
from thalweg.energies.couplings import Matrix
from thalweg.energies.lattice import AbstractIsing, per_site
from thalweg.energies.recall import Recall, as_held, as_spins, settle_asynchronously, settle_synchronously
from thalweg.spaces import Spin


class Hopfield(AbstractIsing):
    r"""A Hopfield network: ``E(x) = -½ xᵀWx - bᵀx`` on ±1 units, W symmetric with zero diagonal.

    It is the `Ising` model of a full matrix with another use: `recall` goes down the energy to a minimum, where a
    pattern is stored. `hebb`, `storkey` and `pseudo_inverse` make one from patterns. As an energy it can be sampled,
    clamped and trained like any other. Reference: Hopfield (1982), PNAS 79.

    Args:
        weights: W, ``(n, n)``, or a `Matrix` with a mask of connections.
        bias: b, ``(n,)`` or one number for all.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> network = tw.energies.Hopfield(jnp.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> network.recall(jnp.array([[1, 0]])).states.tolist()  # the second unit is unknown
    [[1, 1]]
    """

    coupling: Matrix
    bias: Array
    space: Spin = eqx.field(static=True)

    def __init__(self, weights: Any, bias: Any = 0.0):
        self.coupling = weights if isinstance(weights, Matrix) else Matrix(weights)
        self.bias = per_site("bias", bias, (self.coupling.sites,))
        self.space = Spin(self.coupling.sites)

    @property
    def weights(self) -> Array:
        """W, ``(n, n)``."""
        return self.coupling.couplings

    def recall(
        self, probes: Any, *, held: Any = None, update: str = "asynchronous", steps: int = 100, key: Any = None
    ) -> Recall:
        """The fixed points that probes run into: corrupted patterns restored, partial ones completed.

        Asynchronous updates, unit after unit, never raise the energy and end in a fixed point. Synchronous ones, all
        units at once, may end in a cycle of two states, which ``period`` says.

        Args:
            probes: ``(probes, n)`` of -1, 1, and 0 for an unknown unit, which has no influence before it is set.
            held: boolean ``(n,)`` or ``(probes, n)``: units that keep their values.
            update: "asynchronous" or "synchronous".
            steps: the largest number of steps; an asynchronous step is a sweep over all units.
            key: for asynchronous updates in a new random order each sweep; without it, the order of the units.

        >>> import jax, thalweg as tw
        >>> key_patterns, key_noise = jax.random.split(jax.random.key(0))
        >>> patterns = jax.random.rademacher(key_patterns, (5, 200))
        >>> noisy = patterns * jnp.where(jax.random.uniform(key_noise, (5, 200)) < 0.2, -1, 1)  # a fifth flipped
        >>> bool(jnp.all(tw.energies.hebb(patterns).recall(noisy).states == patterns))
        True
        """
        start = as_spins("probes", probes, self.coupling.sites, zero=True)
        mask = as_held(held, start.shape)
        if is_concrete(mask) and is_concrete(start):
            wrong = np.argwhere(np.asarray(mask) & (np.asarray(start) == 0))
            if len(wrong):
                raise ValueError(
                    f"expected -1 or 1 at every held unit, got 0 in row {wrong[0][0]}, column {wrong[0][1]}; "
                    "an unknown unit cannot be held"
                )
        most = jnp.asarray(whole_number("steps", steps))
        if one_of("update", update, ("asynchronous", "synchronous")) == "asynchronous":
            key = None if key is None else typed_key(key)
            ended = settle_asynchronously(self.weights, self.bias, start, mask, most, key)
        elif key is None:
            ended = settle_synchronously(self.weights, self.bias, start, mask, most)
        else:
            raise ValueError("expected no key for synchronous updates, which have no order, got one; leave it out")
        states, taken, period = ended
        return Recall(states, jax.vmap(self)(states), taken, period)


def hebb(patterns: Any) -> Hopfield:
    """Hebb's rule: ``W = (1/n) Σ_μ ξ^μ ξ^μᵀ`` with zero diagonal. It holds about 0.138 n random patterns.

    Args:
        patterns: ``(patterns, n)`` of -1 and 1.

    Reference: Hopfield (1982), PNAS 79; Amit, Gutfreund and Sompolinsky (1985), Phys. Rev. Lett. 55, for the capacity.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> tw.energies.hebb(jnp.array([[1, -1, 1, 1]])).weights[0].tolist()
    [0.0, -0.25, 0.25, 0.25]
    """
    rows = _as_patterns(patterns)
    products = rows.T @ rows / rows.shape[1]
    np.fill_diagonal(products, 0.0)
    return Hopfield(products)


def storkey(patterns: Any) -> Hopfield:
    """Storkey's rule, pattern after pattern: ``W_ij += (ξ_i ξ_j - ξ_i h_ji - h_ij ξ_j) / n``, with zero diagonal.

    Here ``h_ij = Σ_{k ≠ i,j} W_ik ξ_k`` is the field at unit i without units i and j, before the update. It holds more
    patterns than Hebb's rule, ``n / √(2 log n)`` against ``n / (2 log n)`` without any error, also if they are
    correlated, and is still local and incremental.

    Args:
        patterns: ``(patterns, n)`` of -1 and 1, in the order in which they are stored.

    Reference: Storkey (1997), ICANN; Storkey and Valabregue (1999), Neural Networks 12.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> tw.energies.storkey(jnp.array([[1, -1, 1, 1]])).weights[0].tolist()  # as Hebb's rule for the first pattern
    [0.0, -0.25, 0.25, 0.25]
    """
    rows = _as_patterns(patterns)
    units = rows.shape[1]
    weights = np.zeros((units, units))
    for pattern in rows:
        # h_ij = field_i - W_ij ξ_j, and ξ_i² = 1
        field = weights @ pattern
        cross = np.outer(pattern, field)
        weights += (np.outer(pattern, pattern) - (cross + cross.T) + 2 * weights) / units
        np.fill_diagonal(weights, 0.0)
    return Hopfield(weights)


def pseudo_inverse(patterns: Any) -> Hopfield:
    """The projection rule: ``W = Ξ⁺Ξ``, the projection onto the span of the patterns, then with zero diagonal.

    Each of fewer than n linearly independent patterns is a fixed point, also if they are correlated: the field at a
    stored pattern is ``(1 - P_ii) ξ_i``, P being the projection before its diagonal is removed. Where ``P_ii = 1`` the
    unit has no connections and stays as it is.

    Args:
        patterns: ``(patterns, n)`` of -1 and 1, fewer than n, linearly independent.

    Reference: Personnaz, Guyon and Dreyfus (1985), J. Physique Lettres 46.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> patterns = jnp.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, -1, -1]])  # nearly the same
    >>> bool(jnp.all(tw.energies.pseudo_inverse(patterns).recall(patterns).states == patterns))
    True
    """
    rows = _as_patterns(patterns)
    count, units = rows.shape
    if count >= units:
        raise ValueError(
            f"expected fewer patterns than the {units} units, which a pseudo-inverse can hold, got {count}; "
            "store fewer, or use ModernHopfield"
        )
    rank = np.linalg.matrix_rank(rows)
    if rank < count:
        raise ValueError(
            f"expected linearly independent patterns for a pseudo-inverse, got {count} of rank {rank}; "
            "leave out the copies, negatives and combinations of others"
        )
    basis, _ = np.linalg.qr(rows.T)
    projection = basis @ basis.T
    projection = (projection + projection.T) / 2
    np.fill_diagonal(projection, 0.0)
    # rounding errors would be the whole field of a unit with P_ii = 1
    return Hopfield(np.where(np.abs(projection) < 1e-12, 0.0, projection))


def _as_patterns(patterns: Any) -> np.ndarray:
    """Patterns ``(patterns, n)`` in double precision, with n at least 2."""
    if not is_concrete(patterns):
        raise ValueError("expected patterns that are known now, got traced ones; store them outside jit")
    rows = np.asarray(as_spins("patterns", patterns), float)
    if rows.shape[1] < 2:
        raise ValueError("expected patterns of at least 2 units, got 1; a unit alone has no connections")
    return rows
