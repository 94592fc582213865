"""Langevin chains on a convolutional energy compared with PyTorch, and a training update compared with its gradients.

Model A and its chains are those of Xu (2022), "Self-Adapting Noise-Contrastive Estimation for Energy-Based Models",
master's thesis, Tsinghua University.
"""

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from paramax import NonTrainable

import thalweg as tw
from measure import Contestant, PeerMissing, Row, Settings, Worker, local, race, row

MODES = ("eager", "compiled")
LAYOUTS = ("default", "channels last")
BATCH = 128
# the chain of Xu (2022): a gradient coefficient of 1 and noise of 0.005
STEP_SIZE, NOISE = 2.0, 0.005


def model_a(settings: Settings) -> Iterator[Row]:
    """Langevin on model A compared with PyTorch, eager and compiled, each in its faster memory layout.

    PyTorch's weights are divided by their spectral norms before the clock starts; ours inside the measured time.
    """
    # `tw.sample` checks the energy of every start: one more evaluation, which would matter in a shorter chain
    steps = 2 if settings.quick else 10
    name = f"Langevin on model A, batch {BATCH}, chain of {steps}"
    energy = tw.energies.ConvNet("A", key=jax.random.key(0))
    kernel = tw.samplers.Langevin(STEP_SIZE, noise_scale=NOISE)
    init = jax.random.uniform(jax.random.key(1), (BATCH, 28, 28, 1), minval=-1.0, maxval=1.0)

    def ours():
        return tw.sample(energy, kernel, init, key=jax.random.key(2), draws=1, burn_in=steps - 1).draws

    contestants: dict[Any, Contestant] = {"ours": local(ours)}
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        for mode in MODES:
            try:
                # a process for each mode, so that one that cannot compile still has its eager row
                worker = stack.enter_context(Worker("model_a.py"))
                _same_model(energy, worker)
                for layout in LAYOUTS:
                    run = worker.contestant(batch=BATCH, steps=steps, compiled=mode == "compiled", layout=layout)
                    run(1)
                    contestants[mode, layout] = run
            except PeerMissing as reason:
                missing[mode] = str(reason)
        seconds = race(contestants, _fewer_rounds(settings))
    for mode in MODES:
        if mode in missing:
            alone = statistics.median(seconds["ours"])
            yield Row(name, alone, None, 1.0, against=f"PyTorch {mode}", note=missing[mode])
            continue
        layout = min(LAYOUTS, key=lambda layout: statistics.median(seconds[mode, layout]))
        yield row(name, seconds["ours"], seconds[mode, layout], 1.0, against=f"PyTorch {mode}, {layout} layout")


def _same_model(energy: Any, worker: Worker) -> None:
    """Check that two networks whose times are compared have the same number of weights."""
    trained = eqx.filter(energy, eqx.is_inexact_array, is_leaf=lambda node: isinstance(node, NonTrainable))
    ours = sum(leaf.size for leaf in jax.tree.leaves(trained))
    theirs = worker.facts["weights"]
    if ours != theirs:
        raise ValueError(f"expected as many weights as PyTorch's model A, {theirs:,}, got {ours:,}; compare the layers")


def training_step(settings: Settings) -> Iterator[Row]:
    """An update of `tw.fit` compared with the gradients of its chain and its loss, each compiled separately.

    Everything else in the update (noise, buffer, optimiser, power iteration, next batch, metrics) must fit in the ten
    per cent that the target allows.
    """
    # updates: how many to a round, enough for half a second
    for preset, shape, batch, steps, updates in (("digits", (8, 8, 1), 64, 20, 10), ("A", (28, 28, 1), BATCH, 10, 1)):
        if settings.quick:
            steps, updates = steps if preset == "digits" else 2, 1
        energy = tw.energies.ConvNet(preset, key=jax.random.key(0))
        data = jax.random.uniform(jax.random.key(1), (10 * batch, *shape), minval=-1.0, maxval=1.0)
        seconds = race(
            {
                "ours": _update(energy, data, batch, tw.objectives.MaximumLikelihood(**_chain(steps))),
                "apart": _gradients_alone(energy, data, batch, steps),
            },
            _fewer_rounds(settings),
            calls=updates,
        )
        yield row(
            f"update of ConvNet {preset}, batch {batch}, chain of {steps}",
            seconds["ours"],
            seconds["apart"],
            1.1,
            against="its gradients, measured apart",
        )


def adaptive(settings: Settings) -> Iterator[Row]:
    """Updates of AdaNCE and AdaBregman compared with maximum likelihood, all with chains of 60 steps; with reuse, one
    chain in 5 updates.

    A round is a multiple of 5 updates, so that with reuse it contains the right share of chains.
    """
    steps, updates, batch = (10, 5, 32) if settings.quick else (60, 10, 64)
    energy = tw.energies.ConvNet("digits", key=jax.random.key(0))
    data = jax.random.uniform(jax.random.key(1), (10 * batch, 8, 8, 1), minval=-1.0, maxval=1.0)
    chain, squared = _chain(steps), tw.objectives.Squared()
    likelihood = tw.objectives.MaximumLikelihood(**chain)
    named = {
        "AdaNCE, interval 1": (tw.objectives.AdaNCE(1, **chain), 1.05),
        "AdaNCE, interval 5": (tw.objectives.AdaNCE(5, **chain), 1.05),
        "AdaBregman by the square, interval 5": (tw.objectives.AdaBregman(squared, 5, **chain), 1.05),
        "AdaNCE, interval 5, reuse": (tw.objectives.AdaNCE(5, **chain, reuse=True), 0.35),
    }
    contestants = {"likelihood": _update(energy, data, batch, likelihood)}
    contestants |= {name: _update(energy, data, batch, objective) for name, (objective, _) in named.items()}
    seconds = race(contestants, _fewer_rounds(settings), calls=updates)
    for name, (_, target) in named.items():
        label = f"update by {name}, chain of {steps}"
        yield row(label, seconds[name], seconds["likelihood"], target, against="maximum likelihood")


def _chain(steps: int) -> dict[str, Any]:
    """The chains of Xu (2022): kernel, number of steps and replay buffer."""
    noise = tw.samplers.uniform_noise(-1.0, 1.0)
    return {
        "kernel": tw.samplers.Langevin(STEP_SIZE, noise_scale=NOISE),
        "steps": steps,
        "start": tw.samplers.ReplayBuffer(10_000, rejuvenation=0.25, noise=noise),
    }


def _update(energy: Any, data: Array, batch: int, objective: tw.core.Objective) -> Contestant:
    """One update of `tw.fit`: the time of a run with ``calls`` more updates minus that of a run without them."""
    optimizer = optax.adam(1e-4, b1=0.0, b2=0.999)

    def fit(updates: int) -> float:
        begin = time.perf_counter()
        run = tw.fit(
            energy, data, objective, optimizer=optimizer, steps=updates, batch_size=batch, key=jax.random.key(2)
        )
        jax.block_until_ready(eqx.filter(run, eqx.is_array))
        return time.perf_counter() - begin

    # the first update of a run waits for nothing before it, so both runs have one
    return lambda calls: fit(1 + calls) - fit(1)


def _gradients_alone(energy: Any, data: Array, batch: int, steps: int) -> Contestant:
    """The minimum cost of an update: the gradients in x that its chain needs, then one gradient of the loss."""
    x = data[:batch]

    @eqx.filter_jit
    def chain(energy, x):
        def step(x, _):
            # each gradient must wait for the one before it, as in a chain
            return x - 0.5 * STEP_SIZE * jax.vmap(jax.grad(energy))(x), None

        return lax.scan(step, x, length=steps)[0]

    @eqx.filter_jit
    @eqx.filter_grad
    def loss(energy, x, negatives):
        energies = jax.vmap(energy)(jnp.concatenate([x, negatives]))
        return jnp.mean(energies[:batch]) - jnp.mean(energies[batch:])

    return local(lambda: eqx.filter(loss(energy, x, chain(energy, x)), eqx.is_array))


def _fewer_rounds(settings: Settings) -> Settings:
    """Settings with fewer rounds, for rounds that take many seconds."""
    return settings._replace(rounds=min(settings.rounds, 5))
