"""Score matching along random directions: Hutchinson's estimator, sliced, and by finite differences."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Objective, energies, is_score, positive, tile, whole_number
from thalweg.core.random import normal
from thalweg.objectives.score import AbstractPartialIntegration, ImplicitScoreMatching, dots, scores, squares

_LAWS = ("gaussian", "rademacher", "sphere")


class AbstractProjected(AbstractPartialIntegration):
    """Score matching along random directions ``v`` with ``E[vvᵀ] = I``."""

    projections: int = eqx.field(
        static=True, default=1, converter=lambda value: whole_number("projections", value, hint="1 is usual")
    )
    law: str = eqx.field(static=True, default="rademacher")

    def __check_init__(self):
        if not isinstance(self.law, str) or self.law not in _LAWS:
            raise ValueError(f"expected law {' or '.join(map(repr, _LAWS))}, got {self.law!r}; name one of these")

    def directions(self, key: PRNGKeyArray, batch: Array) -> Array:
        """Random directions, ``(projections, *batch.shape)``."""
        return directions(key, self.law, (self.projections, *batch.shape), batch.dtype)

    def over_directions(self, along: Callable[[Array], Any], key: PRNGKeyArray, batch: Array, axes: Any = 0) -> Any:
        """``along(v)`` for every direction v; a single direction is not batched, which doubles its speed."""
        v = self.directions(key, batch)
        if self.projections > 1:
            return jax.vmap(along, out_axes=axes)(v)
        return jax.vmap(lambda: along(v[0]), out_axes=axes, axis_size=1)()

    def expected(self, energy: Any) -> Objective:
        return ImplicitScoreMatching()


class HutchinsonScoreMatching(AbstractProjected):
    r"""``½‖s_θ(x)‖² + vᵀ∇s_θ(x)v``: the trace by Hutchinson's estimator, at the cost of one more derivative.

    Also known as sliced score matching with variance reduction. References: Hutchinson (1990); Song et al. (2019), UAI.

    Args:
        projections: the number of directions per point.
        law: the distribution of v: ``"rademacher"``, ``"gaussian"`` or ``"sphere"`` (of radius √d).

    >>> import jax, thalweg as tw
    >>> data = jax.random.normal(jax.random.key(0), (1000, 3))
    >>> energy = tw.energies.Gaussian([0.0, 0.0, 0.0], 1.0)
    >>> loss, _ = tw.objectives.HutchinsonScoreMatching().loss(jax.random.key(1), energy, None, None, data)
    >>> bool(abs(loss + 1.5) < 0.15)
    True
    """

    def points(self, key, model, batch):
        def along(v):
            s, change = jax.jvp(lambda x: scores(model, x), (batch,), (v,))
            return s, dots(v, change)

        s, curvature = self.over_directions(along, key, batch, (None, 0))
        return 0.5 * squares(s) + jnp.mean(curvature, axis=0)


class SlicedScoreMatching(AbstractProjected):
    r"""``½(vᵀs_θ(x))² + vᵀ∇s_θ(x)v``: the Fisher divergence projected on random directions v.

    Needs only derivatives along v: for an energy, the first two derivatives of ``t ↦ E(x + tv)``, both in forward mode.
    Its expectation over v is `ImplicitScoreMatching`; `HutchinsonScoreMatching` has a smaller variance. Reference:
    Song, Garg, Shi and Ermon (2019), UAI.

    Args:
        projections: the number of directions per point.
        law: the distribution of v: ``"rademacher"``, ``"gaussian"`` or ``"sphere"`` (of radius √d).

    >>> import jax, thalweg as tw
    >>> data = jax.random.normal(jax.random.key(0), (1000, 3))
    >>> energy = tw.energies.Gaussian([0.0, 0.0, 0.0], 1.0)
    >>> loss, _ = tw.objectives.SlicedScoreMatching(law="sphere").loss(jax.random.key(1), energy, None, None, data)
    >>> bool(abs(loss + 1.5) < 0.2)
    True
    """

    def points(self, key, model, batch):
        def along(v):
            if is_score(model):
                s, change = jax.jvp(lambda x: scores(model, x), (batch,), (v,))
                return dots(v, s), dots(v, change)

            def slope(x):
                return jax.jvp(lambda x: energies(model, x), (x,), (v,))[1]

            first, second = jax.jvp(slope, (batch,), (v,))
            return -first, -second

        first, second = self.over_directions(along, key, batch)
        return jnp.mean(0.5 * first**2 + second, axis=0)


class FiniteDifferenceScoreMatching(AbstractProjected):
    r"""Sliced score matching with central differences along v in place of derivatives in x,

    ``½((E₊ - E₋)/2t)² - (E₊ - 2E₀ + E₋)/t²`` with ``E± = E(x ± tv)``, ``t = ε/√d``,

    and for a score network ``½(vᵀ(s₊ + s₋)/2)² + vᵀ(s₊ - s₋)/2t``. No derivatives in x are needed, only one gradient in
    θ. The difference from `SlicedScoreMatching` is of second order in ε. Reference: Pang et al. (2020), NeurIPS.

    Args:
        projections: the number of directions per point.
        law: the distribution of v: ``"rademacher"``, ``"gaussian"`` or ``"sphere"`` (of radius √d).
        epsilon: ε, the length of the displacement; small compared with the scale of the data, large compared with
            rounding errors.

    >>> import jax, thalweg as tw
    >>> data = jax.random.normal(jax.random.key(0), (1000, 3))
    >>> energy = tw.energies.Gaussian([0.0, 0.0, 0.0], 1.0)
    >>> loss, _ = tw.objectives.FiniteDifferenceScoreMatching().loss(jax.random.key(1), energy, None, None, data)
    >>> bool(abs(loss + 1.5) < 0.2)
    True
    """

    epsilon: Array = eqx.field(converter=lambda value: positive("epsilon", value, scalar=True), default=0.1)

    def points(self, key, model, batch):
        t = self.epsilon / np.sqrt(batch[0].size)
        rows, n = batch.shape[0], self.projections
        v = self.directions(key, batch)
        beside = [(batch + side * v).reshape(-1, *batch.shape[1:]) for side in (t, -t)]
        # for a score network these are scores
        plus, minus = (energies(tile(model, n), points) for points in beside)
        if is_score(model):
            v = v.reshape(plus.shape)
            first, second = dots(v, (plus + minus) / 2), dots(v, plus - minus) / (2 * t)
        else:
            # evaluated separately: E₀ has a constant weight, so its memory is freed before the others' gradient
            here = jnp.tile(energies(model, batch), n)
            first, second = (minus - plus) / (2 * t), -((plus - here) + (minus - here)) / t**2
        return jnp.mean((0.5 * first**2 + second).reshape(n, rows), axis=0)


def directions(key: PRNGKeyArray, law: str, shape: tuple[int, ...], dtype: Any = float) -> Array:
    """Random ``v`` with ``E[vvᵀ] = I``, ``shape = (projections, rows, *event)``."""
    if law == "rademacher":
        return _signs(key, shape).astype(dtype)
    v = normal(key, shape, jnp.dtype(dtype))
    if law == "gaussian":
        return v
    event = tuple(range(2, len(shape)))
    return v * jnp.sqrt(np.prod(shape[2:]) / jnp.sum(v**2, axis=event, keepdims=True))


def _signs(key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
    """±1 with equal probability, 32 of them from each random word."""
    count = int(np.prod(shape, dtype=np.int64))
    words = jax.random.bits(key, (-(-count // 32), 1), np.uint32)
    bits = (words >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
    return 2 * bits.reshape(-1)[:count].reshape(shape).astype(np.int32) - 1
