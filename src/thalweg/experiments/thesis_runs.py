"""One training of the thesis's image experiments (Xu 2022, Self-Adapting Noise-Contrastive Estimation for Energy-Based
Models, Tsinghua University), at three scales: ``smoke`` sees that it runs, ``small`` takes minutes on the embedded
digits, ``thesis`` has the thesis's own settings and wants an accelerator."""

import functools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.data import Dataset, load
from thalweg.energies import ConvNet
from thalweg.experiments.run_folders import digest_of, fit_in
from thalweg.objectives import AdaNCE
from thalweg.plot.points import draw_mosaic
from thalweg.report.figures import canvas, panel
from thalweg.samplers import Langevin, ReplayBuffer, sample, uniform_noise
from thalweg.train import Run

INTERVALS = (1, 5, 10, 20, 50)
SHARES = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0)
SIDE = 6  # images a side of a grid
NOISE = uniform_noise(-1.0, 1.0)
STEP_NOISE = 0.005


class Scale(NamedTuple):
    """How large an experiment is; the Langevin chains are those of the thesis, shorter where it is small."""

    data: str
    preset: str
    updates: int
    batch: int
    steps: int
    buffer: int
    rate: float
    samples: int
    seeds: int
    intervals: tuple[int, ...] = INTERVALS
    shares: tuple[float, ...] = SHARES
    width: float = 1.0
    long_chains: int = 250
    long_steps: int = 3000


SCALES = {
    "smoke": Scale("digits", "digits", 4, 32, 5, 64, 1e-3, 64, 2, (1, 5), (0.0, 0.25, 1.0), 0.25, 32, 20),
    "small": Scale("digits", "digits", 1000, 64, 30, 2000, 1e-3, 1000, 3, width=0.5),
    # the thesis does not say how many updates were made in its one or two GPU-days
    "thesis": Scale("cifar10", "C", 100_000, 128, 100, 10_000, 1e-4, 10_000, 3, long_chains=1000, long_steps=5000),
}
_PRESETS = {"mnist": "A", "cifar10": "C", "digits": "digits"}


def settings_of(
    scale: str, data: str | None = None, updates: int | None = None, rate: float | None = None, seeds: int | None = None
) -> tuple[Scale, Dataset]:
    """A scale with another data set, number of updates, learning rate or number of seeds where these are given, and its
    data.

    >>> settings, data = settings_of("smoke", None, 7, 1e-4)
    >>> settings.updates, settings.rate, data.x_train.shape[1:]
    (7, 0.0001, (8, 8, 1))
    """
    if scale not in SCALES:
        raise ValueError(f"expected a scale among {', '.join(SCALES)}, got {scale!r}; small takes minutes")
    settings = SCALES[scale]
    if data is not None:
        settings = settings._replace(data=data, preset=_PRESETS.get(data, "C"))
    for name, value in (("updates", updates), ("seeds", seeds)):
        if value is not None and value < 1:
            raise ValueError(f"expected {name} >= 1, got {value}; leave it out for those of the scale")
    if rate is not None and not 0 < rate < np.inf:
        raise ValueError(
            f"expected a rate above 0, got {rate}; leave it out for that of the scale, 1e-4 is the thesis's"
        )
    given = {"updates": updates, "rate": rate, "seeds": seeds}
    settings = settings._replace(**{name: value for name, value in given.items() if value is not None})
    return settings, load(settings.data)


def compare_settings(settings: Scale, **others: tuple[Any, Any]) -> dict[str, Any]:
    """A table of the settings beside the thesis's own; ``others`` are further rows, name to (here, thesis).

    >>> table = compare_settings(SCALES["small"], seeds=(3, "not given"))
    >>> table["rows"][2]
    ['learning rate', '0.001', '0.0001']
    """
    thesis = SCALES["thesis"]
    rows = [
        ["data, model", f"{settings.data}, {settings.preset}", "MNIST, A; CIFAR-10 and CelebA, C"],
        ["width of the model", f"{settings.width:g}", f"{thesis.width:g}"],
        ["learning rate", f"{settings.rate:g}", f"{thesis.rate:g}"],
        ["updates", str(settings.updates), "not given (1 or 2 GPU-days)"],
        ["batch", str(settings.batch), str(thesis.batch)],
        ["Langevin steps an update", str(settings.steps), str(thesis.steps)],
        ["buffer", str(settings.buffer), str(thesis.buffer)],
    ]
    rows += [[name.replace("_", " "), str(here), str(there)] for name, (here, there) in others.items()]
    return {"columns": ["setting", "here", "thesis"], "rows": rows}


def describe(key: PRNGKeyArray, x: np.ndarray, settings: Scale, **options: Any) -> dict[str, Any]:
    """All that a training depends on, for `result_of`: ``options`` are those of `train` and of what is measured."""
    from thalweg import __version__

    names = ("data", "preset", "width", "updates", "batch", "steps", "buffer", "rate")
    used = {name: getattr(settings, name) for name in names}
    words = np.asarray(jax.random.key_data(key)).tolist()
    return {**used, "rows": digest_of(x), "key": words, "thalweg": __version__, **options}


def train(
    key: PRNGKeyArray,
    x: np.ndarray,
    settings: Scale,
    *,
    interval: int = 1,
    rejuvenation: float = 0.25,
    spectral_norm: bool = True,
    energy: Any = None,
    folder: Path | None = None,
    progress: bool = False,
) -> Run:
    """A network by AdaNCE on a replay buffer, with the thesis's chains and optimiser, in a run folder if one is given;
    a new network, or ``energy`` trained on.

    >>> settings, data = settings_of("smoke")
    >>> train(jax.random.key(0), data.x_train, settings).history["gradient_norm"].shape
    (4,)
    """
    key_network, key_fit = jax.random.split(key)
    if energy is None:
        energy = ConvNet(settings.preset, settings.width, spectral_norm, key=key_network)
    start = ReplayBuffer(settings.buffer, rejuvenation, NOISE)
    objective = AdaNCE(interval, kernel(), steps=settings.steps, start=start)
    options = {"steps": settings.updates, "batch_size": settings.batch, "progress": progress}
    # a long training loses at most a thousand updates when its process is killed
    often = max(100, min(settings.updates // 10, 1000))
    optimizer = _optimizer(settings.rate)
    return fit_in(folder, energy, x, objective, optimizer=optimizer, key=key_fit, checkpoint_every=often, **options)


@functools.cache
def _optimizer(rate: float) -> optax.GradientTransformation:
    """One object for all runs, which are then compiled once."""
    return optax.adam(rate, b1=0.0, b2=0.999)


def kernel() -> Langevin:
    """A gradient coefficient of 1, noise of 0.005."""
    return Langevin(2.0, STEP_NOISE)


def samples_of(key: PRNGKeyArray, run: Run, settings: Scale, chains: int, steps: int, draws: int = 1) -> np.ndarray:
    """Chains that go on from the buffer: ``(chains, draws, *image)``, a draw after every ``steps`` steps.

    A slot that was never used begins from noise.
    """
    key_slots, key_chains = jax.random.split(key)
    buffer = ReplayBuffer(settings.buffer, 0.0, NOISE)
    like = run.state.memory.state.x[:chains]
    state = buffer.begin(key_slots, kernel(), run.energy, run.state.memory, like).state
    return np.asarray(sample(run.energy, kernel(), state, key=key_chains, draws=draws, thin=steps).draws)


def grids_of(grids: dict[str, np.ndarray]) -> Figure:
    """A grid of images for every name, side by side."""
    figure = canvas(2.6 * len(grids), 3.0)
    places = figure.add_gridspec(1, len(grids))
    for place, (name, images) in enumerate(grids.items()):
        draw_mosaic(panel(figure, places[place], title=name), images, SIDE, (-1.0, 1.0))
    return figure
