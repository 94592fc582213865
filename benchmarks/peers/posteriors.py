"""NumPyro's NUTS on the posteriors of `tests/posteriors`: ``posteriors.py FOLDER``; the draws are written to the
folder.

The potential is the same function that the other libraries sample, in the same real coordinates. Answers each JSON line
on standard input with one JSON line. The potential is a JAX function, so torch is not imported.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import MCMC, NUTS

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.posteriors.models import posterior  # noqa: E402

compiled: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {}


def build(name: str, chains: int, warm_up: int, draws: int, method: str) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The whole run as one compiled function: by default `MCMC.run` compiles again at every call."""
    kernel = NUTS(potential_fn=posterior(name).energy_on_reals)
    sampler = MCMC(
        kernel, num_warmup=warm_up, num_samples=draws, num_chains=chains, chain_method=method, progress_bar=False
    )

    def run(key, start):
        sampler.run(key, init_params=start)
        return sampler.get_samples(group_by_chain=True)

    return jax.jit(run)


def run(start: list, seed: int, **case: Any) -> tuple[float, jax.Array]:
    label = json.dumps([case, len(start)], sort_keys=True)
    if label not in compiled:
        compiled[label] = build(chains=len(start), **case)
    first, key = jnp.asarray(start, float), jax.random.key(seed)
    began = time.perf_counter()
    draws = jax.block_until_ready(compiled[label](key, first))
    return time.perf_counter() - began, draws


def main(folder: Path) -> None:
    # standard output is for answers alone: whatever the libraries print goes to standard error
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: dict) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    say({"versions": {"numpyro": version("numpyro")}})
    file = folder / "draws.npy"
    for line in sys.stdin:
        try:
            seconds, draws = run(**json.loads(line))
            np.save(file, np.asarray(draws))
            say({"seconds": seconds, "draws": str(file)})
        except Exception as error:
            # the other side decides what a failed case means; the worker stays up for the cases that work
            say({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
