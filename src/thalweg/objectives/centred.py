"""Centred and standardised gradients of machines with hidden units, and a sparsity target, for any objective."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import (
    ConditionalEnergy,
    HasHiddenUnits,
    Objective,
    Step,
    UnitMoments,
    between,
    combine,
    finite,
    flag,
    freeze,
    non_negative,
    partition_trainable,
    with_gradient,
)


class CentredState(NamedTuple):
    """The state of the inner objective, and the running means and variances of the machine's units."""

    inner: PyTree
    moments: UnitMoments


class AbstractForMachines(Objective):
    """An objective for machines with hidden units that is built on another objective."""

    objective: eqx.AbstractVar[Any]
    conditional: ClassVar[bool] = False

    @property
    def kernel(self) -> Any:
        """The kernel of the inner objective, if it has one."""
        return getattr(self.objective, "kernel", None)

    def truth(self, energy: Any) -> Any:
        return self.objective.truth(energy)

    def _check(self, energy: Any) -> None:
        if not isinstance(energy, HasHiddenUnits):
            kind = "the conditional energy " if isinstance(energy, ConditionalEnergy) else ""
            raise ValueError(
                f"expected a machine with hidden units for {type(self).__name__}, got {kind}{type(energy).__name__}; "
                "use an RBM or a Boltzmann machine, or the inner objective alone"
            )

    def __check_init__(self):
        if not isinstance(self.objective, Objective):
            got = self.objective.__name__ if isinstance(self.objective, type) else type(self.objective).__name__
            raise ValueError(
                f"expected an objective inside {type(self).__name__}, got {got}; give for example "
                "tw.objectives.MaximumLikelihood(tw.samplers.Gibbs(), 1, tw.samplers.persistent())"
            )


class Centred(AbstractForMachines):
    r"""The gradient of another objective, taken in centred parameters, for machines with hidden units.

    With offsets μ and λ near the means of the units, the energy ``-(v - μ)ᵀW(h - λ) - b'ᵀv - c'ᵀh`` is that of the same
    machine with ``b = b' - Wλ`` and ``c = c' - Wᵀμ``. Its gradient moves the weights and the biases almost
    independently, so that training does not depend on whether a picture or its negative is learned. In terms of the
    gradient g in W, b and c, one step goes along

    ``G_W = g_W - g_b λᵀ - μ g_cᵀ``, ``G_b = g_b - G_W λ``, ``G_c = g_c - G_Wᵀ μ``.

    With ``standardise`` the units are also divided by their standard deviations s and t in the coupling, which divides
    ``G_W`` by ``s_i² t_j²`` (0.01 is added to every variance). The offsets are running means over the batches: of the
    data for v, and of draws from ``p(h | data)`` for h, whose noise also tells hidden units apart that start equal.
    Where the gradient vanishes, so does the centred one. Reference: Melchior, Fischer and Wiskott (2016), JMLR 17.

    Args:
        objective: the objective whose gradient is taken, for example `MaximumLikelihood` with `Gibbs` from
            `persistent` chains.
        standardise: divide by the units' standard deviations too.
        rate: the weight of a new batch in the running means, in [0, 1]; 0 keeps those of the first batch.

    >>> import jax, jax.numpy as jnp, optax, thalweg as tw
    >>> key_model, key_fit = jax.random.split(jax.random.key(0))
    >>> data = jnp.tile(jnp.array([[1, 1, 0, 0], [0, 0, 1, 1]]), (50, 1))
    >>> pcd = tw.objectives.MaximumLikelihood(tw.samplers.Gibbs(), steps=1, start=tw.samplers.persistent())
    >>> rbm = tw.energies.RBM.from_data(data, hidden=4, key=key_model)
    >>> settings = dict(optimizer=optax.sgd(0.2), steps=300, batch_size=100, key=key_fit)
    >>> run = tw.fit(rbm, data, tw.objectives.Centred(pcd), **settings)
    >>> bool(jax.vmap(run.energy.log_prob)(data).mean() > -1.5)  # the bound is -0.69, four independent bits have -2.77
    True
    """

    objective: Any
    standardise: bool = eqx.field(static=True)
    rate: Array

    def __init__(self, objective: Any, standardise: bool = False, rate: float | Array = 0.01):
        self.objective, self.standardise = objective, flag("standardise", standardise)
        self.rate = between("rate", rate, 0.0, 1.0, "0.01 is usual", scalar=True)

    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[PyTree, CentredState]:
        self._check(energy)
        key_inner, key_units = jax.random.split(key)
        params, inner = self.objective.init(key_inner, energy, batch)
        return params, CentredState(inner, energy.unit_moments(key_units, batch))

    def loss(
        self, key: PRNGKeyArray, energy: Any, params: PyTree, state: CentredState, batch: PyTree
    ) -> tuple[Array, Step]:
        key_inner, key_units = jax.random.split(key)
        trained, rest = partition_trainable((energy, params))

        def inner(trained):
            model, own = combine(trained, rest)
            return self.objective.loss(key_inner, model, own, state.inner, batch)

        (loss, step), (gradient, own) = jax.value_and_grad(inner, has_aux=True)(freeze(trained))
        new = freeze(energy).unit_moments(key_units, batch)
        moments = jax.tree.map(lambda old, new: old + self.rate * (new - old), state.moments, new)
        gradient = freeze(energy).centre(gradient, moments, self.standardise)
        value = jax.lax.stop_gradient(loss) + with_gradient((energy, params), (gradient, own))
        return value, Step(CentredState(step.state, moments), step.metrics)


class Sparse(AbstractForMachines):
    r"""Another objective with a sparsity target: ``loss + w·Σ_j (mean p(h_j = 1 | data) - target)²``.

    For real hidden units, their mean takes the place of the probability. The term has its own minimum, so the model
    learned is not that of maximum likelihood. Metrics: ``hidden_activity``, the mean over hidden units. Reference: Lee,
    Ekanadham and Ng (2008), NIPS 20.

    Args:
        objective: the objective to which the term is added.
        target: the mean activity that every hidden unit should have.
        weight: w ≥ 0.

    >>> import thalweg as tw
    >>> likelihood = tw.objectives.MaximumLikelihood(tw.samplers.Gibbs(), 1, tw.samplers.persistent())
    >>> tw.objectives.Centred(tw.objectives.Sparse(likelihood, target=0.1, weight=1.0)).objective.target.item()
    0.10000000149011612
    """

    objective: Any
    target: Array
    weight: Array

    def __init__(self, objective: Any, target: float | Array, weight: float | Array):
        self.objective = objective
        self.target = finite("target", target, scalar=True)
        self.weight = non_negative("weight", weight, scalar=True)

    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[PyTree, PyTree]:
        self._check(energy)
        return self.objective.init(key, energy, batch)

    def loss(self, key: PRNGKeyArray, energy: Any, params: PyTree, state: PyTree, batch: PyTree) -> tuple[Array, Step]:
        loss, step = self.objective.loss(key, energy, params, state, batch)
        activity = jnp.mean(energy.hidden_means(batch), axis=0)
        loss += self.weight * jnp.sum((activity - self.target) ** 2)
        return loss, Step(step.state, step.metrics | {"hidden_activity": jnp.mean(activity)})
