"""log Z by annealing: the time of one ladder compared with ebmkit, the effective samples per second with ferrotherm."""

import statistics
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.distributions import Normal

import thalweg as tw
from measure import Contestant, PeerMissing, Row, Settings, Worker, local, race, row
from thalweg.evaluate.finite_paths import path_on_sites
from thalweg.evaluate.paths import GaussianPath
from thalweg.evaluate.smc import MOST_RUNGS, Ladder, Path, travel

CHAINS, TEMPERATURES = 1000, 200
SIDE, COUPLING = 16, 0.3
VISIBLE, HIDDEN = 784, 16
LEAPFROG, STEP_SIZE, DIM, MODES, SPREAD = 5, 0.1, 8, 4, 4.0
POPULATION, STAGES, SWEEPS = 1000, 100, 4  # ferrotherm's defaults


def annealing(settings: Settings) -> Iterator[Row]:
    """Annealed importance sampling on evenly spaced temperatures, one move at each, without resampling.

    The move of ebmkit on discrete models is a step of Gibbs with gradients, which changes at most one site. Ours is
    compared with it twice: a Gibbs sweep, which draws all sites anew, and the same move. The exact log Z is known, and
    the errors are in the table.
    """
    chains, temperatures = (100, 20) if settings.quick else (CHAINS, TEMPERATURES)
    few = settings._replace(rounds=min(settings.rounds, 5))
    for model, (name, truth, path, kernels) in _models().items():
        contestants: dict[str, Contestant] = {}
        errors: dict[str, str] = {}
        for move, kernel in kernels.items():
            run = _along(kernel, path, chains, temperatures, 1, chains)
            contestants[move] = local(lambda run=run: run(jax.random.key(0)))
            errors[move] = f"{_log_z(run(jax.random.key(1)), path) - truth:+.2f}"
        case = {"model": model, "chains": chains, "temperatures": temperatures}
        missing = ""
        try:
            with Worker("log_z.py", "ebmkit") as worker:
                contestants["ebmkit"] = worker.contestant(**case)
                errors["ebmkit"] = f"{worker.ask(calls=1, **case)['log_z'] - truth:+.2f}"
                seconds = race(contestants, few, calls=1)
        except PeerMissing as reason:
            contestants.pop("ebmkit", None)
            seconds, missing = race(contestants, few, calls=1), str(reason)
        for place, move in enumerate(kernels):
            what = f"AIS of {name}, {chains:,} chains, {temperatures} temperatures, {move} at each"
            if missing:
                ours = statistics.median(seconds[move])
                yield Row(what, ours, None, None, sense="at least", against="ebmkit", note=missing)
                continue
            against = f"ebmkit; errors {errors[move]}, {errors['ebmkit']} nats"
            target = 10.0 if place == 0 else None
            yield row(what, seconds[move], seconds["ebmkit"], target, "at least", against=against)


def population(settings: Settings) -> Iterator[Row]:
    """Seconds times the variance of log Z over repeated runs: the time of an effective sample.

    Ours is sequential Monte Carlo with the population, the stages and the sweeps of ferrotherm's defaults, and for
    information a whole call of `tw.evaluate.log_z`, pilot runs and both directions included. Ferrotherm runs on one
    core, ours on all.
    """
    few = settings._replace(rounds=min(settings.rounds, 5))
    runs = 2 if settings.quick else 12
    size, stages = (100, 20) if settings.quick else (POPULATION, STAGES)
    for coupling in (0.3, 0.44):
        truth = tw.exact.onsager.kaufman_log_z((SIDE, SIDE), coupling)
        lattice = tw.energies.Ising(tw.energies.Grid((SIDE, SIDE), coupling))
        path = path_on_sites(lattice, None)
        run = _along(tw.samplers.Gibbs(), path, size, stages, SWEEPS, 1)
        values: dict[str, list[float]] = {"same ladder": [], "log_z": []}
        whole = lambda key, lattice=lattice: tw.evaluate.log_z(lattice, key=key, method="annealing").value
        contestants: dict[str, Contestant] = {
            "same ladder": _repeat(lambda key, run=run, path=path: _log_z(run(key), path), values["same ladder"]),
            "log_z": _repeat(whole, values["log_z"]),
        }
        case = {"side": SIDE, "beta": coupling, "population": size, "sweeps": SWEEPS, "stages": stages}
        missing = ""
        try:
            with Worker("log_z.py", "ferrotherm") as worker:
                contestants["ferrotherm"] = worker.contestant(**case)
                seconds = race(contestants, few, calls=runs)
                values["ferrotherm"] = worker.ask(calls=1, **case)["values"]
        except PeerMissing as reason:
            contestants.pop("ferrotherm", None)
            seconds, missing = race(contestants, few, calls=runs), str(reason)
        cost = {who: [each * float(np.var(values[who], ddof=1)) for each in seconds[who]] for who in seconds}
        names = {
            "same ladder": (f"SMC, {size:,} chains, {stages} stages of {SWEEPS} sweeps", 2.0),
            "log_z": ("tw.evaluate.log_z, both directions and pilot runs", None),
        }
        for who, (how, target) in names.items():
            what = f"effective sample of log Z, Ising {SIDE}×{SIDE} at β = {coupling}: {how}"
            if missing:
                ours = statistics.median(cost[who])
                yield Row(what, ours, None, None, sense="at least", against="ferrotherm", note=missing)
                continue
            errors = ", ".join(_error(values[each], truth) for each in (who, "ferrotherm"))
            against = f"ferrotherm's population annealing; errors of the means {errors} nats"
            yield row(what, cost[who], cost["ferrotherm"], target, "at least", against=against)


def _along(kernel: Any, path: Path, chains: int, temperatures: int, moves: int, groups: int) -> Any:
    """A run of chains along evenly spaced temperatures, as a compiled function of a key."""
    betas = jnp.ones(MOST_RUNGS + 1).at[: temperatures + 1].set(jnp.linspace(0, 1, temperatures + 1))
    sizes = jnp.full(MOST_RUNGS + 1, STEP_SIZE)
    ladder = Ladder(betas, sizes, jnp.full(MOST_RUNGS + 1, moves), jnp.asarray(temperatures))

    @eqx.filter_jit
    def run(path, key):
        key_draw, key_run = jax.random.split(key)
        draws = path.draw(key_draw, chains)
        passed = travel(kernel, path, ladder, key_run, draws, groups, jnp.asarray(False), jnp.asarray(0))
        return passed.log_ratio

    return lambda key: run(path, key)


def _log_z(log_ratio: jax.Array, path: Path) -> float:
    return float(path.log_z_base + jax.nn.logsumexp(log_ratio) - jnp.log(len(log_ratio)))


def _repeat(function: Any, values: list[float]) -> Contestant:
    """Every call has a new key, and its value is kept."""
    return local(lambda: values.append(function(jax.random.key(len(values)))))


def _error(values: list[float], truth: float) -> str:
    return f"{np.mean(values) - truth:+.4f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.4f}"


def _models() -> dict[str, tuple[str, float, Path, dict[str, Any]]]:
    """The name, the exact log Z, the path and the moves of every model; the other side draws them by the same seeds."""
    moves = {"a Gibbs sweep": tw.samplers.Gibbs(), "one flip": tw.samplers.GibbsWithGradients()}
    lattice = tw.energies.Ising(tw.energies.Grid((SIDE, SIDE), COUPLING))
    weights = 0.05 * np.random.default_rng(0).normal(size=(VISIBLE, HIDDEN))
    rbm = tw.energies.RBM(VISIBLE, HIDDEN, jnp.asarray(weights))
    means = 2 * np.random.default_rng(1).normal(size=(MODES, DIM))
    mixture = tw.energies.GaussianMixture(means=jnp.asarray(means))
    wide = GaussianPath(mixture, Normal(jnp.zeros(DIM), SPREAD))  # pyright: ignore[reportCallIssue]
    exact = tw.exact.onsager.kaufman_log_z((SIDE, SIDE), COUPLING)
    return {
        "ising": (f"Ising, {SIDE}×{SIDE}", exact, path_on_sites(lattice, None), moves),
        "rbm": (f"RBM, {VISIBLE}×{HIDDEN}", float(rbm.log_z), path_on_sites(rbm, None), moves),
        "mixture": (
            f"{MODES} Gaussians in {DIM} dimensions",
            float(mixture.log_z),
            wide,
            {"a step of HMC": tw.samplers.HMC(STEP_SIZE, LEAPFROG)},
        ),
    }
