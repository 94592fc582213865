"""Every objective on targets of known density: its KL divergence, time and memory."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import paramax
from jaxtyping import Array, PRNGKeyArray
from matplotlib.figure import Figure

from thalweg import exact
from thalweg.core import Energy, HasSampler, Objective, given
from thalweg.data.toys import eight_gaussians_energy
from thalweg.energies import MLP, Banana, GaussianMixture, NoiseConditionalMLP, Ring
from thalweg.experiments.fields import learn
from thalweg.noise import geometric_ladder
from thalweg.objectives import (
    NCE,
    AdaNCE,
    AdversarialNCE,
    ConditionalNCE,
    DenoisingScoreMatching,
    ExactLikelihood,
    ExplicitScoreMatching,
    FiniteDifferenceScoreMatching,
    FlowNCE,
    HutchinsonScoreMatching,
    ImplicitScoreMatching,
    MaximumLikelihood,
    NoiseConditionalScoreMatching,
    RankNCE,
    RegularisedScoreMatching,
    SlicedScoreMatching,
)
from thalweg.report.figures import LIGHT, canvas, legend, panel
from thalweg.samplers import (
    MALA,
    AnnealedLangevin,
    Langevin,
    ParallelTempering,
    ReplayBuffer,
    from_data,
    from_noise,
    persistent,
    sample,
)
from thalweg.spaces import Real
from thalweg.train import working_memory

_ROWS, _BATCH, _RATE = 20_000, 500, 3e-3
# the box that KL is integrated over; all targets and models lie well inside
_BOX = (-14.0, 14.0)
_WEIGHTS = (0.3, 0.05, 0.2, 0.05, 0.1, 0.15, 0.05, 0.1)


class Confined(Energy):
    """A network plus a wide Gaussian, ``E(x) = f(z) + ⅛‖z‖²`` with ``z = (x - m)/s``: normalisable for any f learned.

    ``m`` and ``s`` are the mean and standard deviation of the data; they are not trained.
    """

    network: MLP
    centre: paramax.NonTrainable
    scale: paramax.NonTrainable
    space: Real = eqx.field(static=True)

    def __init__(self, data: Array, width: int, *, key: PRNGKeyArray):
        self.network = MLP(2, width=width, depth=3, key=key)
        self.centre, self.scale = paramax.NonTrainable(jnp.mean(data, axis=0)), paramax.NonTrainable(jnp.std(data))
        self.space = Real(2)

    def __call__(self, x: Array) -> Array:
        z = (x - self.centre.tree) / self.scale.tree
        return self.network(z) + 0.125 * jnp.sum(z**2)


class Method(NamedTuple):
    """A row of the table: the objective for a target, and whether its model is noise-conditional."""

    objective: Callable[[Any], Objective]
    conditional: bool = False


# the settings recommended for smooth densities in the plane at a scale of one
METHODS: dict[str, Method] = {
    "exact likelihood": Method(lambda target: ExactLikelihood(margin=0.3)),
    "CD-20": Method(lambda target: MaximumLikelihood(MALA(0.15), steps=20, start=from_data())),
    "CD-20, sampler gradient": Method(
        lambda target: MaximumLikelihood(Langevin(0.05), steps=20, start=from_data(), sampler_gradient=-1.0)
    ),
    "PCD-10": Method(lambda target: MaximumLikelihood(MALA(0.15), steps=10, start=persistent())),
    "short-run, 60 steps": Method(lambda target: MaximumLikelihood(MALA(0.3), steps=60, start=from_noise())),
    "replay buffer": Method(lambda target: MaximumLikelihood(MALA(0.15), steps=20, start=ReplayBuffer(5000, 0.05))),
    "explicit": Method(ExplicitScoreMatching),
    "implicit": Method(lambda target: ImplicitScoreMatching()),
    "regularised": Method(lambda target: RegularisedScoreMatching(0.001)),
    "Hutchinson": Method(lambda target: HutchinsonScoreMatching()),
    "sliced": Method(lambda target: SlicedScoreMatching()),
    "finite difference": Method(lambda target: FiniteDifferenceScoreMatching()),
    "denoising": Method(lambda target: DenoisingScoreMatching(0.1)),
    "noise-conditional": Method(lambda target: NoiseConditionalScoreMatching(geometric_ladder(8.0, 0.1, 8)), True),
    "NCE, fitted Gaussian": Method(lambda target: NCE(nu=0.5)),
    "rank NCE": Method(lambda target: RankNCE(candidates=5)),
    "conditional NCE": Method(lambda target: ConditionalNCE()),
    "adversarial NCE": Method(lambda target: AdversarialNCE()),
    "flow NCE": Method(lambda target: FlowNCE(warm_start=300)),
    "AdaNCE, interval 1": Method(lambda target: AdaNCE(1, MALA(0.15), steps=10, start=persistent())),
    "AdaNCE, interval 5": Method(lambda target: AdaNCE(5, MALA(0.15), steps=10, start=persistent())),
}
# on modes with nothing between them: the first three see the weights, the others cannot
SEPARATED: dict[str, Method] = {
    "exact likelihood": Method(lambda target: ExactLikelihood(margin=0.2, points=96**2)),
    "tempered chains": Method(
        lambda target: MaximumLikelihood(
            ParallelTempering(MALA(0.1), np.geomspace(1, 60, 7)), steps=5, start=persistent()
        )
    ),
    "noise-conditional": Method(lambda target: NoiseConditionalScoreMatching(geometric_ladder(10.0, 0.1, 12)), True),
    "CD-10 from data": Method(lambda target: MaximumLikelihood(MALA(0.1), steps=10, start=from_data())),
    "implicit": Method(lambda target: ImplicitScoreMatching()),
    "denoising, one level": Method(lambda target: DenoisingScoreMatching(0.1)),
}


def targets() -> dict[str, HasSampler]:
    """A skewed overlapping mixture, a banana and a ring, all of known density."""
    covariances = jnp.array([[[0.6, 0.3], [0.3, 0.4]], [[0.2, -0.1], [-0.1, 0.8]], [[0.3, 0.0], [0.0, 0.1]]])
    means = jnp.array([[-1.0, 0.3], [1.2, 1.0], [0.3, -1.4]])
    return {
        "skewed mixture": GaussianMixture(jnp.array([0.6, 0.3, 0.1]), means, covariances),
        "banana": Banana(0.5, 1.0),  # pyright: ignore[reportCallIssue]
        "ring": Ring(2.0, 0.4),  # pyright: ignore[reportCallIssue]
    }


def objective_table(
    key: PRNGKeyArray, progress: bool = False, *, updates: int = 1500, methods: dict[str, Method] | None = None
) -> tuple[Figure, dict[str, Any]]:
    """Every objective on three targets: ``KL(p‖p_θ)`` by quadrature, seconds of training, memory of one update.

    The model is a dense network plus a wide Gaussian, trained by Adam with a learning rate that falls to zero, on
    batches of 500 from 20 000 samples. Times depend on the machine; memory is what the compiler plans in addition to
    the inputs.

    >>> figure, numbers = objective_table(jax.random.key(0), updates=2, methods={"denoising": METHODS["denoising"]})
    >>> [row["target"] for row in numbers["rows"]]
    ['skewed mixture', 'banana', 'ring']
    """
    key_data, key_fit = jax.random.split(key)
    rows = []
    for place, (target, density) in enumerate(targets().items()):
        data = density.sample(jax.random.fold_in(key_data, place), (_ROWS,))
        for name, method in (METHODS if methods is None else methods).items():
            # the same for all, so that what differs is the objective
            row, _ = _train(jax.random.clone(key_fit), method, density, data, updates, 64, progress)
            rows.append({"target": target, "objective": name, **row})
    numbers = {"updates": updates, "batch_size": _BATCH, "rows": rows, "table": _table(rows)}
    return _figure(rows), numbers


def separated_modes(
    key: PRNGKeyArray, progress: bool = False, *, updates: int = 2000, methods: dict[str, Method] | None = None
) -> tuple[Figure, dict[str, Any]]:
    """Eight separated Gaussians of unequal weights: which objectives learn the weights.

    The score near a mode does not depend on the weight of the mode, and a chain that starts at a data point stays in
    its mode: score matching at one noise level and contrastive divergence from data learn the shape of every mode but
    not the weights. Likelihood with exact log Z or tempered chains, and a ladder of noise levels, learn both. The
    weight of a mode is the model's mass nearest to it, by quadrature; for the noise-conditional model it is the share
    of annealed Langevin samples (its KL is that of the lowest level, which does not know the weights either).

    >>> figure, numbers = separated_modes(jax.random.key(0), updates=2, methods={"implicit": SEPARATED["implicit"]})
    >>> len(numbers["rows"][0]["weights"])
    8
    """
    density = eight_gaussians_energy(_WEIGHTS, sigma=0.3)
    key_data, key_fit, key_annealed = jax.random.split(key, 3)
    data = density.sample(key_data, (_ROWS,))
    rows = []
    for name, method in (SEPARATED if methods is None else methods).items():
        row, model = _train(jax.random.clone(key_fit), method, density, data, updates, 64, progress)
        key_row = jax.random.clone(key_annealed)
        weights = _annealed_shares(key_row, model, density, progress) if method.conditional else _masses(model, density)
        error = float(np.abs(weights - np.asarray(_WEIGHTS)).max())
        rows.append({"target": "eight modes", "objective": name, **row, "weights": weights.tolist(), "error": error})
    numbers = {"updates": updates, "true_weights": list(_WEIGHTS), "rows": rows, "table": _table(rows)}
    return _modes_figure(rows), numbers


def _train(key, method, density, data, updates, width, progress) -> tuple[dict[str, float], Any]:
    """Train a model by one method: its KL, time and memory, and the model itself (noise-conditional if it is so)."""
    key_model, key_memory, key_fit = jax.random.split(key, 3)
    objective = method.objective(density)
    if method.conditional:
        # one model for all levels, of which an update sees one a point: wider, and trained for longer
        updates, width = 3 * updates, 2 * width
        model: Any = NoiseConditionalMLP(2, width=width, data_scale=float(jnp.std(data)), key=key_model)
    else:
        model = Confined(data, width, key=key_model)
    memory = working_memory(model, data[:_BATCH], objective, optimizer=optax.adam(_RATE), key=key_memory)
    began = time.perf_counter()
    run = learn(key_fit, model, data, objective, updates=updates, batch_size=_BATCH, rate=_RATE, progress=progress)
    seconds = time.perf_counter() - began
    learned = given(run.energy, run.state[-1]) if method.conditional else run.energy
    kl = float(exact.kl(density, learned, bounds=_BOX, tolerance=1e-3))
    return {"kl": kl, "seconds": seconds, "megabytes": memory / 1e6}, run.energy


def _masses(model: Any, density: GaussianMixture) -> np.ndarray:
    """The model's mass that is nearest to each mode, ``(modes,)``."""
    line = np.linspace(-8, 8, 641)
    points = jnp.asarray(np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2), float)
    share = np.asarray(jax.nn.softmax(-jax.lax.map(model, points, batch_size=4096)), np.float64)
    return np.bincount(_nearest(points, density), share, len(density.means))


def _annealed_shares(key, model, density, progress) -> np.ndarray:
    """The share of annealed Langevin samples nearest to each mode."""
    kernel = AnnealedLangevin(geometric_ladder(10.0, 0.1, 12), steps=100, denoise=True)
    key_start, key_chains = jax.random.split(key)
    start = 10 * jax.random.normal(key_start, (8000, 2))
    chains = sample(model, kernel, start, key=key_chains, draws=1, burn_in=kernel.length - 1, progress=progress)
    return np.bincount(_nearest(chains.draws[:, 0], density), minlength=len(density.means)) / len(start)


def _nearest(points: Array, density: GaussianMixture) -> np.ndarray:
    return np.asarray(jnp.argmin(jnp.sum((points[:, None] - density.means[None]) ** 2, axis=-1), axis=1))


def _table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    columns = ["target", "objective", "KL in nats", "seconds", "megabytes"]
    shown = [
        [row["target"], row["objective"], f"{row['kl']:.4f}", f"{row['seconds']:.0f}", f"{row['megabytes']:.1f}"]
        for row in rows
    ]
    if rows and "error" in rows[0]:
        columns.append("largest error of a weight")
        shown = [[*line, f"{row['error']:.3f}"] for line, row in zip(shown, rows, strict=True)]
    return {"columns": columns, "rows": shown}


def _figure(rows: list[dict[str, Any]]) -> Figure:
    names = list(dict.fromkeys(row["objective"] for row in rows))
    kinds = list(dict.fromkeys(row["target"] for row in rows))
    figure = canvas(12, 1.4 + 0.42 * len(names))
    places = np.arange(len(names))
    colours = dict(zip(kinds, (LIGHT.data, LIGHT.held_out, LIGHT.samples), strict=False))
    for number, (field, label, log) in enumerate(
        (("kl", "KL(p ‖ model) in nats", True), ("seconds", "seconds of training", False), ("megabytes", "MB", False))
    ):
        axes = panel(
            figure, (1, 3, number + 1), title=("How near", "How long", "Memory of one update")[number], x=label
        )
        for shift, kind in enumerate(kinds):
            values = [row[field] for row in rows if row["target"] == kind]
            axes.barh(places + 0.27 * (shift - 1), values, 0.25, color=colours[kind], label=kind)
        axes.set_yticks(places, names if number == 0 else [""] * len(names))
        axes.invert_yaxis()
        if log:
            axes.set_xscale("log")
        if number == 0:
            axes.axvline(0.1, color=LIGHT.ink, linewidth=1, linestyle="--")
        if number == 1:
            axes.plot([], [], color=LIGHT.ink, linewidth=1, linestyle="--", label="0.1 nats")
            legend(axes, loc="lower right")
    return figure


def _modes_figure(rows: list[dict[str, Any]]) -> Figure:
    figure = canvas(12, 3.4 * -(-len(rows) // 3))
    for number, row in enumerate(rows):
        axes = panel(
            figure,
            (-(-len(rows) // 3), 3, number + 1),
            title=f"{row['objective']}: KL {row['kl']:.3f}",
            x="mode",
            y="weight",
        )
        axes.bar(np.arange(8) - 0.2, _WEIGHTS, 0.4, color=LIGHT.data, label="true")
        axes.bar(
            np.arange(8) + 0.2, row["weights"], 0.4, color=LIGHT.samples, label=f"learned, off by {row['error']:.3f}"
        )
        axes.set_xticks(np.arange(8))
        axes.set_ylim(0, max(0.45, 1.35 * max(row["weights"])))
        legend(axes, loc="upper right")
    return figure
