"""A standard Gaussian changed by a network: an energy of vectors whose density always has a finite integral."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Energy
from thalweg.energies.neural import MLP
from thalweg.energies.noise_conditional import zero_init
from thalweg.spaces import Real


class ConfinedMLP(Energy):
    r"""``E(x) = ½‖x‖² + f(x)`` with f an `MLP` that is zero until it is trained, for data of mean 0 and spread 1.

    f grows at most in proportion to ``‖x‖``, so that far out the quadratic is the larger: ``exp(-E)`` has a finite
    integral and the tails of a Gaussian, whatever f has learnt, and no chain finds a way to infinity.

    Args:
        shape: of a point.
        width: units of a hidden layer.
        depth: hidden layers.

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
