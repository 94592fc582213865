"""Maximum entropy: the density of largest entropy among those whose features have given means."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from thalweg.core import Estimate, Space, compiled, finite, is_concrete, one_of, typed_key, whole_number
from thalweg.energies.maximum_entropy import MaximumEntropy, count_features, feature_vector
from thalweg.exact.enumeration import MOST_STATES
from thalweg.exact.quadrature import MOST_DIMENSIONS, plan
from thalweg.machines.convex_dual import Blocks, Dual, Unattainable, solve
from thalweg.machines.entropy_by_chains import fit_by_chains
from thalweg.machines.maximum_entropy_fit import MaximumEntropyFit
from thalweg.spaces import Finite, Interval, Positive, Real

# above this number of states, chains are the default
_FEW_STATES = 2**20
_BLOCK = 2**14
# tables of features up to this many numbers are kept between the evaluations of the dual
_KEPT = 2**24
# nodes for each dimension of a quadrature rule
_NODES = {1: 4096, 2: 256, 3: 64}
# the extent of the first box on an unbounded side, the largest, and the box around a density in standard deviations
_FIRST, _LAST, _WIDTH = 10.0, 1e5, 12.0
_EMPTY = 1e-9


def fit_maximum_entropy(
    features: Callable[..., Any],
    means: Any,
    space: Space,
    *,
    method: str | None = None,
    bounds: Any = None,
    start: Any = None,
    kernel: Any = None,
    chains: int = 512,
    updates: int = 400,
    steps: int | None = None,
    key: Any = None,
) -> MaximumEntropyFit:
    r"""The density of maximum entropy under ``E_p[f(x)] = μ``: ``p(x) ∝ exp(η·f(x))`` with the η that gives the means.

    η minimises the convex dual ``A(η) - η·μ``, with ``A(η) = log ∫ exp(η·f(x)) dx``. On finite spaces of up to 2^20
    states A is a sum, and in up to three dimensions of `Real`, `Positive` and `Interval` an integral, both minimised by
    Newton's method. Elsewhere η follows the means of persistent chains by stochastic approximation: steps of decreasing
    size, averaged; the entropy is then estimated by thermodynamic integration. Means that no density has are refused.
    Reference: Jaynes (1957), Phys. Rev. 106; Polyak and Juditsky (1992) for the averaging.

    Args:
        features: f, a function of one point that returns numbers ``(k,)``, or one number.
        means: μ, ``(k,)``, or one number.
        space: where x lives.
        method: "enumeration", "quadrature" or "chains"; by default the first of these that the space allows.
        bounds: ``(low, high)`` for quadrature on unbounded spaces, if p lies far out or is very narrow; numbers or
            arrays of the point's shape. By default a box is found around the density.
        start: η at which chains start; needed on `Real`, where ``η = 0`` is no density.
        kernel: the kernel of the chains; by default `GibbsWithGradients` on bits and spins, where features must be
            functions of real numbers too, `MetropolisHastings` with another label at one site on `Categorical`, and
            `HMC`, tuned by `warm_up`, on `Real` and `Interval`.
        chains: the number of chains.
        updates: the number of updates of η by chains; the second half is averaged.
        steps: the number of kernel steps for each update; by default one per site on finite spaces, and at least 10.
        key: for chains.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> faces = tw.Categorical((), k=6)  # Jaynes's dice: faces 0 to 5 stand for 1 to 6
    >>> fit = tw.machines.fit_maximum_entropy(lambda x: x + 1.0, 4.5, faces)
    >>> [f"{float(p):.4f}" for p in tw.exact.probabilities(fit.energy)]
    ['0.0544', '0.0788', '0.1142', '0.1654', '0.2398', '0.3475']
    """
    if not is_concrete(finite("means", means)):
        raise ValueError("expected means that are known now, got traced ones; fit outside jit")
    target = np.atleast_1d(np.asarray(means, float))
    energy = MaximumEntropy(features, jnp.zeros(count_features(features, space)), space)
    if target.shape != energy.natural.shape:
        raise ValueError(
            f"expected one mean for each of the {energy.natural.size} features, got shape {target.shape}; "
            f"give shape {energy.natural.shape}"
        )
    chosen = _choose(method, space)
    if chosen == "chains":
        if key is None:
            raise ValueError(f"expected a key for chains on {space}, got none; give key=jax.random.key(0)")
        if bounds is not None:
            raise ValueError("expected no bounds for chains, got some; use an Interval, or leave them out")
        natural = None if start is None else MaximumEntropy(features, start, space).natural
        chains, updates = whole_number("chains", chains, 2), whole_number("updates", updates, 2)
        steps = None if steps is None else whole_number("steps", steps)
        return fit_by_chains(energy, target, natural, kernel, chains, updates, steps, typed_key(key))
    if start is not None or kernel is not None:
        raise ValueError(f"expected no start and no kernel for {chosen}, got one; they are for method='chains'")
    if chosen == "quadrature":
        natural, dual = _integrate(energy, target, bounds)
    else:
        if bounds is not None:
            raise ValueError(f"expected no bounds on {space}, whose states are all summed, got some; leave them out")
        natural, dual = _solve(target, _state_blocks(energy), space)
    gap = float(natural @ (dual.means - target))
    exactly = lambda value: Estimate(value, value, value, 1.0, chosen)
    fitted = MaximumEntropy(features, natural, space)
    return MaximumEntropyFit(fitted, fitted.natural, jnp.asarray(dual.means), exactly(dual.value - gap), exactly(gap))


def _choose(method: str | None, space: Space) -> str:
    """The method, and whether the space allows it."""
    finite_space = isinstance(space, Finite)
    few = isinstance(space, (Real, Positive, Interval)) and math.prod(space.shape) <= MOST_DIMENSIONS
    if method is None:
        return "enumeration" if finite_space and space.size <= _FEW_STATES else "quadrature" if few else "chains"
    one_of("method", method, ("enumeration", "quadrature", "chains"))
    if method == "enumeration" and not (finite_space and space.size <= MOST_STATES):
        raise ValueError(f"expected a finite space of at most 2^25 states for enumeration, got {space}; use chains")
    if method == "quadrature" and not few:
        raise ValueError(
            f"expected Real, Positive or Interval of at most {MOST_DIMENSIONS} dimensions for quadrature, got {space}; "
            "use enumeration on finite spaces, chains on others"
        )
    return method


def _solve(target: np.ndarray, blocks: Blocks, where: Any, hint: str = "") -> tuple[np.ndarray, Dual]:
    """η and the dual there; means that no density has are refused with the reason."""
    try:
        return solve(blocks, target)
    except Unattainable as problem:
        lows, highs = zip(*((rows.min(axis=0), rows.max(axis=0)) for rows, _ in blocks()), strict=True)
        low, high = np.min(lows, axis=0), np.max(highs, axis=0)
        outside = (target <= low) | (target >= high)
        if outside.any():
            worst = int(np.argmax(outside))
            raise ValueError(
                f"expected a mean between {low[worst]:.6g} and {high[worst]:.6g} for feature {worst}, whose values on "
                f"{where} these are, got {target[worst]:.6g}; no finite η has it{hint}"
            ) from None
        direction = np.round(problem.args[0] / np.abs(problem.args[0]).max(), 4).tolist()
        raise ValueError(
            f"expected means that some density on {where} has, got means at or beyond the edge of the possible ones: "
            f"with a = {direction!s:.200}, a·f(x) is never above a·means; move them inwards{hint}"
        ) from None


@compiled
def _features(energy: MaximumEntropy, points: Array) -> Array:
    return jax.vmap(lambda x: feature_vector(energy.features, x))(points)


def _table(energy: MaximumEntropy, points: Array) -> np.ndarray:
    """The features of points in double precision; raises if one is not finite."""
    rows = np.asarray(_features(energy, points), float)
    wrong = ~np.isfinite(rows)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"expected finite features, got {rows[row, column]} from feature {column} at {np.asarray(points[row])}; "
            "leave such points out of the space"
        )
    return rows


def _state_blocks(energy: MaximumEntropy) -> Blocks:
    """All states of a finite space, each with weight one."""
    space = energy.space
    assert isinstance(space, Finite)
    size, count = space.size, min(_BLOCK, space.size)

    def blocks():
        for start in range(0, size, count):
            rows = _table(energy, space.states(start, count))[: size - start]
            yield rows, np.zeros(len(rows))

    if size * energy.natural.size > _KEPT:
        return blocks
    kept = list(blocks())
    return lambda: kept


def _integrate(energy: MaximumEntropy, target: np.ndarray, bounds: Any) -> tuple[np.ndarray, Dual]:
    """η and the dual there by quadrature, on a box that is fitted to the density.

    On an unbounded side the box is widened until no mass is left at its end, then it is narrowed around the density.
    """
    limits = plan(energy.space, bounds, None, 1e-6)
    low = np.where(np.isfinite(limits.low), limits.low, -_FIRST)
    high = np.where(np.isfinite(limits.high), limits.high, np.maximum(_FIRST, low + _FIRST))
    refused = None
    while True:
        free = np.stack([low > limits.low, high < limits.high])
        width = high - low
        points, log_weights = _nodes(low, high)
        rows = _table(energy, jnp.asarray(points.reshape(-1, *energy.space.shape), jnp.result_type(float)))
        try:
            where = f"{energy.space} between {low.tolist()} and {high.tolist()}"
            hint = ", or give bounds closer to the density"
            natural, dual = _solve(target, partial(list, [(rows, log_weights)]), where, hint)
        except ValueError as problem:
            # perhaps in a wider box
            refused = refused or problem
            spill = free
        else:
            near, far, spill = _extent(points, rows @ natural + log_weights, low, high)
            spill &= free
            near, far = np.maximum(limits.low, near), np.minimum(limits.high, far)
            narrow = far - near < width / 2
            if not spill.any() and not narrow.any():
                return natural, dual
            if not spill.any():
                low, high = np.where(narrow, near, low), np.where(narrow, far, high)
                continue
        if not spill.any() or width.max() > _LAST:
            raise refused or ValueError(
                f"expected features that confine the density on {energy.space}, got mass at the end of a box from "
                f"{low.tolist()} to {high.tolist()}; add a feature such as x², or give bounds"
            )
        low, high = np.where(spill[0], low - width, low), np.where(spill[1], high + width, high)


def _extent(points: np.ndarray, log_p: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, ...]:
    """Where a density on the nodes of a box lies, ``(d,)`` twice, and which ends of the box have mass, ``(2, d)``."""
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    margin = 0.02 * (high - low)
    ends = np.stack([points < low + margin, points > high - margin])
    mean = p @ points
    reach = _WIDTH * np.sqrt(p @ (points - mean) ** 2)
    return mean - reach, mean + reach, np.einsum("i,eid->ed", p, ends) > _EMPTY


def _nodes(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points ``(n, d)`` and log weights of Gauss-Legendre rules of 8 nodes in equal cells of a box."""
    dimensions = len(low)
    count = _NODES[dimensions] // 8
    own, weights = np.polynomial.legendre.leggauss(8)
    places = ((np.arange(count)[:, None] + (own + 1) / 2) / count).reshape(-1)
    shares = np.tile(weights / 2 / count, count)
    grid = np.stack(np.meshgrid(*[places] * dimensions, indexing="ij"), axis=-1).reshape(-1, dimensions)
    log_weights = np.sum(np.meshgrid(*[np.log(shares)] * dimensions, indexing="ij"), axis=0).reshape(-1)
    return low + grid * (high - low), log_weights + np.log(high - low).sum()
