"""Exact solutions of the 2-D Ising model: Onsager's infinite lattice, Kaufman's finite torus. In double precision.

``x ∈ {-1, 1}`` on a square lattice with ``E(x) = -K Σ_<ij> x_i x_j`` and ``K = J/T``; temperatures and energies are in
units of the coupling J. ``tw.energies.Ising(tw.energies.Grid(shape, K))`` is this energy.
"""

import numpy as np
from scipy.special import ellipkm1

__all__ = [
    "critical_temperature",
    "kaufman_energy",
    "kaufman_log_z",
    "magnetisation",
    "onsager_energy",
]


def critical_temperature() -> float:
    """``T_c = 2 / log(1 + √2)``, where ``sinh(2/T_c) = 1``: below it the infinite lattice is magnetised.

    Reference: Kramers and Wannier (1941), Phys. Rev. 60.

    >>> import thalweg as tw
    >>> round(tw.exact.onsager.critical_temperature(), 6)
    2.269185
    """
    return float(2 / np.log1p(np.sqrt(2)))


def magnetisation(temperature: float) -> float:
    r"""The spontaneous magnetisation per site of the infinite square lattice.

    ``m = (1 - sinh(2K)⁻⁴)^{1/8}`` with ``K = 1/T`` below the critical temperature, 0 at and above it. On a finite
    lattice the mean of ``x`` is 0 by symmetry; what comes near m below ``T_c`` is the mean of ``|Σ x_i| / n``.
    Reference: Yang (1952), Phys. Rev. 85.

    >>> import thalweg as tw
    >>> round(tw.exact.onsager.magnetisation(2.0), 6), tw.exact.onsager.magnetisation(3.0)
    (0.911319, 0.0)
    """
    coupling = 1 / _positive(temperature)
    if temperature >= critical_temperature():
        return 0.0
    # 1/sinh(2K) by exponentials that stay in range however cold it is
    inverse_sinh = 2 * np.exp(-2 * coupling) / -np.expm1(-4 * coupling)
    return float((1 - inverse_sinh**4) ** 0.125)


def onsager_energy(temperature: float) -> float:
    r"""The energy per site, in units of the coupling J, of the infinite square lattice without a field.

    With ``K = 1/T`` and ``κ = 2tanh²2K - 1``: ``u = -coth(2K)·(1 + (2/π)·κ·𝐊)``, where 𝐊 is the complete elliptic
    integral of the first kind of modulus ``√(1-κ²)``. Reference: Onsager (1944), Phys. Rev. 65.

    >>> round(onsager_energy(2.0), 6), round(onsager_energy(3.0), 6)
    (-1.745565, -0.81731)
    """
    coupling = 1 / _positive(temperature)
    kappa = 2 * np.tanh(2 * coupling) ** 2 - 1
    # at the critical temperature 𝐊 diverges only logarithmically, so the product is 0
    singular = kappa * ellipkm1(kappa**2) if kappa != 0 else 0.0
    return float(-(1 + 2 / np.pi * singular) / np.tanh(2 * coupling))


def kaufman_log_z(shape: tuple[int, int], coupling: float) -> float:
    r"""``log Z`` of ``E(x) = -K Σ_<ij> x_i x_j`` on a torus of m × n spins.

    ``Z = ½ (2 sinh 2K)^{mn/2} · [Π 2cosh(½mγ₂ᵣ₊₁) + Π 2sinh(½mγ₂ᵣ₊₁) + Π 2cosh(½mγ₂ᵣ) + Π 2sinh(½mγ₂ᵣ)]``, products
    over ``r = 0…n-1``, with ``cosh γₗ = cosh²2K / sinh 2K - cos(πl/n)`` and ``γ₀ = 2K + log tanh K``, which is negative
    above the critical temperature. A side of 2 has its bond counted twice. References: Kaufman (1949), Phys. Rev. 76;
    Ferdinand and Fisher (1969), Phys. Rev. 185.

    >>> round(float(kaufman_log_z((4, 4), 0.0) / np.log(2)), 6)
    16.0
    """
    rows, columns = _sides(shape)
    strength = _strength((rows, columns), coupling)
    if strength == 0:
        return float(rows * columns * np.log(2))
    logs, signs, _ = _products(rows, columns, strength)
    largest = logs.max()
    total = largest + np.log(np.sum(signs * np.exp(logs - largest)))
    return float(total - np.log(2) + rows * columns / 2 * np.log(2 * np.sinh(2 * strength)))


def kaufman_energy(shape: tuple[int, int], temperature: float) -> float:
    r"""The mean energy per site ``-(1/mn) ∂log Z/∂K`` at ``K = 1/T``, in units of the coupling J, on a torus m × n.

    >>> round(kaufman_energy((32, 32), 2.269), 6)
    -1.434001
    """
    rows, columns = _sides(shape)
    coupling = 1 / _positive(temperature)
    logs, signs, slopes = _products(rows, columns, coupling)
    weights = signs * np.exp(logs - logs.max())
    slope = rows * columns / np.tanh(2 * coupling) + np.sum(weights * slopes) / np.sum(weights)
    return float(-slope / (rows * columns))


def _products(rows: int, columns: int, coupling: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Kaufman's four products: the logs of their absolute values, their signs, and the derivatives of the logs by K."""
    sinh, cosh = np.sinh(2 * coupling), np.cosh(2 * coupling)
    number = np.arange(2 * columns)
    # cosh γ - 1 written so that nothing cancels near the critical point, where it is small
    excess = (1 - sinh) ** 2 / sinh + 2 * np.sin(np.pi * number / (2 * columns)) ** 2
    gamma = 2 * np.arcsinh(np.sqrt(excess / 2))
    gamma[0] = 2 * coupling + np.log(np.tanh(coupling))
    slope = np.empty_like(gamma)
    slope[1:] = 2 * cosh * (1 - 1 / sinh**2) / np.sinh(gamma[1:])
    slope[0] = 2 + 2 / sinh
    # γ₀ = 0 at the critical point: the product is 0 but its derivative is not; a tiny γ₀ gives both exactly
    gamma[0] = gamma[0] or 1e-300
    logs, signs, slopes = [], [], []
    for chosen in (slice(1, None, 2), slice(0, None, 2)):
        y, change = rows / 2 * gamma[chosen], rows / 2 * slope[chosen]
        size = np.abs(y)
        logs += [np.sum(size + np.log1p(np.exp(-2 * size))), np.sum(size + np.log(-np.expm1(-2 * size)))]
        signs += [1.0, np.prod(np.sign(y))]
        slopes += [np.sum(change * np.tanh(y)), np.sum(change / np.tanh(y))]
    return np.array(logs), np.array(signs), np.array(slopes)


def _positive(temperature: float) -> float:
    if not (np.isfinite(temperature) and temperature > 0):
        raise ValueError(f"expected a temperature > 0, got {temperature}; give a positive number")
    return float(temperature)


def _sides(shape: tuple[int, int]) -> tuple[int, int]:
    if len(shape) != 2 or min(shape) < 2:
        raise ValueError(f"expected a torus of two sides of at least 2 sites, got {shape}; give for example (32, 32)")
    return int(shape[0]), int(shape[1])


def _strength(shape: tuple[int, int], coupling: float) -> float:
    """|K|: flipping every other spin of an even torus changes the sign of K and leaves Z the same."""
    if not np.isfinite(coupling) or (coupling < 0 and (shape[0] % 2 or shape[1] % 2)):
        raise ValueError(
            f"expected a finite coupling, not negative on a torus with an odd side, got {coupling} on {shape}; "
            "give a positive one or even sides"
        )
    return abs(float(coupling))
