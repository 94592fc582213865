"""What a run of chains leaves behind."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from thalweg.core import as_model
from thalweg.samplers.diagnostics import Summary, summarise


class Chains(eqx.Module):
    """What `sample` returns.

    ``draws`` is ``(chains, draws, *event)``; ``stats`` holds what the kernel told, per chain over the kept part of the
    run: ``acceptance`` (mean) and ``divergences`` (count), each where the kernel has it.
    """

    draws: Array
    stats: dict[str, Array]

    def energies(self, energy: Callable[[Array], Array]) -> Array:
        """The energy trace, ``(chains, draws)``."""
        return _energies(as_model(energy), self.draws)

    def summary(self) -> Summary:
        """Mean, deviation, Monte Carlo error, effective sizes and R-hat per coordinate, and a verdict in words."""
        return summarise(self.draws, self.stats)

    def to_arviz(self) -> Any:
        """The draws as an arviz object with one variable ``x``; needs the extra ``arviz``."""
        try:
            import arviz  # pyright: ignore[reportMissingImports]
        except ImportError as missing:
            raise ValueError(
                "expected arviz to be installed for to_arviz, and it is not; get it with `pip install thalweg[arviz]`"
            ) from missing
        return arviz.from_dict({"posterior": {"x": np.asarray(self.draws)}})


@eqx.filter_jit
def _energies(energy: Any, draws: Array) -> Array:
    return jax.vmap(jax.vmap(energy))(draws)
