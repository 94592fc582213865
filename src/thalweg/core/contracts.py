"""The abstract classes and what passes between them.

One sign throughout: ``p(x) = exp(-E(x)) / Z``. An energy is a function of ONE point; batching is ``jax.vmap``'s work.
Nothing here knows a particular energy, sampler or objective.
"""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, PRNGKeyArray, PyTree


class Space(eqx.Module):
    """The set a point lives in: its shape, its kind of number, and how to pick a starting point from it."""

    shape: eqx.AbstractVar[tuple[int, ...]]

    @property
    @abc.abstractmethod
    def dtype(self) -> Any:
        """The array type of a point."""

    @abc.abstractmethod
    def contains(self, x: Array) -> Array:
        """Whether one point ``x`` lies in the space, as a scalar boolean."""

    @abc.abstractmethod
    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        """Uninformed points of shape ``(*shape, *self.shape)``: where a chain may start from nothing."""


class Energy(eqx.Module):
    """A function ``E(x) -> scalar`` of one point, read as ``p(x) = exp(-E(x)) / Z``.

    Subclass it for an energy with parameters (array fields are trainable), or hand any callable to
    `as_energy`. ``space`` may be ``None`` where the energy does not know it.
    """

    space: eqx.AbstractVar[Space | None]

    @abc.abstractmethod
    def __call__(self, x: Array) -> Array:
        """The energy of one point, a scalar."""


class ScoreNetwork(eqx.Module):
    """A vector field ``s(x)`` of x's own shape, standing for ``∇ₓ log p(x)``; it need not be a gradient."""

    space: eqx.AbstractVar[Space | None]

    @abc.abstractmethod
    def __call__(self, x: Array) -> Array:
        """The score at one point, of the point's shape."""


class HasLogZ(Energy):
    """An energy that knows its own ``log Z = log ∫ exp(-E(x)) dx``, and is therefore a density."""

    @property
    @abc.abstractmethod
    def log_z(self) -> Array:
        """The exact log of the normalising constant."""

    def log_prob(self, x: Array) -> Array:
        """``log p(x) = -E(x) - log Z`` of one point."""
        return -self(x) - self.log_z


class HasSampler(Energy):
    """An energy with exact, independent samples."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        """Independent exact samples, of shape ``(*shape, *event)``."""


class HasConditionals(Energy):
    """An energy whose full conditionals can be drawn from: what Gibbs sampling needs.

    ``blocks`` is boolean ``(blocks, *event)``: groups of coordinates independent of each other given the rest, which
    together cover every coordinate.
    """

    blocks: eqx.AbstractVar[Array]

    @abc.abstractmethod
    def resample(self, key: PRNGKeyArray, x: Array, block: Array) -> Array:
        """One point ``x`` with the coordinates of ``block`` drawn anew from ``p(x_block | rest)``."""

    @abc.abstractmethod
    def scaled(self, factor: Array) -> "HasConditionals":
        """The energy ``factor · E(x)``, whose conditionals can be drawn from too: what tempering needs."""


class HasLogits(HasConditionals):
    """Conditionals on a finite space, as the log-probabilities of every level of every coordinate."""

    @abc.abstractmethod
    def logits(self, x: Array) -> Array:
        """``log p(x_i = level | rest)`` up to a constant per coordinate, ``(*event, levels)``, in the space's order."""


class HasSmoothing(Energy):
    """An energy that stays in closed form when Gaussian noise is added to its points."""

    @abc.abstractmethod
    def smoothed(self, sigma: Array | float) -> Energy:
        """The energy of ``x + σ·ε`` with ``x ~ p`` and ``ε ~ N(0, I)``."""


class Refreshable(eqx.Module):
    """Something that carries buffers (power-iteration vectors) which advance once per training update."""

    @abc.abstractmethod
    def refresh(self) -> "Refreshable":
        """The same object with its buffers advanced; no gradient flows into them."""


def refresh(tree: PyTree) -> PyTree:
    """Every `Refreshable` inside ``tree``, at any depth, advanced once."""

    def is_refreshable(node):
        return isinstance(node, Refreshable)

    return jax.tree.map(lambda node: node.refresh() if is_refreshable(node) else node, tree, is_leaf=is_refreshable)


class State(eqx.Module):
    """What a kernel carries from step to step: where all chains are, and what must not be computed twice."""

    x: eqx.AbstractVar[Array]


class Info(eqx.Module):
    """What one kernel step tells, each ``(chains,)``; ``None`` where the kernel has no such thing.

    ``acceptance`` is the probability (or frequency) of acceptance, ``gradient_norm`` is ``‖∇E‖₂`` where the step
    used it, ``divergent`` marks steps that met a non-finite energy or lost energy conservation. ``extra`` holds what
    only this kernel has (swap rates), in any shape; `sample` averages it over the run.
    """

    acceptance: Array | None = None
    gradient_norm: Array | None = None
    divergent: Array | None = None
    extra: dict[str, Array] = eqx.field(default_factory=dict)


class Kernel(eqx.Module):
    """A Markov kernel over a population: the leading axis of every array is the chains, one key serves a step.

    The energy is an argument of both methods and never stored, so nothing recompiles when its weights change.
    """

    @abc.abstractmethod
    def init(self, energy: Any, x: Array) -> State:
        """The state of chains that stand at ``x``, of shape ``(chains, *event)``."""

    @abc.abstractmethod
    def step(self, key: PRNGKeyArray, energy: Any, state: State) -> tuple[State, Info]:
        """All chains one step on."""


class HasTransitionMatrix(Kernel):
    """A kernel that can write down what one of its steps does on a small finite space."""

    @abc.abstractmethod
    def transition_matrix(self, energy: Any) -> Array:
        """``T[i, j]``, the probability of going from state i to state j, ``(states, states)``."""


class InspectsEnergy(Kernel):
    """A kernel that refuses energies for their numbers, which nobody can look at once a run is being compiled."""

    @abc.abstractmethod
    def inspect(self, energy: Any) -> None:
        """Raise ``ValueError`` for an energy that this kernel cannot sample."""


class ConditionalKernel(Kernel):
    """A kernel on a model of ``(x, c)``, which it runs at conditions of its own choosing."""

    @abc.abstractmethod
    def at_start(self, model: Any) -> Any:
        """The model at the condition of the first step: a function of one point."""


class Step(NamedTuple):
    """What an objective hands back beside its loss: the carried state, and scalars worth plotting."""

    state: PyTree
    metrics: dict[str, Array]


class Objective(eqx.Module):
    """A training criterion: configured at construction, given the model when called.

    ``divergence`` says that the expected loss itself is smallest at the `truth`; otherwise only its gradient vanishes
    there. `truth` and `expected` are what `check_objective` compares with.
    """

    divergence: ClassVar[bool] = False

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[PyTree, PyTree]:
        """``(params, state)``: params are trained with the energy (log Z, a flow), state is carried (a buffer)."""

    @abc.abstractmethod
    def loss(self, key: PRNGKeyArray, energy: Any, params: PyTree, state: PyTree, batch: PyTree) -> tuple[Array, Step]:
        """The scalar to descend on this batch, and the `Step` that goes with it."""

    def truth(self, energy: Any) -> Any:
        """The model at which the expected gradient vanishes when the data come from ``energy``."""
        return energy

    def expected(self, energy: Any) -> "Objective | None":
        """An objective with the same expected gradient on data from ``energy`` and less noise, where there is one."""
        return None


class DiscreteObjective(Objective):
    """An objective for energies on finite spaces."""


class Estimate(NamedTuple):
    """A number with an honest interval: ``[low, high]`` covers the truth with probability ``confidence``."""

    value: float
    low: float
    high: float
    confidence: float
    method: str
    ess: float | None = None
    warning: str | None = None

    def __str__(self) -> str:
        text = f"{self.value:.6g}  [{self.low:.6g}, {self.high:.6g}] at {self.confidence:.0%}, {self.method}"
        return text if self.warning is None else f"{text}; {self.warning}"


class Verdict(NamedTuple):
    """The answer of a check: passed or not, at which false-alarm rate, and the smallest bias it would have seen."""

    passed: bool
    false_alarm: float
    detectable: float
    text: str

    def __str__(self) -> str:
        return self.text
