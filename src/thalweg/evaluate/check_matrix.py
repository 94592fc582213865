"""The exact part of `check_sampler` on small finite spaces: a test of the kernel's transition matrix."""

from typing import Any

from thalweg import exact
from thalweg.core import HasSweep, HasTransitionMatrix, PerChain, space_of
from thalweg.spaces import Finite

# the largest space whose transition matrix is computed, and how far πT may be from π in single precision
_STATES, _ROUNDING = 4096, 2e-5


def check_matrix(kernel: Any, energy: Any) -> tuple[bool, str]:
    """Whether the chain has ``πT = π`` and reaches every state, and a text about this for the verdict.

    ``(True, "")`` if there is no matrix to check: the space is not finite, has more than 4096 states, or kernel and
    energy do not provide the matrix. A periodic chain leaves the target invariant and passes; the text says that it is
    periodic.
    """
    space = space_of(energy)
    small = isinstance(space, Finite) and space.size <= _STATES
    if not (isinstance(kernel, HasTransitionMatrix) and small) or isinstance(energy, (PerChain, HasSweep)):
        return True, ""
    chain = exact.chain_properties(kernel.transition_matrix(energy), exact.probabilities(energy))
    invariant = chain.invariance_error <= _ROUNDING
    text = f" Exactly, πT {'=' if invariant else '≠'} π: the total difference is {chain.invariance_error:.1g}."
    text += f" The chain is {chain}."
    if not chain.irreducible:
        text += " It cannot reach all states of positive probability from all others."
    if not chain.aperiodic:
        text += " It is periodic: averages over time converge to the target, the distribution at one step does not."
    return invariant and chain.irreducible, text
