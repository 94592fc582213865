"""Checkerboard Gibbs sampling of the 2-D Ising model with up to 32 spins per machine word."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Info, InspectsEnergy, PerChain, State, is_concrete, require_energy
from thalweg.energies.couplings import Grid
from thalweg.energies.lattice import Ising

BITS = 32
# after 10 rounds every output bit of the generator depends evenly on every bit of the seed
_WARM_UP = 12
_UNEQUAL = (
    "expected the same bias at every site for Checkerboard, got one that differs from site to site; "
    "use Gibbs, which takes any bias"
)


class Layout(NamedTuple):
    """How spins are packed: bit s of word ``(i, k)`` is a site in row ``s·rows/strips + i`` and column pair k.

    ``shape`` is the lattice's ``(rows, columns)``; the transposed lattice is packed if that fills words better.
    """

    shape: tuple[int, int]
    transposed: bool
    strips: int
    levels: tuple[int, ...]
    dtype: Any

    def pack(self, x: Array) -> tuple[Array, Array]:
        """Spins ``(..., sites)`` as words of even sites and of odd ones, each ``(..., rows/strips, columns/2)``."""
        up = (x == self.levels[1]).reshape(*x.shape[:-1], *self.shape)
        up = jnp.swapaxes(up, -1, -2) if self.transposed else up
        rows, columns = up.shape[-2:]
        pairs = up.reshape(*x.shape[:-1], self.strips, rows // self.strips, columns // 2, 2).astype(jnp.uint32)
        first, second = pairs[..., 0], pairs[..., 1]
        shifted = _odd_rows(first.shape)
        places = jnp.arange(self.strips, dtype=jnp.uint32)[:, None, None]
        colours = jnp.where(shifted, second, first), jnp.where(shifted, first, second)
        even, odd = (jnp.sum(spins << places, axis=-3, dtype=jnp.uint32) for spins in colours)
        return even, odd

    def unpack(self, even: Array, odd: Array) -> Array:
        """The inverse of `pack`."""
        places = jnp.arange(self.strips, dtype=jnp.uint32)[:, None, None]
        even, odd = ((words[..., None, :, :] >> places) & 1 for words in (even, odd))
        shifted = _odd_rows(even.shape)
        pairs = jnp.stack([jnp.where(shifted, odd, even), jnp.where(shifted, even, odd)], axis=-1)
        chains = even.shape[:-3]
        up = pairs.reshape(*chains, *(self.shape[::-1] if self.transposed else self.shape))
        up = jnp.swapaxes(up, -1, -2) if self.transposed else up
        low, high = self.levels
        return (low + (high - low) * up.reshape(*chains, -1).astype(self.dtype)).astype(self.dtype)


class PackedSpins(State):
    """The two colours of spins in words ``(chains, rows/strips, columns/2)``; ``x`` unpacks them on demand.

    A chain therefore does not pay for unpacking steps that are not kept.
    """

    even: Array
    odd: Array
    layout: Layout = eqx.field(static=True)

    def __init__(self, even: Array, odd: Array, layout: Layout):
        self.even, self.odd, self.layout = even, odd, layout

    @property
    def x(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The chains' positions, ``(chains, sites)``."""
        return self.layout.unpack(self.even, self.odd)


class Checkerboard(InspectsEnergy):
    r"""One sweep of Gibbs sampling on an even torus: all even sites given the odd ones, then all odd given the even.

    A site with n of its four neighbours up is drawn up with probability ``p_n = σ((h-l)(b + w·(n·h + (4-n)·l)))``,
    where l and h are the two levels: ``σ(2b + 2w(2n-4))`` on spins. This is `Gibbs` on the same energy, with up to 32
    spins per word (multi-spin coding): one adder counts the neighbours of all spins in a word, and ``u < p_n`` is
    decided bit by bit, where the random words are the binary digits of 32 uniform numbers u. All 32 digits are
    compared, so ``p_n`` in floating point is rounded by at most 2⁻³².

    The random words come from SFC32 (Doty-Humphrey's small fast chaotic generator): one stream for each word of spins,
    seeded with its own index and 96 bits from the key of the step. Threefry would take longer than everything else.
    Reference: Zorn, Herrmann and Rebbi (1981), Comput. Phys. Commun. 23 (multi-spin coding).

    For energies ``Ising(Grid(shape, weight), bias)`` with even sides and one bias for all sites, on spins or bits.
    Weight and bias are arrays, so a change of temperature does not recompile anything. The number of spins per word is
    the largest divisor, up to 32, of half a side: all 32 bits are used if a side is a multiple of 64. A step is one
    sweep without unpacking; use ``thin`` to keep a draw only every few sweeps.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> from thalweg.samplers.checkerboard import Checkerboard
    >>> energy = tw.energies.Ising(tw.energies.Grid((64, 64), weight=1 / 3.0))
    >>> init = jnp.ones((4, 64 * 64), int)
    >>> chains = tw.sample(energy, Checkerboard(), init, key=jax.random.key(0), draws=5, burn_in=100, thin=10)
    >>> chains.draws.shape
    (4, 5, 4096)
    """

    def init(self, key: PRNGKeyArray, energy: Any, x: Array) -> PackedSpins:
        model = _require_torus(energy)
        if x.ndim != 2 or x.shape[1] != model.coupling.sites:
            raise ValueError(
                f"expected x of shape (chains, {model.coupling.sites}) for Checkerboard, got {x.shape}; "
                "give each chain's sites in reading order"
            )
        layout = _layout(model.coupling.shape, model.space.levels, x.dtype)  # pyright: ignore[reportAttributeAccessIssue]
        even, odd = layout.pack(x)
        unequal = jnp.any(model.bias != model.bias[0])
        if is_concrete(unequal):
            self.inspect(model)
        else:
            # inside a caller's own jit the bias is unknown now, so it is checked at run time
            odd = eqx.error_if(odd, unequal, _UNEQUAL)
        return PackedSpins(even, odd, layout)

    def inspect(self, energy: Any) -> None:
        bias = _require_torus(energy).bias
        if is_concrete(bias) and np.any(np.asarray(bias) != np.asarray(bias)[0]):
            raise ValueError(_UNEQUAL)

    def retarget(self, energy: Any, state: PackedSpins) -> PackedSpins:
        return state  # only the spins, nothing that depends on the energy

    def step(self, key: PRNGKeyArray, energy: Any, state: PackedSpins) -> tuple[PackedSpins, Info]:
        layout = state.layout
        low, high = layout.levels
        up = jnp.arange(5)
        logits = (high - low) * (energy.bias[0] + energy.coupling.weight * (up * high + (4 - up) * low))
        digits = _digits(_thresholds(logits))

        def half(colours, now):
            seed, shifted = now
            _, other = colours
            return (other, _draw_colour(seed, _neighbours(other, layout.strips, shifted), digits, layout.strips)), None

        # a loop over the two colours: one copy of the long code in `_draw_colour` compiles in half the time of two
        colours = jax.random.bits(key, (2, 3), jnp.uint32), jnp.array([False, True])
        (even, odd), _ = jax.lax.scan(half, (state.even, state.odd), colours)
        return PackedSpins(even, odd, layout), Info()


def _require_torus(energy: Any) -> Ising:
    require_energy("Checkerboard", energy)
    # chains whose energies differ only in temperature or field share a lattice
    model = energy.first() if isinstance(energy, PerChain) else energy
    if not isinstance(model, Ising) or not isinstance(model.coupling, Grid):
        got = type(model.coupling).__name__ if isinstance(model, Ising) else type(model).__name__
        raise ValueError(f"expected an energy Ising(Grid(shape, weight), bias) for Checkerboard, got {got}; use Gibbs")
    grid = model.coupling
    if not grid.periodic or grid.shape[0] % 2 or grid.shape[1] % 2:
        kind = "torus" if grid.periodic else "lattice with open borders"
        raise ValueError(
            f"expected a torus with even sides for Checkerboard, got a {kind} of {grid.shape[0]} × {grid.shape[1]}; "
            "use Gibbs, or make the sides even and periodic=True"
        )
    return model


def _layout(shape: tuple[int, int], levels: tuple[int, ...], dtype: Any) -> Layout:
    # a strip must have an even number of rows, so that a row has the same parity in its strip as in the lattice
    strips = [max(count for count in range(1, BITS + 1) if (side // 2) % count == 0) for side in shape]
    transposed = strips[1] > strips[0]
    return Layout(shape, transposed, max(strips), levels, np.dtype(dtype))


def _odd_rows(shape: tuple[int, ...]) -> Array:
    """Boolean of the given shape, true in every other row, where the even sites are in odd columns."""
    return jax.lax.broadcasted_iota(jnp.int32, shape, len(shape) - 2) % 2 == 1


def _neighbours(other: Array, strips: int, shifted: Array) -> tuple[Array, Array, Array, Array]:
    """The four neighbours of the sites of one colour, as words of the other colour aligned with the sites.

    ``shifted``: whether the sites to be drawn are in odd columns in the first row.
    """
    # across the border between two strips the neighbour is the next bit; the last strip borders on the first
    first, last, turn = other[:, :1], other[:, -1:], strips - 1
    above = jnp.concatenate([(last << 1) | (last >> turn), other[:, :-1]], axis=1)
    below = jnp.concatenate([other[:, 1:], (first >> 1) | (first << turn)], axis=1)
    # each colour has one site in a pair of columns; the second site has its other neighbour in the next pair
    second = _odd_rows(other.shape) ^ shifted
    beside = jnp.where(second, jnp.roll(other, -1, axis=2), jnp.roll(other, 1, axis=2))
    return above, below, other, beside


def _thresholds(logits: Array) -> Array:
    """``σ(logit)·2³²`` as whole numbers."""
    # the smaller of p and 1 - p is exact in floating point; p = 1 would be 2³², which does not fit
    rarer = jnp.round(jax.nn.sigmoid(-jnp.abs(logits)) * 2.0**BITS).astype(jnp.uint32)
    return jnp.where(logits <= 0, rarer, jnp.uint32(0) - jnp.maximum(rarer, 1))


def _digits(thresholds: Array) -> Array:
    """The digits of the five thresholds for `_draw_colour`, ``(32, 5)``, least digit first; entries are 0 or all ones.

    The digit for a count ``n = s₀ + 2s₁ + 4s₂`` is ``d₀ ⊕ s₀d₁ ⊕ s₁d₂ ⊕ s₀s₁d₃ ⊕ s₂d₄``.
    """
    t = thresholds
    terms = jnp.stack([t[0], t[0] ^ t[1], t[0] ^ t[2], t[0] ^ t[1] ^ t[2] ^ t[3], t[0] ^ t[4]])
    places = jnp.arange(BITS, dtype=jnp.uint32)[:, None]
    return jnp.uint32(0) - ((terms >> places) & 1)


def random_words(seed: Array, size: int) -> Iterator[Array]:
    """An endless stream of random words, ``(size,)`` at a time, by SFC32 from three words of ``seed``.

    No state is stored in arrays between words, so all of it fuses into the loop that uses them.
    """
    lanes = jax.lax.broadcasted_iota(jnp.uint32, (size,), 0)
    a, b, c = jnp.full(size, seed[0]), jnp.full(size, seed[1]), lanes ^ seed[2]
    rounds = 0
    while True:
        rounds += 1
        word = a + b + jnp.uint32(rounds)
        a, b, c = b ^ (b >> 9), c + (c << 3), ((c << 21) | (c >> 11)) + word
        if rounds > _WARM_UP:
            yield word


@partial(jax.jit, static_argnames="strips")
def _draw_colour(seed: Array, neighbours: tuple[Array, ...], digits: Array, strips: int) -> Array:
    """New spins of one colour: each bit is 1 with the probability given by its number of up neighbours."""
    shape = neighbours[0].shape
    # one long axis is divided evenly between the cores and vectorised, whatever the shape of the lattice
    first, second, third, fourth = (words.reshape(-1) for words in neighbours)
    # two half adders and a full one: n = s0 + 2·s1 + 4·s2
    half, other_half = first ^ second, third ^ fourth
    carry, other_carry, carried = first & second, third & fourth, half & other_half
    s0, s1, s2 = half ^ other_half, carry ^ other_carry ^ carried, carry & other_carry
    s01 = s0 & s1
    below = jnp.zeros_like(s0)
    for d, u in zip(digits, random_words(seed, s0.size), strict=False):
        t = d[0] ^ (s0 & d[1]) ^ (s1 & d[2]) ^ (s01 & d[3]) ^ (s2 & d[4])
        # u < t if the digit of u is 0 and that of t is 1, or if they agree and u < t in the lower digits
        below = (~u & t) | ((~u | t) & below)
    # bits beyond the strips are not spins; they stay 0 because shifts would move them into the spins
    return (below & jnp.uint32(2**strips - 1)).reshape(shape)
