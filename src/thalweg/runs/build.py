"""Build the objects of a training run from a completed configuration."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import ConditionalEnergy, Kernel, Objective
from thalweg.data import Dataset, load
from thalweg.objectives import NoiseConditionalScoreMatching
from thalweg.runs.data_tables import data_keys, loader
from thalweg.runs.energy_table import ENERGIES
from thalweg.runs.objective_table import OBJECTIVES, TRAIN
from thalweg.runs.optimizer_tables import OPTIMIZERS, SCHEDULES, adjusted
from thalweg.runs.progress import working
from thalweg.runs.sampler_tables import CHOICES, KERNELS
from thalweg.runs.settings import NONE, NUMBERS, Setting, Table
from thalweg.samplers.starts import Noise, uniform_noise


class Parts(NamedTuple):
    """The objects that a configuration describes; ``train_key`` is the random key of training."""

    dataset: Dataset
    energy: Any
    objective: Objective
    optimizer: optax.GradientTransformation
    kernel: Kernel | None
    noise: Noise | None
    train_key: PRNGKeyArray

    @property
    def rows(self) -> Any:
        """The data for `fit`: the training rows, with their labels if the energy is conditional on labels."""
        labelled = isinstance(self.energy, ConditionalEnergy)
        # the condition may also be a noise level, which the objective draws itself
        labelled = labelled and not isinstance(self.objective, NoiseConditionalScoreMatching)
        if not labelled:
            return self.dataset.x_train
        if self.dataset.y_train is None:
            raise ValueError(
                f"data.name: expected labels for {type(self.energy).__name__}, got a data set without; "
                "choose a labelled one, such as digits"
            )
        return self.dataset.x_train, self.dataset.y_train


class Rules(NamedTuple):
    """The parts of a configuration that can be built without the data."""

    objective: Objective
    optimizer: optax.GradientTransformation
    kernel: Kernel | None
    noise: Noise | None


def rules(config: Mapping[str, Any]) -> Rules:
    """Build the objective, the optimiser, the kernel and the noise; constructors check what a type cannot."""
    sample = config["sample"]
    if _has_preset(config["energy"]):
        # a preset knows its shape without the data, and tracing the constructor costs nothing
        jax.eval_shape(lambda key: eqx.filter(_energy(config["energy"], (), key), eqx.is_array), jax.random.key(0))
    return Rules(
        _made("objective", config["objective"], OBJECTIVES),
        _optimizer(config["optimizer"], config["train"]["steps"]),
        None if sample["kernel"] == NONE else _made("sample.kernel", sample["kernel"], KERNELS),
        _noise("sample.noise", sample["noise"]),
    )


def build(config: Mapping[str, Any], dataset: Dataset | None = None, progress: bool = False) -> Parts:
    """Build all parts of a run; the same configuration always gives the same parts.

    ``dataset`` is the data set of the configuration, if it is already loaded.
    """
    made = rules(config)
    energy_key, train_key, _ = _keys(config["seed"])
    dataset = load_data(config, progress) if dataset is None else dataset
    energy = _energy(config["energy"], dataset.x_train.shape[1:], energy_key)
    return Parts(dataset, energy, *made, train_key)


def sampling_key(seed: int) -> PRNGKeyArray:
    """The random key of a run's samples."""
    return _keys(seed)[2]


def _keys(seed: int) -> Array:
    """The random keys of the energy's weights, of training and of sampling."""
    return jax.random.split(jax.random.key(seed), 3)


def _has_preset(config: Mapping[str, Any]) -> bool:
    return config.get("preset", NONE) != NONE


def _energy(config: Mapping[str, Any], shape: tuple[int, ...], key: PRNGKeyArray) -> Any:
    """The energy for points of the data's shape; a preset has its own shape, which `fit` checks against the data."""
    return _made("energy", config, ENERGIES, key=key, **({} if _has_preset(config) else {"shape": shape}))


def _made(where: str, config: Mapping[str, Any], table: Table, **given: Any) -> Any:
    """Build the object that a table with a type describes; ``given`` holds further arguments, such as a random key."""
    maker, keys = table[config["type"]]
    wanted = inspect.signature(maker).parameters
    arguments = _arguments(where, config, keys) | {key: each for key, each in given.items() if key in wanted}
    return _call(where, maker, **arguments)


def _call(where: str, maker: Callable[..., Any], **arguments: Any) -> Any:
    """``maker(**arguments)``, with ``where`` in front of the message of a ValueError."""
    try:
        return maker(**arguments)
    except ValueError as problem:
        raise ValueError(f"{where}: {problem}") from problem


def _arguments(where: str, config: Mapping[str, Any], known: Mapping[str, Setting]) -> dict[str, Any]:
    return {name: _argument(f"{where}.{name}", config[name], setting) for name, setting in known.items()}


def _argument(where: str, value: Any, setting: Setting) -> Any:
    if None in setting.types and value == NONE:
        return None
    for kind, table in CHOICES.items():
        if kind in setting.types:
            return _made(where, value, table)  # pyright: ignore[reportArgumentType]
    if Noise in setting.types:
        return _noise(where, value)
    if NUMBERS in setting.types and isinstance(value, list):
        return jnp.asarray(value, float)
    return _tuples(value)


def _tuples(value: Any) -> Any:
    """Lists as tuples, which can be hashed if a constructor keeps them as static fields."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _noise(where: str, value: Any) -> Noise | None:
    return None if value == NONE else _call(where, uniform_noise, **value)


def _optimizer(config: Mapping[str, Any], updates: int) -> optax.GradientTransformation:
    maker, keys = OPTIMIZERS[config["type"]]
    own = _arguments("optimizer", config, keys)
    rate = own.pop("learning_rate")
    extra = _arguments("optimizer", config, SCHEDULES)
    return _call(
        "optimizer",
        adjusted,
        make=lambda learning_rate: maker(learning_rate, **own),
        learning_rate=rate,
        updates=updates,
        **extra,
    )


def load_data(config: Mapping[str, Any], progress: bool = False) -> Dataset:
    """Load the data set of a configuration."""
    name = config["data"]["name"]
    options = _arguments("data", config["data"], data_keys(name))
    function = loader(name)
    if function is not None and "progress" in inspect.signature(function).parameters:
        return load(name, **options, progress=progress)
    with working(f"loading {name}", progress):
        return load(name, **options)


def train_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `fit` that ``[train]`` gives."""
    return _arguments("train", config["train"], TRAIN)
