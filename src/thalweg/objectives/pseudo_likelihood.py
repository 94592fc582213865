r"""Pseudo-likelihood and ratio matching: training on finite spaces without log Z.

Both compare a point x with the points ``x' ~ x`` that differ from it in one site, through
``log p(x')/p(x) = E(x) - E(x')``. An energy with logits (`Ising`, `Potts`) gives all of these in one evaluation; any
other energy is evaluated once for every site and level.
"""

import abc
import math
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from thalweg.core import DiscreteObjective, HasLogits, PerChain, Step, bind_batch, over_chains, space_of
from thalweg.objectives.batches import check_batch
from thalweg.spaces import Finite

# rows are processed in groups whose changed points hold at most this many numbers
_NUMBERS = 2**24


class AbstractSiteObjective(DiscreteObjective):
    """The mean over points of a loss that depends on the log ratios of one point."""

    minimised_at_truth: ClassVar[bool] = True
    conditional: ClassVar[bool] = True

    @abc.abstractmethod
    def point(self, log_ratios: Float[Array, "sites others"]) -> Float[Array, ""]:
        """The loss of one point with the given `log_ratios`."""

    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[None, None]:
        _require_finite(type(self).__name__, energy)
        check_batch(self, energy, batch)
        return None, None

    def loss(self, key: PRNGKeyArray, energy: Any, params: None, state: None, batch: PyTree) -> tuple[Array, Step]:
        space = _require_finite(type(self).__name__, energy)
        model, x = bind_batch(energy, batch)

        def both(model, x):
            ratios = log_ratios(model, space, x)
            return self.point(ratios), -_negative_log_pseudo_likelihood(jax.lax.stop_gradient(ratios))

        losses, log_likelihoods = _over_rows(both, model, space, x)
        return jnp.mean(losses), Step(None, {"pseudo_log_likelihood": jnp.mean(log_likelihoods)})


class PseudoLikelihood(AbstractSiteObjective):
    r"""``-Σ_i log p(x_i | rest)``, with ``p(x_i | rest) = 1 / (1 + Σ_{x' ~ x at i} exp(E(x) - E(x')))``.

    Each conditional is normalised over one site, so Z is not needed; the estimate is consistent. On bits and spins it
    is a logistic regression of every site on all others. Metric: ``pseudo_log_likelihood``, in nats per point.
    Reference: Besag (1975), The Statistician 24.

    >>> import jax, jax.numpy as jnp, optax, thalweg as tw
    >>> key, edges = jax.random.key(0), [(0, 1), (1, 2), (2, 3)]
    >>> truth = tw.energies.Ising(tw.energies.Graph(edges, [0.5, -0.5, 1.0]))
    >>> data = tw.exact.sample(truth, (5000,), key=key)
    >>> model = tw.energies.Ising(tw.energies.Graph(edges, 0.0))
    >>> run = tw.fit(model, data, tw.objectives.PseudoLikelihood(), optimizer=optax.adam(0.05), steps=200,
    ...              batch_size=500, key=key)
    >>> bool(jnp.max(jnp.abs(run.energy.coupling.weights - truth.coupling.weights)) < 0.2)
    True
    """

    def point(self, log_ratios: Float[Array, "sites others"]) -> Float[Array, ""]:
        return _negative_log_pseudo_likelihood(log_ratios)


class RatioMatching(AbstractSiteObjective):
    r"""``Σ_{x' ~ x} σ(E(x) - E(x'))²``: the ratios ``p(x)/p(x')`` of the model are matched to those of the data.

    With ``g(u) = 1/(1 + u)`` this is, up to a constant, the mean over the data of ``Σ (g(p/p') - g(p_θ/p_θ'))²``, which
    is zero only for the right model. Each term is at most 1, so outliers weigh less than in `PseudoLikelihood`.
    Hyvärinen treats bits; with more levels the sum runs over all other levels of every site, and the same argument
    holds for each pair. Metric: ``pseudo_log_likelihood``, in nats per point.
    Reference: Hyvärinen (2007), Some extensions of score matching, Comput. Stat. Data Anal. 51.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> truth = tw.energies.Ising(tw.energies.Graph([(0, 1), (1, 2)], 0.5))
    >>> data = tw.exact.sample(truth, (2000,), key=jax.random.key(0))
    >>> wrong = tw.energies.Ising(tw.energies.Graph([(0, 1), (1, 2)], -0.5))
    >>> objective = tw.objectives.RatioMatching()
    >>> right, other = (objective.loss(jax.random.key(1), energy, None, None, data)[0] for energy in (truth, wrong))
    >>> bool(right < other)
    True
    """

    def point(self, log_ratios: Float[Array, "sites others"]) -> Float[Array, ""]:
        return jnp.sum(jax.nn.sigmoid(log_ratios) ** 2)


def log_ratios(energy: Any, space: Finite, x: Array) -> Float[Array, "sites others"]:
    """``E(x) - E(x')`` for every x' that differs from the point ``x`` in one site; levels follow in cyclic order."""
    levels, flat = jnp.array(space.levels, x.dtype), x.reshape(-1)
    now = jnp.searchsorted(levels, flat)[:, None]
    others = (now + jnp.arange(1, len(levels))) % len(levels)
    if isinstance(energy, HasLogits):
        logits = energy.logits(x).reshape(-1, len(levels))
        return jnp.take_along_axis(logits, others, axis=1) - jnp.take_along_axis(logits, now, axis=1)

    def log_density(x):
        # an energy may return whole numbers
        return -jnp.asarray(energy(x), jnp.result_type(float))

    def log_density_with(site, level):
        return log_density(flat.at[site].set(levels[level]).reshape(x.shape))

    every_level = jax.vmap(log_density_with, in_axes=(None, 0))
    return jax.vmap(every_level)(jnp.arange(flat.size), others) - log_density(x)


def _negative_log_pseudo_likelihood(log_ratios: Array) -> Array:
    """``-Σ_i log p(x_i | rest)``."""
    own = jnp.zeros((len(log_ratios), 1), log_ratios.dtype)
    return jnp.sum(jax.nn.logsumexp(jnp.concatenate([own, log_ratios], axis=1), axis=1))


def _over_rows(function: Callable[[Any, Array], Any], energy: Any, space: Finite, x: Array) -> Any:
    """``function`` of every row and its energy; in groups of rows if the changed points of all rows are too many."""
    sites = math.prod(space.shape)
    rows = max(1, _NUMBERS // (sites * sites * (len(space.levels) - 1)))
    if isinstance(energy, HasLogits) or rows >= x.shape[0]:
        return over_chains(function, energy, x)
    own = energy.parameters if isinstance(energy, PerChain) else None

    # recomputing in the backward pass bounds the memory of a gradient by one group too
    @jax.checkpoint
    def one(entry):
        point, parameter = entry
        return function(energy.at(parameter) if isinstance(energy, PerChain) else energy, point)

    return jax.lax.map(one, (x, own), batch_size=rows)


def _require_finite(name: str, energy: Any) -> Finite:
    space = space_of(energy)
    if isinstance(space, Finite):
        return space
    if space is None:
        raise ValueError(
            f"expected an energy on Binary, Spin or Categorical for {name}, got one that does not know its space; "
            "give it one by as_energy(function, space)"
        )
    raise ValueError(
        f"expected an energy on Binary, Spin or Categorical for {name}, got one on {space}; "
        "use score matching or MaximumLikelihood there"
    )
