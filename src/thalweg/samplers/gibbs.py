"""Gibbs sampling: coordinates are redrawn from their full conditionals, block by block."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import (
    HasConditionals,
    HasLogits,
    HasSweep,
    HasTransitionMatrix,
    Info,
    PerChain,
    compiled,
    count_chains,
    over_chains,
    require_energy,
    space_of,
)
from thalweg.core.random import split
from thalweg.exact.enumeration import MOST_STATES_SQUARED, gibbs_matrix, require_finite
from thalweg.samplers.states import Position, refuse_score
from thalweg.spaces import Product


class Gibbs(HasTransitionMatrix):
    r"""One sweep of Gibbs sampling: ``x_block ~ p(x_block | rest)`` for every block of the energy.

    The energy provides the blocks (coordinates that are independent given the rest, such as the colours of a graph) and
    samples the conditionals. A systematic scan takes the blocks in turn; a random scan takes as many blocks, each
    chosen at random for every chain. Exactly invariant without rejections. A machine with hidden units draws these
    given x, then x given them (`HasSweep`). Reference: Geman and Geman (1984), IEEE PAMI 6.

    Args:
        scan: ``"systematic"`` or ``"random"``.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.Ising(tw.energies.Grid((4, 4), weight=0.3), bias=0.1)
    >>> init = jnp.ones((8, 16), int)
    >>> tw.sample(energy, tw.samplers.Gibbs(), init, key=jax.random.key(0), draws=10).draws.shape
    (8, 10, 16)
    """

    scan: str = eqx.field(static=True, default="systematic")

    takes_per_chain_energies = True

    def __check_init__(self):
        if not isinstance(self.scan, str) or self.scan not in ("systematic", "random"):
            raise ValueError(f"expected scan to be 'systematic' or 'random', got {self.scan!r}; choose one")

    def init(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> Position:
        refuse_score("Gibbs", energy)
        require_energy("Gibbs", energy)
        model = energy.first() if isinstance(energy, PerChain) else energy
        if isinstance(model, HasSweep):
            if self.scan == "random":
                raise ValueError(
                    f"expected a systematic scan for {type(model).__name__}, which draws all its units at once, got "
                    "scan='random'; leave out `scan`"
                )
            return Position(x)  # pyright: ignore[reportCallIssue]
        if isinstance(x, (tuple, list, dict)) or isinstance(getattr(model, "space", None), Product):
            raise ValueError(
                "expected points that are one array for Gibbs, got points of several parts; "
                "give each part a kernel of its own: tw.samplers.PerPart"
            )
        if not isinstance(model, HasConditionals):
            raise ValueError(
                f"expected an energy with conditionals for Gibbs, got {type(model).__name__}, which has none; use "
                "GibbsWithGradients on discrete spaces, or write `blocks`, `resample` and `scaled` (HasConditionals)"
            )
        return Position(x)  # pyright: ignore[reportCallIssue]

    def step(self, key: PRNGKeyArray, energy: Any, state: Position) -> tuple[Position, Info]:
        x = state.x
        if isinstance(energy, PerChain):
            one = lambda energy, key, point: self._sweep(key, energy, jax.tree.map(lambda leaf: leaf[None], point))
            drawn = over_chains(one, energy, split(key, count_chains(x)), x)
            x = jax.tree.map(lambda leaf: leaf[:, 0], drawn)
        else:
            x = self._sweep(key, energy, x)
        return Position(x), Info()  # pyright: ignore[reportCallIssue]

    def _sweep(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> PyTree:
        if self.scan == "systematic":
            return energy.sweep(key, x)
        blocks = jnp.asarray(energy.blocks)
        key_blocks, key_draws = jax.random.split(key)
        order = jax.random.randint(key_blocks, (len(blocks), len(x)), 0, len(blocks))
        one = lambda x, now: (energy.resample(now[0], x, blocks[now[1]]), None)
        return jax.lax.scan(one, x, (split(key_draws, len(blocks)), order))[0]

    def transition_matrix(self, energy: Any) -> Array:
        if isinstance(energy, HasSweep):
            raise ValueError(
                f"expected an energy with full conditionals for a transition matrix, got {type(energy).__name__}, "
                "whose sweep goes through hidden units; use tw.exact.transition_matrix, or check_sampler"
            )
        require_finite(space_of(energy), MOST_STATES_SQUARED, "a transition matrix")  # pyright: ignore[reportArgumentType]
        # without logits, the conditionals of the energy itself, from which `resample` draws by contract
        matrix_of = _block_matrix if isinstance(energy, HasLogits) else gibbs_matrix
        matrices = [matrix_of(energy, jnp.asarray(block)) for block in np.asarray(energy.blocks)]
        if self.scan == "random":
            return jnp.linalg.matrix_power(sum(matrices[1:], matrices[0]) / len(matrices), len(matrices))
        whole = matrices[0]
        for matrix in matrices[1:]:
            whole = whole @ matrix
        return whole


@compiled
def _block_matrix(energy: Any, block: Array) -> Array:
    """``T[i, j] = Π_{k in block} p(x_k = x'_k | rest of x) · Π_{k not in block} [x_k = x'_k]``."""
    states = energy.space.states(0, energy.space.size)
    levels = jnp.searchsorted(jnp.array(energy.space.levels), states)

    def row(x):
        log_prob = jax.nn.log_softmax(energy.logits(x))
        redrawn = jnp.take_along_axis(log_prob[None], levels[..., None], axis=-1)[..., 0]
        return jnp.exp(jnp.sum(jnp.where(block, redrawn, jnp.where(states == x, 0.0, -jnp.inf)), axis=-1))

    return jax.lax.map(row, states)
