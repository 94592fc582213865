"""The names a configuration may use and the classes behind them; the keys of a table are those of the signature."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import optax

from thalweg import data, energies, objectives, samplers
from thalweg.core import Kernel, positive
from thalweg.data import loading
from thalweg.energies.confined_mlp import ConfinedMLP
from thalweg.runs.drawing import draw
from thalweg.runs.signatures import Setting, settings
from thalweg.samplers.starts import Noise, Start
from thalweg.train import fit

Table = Mapping[str, Callable[..., Any]]

ENERGIES: Table = {
    "ConfinedMLP": ConfinedMLP,
    "ConvNet": energies.ConvNet,
    "MLP": energies.MLP,
    "ResNet": energies.ResNet,
}
OBJECTIVES: Table = {
    "AdaNCE": objectives.AdaNCE,
    "AdversarialNCE": objectives.AdversarialNCE,
    "ConditionalNCE": objectives.ConditionalNCE,
    "DenoisingScoreMatching": objectives.DenoisingScoreMatching,
    "ExactLikelihood": objectives.ExactLikelihood,
    "FiniteDifferenceScoreMatching": objectives.FiniteDifferenceScoreMatching,
    "FlowNCE": objectives.FlowNCE,
    "HutchinsonScoreMatching": objectives.HutchinsonScoreMatching,
    "ImplicitScoreMatching": objectives.ImplicitScoreMatching,
    "MaximumLikelihood": objectives.MaximumLikelihood,
    "NCE": objectives.NCE,
    "RankNCE": objectives.RankNCE,
    "RegularisedScoreMatching": objectives.RegularisedScoreMatching,
    "SlicedScoreMatching": objectives.SlicedScoreMatching,
}
KERNELS: Table = {
    "GradientDescent": samplers.GradientDescent,
    "HMC": samplers.HMC,
    "Langevin": samplers.Langevin,
    "MALA": samplers.MALA,
    "NUTS": samplers.NUTS,
    "RandomWalk": samplers.RandomWalk,
    "UnderdampedLangevin": samplers.UnderdampedLangevin,
}
STARTS: Table = {
    "ReplayBuffer": samplers.ReplayBuffer,
    "from_data": samplers.from_data,
    "from_noise": samplers.from_noise,
    "persistent": samplers.persistent,
}
OPTIMIZERS: Table = {"adam": optax.adam, "adamw": optax.adamw, "rmsprop": optax.rmsprop, "sgd": optax.sgd}

# a parameter of one of these types is a table of its own
CHOICES: Mapping[Any, Table] = {Kernel: KERNELS, Start: STARTS}
# what follows from the data and the seed stands in no configuration
GIVEN = ("key", "shape")


def keys_of(maker: Callable[..., Any]) -> dict[str, Setting]:
    """The keys of the table that describes what ``maker`` makes."""
    # a user's kernel need not be of our class, so objectives take any object by that name
    return settings(maker, *CHOICES, Noise, given=GIVEN, named={"kernel": Kernel})


def train_keys() -> dict[str, Setting]:
    """The keys of ``[train]``: what `fit` takes, but for where it writes and what it shows."""
    return settings(fit, given=("run_dir", "resume", "progress"))


def sample_keys() -> dict[str, Setting]:
    """The keys of ``[sample]``."""
    return keys_of(draw)


def optimizer_keys() -> dict[str, Setting]:
    """The keys of ``[optimizer]`` beside the optimiser's own."""
    return settings(adjusted)


def adjusted(
    make: Callable[[Any], optax.GradientTransformation],
    learning_rate: Any,
    updates: Any,
    *,
    schedule: Literal["constant", "cosine", "linear"] = "constant",
    clip_gradient: float | None = None,
) -> optax.GradientTransformation:
    """An optimiser whose learning rate follows a schedule to zero, with a bound on the gradient's global norm."""
    positive("learning_rate", learning_rate)
    schedules = {
        "constant": lambda: learning_rate,
        "cosine": lambda: optax.cosine_decay_schedule(learning_rate, updates),
        "linear": lambda: optax.linear_schedule(learning_rate, 0.0, updates),
    }
    optimizer = make(schedules[schedule]())
    if clip_gradient is None:
        return optimizer
    positive("clip_gradient", clip_gradient)
    return optax.chain(optax.clip_by_global_norm(clip_gradient), optimizer)


def _toy(n: int = 10_000, n_test: int = 2_000) -> None:
    """The options that every toy has."""


def loader(name: str) -> Callable[..., data.Dataset] | None:
    """The function that loads what is no toy; none for a toy."""
    if name in data.TOYS:
        return None
    if name in data.CATALOGUE:
        return getattr(data, name)
    reader = loading.path_reader(Path(name))
    if reader is None:
        raise ValueError(f"data.name: {loading.unknown_name(name, Path(name))}")
    return reader


def data_keys(name: str) -> dict[str, Setting]:
    """The keys of ``[data]`` beside the name: the options of what loads the data set of that name."""
    load = loader(name)
    if load is None:
        return settings(_toy) | settings(data.TOYS[name], given=("key", "n"))
    path = [] if name in data.CATALOGUE else list(inspect.signature(load).parameters)[:1]
    return settings(load, given=("key", "progress", *path))
