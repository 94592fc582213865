"""The restricted Boltzmann machine over any type of units."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import (
    ConditionalEnergy,
    Energy,
    HasAnnealing,
    HasExactLogZ,
    HasHiddenUnits,
    HasSweep,
    LatentEnergy,
    UnitMoments,
    check_point,
    typed_key,
    whole_number,
)
from thalweg.core.random import normal, split
from thalweg.energies.rbm_arguments import HIDDEN, VISIBLE, as_units, as_weights, check_normalisable, guess_units
from thalweg.energies.rbm_sums import MOST_UNITS, sum_over_smaller_side
from thalweg.energies.rbm_views import JointRBM, LatentRBM, MaskedRBM, ScaledRBM, UnitsDensity
from thalweg.energies.units import AbstractUnits
from thalweg.energies.units_discrete import CategoricalUnits
from thalweg.energies.units_words import ReplicatedSoftmaxUnits
from thalweg.spaces import Space, as_points

# the standard deviation of initial weights
_SMALL = 0.01
# rows of a batch for which hidden units are drawn to measure their means
_DRAWN = 32
# added to variances before dividing by them
_FLOOR = 0.01


class RBM(HasSweep, HasExactLogZ, HasHiddenUnits, HasAnnealing):
    r"""The restricted Boltzmann machine, ``E(v, h) = -vᵀWh - bᵀv - cᵀh``, as an energy of v.

    ``rbm(v)`` is the free energy ``F(v) = -log Σ_h exp(-E(v, h))``, so that every sampler, objective and metric takes
    the machine as it is; ``rbm(v, h)`` is the energy of both, and ``rbm.joint`` an energy of the pair. With Bernoulli
    units ``F(v) = -bᵀv - Σ_j log(1 + exp(c_j + Σ_i v_i W_ij))``. `samplers.Gibbs` draws all hidden units given the
    visible ones, then all visible units given the hidden ones. Other units change the terms as their docstrings say:
    Gaussian visible units give ``Σ(v_i - b_i)²/2σ_i² - Σ W_ij h_j v_i/σ_i - cᵀh``.

    ``tempered(rbm, T)`` is ``F(v)/T``, which is no longer the free energy of a machine; its sweep is that of the
    machine with energy ``E(v, h)/T``, with an accept step that corrects the difference. ``tempered(rbm.joint, T)`` is
    the machine with energy ``E(v, h)/T``, without an accept step. References: Smolensky (1986), Parallel Distributed
    Processing 1; Hinton (2002), Neural Computation 14; Welling, Rosen-Zvi and Hinton (2005), NIPS, for other units.

    Args:
        visible: `BernoulliUnits`, `SpinUnits`, `GaussianUnits`, `CategoricalUnits` or `ReplicatedSoftmaxUnits`, which
            hold the biases b; a number is that number of Bernoulli units.
        hidden: `BernoulliUnits`, `SpinUnits`, `GaussianUnits` or `ReLUUnits`, which hold the biases c; or a number.
        weights: W, one row for each visible unit (each unit and label if they are categorical), one column for each
            hidden unit; one number is for all.
        key: without weights, they are drawn from ``N(0, 0.01²)`` with this key.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> rbm = tw.energies.RBM(784, 16, key=jax.random.key(0))
    >>> v = jnp.zeros(784, int)
    >>> round(float(rbm(v)), 2), round(float(rbm(v, jnp.zeros(16))), 2)  # all softplus units at zero
    (-11.09, 0.0)
    >>> chains = tw.sample(rbm, tw.samplers.Gibbs(), jnp.zeros((5, 784), int), key=jax.random.key(1), draws=3)
    >>> chains.draws.shape, round(float(rbm.log_z), 0)
    ((5, 3, 784), 555.0)
    """

    visible: AbstractUnits
    hidden: AbstractUnits
    weights: Array
    present: Array | None = eqx.field(repr=False)

    def __init__(self, visible: Any, hidden: Any, weights: Any = None, *, key: PRNGKeyArray | None = None):
        self.visible = as_units("visible", visible, VISIBLE)
        self.hidden = as_units("hidden", hidden, HIDDEN)
        self.present = None
        shape = (self.visible.features, self.hidden.features)
        if weights is None:
            if key is None:
                raise ValueError("expected weights or a key to draw them with, got neither; give key=jax.random.key(0)")
            self.weights = _SMALL * normal(typed_key(key), shape)
            return
        if key is not None:
            raise ValueError("expected weights or a key to draw them with, got both; leave one out")
        self.weights = as_weights(weights, self.visible, shape)
        check_normalisable(self)

    @classmethod
    def from_data(cls, data: Any, hidden: Any, *, key: PRNGKeyArray, visible: AbstractUnits | None = None) -> "RBM":
        """A machine for ``data`` ``(rows, units)``: small random weights, and visible biases at the data's means.

        The visible units are guessed from the values: 0 and 1 are Bernoulli, -1 and 1 are spins, other whole numbers up
        to 10 are labels, larger ones are word counts, and all other numbers are Gaussian, with the data's standard
        deviations. Give ``visible`` to choose them yourself; their biases are set in the same way.

        Args:
            data: one row for each point.
            hidden: the hidden units, or the number of Bernoulli units.
            key: the random key of the weights.
            visible: the visible units.

        >>> import jax, numpy as np, thalweg as tw
        >>> data = np.array([[0, 1, 1], [0, 0, 1], [1, 1, 1], [0, 1, 1]])
        >>> rbm = tw.energies.RBM.from_data(data, hidden=2, key=jax.random.key(0))
        >>> type(rbm.visible).__name__, rbm.visible.bias.round(1).tolist()
        ('BernoulliUnits', [-0.8..., 0.8..., 2.2...])
        """
        table = np.asarray(data)
        if table.ndim != 2 or 0 in table.shape or table.dtype.kind not in "buif":
            raise ValueError(
                f"expected data as numbers (rows, units), got {table.dtype} of shape {table.shape}; flatten pictures "
                "with data.reshape(len(data), -1)"
            )
        units = guess_units(table) if visible is None else as_units("visible", visible, VISIBLE)
        points = as_points(units.space, table, "data")
        return cls(units.fitted(units.statistics(points)), hidden, key=key)

    @property
    def space(self) -> Space:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.visible.space

    def __call__(self, x: Array, h: Array | None = None) -> Array:
        self._check(x)
        if h is None:
            return self.free_energies(x)
        check_point(h, self.hidden.space.shape)
        return self.joint_energies(x, jnp.asarray(h))

    def free_energies(self, x: Array) -> Array:
        """``F(v)`` of points ``(..., *event)``, ``(...)``."""
        statistics = self._statistics(x)
        own = statistics @ self.visible.natural - self._sum(self.visible.base(x) + self.visible.constant)
        hidden = self.hidden.log_normaliser(self._hidden_natural(statistics, x)) - self.hidden.constant
        return -own - jnp.sum(hidden, axis=-1)

    def joint_energies(self, x: Array, h: Array) -> Array:
        """``E(v, h)`` of points and hidden values ``(..., *event)``, ``(...)``."""
        statistics, hidden = self._statistics(x), self.hidden.statistics(h)
        own = statistics @ self.visible.natural - self._sum(self.visible.base(x) + self.visible.constant)
        coupled = jnp.sum(hidden * self._hidden_natural(statistics, x), axis=-1)
        return jnp.sum(self.hidden.base(h) + self.hidden.constant, axis=-1) - own - coupled

    def sweep(self, key: PRNGKeyArray, x: Array, free: Any = None) -> Array:
        key_hidden, key_visible = split(key)
        return self.draw_visible(key_visible, self.draw_hidden(key_hidden, x), x, free)

    def draw_hidden(self, key: PRNGKeyArray, x: Array) -> Array:
        """A draw from ``p(h | v)`` for every point ``(chains, *event)``."""
        return self.hidden.sample(key, self._hidden_natural(self._statistics(x), x))

    def draw_visible(self, key: PRNGKeyArray, h: Array, x: Array, free: Any = None) -> Array:
        """A draw from ``p(v | h)`` for hidden values ``(chains, units)``; absent and held units are those of ``x``."""
        natural = self.visible.natural + self.hidden.statistics(h) @ self.weights.T
        free = None if free is None else jnp.asarray(free)
        if self.present is not None:
            free = self.present if free is None else free & self.present
        return self.visible.redraw(key, natural, x, free)

    def scaled(self, factor: Array) -> "ScaledRBM":
        return ScaledRBM(self, factor)  # pyright: ignore[reportCallIssue]

    def heated(self, factor: Array) -> tuple["RBM", Array]:
        """The machine with the energy ``factor · E(v, h)``, and by what its hidden statistics are multiplied.

        The energy of replicated softmax units is scaled without the number of orders of the words.
        """
        visible, by_visible = self.visible.scaled(factor)
        hidden, by_hidden = self.hidden.scaled(factor)
        weights = self.weights * factor / (by_visible * by_hidden)
        parts = lambda rbm: (rbm.visible, rbm.hidden, rbm.weights)
        return eqx.tree_at(parts, self, (visible, hidden, weights)), by_hidden

    def annealed(self, beta: Array, field: Array) -> "RBM":
        """The machine with the energy ``β·E(v, h) - (1-β)·field·v``, for discrete units in both layers."""
        bias = beta * self.visible.bias + (1 - beta) * field
        return eqx.tree_at(lambda rbm: rbm.visible.bias, self.heated(beta)[0], bias)

    @property
    def own_field(self) -> Array:
        return self.visible.bias

    def posterior(self, x: Array) -> "UnitsDensity":
        """``p(h | v)`` of one point, with ``sample``, ``log_prob`` and ``mean``.

        >>> import jax, jax.numpy as jnp, thalweg as tw
        >>> rbm = tw.energies.RBM(4, 2, jnp.ones((4, 2)))
        >>> rbm.posterior(jnp.array([1, 1, 0, 0])).mean.round(2).tolist()
        [0.8799999952316284, 0.8799999952316284]
        """
        self._check(x)
        return UnitsDensity(self.hidden, self._hidden_natural(self._statistics(x), x), jnp.ones(()))  # pyright: ignore[reportCallIssue]

    def likelihood(self, h: Array, length: int | None = None) -> "UnitsDensity":
        """``p(v | h)`` of one hidden value, with ``sample``, ``log_prob`` and ``mean``.

        Args:
            h: the hidden units.
            length: the number of words, for replicated softmax units.

        >>> import jax, jax.numpy as jnp, thalweg as tw
        >>> rbm = tw.energies.RBM(4, 2, jnp.ones((4, 2)))
        >>> rbm.likelihood(jnp.array([1, 1])).sample(jax.random.key(0), (10,)).shape
        (10, 4)
        """
        check_point(h, self.hidden.space.shape)
        natural = self.visible.natural + self.hidden.statistics(jnp.asarray(h)) @ self.weights.T
        return UnitsDensity(self.visible, natural, self._length(length))  # pyright: ignore[reportCallIssue]

    @property
    def joint(self) -> Energy:
        """``E(v, h)`` as an energy of the pair ``(v, h)``, which `samplers.Gibbs` sweeps layer by layer."""
        return JointRBM(self, jnp.ones(()))  # pyright: ignore[reportCallIssue]

    @property
    def masked(self) -> ConditionalEnergy:
        """The machine without its missing visible units, as a conditional energy of v and the mask of observed units.

        Every row has a machine of its own, with the same weights but only the units that were observed, as for ratings
        (Salakhutdinov, Mnih and Hinton 2007). Train it on ``(data, mask)``, where ``mask`` is 1 for observed and 0 for
        missing entries; what ``data`` holds there is not read. ``run.energy.rbm`` is the machine. To fill units in
        instead, hold the observed ones: ``tw.clamp(rbm, mask, v)``.

        >>> import jax.numpy as jnp, thalweg as tw
        >>> rbm = tw.energies.RBM(3, 2, jnp.ones((3, 2)))
        >>> mask = jnp.array([1, 0, 1])
        >>> one, other = (rbm.masked(jnp.array([1, unread, 0]), mask) for unread in (0, 1))
        >>> float(one) == float(other) == float(rbm(jnp.array([1, 0, 0])))
        True
        """
        if isinstance(self.visible, ReplicatedSoftmaxUnits):
            raise ValueError(
                "expected units that can be missing one by one, got ReplicatedSoftmaxUnits; leave the words out of the "
                "document"
            )
        return MaskedRBM(self)  # pyright: ignore[reportCallIssue]

    @property
    def latent(self) -> LatentEnergy:
        """``E(v, h)`` as a latent energy, for `objectives.LatentLikelihood`, which samples the hidden units."""
        return LatentRBM(self)  # pyright: ignore[reportCallIssue]

    def exact_log_z(self, length: int | None = None) -> Array | None:
        """``log Z``, summed over all states of the layer that has fewer; ``None`` above 2^25 states.

        Args:
            length: the number of words, for replicated softmax units without a ``length`` of their own.
        """
        return sum_over_smaller_side(self, self._length(length))

    @property
    def log_z(self) -> Array:
        """The exact log Z; raises if neither layer has at most 2^25 states."""
        value = self.exact_log_z()
        if value is None:
            raise ValueError(
                f"expected a layer of at most {MOST_UNITS} discrete units for an exact log Z, got "
                f"{self.visible.units} visible {type(self.visible).__name__} and {self.hidden.units} hidden "
                f"{type(self.hidden).__name__}; estimate it by tw.evaluate.log_z"
            )
        return value

    def log_prob(self, x: Array) -> Array:
        """``log p(v) = -F(v) - log Z`` of one point, with the exact log Z."""
        return -self(x) - self.log_z

    def log_z_uncoupled(self, length: int | None = None) -> Array:
        """``log Z`` of the machine with the same biases and all weights at zero, of any size."""
        weight = self._length(length)
        visible = self._sum(self.visible.log_normaliser(self.visible.natural, weight) - self.visible.constant)
        hidden = self.hidden.log_normaliser(weight * self.hidden.natural) - self.hidden.constant
        return visible + jnp.sum(hidden)

    def hidden_means(self, x: Array) -> Array:
        return self.hidden.mean(self._hidden_natural(self._statistics(x), x))

    def unit_moments(self, key: PRNGKeyArray, x: Array) -> UnitMoments:
        # a document counts by its share of each word
        visible = self._statistics(x) / self.visible.weight(x)[:, None]
        # for a running mean a few rows are enough, which leaves the time to the products of the gradient
        hidden = self.hidden.statistics(self.draw_hidden(key, x[:_DRAWN]))
        moments = [moment(layer, axis=0) for layer in (visible, hidden) for moment in (jnp.mean, jnp.var)]
        return UnitMoments(*moments)

    def centre(self, gradient: "RBM", moments: UnitMoments, standardise: bool) -> "RBM":
        mu, lam = moments.visible_mean, moments.hidden_mean
        slope = self.visible.slope
        g_b, g_c = slope * gradient.visible.bias.reshape(-1), self.hidden.slope * gradient.hidden.bias
        weights = gradient.weights - jnp.outer(g_b, lam) - jnp.outer(mu, g_c)
        if standardise:
            scales = moments.visible_variance + _FLOOR, moments.hidden_variance + _FLOOR
            weights = weights / scales[0][:, None] / scales[1]
        visible = gradient.visible.bias - (slope * (weights @ lam)).reshape(gradient.visible.bias.shape)
        hidden = gradient.hidden.bias - self.hidden.slope * (mu @ weights)
        parts = lambda rbm: (rbm.weights, rbm.visible.bias, rbm.hidden.bias)
        return eqx.tree_at(parts, gradient, (weights, visible, hidden))

    def _length(self, length: int | None) -> Array:
        if not isinstance(self.visible, ReplicatedSoftmaxUnits):
            return jnp.ones(())
        words = self.visible.length if length is None else whole_number("length", length)
        if words is None:
            raise ValueError(
                "expected the number of words of a document, got none, and log Z depends on it; give length=…, here or "
                "to ReplicatedSoftmaxUnits"
            )
        return jnp.asarray(float(words))

    def _check(self, x: Any) -> None:
        one_hot = isinstance(self.visible, CategoricalUnits) and jnp.shape(x) == self.visible.bias.shape
        if not (one_hot and jnp.issubdtype(jnp.result_type(x), jnp.floating)):
            check_point(x, self.space.shape)

    def _statistics(self, x: Array) -> Array:
        statistics = self.visible.statistics(jnp.asarray(x))
        return statistics if self.present is None else statistics * self.visible.spread(self.present)

    def _hidden_natural(self, statistics: Array, x: Array) -> Array:
        weight = self.visible.weight(jnp.asarray(x))
        return weight[..., None] * self.hidden.natural + statistics @ self.weights

    def _sum(self, values: Array) -> Array:
        """A sum over the visible units that are present."""
        return jnp.sum(values if self.present is None else values * self.present, axis=-1)
