"""The abstract classes of the library, and the values they exchange.

One sign throughout: ``p(x) = exp(-E(x)) / Z``. An energy is a function of ONE point; batching is left to ``jax.vmap``.
A point is an array or any pytree of arrays. Nothing here depends on a particular energy, sampler or objective.
"""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core.html import html_table
from thalweg.core.printing import Module


class Space(Module):
    """The set a point lives in: its shape, its dtype, and how to draw a starting point."""

    shape: eqx.AbstractVar[Any]

    @property
    @abc.abstractmethod
    def dtype(self) -> Any:
        """The dtype of a point."""

    @abc.abstractmethod
    def contains(self, x: Array) -> Array:
        """Whether one point ``x`` lies in the space, as a scalar boolean."""

    @abc.abstractmethod
    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        """Random points of shape ``(*shape, *self.shape)``, from which chains can start when there is no data."""


class Energy(Module):
    """A function ``E(x) -> scalar`` of one point, read as ``p(x) = exp(-E(x)) / Z``.

    Subclass it for an energy with parameters (array fields are trainable). Any other callable of one point works too;
    `as_energy` gives it a space. ``space`` may be ``None`` if the energy does not know it.
    """

    space: eqx.AbstractVar[Space | None]

    @abc.abstractmethod
    def __call__(self, x: Any) -> Array:
        """The energy of one point, a scalar."""


class ConditionalEnergy(Module):
    """A function ``E(x, c) -> scalar`` of one point and one condition, read as ``p(x | c) = exp(-E(x, c)) / Z(c)``.

    ``tw.given(energy, c)`` is an energy of x. Trained with ``tw.fit(energy, (x, c), …)`` it learns ``p(x | c)``;
    ``tw.joint(energy)`` reads it as ``p(x, c)`` and ``tw.swapped(energy)`` as ``p(c | x)``.
    """

    space: eqx.AbstractVar[Space | None]
    condition_space: eqx.AbstractVar[Space | None]

    @abc.abstractmethod
    def __call__(self, x: Any, c: Any) -> Array:
        """The energy of one point under one condition, a scalar."""


class HasGiven(ConditionalEnergy):
    """A conditional energy that says itself which energy it is at a condition, so that its abilities are kept."""

    @abc.abstractmethod
    def given(self, c: Any) -> Energy:
        """The energy of x at the condition c: what `tw.given` returns."""

    def __call__(self, x: Any, c: Any) -> Array:
        return self.given(c)(x)


class LatentEnergy(Module):
    """A function ``E(x, z) -> scalar`` of one point and one latent value, ``p(x) = ∫ exp(-E(x, z)) dz / Z``.

    If ``p(z | x)`` or the integral is known in closed form, subclass `HasPosterior` or `HasFreeEnergy`.
    """

    space: eqx.AbstractVar[Space | None]
    latent_space: eqx.AbstractVar[Space]

    @abc.abstractmethod
    def __call__(self, x: Any, z: Any) -> Array:
        """The energy of one point with one latent value, a scalar."""


class HasPosterior(LatentEnergy):
    """A latent energy whose ``p(z | x)`` is known."""

    @abc.abstractmethod
    def posterior(self, x: Any) -> Any:
        """``p(z | x)`` for one point, as a density: ``sample(key, shape)`` and ``log_prob(z)``."""


class HasFreeEnergy(LatentEnergy):
    """A latent energy whose ``F(x) = -log ∫ exp(-E(x, z)) dz`` is known; `tw.marginal` reads it as an energy of x."""

    @abc.abstractmethod
    def free_energy(self, x: Any) -> Array:
        """``F(x)`` of one point, a scalar."""


class ScoreNetwork(Module):
    """A vector field ``s(x)`` of x's own shape that models ``∇ₓ log p(x)``; it need not be a gradient."""

    space: eqx.AbstractVar[Space | None]

    @abc.abstractmethod
    def __call__(self, x: Array) -> Array:
        """The score at one point, of the point's shape."""


class HasLogZ(Energy):
    """An energy with known ``log Z = log ∫ exp(-E(x)) dx``, and so a normalised density."""

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
    """An energy whose full conditionals can be sampled, as Gibbs sampling needs.

    ``blocks`` is boolean ``(blocks, *event)``: groups of coordinates that are independent of each other given the rest
    and together cover every coordinate. They follow from the structure (which sites are connected), never from the
    values of weights, which training changes. They are a numpy array, or a property that returns one, so that they are
    never traced.
    """

    blocks: eqx.AbstractVar[Any]

    @abc.abstractmethod
    def resample(self, key: PRNGKeyArray, x: Array, block: Any) -> Array:
        """All chains ``x`` ``(chains, *event)`` with the coordinates of ``block`` redrawn from ``p(x_block | rest)``;
        ``block`` is boolean, ``(*event)`` for all chains alike or ``(chains, *event)``."""

    @abc.abstractmethod
    def scaled(self, factor: Array) -> "HasConditionals":
        """The energy ``factor · E(x)``, whose conditionals can be sampled too, as tempering needs."""

    def sweep(self, key: PRNGKeyArray, x: Array, blocks: Any = None) -> Array:
        """All chains ``x`` after one sweep: every block is redrawn in turn by `resample`.

        An energy that can share work between the blocks overrides this. ``blocks`` defaults to all blocks; a clamped
        energy passes the blocks of its free coordinates.
        """
        blocks = jnp.asarray(self.blocks if blocks is None else blocks)
        one = lambda x, now: (self.resample(now[0], x, now[1]), None)
        return jax.lax.scan(one, x, (jax.random.split(key, len(blocks)), blocks))[0]


class HasLogits(HasConditionals):
    """Conditionals on a finite space, given as log-probabilities of every level of every coordinate."""

    @abc.abstractmethod
    def logits(self, x: Array) -> Array:
        """``log p(x_i = level | rest)`` up to a constant per coordinate, ``(*event, levels)``, in the space's order."""


class HasSweep(Energy):
    """An energy with a Gibbs sweep of its own, through variables that are not part of the point.

    A machine with hidden units, for example, draws them given x, then x given them. The sweep leaves ``p(x)``
    invariant, but it is no sequence of draws from the full conditionals of x, so there are no blocks.
    """

    @abc.abstractmethod
    def sweep(self, key: PRNGKeyArray, x: Any, free: Any = None) -> Any:
        """All chains ``x`` ``(chains, *event)`` after one sweep that leaves ``p`` invariant.

        ``free`` is boolean ``(*event)``: coordinates outside it keep their values, and the sweep leaves ``p(x_free |
        rest)`` invariant. All are free by default.
        """

    @abc.abstractmethod
    def scaled(self, factor: Array) -> "HasSweep":
        """The energy ``factor · E(x)``, with a sweep that leaves it invariant, as tempering needs."""


class HasExactLogZ(Energy):
    """An energy whose log Z can be summed exactly if it is small enough."""

    @abc.abstractmethod
    def exact_log_z(self) -> Array | None:
        """The exact log Z, or ``None`` if there are too many states to sum over."""


class UnitMoments(NamedTuple):
    """Means and variances of the units of a machine, ``(features,)`` each."""

    visible_mean: Array
    visible_variance: Array
    hidden_mean: Array
    hidden_variance: Array


class HasHiddenUnits(Energy):
    """A machine with visible and hidden units, as an energy of the visible ones."""

    @abc.abstractmethod
    def hidden_means(self, x: Array) -> Array:
        """The means of the hidden units given each point of ``x`` ``(rows, *event)``: ``(rows, features)``."""

    @abc.abstractmethod
    def unit_moments(self, key: PRNGKeyArray, x: Array) -> UnitMoments:
        """Moments of the visible units over the points ``x`` ``(rows, *event)``, and of a draw of the hidden units."""

    @abc.abstractmethod
    def centre(self, gradient: Any, moments: UnitMoments, standardise: bool) -> Any:
        """A gradient in the parameters, as a step along the gradient in centred (or standardised) parameters."""


class HasAnnealing(Energy):
    """An energy on a finite space that is the end of a path of energies which `samplers.Gibbs` can sweep."""

    @abc.abstractmethod
    def annealed(self, beta: Array, field: Array) -> Energy:
        """``E_β``: this energy at β = 1; at β = 0 independent sites, ``E_0(x) = constant - Σ_i field_i x_i``, or
        ``constant - Σ_i field[i, x_i]`` on categories. At ``beta`` between them ``field`` enters as ``(1-β)·field``."""

    @property
    @abc.abstractmethod
    def own_field(self) -> Array:
        """The energy's own linear part, its biases, of the shape of ``field``."""


class HasSmoothing(Energy):
    """An energy whose density stays known in closed form when Gaussian noise is added to the points."""

    @abc.abstractmethod
    def smoothed(self, sigma: Array | float) -> Energy:
        """The energy of ``x + σ·ε`` with ``x ~ p`` and ``ε ~ N(0, I)``."""


class Refreshable(Module):
    """A module with buffers (power-iteration vectors) that advance once per training update."""

    @abc.abstractmethod
    def refresh(self) -> "Refreshable":
        """The same object with its buffers advanced; no gradient flows into them."""


def refresh(tree: PyTree) -> PyTree:
    """``tree`` with every `Refreshable` inside it, at any depth, advanced once."""

    def is_refreshable(node):
        return isinstance(node, Refreshable)

    return jax.tree.map(lambda node: node.refresh() if is_refreshable(node) else node, tree, is_leaf=is_refreshable)


class State(Module):
    """What a kernel carries from step to step: the positions of all chains, and cached values such as gradients.

    Every array in it has the chains as its leading axis, so that chains can be picked, stored and put back.
    """

    x: eqx.AbstractVar[Any]


class Info(Module):
    """The metrics of one kernel step, each ``(chains,)``; ``None`` for a metric the kernel does not have.

    ``acceptance`` is the probability (or frequency) of acceptance, ``gradient_norm`` is ``‖∇E‖₂`` if the step computed
    it, ``divergent`` marks steps with a non-finite energy or a large energy error. ``extra`` holds metrics of this
    kernel alone (swap rates), each ``(chains, ...)``; `sample` averages them over the run.
    """

    acceptance: Array | None = None
    gradient_norm: Array | None = None
    divergent: Array | None = None
    extra: dict[str, Array] = eqx.field(default_factory=dict)


class Kernel(Module):
    """A Markov kernel over a population: the leading axis of every array is the chains, and each step takes one key.

    The energy is an argument of all methods and never stored, so nothing recompiles when its weights change.
    ``takes_per_chain_energies`` means that the kernel evaluates an energy by `core.over_chains`, which also accepts
    energies that differ from chain to chain; other kernels are then vmapped over single chains.
    """

    takes_per_chain_energies: ClassVar[bool] = False
    omits_defaults: ClassVar[bool] = True

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, energy: Any, x: Any) -> State:
        """The initial state of chains at ``x``, of shape ``(chains, *event)``."""

    @abc.abstractmethod
    def step(self, key: PRNGKeyArray, energy: Any, state: Any) -> tuple[State, Info]:
        """One step of all chains: the new state and the metrics of the step."""

    def retarget(self, energy: Any, state: Any) -> State:
        """The same chains on a changed energy: positions and momenta stay, cached values are recomputed.

        A state that holds only positions is returned as it is; a kernel with any other state must override this.
        """
        if len(jax.tree.leaves(state)) != len(jax.tree.leaves(state.x)):
            raise ValueError(
                f"expected {type(self).__name__} to define how its state continues when the energy changes, "
                "got no retarget; define retarget(energy, state), which keeps positions and momenta and "
                "recomputes the rest"
            )
        return state


class Tunable(Kernel):
    """A kernel with a step size that `warm_up` can tune to reach ``target_acceptance``."""

    target_acceptance: ClassVar[float]

    @abc.abstractmethod
    def get_step_size(self) -> Array:
        """The current step size, a scalar or one per coordinate."""

    @abc.abstractmethod
    def with_step_size(self, step_size: Array) -> "Tunable":
        """The same kernel with another step size."""

    def shortened(self) -> "Tunable":
        """A kernel with cheaper steps, for the start of a warm-up while chains are far away; by default this kernel."""
        return self


class HasMassMatrix(Tunable):
    """A kernel with a mass matrix (the inverse of a covariance) that `warm_up` can estimate too."""

    @abc.abstractmethod
    def with_mass_matrix(self, mass_matrix: Array) -> "HasMassMatrix":
        """The same kernel with another mass matrix, ``(d,)`` or ``(d, d)`` over the real coordinates of a point."""


class HasTransitionMatrix(Kernel):
    """A kernel with a known transition matrix on a small finite space."""

    @abc.abstractmethod
    def transition_matrix(self, energy: Any) -> Array:
        """``T[i, j]``, the probability of going from state i to state j, ``(states, states)``."""


class InspectsEnergy(Kernel):
    """A kernel that must check the values in an energy, which is possible only before the run is traced."""

    @abc.abstractmethod
    def inspect(self, energy: Any) -> None:
        """Raise ``ValueError`` for an energy that this kernel cannot sample."""


class ConditionalKernel(Kernel):
    """A kernel for a model of ``(x, c)`` that chooses the condition c itself (a noise level, for example)."""

    @abc.abstractmethod
    def at_start(self, model: Any) -> Any:
        """The model at the condition of the first step: a function of one point."""


class Step(NamedTuple):
    """What an objective returns beside its loss: its state for the next update, and scalar metrics."""

    state: PyTree
    metrics: dict[str, Array]


class Objective(Module):
    """A training criterion: configured at construction, given the model when called.

    ``minimised_at_truth`` means that the expected loss is smallest at the `truth`; otherwise only its gradient vanishes
    there. ``conditional`` means that with a `ConditionalEnergy` and batches ``(x, c)`` it learns ``p(x | c)``.
    `check_objective` compares with `truth` and `expected`.
    """

    minimised_at_truth: ClassVar[bool] = False
    omits_defaults: ClassVar[bool] = True
    conditional: ClassVar[bool] = False

    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[PyTree, PyTree]:
        """``(params, state)``: params are trained with the energy (log Z, a flow), state is carried between updates (a
        replay buffer). Both default to ``None``."""
        return None, None

    @abc.abstractmethod
    def loss(self, key: PRNGKeyArray, energy: Any, params: PyTree, state: PyTree, batch: PyTree) -> tuple[Array, Step]:
        """The scalar loss on this batch, and the `Step` that goes with it."""

    def truth(self, energy: Any) -> Any:
        """The model at which the expected gradient vanishes when the data come from ``energy``."""
        return energy

    def expected(self, energy: Any) -> "Objective | None":
        """An objective with the same expected gradient on data from ``energy`` but less noise; ``None`` without one."""
        return None


class DiscreteObjective(Objective):
    """An objective for energies on finite spaces."""


class Estimate(NamedTuple):
    """An estimate with a confidence interval: ``[low, high]`` covers the truth with probability ``confidence``.

    ``ess`` is the effective number of samples behind it, ``warning`` says why the interval may be wrong or is wide,
    ``standard_error`` is that of ``value``, ``bound`` is a lower bound that holds with probability ``confidence``
    whatever the mixing, and ``parts`` are the estimates it was made from, by name. A field is ``None`` where it does
    not apply.

    >>> from thalweg.core import Estimate
    >>> print(Estimate(1.5, 1.25, 1.75, 0.95, "bridge sampling"))
    1.5  [1.25, 1.75] at 95%, bridge sampling
    """

    value: float
    low: float
    high: float
    confidence: float
    method: str
    ess: float | None = None
    warning: str | None = None
    standard_error: float | None = None
    bound: float | None = None
    parts: "dict[str, Estimate] | None" = None

    def __str__(self) -> str:
        text = f"{self.value:.6g}  [{self.low:.6g}, {self.high:.6g}] at {self.confidence:.0%}, {self.method}"
        return text if self.warning is None else f"{text}; {self.warning}"

    def _repr_html_(self) -> str:
        interval = f"[{self.low:.6g}, {self.high:.6g}] at {self.confidence:.0%}"
        rows = [("value", f"{self.value:.6g}"), ("interval", interval), ("method", self.method)]
        rows += [] if self.ess is None else [("effective samples", f"{self.ess:.4g}")]
        rows += [] if self.bound is None else [("lower bound", f"{self.bound:.6g}")]
        rows += [(name.replace("_", " "), str(part)) for name, part in (self.parts or {}).items()]
        return html_table(rows, title="Estimate", note=self.warning or "")


class Verdict(NamedTuple):
    """The result of a check: passed or not, at which false-alarm rate, and the smallest bias it would have detected."""

    passed: bool
    false_alarm: float
    detectable: float
    text: str

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        rows = [("false-alarm rate", f"{self.false_alarm:g}"), ("detectable", f"{self.detectable:.3g}")]
        return html_table(rows, title="Passed" if self.passed else "FAILED", note=self.text)
