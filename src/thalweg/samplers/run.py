"""The chain loop: every chain in the library runs through `advance`, and users meet it as `sample`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import (
    ConditionalKernel,
    Energy,
    Info,
    InspectsEnergy,
    Kernel,
    ScoreNetwork,
    State,
    arrays_and_form,
    as_model,
    together,
)
from thalweg.energies.compose import Clamped
from thalweg.samplers.chains import Chains
from thalweg.spaces import Continuous

# a chain's keys are made this many at a time: one by one would cost as much as a small kernel's step, and all at once
# would let memory grow with the length of the chain
_BLOCK = 100_000


def advance(
    key: PRNGKeyArray,
    kernel: Kernel,
    energy: Any,
    state: State,
    steps: int,
    measure: Callable[[Info], PyTree] = lambda info: None,
    first_block: int | Array = 0,
) -> tuple[State, PyTree]:
    """``steps`` steps of ``kernel``, and the sum over them of ``measure(info)``; memory does not grow with ``steps``.

    ``first_block`` goes on with a chain whose first ``100_000·first_block`` steps were taken in an earlier call.
    """

    def one(carry, key):
        state, total = carry
        state, info = kernel.step(key, energy, state)
        return (state, jax.tree.map(jnp.add, total, measure(info))), None

    def block(number, carry, length=_BLOCK):
        return jax.lax.scan(one, carry, _split(jax.random.fold_in(key, first_block + number), length))[0]

    whole, rest = divmod(steps, _BLOCK)
    carry = (state, _zeros(lambda: measure(kernel.step(key, energy, state)[1])))
    carry = jax.lax.fori_loop(0, whole, block, carry) if whole else carry
    return block(whole, carry, rest) if rest else carry


def _split(key: PRNGKeyArray, count: int) -> Array:
    # an odd number of keys takes three times as long to make as an even one, which a single fast chain would feel
    return jax.random.split(key, count + -count % 8)[:count]


def _zeros(like: Callable[[], PyTree]) -> PyTree:
    """Zeros in the shapes of what ``like`` would return, without computing it."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(like))


def told(info: Info) -> dict[str, Array]:
    """What `sample` sums along a chain: acceptance and divergences, each where the kernel has them."""
    divergences = None if info.divergent is None else info.divergent.astype(jnp.int32)
    measured = {"acceptance": info.acceptance, "divergences": divergences}
    return {**{name: value for name, value in measured.items() if value is not None}, **info.extra}


def told_with_gradients(info: Info) -> dict[str, Array]:
    """`told` and the gradient norms, which a training step wants and which would slow the cheapest chains down."""
    norms = {} if info.gradient_norm is None else {"gradient_norm": info.gradient_norm}
    return {**told(info), **norms}


def averaged(totals: dict[str, Array], steps: int | Array) -> dict[str, Array]:
    """Sums of `told` over ``steps`` steps as means; divergences stay a count."""
    return {name: total if name == "divergences" else total / steps for name, total in totals.items()}


def sample(
    energy: Any,
    kernel: Kernel,
    init: Array,
    *,
    key: PRNGKeyArray,
    draws: int,
    burn_in: int = 0,
    thin: int = 1,
    progress: bool = False,
) -> Chains:
    """Run ``kernel`` on ``energy`` for every chain at once: ``burn_in`` steps unseen, then ``draws`` draws.

    The whole run is one compiled loop; memory does not grow with its length, only with the draws kept. Another step
    size, other weights or another start of the same shape do not recompile it.

    Args:
        energy: an energy, a plain function of one point, or (for unadjusted kernels) a score network.
        kernel: for example ``tw.samplers.MALA(0.1)``.
        init: where the chains start, ``(chains, *event)``.
        key: the randomness of the whole run.
        draws: how many draws to keep per chain.
        burn_in: steps before the first kept one.
        thin: steps per kept draw.
        progress: show a progress bar (the draws are the same with and without).

    Returns:
        `Chains`, with ``draws`` of shape ``(chains, draws, *event)``.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = lambda x: 0.5 * jnp.sum(x**2)
    >>> chains = tw.sample(energy, tw.samplers.MALA(0.5), jnp.zeros((4, 2)), key=jax.random.key(0), draws=100)
    >>> chains.draws.shape
    (4, 100, 2)
    """
    for name, value, least in (("draws", draws, 1), ("burn_in", burn_in, 0), ("thin", thin, 1)):
        if not isinstance(value, (int, np.integer)) or value < least:
            raise ValueError(
                f"expected {name} to be a whole number >= {least}, got {value!r}; give for example {least}"
            )
    model = as_model(energy)
    x = _check_init(model, init)
    if isinstance(model, Clamped) and x.shape[1:] == model.values.shape:
        x = jax.vmap(model.reduce)(x)
    inspect(kernel, model)
    run = _run_with_bar if progress else _run
    if progress or burn_in + draws * thin > 10_000:
        # a long run looks at its starts before, a short one on the way: the look is a call of its own
        _check_start(np.asarray(_fine(_seen(kernel, model), x)), x, model)
    kept, totals, fine = run(key, kernel, model, x, int(burn_in), int(draws), int(thin))
    _check_start(np.asarray(fine), x, model)
    if isinstance(model, Clamped):
        kept = jax.vmap(jax.vmap(model.complete))(kept)
    return Chains(kept, averaged(totals, draws * thin))


def _check_init(model: Energy | ScoreNetwork, init: Array) -> Array:
    x = init if isinstance(init, jax.Array) else jnp.asarray(init)
    space = model.space
    if x.ndim == 0:
        raise ValueError(
            "expected init of shape (chains, *event), got a scalar; add a leading axis of chains: init[None]"
        )
    if x.shape[0] == 0:
        raise ValueError("expected at least one chain in init, got none; give an array of shape (chains, *event)")
    shapes = [] if space is None else [space.shape]
    if isinstance(model, Clamped):
        shapes.insert(0, model.values.shape)  # full points are taken too, and their free part is used
    if shapes and x.shape[1:] not in shapes:
        raise ValueError(
            f"expected init of shape (chains, {', '.join(map(str, shapes[0]))}), got {x.shape}; "
            "the leading axis is the chains, the others are one point's"
        )
    if isinstance(space, Continuous) and not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(f"expected floating-point numbers in init, got {x.dtype}; convert with init.astype(float)")
    return x


def inspect(kernel: Kernel, model: Any) -> None:
    """Let the kernel, and every kernel inside it, look at the energy's numbers before anything is compiled."""
    for part in jax.tree.leaves(kernel, is_leaf=lambda node: isinstance(node, InspectsEnergy)):
        if isinstance(part, InspectsEnergy):
            part.inspect(model)


def _check_start(fine: np.ndarray, x: Array, model: Any) -> None:
    if fine.all():
        return
    worst = int(np.argmin(fine))
    point = np.array2string(np.asarray(x[worst]), threshold=8, precision=4)
    what = "score" if isinstance(model, ScoreNetwork) else "energy"
    raise ValueError(
        f"expected a finite {what} at every start, got a non-finite one in chain {worst} at x = {point}; "
        "start inside the support, or look at the energy there"
    )


def check_scalar(model: Any, x: Array) -> None:
    """Refuse, while tracing, an energy that does not return a scalar (or a score that is not shaped like the point)."""
    out = jax.eval_shape(model, jax.eval_shape(lambda points: points[0], x))
    shape = getattr(out, "shape", None)
    if isinstance(model, ScoreNetwork):
        if shape != x.shape[1:]:
            raise ValueError(
                f"expected a score of the point's shape {x.shape[1:]}, got {shape}; return an array like x"
            )
    elif shape != ():
        raise ValueError(
            f"expected an energy to return a scalar for one point of shape {x.shape[1:]}, got shape {shape}; "
            "sum over the point's coordinates (batching is done for you)"
        )


def _seen(kernel: Kernel, model: Any) -> Any:
    """The model as a function of one point."""
    return kernel.at_start(model) if isinstance(kernel, ConditionalKernel) else model


@eqx.filter_jit
def _fine(model: Any, x: Array) -> Array:
    check_scalar(model, x)
    return jax.vmap(lambda point: jnp.all(jnp.isfinite(model(point))))(x)


def _keep(keys, kernel, model, state, thin):
    """One draw for each of ``keys``, the leading axis of the result being the draws."""

    def one(carry, key):
        state, total = carry
        if thin == 1:
            state, info = kernel.step(key, model, state)
            now = told(info)
        else:
            state, now = advance(key, kernel, model, state, thin, told)
        return (state, jax.tree.map(jnp.add, total, now)), state.x

    zero = _zeros(lambda: told(kernel.step(keys[0], model, state)[1]))
    (state, totals), kept = jax.lax.scan(one, (state, zero), keys)
    return state, kept, totals


def _keys(key, draws):
    key_burn, key_keep = jax.random.split(key)
    return key_burn, _split(key_keep, draws)


def _run(key, kernel, model, x, burn_in, draws, thin):
    arrays, form = arrays_and_form((kernel, model))
    return _compiled(key, x, arrays, form, burn_in, draws, thin)


@partial(jax.jit, static_argnums=(3, 4, 5, 6))
def _compiled(key, x, arrays, form, burn_in, draws, thin):
    kernel, model = together(arrays, form)
    fine = _fine(_seen(kernel, model), x)
    key_burn, keys = _keys(key, draws)
    state, _ = advance(key_burn, kernel, model, kernel.init(model, x), burn_in)
    _, kept, totals = _keep(keys, kernel, model, state, thin)
    return jnp.moveaxis(kept, 0, 1), totals, fine


@eqx.filter_jit
def _burn_piece(key, kernel, model, state, steps, first_block):
    return advance(key, kernel, model, state, steps, first_block=first_block)[0]


_keep_piece = eqx.filter_jit(_keep)


_init_piece = eqx.filter_jit(lambda kernel, model, x: kernel.init(model, x))


def _run_with_bar(key, kernel, model, x, burn_in, draws, thin):
    """The same chain as `_run`'s, cut into pieces between which the bar moves."""
    from rich.progress import Progress

    key_burn, keys = _keys(key, draws)
    state, fine = _init_piece(kernel, model, x), _fine(_seen(kernel, model), x)
    kept, totals = [], {}
    with Progress(transient=True) as bar:
        task = bar.add_task(f"{state.x.shape[0]} chains", total=burn_in + draws * thin)
        for block in range(-(-burn_in // _BLOCK)):
            steps = min(_BLOCK, burn_in - block * _BLOCK)
            state = jax.block_until_ready(_burn_piece(key_burn, kernel, model, state, steps, jnp.asarray(block)))
            bar.advance(task, steps)
        # equal pieces share one compilation
        length = max(1, draws // 50)
        for start in range(0, draws, length):
            piece = keys[start : start + length]
            state, x, now = jax.block_until_ready(_keep_piece(piece, kernel, model, state, thin))
            kept.append(jnp.moveaxis(x, 0, 1))
            totals = jax.tree.map(jnp.add, totals, now) if totals else now
            bar.advance(task, len(piece) * thin)
    return jnp.concatenate(kept, axis=1), totals, fine
