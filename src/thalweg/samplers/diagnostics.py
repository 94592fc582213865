"""What a set of chains tells of itself: mixing, effective sample sizes, Monte Carlo error."""

import io
from typing import NamedTuple

import blackjax.diagnostics
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


class Summary(NamedTuple):
    """Per coordinate (of the event's shape): mean, deviation, Monte Carlo standard error of the mean, bulk and tail
    effective sample size, rank-normalised split R-hat; over all: mean acceptance, divergences, and a verdict in words.
    """

    mean: np.ndarray
    sd: np.ndarray
    mcse: np.ndarray
    ess_bulk: np.ndarray
    ess_tail: np.ndarray
    rhat: np.ndarray
    acceptance: float | None
    divergences: int | None
    mixed: bool
    verdict: str

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Table

        columns = ("mean", "sd", "mcse", "ess_bulk", "ess_tail", "rhat")
        table = Table("x", *columns)
        values = np.stack([np.reshape(getattr(self, name), -1) for name in columns], axis=1)
        # the worst-mixed coordinates are the ones to look at; all of them would flood the screen for images
        shown = np.sort(np.argsort(-np.nan_to_num(values[:, 5], nan=np.inf), kind="stable")[:10])
        for row in shown:
            index = ",".join(map(str, np.unravel_index(row, np.shape(self.mean)))) or "·"
            table.add_row(index, *(f"{value:.4g}" for value in values[row]))
        text = io.StringIO()
        console = Console(file=text, width=100)
        console.print(table)
        if len(values) > len(shown):
            console.print(f"(the {len(shown)} worst-mixed of {len(values)} coordinates)")
        console.print(self.verdict, soft_wrap=True)
        return text.getvalue().rstrip()


@jax.jit
def _numbers(draws: Array) -> tuple[Array, ...]:
    ess = blackjax.diagnostics.effective_sample_size(draws)
    sd = jnp.std(draws, axis=(0, 1), ddof=1)
    return (
        jnp.mean(draws, axis=(0, 1)),
        sd,
        sd / jnp.sqrt(ess),
        blackjax.diagnostics.ess_bulk(draws),
        blackjax.diagnostics.ess_tail(draws),
        blackjax.diagnostics.rhat(draws),
    )


def summarise(draws: Array, stats: dict[str, Array]) -> Summary:
    """The `Summary` of draws ``(chains, draws, *event)``.

    R-hat and effective sample sizes after Vehtari et al. (2021), Bayesian Analysis 16(2); chains count as mixed when
    R-hat is below 1.01 and the bulk effective size is at least 100 per chain, as that paper recommends.
    """
    chains, count, *event = draws.shape
    if chains < 2 or count < 4:
        raise ValueError(
            f"expected at least 2 chains of 4 draws to judge mixing, got {chains} of {count}; run more chains or draws"
        )
    flat = jnp.asarray(draws, float).reshape(chains, count, -1)
    mean, sd, mcse, bulk, tail, rhat = (np.asarray(value).reshape(event) for value in _numbers(flat))
    acceptance = float(np.mean(stats["acceptance"])) if "acceptance" in stats else None
    divergences = int(np.sum(stats["divergences"])) if "divergences" in stats else None
    mixed, verdict = _verdict(np.asarray(flat), rhat, bulk, chains, divergences)
    return Summary(mean, sd, mcse, bulk, tail, rhat, acceptance, divergences, mixed, verdict)


def _verdict(draws: np.ndarray, rhat, bulk, chains: int, divergences: int | None) -> tuple[bool, str]:
    lost = int(np.sum(~np.isfinite(draws).all(axis=(1, 2))))
    if lost:
        return False, f"{lost} of {chains} chains ran off to non-finite values: take a smaller step size."
    if np.any(np.ptp(draws, axis=(0, 1)) == 0):
        return False, "Some coordinate never moved: nothing was accepted, or it is held fixed."
    diverged = f" {divergences} steps diverged: take a smaller step size." if divergences else ""
    if not np.max(rhat) < 1.01:
        return False, (
            f"The chains have NOT mixed (R-hat up to {np.max(rhat):.3g}, should be below 1.01): they disagree about "
            f"where the mass is. Run longer, or use a kernel that crosses barriers.{diverged}"
        )
    if np.min(bulk) < 100 * chains:
        return False, (
            f"The chains agree (R-hat {np.max(rhat):.3f}) but there are only {np.min(bulk):.0f} effective draws "
            f"(should be {100 * chains}): run longer.{diverged}"
        )
    return (
        True,
        f"The chains have mixed (R-hat {np.max(rhat):.3f}, at least {np.min(bulk):.0f} effective draws).{diverged}",
    )
