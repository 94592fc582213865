"""The chain loop: every chain in the library runs through `advance`, and users meet it as `sample`."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import Energy, Info, Kernel, ScoreNetwork, State, as_model
from thalweg.samplers.diagnostics import Summary, summarise
from thalweg.spaces import Continuous


class Chains(eqx.Module):
    """What `sample` returns.

    ``draws`` is ``(chains, draws, *event)``; ``stats`` holds what the kernel told, per chain over the kept part of the
    run: ``acceptance`` (mean), ``gradient_norm`` (mean), ``divergences`` (count), each where the kernel has it.
    """

    draws: Array
    stats: dict[str, Array]

    def energies(self, energy: Callable[[Array], Array]) -> Array:
        """The energy trace, ``(chains, draws)``."""
        return _energies(as_model(energy), self.draws)

    def summary(self) -> Summary:
        """Mean, deviation, Monte Carlo error, effective sample sizes and R-hat per coordinate, and a verdict in words."""
        return summarise(self.draws, self.stats)

    def to_arviz(self) -> Any:
        """The draws as an arviz object with one variable ``x``; needs the extra ``arviz``."""
        try:
            import arviz
        except ImportError as missing:
            raise ValueError(
                "expected arviz to be installed for to_arviz, and it is not; install it with `pip install thalweg[arviz]`"
            ) from missing
        return arviz.from_dict({"posterior": {"x": np.asarray(self.draws)}})


@eqx.filter_jit
def _energies(energy: Any, draws: Array) -> Array:
    return jax.vmap(jax.vmap(energy))(draws)


def advance(
    key: PRNGKeyArray,
    kernel: Kernel,
    energy: Any,
    state: State,
    steps: int | Array,
    measure: Callable[[Info], PyTree] = lambda info: None,
    start: int | Array = 0,
) -> tuple[State, PyTree]:
    """``steps`` steps of ``kernel``, and the sum over them of ``measure(info)``.

    Step number ``i`` uses the key ``fold_in(key, start + i)``, so a chain cut into pieces is the same chain.
    """

    def one(i, carry):
        state, total = carry
        state, info = kernel.step(jax.random.fold_in(key, start + i), energy, state)
        return state, jax.tree.map(jnp.add, total, measure(info))

    def zero_measure(state):
        return jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
            jax.eval_shape(lambda s: measure(kernel.step(key, energy, s)[1]), state),
        )

    return jax.lax.fori_loop(0, steps, one, (state, zero_measure(state)))


def told(info: Info) -> dict[str, Array]:
    """What is summed along a chain: acceptance, divergences and gradient norms, each where the kernel has them."""
    measured = {
        "acceptance": info.acceptance,
        "gradient_norm": info.gradient_norm,
        "divergences": None if info.divergent is None else info.divergent.astype(jnp.int32),
    }
    return {name: value for name, value in measured.items() if value is not None}


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
            raise ValueError(f"expected {name} to be a whole number >= {least}, got {value!r}; give for example {least}")
    model = as_model(energy)
    x = _check_init(model, init)
    if progress:
        kept, totals, fine = _run_with_bar(model, kernel, x, key, int(draws), int(burn_in), int(thin))
    else:
        kept, totals, fine = _run(key, kernel, model, x, jnp.asarray(burn_in), int(draws), int(thin))
    _check_start(np.asarray(fine), x, model)
    return Chains(kept, averaged(totals, draws * thin))


def _check_init(model: Energy | ScoreNetwork, init: Array) -> Array:
    x = jnp.asarray(init)
    space = model.space
    if x.ndim == 0:
        raise ValueError("expected init of shape (chains, *event), got a scalar; add a leading axis of chains: init[None]")
    if x.shape[0] == 0:
        raise ValueError("expected at least one chain in init, got none; give an array of shape (chains, *event)")
    if space is not None and x.shape[1:] != space.shape:
        raise ValueError(
            f"expected init of shape (chains, {', '.join(map(str, space.shape))}), got {x.shape}; "
            "the leading axis is the chains, the others are one point's"
        )
    if isinstance(space, Continuous) and not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(f"expected floating-point numbers in init, got {x.dtype}; convert with init.astype(float)")
    return x


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
            raise ValueError(f"expected a score of the point's shape {x.shape[1:]}, got {shape}; return an array like x")
    elif shape != ():
        raise ValueError(
            f"expected an energy to return a scalar for one point of shape {x.shape[1:]}, got shape {shape}; "
            "sum over the point's coordinates (batching is done for you)"
        )


def _fine(model: Any, x: Array) -> Array:
    return jax.vmap(lambda point: jnp.all(jnp.isfinite(model(point))))(x)


def _keep(key, kernel, model, state, start, draws, thin):
    """``draws`` draws from ``state`` on, the leading axis of the result being the draws."""

    def one(carry, i):
        state, total = carry
        state, told_now = advance(key, kernel, model, state, thin, told, start + i * thin)
        return (state, jax.tree.map(jnp.add, total, told_now)), state.x

    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(
        lambda: advance(key, kernel, model, state, 1, told)[1]))
    (state, totals), kept = jax.lax.scan(one, (state, zero), jnp.arange(draws))
    return state, kept, totals


@eqx.filter_jit
def _run(key, kernel, model, x, burn_in, draws, thin):
    check_scalar(model, x)
    fine = _fine(model, x)

    def go():
        state, _ = advance(key, kernel, model, kernel.init(model, x), burn_in)
        _, kept, totals = _keep(key, kernel, model, state, burn_in, draws, thin)
        return jnp.moveaxis(kept, 0, 1), totals

    # a start without a finite energy is said at once, not after the whole run
    kept, totals = jax.lax.cond(
        jnp.all(fine), go, lambda: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(go))
    )
    return kept, totals, fine


@eqx.filter_jit
def _start(kernel, model, x):
    check_scalar(model, x)
    return kernel.init(model, x), _fine(model, x)


_burn_piece = eqx.filter_jit(lambda key, kernel, model, state, steps, start: advance(key, kernel, model, state, steps, start=start)[0])
_keep_piece = eqx.filter_jit(_keep)


def _run_with_bar(model, kernel, x, key, draws, burn_in, thin):
    from rich.progress import Progress

    state, fine = _start(kernel, model, x)
    if not np.asarray(fine).all():
        return None, {}, fine
    pieces, totals = [], None
    with Progress(transient=True) as bar:
        task = bar.add_task(f"{x.shape[0]} chains", total=burn_in + draws * thin)
        for start, steps in _pieces(burn_in):
            state = jax.block_until_ready(_burn_piece(key, kernel, model, state, jnp.asarray(steps), jnp.asarray(start)))
            bar.advance(task, steps)
        for start, count in _pieces(draws):
            state, kept, told_now = jax.block_until_ready(
                _keep_piece(key, kernel, model, state, jnp.asarray(burn_in + start * thin), count, thin)
            )
            pieces.append(jnp.moveaxis(kept, 0, 1))
            totals = told_now if totals is None else jax.tree.map(jnp.add, totals, told_now)
            bar.advance(task, count * thin)
    return jnp.concatenate(pieces, axis=1), totals, fine


def _pieces(total: int, most: int = 50) -> list[tuple[int, int]]:
    """``(start, length)`` of at most ``most`` + 1 pieces, all but the last equally long so they share a compilation."""
    length = max(1, total // most)
    return [(start, min(length, total - start)) for start in range(0, total, length)]
