"""Noise-conditional score networks of handwritten digits: annealed Langevin samples next to real images."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray
from matplotlib.figure import Figure

from thalweg.data import Dataset, load
from thalweg.energies import NoiseConditionalScoreUNet
from thalweg.evaluate.class_scores import class_scores
from thalweg.noise import ladder_from_data
from thalweg.objectives import NoiseConditionalScoreMatching
from thalweg.plot.points import as_colour, draw_mosaic, gap_of, mosaic, spread
from thalweg.plot.style import picture
from thalweg.report.figures import LIGHT, canvas, legend, panel
from thalweg.samplers import AnnealedLangevin, sample
from thalweg.train import fit

_FRAMES, _FOLLOWED = 12, 4
_SIDE = 8  # images a side of a grid


def ncsn_digits(
    key: PRNGKeyArray,
    progress: bool = False,
    *,
    updates: int = 2000,
    chains: int = 500,
    channels: tuple[int, ...] = (32, 64),
    steps: int = 5,
) -> tuple[Figure, dict[str, Any]]:
    """A noise-conditional U-Net on the embedded 8×8 digits: denoising score matching over a ladder from the data,
    averaged weights, annealed Langevin with a last denoising step.

    Numbers: the ladder and the step size, the loss, seconds of training and sampling, and the scores of the samples by
    a classifier of real digits: its mean top probability, the share of every class, how many classes are covered.
    Reference: Song and Ermon (2019, 2020), NeurIPS.

    >>> figure, numbers = ncsn_digits(jax.random.key(0), updates=2, chains=64, channels=(4, 8), steps=1)
    >>> numbers["classes"]["samples"]
    64
    """
    options = {"channels": channels, "blocks": 1, "patch": 1}
    return _reproduce(key, progress, load("digits"), options, updates, chains, steps, batch=128, smallest=0.05)


def ncsn_mnist(
    key: PRNGKeyArray,
    progress: bool = False,
    *,
    updates: int = 8000,
    chains: int = 100,
    channels: tuple[int, ...] = (48, 128),
    steps: int = 10,
) -> tuple[Figure, dict[str, Any]]:
    """The same on MNIST at 28×28, which `thalweg data get mnist` fetches: a U-Net that sees 2×2 squares of pixels, 8000
    updates of 64 images (half a second of processor time each, some 80 minutes in all), 100 samples.

    The numbers are those of `ncsn_digits`.

    >>> ncsn_mnist(jax.random.key(0))  # doctest: +SKIP
    """
    options = {"channels": channels, "blocks": 1, "patch": 2}
    return _reproduce(key, progress, load("mnist"), options, updates, chains, steps, batch=64, smallest=0.05)


def _reproduce(
    key: PRNGKeyArray,
    progress: bool,
    data: Dataset,
    options: dict[str, Any],
    updates: int,
    chains: int,
    steps: int,
    batch: int,
    smallest: float,
) -> tuple[Figure, dict[str, Any]]:
    key_network, key_fit, key_start, key_chains = jax.random.split(key, 4)
    x = data.x_train
    scale = float(np.sqrt(np.mean(np.square(x))))
    sigmas = ladder_from_data(x, smallest)
    network = NoiseConditionalScoreUNet(x.shape[1:], data_scale=scale, key=key_network, **options)
    begun = time.perf_counter()
    run = fit(
        network,
        x,
        NoiseConditionalScoreMatching(sigmas, _shares(sigmas, scale)),
        optimizer=optax.adam(optax.cosine_decay_schedule(2e-3, updates)),
        steps=updates,
        batch_size=batch,
        key=key_fit,
        ema=0.999,
        progress=progress,
    )
    trained = time.perf_counter()
    kernel = AnnealedLangevin(sigmas, steps=steps, denoise=True)
    thin = kernel.length // _FRAMES
    start = float(sigmas[0]) * jax.random.normal(key_start, (chains, *x.shape[1:]))
    drawn = sample(
        run.energy,
        kernel,
        start,
        key=key_chains,
        draws=_FRAMES,
        thin=thin,
        burn_in=kernel.length - _FRAMES * thin,
        progress=progress,
    )
    path = np.asarray(drawn.draws)
    sampled = time.perf_counter()
    loss = run.history["loss"]
    count = kernel.length - thin * np.arange(_FRAMES)[::-1]
    # the level of the last of these steps
    levels = np.asarray(sigmas)[np.minimum((count - 1) // steps, len(sigmas) - 1)]
    numbers = {
        "updates": updates,
        "batch_size": batch,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(run.energy, eqx.is_inexact_array))),
        "sigma_largest": float(sigmas[0]),
        "sigma_smallest": float(sigmas[-1]),
        "levels": len(sigmas),
        "steps_per_level": steps,
        "epsilon": float(kernel.epsilon),
        "loss_first": float(loss[: len(loss) // 10 + 1].mean()),
        "loss_last": float(loss[-(len(loss) // 10 + 1) :].mean()),
        "training_seconds": round(trained - begun, 1),
        "sampling_seconds": round(sampled - trained, 1),
        "classes": class_scores(np.clip(path[:, -1], -1, 1), data),
    }
    return _figure(path, levels, x, loss, numbers), numbers


def _shares(sigmas: Array, scale: float) -> Array:
    """How often each level is drawn: mostly near the standard deviation of the data, where the digit is decided.

    Reference: Karras et al. (2022), NeurIPS, for log-normal noise levels.
    """
    return 0.1 + jnp.exp(-0.5 * (jnp.log(sigmas / scale) / 1.2) ** 2)


def _figure(path: np.ndarray, levels: np.ndarray, x: np.ndarray, loss: np.ndarray, numbers: dict[str, Any]) -> Figure:
    classes = numbers["classes"]
    figure = canvas(11, 9.6)
    grid = figure.add_gridspec(2, 1, height_ratios=[5.2, 3.2])
    top, bottom = grid[0].subgridspec(1, 2), grid[1].subgridspec(1, 2, width_ratios=[2.3, 1.0])
    title = f"Samples: classifier sure to {classes['mean_top_probability']:.2f}, "
    title += f"{classes['classes_covered']} of {classes['classes']} classes"
    draw_mosaic(panel(figure, top[0], title=title), path[: _SIDE**2, -1], _SIDE, (-1.0, 1.0))
    title = f"Real digits: classifier sure to {classes['mean_top_probability_held_out']:.2f}"
    draw_mosaic(panel(figure, top[1], title=title), spread(x, _SIDE**2), _SIDE, (-1.0, 1.0))
    _filmstrip(figure, bottom[0], path, levels)
    axes = panel(figure, bottom[1], title="Training", x="update", y="loss")
    width = max(1, len(loss) // 100)
    running = np.convolve(loss, np.ones(width) / width, mode="valid")
    axes.plot(np.arange(len(running)) + width, running, color=LIGHT.data, linewidth=1.6, label=f"mean of {width}")
    axes.set_yscale("log")
    legend(axes)
    return figure


def _filmstrip(figure: Figure, place: Any, path: np.ndarray, levels: np.ndarray) -> None:
    """Some chains at some levels; each level is shown with a contrast that suits its noise."""
    shown = path[:_FOLLOWED] / (1 + 2 * (levels - levels[-1]))[:, None, None, None]
    rows, columns, height, width = shown.shape[:4]
    axes = panel(figure, place, title="Chains on their way down the noise levels", x="noise level σ", y="chain")
    picture(axes, mosaic(as_colour(shown.reshape(rows * columns, *shown.shape[2:])), columns))
    gap = gap_of(height)
    axes.set_xticks(np.arange(columns) * (width + gap) + width / 2 - 0.5, [f"{level:.2g}" for level in levels])
    axes.set_yticks(np.arange(rows) * (height + gap) + height / 2 - 0.5, [str(i + 1) for i in range(rows)])
    axes.tick_params(length=0)
