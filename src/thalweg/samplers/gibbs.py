"""Gibbs sampling: coordinates drawn anew from their exact full conditionals, block by block."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import HasConditionals, HasLogits, HasTransitionMatrix, Info
from thalweg.samplers.langevin import Position
from thalweg.samplers.lift import require_energy


class Gibbs(HasTransitionMatrix):
    r"""One sweep: ``x_block ~ p(x_block | rest)`` for every block of coordinates independent given the rest.

    The energy says which blocks (a graph's colours) and draws from the conditionals. Systematic scan takes the blocks
    in turn, random scan as many blocks as there are, each drawn afresh for every chain. Exactly invariant, nothing is
    ever rejected. Reference: Geman and Geman (1984), IEEE PAMI 6.

    Args:
        scan: ``"systematic"`` or ``"random"``.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Ising(tw.energies.Grid((4, 4), weight=0.3), bias=0.1)
    >>> init = jnp.ones((8, 16), int)
    >>> tw.sample(energy, tw.samplers.Gibbs(), init, key=jax.random.key(0), draws=10).draws.shape
    (8, 10, 16)
    """

    scan: str = eqx.field(static=True, default="systematic")

    def __check_init__(self):
        if self.scan not in ("systematic", "random"):
            raise ValueError(f"expected scan to be 'systematic' or 'random', got {self.scan!r}; choose one")

    def init(self, energy: Any, x: Array) -> Position:
        model = require_energy("Gibbs", energy)
        if not isinstance(model, HasConditionals):
            raise ValueError(
                f"expected an energy with conditionals for Gibbs, got {type(model).__name__}, which has none; use "
                "GibbsWithGradients on discrete spaces, or write `blocks`, `resample` and `scaled` (HasConditionals)"
            )
        return Position(x)

    def step(self, key: PRNGKeyArray, energy: Any, state: Position) -> tuple[Position, Info]:
        blocks, chains = energy.blocks, state.x.shape[0]
        key_blocks, key_draws = jax.random.split(key)
        order = jnp.broadcast_to(jnp.arange(len(blocks))[:, None], (len(blocks), chains))
        if self.scan == "random":
            order = jax.random.randint(key_blocks, order.shape, 0, len(blocks))

        def one(x, now):
            key, chosen = now
            return jax.vmap(energy.resample)(jax.random.split(key, chains), x, blocks[chosen]), None

        x, _ = jax.lax.scan(one, state.x, (jax.random.split(key_draws, len(blocks)), order))
        return Position(x), Info()

    def transition_matrix(self, energy: Any) -> Array:
        if not isinstance(energy, HasLogits):
            raise ValueError(
                f"expected an energy on a finite space with logits, got {type(energy).__name__}; use Ising or Potts"
            )
        matrices = [_block_matrix(energy, block) for block in energy.blocks]
        if self.scan == "random":
            return jnp.linalg.matrix_power(sum(matrices[1:], matrices[0]) / len(matrices), len(matrices))
        whole = matrices[0]
        for matrix in matrices[1:]:
            whole = whole @ matrix
        return whole


@eqx.filter_jit
def _block_matrix(energy: Any, block: Array) -> Array:
    """``T[i, j] = Π_{k in block} p(x_k = x'_k | rest of x) · Π_{k not in block} [x_k = x'_k]``."""
    states = energy.space.states(0, energy.space.size)
    levels = jnp.searchsorted(jnp.array(energy.space.levels), states)

    def row(x):
        log_prob = jax.nn.log_softmax(energy.logits(x))
        redrawn = jnp.take_along_axis(log_prob[None], levels[..., None], axis=-1)[..., 0]
        return jnp.exp(jnp.sum(jnp.where(block, redrawn, jnp.where(states == x, 0.0, -jnp.inf)), axis=-1))

    return jax.lax.map(row, states)
