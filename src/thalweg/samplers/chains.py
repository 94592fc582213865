"""The result of a run of chains."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

from thalweg.core import check_function, compiled, import_extra, is_concrete, require_energy
from thalweg.core.html import html_table
from thalweg.samplers.diagnostics import Summary, name_leaf, summarise

_QUICK = 100_000  # numbers whose summary takes less than a tenth of a second


class Chains(eqx.Module):
    """The result of `sample`.

    ``draws`` is ``(chains, draws, *event)``, or a tree of such arrays; ``stats`` holds the kernel's metrics per chain,
    without burn-in: ``acceptance`` (mean) and ``divergences`` (count), if the kernel has them; ``state`` is the final
    state of the chains, from which ``tw.sample(energy, kernel, chains.state, …)`` continues.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy, kernel = lambda x: 0.5 * jnp.sum(x**2), tw.samplers.MALA(0.5)
    >>> chains = tw.sample(energy, kernel, jnp.zeros((4, 2)), key=jax.random.key(0), draws=100)
    >>> chains.draws.shape, chains.stats["acceptance"].shape, chains.energies(energy).shape
    ((4, 100, 2), (4,), (4, 100))
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
        point = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), self.draws)
        check_function("a function of one point", function, "lambda x: x.mean()", point)
        return summarise(_evaluate(function, self.draws), self.stats, name="f(x)")

    def to_arviz(self) -> Any:
        """The draws as an arviz object, one variable for each array of a point (``x`` if there is only one).

        Needs the extra ``arviz``.
        """
        arviz = import_extra("arviz", "arviz", "to_arviz")
        leaves, _ = jax.tree_util.tree_flatten_with_path(self.draws)
        posterior = {name_leaf(path): np.asarray(leaf) for path, leaf in leaves}
        # since arviz 1.0 the first argument holds groups of variables, before it the variables of the posterior
        return arviz.from_dict(posterior if arviz.__version__.startswith("0.") else {"posterior": posterior})

    def _repr_html_(self) -> str:
        leaves, _ = jax.tree_util.tree_flatten_with_path(self.draws)
        known = all(is_concrete(leaf) for leaf in jax.tree.leaves((self.draws, self.stats)))
        shapes = ", ".join(f"{name_leaf(path)} {np.shape(leaf)}" for path, leaf in leaves)
        rows: list[tuple[str, str]] = [("draws (chains, draws, *event)", shapes)]
        if known and "acceptance" in self.stats:
            rows.append(("mean acceptance", f"{float(np.mean(self.stats['acceptance'])):.3f}"))
        if known and "divergences" in self.stats:
            rows.append(("divergent steps", str(int(np.sum(self.stats["divergences"])))))
        own = html_table(rows, title="Chains")
        return own + self.summary()._repr_html_() if known and self._is_quick() else own

    def _is_quick(self) -> bool:
        """Whether there are draws enough for a summary, and few enough to make one whenever chains are looked at."""
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(self.draws)]
        enough = all(shape[0] >= 2 and shape[1] >= 4 for shape in shapes)
        return enough and 0 < sum(math.prod(shape) for shape in shapes) <= _QUICK


@compiled
def _evaluate(function: Any, draws: PyTree) -> PyTree:
    return jax.vmap(jax.vmap(function))(draws)
