"""Chains on the double well, compared with a loop written by hand and with PyTorch libraries."""

import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

import thalweg as tw
from measure import PeerMissing, Row, Settings, Worker, local, race, row

BARRIER = 2.0
TAU = 0.01  # Langevin's step size, τ
EPSILON = 0.1  # the leapfrog step
LEAPFROG = 10
PEERS = ("torchebm", "ebmkit")
# chains: how many times faster than a peer
SPEED = {1: 100.0, 100: 30.0, 10_000: 4.0}


@partial(jax.jit, static_argnames=("steps", "keep"))
def by_hand(x: Array, key: Array, tau: Array, *, steps: int, keep: bool) -> Array:
    """The shortest code for this one chain."""

    def energy(x):
        return BARRIER * jnp.sum((x**2 - 1.0) ** 2)

    def step(x, key):
        x = x - 0.5 * tau * jax.grad(energy)(x) + jnp.sqrt(tau) * jax.random.normal(key, x.shape)
        return x, x if keep else None

    x, draws = lax.scan(step, x, jax.random.split(key, steps))
    return jnp.moveaxis(draws, 0, 1) if keep else x


def overhead(settings: Settings) -> Iterator[Row]:
    """`tw.sample` compared with `by_hand`: the overhead of the library."""
    energy = tw.energies.DoubleWell(barrier=BARRIER, dim=2)
    kernel = tw.samplers.Langevin(TAU)
    tau = jnp.asarray(TAU)
    for chains, steps in ((1, 50_000), (100, 500), (10_000, 500)):
        key = jax.random.key(0)
        init = jax.random.normal(jax.random.key(1), (chains, 2))
        for keep in (False, True):
            draws, burn_in = (steps, 0) if keep else (1, steps - 1)

            def ours(init=init, key=key, draws=draws, burn_in=burn_in):
                return tw.sample(energy, kernel, init, key=key, draws=draws, burn_in=burn_in).draws

            def theirs(init=init, key=key, steps=steps, keep=keep):
                return by_hand(init, key, tau, steps=steps, keep=keep)

            if chains >= 10_000:
                _same_work(_second_moment(ours()), _second_moment(theirs()))
            seconds = race({"ours": local(ours), "theirs": local(theirs)}, settings)
            kept = "all draws" if keep else "last draw"
            yield row(
                f"Langevin, {_count(chains)} × {steps:,} steps, {kept}",
                seconds["ours"],
                seconds["theirs"],
                1.05,
                against="hand-written scan",
            )


def peers(settings: Settings) -> Iterator[Row]:
    """`tw.sample` compared with torchebm and ebmkit, each with its own defaults.

    All libraries differentiate the energy automatically. torchebm also takes a gradient written by hand, which is more
    work for its user: those lines are for information only.
    """
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        missing: dict[str, str] = {}
        for peer in PEERS:
            try:
                workers[peer] = stack.enter_context(Worker("double_well.py", peer))
            except PeerMissing as reason:
                missing[peer] = str(reason)
        for sampler, steps in (("langevin", 500), ("hmc", 100)):
            for chains, target in SPEED.items():
                yield from _against_peers(sampler, chains, steps, target, workers, missing, settings)


def _against_peers(
    sampler: str,
    chains: int,
    steps: int,
    target: float,
    workers: dict[str, Worker],
    missing: dict[str, str],
    settings: Settings,
) -> Iterator[Row]:
    energy = tw.energies.DoubleWell(barrier=BARRIER, dim=2)
    init = jax.random.normal(jax.random.key(1), (chains, 2))
    if sampler == "langevin":
        # only the last state, which is what the peers return unasked
        kernel, draws, burn_in, label = tw.samplers.Langevin(TAU), 1, steps - 1, f"Langevin, {steps} steps"
    else:
        kernel, draws, burn_in, label = tw.samplers.HMC(EPSILON, LEAPFROG), steps, 0, f"HMC, {steps} draws"
    name = f"{label}, {_count(chains)}"

    def ours():
        return tw.sample(energy, kernel, init, key=jax.random.key(0), draws=draws, burn_in=burn_in).draws

    cases = {}
    for peer in workers:
        for gradient in ("automatic", "by hand") if peer == "torchebm" else ("automatic",):
            cases[peer, gradient] = {
                "sampler": sampler,
                "chains": chains,
                "steps": steps,
                "tau": TAU,
                "epsilon": EPSILON,
                "leapfrog": LEAPFROG,
                "gradient": gradient,
            }
    if chains >= 10_000:
        last = _second_moment(ours()[:, -1])
        for (peer, _), case in cases.items():
            _same_work(last, workers[peer].ask(calls=1, **case)["second_moment"])
    contestants = {(peer, gradient): workers[peer].contestant(**case) for (peer, gradient), case in cases.items()}
    seconds = race({"ours": local(ours), **contestants}, settings)
    for peer, gradient in contestants:
        yield row(
            name,
            seconds["ours"],
            seconds[peer, gradient],
            target if gradient == "automatic" else None,
            "at least",
            against=peer if gradient == "automatic" else f"{peer}, gradient {gradient}",
        )
    for peer, reason in missing.items():
        yield Row(name, statistics.median(seconds["ours"]), None, target, sense="at least", against=peer, note=reason)


def _second_moment(x: Array) -> float:
    return float(jnp.mean(x**2))


def _same_work(ours: float, theirs: float) -> None:
    """Check that two samplers whose times are compared draw from the same distribution.

    With 20,000 coordinates of variance below one the standard error of the difference is under 0.01.
    """
    if abs(ours - theirs) > 0.05:
        raise ValueError(
            f"expected both contestants to sample alike, got mean x² of {ours:.3f} and {theirs:.3f}; "
            "compare their updates before their times"
        )


def _count(chains: int) -> str:
    return "1 chain" if chains == 1 else f"{chains:,} chains"
