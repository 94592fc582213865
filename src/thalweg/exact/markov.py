"""Properties of a Markov chain on a finite space, from its transition matrix: reversibility, spectral gap and more."""

from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse

from thalweg.core import positive, real, static_number

# with at most this many states all eigenvalues are computed; with more, only the one that is needed (ARPACK)
_DENSE = 256


class ChainProperties(NamedTuple):
    """What `chain_properties` returns.

    - ``irreducible``: every state of positive probability can be reached from every other.
    - ``aperiodic``: the lengths of all paths from a state back to itself have greatest common divisor one.
    - ``reversible``: detailed balance, ``π_i T_ij = π_j T_ji``.
    - ``spectral_gap``: ``1 - |λ₂|``, where λ₂ is the second-largest eigenvalue of T in absolute value: the distance
      from π shrinks like ``|λ₂|ⁿ`` in n steps. Zero for a chain that is not irreducible or not aperiodic.
    - ``invariance_error``: ``Σ_j |(πT)_j - π_j|``.

    >>> import numpy as np, thalweg as tw
    >>> found = tw.exact.chain_properties(np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0.75, 0.25]))
    >>> found.irreducible, found.reversible, round(found.spectral_gap, 4)
    (True, True, 0.4)
    """

    irreducible: bool
    aperiodic: bool
    reversible: bool
    spectral_gap: float
    invariance_error: float

    def __str__(self) -> str:
        words = ("irreducible", "aperiodic", "reversible")
        first, second, third = (word if holds else f"not {word}" for word, holds in zip(words, self[:3], strict=True))
        return f"{first}, {second} and {third}, with spectral gap {self.spectral_gap:.3g}"


def chain_properties(matrix: Any, law: Any, *, tolerance: float = 2e-5) -> ChainProperties:
    r"""The long-run behaviour of the chain with transition matrix T and law π, in double precision.

    An irreducible and aperiodic chain with ``πT = π`` converges to π from every start, in a number of steps of order
    ``1/γ``, where ``γ = 1 - max{|λ| : λ an eigenvalue of T, λ ≠ 1}`` is the spectral gap. States of zero probability
    are left out, except from ``invariance_error``.

    Reference: Levin and Peres (2017), Markov Chains and Mixing Times, 2nd edition, chapters 1 and 12.

    Args:
        matrix: ``T[i, j]``, the probability of going from state i to state j, ``(states, states)``, as `gibbs_matrix`,
            `metropolis_matrix` and a kernel's ``transition_matrix`` return it.
        law: ``π``, the probabilities of the states, as `probabilities` returns them.
        tolerance: the largest rounding error. A chain counts as reversible if ``Σ_ij |π_i T_ij - π_j T_ji|`` is at most
            this, and ``T_ii`` counts as positive if it is larger (``T_ii`` is often one minus a sum). The default suits
            matrices in single precision.

    Returns:
        `ChainProperties`.

    >>> from thalweg import exact
    >>> two = exact.chain_properties([[0.7, 0.3], [0.1, 0.9]], [0.25, 0.75])  # λ₂ = 1 - 0.3 - 0.1
    >>> print(two)
    irreducible, aperiodic and reversible, with spectral gap 0.4
    >>> exact.chain_properties([[0, 1], [1, 0]], [0.5, 0.5]).aperiodic
    False
    """
    step, probabilities = _check(matrix, law)
    tolerance = static_number("tolerance", tolerance, positive)
    invariance_error = float(np.abs(probabilities @ step - probabilities).sum())
    support = probabilities > 0
    if not support.all():
        step, probabilities = step[np.ix_(support, support)], probabilities[support]
    components, periods = _communicating_classes(step, tolerance)
    irreducible, aperiodic = components == 1, bool(np.all(periods <= 1))
    flow = probabilities[:, None] * step
    reversible = bool(np.abs(flow - flow.T).sum() <= tolerance)
    gap = 1 - _second_eigenvalue(step, probabilities, reversible) if irreducible and aperiodic else 0.0
    return ChainProperties(irreducible, aperiodic, reversible, float(np.clip(gap, 0.0, 1.0)), invariance_error)


def _check(matrix: Any, law: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both in double precision; raises if they are not a transition matrix and a probability vector."""
    for name, value in (("matrix", matrix), ("law", law)):
        real(name, value)
    step, probabilities = np.asarray(matrix, np.float64), np.asarray(law, np.float64)
    if step.ndim != 2 or step.shape[0] != step.shape[1] or probabilities.shape != step.shape[:1] or not step.size:
        raise ValueError(
            f"expected a matrix (states, states) and a law (states,), got {step.shape} and {probabilities.shape}; "
            "give one row and one probability for each state"
        )
    sums = np.append(step.sum(axis=1), probabilities.sum())
    least = min(step.min(), probabilities.min())
    # a NaN fails both comparisons
    if not np.all(np.abs(sums - 1) <= 1e-4) or not least >= -1e-4:
        worst = sums[np.argmax(np.abs(sums - 1))]
        raise ValueError(
            f"expected probabilities that sum to one in every row of the matrix and in the law, got a sum of "
            f"{worst:.6g} and a smallest entry of {least:.3g}; T[i, j] goes from state i to state j"
        )
    return np.maximum(step, 0.0), np.maximum(probabilities, 0.0)


def _communicating_classes(step: np.ndarray, tolerance: float) -> tuple[int, np.ndarray]:
    """The number of classes of states that reach each other, and the period of each (0 where there is no way back).

    The period is the greatest common divisor of ``d(i) + 1 - d(j)`` over the edges ``i → j`` of the class, where d is
    the distance from any one of its states.
    """
    edges = step > 0
    # only on the diagonal is a small entry taken for rounding: elsewhere, at low temperatures, small entries are right
    np.fill_diagonal(edges, np.diag(step) > tolerance)
    graph = sparse.csr_array(edges)
    count, label = sparse.csgraph.connected_components(graph, connection="strong")
    periods = np.zeros(count, int)
    periods[label[np.diag(edges)]] = 1
    if np.all(periods == 1):
        return count, periods
    starts, ends = graph.nonzero()
    within = label[starts] == label[ends]
    starts, ends = starts[within], ends[within]
    inner = sparse.csr_array((np.ones(len(starts)), (starts, ends)), shape=graph.shape)
    _, firsts = np.unique(label, return_index=True)
    distance = sparse.csgraph.dijkstra(inner, unweighted=True, indices=firsts, min_only=True).astype(int)
    np.gcd.at(periods, label[starts], np.abs(distance[starts] + 1 - distance[ends]))
    return count, periods


def _second_eigenvalue(step: np.ndarray, law: np.ndarray, reversible: bool) -> float:
    """``|λ₂|``.

    Since ``T1 = 1``, the matrix ``T - 1πᵀ`` has the eigenvalues of T with the eigenvalue 1 replaced by 0. In detailed
    balance ``D^½ T D^-½`` with ``D = diag(π)`` has the eigenvalues of T and is symmetric, with entries
    ``√(T_ij T_ji)``.
    """
    root = np.sqrt(law)
    rest = np.sqrt(step * step.T) - np.outer(root, root) if reversible else step - law
    if len(law) > _DENSE:
        limit = np.outer(root, root) if reversible else law
        # |rest| <= 1e-5·1πᵀ bounds |λ₂| by 1e-5: independent draws up to rounding, on which ARPACK does not converge
        if np.all(np.abs(rest) <= 1e-5 * limit):
            return 0.0
        solve = sparse.linalg.eigsh if reversible else sparse.linalg.eigs
        start = np.random.default_rng(0).normal(size=len(law))
        try:
            values = solve(rest, k=1, v0=start, maxiter=100, tol=1e-8, return_eigenvectors=False)
            return float(np.abs(values[0]))
        except sparse.linalg.ArpackNoConvergence:
            pass  # eigenvalues of nearly the same size: compute all of them below, which takes longer
    values = linalg.eigvalsh(rest) if reversible else linalg.eigvals(rest)
    return float(np.abs(values).max())
