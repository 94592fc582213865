"""The exact log Z of a restricted Boltzmann machine: a sum over the states of its smaller layer."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from thalweg.core import compiled
from thalweg.energies.units_real import GaussianUnits
from thalweg.exact import streaming
from thalweg.spaces import Finite

MOST_UNITS = 25
# states in memory at once: at most this many numbers in a block
_BLOCK_NUMBERS = 2**22
_BLOCK = 2**12


def sum_over_smaller_side(rbm: Any, weight: Array) -> Array | None:
    """``log Z`` of an `RBM`, or ``None`` if neither layer has at most 2^25 states.

    The other layer is summed (or integrated) in closed form for each state. Two Gaussian layers have a closed form.

    Args:
        rbm: the machine.
        weight: the length of a document for replicated softmax units, otherwise 1.
    """
    if isinstance(rbm.visible, GaussianUnits) and isinstance(rbm.hidden, GaussianUnits):
        return _log_z_gaussian(rbm)
    sides = [(rbm.visible.space, True), (rbm.hidden.space, False)]
    small = [side for side in sides if isinstance(side[0], Finite) and side[0].size <= 2**MOST_UNITS]
    if not small:
        return None
    space, over_visible = min(small, key=lambda side: side[0].size)
    return _log_sum(rbm, weight, space, over_visible)


@compiled
def _log_sum(rbm: Any, weight: Array, space: Finite, over_visible: bool) -> Array:
    width = rbm.hidden.features if over_visible else rbm.visible.features
    count = min(space.size, _BLOCK, max(64, _BLOCK_NUMBERS // width))

    def block(start):
        states = space.states(start, count)
        log_weights = -rbm.free_energies(states) if over_visible else -_hidden_free_energies(rbm, states, weight)
        # the last block may run past the last state, where the numbering starts again at zero
        return states, jnp.where(start + jnp.arange(count) < space.size, log_weights, -jnp.inf)

    total = streaming.log_sum(block, jnp.arange(0, space.size, count))
    if over_visible and rbm.present is not None:  # absent units were counted in each of their states
        total -= jnp.sum(~rbm.present) * np.log(len(space.levels))
    return total


def _hidden_free_energies(rbm: Any, h: Array, weight: Array) -> Array:
    """``-log ∫ exp(-E(v, h)) dv`` of hidden values ``(..., units)``."""
    statistics = rbm.hidden.statistics(h)
    natural = rbm.visible.natural + statistics @ rbm.weights.T
    visible = rbm.visible.log_normaliser(natural, weight) - rbm.visible.constant
    visible = jnp.sum(visible if rbm.present is None else visible * rbm.present, axis=-1)
    own = jnp.sum(rbm.hidden.base(h) + rbm.hidden.constant, axis=-1)
    return own - weight * (statistics @ rbm.hidden.natural) - visible


def _log_z_gaussian(rbm: Any) -> Array:
    """With t = v/σ and s = h/σ': the integral of ``exp(-½‖t‖² - ½‖s‖² + tᵀWs + t·θ + s·θ')``."""
    weights = rbm.weights if rbm.present is None else rbm.weights * rbm.present[:, None]
    shift = rbm.visible.natural if rbm.present is None else rbm.visible.natural * rbm.present
    shift = shift + weights @ rbm.hidden.natural
    precision = jnp.eye(len(weights)) - weights @ weights.T
    quadratic = 0.5 * jnp.dot(shift, jnp.linalg.solve(precision, shift)) - 0.5 * jnp.linalg.slogdet(precision)[1]
    hidden = jnp.sum(rbm.hidden.log_normaliser(rbm.hidden.natural) - rbm.hidden.constant)
    scales = 0.5 * np.log(2 * np.pi) + rbm.visible.log_scale - rbm.visible.constant
    total = quadratic + hidden + jnp.sum(scales if rbm.present is None else scales * rbm.present)
    return jnp.where(jnp.linalg.eigvalsh(precision)[0] > 0, total, jnp.inf)
