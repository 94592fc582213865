"""Twelve posteriors with warm-up: Thalweg, blackjax and NumPyro from the same starts, in turns.

    python benchmarks/posteriors.py [--only NAME] [--seeds 3] [--library NAME] [--json FILE]

Four chains start as in Stan, uniformly on (-2, 2) in every real coordinate. All libraries use the same starts and
sample the same function of real coordinates, with 1000 warm-up steps (Thalweg: its own default) and 1000 draws. A
library runs once to compile; then every seed is timed, warm-up included. Effective sizes are bulk effective sample
sizes (Vehtari et al. 2021) by one estimator for all, of the reference quantity with the smallest one.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import blackjax
import blackjax.adaptation.base
import blackjax.diagnostics
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import thalweg as tw
from measure import ROOT, PeerMissing, Worker, machine

sys.path.insert(0, str(ROOT))

from tests.posteriors.models import NAMES, REFERENCE_DRAWS, Posterior, posterior

WARM_UP, DRAWS, CHAINS = 1000, 1000, 4
# a chain counts as lost if its mean of any quantity is off by this many standard deviations of the posterior
LOST = 1.0

# ``run(seed, starts) -> (seconds, draws)`` with draws of the real coordinates, ``(chains, draws, d)``
Run = Callable[[int, np.ndarray], tuple[float, Any]]


class Verdict(NamedTuple):
    """The quality of the draws: the smallest effective size, the error of the moments, and which chains are lost."""

    effective: float
    mean_error: float  # the largest of all quantities, in combined standard errors
    sd_error: float
    r_hat: float
    lost: tuple[int, ...]


def timed(function: Callable[[Array, Array], Array]) -> Run:
    """A function ``(key, starts) -> draws`` with a clock around it."""

    def run(seed, starts):
        key, first = jax.random.key(seed), jnp.asarray(starts, float)
        began = time.perf_counter()
        draws = jax.block_until_ready(function(key, first))
        return time.perf_counter() - began, draws

    return run


def thalweg_run(target: Posterior) -> Run:
    energy = tw.as_energy(target.energy_on_reals, space=tw.Real(target.space.dimension))

    def function(key, starts):
        key_warm, key_sample = jax.random.split(key)
        warm = tw.samplers.warm_up(energy, tw.samplers.NUTS(1.0), starts, key=key_warm)
        return tw.sample(energy, warm.kernel, warm.state, key=key_sample, draws=DRAWS).draws

    return timed(function)


def blackjax_run(target: Posterior) -> Run:
    """Window adaptation and NUTS as in blackjax's documentation, for one chain and vmapped."""

    def log_density(z):
        return -target.energy_on_reals(z)

    adaptation = blackjax.window_adaptation(
        blackjax.nuts, log_density, adaptation_info_fn=blackjax.adaptation.base.get_filter_adapt_info_fn()
    )

    def one(key, start):
        key_warm, key_sample = jax.random.split(key)
        (state, parameters), _ = adaptation.run(key_warm, start, num_steps=WARM_UP)
        algorithm = blackjax.nuts(log_density, **parameters)

        def step(state, key):
            state, _ = algorithm.step(key, state)
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(key_sample, DRAWS))[1]

    return timed(jax.jit(lambda key, starts: jax.vmap(one)(jax.random.split(key, len(starts)), starts)))


def numpyro_run(worker: Worker, method: str = "vectorized") -> Callable[[Posterior], Run]:
    def build(target):
        def run(seed, starts):
            case = {"name": target.name, "warm_up": WARM_UP, "draws": DRAWS, "method": method}
            answer = worker.ask(start=starts.tolist(), seed=seed, **case)
            return answer["seconds"], jnp.asarray(np.load(answer["draws"]))

        return run

    return build


@jax.jit
def _statistics(values: Array) -> dict[str, Array]:
    """Effective sizes of ``(chains, draws, q)``: of the ranks, the values, and their squares about the mean."""
    squares = (values - jnp.mean(values, axis=(0, 1))) ** 2
    return {
        "bulk": blackjax.diagnostics.ess_bulk(values),
        "mean": blackjax.diagnostics.effective_sample_size(values),
        "square": blackjax.diagnostics.effective_sample_size(squares),
        "r_hat": blackjax.diagnostics.rhat(values),
    }


def assess(target: Posterior, draws: Array) -> Verdict:
    """Compare draws of the real coordinates ``(chains, draws, d)`` with the reference moments."""
    values = np.asarray(jax.jit(jax.vmap(jax.vmap(target.summary_on_reals)))(draws), np.float64)
    mean, sd = (np.array([getattr(moments, name) for moments in target.reference.values()]) for name in ("mean", "sd"))
    # in units of the reference, so that float32 keeps the digits in the estimators
    values = (values - mean) / sd
    off = ~(np.max(np.abs(np.mean(values, axis=1)), axis=1) <= LOST)
    size = {name: np.asarray(each, np.float64) for name, each in _statistics(jnp.asarray(values, float)).items()}
    means, variances = np.mean(values, axis=(0, 1)), np.var(values, axis=(0, 1))
    fourth = np.mean((values - means) ** 4, axis=(0, 1)) - variances**2
    mean_error = np.abs(means) / np.sqrt(variances / size["mean"] + 1 / REFERENCE_DRAWS)
    # Var(sd) = Var((x - mean)²) / 4 sd² / n, for the reference with its own n
    sd_error = np.abs(np.sqrt(variances) - 1) / np.sqrt(
        fourth / 4 / variances * (1 / size["square"] + 1 / REFERENCE_DRAWS)
    )
    return Verdict(
        effective=float(np.min(np.nan_to_num(size["bulk"]))),
        mean_error=float(np.max(mean_error)),
        sd_error=float(np.max(sd_error)),
        r_hat=float(np.max(size["r_hat"])),
        lost=tuple(np.flatnonzero(off).tolist()),
    )


def compare(target: Posterior, builders: dict[str, Callable[[Posterior], Run]], seeds: range) -> list[dict[str, Any]]:
    """One record for each library and seed; libraries run in turns, in reversed order at every other seed."""
    runs = {name: build(target) for name, build in builders.items()}
    for run in runs.values():
        run(1000, target.starts(1000, CHAINS))  # compiles
    records = []
    order = list(runs)
    for seed in seeds:
        starts = target.starts(seed, CHAINS)
        for name in order:
            seconds, draws = runs[name](seed, starts)
            verdict = assess(target, draws)
            speed = verdict.effective / seconds
            records.append(
                {"posterior": target.name, "library": name, "seed": seed, "seconds": seconds, "speed": speed}
                | verdict._asdict()
            )
        order.reverse()
    return records


def report(records: list[dict[str, Any]]) -> None:
    """Print one line for each posterior and library: medians over the seeds, the largest error, and all lost chains."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["posterior"], record["library"]), []).append(record)
    for (name, library), group in groups.items():
        middle = {key: statistics.median(record[key] for record in group) for key in ("speed", "effective", "seconds")}
        worst = {key: max(record[key] for record in group) for key in ("mean_error", "sd_error", "r_hat")}
        lost = sum(len(record["lost"]) for record in group)
        print(
            f"{name:27} {library:10} {middle['speed']:9.1f} ESS/s {middle['effective']:7.0f} ESS "
            f"{middle['seconds']:8.3f} s  mean {worst['mean_error']:6.2f} se  sd {worst['sd_error']:6.2f} se  "
            f"R-hat {worst['r_hat']:6.3f}  lost {lost}/{CHAINS * len(group)}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Times warm-up and NUTS on twelve posteriors against peers.")
    parser.add_argument("--only", metavar="NAME", action="append", help="a posterior, or part of its name")
    parser.add_argument("--library", metavar="NAME", action="append", help="thalweg, blackjax or numpyro; all if none")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every run here")
    options = parser.parse_args()
    print("  ".join(f"{name} {value}" for name, value in machine().items()))
    records = []
    with TemporaryDirectory() as folder:
        builders: dict[str, Callable[[Posterior], Run]] = {"thalweg": thalweg_run, "blackjax": blackjax_run}
        try:
            builders["numpyro"] = numpyro_run(Worker("posteriors.py", folder))
        except PeerMissing as reason:
            print(f"without NumPyro: {reason}")
        builders = {name: builders[name] for name in builders if name in (options.library or builders)}
        for name in NAMES:
            if any(part in name for part in options.only or [""]):
                found = compare(posterior(name), builders, range(options.seeds))
                report(found)
                records += found
                if options.json is not None:
                    options.json.write_text(json.dumps(records, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
