"""The chain loop: `sample` for users, and `advance`, through which every chain in the library runs."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import (
    ConditionalKernel,
    Info,
    InspectsEnergy,
    Kernel,
    LatentEnergy,
    PerChain,
    State,
    check_instance,
    check_scalar,
    compiled,
    count_chains,
    energies,
    flag,
    is_concrete,
    is_score,
    over_chains,
    require_model,
    space_of,
    typed_key,
    whole_number,
)
from thalweg.core.progress import progress_bar
from thalweg.energies.compose import Clamped
from thalweg.samplers.chains import Chains
from thalweg.samplers.single_chain import init_chains, retarget_chains, step_chains
from thalweg.spaces import as_points

# keys are made this many at a time: one by one would cost as much as a step of a small kernel, and all at once would
# need memory for the whole length of the chain
_BLOCK = 100_000

Measure = Callable[[Info], dict[str, Array]]


def advance(
    energy: Any,
    kernel: Any,
    state: Any,
    *,
    key: PRNGKeyArray,
    steps: int,
    measure: Measure | None = None,
    first_block: int | Array = 0,
) -> tuple[Any, dict[str, Array]]:
    """Run ``steps`` steps of ``kernel`` and return the state and the metrics; memory does not grow with ``steps``.

    Args:
        energy: any model the kernel takes, also one that differs from chain to chain.
        kernel: any kernel.
        state: the state of the chains on this energy.
        key: the random key of all steps.
        steps: the number of kernel steps.
        measure: maps the `Info` of one step to metrics. They are averaged over the steps; whole numbers are summed.
        first_block: continues a chain whose first ``100_000·first_block`` steps were taken in an earlier call.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy, kernel, key = lambda x: jnp.sum(x**2), tw.samplers.GradientDescent(0.5), jax.random.key(0)
    >>> key_init, key_run = jax.random.split(key)
    >>> state = kernel.init(key_init, energy, jnp.ones((3, 2)))
    >>> tw.samplers.advance(energy, kernel, state, key=key_run, steps=2)[0].x[0].tolist()
    [0.25, 0.25]
    """
    require_model("advance", energy)
    check_kernel(kernel)
    if not isinstance(state, State):
        raise ValueError(f"expected a state, got {type(state).__name__}; make one by kernel.init(key, energy, x)")
    key, steps = typed_key(key), whole_number("steps", steps, 0)
    if is_concrete(key) and not getattr(kernel, "all_rungs", False) and not isinstance(energy, LatentEnergy):
        # a user's own call: inside a compiled program all of this was looked at before
        check_scalar(kernel.at_start(energy) if isinstance(kernel, ConditionalKernel) else energy, state.x)
    state, totals = _advance(energy, kernel, state, key, steps, measure, first_block)
    return state, reduce_totals(totals, steps)


def _advance(energy, kernel, state, key, steps, measure, first_block: Any = 0):
    measure = _no_metrics if measure is None else measure

    def one(carry, key):
        state, totals = carry
        state, info = step_chains(kernel, key, energy, state)
        return (state, _add(totals, measure(info))), None

    def block(number, carry, length=_BLOCK):
        return jax.lax.scan(one, carry, _split(jax.random.fold_in(key, first_block + number), length))[0]

    whole, rest = divmod(steps, _BLOCK)
    carry = (state, _zero_totals(lambda: measure(step_chains(kernel, key, energy, state)[1])))
    carry = jax.lax.fori_loop(0, whole, block, carry) if whole else carry
    return block(whole, carry, rest) if rest else carry


def _no_metrics(info: Info) -> dict[str, Array]:
    return {}


def _split(key: PRNGKeyArray, count: int) -> Array:
    # rounded up to a multiple of 8: an odd number of keys takes three times as long, which matters for one fast chain
    return jax.random.split(key, count + -count % 8)[:count]


def _zero_totals(like: Callable[[], PyTree]) -> PyTree:
    """Zero sums, of the shapes that ``like`` would return, with their compensations."""
    zeros = lambda leaf: jnp.zeros(leaf.shape, leaf.dtype)
    shapes = jax.eval_shape(like)
    return jax.tree.map(lambda leaf: (zeros(leaf), zeros(leaf)) if _is_mean(leaf) else (zeros(leaf),), shapes)


def _is_mean(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def _add(totals: dict[str, tuple[Array, ...]], values: dict[str, Array]) -> dict[str, tuple[Array, ...]]:
    """The totals with one more step, by compensated summation: plain sums of 10^7 numbers lose digits in single
    precision.

    Reference: Kahan (1965), Commun. ACM 8.
    """

    def one(total, value):
        if len(total) == 1:
            return (total[0] + value,)
        value = value - total[1]
        new = total[0] + value
        return new, (new - total[0]) - value

    return {name: one(totals[name], value) for name, value in values.items()}


def merge_totals(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The totals of two pieces of a run, added."""
    return jax.tree.map(jnp.add, first, second) if first else second


def reduce_totals(totals: dict[str, tuple[Array, ...]], steps: int | Array) -> dict[str, Array]:
    """The means over ``steps`` steps, from totals; totals of whole numbers stay sums."""
    return {name: total[0] / max(steps, 1) if len(total) == 2 else total[0] for name, total in totals.items()}


def metrics_of(info: Info) -> dict[str, Array]:
    """The metrics of `sample`: acceptance and divergences, if the kernel has them, and the kernel's own."""
    divergences = None if info.divergent is None else info.divergent.astype(jnp.int32)
    measured = {"acceptance": info.acceptance, "divergences": divergences}
    return {**{name: value for name, value in measured.items() if value is not None}, **info.extra}


def metrics_with_gradient(info: Info) -> dict[str, Array]:
    """`metrics_of` and the gradient norm, which training records; in `sample` it would slow down the cheapest
    chains."""
    norms = {} if info.gradient_norm is None else {"gradient_norm": info.gradient_norm}
    return {**metrics_of(info), **norms}


def sample(
    energy: Any,
    kernel: Any,
    init: Any,
    *,
    key: PRNGKeyArray,
    draws: int,
    burn_in: int = 0,
    thin: int = 1,
    progress: bool = False,
) -> Chains:
    """Run ``kernel`` on ``energy`` for all chains: ``burn_in`` steps that are discarded, then ``draws`` draws.

    The whole run is one compiled loop; memory grows only with the draws kept. A change of step size, weights or starts
    of the same shape does not recompile it. It can be called under ``jax.jit`` and ``jax.vmap``; starts are then not
    checked.

    Args:
        energy: an energy, a plain function of one point, or (for unadjusted kernels) a score network.
        kernel: for example ``tw.samplers.MALA(0.1)``.
        init: where the chains start, ``(chains, *event)`` or a tree of such arrays; or the ``state`` of an earlier run
            with this kernel, which is continued: positions, momenta and counts are kept, also on another energy.
        key: the random key of the whole run.
        draws: the number of draws to keep per chain.
        burn_in: the number of kernel steps before the first draw.
        thin: the number of kernel steps per draw.
        progress: show a progress bar (the draws are the same with and without).

    Returns:
        `Chains`, with ``draws`` of shape ``(chains, draws, *event)``.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = lambda x: 0.5 * jnp.sum(x**2)
    >>> chains = tw.sample(energy, tw.samplers.MALA(0.5), jnp.zeros((4, 2)), key=jax.random.key(0), draws=100)
    >>> chains.draws.shape
    (4, 100, 2)
    >>> more = tw.sample(energy, tw.samplers.MALA(0.5), chains.state, key=jax.random.key(1), draws=100)
    """
    draws, burn_in, thin = whole_number("draws", draws), whole_number("burn_in", burn_in, 0), whole_number("thin", thin)
    key = typed_key(key)
    require_model("sample", energy)
    check_kernel(kernel)
    begin = _check_init(energy, init)
    inspect(kernel, energy)
    if flag("progress", progress):
        return _sample_with_bar(energy, kernel, begin, key, draws, burn_in, thin)
    if burn_in + draws * thin > 10_000 and is_concrete(key):
        # a long run checks its starts first, in a separate call; a short run checks them in the same program
        _raise_for_starts(_check_starts(kernel, energy, begin), kernel, energy, begin)
    chains, fine = _run(key, begin, kernel, energy, burn_in, draws, thin)
    _raise_for_starts(fine, kernel, energy, begin)
    return chains


def check_kernel(kernel: Any) -> None:
    """Raise if ``kernel`` is not a kernel: a class, or an object without ``init`` and ``step``."""
    check_instance("a kernel", kernel, ("init", "step"), "tw.samplers.MALA(0.1)")


def is_kernel(value: Any) -> bool:
    """Whether an object has the methods of a kernel."""
    return all(callable(getattr(type(value), method, None)) for method in ("init", "step"))


def energy_first(energy: Any, kernel: Any) -> tuple[Any, Any]:
    """Energy and kernel; if they are given in the order of earlier versions, they are swapped with a warning."""
    if is_kernel(kernel) or not is_kernel(energy):
        return energy, kernel
    warnings.warn("give the energy first, then the kernel; the other order will raise an error", DeprecationWarning, 3)
    return kernel, energy


def _check_init(energy: Any, init: Any) -> Any:
    """The checked starts of the chains: a state as it is, or points in the dtype of their space."""
    if isinstance(init, State):
        rows = count_chains(energy.parameters) if isinstance(energy, PerChain) else None
        if rows is not None and count_chains(init.x) != rows:
            raise ValueError(
                f"expected {rows} chains for {rows} energies, got {count_chains(init.x)}; give a state of as many"
            )
        return init
    if isinstance(energy, Clamped):
        return _free_points(energy, init)
    if isinstance(energy, PerChain):
        rows = count_chains(energy.parameters)
        x = as_points(space_of(energy), init)
        if count_chains(x) != rows:
            raise ValueError(f"expected {rows} starts for {rows} energies, got {count_chains(x)}; give one for each")
        return x
    return as_points(space_of(energy), init)


def _free_points(energy: Clamped, init: Any) -> Array:
    """The free coordinates of the starts of a clamped energy, given as full points or as free coordinates."""
    shape = np.shape(init)[1:]
    if shape == energy.values.shape != (len(energy.free),):
        return jax.vmap(energy.reduce)(as_points(space_of(energy.energy), init))
    if shape == energy.values.shape:  # one axis, and no coordinate is held
        return as_points(energy.space, init)
    if shape != (len(energy.free),):
        raise ValueError(
            f"expected init of shape (chains, {', '.join(map(str, energy.values.shape))}), got {np.shape(init)}; "
            "the leading axis is the chains, the others are one point's"
        )
    return as_points(energy.space, init)


def inspect(kernel: Any, model: Any) -> None:
    """Let the kernel, and every kernel inside it, check the values in the energy before anything is traced."""
    if isinstance(kernel, InspectsEnergy):
        kernel.inspect(model)
    for part in vars(kernel).values() if isinstance(kernel, Kernel) else ():
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, tuple) else (part,):
            if isinstance(inner, Kernel):
                inspect(inner, model)


def _raise_for_starts(fine: Array, kernel: Any, energy: Any, begin: Any) -> None:
    if not is_concrete(fine) or np.asarray(fine).all():
        return
    worst = int(np.argmin(np.asarray(fine)))
    x = begin.x if isinstance(begin, State) else begin
    point = ", ".join(np.array2string(np.asarray(leaf[worst]), threshold=8, precision=4) for leaf in jax.tree.leaves(x))
    what = "score" if is_score(energy) else "energy"
    raise ValueError(
        f"expected a finite {what} at every start, got a non-finite one in chain {worst} at x = {point}; "
        "start inside the support, or check the energy there"
    )


def _are_finite_starts(kernel: Any, energy: Any, x: PyTree) -> Array:
    """Whether the energy at every start is finite, ``(chains,)``; raises, while tracing, for a model that is not an
    energy of one point."""
    model = kernel.at_start(energy) if isinstance(kernel, ConditionalKernel) else energy
    if isinstance(x, State):
        x = x.x
        if getattr(kernel, "all_rungs", False):
            x = jax.tree.map(lambda leaf: leaf[:, 0], x)
    check_scalar(model, x)
    if is_score(model):
        good = lambda model, point: jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(model(point))])
        return jnp.all(over_chains(good, model, x), axis=1)
    return jnp.isfinite(energies(model, x))


_check_starts = compiled(_are_finite_starts)


def _collect_draws(keys, kernel, energy, state, thin):
    """One draw for each of ``keys``; the leading axis of the result is the draws."""

    def one(carry, key):
        state, totals = carry
        if thin == 1:
            state, info = step_chains(kernel, key, energy, state)
            totals = _add(totals, metrics_of(info))
        else:
            state, now = _advance(energy, kernel, state, key, thin, metrics_of)
            totals = _add(totals, {name: total[0] for name, total in now.items()})
        return (state, totals), state.x

    zero = _zero_totals(lambda: metrics_of(step_chains(kernel, keys[0], energy, state)[1]))
    (state, totals), kept = jax.lax.scan(one, (state, zero), keys)
    return state, kept, totals


def _keys(key, draws):
    key_init, key_burn, key_keep = jax.random.split(key, 3)
    return key_init, key_burn, _split(key_keep, draws)


def _state(key, kernel, energy, begin):
    """The initial state of the chains; raises if a user's kernel does not follow the contract."""
    if isinstance(begin, State):
        _check_state(key, kernel, energy, begin)
        state = retarget_chains(kernel, energy, begin)
    else:
        state = init_chains(kernel, key, energy, begin)
    _check_step(key, kernel, energy, state)
    return state


def _check_state(key, kernel, energy, state):
    x = jax.tree.map(lambda leaf: leaf[:, 0], state.x) if getattr(kernel, "all_rungs", False) else state.x
    expected = jax.eval_shape(lambda: init_chains(kernel, key, energy, x))
    like = lambda tree: [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]
    if jax.tree.structure(expected) != jax.tree.structure(state) or like(expected) != like(state):
        raise ValueError(
            f"expected a state of {type(kernel).__name__}, got {type(state).__name__} of another kernel, space or "
            "number of chains; continue with the kernel that made it, or start at its points: init=state.x"
        )


def _check_step(key, kernel, energy, state):
    name = type(kernel).__name__
    if not isinstance(state, State):
        raise ValueError(
            f"expected {name}.init to return a tw.core.State, got {type(state).__name__}; subclass State with a field x"
        )
    stepped = jax.eval_shape(lambda: _as_pair(name, step_chains(kernel, key, energy, state)))
    new, info = stepped
    chains = count_chains(state.x)
    if jax.tree.structure(new) != jax.tree.structure(state):
        raise ValueError(f"expected {name}.step to return a state like its argument, got another form; keep its fields")
    for old, leaf in zip(jax.tree.leaves(state), jax.tree.leaves(new), strict=True):
        if (old.shape, old.dtype) != (leaf.shape, leaf.dtype):
            raise ValueError(
                f"expected {name}.step to keep the shapes and types of its state, got {leaf.shape} {leaf.dtype} for "
                f"{old.shape} {old.dtype}; return arrays like those of init"
            )
    for leaf in jax.tree.leaves((new, info)):
        if leaf.shape[:1] != (chains,):
            raise ValueError(
                f"expected the {chains} chains as the leading axis of every array of {name}'s state and info, got "
                f"shape {leaf.shape}; give one entry for each chain"
            )


def _as_pair(name, returned):
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], Info):
        got = type(returned[1] if isinstance(returned, tuple) and len(returned) == 2 else returned).__name__
        raise ValueError(f"expected {name}.step to return (state, tw.core.Info), got {got}; return both")
    return returned


def _complete_points(energy, kept):
    """The draws of a clamped energy as full points."""
    return jax.vmap(jax.vmap(energy.complete))(kept) if isinstance(energy, Clamped) else kept


@compiled
def _run(key, begin, kernel, energy, burn_in, draws, thin):
    fine = _are_finite_starts(kernel, energy, begin)
    key_init, key_burn, keys = _keys(key, draws)
    state = _state(key_init, kernel, energy, begin)
    if burn_in:
        state, _ = _advance(energy, kernel, state, key_burn, burn_in, None)
    state, kept, totals = _collect_draws(keys, kernel, energy, state, thin)
    kept = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), kept)
    return Chains(_complete_points(energy, kept), reduce_totals(totals, draws * thin), state), fine


_state_piece = compiled(_state)


@compiled
def _burn_piece(key, kernel, energy, state, steps, first_block):
    return _advance(energy, kernel, state, key, steps, None, first_block)[0]


@compiled
def _collect_piece(keys, kernel, energy, state, thin):
    state, kept, totals = _collect_draws(keys, kernel, energy, state, thin)
    return state, _complete_points(energy, jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), kept)), totals


def _sample_with_bar(energy, kernel, begin, key, draws, burn_in, thin) -> Chains:
    """The same run as `_run`, in pieces between which the progress bar is updated."""
    if not is_concrete(key):
        raise ValueError("expected no progress bar under jit or vmap, got progress=True; leave it out")
    _raise_for_starts(_check_starts(kernel, energy, begin), kernel, energy, begin)
    key_init, key_burn, keys = _keys(key, draws)
    state = _state_piece(key_init, kernel, energy, begin)
    kept, totals = [], {}
    with progress_bar(f"{count_chains(state.x)} chains", burn_in + draws * thin) as show:
        for block in range(-(-burn_in // _BLOCK)):
            steps = min(_BLOCK, burn_in - block * _BLOCK)
            piece = _burn_piece(key_burn, kernel, energy, state, steps, jnp.asarray(block))
            state = jax.block_until_ready(piece)
            show(steps)
        # equal pieces share one compilation
        length = max(1, draws // 50)
        for start in range(0, draws, length):
            piece = keys[start : start + length]
            now = jax.block_until_ready(_collect_piece(piece, kernel, energy, state, thin))
            state, x, more = now
            kept.append(x)
            totals = merge_totals(totals, more)
            show(len(piece) * thin)
    joined = jax.tree.map(lambda *pieces: jnp.concatenate(pieces, axis=1), *kept)
    return Chains(joined, reduce_totals(totals, draws * thin), state)
