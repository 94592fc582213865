"""Effective draws per second of the worst coordinate, compared with blackjax called directly and with ebmkit.

All libraries run the same kernel with the same settings, starts, chains and draws. Effective sizes are bulk effective
sample sizes (Vehtari et al. 2021) by blackjax's estimator, of the worst coordinate. The times in a row are seconds per
1000 effective draws, so a ratio of times is a ratio of effective draws per second.
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

# four chains are the usual number for effective sample sizes and R-hat
CHAINS = 4
LEAPFROG, DOUBLINGS = 10, 8
SAME, FASTER = 0.95, 50.0


class Target(NamedTuple):
    """An energy, suitable step sizes of HMC, NUTS and MALA (τ), and the number of draws."""

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
    # with Neal's standard deviation of 3 the effective size of chains of this length cannot be estimated
    "funnel, 10-d, deviation 1": Target(tw.energies.Funnel(10, 1.0), 0.3, 0.4, 0.3, DRAWS),
    # standard deviations so similar that no coordinate comes full circle in the ten leapfrog steps of HMC
    "Gaussian, 100-d, deviations 0.5 to 1": Target(
        tw.energies.Gaussian(jnp.zeros(100), jnp.linspace(0.5, 1.0, 100) ** 2), 0.12, 0.3, 0.12, FEWER
    ),
    "Gaussian, 100-d, correlated": Target(_correlated(), 0.2, 0.4, 0.15, FEWER),
}
# on the last target the matrix products take nearly all the time, and PyTorch's are no slower than ours
INFORMATION = ("Gaussian, 100-d, correlated",)
Run = Callable[[Array], Array]


def effective(settings: Settings) -> Iterator[Row]:
    """Every kernel on every target, compared with the faster way to run blackjax, then with ebmkit."""
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
    seconds = race({name: _record_sizes(run, sizes[name]) for name, run in runs.items()}, settings, calls=1)
    cost = {name: _per_thousand(seconds[name], sizes[name]) for name in runs}
    _check_sizes(sizes, settings)
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
        "ours": _record_sizes(_ours(target, kernel, init, draws), sizes["ours"]),
        "ebmkit": _ask_ebmkit(worker, case, sizes["ebmkit"]),
    }
    few = settings._replace(rounds=min(settings.rounds, 3))
    seconds = race(contestants, few, calls=1)
    _check_sizes(sizes, settings)
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
    """The loops of blackjax's documentation: a loop for one chain, vmapped, or one loop over the steps of all chains.

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


def _record_sizes(run: Run, sizes: list[float]) -> Contestant:
    """A contestant that uses a new key at every call; estimating the effective size is not timed."""

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


def _ask_ebmkit(worker: Worker, case: dict[str, Any], sizes: list[float]) -> Contestant:
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
    """Seconds per 1000 effective draws in every round, with one effective size for all rounds, as its estimate is
    noisy.

    The first calls, which compile, have their sizes too.
    """
    return [1000 * each / statistics.median(sizes) for each in seconds]


def _check_sizes(sizes: dict[str, list[float]], settings: Settings) -> None:
    """Check that both libraries have about the same effective size, as the same kernel must."""
    medians = {name: statistics.median(each) for name, each in sizes.items()}
    if not settings.quick and max(medians.values()) > 1.5 * min(medians.values()):
        raise ValueError(f"expected one kernel to have one effective size, got {medians}; compare their settings")
