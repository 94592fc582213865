"""Ladders of noise levels for noise-conditional models, and the step size of annealed Langevin dynamics on them."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thalweg.core import finite, positive, static_number, whole_number

# the number of rows compared for the largest distance; more change it little, and the cost is quadratic
_COMPARED = 2000
# the largest ratio of neighbouring levels: in few dimensions the rule would allow any, but with 100 steps per level the
# weights of modes 14 standard deviations apart are wrong by 0.024 with a ratio of 2 and by 0.015 with 1.5
_LARGEST_RATIO = 1.5


def geometric_ladder(largest: float, smallest: float, levels: int) -> Float[Array, " levels"]:
    """``σ_i = σ_1·(σ_L/σ_1)^((i-1)/(L-1))``: noise levels ``σ_1 > … > σ_L`` with a constant ratio.

    Args:
        largest: σ_1.
        smallest: σ_L, above 0 and below σ_1.
        levels: L ≥ 2.

    >>> import thalweg as tw
    >>> tw.noise.geometric_ladder(8.0, 1.0, 4).tolist()
    [8.0, 4.0, 2.0, 1.0]
    """
    levels = whole_number("levels", levels, 2, "10 is usual")
    largest, smallest = (static_number(*pair, positive) for pair in (("largest", largest), ("smallest", smallest)))
    if not smallest < largest:
        raise ValueError(f"expected 0 < smallest < largest, got {smallest} and {largest}; swap or raise them")
    return jnp.asarray(np.geomspace(largest, smallest, levels), float)


def ladder_from_data(data: Any, smallest: float | None = None) -> Float[Array, " levels"]:
    r"""A geometric ladder chosen from the data: σ_1 is the largest distance between two points, and the ratio is

    ``γ = √(2d) / (√(2d) - 3)``,

    at which the noise shells of neighbouring levels (radius ``σ√d``, thickness ``σ/√2``) overlap by half; at most 1.5.
    Reference: Song and Ermon (2020), NeurIPS, techniques 1 and 2.

    Args:
        data: ``(rows, *event)``; at most 2000 rows are compared.
        smallest: σ_L; by default a hundredth of the largest standard deviation of a coordinate.

    >>> import jax, thalweg as tw
    >>> ladder = tw.noise.ladder_from_data(tw.data.eight_gaussians(jax.random.key(0), 500))
    >>> bool(ladder[0] > 8), bool(ladder[-1] < 0.05)
    (True, True)
    """
    rows = np.asarray(finite("data", data), np.float64)
    if rows.ndim == 0:
        raise ValueError("expected data (rows, *event), got a single number; give several rows")
    rows = rows[:_COMPARED].reshape(min(len(rows), _COMPARED), -1)
    squares = np.sum(rows**2, axis=1)
    largest = math.sqrt(max(0.0, np.max(squares[:, None] + squares[None, :] - 2 * rows @ rows.T)))
    deviation = float(rows.std(axis=0).max())
    if deviation == 0:
        raise ValueError("expected data that differ from each other, got one point repeated; give more rows")
    smallest = 0.01 * deviation if smallest is None else static_number("smallest", smallest, positive)
    if smallest >= largest:
        raise ValueError(f"expected smallest below the data's width {largest:.4g}, got {smallest:.4g}; lower it")
    root = math.sqrt(2 * rows.shape[1])
    ratio = min(_LARGEST_RATIO, root / (root - 3)) if root > 3 else _LARGEST_RATIO
    return geometric_ladder(largest, smallest, max(2, math.ceil(math.log(largest / smallest) / math.log(ratio)) + 1))


def annealed_step(sigmas: Any, steps: int) -> float:
    r"""The step size ε of `AnnealedLangevin` with the smallest error in the variance of the final samples.

    On Gaussian data of standard deviation c the variance v of annealed chains is known exactly: a step at level σ gives
    ``v ← a²v + α`` with ``a = 1 - α/2(c² + σ²)``, ``α = εσ²/σ_L²``. It starts at ``v = c² + σ_1²`` and should end at
    ``c² + σ_L²``; the ε returned has the smallest relative error for the worst c from 0 to σ_1. With too small steps
    the chains lag behind the levels on wide data; too large steps add noise of their own on narrow data. Song and Ermon
    (2020), NeurIPS, technique 4, consider ``c = 0`` and one level only, which gives steps two to four times smaller.

    Args:
        sigmas: the noise levels ``(L,)``, in decreasing order.
        steps: T, the number of Langevin steps per level.

    >>> import thalweg as tw
    >>> round(tw.noise.annealed_step(tw.noise.geometric_ladder(10.0, 0.1, 10), 100), 4)
    0.0022
    """
    ladder, steps = np.asarray(finite("sigmas", sigmas), np.float64), whole_number("steps", steps, hint="100 is usual")
    if ladder.ndim != 1 or len(ladder) == 0 or np.any(np.diff(ladder) >= 0) or not np.all(ladder > 0):
        raise ValueError(f"expected falling noise levels (L,) above 0, got {ladder}; sort them, largest first")
    # at ε = 2σ_L² the noise of a single step has twice the variance that should remain
    relative = np.geomspace(1e-4, 2.0, 500)[:, None]
    variance = np.array([0.0, *np.geomspace(ladder[-1], ladder[0], 30)]) ** 2
    # a single level is entered as if from the level above in a ladder from data
    start = ladder[0] if len(ladder) > 1 else _LARGEST_RATIO * ladder[0]
    reached = np.broadcast_to(variance + start**2, (len(relative), len(variance)))
    for sigma in ladder:
        size = relative * sigma**2
        kept = (1 - 0.5 * size / (variance + sigma**2)) ** 2
        rest = size / (1 - kept)
        reached = rest + kept**steps * (reached - rest)
    worst = np.max(np.abs(reached / (variance + ladder[-1] ** 2) - 1), axis=1)
    return float(relative[np.argmin(worst), 0] * ladder[-1] ** 2)
