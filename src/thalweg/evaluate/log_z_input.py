"""What `log_z` is given, checked before anything runs: energies, samples, kernels, budgets."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from thalweg.core import (
    ConditionalEnergy,
    ConditionalKernel,
    HasFreeEnergy,
    LatentEnergy,
    ScoreNetwork,
    Space,
    Tunable,
    as_energy,
    check_instance,
    check_scalar,
    compiled,
    energies,
    positive,
    space_of,
    static_number,
)
from thalweg.energies import marginal
from thalweg.evaluate.real_paths import GROUPS
from thalweg.samplers import GradientDescent, Langevin, UnderdampedLangevin
from thalweg.samplers.run import check_kernel
from thalweg.samplers.tempering import AbstractOverKernel
from thalweg.spaces import Finite, Product, as_points, is_continuous


def check_budget(name: str, value: Any) -> float | None:
    """A positive number, or ``None``."""
    return None if value is None else static_number(name, value, positive)


def prepare_energy(energy: Any, space: Space | None) -> tuple[Any, Space]:
    """The energy with its space; raises for what has no log Z."""
    if isinstance(energy, ScoreNetwork):
        raise ValueError(
            f"expected an energy for log Z, got the score network {type(energy).__name__}, which has none; "
            "a noise-conditional one has a likelihood by its probability flow"
        )
    if isinstance(energy, ConditionalEnergy):
        raise ValueError(
            f"expected an energy of x alone for log Z, got {type(energy).__name__} of x and a condition; "
            "fix the condition with tw.given(energy, c)"
        )
    if isinstance(energy, LatentEnergy):
        if not isinstance(energy, HasFreeEnergy):
            raise ValueError(
                f"expected an energy of x alone for log Z, got {type(energy).__name__} of x and a latent value without "
                "free_energy; write it, or give an energy of both"
            )
        energy = marginal(energy)
    energy = as_energy(energy, space)
    known = space_of(energy)
    if known is None:
        raise ValueError(
            "expected an energy with a space for log Z, got one without; give one, for example space=tw.Real(2)"
        )
    if isinstance(known, Product) and all(isinstance(part, Finite) for part in known.parts):
        raise ValueError(
            f"expected one finite space for log Z, got the product {known}; give an energy of one array of all sites "
            "(of a machine with hidden units, the machine itself: its energy is summed over them)"
        )
    if not isinstance(known, Finite) and not is_continuous(known):
        raise ValueError(
            f"expected a finite or a continuous space for log Z, got {known}; sum over its discrete part in the energy"
        )
    if not isinstance(known, Product):
        check_scalar(energy, jax.ShapeDtypeStruct((1, *known.shape), known.dtype))
    return energy, known


def check_samples(samples: Any, space: Space) -> PyTree:
    """Points of the space, at least two for each group of chains."""
    points = as_points(space, samples, "samples")
    count = len(jax.tree.leaves(points)[0])
    if count < 2 * GROUPS:
        raise ValueError(
            f"expected at least {2 * GROUPS} samples, two for each of {GROUPS} groups of chains, got {count}; draw more"
        )
    rows = [np.asarray(leaf).reshape(count, -1) for leaf in jax.tree.leaves(points)]
    if all((leaf == leaf[0]).all() for leaf in rows) and not isinstance(space, Finite):
        raise ValueError(f"expected samples that differ, got {count} equal ones; draw independent points of the model")
    return points


def check_base(base: Any, space: Space) -> None:
    """Raise for what is not a density, or a density of points of another shape."""
    check_instance("a density with sample and log_prob", base, ("sample", "log_prob"), "tw.noise.fit_normal(data)")
    drawn = jax.eval_shape(lambda key: base.sample(key, (2,)), jax.random.key(0))
    wanted = jax.eval_shape(lambda key: space.noise(key, (2,)), jax.random.key(0))
    shapes = [[leaf.shape[1:] for leaf in jax.tree.leaves(tree)] for tree in (wanted, drawn)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"expected a base density of points of shape {', '.join(map(str, shapes[0]))}, got draws of shape "
            f"{', '.join(map(str, shapes[1]))}; fit it to points of the model"
        )


@compiled
def _energies(energy: Any, x: PyTree) -> Array:
    return energies(energy, x)


def check_values(energy: Any, drawn: PyTree, samples: PyTree | None, needed: bool) -> None:
    """Raise for an energy that is not a number, or minus infinity, at drawn points; if it is ``needed``, for one that
    is infinite at all of them; and for samples without a finite energy."""
    for points, what in ((drawn, "points of its space"), (samples, "samples")):
        if points is None:
            continue
        values = np.asarray(_energies(energy, points), float)
        if np.isnan(values).any():
            raise ValueError(
                f"expected an energy that is a number or infinity at all {what}, got NaN at "
                f"{int(np.isnan(values).sum())} of {len(values)}; return jnp.inf outside the support, "
                "or give a space such as tw.Positive"
            )
        if (values == -np.inf).any():
            raise ValueError(
                f"expected an energy above minus infinity, so that Z is finite, got -inf at "
                f"{int(np.isneginf(values).sum())} of {len(values)} {what}; bound it from below"
            )
        if what == "samples" and np.isposinf(values).any():
            raise ValueError(
                f"expected samples of the model, where the energy is finite, got an infinite energy in row "
                f"{int(np.argmax(np.isposinf(values)))}; leave such rows out"
            )
        if what != "samples" and needed and np.isposinf(values).all():
            raise ValueError(
                f"expected an energy that is finite somewhere near the origin, got infinity at all of "
                f"{len(values)} points; give samples of the model, or a base density near it"
            )


# kernels with a bias of their own, which would enter log Z, and those that change the energy by themselves
_REFUSED = (Langevin, UnderdampedLangevin, GradientDescent, ConditionalKernel, AbstractOverKernel)


def check_moves(kernel: Any) -> None:
    """Raise for what is not a kernel, and for one that does not leave its energy invariant."""
    if kernel is None:
        return
    check_kernel(kernel)
    if isinstance(kernel, _REFUSED):
        raise ValueError(
            f"expected a kernel that leaves every energy of the path invariant, such as HMC, RandomWalk or Gibbs, got "
            f"{type(kernel).__name__}, which does not; leave out `kernel` for the default"
        )
    if isinstance(kernel, Tunable) and jnp.ndim(kernel.get_step_size()):
        raise ValueError(
            f"expected one step size for all coordinates, which is tuned at each temperature, got an array of shape "
            f"{jnp.shape(kernel.get_step_size())}; give one number"
        )
