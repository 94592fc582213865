"""Where the chains of a training update start: data (CD), persistent chains (PCD), noise (short-run), replay buffer."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import (
    Module,
    between,
    bind,
    count_chains,
    finite,
    select,
    split_batch,
    static_number,
    takes,
    whole_number,
)
from thalweg.core.random import distinct
from thalweg.samplers.annealing import SimulatedAnnealing
from thalweg.samplers.single_chain import init_chains, retarget_chains
from thalweg.spaces import point_space


class StartedChains(NamedTuple):
    """Chains before they run: their state, their conditions if the energy has any, and what `Start.finish` needs."""

    state: Any
    conditions: PyTree
    ticket: PyTree


class Start(Module):
    """A rule for where the chains of a training update start. Its memory holds kernel states, momenta included.

    ``batch`` holds the points of an update, or ``(x, c)`` for a `ConditionalEnergy`; there are as many chains as rows.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> start, kernel, energy = tw.samplers.from_data(), tw.samplers.MALA(0.1), lambda x: jnp.sum(x**2)
    >>> key_init, key_begin = jax.random.split(jax.random.key(0))
    >>> memory = start.init(key_init, kernel, energy, jnp.ones((3, 2)))
    >>> start.begin(key_begin, kernel, energy, memory, jnp.ones((3, 2))).state.x.shape
    (3, 2)
    """

    omits_defaults: ClassVar[bool] = True

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, kernel: Any, energy: Any, batch: PyTree) -> PyTree:
        """The memory before the first update, for batches like ``batch``."""

    @abc.abstractmethod
    def begin(self, key: PRNGKeyArray, kernel: Any, energy: Any, memory: PyTree, batch: PyTree) -> StartedChains:
        """The chains of an update, on the current energy."""

    @abc.abstractmethod
    def finish(self, memory: PyTree, started: StartedChains, state: Any) -> PyTree:
        """The memory after the chains have reached ``state``."""


Noise = Callable[[PRNGKeyArray, tuple[int, ...]], Array]


def uniform_noise(low: float, high: float) -> Noise:
    """Uniform noise between ``low`` and ``high``, for `from_noise` and the other starts.

    >>> import jax, thalweg as tw
    >>> tw.samplers.uniform_noise(-1.0, 1.0)(jax.random.key(0), (3, 2)).shape
    (3, 2)
    """
    if not static_number("low", low, finite) < static_number("high", high, finite):
        raise ValueError(f"expected low < high, got ({low}, {high}); swap them")
    return lambda key, shape: jax.random.uniform(key, shape, minval=low, maxval=high)


def _check_noise(noise: Any) -> Any:
    if noise is not None and (isinstance(noise, type) or not callable(noise)):
        raise ValueError(
            f"expected noise(key, shape) -> array, got {noise!r}; give tw.samplers.uniform_noise(-1.0, 1.0)"
        )
    return noise


def _draw(noise: Noise | None, key: PRNGKeyArray, energy: Any, x: PyTree, count: int) -> PyTree:
    """``count`` noise points of the shape of the points ``x``."""
    if noise is None:
        return point_space(energy, x).noise(key, (count,))
    drawn = noise(key, (count, *jnp.shape(x)[1:]))
    if drawn.shape != (count, *jnp.shape(x)[1:]):
        raise ValueError(
            f"expected noise of shape {(count, *jnp.shape(x)[1:])}, got {drawn.shape}; return an array of that shape"
        )
    return drawn


class _FromNoise(Start):
    noise: Noise | None = eqx.field(static=True)

    def init(self, key, kernel, energy, batch):
        return None

    def begin(self, key, kernel, energy, memory, batch):
        key_noise, key_state = jax.random.split(key)
        x, conditions = split_batch(energy, batch)
        fresh = _draw(self.noise, key_noise, energy, x, count_chains(x))
        return StartedChains(init_chains(kernel, key_state, bind(energy, conditions), fresh), conditions, None)

    def finish(self, memory, started, state):
        return None


class _FromData(Start):
    def init(self, key, kernel, energy, batch):
        return None

    def begin(self, key, kernel, energy, memory, batch):
        x, conditions = split_batch(energy, batch)
        return StartedChains(init_chains(kernel, key, bind(energy, conditions), x), conditions, None)

    def finish(self, memory, started, state):
        return None


class PersistentMemory(NamedTuple):
    """The memory of a `persistent` start: the states of its chains."""

    state: Any


class _Persistent(Start):
    noise: Noise | None = eqx.field(static=True)

    def init(self, key, kernel, energy, batch):
        return PersistentMemory(_FromNoise(self.noise).begin(key, kernel, energy, None, batch).state)

    def begin(self, key, kernel, energy, memory, batch):
        # the conditions of the current batch: those of the first batch would not follow the data's distribution
        _, conditions = split_batch(energy, batch)
        return StartedChains(retarget_chains(kernel, bind(energy, conditions), memory.state), conditions, None)

    def finish(self, memory, started, state):
        return PersistentMemory(state)


def from_noise(noise: Noise | None = None) -> Start:
    """Chains start at fresh noise in every update: short-run training (Nijkamp et al. 2019).

    Args:
        noise: ``noise(key, shape) -> array``; by default the space's own (a standard normal on R^d).

    >>> import thalweg as tw
    >>> start = tw.samplers.from_noise(tw.samplers.uniform_noise(-1.0, 1.0))
    """
    return _FromNoise(_check_noise(noise))


def from_data() -> Start:
    """Chains start at the batch: contrastive divergence, CD-k (Hinton 2002).

    >>> import thalweg as tw
    >>> start = tw.samplers.from_data()
    """
    return _FromData()


def persistent(noise: Noise | None = None) -> Start:
    """The same chains continue from update to update: PCD (Tieleman 2008). There are as many as the batch has points.

    With a conditional energy the chains take the conditions of the current batch: give them enough steps to get from
    one condition to the next, or use a `ReplayBuffer`, whose chains keep their conditions.

    Args:
        noise: where the chains start before the first update, as in `from_noise`.

    >>> import thalweg as tw
    >>> start = tw.samplers.persistent()
    """
    return _Persistent(_check_noise(noise))


class BufferMemory(NamedTuple):
    """The memory of a `ReplayBuffer`: states and conditions ``(size, ...)``, and which slots are in use."""

    state: Any
    conditions: PyTree
    used: Array


class ReplayBuffer(Start):
    """A store of ``size`` chains: each chain of an update restarts from noise with probability ``rejuvenation``,
    otherwise it continues a stored chain; in both cases it is written back to **its own slot** (Du and Mordatch 2019).

    The slots of one update are all different, so no two chains write to the same slot. A slot that was never used
    starts from noise. With a conditional energy a slot keeps the condition of its chain; a restart takes the condition
    of the batch.

    Args:
        size: the number of stored chains, at least the batch size.
        rejuvenation: the probability of a restart, in [0, 1].
        noise: as in `from_noise`.

    >>> import thalweg as tw
    >>> start = tw.samplers.ReplayBuffer(10_000, rejuvenation=0.25)
    """

    size: int = eqx.field(static=True)
    rejuvenation: Array
    noise: Noise | None = eqx.field(static=True)

    def __init__(self, size: int, rejuvenation: float | Array = 0.05, noise: Noise | None = None):
        self.size = whole_number("size", size, hint="10000 is usual")
        self.rejuvenation = between("rejuvenation", rejuvenation, 0, 1, "0.25 means 25 %", scalar=True)
        self.noise = _check_noise(noise)

    def init(self, key, kernel, energy, batch):
        x, conditions = split_batch(energy, batch)
        if count_chains(x) > self.size:
            raise ValueError(
                f"expected a buffer at least as large as the batch, got size={self.size} for a batch of "
                f"{count_chains(x)}; raise size"
            )
        if isinstance(kernel, SimulatedAnnealing):
            raise ValueError(
                "expected a kernel whose chains are of any age for a ReplayBuffer, got SimulatedAnnealing, which cools "
                "all of them together; use from_noise() or persistent()"
            )
        begin = lambda: _FromNoise(self.noise).begin(key, kernel, energy, None, batch)
        # a slot is never read before it is written, so only shapes are needed
        started = eqx.filter_eval_shape(begin)
        empty = lambda leaf: jnp.zeros((self.size, *leaf.shape[1:]), leaf.dtype)
        state, conditions = jax.tree.map(empty, (started.state, started.conditions))
        return BufferMemory(state, conditions, jnp.zeros(self.size, bool))

    def begin(self, key, kernel, energy, memory, batch):
        key_slots, key_fresh, key_restart = jax.random.split(key, 3)
        slots = distinct(key_slots, self.size, count_chains(batch))
        state, conditions, used = jax.tree.map(lambda leaf: leaf[slots], memory)
        restart = jax.random.bernoulli(key_restart, self.rejuvenation, slots.shape) | ~used
        fresh = _FromNoise(self.noise).begin(key_fresh, kernel, energy, None, batch)
        state, conditions = select(restart, (fresh.state, fresh.conditions), (state, conditions))
        # this replaces all cached energies of the fresh state, so the compiler drops their computation
        return StartedChains(retarget_chains(kernel, bind(energy, conditions), state), conditions, slots)

    def finish(self, memory, started, state):
        put = lambda store, new: store.at[started.ticket].set(new, unique_indices=True)
        state, conditions = jax.tree.map(put, (memory.state, memory.conditions), (state, started.conditions))
        return BufferMemory(state, conditions, memory.used.at[started.ticket].set(True))


def as_start(start: Any) -> Start:
    """A start, from a start or from the function that makes one (``from_data`` instead of ``from_data()``)."""
    made = start() if callable(start) and not isinstance(start, (Start, type)) and takes(start, 0) else start
    if not isinstance(made, Start):
        raise ValueError(
            f"expected a start (from_noise(), from_data(), persistent(), ReplayBuffer(...)), got "
            f"{start!r:.60}; give one of these"
        )
    return made
