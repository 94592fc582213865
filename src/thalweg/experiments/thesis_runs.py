"""One run of the thesis's image experiments, at three scales: ``smoke`` sees that it runs, ``small`` takes minutes on
the embedded digits, ``thesis`` has the thesis's own settings and wants an accelerator."""

import functools
from typing import NamedTuple

import jax
import numpy as np
import optax
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.data import Dataset, load
from thalweg.energies import ConvNet
from thalweg.objectives import AdaNCE
from thalweg.plot.points import draw_mosaic
from thalweg.report.figures import canvas, panel
from thalweg.samplers import Langevin, ReplayBuffer, sample, uniform_noise
from thalweg.train import Run, fit

INTERVALS = (1, 5, 10, 20, 50)
SHARES = (0.0, 0.1, 0.25, 0.5, 1.0)
SIDE = 6  # images a side of a grid
NOISE = uniform_noise(-1.0, 1.0)


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
    long: int = 10  # a long run has so many times the steps of training


SCALES = {
    "smoke": Scale("digits", "digits", 4, 32, 5, 64, 1e-3, 64, 2, (1, 5), (0.0, 0.25, 1.0), 0.25, 2),
    "small": Scale("digits", "digits", 1000, 64, 30, 2000, 1e-3, 1000, 3, width=0.5),
    # the thesis does not say how many updates were made in its one or two GPU-days
    "thesis": Scale("cifar10", "C", 100_000, 128, 100, 10_000, 1e-4, 10_000, 3),
}
_PRESETS = {"mnist": "A", "cifar10": "C", "digits": "digits"}


def settings_of(scale: str, data: str | None, updates: int | None) -> tuple[Scale, Dataset]:
    """A scale with another data set or number of updates where these are given, and its data.

    >>> settings, data = settings_of("smoke", None, 7)
    >>> settings.updates, data.x_train.shape[1:]
    (7, (8, 8, 1))
    """
    if scale not in SCALES:
        raise ValueError(f"expected a scale among {', '.join(SCALES)}, got {scale!r}; small takes minutes")
    settings = SCALES[scale]
    if data is not None:
        settings = settings._replace(data=data, preset=_PRESETS.get(data, "C"))
    if updates is not None:
        if updates < 1:
            raise ValueError(f"expected updates >= 1, got {updates}; leave it out for those of the scale")
        settings = settings._replace(updates=updates)
    return settings, load(settings.data)


def train(
    key: PRNGKeyArray,
    x: np.ndarray,
    settings: Scale,
    *,
    interval: int = 1,
    rejuvenation: float = 0.25,
    spectral_norm: bool = True,
    progress: bool = False,
) -> Run:
    """A network by AdaNCE on a replay buffer, with the thesis's chains and optimiser."""
    key_network, key_fit = jax.random.split(key)
    energy = ConvNet(settings.preset, settings.width, spectral_norm, key=key_network)
    start = ReplayBuffer(settings.buffer, rejuvenation, NOISE)
    objective = AdaNCE(interval, _kernel(), steps=settings.steps, start=start)
    options = {"steps": settings.updates, "batch_size": settings.batch, "progress": progress}
    return fit(energy, x, objective, optimizer=_optimizer(settings.rate), key=key_fit, **options)


@functools.cache
def _optimizer(rate: float) -> optax.GradientTransformation:
    """One object for all runs, which are then compiled once."""
    return optax.adam(rate, b1=0.0, b2=0.999)


def _kernel() -> Langevin:
    """A gradient coefficient of 1, noise of 0.005."""
    return Langevin(2.0, 0.005)


def samples_of(key: PRNGKeyArray, run: Run, settings: Scale, steps: int) -> np.ndarray:
    """Chains that go on from the buffer, ``steps`` steps further; a slot that was never used begins from noise."""
    key_slots, key_chains = jax.random.split(key)
    buffer = ReplayBuffer(settings.buffer, 0.0, NOISE)
    like = run.state.memory.state.x[: settings.samples]
    state = buffer.begin(key_slots, _kernel(), run.energy, run.state.memory, like).state
    return np.asarray(sample(run.energy, _kernel(), state, key=key_chains, draws=1, burn_in=steps - 1).draws[:, 0])


def grids_of(grids: dict[str, np.ndarray]) -> Figure:
    """A grid of images for every name, side by side."""
    figure = canvas(2.6 * len(grids), 3.0)
    places = figure.add_gridspec(1, len(grids))
    for place, (name, images) in enumerate(grids.items()):
        draw_mosaic(panel(figure, places[place], title=name), images, SIDE, (-1.0, 1.0))
    return figure
