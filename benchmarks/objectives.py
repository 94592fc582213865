"""Training objectives: how the cost of an update grows with the dimension, and a comparison with other libraries."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import equinox as eqx
import jax
import optax
from jax import Array

import thalweg as tw
from measure import Contestant, PeerMissing, Row, Settings, Worker, local, race, row
from thalweg.core import split_static
from thalweg.train.update import Update, begin, training_key

PEERS = ("torchebm", "ebmkit")
SMALL, LARGE = 16, 1024
BATCH, WIDTH = 1024, 128

DIRECTIONAL = {
    "denoising": tw.objectives.DenoisingScoreMatching(0.1),
    "sliced": tw.objectives.SlicedScoreMatching(),
    "Hutchinson": tw.objectives.HutchinsonScoreMatching(),
    "finite difference": tw.objectives.FiniteDifferenceScoreMatching(),
}


def growth(settings: Settings) -> Iterator[Row]:
    """The cost of an update in 1024 dimensions over that in 16, compared with a plain gradient in x; also memory."""
    batch = 32 if settings.quick else 256
    named: dict[str, Any] = DIRECTIONAL | {"implicit": tw.objectives.ImplicitScoreMatching()}
    contestants: dict[Any, Contestant] = {}
    memory: dict[Any, int] = {}
    for dim in (SMALL, LARGE):
        energy, x = _energy(dim), jax.random.normal(jax.random.key(1), (batch, dim))
        plain = eqx.filter_jit(lambda energy, x: jax.vmap(jax.grad(energy))(x))
        contestants["plain", dim] = local(lambda energy=energy, x=x, plain=plain: plain(energy, x))
        memory["plain", dim] = 2 * x.nbytes + _temporary(plain, energy, x)  # a gradient is as large as its point
        for name, objective in named.items():
            contestants[name, dim] = _update(energy, x, objective)
            optimizer = optax.adam(1e-3)
            working = tw.train.working_memory(energy, x, objective, optimizer=optimizer, key=jax.random.key(0))
            memory[name, dim] = x.nbytes + working
    seconds = race(contestants, settings)
    plain_growth = [
        large / small for large, small in zip(seconds["plain", LARGE], seconds["plain", SMALL], strict=True)
    ]
    plain_memory = memory["plain", LARGE] / memory["plain", SMALL]
    for name in named:
        ours = [large / small for large, small in zip(seconds[name, LARGE], seconds[name, SMALL], strict=True)]
        target = None if name == "implicit" else 1.3
        against = "growth of a plain gradient"
        yield row(f"{name}: time at d = {LARGE} over {SMALL}", ours, plain_growth, target, against=against)._replace(
            unit="×"
        )
        yield Row(
            f"{name}: memory at d = {LARGE} over {SMALL}",
            memory[name, LARGE] / memory[name, SMALL],
            plain_memory,
            target,
            unit="×",
            against=against,
        )


def peers(settings: Settings) -> Iterator[Row]:
    """An update of denoising, sliced and CD-10 at batch 1024, 128 dimensions, width 128, against both peers."""
    batch = 64 if settings.quick else BATCH
    energy, x = _energy(128), jax.random.normal(jax.random.key(1), (batch, 128))
    chains = tw.objectives.MaximumLikelihood(tw.samplers.Langevin(0.02), steps=10, start=tw.samplers.from_data())
    named = {"denoising": DIRECTIONAL["denoising"], "sliced": DIRECTIONAL["sliced"], "CD-10": chains}
    for name, objective in named.items():
        contestants: dict[str, Contestant] = {"ours": _update(energy, x, objective)}
        missing: dict[str, str] = {}
        with ExitStack() as stack:
            for peer in PEERS:
                try:
                    worker = stack.enter_context(Worker("objectives.py", peer))
                    run = worker.contestant(objective=name, batch=batch, dim=128, width=WIDTH)
                    run(1)
                    contestants[peer] = run
                except PeerMissing as reason:
                    missing[peer] = str(reason)
            seconds = race(contestants, settings)
        for peer in PEERS:
            label = f"update of {name}, batch {batch}, d = 128"
            if peer in missing:
                yield Row(label, None, None, 2.0, against=peer, note=missing[peer])
            else:
                yield row(label, seconds["ours"], seconds[peer], 2.0, "at least", against=peer)


def differences(settings: Settings) -> Iterator[Row]:
    """Finite differences compared with the faster of the two objectives with derivatives, in time and memory."""
    batch = 64 if settings.quick else BATCH
    energy, x = _energy(128), jax.random.normal(jax.random.key(1), (batch, 128))
    named = ("sliced", "Hutchinson", "finite difference")
    seconds = race({name: _update(energy, x, DIRECTIONAL[name]) for name in named}, settings)
    faster = min(named[:2], key=lambda name: sum(seconds[name]))
    ours = seconds["finite difference"]
    yield row(f"update by finite differences, batch {batch}, d = 128", ours, seconds[faster], 1.0, against=faster)
    memory = {
        name: tw.train.working_memory(energy, x, DIRECTIONAL[name], optimizer=optax.adam(1e-3), key=jax.random.key(0))
        for name in named
    }
    for name in named[:2]:
        yield Row(
            "memory of finite differences",
            memory["finite difference"] / 1e6,
            memory[name] / 1e6,
            1.0,
            unit="MB",
            against=name,
        )


def _energy(dim: int) -> tw.energies.MLP:
    return tw.energies.MLP(dim, width=WIDTH, depth=2, key=jax.random.key(0))


def _temporary(function: Any, *arguments: Any) -> int:
    return function.lower(*arguments).compile().compiled.memory_analysis().temp_size_in_bytes


def _update(energy: Any, x: Array, objective: tw.core.Objective) -> Contestant:
    """One update of `tw.fit`, without its bookkeeping."""
    optimizer, key = optax.adam(1e-3), training_key(jax.random.key(0))
    begun = begin(energy, x, objective, optimizer, None, key)
    update, arrays = Update(objective, optimizer, begun, x), [split_static(begun)[0]]

    def run() -> Array:
        arrays[0], metrics = update(arrays[0], key, 0, x)
        return metrics["loss"]

    return local(run)
