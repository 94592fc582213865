"""The result of a run of chains."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

from thalweg.core import compiled, require_energy
from thalweg.samplers.diagnostics import Summary, name_leaf, summarise


class Chains(eqx.Module):
    """The result of `sample`.

    ``draws`` is ``(chains, draws, *event)``, or a tree of such arrays; ``stats`` holds the kernel's metrics per chain,
    without burn-in: ``acceptance`` (mean) and ``divergences`` (count), if the kernel has them; ``state`` is the final
    state of the chains, from which ``tw.sample(energy, kernel, chains.state, …)`` continues.
    """

    draws: Any
    stats: dict[str, Array]
    state: Any = None

    def energies(self, energy: Callable[[Any], Array]) -> Array:
        """The energy of every draw, ``(chains, draws)``."""
        require_energy("energies", energy)
        return _evaluate(energy, self.draws)

    def summary(self, function: Callable[[Any], PyTree] | None = None) -> Summary:
        """Mean, standard deviation, Monte Carlo error, effective sample sizes and R-hat of every coordinate, and a
        verdict.

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
        return summarise(_evaluate(function, self.draws), self.stats, name="f(x)")

    def to_arviz(self) -> Any:
        """The draws as an arviz object, one variable for each array of a point (``x`` if there is only one).

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
