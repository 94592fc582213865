"""Where the chains of a training step begin: what tells CD, PCD, short-run and replay-buffer training apart."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import Kernel, Space, State
from thalweg.samplers.lift import chosen
from thalweg.spaces import Real


class Begun(NamedTuple):
    """Chains about to run: where they start, and what `Start.finish` needs to put them back."""

    x: Array
    ticket: PyTree


class Start(eqx.Module):
    """A rule for where chains begin; what it remembers between updates is a plain array state."""

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, space: Space, batch: Array) -> PyTree:
        """The memory before the first update, for batches like ``batch``."""

    @abc.abstractmethod
    def begin(self, key: PRNGKeyArray, space: Space, memory: PyTree, batch: Array) -> Begun:
        """As many starting points as the batch has."""

    @abc.abstractmethod
    def finish(self, memory: PyTree, ticket: PyTree, x: Array) -> PyTree:
        """The memory after the chains have come to rest at ``x``."""


Noise = Callable[[PRNGKeyArray, tuple[int, ...]], Array]


def uniform_noise(low: float, high: float) -> Noise:
    """Noise for `from_noise` and the other starts: uniform between ``low`` and ``high``.

    >>> import jax, thalweg as tw
    >>> tw.samplers.uniform_noise(-1.0, 1.0)(jax.random.key(0), (3, 2)).shape
    (3, 2)
    """
    if not low < high:
        raise ValueError(f"expected low < high, got ({low}, {high}); swap them")
    return lambda key, shape: jax.random.uniform(key, shape, minval=low, maxval=high)


def _draw(noise: Noise | None, key: PRNGKeyArray, space: Space, count: int) -> Array:
    return space.noise(key, (count,)) if noise is None else noise(key, (count, *space.shape))


class _FromNoise(Start):
    noise: Noise | None = eqx.field(static=True)

    def init(self, key, space, batch):
        return None

    def begin(self, key, space, memory, batch):
        return Begun(_draw(self.noise, key, space, batch.shape[0]), None)

    def finish(self, memory, ticket, x):
        return None


class _FromData(Start):
    def init(self, key, space, batch):
        return None

    def begin(self, key, space, memory, batch):
        return Begun(batch, None)

    def finish(self, memory, ticket, x):
        return None


class _Persistent(Start):
    noise: Noise | None = eqx.field(static=True)

    def init(self, key, space, batch):
        return _draw(self.noise, key, space, batch.shape[0])

    def begin(self, key, space, memory, batch):
        return Begun(memory, None)

    def finish(self, memory, ticket, x):
        return x


def from_noise(noise: Noise | None = None) -> Start:
    """Fresh noise at every update: short-run training (Nijkamp et al. 2019).

    Args:
        noise: ``noise(key, shape) -> array``; by default the space's own (a standard normal on R^d).

    >>> import thalweg as tw
    >>> start = tw.samplers.from_noise(tw.samplers.uniform_noise(-1.0, 1.0))
    """
    return _FromNoise(noise)


def from_data() -> Start:
    """The batch itself: contrastive divergence, CD-k (Hinton 2002).

    >>> import thalweg as tw
    >>> start = tw.samplers.from_data()
    """
    return _FromData()


def persistent(noise: Noise | None = None) -> Start:
    """The same chains go on from update to update: PCD (Tieleman 2008). There are as many as the batch has points.

    Args:
        noise: where they start before the first update, as in `from_noise`.

    >>> import thalweg as tw
    >>> start = tw.samplers.persistent()
    """
    return _Persistent(noise)


class ReplayBuffer(Start):
    """A store of ``size`` samples: each chain restarts from noise with probability ``rejuvenation``, else goes on from
    a stored sample; either way it is written back to **its own slot** (Du and Mordatch 2019).

    The slots of one update are all different, so no two chains write to one place.

    Args:
        size: number of stored samples, at least the batch size.
        rejuvenation: R in [0, 1].
        noise: as in `from_noise`; it also fills the store at first.

    >>> import thalweg as tw
    >>> start = tw.samplers.ReplayBuffer(10_000, rejuvenation=0.25)
    """

    size: int = eqx.field(static=True)
    rejuvenation: Array
    noise: Noise | None = eqx.field(static=True)

    def __init__(self, size: int, rejuvenation: float | Array = 0.05, noise: Noise | None = None):
        if size < 1:
            raise ValueError(f"expected a buffer of at least one sample, got size={size}; 10000 is usual")
        if isinstance(rejuvenation, (int, float)) and not 0 <= rejuvenation <= 1:
            raise ValueError(f"expected a rejuvenation between 0 and 1, got {rejuvenation}; 0.25 means 25 %")
        self.size = int(size)
        self.rejuvenation = jnp.asarray(rejuvenation, float)
        self.noise = noise

    def init(self, key, space, batch):
        if batch.shape[0] > self.size:
            raise ValueError(
                f"expected a buffer at least as large as the batch, got size={self.size} for a batch of "
                f"{batch.shape[0]}; raise size"
            )
        return _draw(self.noise, key, space, self.size)

    def begin(self, key, space, memory, batch):
        key_slots, key_fresh, key_restart = jax.random.split(key, 3)
        count = batch.shape[0]
        slots = distinct(key_slots, self.size, count)
        fresh = _draw(self.noise, key_fresh, space, count)
        restart = jax.random.bernoulli(key_restart, self.rejuvenation, (count,))
        return Begun(chosen(restart, fresh, memory[slots]), slots)

    def finish(self, memory, ticket, x):
        return memory.at[ticket].set(x, unique_indices=True)


def distinct(key: PRNGKeyArray, size: int, count: int) -> Array:
    """``count`` different numbers below ``size``, each subset equally likely.

    The first ``count`` exchanges of a shuffle (Fisher and Yates): sorting a buffer of 10 000, as a whole shuffle does,
    takes longer than a step of a small network.
    """
    places = jnp.arange(count)
    others = jax.random.randint(key, (count,), places, size)

    def exchange(place, order):
        here, there = order[place], order[others[place]]
        return order.at[place].set(there).at[others[place]].set(here)

    return jax.lax.fori_loop(0, count, exchange, jnp.arange(size))[:count]


def point_space(model: Any, batch: Array) -> Space:
    """The model's space, or R^shape read off a batch where the model does not know it."""
    return Real(batch.shape[1:]) if model.space is None else model.space


class Replicated(Kernel):
    """A kernel whose chain is several points at once, one of which is its ``x``: the rungs of a tempered chain.

    Between two updates the energy changes, and what goes on is all these points. A start keeps them as it would keep
    one point, so that every start serves every such kernel.
    """

    replicas: eqx.AbstractVar[int]

    @abc.abstractmethod
    def points(self, state: Any) -> Array:
        """All points of every chain, ``(chains, replicas, *event)``."""

    @abc.abstractmethod
    def resume(self, key: PRNGKeyArray, energy: Any, points: Array) -> State:
        """The state of chains whose points are ``(chains, replicas, *event)``, on an energy that may be a new one."""


class _Copies(Space):
    """Points of ``space``, several to a chain."""

    space: Space
    copies: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, space: Space, copies: int):
        self.space, self.copies, self.shape = space, copies, (copies, *space.shape)

    @property
    def dtype(self) -> Any:
        return self.space.dtype

    def contains(self, x: Array) -> Array:
        return jnp.all(jax.vmap(self.space.contains)(x))

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        return self.space.noise(key, (*shape, self.copies))


def as_seen(kernel: Kernel, space: Space, batch: Array) -> tuple[Space, Array]:
    """The space and the batch that a start is shown: every point as often as a chain of ``kernel`` has points."""
    if not isinstance(kernel, Replicated):
        return space, batch
    many = jnp.broadcast_to(batch[:, None], (batch.shape[0], kernel.replicas, *batch.shape[1:]))
    return _Copies(space, kernel.replicas), many


def resumed(key: PRNGKeyArray, kernel: Kernel, energy: Any, x: Array) -> State:
    """Chains at the points a start has given; ``key`` is used by kernels of several points a chain alone."""
    return kernel.resume(key, energy, x) if isinstance(kernel, Replicated) else kernel.init(energy, x)


def left_at(kernel: Kernel, state: Any) -> Array:
    """What a start keeps of chains that have come to rest."""
    return kernel.points(state) if isinstance(kernel, Replicated) else state.x


def as_start(start: Any) -> Start:
    """A start, also where the function that makes it (``from_data``) was given instead of its result."""
    made = start if isinstance(start, Start) else start()
    if not isinstance(made, Start):
        raise ValueError(
            f"expected a start (from_noise(), from_data(), persistent(), ReplayBuffer(...)), got "
            f"{type(start).__name__}; give one of these"
        )
    return made
