"""The modern Hopfield network: real patterns, and an update that is attention."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from thalweg.core import Energy, between, check_point, compiled, finite, is_concrete, positive, whole_number
from thalweg.energies.analytic import GaussianMixture
from thalweg.energies.recall import Recall, as_held
from thalweg.spaces import Real, as_points
from thalweg.spaces.continuous import real_space


class ModernHopfield(Energy):
    r"""The modern continuous Hopfield network of patterns ``x_1, …, x_n`` in R^d, the rows of X:

    ``E(ξ) = -lse(β, Xξ) + ½ξᵀξ + β⁻¹ log n + ½M²``, with ``lse(β, z) = β⁻¹ log Σ_i exp(βz_i)`` and M the largest norm
    of a pattern. The energy is never negative, and the update ``ξ ← Xᵀ softmax(βXξ)`` never raises it. That step is
    attention with the patterns as keys and values; for patterns that are far apart one step suffices, see
    `error_bound`. At temperature 1/β the density is a Gaussian mixture, see `mixture`. Reference: Ramsauer et al.
    (2020), Hopfield Networks is All You Need.

    Args:
        patterns: X, ``(n, d)``.
        beta: β; larger values separate closer patterns.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> patterns = jax.random.normal(jax.random.key(0), (1000, 50))  # far more patterns than coordinates
    >>> memory = tw.energies.ModernHopfield(patterns, beta=2.0)
    >>> recall = memory.recall(patterns.at[:, 25:].set(0.0))  # half of every pattern is hidden
    >>> bool(jnp.mean(jnp.linalg.norm(recall.states - patterns, axis=1) < 0.1) > 0.9)
    True
    """

    patterns: Array
    beta: Array

    def __init__(self, patterns: Any, beta: Any = 1.0):
        self.patterns, self.beta = finite("patterns", patterns), positive("beta", beta, scalar=True)
        if self.patterns.ndim != 2:
            raise ValueError(
                f"expected patterns of shape (n, d), got {self.patterns.shape}; give one row of numbers per pattern"
            )

    @property
    def space(self) -> Real:  # pyright: ignore[reportIncompatibleVariableOverride]
        return real_space(self.patterns.shape[1])

    @property
    def separations(self) -> Array:
        """``Δ_i = min_{j ≠ i} x_iᵀ(x_i - x_j)`` of every pattern, ``(n,)``; infinite for a pattern alone."""
        products = self.patterns @ self.patterns.T
        others = jnp.where(jnp.eye(len(products), dtype=bool), -jnp.inf, products)
        return jnp.diag(products) - jnp.max(others, axis=1)

    @property
    def _largest(self) -> Array:
        """M, the largest norm of a pattern."""
        return jnp.sqrt(jnp.max(jnp.sum(self.patterns**2, axis=1)))

    def __call__(self, x: Array) -> Array:
        check_point(x, self.space.shape)
        mean = jax.nn.logsumexp(self.beta * (self.patterns @ x)) - jnp.log(len(self.patterns))
        return 0.5 * (jnp.sum(x**2) + self._largest**2) - mean / self.beta

    def update(self, x: Array) -> Array:
        """``Xᵀ softmax(βXξ)`` of one point: one step of retrieval."""
        check_point(x, self.space.shape)
        return jax.nn.softmax(self.beta * (self.patterns @ x)) @ self.patterns

    def error_bound(self, x: Array, pattern: Array | int) -> Array:
        """An upper bound on ``‖update(ξ) - x_i‖``, exponentially small in β and in the separation of the pattern:
        ``2M(n - 1) exp(-β(Δ_i - 2M‖ξ - x_i‖))``.

        Proof: the error is ``Σ_j p_j (x_j - x_i)``, where ``p_j ≤ exp(-β(x_i - x_j)ᵀξ)`` and
        ``(x_i - x_j)ᵀξ ≥ Δ_i - 2M‖ξ - x_i‖``. It implies Theorem 5 of Ramsauer et al. (2020).

        >>> import jax.numpy as jnp, thalweg as tw
        >>> memory = tw.energies.ModernHopfield(3 * jnp.eye(4), beta=2.0)
        >>> point = jnp.array([2.9, 0.1, 0.0, 0.0])
        >>> bool(jnp.linalg.norm(memory.update(point) - memory.patterns[0]) < memory.error_bound(point, 0))
        True
        """
        check_point(x, self.space.shape)
        between("a pattern", pattern, 0, len(self.patterns) - 1, "patterns are numbered from 0")
        far = jnp.linalg.norm(x - self.patterns[pattern])
        exponent = self.beta * (self.separations[pattern] - 2 * self._largest * far)
        return 2 * self._largest * (len(self.patterns) - 1) * jnp.exp(-exponent)

    def mixture(self) -> GaussianMixture:
        """The energy ``β·E(ξ)`` as a mixture of ``N(x_i, I/β)`` with weights proportional to ``exp(β‖x_i‖²/2)``.

        It equals ``tempered(memory, 1/β)`` at every point, and has exact ``log_z``, samples and moments: a network at
        its own temperature draws patterns with noise of variance 1/β, those of larger norm more often.

        >>> import jax.numpy as jnp, thalweg as tw
        >>> memory = tw.energies.ModernHopfield(jnp.array([[1.0], [-2.0]]), beta=3.0)
        >>> x = jnp.array([0.4])
        >>> bool(jnp.allclose(memory.mixture()(x), 3.0 * memory(x), rtol=1e-5))
        True
        """
        count, d = self.patterns.shape
        norms = jnp.sum(self.patterns**2, axis=1) - self._largest**2
        # as logarithms: in many dimensions (2π/β)^(d/2) is no floating-point number
        log_weights = 0.5 * self.beta * norms - jnp.log(count) + 0.5 * d * jnp.log(2 * jnp.pi / self.beta)
        mixture = GaussianMixture(means=self.patterns, covariances=1 / self.beta)
        return eqx.tree_at(lambda mixture: mixture.log_weights, mixture, log_weights)

    def recall(self, probes: Any, *, held: Any = None, steps: int = 100, tolerance: float = 1e-5) -> Recall:
        """The points that probes run into under `update`, which never raises the energy.

        Args:
            probes: ``(probes, d)``; a zero says nothing about its coordinate.
            held: boolean ``(d,)`` or ``(probes, d)``: coordinates that keep their values.
            steps: the largest number of updates; one brings a pattern back if the patterns are far apart.
            tolerance: a probe has converged when no coordinate moves by more than this, relative to M.

        >>> import jax.numpy as jnp, thalweg as tw
        >>> memory = tw.energies.ModernHopfield(jnp.array([[1.0, 1.0], [-1.0, 1.0]]), beta=8.0)
        >>> memory.recall(jnp.array([[0.3, 0.0]])).states.round(2).tolist()
        [[1.0, 1.0]]
        """
        start = as_points(self.space, probes, "probes")
        if is_concrete(start) and not np.isfinite(start).all():
            raise ValueError("expected finite numbers in probes, got others; set what is unknown to zero")
        mask = as_held(held, start.shape)
        most = jnp.asarray(whole_number("steps", steps))
        return Recall(*_recall(self, start, mask, most, positive("tolerance", tolerance, scalar=True)))


@compiled
def _recall(
    memory: ModernHopfield,
    probes: Float[Array, "probes d"],
    held: Bool[Array, "probes d"],
    steps: Int[Array, ""],
    tolerance: Float[Array, ""],
) -> tuple[Array, Array, Array, Array]:
    """``(states, energies, steps, period)``."""
    least = tolerance * memory._largest

    def step(carry):
        x, moving, taken, count = carry
        new = jnp.where(held | ~moving[:, None], x, jax.vmap(memory.update)(x))
        moves = jnp.max(jnp.abs(new - x), axis=1) > least
        return new, moves, taken + moves, count + 1

    everyone = jnp.ones(len(probes), bool)
    start = (probes, everyone, jnp.zeros(len(probes), jnp.int32), jnp.zeros((), jnp.int32))
    going = lambda carry: jnp.any(carry[1]) & (carry[3] < steps)
    x, moving, taken, _ = jax.lax.while_loop(going, step, start)
    return x, jax.vmap(memory)(x), taken, jnp.where(moving, 0, 1)
