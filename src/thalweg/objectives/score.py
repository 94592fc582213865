r"""Score matching that integrates by parts: training without log Z, from derivatives of the score along directions.

All minimise the Fisher divergence ``D_F = ½E_p‖∇log p - s_θ‖²`` between the data's density and the model, each in a
form that needs no ``∇log p``. The model is an energy (``s = -∇E``) or a score network. Derivatives along a direction
are forward derivatives of the score; no Hessian is ever formed. Images need no flattening.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from thalweg.core import Energy, Objective, ScoreNetwork, Step, as_model, is_concrete, positive, score
from thalweg.energies.analytic import Gaussian
from thalweg.samplers.run import check_scalar
from thalweg.spaces import require_gradient

_LAWS = ("gaussian", "rademacher", "sphere")
# directions taken at once by the exact trace: memory of that many gradients
_AT_ONCE = 64
# ties: so large a share of a column at its smallest or largest value is an edge, where a density has no score
_TIES, _ROWS = 0.1, 20


class ScoreObjective(Objective):
    """A mean over points of a loss that `points` gives, one number a point."""

    divergence = True

    @abc.abstractmethod
    def points(self, key: PRNGKeyArray, model: Energy | ScoreNetwork, batch: Array) -> Float[Array, " rows"]:
        """The loss of every point of a batch."""

    def init(self, key: PRNGKeyArray, energy: Any, batch: Array) -> tuple[None, PyTree]:
        model = as_model(energy)
        require_gradient(type(self).__name__, model.space, batch)
        check_scalar(model, batch)
        return None, None

    def loss(self, key: PRNGKeyArray, energy: Any, params: None, state: PyTree, batch: Array) -> tuple[Array, Step]:
        return jnp.mean(self.points(key, as_model(energy), batch)), Step(state, {})


class ExplicitScoreMatching(ScoreObjective):
    r"""``½‖s_θ(x) - s_data(x)‖²``, where the score of the data is known: the Fisher divergence itself.

    Args:
        truth: the data's score, ``x -> array of x's shape``, or an energy whose score it is.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> data = jax.random.normal(jax.random.key(0), (1000, 2))
    >>> objective = tw.objectives.ExplicitScoreMatching(lambda x: -x)
    >>> wide = tw.energies.Gaussian(jnp.zeros(2), 2 * jnp.eye(2))
    >>> loss, _ = objective.loss(jax.random.key(1), wide, None, None, data)
    >>> bool(abs(loss - 0.5 * 0.25 * 2) < 0.03)  # ½E‖-x/2 + x‖²
    True
    """

    data: Any

    def __init__(self, truth: Any):
        if not callable(truth):
            raise ValueError(f"expected the data's score, a function of one point, got {type(truth).__name__}")
        self.data = truth

    def data_score(self, x: Array) -> Array:
        """``∇log p_data`` at one point."""
        return score(self.data, x) if isinstance(self.data, Energy) else self.data(x)

    def points(self, key, model, batch):
        return jax.vmap(lambda x: half_square(model, x, self.data_score(x)))(batch)


class ByParts(ScoreObjective):
    """Score matching by partial integration, which holds where the density falls to nothing at its edges."""

    def init(self, key: PRNGKeyArray, energy: Any, batch: Array) -> tuple[None, PyTree]:
        refuse_edges(type(self).__name__, batch)
        return super().init(key, energy, batch)


class ImplicitScoreMatching(ByParts):
    r"""``½‖s_θ(x)‖² + tr ∇s_θ(x)`` with the exact trace.

    Equal to `ExplicitScoreMatching` up to a constant of the data. The trace takes one forward derivative per
    dimension: **time grows linearly with d**; `SlicedScoreMatching` and the others do not grow so. Reference:
    Hyvärinen (2005), JMLR 6.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> data = jax.random.normal(jax.random.key(0), (1000, 2))
    >>> energy = tw.energies.Gaussian(jnp.zeros(2), jnp.eye(2))
    >>> loss, _ = tw.objectives.ImplicitScoreMatching().loss(jax.random.key(1), energy, None, None, data)
    >>> bool(abs(loss + 1.0) < 0.1)  # ½E‖x‖² - 2
    True
    """

    def points(self, key, model, batch):
        s, diagonal = _diagonal(model, batch)
        return 0.5 * squares(s) + jnp.sum(diagonal, axis=1)

    def expected(self, energy: Any) -> Objective:
        return ExplicitScoreMatching(energy)


class RegularisedScoreMatching(ByParts):
    r"""``½‖s_θ‖² + tr ∇s_θ + λ Σ_i (∂s_i/∂x_i)²``: implicit score matching that punishes sharp curvature.

    The last term is what noise of variance 2λ on the data would add, near enough: on a Gaussian with diagonal
    covariance it learns ``Σ + 2λI`` exactly. Costs as `ImplicitScoreMatching`. Reference: Kingma and LeCun (2010),
    NeurIPS.

    Args:
        weight: λ > 0.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> data = jax.random.normal(jax.random.key(0), (1000, 2))
    >>> energy = tw.energies.Gaussian(jnp.zeros(2), jnp.eye(2))
    >>> loss, _ = tw.objectives.RegularisedScoreMatching(0.1).loss(jax.random.key(1), energy, None, None, data)
    >>> bool(abs(loss + 0.8) < 0.1)
    True
    """

    weight: Array = eqx.field(converter=lambda value: positive("weight", value), default=0.01)

    def points(self, key, model, batch):
        s, diagonal = _diagonal(model, batch)
        return 0.5 * squares(s) + jnp.sum(diagonal, axis=1) + self.weight * jnp.sum(diagonal**2, axis=1)

    def truth(self, energy: Any) -> Gaussian:
        """On a Gaussian, where ``s = -A(x - μ)`` must solve ``½(AΣ + ΣA) + 2λ diag(A) = I``."""
        if not isinstance(energy, Gaussian):
            raise ValueError(
                f"expected a Gaussian, got {type(energy).__name__}: what the regulariser learns is known in closed "
                "form only there; give energy=Gaussian(...)"
            )
        d, unit = energy.mean.size, jnp.eye(energy.mean.size)
        covariance = energy.covariance.reshape(d, d)

        def left(a):
            return 0.5 * (a @ covariance + covariance @ a) + 2 * self.weight * jnp.diag(jnp.diag(a))

        system = jax.vmap(lambda unit_matrix: left(unit_matrix.reshape(d, d)).ravel())(jnp.eye(d * d)).T
        precision = jnp.linalg.solve(system, unit.ravel()).reshape(d, d)
        return Gaussian(energy.mean, jnp.linalg.inv(precision).reshape(energy.covariance.shape))


class Projected(ByParts):
    """Score matching along random directions ``v`` with ``E[vvᵀ] = I``."""

    projections: int = eqx.field(static=True, default=1)
    law: str = eqx.field(static=True, default="rademacher")

    def __check_init__(self):
        if self.projections < 1:
            raise ValueError(f"expected projections >= 1, got {self.projections}; 1 is usual")
        if self.law not in _LAWS:
            raise ValueError(f"expected law {' or '.join(map(repr, _LAWS))}, got {self.law!r}; name one of these")

    def directions(self, key: PRNGKeyArray, batch: Array) -> Array:
        """``(projections, *batch.shape)``."""
        return directions(key, self.law, (self.projections, *batch.shape), batch.dtype)

    def expected(self, energy: Any) -> Objective:
        return ImplicitScoreMatching()


class HutchinsonScoreMatching(Projected):
    r"""``½‖s_θ(x)‖² + vᵀ∇s_θ(x)v``: the trace by Hutchinson's estimator, at the cost of one more derivative.

    Also known as the variance-reduced form of sliced score matching. References: Hutchinson (1990); Song et al.
    (2019), UAI.

    Args:
        projections: directions per point.
        law: of v: ``"rademacher"``, ``"gaussian"`` or ``"sphere"`` (of radius √d).

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

        s, curvature = jax.vmap(along, out_axes=(None, 0))(self.directions(key, batch))
        return 0.5 * squares(s) + jnp.mean(curvature, axis=0)


class SlicedScoreMatching(Projected):
    r"""``½(vᵀs_θ(x))² + vᵀ∇s_θ(x)v``: the Fisher divergence seen along random directions.

    Needs only derivatives along v: of an energy, the first two derivatives of ``t ↦ E(x + tv)``, both forward. Its
    expectation over v is `ImplicitScoreMatching`; `HutchinsonScoreMatching` has the smaller variance. Reference: Song,
    Garg, Shi and Ermon (2019), UAI.

    Args:
        projections: directions per point.
        law: of v: ``"rademacher"``, ``"gaussian"`` or ``"sphere"`` (of radius √d).

    >>> import jax, thalweg as tw
    >>> data = jax.random.normal(jax.random.key(0), (1000, 3))
    >>> energy = tw.energies.Gaussian([0.0, 0.0, 0.0], 1.0)
    >>> loss, _ = tw.objectives.SlicedScoreMatching(law="sphere").loss(jax.random.key(1), energy, None, None, data)
    >>> bool(abs(loss + 1.5) < 0.2)
    True
    """

    def points(self, key, model, batch):
        def along(v):
            if isinstance(model, ScoreNetwork):
                s, change = jax.jvp(lambda x: scores(model, x), (batch,), (v,))
                return dots(v, s), dots(v, change)

            def slope(x):
                return jax.jvp(jax.vmap(model), (x,), (v,))[1]

            first, second = jax.jvp(slope, (batch,), (v,))
            return -first, -second

        first, second = jax.vmap(along)(self.directions(key, batch))
        return jnp.mean(0.5 * first**2 + second, axis=0)


class FiniteDifferenceScoreMatching(Projected):
    r"""Sliced score matching with central differences along v in place of derivatives in x,

    ``½((E₊ - E₋)/2t)² - (E₊ - 2E₀ + E₋)/t²`` with ``E± = E(x ± tv)``, ``t = ε/√d``,

    and for a score network ``½(vᵀ(s₊ + s₋)/2)² + vᵀ(s₊ - s₋)/2t``. Only the model's own values are differentiated, and
    only in θ. The error against sliced is of second order in ε. Reference: Pang et al. (2020), NeurIPS.

    Args:
        projections: directions per point.
        law: of v: ``"rademacher"``, ``"gaussian"`` or ``"sphere"`` (of radius √d).
        epsilon: length of the displacement; small against the scale of the data, large against rounding.

    >>> import jax, thalweg as tw
    >>> data = jax.random.normal(jax.random.key(0), (1000, 3))
    >>> energy = tw.energies.Gaussian([0.0, 0.0, 0.0], 1.0)
    >>> loss, _ = tw.objectives.FiniteDifferenceScoreMatching().loss(jax.random.key(1), energy, None, None, data)
    >>> bool(abs(loss + 1.5) < 0.2)
    True
    """

    epsilon: Array = eqx.field(converter=lambda value: positive("epsilon", value), default=0.1)

    def points(self, key, model, batch):
        t = self.epsilon / np.sqrt(batch[0].size)
        rows, n = batch.shape[0], self.projections
        v = self.directions(key, batch)
        beside = jnp.concatenate([batch + t * v, batch - t * v]).reshape(-1, *batch.shape[1:])
        if isinstance(model, ScoreNetwork):
            s = jax.vmap(model)(beside).reshape(2, n * rows, *batch.shape[1:])
            v = v.reshape(n * rows, *batch.shape[1:])
            first, second = dots(v, (s[0] + s[1]) / 2), dots(v, s[0] - s[1]) / (2 * t)
        else:
            # all three in one pass: the same matrix products at three times the batch
            values = jax.vmap(model)(jnp.concatenate([batch, beside]))
            here, (plus, minus) = jnp.tile(values[:rows], n), values[rows:].reshape(2, -1)
            first, second = (minus - plus) / (2 * t), -((plus - here) + (minus - here)) / t**2
        return jnp.mean((0.5 * first**2 + second).reshape(n, rows), axis=0)


def directions(key: PRNGKeyArray, law: str, shape: tuple[int, ...], dtype: Any = float) -> Array:
    """Random ``v`` with ``E[vvᵀ] = I``, ``shape = (projections, rows, *event)``."""
    if law == "rademacher":
        return jax.random.rademacher(key, shape, dtype)
    v = jax.random.normal(key, shape, dtype)
    if law == "gaussian":
        return v
    event = tuple(range(2, len(shape)))
    return v * jnp.sqrt(np.prod(shape[2:]) / jnp.sum(v**2, axis=event, keepdims=True))


def refuse_edges(name: str, batch: Array) -> None:
    """Refuse data that partial integration does not hold for: whole numbers, or many ties at the smallest or largest
    value, where the density is cut off (pixels at black or white, counts of zero)."""
    if not is_concrete(batch):
        return
    values = np.asarray(batch)
    rows = len(values)
    if not np.issubdtype(values.dtype, np.floating) or (values.size >= _ROWS and np.all(values == np.round(values))):
        raise ValueError(
            f"expected continuous data for {name}, got whole numbers, which have no score; use DenoisingScoreMatching"
        )
    flat = values.reshape(rows, -1) if rows >= _ROWS else values.reshape(-1, 1)
    if len(flat) < _ROWS:
        return
    share = max(np.mean(flat == flat.min(axis=0), axis=0).max(), np.mean(flat == flat.max(axis=0), axis=0).max())
    if share > _TIES:
        raise ValueError(
            f"expected data whose density falls to nothing at its edges for {name}, got {share:.0%} of the values of "
            "one coordinate tied at its smallest or largest, where there is no score; use DenoisingScoreMatching"
        )


def scores(model: Energy | ScoreNetwork, batch: Array) -> Array:
    """The score at every point of a batch."""
    return jax.vmap(lambda x: score(model, x))(batch)


def half_square(model: Energy | ScoreNetwork, x: Array, target: Array) -> Array:
    """``½‖s_θ(x) - target‖²`` at one point, to be differentiated in θ alone.

    The gradient in θ is that of ``vᵀs_θ(x)`` with ``v = s_θ(x) - target`` held fixed; of an energy ``vᵀs`` is its
    derivative along v, taken forward, so that no gradient in x is differentiated again.
    """
    if isinstance(model, ScoreNetwork):
        return 0.5 * jnp.sum((model(x) - target) ** 2)
    v = jax.lax.stop_gradient(score(model, x) - target)
    along = -jax.jvp(model, (x,), (v,))[1]
    return 0.5 * jnp.sum(v**2) + along - jax.lax.stop_gradient(along)


def dots(a: Array, b: Array) -> Array:
    """Inner products row by row."""
    return jnp.sum(a * b, axis=tuple(range(1, a.ndim)))


def squares(a: Array) -> Array:
    """Squared lengths row by row."""
    return dots(a, a)


def _diagonal(model: Energy | ScoreNetwork, batch: Array) -> tuple[Array, Float[Array, "rows d"]]:
    """``s`` and all ``∂s_i/∂x_i``, one forward derivative per coordinate, some at a time to bound the memory."""
    size = batch[0].size

    def along(i):
        unit = jnp.zeros(size, batch.dtype).at[i].set(1).reshape(batch.shape[1:])
        s, change = jax.jvp(lambda x: scores(model, x), (batch,), (jnp.broadcast_to(unit, batch.shape),))
        return s, change.reshape(len(batch), size)[:, i]

    if size <= _AT_ONCE:
        s, diagonal = jax.vmap(along, out_axes=(None, 0))(jnp.arange(size))
        return s, diagonal.T
    entries = jax.lax.map(jax.checkpoint(lambda i: along(i)[1]), jnp.arange(size), batch_size=_AT_ONCE)
    return scores(model, batch), entries.T
