r"""Score matching: explicit, implicit and regularised. Training without log Z.

All minimise the Fisher divergence ``D_F = ½E_p‖∇log p - s_θ‖²`` between the data's density and the model; integration
by parts gives forms that do not need ``∇log p``. The model is an energy (``s = -∇E``) or a score network. Directional
derivatives of the score use forward mode; no Hessian is formed. Images need not be flattened.

On constrained spaces (`Positive`, `Simplex`, …) and for trees, scores are matched in real coordinates ``z(x)``. The
density of z has no boundary, and it equals that of the data exactly if the density of x does.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from thalweg.core import (
    ConditionalEnergy,
    Energy,
    Objective,
    ScoreNetwork,
    Step,
    as_score,
    bind,
    is_concrete,
    over_chains,
    positive,
    score,
    split_batch,
)
from thalweg.energies.analytic import Gaussian
from thalweg.objectives.batches import check_batch, on_real_coordinates
from thalweg.spaces import coordinates_of, on_reals

# the number of directions processed at once for the exact trace; memory grows with it
_AT_ONCE = 64
# with a larger share than _TIES of a coordinate at its smallest or largest value, the density has a boundary and no
# score there; checked from _ROWS rows on
_TIES, _ROWS = 0.1, 20


class AbstractScoreObjective(Objective):
    """The mean over points of the losses that `points` returns."""

    minimised_at_truth: ClassVar[bool] = True
    conditional: ClassVar[bool] = True

    @abc.abstractmethod
    def points(self, key: PRNGKeyArray, model: Any, batch: Float[Array, "rows ..."]) -> Float[Array, " rows"]:
        """The loss of every point of a batch; model and points are in real coordinates."""

    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[None, PyTree]:
        # first, so that on a discrete space the message says that there are no gradients
        coordinates_of(type(self).__name__, energy, split_batch(energy, batch)[0])
        check_batch(self, energy, batch, scores=True)
        return None, None

    def loss(self, key: PRNGKeyArray, energy: Any, params: None, state: PyTree, batch: PyTree) -> tuple[Array, Step]:
        model, z = on_real_coordinates(type(self).__name__, energy, batch)
        return jnp.mean(self.points(key, model, z)), Step(state, {})


class ExplicitScoreMatching(AbstractScoreObjective):
    r"""``½‖s_θ(x) - s_data(x)‖²`` with the known score of the data: the Fisher divergence itself.

    Args:
        truth: the score of the data, ``x -> array of x's shape``, or an energy with this score; a `ConditionalEnergy`
            for data ``(x, c)``.

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
        if isinstance(truth, type) or not callable(truth):
            raise ValueError(
                f"expected the data's score, a function of one point, got {type(truth).__name__}; give one or an energy"
            )
        self.data = truth

    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[None, PyTree]:
        if isinstance(self.data, ConditionalEnergy) and not isinstance(energy, ConditionalEnergy):
            raise ValueError(
                f"expected the score of p(x) for an energy of one point, got the conditional energy "
                f"{type(self.data).__name__}; fix its condition by tw.given(energy, c)"
            )
        return super().init(key, energy, batch)

    def loss(self, key: PRNGKeyArray, energy: Any, params: None, state: PyTree, batch: PyTree) -> tuple[Array, Step]:
        x, conditions = split_batch(energy, batch)
        coordinates = coordinates_of(type(self).__name__, energy, x)
        known = self.data if isinstance(self.data, (Energy, ConditionalEnergy, ScoreNetwork)) else as_score(self.data)
        if isinstance(known, ConditionalEnergy):
            known = bind(known, conditions)
        model, z = on_real_coordinates(type(self).__name__, energy, batch)
        losses = match_scores(model, z, scores(on_reals(known, coordinates), z))
        return jnp.mean(losses), Step(state, {})

    def points(self, key: PRNGKeyArray, model: Any, batch: Float[Array, "rows ..."]) -> Float[Array, " rows"]:
        known = self.data if isinstance(self.data, Energy) else as_score(self.data)
        return match_scores(model, batch, scores(known, batch))


class AbstractPartialIntegration(AbstractScoreObjective):
    """Score matching by integration by parts, which is valid if the density vanishes at its boundary."""

    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[None, PyTree]:
        super().init(key, energy, batch)
        refuse_edges(type(self).__name__, energy, batch)
        return None, None


class ImplicitScoreMatching(AbstractPartialIntegration):
    r"""``½‖s_θ(x)‖² + tr ∇s_θ(x)`` with the exact trace.

    Equal to `ExplicitScoreMatching` up to a constant that depends on the data only. The trace takes one forward
    derivative per dimension, so **time grows linearly with d**; that of `SlicedScoreMatching` does not. Reference:
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


class RegularisedScoreMatching(AbstractPartialIntegration):
    r"""``½‖s_θ‖² + tr ∇s_θ + λ Σ_i (∂s_i/∂x_i)²``: implicit score matching with a penalty on curvature.

    The penalty acts approximately like noise of variance 2λ on the data: on a Gaussian with diagonal covariance it
    learns ``Σ + 2λI`` exactly. The cost is that of `ImplicitScoreMatching`. Reference: Kingma and LeCun (2010),
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

    weight: Array = eqx.field(converter=lambda value: positive("weight", value, scalar=True), default=0.01)

    def points(self, key, model, batch):
        s, diagonal = _diagonal(model, batch)
        return 0.5 * squares(s) + jnp.sum(diagonal, axis=1) + self.weight * jnp.sum(diagonal**2, axis=1)

    def truth(self, energy: Any) -> Gaussian:
        """The learned model for Gaussian data: ``s = -A(x - μ)`` solves ``½(AΣ + ΣA) + 2λ diag(A) = I``."""
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


def refuse_edges(name: str, energy: Any, batch: PyTree) -> None:
    """Raise for data for which integration by parts is not valid: whole numbers, or many ties at the smallest or
    largest value of a real coordinate, where the density is cut off (black or white pixels, counts of zero)."""
    x = split_batch(energy, batch)[0]
    if not all(map(is_concrete, jax.tree.leaves(x))):
        return
    for leaf in map(np.asarray, jax.tree.leaves(x)):
        if leaf.size >= _ROWS and np.all(leaf == np.round(leaf)):
            raise ValueError(
                f"expected continuous data for {name}, got whole numbers, which have no score; "
                "use DenoisingScoreMatching"
            )
    values = np.asarray(on_real_coordinates(name, energy, batch)[1])
    rows = len(values)
    flat = values.reshape(rows, -1) if rows >= _ROWS else values.reshape(-1, 1)
    if len(flat) < _ROWS:
        return
    share = max(np.mean(flat == flat.min(axis=0), axis=0).max(), np.mean(flat == flat.max(axis=0), axis=0).max())
    if share > _TIES:
        raise ValueError(
            f"expected data whose density falls to nothing at its edges for {name}, got {share:.0%} of the values of "
            "one coordinate tied at its smallest or largest, where there is no score; use DenoisingScoreMatching"
        )


def scores(model: Any, batch: Array) -> Array:
    """The score at every point of a batch."""
    return over_chains(score, model, batch)


def match_scores(model: Any, batch: Array, targets: Array) -> Float[Array, " rows"]:
    """``½‖s_θ(x) - target‖²`` of every point and its target, to be differentiated in θ only."""
    return over_chains(half_square, model, batch, targets)


def half_square(model: Callable[[Array], Array], x: Array, target: Array) -> Array:
    """``½‖s_θ(x) - target‖²`` at one point, to be differentiated in θ only.

    The gradient in θ is that of ``vᵀs_θ(x)`` with ``v = s_θ(x) - target`` held constant. For an energy, ``vᵀs`` is
    minus its directional derivative along v in forward mode, so no gradient in x needs to be differentiated again.
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


def _diagonal(model: Any, batch: Array) -> tuple[Array, Float[Array, "rows d"]]:
    """``s`` and all ``∂s_i/∂x_i``, one forward derivative per coordinate, in groups to bound the memory."""
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
