"""The maximum mean discrepancy between two sets of samples, and its permutation test."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from thalweg.core import compiled, positive, typed_key, whole_number
from thalweg.evaluate.flat_samples import centre, distance_quantiles, flat_pair, row_blocks, squared_distances
from thalweg.evaluate.result import TestResult

# the default bandwidths: this many, between half the first quantile of the distances and twice the second
_BANDWIDTHS, _QUANTILES = 5, (0.05, 0.95)
_PERMUTATIONS = 500


def mmd(x: Any, y: Any, *, key: PRNGKeyArray, bandwidths: Any = None, permutations: int = _PERMUTATIONS) -> TestResult:
    r"""The maximum mean discrepancy of two sets of samples, and the p-value of the test that they have one source.

    For each bandwidth ℓ of the kernel ``k = exp(-‖x - y‖²/2ℓ²)`` the unbiased estimate is

    ``MMD² = mean k(x, x') + mean k(y, y') - 2 mean k(x, y)`` over pairs of different samples.

    The statistic is the largest ``MMD²/σ`` over the bandwidths, where ``σ² = 2(1/n + 1/m)² mean k̃²`` is its variance
    for equal sources (k̃ is the kernel minus its means by row and column, over both sets). The same maximum is taken for
    every random relabelling of the samples, so ``p = (1 + #{permuted ≥ observed}) / (1 + permutations)`` is exact for
    any number of samples and of bandwidths. Over 500
    replicates of 100 and 150 samples of N(0, I) in two dimensions p-values are uniform; the power at level 0.05 against
    a shift of 0.3 in each coordinate is above 0.95 with 300 samples each.

    Samples may be images, trees of arrays, or whole numbers; they are compared as flat vectors. References: Gretton et
    al. (2012), JMLR 13; Biggs, Schrab and Gretton (2023), NeurIPS, for normalised statistics inside one permutation
    test; Schrab et al. (2023), JMLR 24, for the aggregation over bandwidths.

    Args:
        x: ``(n, *event)``, independent samples, at least 2.
        y: ``(m, *event)``, likewise.
        key: the random key of the permutations.
        bandwidths: one or several ℓ; by default five, from half the 5 % quantile of the distances between samples to
            twice the 95 % quantile, by equal factors. They are those of 300 samples chosen at random from both sets.
        permutations: their number; 0 gives no p-value. Time grows as ``(n + m)²`` times their number,
            memory as ``n + m`` times it.

    Returns:
        `TestResult`; ``parts["mmd_squared"]`` has the unbiased MMD² of every bandwidth.

    >>> import jax, thalweg as tw
    >>> one, other, test = jax.random.split(jax.random.key(0), 3)
    >>> x, y = jax.random.normal(one, (200, 2)), 0.5 + jax.random.normal(other, (300, 2))
    >>> tw.evaluate.mmd(x, y, key=test).p_value < 0.01
    True
    """
    permutations = whole_number("permutations", permutations, 0, "500 are usual")
    widths = None if bandwidths is None else jnp.atleast_1d(positive("bandwidths", bandwidths))
    if widths is not None and widths.ndim != 1:
        raise ValueError(f"expected one or several bandwidths, got an array of shape {widths.shape}; give a list")
    one, other = flat_pair(x, y, 2, "a test of two samples")
    key_rows, key_permute = jax.random.split(typed_key(key))
    rows = jnp.concatenate([one, other])
    if widths is None:
        low, high = distance_quantiles(rows, _QUANTILES, key_rows)
        widths = jnp.geomspace(low / 2, high * 2, _BANDWIDTHS)
    unbiased, deviation = (np.asarray(each) for each in _unbiased(rows, len(one), widths, permutations, key_permute))
    # a kernel that is constant between all samples says nothing
    statistics = np.max(np.where(deviation > 0, unbiased.T / np.where(deviation > 0, deviation, 1), 0), axis=1)
    # labels that give equal sums differ in the last digits; counting them as equal keeps the test valid
    rounding = 1e3 * np.finfo(unbiased.dtype).eps
    above = int(np.sum(statistics[1:] >= statistics[0] - rounding))
    words = ", ".join(f"{width:.3g}" for width in np.asarray(widths))
    method = f"largest MMD²/σ over the bandwidths {words}" + (f", {permutations} permutations" if permutations else "")
    by_width = {float(f"{width:.4g}"): float(value) for width, value in zip(widths, unbiased[:, 0], strict=True)}
    chance = (1 + above) / (1 + permutations) if permutations else None
    return TestResult(float(statistics[0]), chance, method, {"mmd_squared": by_width})


@compiled
def _unbiased(
    rows: Float[Array, "n d"], first: int, widths: Float[Array, " k"], permutations: int, key: PRNGKeyArray
) -> tuple[Float[Array, "k b"], Float[Array, " k"]]:
    r"""The unbiased MMD² for every bandwidth and relabelling, the given labels first, and its standard deviation.

    With ``v = 1/n`` at the x and ``-1/m`` at the y, and K without its diagonal, ``Q = vᵀKv``, ``L = 1ᵀKv`` and ``S =
    1ᵀK1`` give the sums of k within x, ``(n/N)²S + 2(n/N)(nm/N)L + (nm/N)²Q``, and within y: one product Kv per
    relabelling, in which little cancels.
    """
    total, second = len(rows), len(rows) - first
    rows = centre(rows)
    labels = jnp.where(jnp.arange(total) < first, 1 / first, -1 / second).astype(rows.dtype)
    shuffled = jax.vmap(lambda each: jax.random.permutation(each, labels))(jax.random.split(key, permutations))
    v = jnp.concatenate([labels[None], shuffled]).T

    def add(sums: Any, numbers: Array) -> tuple[Any, None]:
        x = rows.at[numbers].get(mode="fill", fill_value=0)
        own = v.at[numbers].get(mode="fill", fill_value=0)
        squares = squared_distances(x, rows)
        counted = (numbers[:, None] < total) & (numbers[:, None] != jnp.arange(total))

        def one(width: Array) -> tuple[Array, ...]:
            k = jnp.where(counted, jnp.exp(-squares / (2 * width**2)), 0)
            sums_by_row = jnp.sum(k, axis=1)
            product = jnp.matmul(k, v, precision="highest")
            singles = jnp.sum(sums_by_row), jnp.sum(k**2), jnp.sum(sums_by_row**2)
            return jnp.sum(own * product, axis=0), sums_by_row @ own, *singles

        return jax.tree.map(jnp.add, sums, jax.lax.map(one, widths)), None

    many = jnp.zeros((len(widths), permutations + 1), rows.dtype)
    single = jnp.zeros(len(widths), rows.dtype)
    zeros = (many, many, single, single, single)
    (q, linear, s, squares, squared_rows), _ = jax.lax.scan(add, zeros, row_blocks(total))
    share, other_share, both = first / total, second / total, first * second / total
    within_x = share**2 * s[:, None] + 2 * share * both * linear + both**2 * q
    within_y = other_share**2 * s[:, None] - 2 * other_share * both * linear + both**2 * q
    unbiased = q + within_x / float(first**2 * (first - 1)) + within_y / float(second**2 * (second - 1))
    mean_square = squares / float(total**2)
    centred = mean_square - 2 * squared_rows / float(total**3) + (s / float(total**2)) ** 2
    # less than this is a rounding error
    centred = jnp.where(centred > 100 * jnp.finfo(rows.dtype).eps * mean_square, centred, 0)
    return unbiased, (1 / first + 1 / second) * jnp.sqrt(2 * centred)
