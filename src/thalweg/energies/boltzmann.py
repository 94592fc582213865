"""The Boltzmann machine: visible and hidden bits with any connections."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import (
    HasExactLogZ,
    HasHiddenUnits,
    UnitMoments,
    check_point,
    typed_key,
    whole_number,
)
from thalweg.core.random import normal, uniform
from thalweg.energies.couplings import Matrix
from thalweg.energies.lattice import Ising
from thalweg.energies.third_order import ThirdOrder, links
from thalweg.exact import enumeration, streaming
from thalweg.spaces import Binary

MOST_UNITS = 25
# the standard deviation of initial weights
_SMALL = 0.01
# hidden states summed at once
_BLOCK = 2**12
# the updates of a mean-field approximation; each moves half the way
MEAN_FIELD_STEPS = 30


class BoltzmannMachine(HasExactLogZ, HasHiddenUnits):
    r"""The Boltzmann machine on bits, ``E(v, h) = -½vᵀRv - vᵀWh - ½hᵀSh - bᵀv - cᵀh``, as an energy of v.

    ``machine(v)`` is the free energy ``F(v) = -log Σ_h exp(-E(v, h))``. It has a closed form if no two hidden units are
    connected; otherwise it is a sum over all hidden states, for at most 25 hidden units. ``machine(v, h)`` is the
    energy of both, and ``machine.joint`` an energy of all units in one array, the visible ones first, which
    `samplers.Gibbs` samples. ``objectives.ExactLikelihood`` trains a machine of at most 25 units by enumeration,
    ``objectives.BoltzmannLikelihood`` one of any size. Reference: Ackley, Hinton and Sejnowski (1985), Cognitive
    Science 9; Sejnowski (1986) for third-order terms.

    Args:
        visible: the number of visible units.
        hidden: the number of hidden units, 0 for none.
        weights: symmetric with a zero diagonal, over all units, the visible ones first: R, W and S in one matrix.
        bias: b and c in one array, or one number for all.
        mask: boolean and symmetric, like ``weights``: which units are connected; by default all of them.
        triples: whole numbers ``(t, 3)``, units that interact by three: the energy has ``-Σ_t K_t x_i x_j x_k`` too.
        strengths: K, one for each triple, or one number for all.
        key: without weights, they are drawn from ``N(0, 0.01²)`` with this key.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> machine = tw.energies.BoltzmannMachine(4, 2, key=jax.random.key(0))
    >>> v = jnp.array([1, 0, 1, 0])
    >>> bool(machine(v) < machine(v, jnp.array([1, 1])))
    True
    >>> chains = tw.sample(machine.joint, tw.samplers.Gibbs(), jnp.zeros((5, 6), int), key=jax.random.key(1), draws=3)
    >>> chains.draws[..., :4].shape
    (5, 3, 4)
    """

    joint: Ising | ThirdOrder
    visible: int = eqx.field(static=True)

    def __init__(
        self,
        visible: int,
        hidden: int,
        weights: Any = None,
        bias: Any = 0.0,
        *,
        mask: Any = None,
        triples: Any = None,
        strengths: Any = 0.0,
        key: PRNGKeyArray | None = None,
    ):
        self.visible = whole_number("the number of visible units", visible)
        units = self.visible + whole_number("the number of hidden units", hidden, 0)
        if (weights is None) == (key is None):
            raise ValueError("expected weights or a key to draw them with, got neither or both; give one of them")
        if weights is None:
            drawn = jnp.triu(_SMALL * normal(typed_key(key), (units, units)), 1)
            weights = drawn + drawn.T
        coupling = Matrix(weights, mask)
        if coupling.sites != units:
            raise ValueError(
                f"expected weights between all {units} units, visible and hidden, got {coupling.sites}; give a matrix "
                f"of shape {(units, units)}, the visible units first"
            )
        pairs = Ising(coupling, bias, Binary(units))
        self.joint = pairs if triples is None else ThirdOrder(pairs, triples, strengths)

    @property
    def hidden(self) -> int:
        """The number of hidden units."""
        return self.joint.bias.shape[0] - self.visible

    @property
    def pairs(self) -> Any:
        """The part of the energy with biases and pairwise weights, over all units."""
        return self.joint.pairs if isinstance(self.joint, ThirdOrder) else self.joint

    @property
    def space(self) -> Binary:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Binary(self.visible)

    def __call__(self, x: Array, h: Array | None = None) -> Array:
        check_point(x, (self.visible,))
        if h is not None:
            check_point(h, (self.hidden,))
            return self._joint_energy(jnp.asarray(x), jnp.asarray(h))
        x = jnp.asarray(x)
        if self.hidden == 0:
            return self.joint(x)
        if self._hidden_are_independent():
            nothing = jnp.zeros(self.hidden)
            return self._joint_energy(x, nothing) - jnp.sum(jax.nn.softplus(self._hidden_field(x, nothing)))
        if self.hidden > MOST_UNITS:
            raise ValueError(
                f"expected at most {MOST_UNITS} connected hidden units for an exact free energy, got {self.hidden}; "
                "train by tw.objectives.BoltzmannLikelihood, sample machine.joint, or use mean_field_energy"
            )
        states, size = Binary(self.hidden), min(_BLOCK, 2**self.hidden)

        def block(start):
            some = states.states(start, size)
            return some, -jax.vmap(lambda h: self._joint_energy(x, h))(some)

        return -streaming.log_sum(block, jnp.arange(0, states.size, size))

    def mean_field(self, x: Array) -> Array:
        """The mean-field approximation of ``p(h | v)``: means μ of independent hidden units, for one point.

        A fixed point of ``μ_j = σ(c_j + Σ_i v_i W_ij + Σ_k S_jk μ_k)``, at which ``mean_field_energy`` is smallest.
        """

        def move(_, mu):
            return 0.5 * mu + 0.5 * jax.nn.sigmoid(self._hidden_field(x, mu))

        return jax.lax.fori_loop(0, MEAN_FIELD_STEPS, move, jnp.full(self.hidden, 0.5))

    def mean_field_energy(self, x: Array) -> Array:
        """``E(v, μ) - H(μ) ≥ F(v)`` of one point, an upper bound on the free energy.

        >>> import jax, jax.numpy as jnp, thalweg as tw
        >>> machine = tw.energies.BoltzmannMachine(2, 2, jnp.ones((4, 4)) - jnp.eye(4))
        >>> v = jnp.array([1, 0])
        >>> bool(machine.mean_field_energy(v) > machine(v))
        True
        """
        mu = self.mean_field(x)
        entropy = jax.scipy.special.entr(mu) + jax.scipy.special.entr(1 - mu)
        return self._joint_energy(x, mu) - jnp.sum(entropy)

    def exact_log_z(self) -> Array | None:
        """``log Z``, a sum over all units or, if the hidden ones have a closed form, over the visible ones; ``None``
        above 25 units."""
        if self.visible <= MOST_UNITS and (self.hidden == 0 or self._hidden_are_independent()):
            return enumeration.log_z(self, self.space)
        if self.visible + self.hidden <= MOST_UNITS:
            return enumeration.log_z(self.joint, self.joint.space)
        return None

    @property
    def log_z(self) -> Array:
        """The exact log Z; raises above 25 units."""
        value = self.exact_log_z()
        if value is None:
            raise ValueError(
                f"expected at most {MOST_UNITS} units for an exact log Z, got {self.visible} visible and {self.hidden} "
                "hidden ones; estimate it by tw.evaluate.log_z(machine.joint)"
            )
        return value

    def log_prob(self, x: Array) -> Array:
        """``log p(v) = -F(v) - log Z`` of one point, with the exact log Z."""
        return -self(x) - self.log_z

    def hidden_means(self, x: Array) -> Array:
        return jax.vmap(self.mean_field)(x)

    def unit_moments(self, key: PRNGKeyArray, x: Array) -> UnitMoments:
        means = self.hidden_means(x)
        drawn = (uniform(key, means.shape) < means).astype(means.dtype)
        layers = x.astype(means.dtype), drawn
        return UnitMoments(*[moment(layer, axis=0) for layer in layers for moment in (jnp.mean, jnp.var)])

    def centre(self, gradient: "BoltzmannMachine", moments: UnitMoments, standardise: bool) -> "BoltzmannMachine":
        if standardise:
            raise ValueError("expected standardise=False for a BoltzmannMachine, got True; only an RBM has it")
        mu = jnp.concatenate([moments.visible_mean, moments.hidden_mean])
        g_b, g_w = gradient.pairs.bias, gradient.pairs.coupling.weights
        connected = jnp.asarray(links(self.pairs))
        # in terms of b' with b = b' - Wμ, of which W is the symmetric part of the weights
        weights = g_w - jnp.where(connected, jnp.outer(g_b, mu) + jnp.outer(mu, g_b), 0.0) / 2
        bias = g_b - (weights + weights.T) / 2 @ mu
        parts = lambda machine: (machine.pairs.coupling.weights, machine.pairs.bias)
        return eqx.tree_at(parts, gradient, (weights, bias))

    def _joint_energy(self, x: Array, h: Array) -> Array:
        return self.joint(jnp.concatenate([x, h]))

    def _hidden_field(self, x: Array, h: Array) -> Array:
        """``-∂E/∂h``: the log-odds of every hidden unit given all others, since the energy is linear in each."""
        return -jax.grad(lambda h: self._joint_energy(x.astype(h.dtype), h))(h)

    def _hidden_are_independent(self) -> bool:
        """Whether no two hidden units occur in one term of the energy."""
        return not np.any(links(self.joint)[self.visible :, self.visible :])
