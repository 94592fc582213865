"""What a run of chains leaves behind."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

from thalweg.core import check_function, compiled, require_energy
from thalweg.samplers.diagnostics import Summary, name_leaf, summarise


class Chains(eqx.Module):
    """What `sample` returns.

    ``draws`` is ``(chains, draws, *event)``, or a tree of such; ``stats`` holds the kernel's metrics, per chain over
    the kept part of the run: ``acceptance`` (mean) and ``divergences`` (count), each where the kernel has it;
    ``state`` is where the run ended: ``tw.sample(energy, kernel, chains.state, …)`` goes on from there.
    """

    draws: Any
    stats: dict[str, Array]
    state: Any = None

    def energies(self, energy: Callable[[Any], Array]) -> Array:
        """The energy trace, ``(chains, draws)``."""
        require_energy("energies", energy)
        return _evaluate(energy, self.draws)

    def summary(self, function: Callable[[Any], PyTree] | None = None) -> Summary:
        """Mean, deviation, Monte Carlo error, effective sizes and R-hat per coordinate, and a verdict in words.

        Args:
            function: a function of ONE point to summarise in place of the point itself; it returns a number, an array
                or a tree of them.

        >>> import jax, thalweg as tw
        >>> spins = tw.energies.Ising(tw.energies.Grid((4, 4), 0.1))
        >>> start = spins.space.noise(jax.random.key(0), (4,))
        >>> chains = tw.sample(spins, tw.samplers.Gibbs(), start, key=jax.random.key(1), draws=1000, burn_in=100)
        >>> chains.summary(lambda x: {"magnetisation": x.mean()}).mixed
        True
        """
        if function is None:
            return summarise(self.draws, self.stats)
        point = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), self.draws)
        check_function("a function of one point", function, "lambda x: x.mean()", point)
        return summarise(_evaluate(function, self.draws), self.stats, name="f(x)")

    def to_arviz(self) -> Any:
        """The draws as an arviz object, one variable for each array of a point (``x`` where it is a single one).

        Needs the extra ``arviz``.
        """
        try:
            import arviz  # pyright: ignore[reportMissingImports]
        except ImportError as missing:
            raise ValueError(
                "expected arviz to be installed for to_arviz, and it is not; get it with `pip install thalweg[arviz]`"
            ) from missing
        leaves, _ = jax.tree_util.tree_flatten_with_path(self.draws)
        return arviz.from_dict({"posterior": {name_leaf(path): np.asarray(leaf) for path, leaf in leaves}})


@compiled
def _evaluate(function: Any, draws: PyTree) -> PyTree:
    return jax.vmap(jax.vmap(function))(draws)
