"""Effective draws a second: the worst coordinate's, against blackjax called directly and against ebmkit.

All sides run the same kernel with the same settings from the same starts, for as many chains and draws. Effective
sizes are bulk ones (Vehtari et al. 2021) by one estimator, blackjax's, and that of the worst coordinate counts. A row's
times are seconds per 1000 effective draws, so that a ratio of times is one of effective draws a second.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import blackjax
import blackjax.diagnostics
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import thalweg as tw
from measure import Contestant, PeerMissing, Row, Settings, Worker, race, row

# four chains are what people run who want effective draws and a verdict on mixing
CHAINS = 4
LEAPFROG, DOUBLINGS = 10, 8
SAME, FASTER = 0.95, 50.0


class Target(NamedTuple):
    """An energy, the step sizes that suit it (of HMC, NUTS and MALA, whose is τ), and how many draws to make."""

    energy: tw.core.Energy
    hmc: float
    nuts: float
    mala: float
    draws: dict[str, int]


def _correlated() -> tw.core.Energy:
    """A Gaussian in 100 dimensions with correlations ``0.5^|i-j|``."""
    apart = np.abs(np.subtract.outer(np.arange(100), np.arange(100)))
    return tw.energies.Gaussian(jnp.zeros(100), jnp.asarray(0.5**apart))


DRAWS = {"HMC": 5000, "NUTS": 2000, "MALA": 50_000}
PEER_DRAWS = {"HMC": 1000, "NUTS": 200}
FEWER = {name: count // 5 for name, count in DRAWS.items()}
TARGETS = {
    "banana": Target(tw.energies.Banana(0.25, 2.0), 0.3, 0.4, 1.0, DRAWS),
    # of Neal's deviation of 3 no chain of this length has an effective size that could be told
    "funnel, 10-d, deviation 1": Target(tw.energies.Funnel(10, 1.0), 0.3, 0.4, 0.3, DRAWS),
    # deviations so near each other that no coordinate comes full circle in the ten steps of HMC
    "Gaussian, 100-d, deviations 0.5 to 1": Target(
        tw.energies.Gaussian(jnp.zeros(100), jnp.linspace(0.5, 1.0, 100) ** 2), 0.12, 0.3, 0.12, FEWER
    ),
    "Gaussian, 100-d, correlated": Target(_correlated(), 0.2, 0.4, 0.15, FEWER),
}
# on the last the products with its matrix take nearly all the time, and PyTorch's are no slower than ours
INFORMATION = ("Gaussian, 100-d, correlated",)
Run = Callable[[Array], Array]


def effective(settings: Settings) -> Iterator[Row]:
    """Every kernel on every target, against blackjax in its faster form, then against ebmkit."""
    for name, target in TARGETS.items():
        for kernel in ("HMC", "NUTS", "MALA"):
            draws = target.draws[kernel] // (20 if settings.quick else 1)
            yield from _against_blackjax(name, target, kernel, draws, settings)
    # its draws take up to a thousand times as long, so there are fewer of them; ours are then as few
    with TemporaryDirectory() as folder:
        try:
            with Worker("targets.py", folder) as worker:
                for name, target in TARGETS.items():
                    for kernel in ("HMC", "NUTS"):
                        draws = PEER_DRAWS[kernel] // (10 if settings.quick else 1)
                        yield from _against_ebmkit(name, target, kernel, draws, settings, worker)
        except PeerMissing as reason:
            yield Row("effective draws", None, None, FASTER, sense="at least", against="ebmkit", note=str(reason))


def _against_blackjax(name: str, target: Target, kernel: str, draws: int, settings: Settings) -> Iterator[Row]:
    init = target.energy.sample(jax.random.key(1), (CHAINS,))  # pyright: ignore[reportAttributeAccessIssue]
    runs: dict[str, Run] = {"ours": _ours(target, kernel, init, draws)}
    for form in ("vmap of scan", "scan of vmap"):
        runs[form] = _direct(_algorithm(target, kernel), init, draws, form)
    sizes: dict[str, list[float]] = {name: [] for name in runs}
    seconds = race({name: _noting(run, sizes[name]) for name, run in runs.items()}, settings, calls=1)
    cost = {name: _per_thousand(seconds[name], sizes[name]) for name in runs}
    _alike(sizes, settings)
    faster = min(("vmap of scan", "scan of vmap"), key=lambda form: statistics.median(cost[form]))
    against = f"blackjax, {faster}"
    what = f"{kernel} on the {name}, {CHAINS} chains × {draws:,}, per 1000 effective draws"
    yield row(what, cost["ours"], cost[faster], SAME, "at least", against=against)


def _against_ebmkit(
    name: str, target: Target, kernel: str, draws: int, settings: Settings, worker: Worker
) -> Iterator[Row]:
    init = target.energy.sample(jax.random.key(1), (CHAINS,))  # pyright: ignore[reportAttributeAccessIssue]
    case = {"target": name, "kernel": kernel, "start": np.asarray(init).tolist(), "draws": draws}
    case |= {"step_size": getattr(target, kernel.lower()), "leapfrog": LEAPFROG, "doublings": DOUBLINGS}
    sizes: dict[str, list[float]] = {"ours": [], "ebmkit": []}
    contestants = {
        "ours": _noting(_ours(target, kernel, init, draws), sizes["ours"]),
        "ebmkit": _asking(worker, case, sizes["ebmkit"]),
    }
    few = settings._replace(rounds=min(settings.rounds, 3))
    seconds = race(contestants, few, calls=1)
    _alike(sizes, settings)
    cost = {side: _per_thousand(seconds[side], sizes[side]) for side in contestants}
    what = f"{kernel} on the {name}, {CHAINS} chains × {draws:,}, per 1000 effective draws"
    aim = None if name in INFORMATION else FASTER
    yield row(what, cost["ours"], cost["ebmkit"], aim, "at least", against="ebmkit")


def _ours(target: Target, kernel: str, init: Array, draws: int) -> Run:
    ours = {
        "HMC": tw.samplers.HMC(target.hmc, LEAPFROG),
        "NUTS": tw.samplers.NUTS(target.nuts, max_doublings=DOUBLINGS),
        "MALA": tw.samplers.MALA(target.mala),
    }[kernel]
    return lambda key: tw.sample(target.energy, ours, init, key=key, draws=draws).draws


def _algorithm(target: Target, kernel: str) -> Any:
    log_density, unit = (lambda x: -target.energy(x)), jnp.ones(target.energy.space.shape)  # pyright: ignore
    if kernel == "HMC":
        return blackjax.hmc(log_density, target.hmc, unit, LEAPFROG)
    if kernel == "NUTS":
        return blackjax.nuts(log_density, target.nuts, unit, max_num_doublings=DOUBLINGS)
    return blackjax.mala(log_density, target.mala / 2)  # whose step size is τ/2


def _direct(algorithm: Any, init: Array, draws: int, form: str) -> Run:
    """The loops of blackjax's documentation: one chain's, vmapped, or one over the steps of all chains.

    As in ours, and in those loops, every step's acceptance and divergence are kept with its position.
    """

    def kept(state, info):
        return state.position, info.acceptance_rate, getattr(info, "is_divergent", None)

    def one_chain(key, x):
        def step(state, key):
            state, info = algorithm.step(key, state)
            return state, kept(state, info)

        return lax.scan(step, algorithm.init(x), jax.random.split(key, draws))[1]

    def all_chains(key, x):
        def step(states, key):
            states, infos = jax.vmap(algorithm.step)(jax.random.split(key, CHAINS), states)
            return states, kept(states, infos)

        positions, *rest = lax.scan(step, jax.vmap(algorithm.init)(x), jax.random.split(key, draws))[1]
        return jnp.moveaxis(positions, 0, 1), *rest

    def apart(key, x):
        return jax.vmap(one_chain)(jax.random.split(key, CHAINS), x)

    compiled = jax.jit(apart if form == "vmap of scan" else all_chains)
    return lambda key: compiled(key, init)[0]


def _noting(run: Run, sizes: list[float]) -> Contestant:
    """A contestant that draws with another key at every call; the clock stands still while a size is estimated."""

    def contestant(calls: int) -> float:
        seconds = 0.0
        for _ in range(calls):
            key = jax.random.key(len(sizes))
            start = time.perf_counter()
            draws = jax.block_until_ready(run(key))
            seconds += time.perf_counter() - start
            sizes.append(smallest(draws))
        return seconds

    return contestant


def _asking(worker: Worker, case: dict[str, Any], sizes: list[float]) -> Contestant:
    def contestant(calls: int) -> float:
        answer = worker.ask(calls=calls, **case)
        # (draws + 1, chains, d), the start first
        sizes.append(smallest(jnp.moveaxis(jnp.asarray(np.load(answer["draws"])[1:]), 0, 1)))
        return answer["seconds"]

    return contestant


@jax.jit
def _sizes(draws: Array) -> Array:
    return blackjax.diagnostics.ess_bulk(draws)


def smallest(draws: Array) -> float:
    """The effective size of the worst coordinate of ``(chains, draws, d)``."""
    return float(jnp.min(_sizes(draws)))


def _per_thousand(seconds: list[float], sizes: list[float]) -> list[float]:
    """Every round's seconds per 1000 effective draws, by one size for all rounds: its estimate is noisier than a clock.

    The first calls, which compile, have their sizes too.
    """
    return [1000 * each / statistics.median(sizes) for each in seconds]


def _alike(sizes: dict[str, list[float]], settings: Settings) -> None:
    """The same kernel must have the same effective size, or the sides do not run the same."""
    medians = {name: statistics.median(each) for name, each in sizes.items()}
    if not settings.quick and max(medians.values()) > 1.5 * min(medians.values()):
        raise ValueError(f"expected one kernel to have one effective size, got {medians}; compare their settings")
