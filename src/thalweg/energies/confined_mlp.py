"""A standard Gaussian modified by a network: an energy of vectors whose density can always be normalised."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Energy
from thalweg.energies.neural import MLP
from thalweg.energies.noise_conditional import zero_init
from thalweg.spaces import Real


class ConfinedMLP(Energy):
    r"""``E(x) = ½‖x‖² + f(x)`` with an `MLP` f that is zero before training, for data of mean 0 and variance 1.

    f grows at most in proportion to ``‖x‖``, so the quadratic term dominates far from the origin: ``exp(-E)`` has a
    finite integral and Gaussian tails, whatever f has learnt, and no chain escapes to infinity.

    Args:
        shape: of a point.
        width: the number of units in a hidden layer.
        depth: the number of hidden layers.
        key: random key of the initial weights.

    >>> import jax, jax.numpy as jnp
    >>> from thalweg.energies.confined_mlp import ConfinedMLP
    >>> float(ConfinedMLP(2, key=jax.random.key(0))(jnp.array([3.0, 4.0])))
    12.5
    """

    network: MLP
    space: Real = eqx.field(static=True)

    def __init__(self, shape: int | tuple[int, ...], width: int = 64, depth: int = 2, *, key: PRNGKeyArray):
        network = MLP(shape, width, depth, key=key)
        last = lambda net: net.layers[-1]
        self.network = eqx.tree_at(last, network, replace_fn=zero_init)
        self.space = network.space

    def __call__(self, x: Array) -> Array:
        return 0.5 * jnp.sum(x**2) + self.network(x)
