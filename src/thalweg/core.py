"""The contracts everything else is written against.

One sign throughout: ``p(x) = exp(-E(x)) / Z``. An energy is a function of ONE point; batching is ``jax.vmap``'s work.
Nothing here knows a particular energy, sampler or objective.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
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


class _FunctionEnergy(Energy):
    """A callable at the door: a function stays static, a module's arrays stay parameters."""

    function: Callable[..., Array]
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: Array, *condition: Any) -> Array:
        return self.function(x, *condition)


class _FunctionScore(ScoreNetwork):
    function: Callable[..., Array]
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: Array, *condition: Any) -> Array:
        return self.function(x, *condition)


class _Density(HasLogZ, HasSampler):
    """A normalised density read as the energy ``-log_prob``: its log Z is 0."""

    density: Any
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return -self.density.log_prob(x)

    @property
    def log_z(self) -> Array:
        return jnp.zeros(())

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return self.density.sample(key, shape)


class _Given(Energy):
    energy: Callable[[Array, Any], Array]
    condition: PyTree
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return self.energy(x, self.condition)


class _GivenScore(ScoreNetwork):
    network: Any
    condition: PyTree
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return self.network(x, self.condition)


def as_energy(function: Any, space: Space | None = None) -> Energy:
    """Any callable ``x -> scalar`` as an `Energy`; an `Energy` passes through unchanged.

    Args:
        function: a plain function, a closure, or an ``eqx.Module`` (its arrays are then the parameters).
        space: where ``x`` lives, if known; samplers and exact sums use it.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> energy = tw.as_energy(lambda x: 0.5 * jnp.sum(x**2), space=tw.Real(2))
    >>> float(energy(jnp.array([3.0, 4.0])))
    12.5
    """
    if isinstance(function, Energy):
        if space is not None and function.space is not None and space != function.space:
            raise ValueError(
                f"expected one space, got {space} for an energy that lives on {function.space}; leave out `space`"
            )
        return (
            function if space is None or function.space is not None else _FunctionEnergy(function=function, space=space)
        )
    if isinstance(function, ScoreNetwork):
        raise ValueError(
            f"expected an energy, got the score network {type(function).__name__}: a vector field has no energy; "
            "use an unadjusted kernel (Langevin), which takes both"
        )
    if not callable(function):
        raise ValueError(f"expected an energy, a callable x -> scalar, got {type(function).__name__}; wrap it in one")
    return _FunctionEnergy(function=function, space=space)  # pyright: ignore[reportArgumentType]


def as_score(function: Any, space: Space | None = None) -> ScoreNetwork:
    """Any callable ``x -> array of x's shape`` as a `ScoreNetwork`.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> network = tw.as_score(lambda x: -x)
    >>> tw.score(network, jnp.ones(2)).tolist()
    [-1.0, -1.0]
    """
    return function if isinstance(function, ScoreNetwork) else _FunctionScore(function=function, space=space)


def as_model(model: Any) -> Energy | ScoreNetwork:
    """What an unadjusted kernel takes: a score network as it is, anything else as an energy."""
    return model if isinstance(model, ScoreNetwork) else as_energy(model)


def from_density(density: Any, space: Space | None = None) -> Energy:
    """A normalised density with ``log_prob(x)`` and ``sample(key, shape)`` as the energy ``E(x) = -log p(x)``.

    Flows and distributions of flowjax enter here, as does anything else with those two methods.

    >>> import jax, thalweg as tw
    >>> from flowjax.distributions import StandardNormal
    >>> energy = tw.from_density(StandardNormal((2,)))
    >>> energy.sample(jax.random.key(0), (5,)).shape
    (5, 2)
    """
    for method in ("log_prob", "sample"):
        if not callable(getattr(density, method, None)):
            raise ValueError(
                f"expected a density with log_prob(x) and sample(key, shape), got {type(density).__name__} without "
                f"{method}; use as_energy for an unnormalised function"
            )
    return _Density(density, space)


def given(model: Callable, condition: PyTree, space: Space | None = None) -> Any:
    """A conditional energy (or score network) of ``(x, c)`` with ``c`` fixed: a function of one point again.

    ``c`` is an array leaf, so another label or noise level does not recompile anything.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> noisy = lambda x, sigma: 0.5 * jnp.sum(x**2) / sigma**2
    >>> float(tw.given(noisy, 0.5)(jnp.ones(2)))
    4.0
    """
    known = model.space if isinstance(model, (Energy, ScoreNetwork)) else None
    condition = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, (int, float)) else leaf, condition)
    where = known if space is None else space
    if isinstance(model, ScoreNetwork):
        return _GivenScore(network=model, condition=condition, space=where)
    return _Given(energy=model, condition=condition, space=where)


def score(model: Any, x: Array) -> Array:
    """``∇ₓ log p(x) = -∇ₓ E(x)`` at one point, of an energy, a plain function or a score network.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> tw.score(lambda x: 0.5 * jnp.sum(x**2), jnp.array([1.0, -2.0])).tolist()
    [-1.0, 2.0]
    """
    model = as_model(model)
    return model(x) if isinstance(model, ScoreNetwork) else -jax.grad(model)(x)


def refresh(tree: PyTree) -> PyTree:
    """Every `Refreshable` inside ``tree``, at any depth, advanced once."""

    def is_refreshable(node):
        return isinstance(node, Refreshable)

    return jax.tree.map(lambda node: node.refresh() if is_refreshable(node) else node, tree, is_leaf=is_refreshable)


def is_concrete(value: Any) -> bool:
    """Whether a number can be looked at now, which it cannot while a function is being traced."""
    return not isinstance(value, Tracer)


def positive(name: str, value: Any) -> Array:
    """``value`` as a floating array leaf, refused where it is not a finite number above zero."""
    array = jnp.asarray(value, dtype=jnp.result_type(float))
    if is_concrete(array) and not np.all(np.isfinite(array) & (np.asarray(array) > 0)):
        raise ValueError(f"expected {name} > 0, got {value}; give a positive number")
    return array
