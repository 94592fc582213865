"""The optimisers a configuration may name, with their keys, and the keys that all of them share."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import optax

from thalweg.core import positive
from thalweg.runs.settings import Entry, Setting, Table

OPTIMIZERS: Table = {
    "adam": Entry(
        optax.adam,
        {
            "learning_rate": Setting((float,)),
            "b1": Setting((float,), 0.9),
            "b2": Setting((float,), 0.999),
            "eps": Setting((float,), 1e-08),
            "eps_root": Setting((float,), 0.0),
            "nesterov": Setting((bool,), False),
        },
    ),
    "adamw": Entry(
        optax.adamw,
        {
            "learning_rate": Setting((float,)),
            "b1": Setting((float,), 0.9),
            "b2": Setting((float,), 0.999),
            "eps": Setting((float,), 1e-08),
            "eps_root": Setting((float,), 0.0),
            "weight_decay": Setting((float,), 0.0001),
            "nesterov": Setting((bool,), False),
        },
    ),
    "rmsprop": Entry(
        optax.rmsprop,
        {
            "learning_rate": Setting((float,)),
            "decay": Setting((float,), 0.9),
            "eps": Setting((float,), 1e-08),
            "initial_scale": Setting((float,), 0.0),
            "eps_in_sqrt": Setting((bool,), True),
            "centered": Setting((bool,), False),
            "momentum": Setting((float, None), None),
            "nesterov": Setting((bool,), False),
            "bias_correction": Setting((bool,), False),
        },
    ),
    "sgd": Entry(
        optax.sgd,
        {
            "learning_rate": Setting((float,)),
            "momentum": Setting((float, None), None),
            "nesterov": Setting((bool,), False),
        },
    ),
}
SCHEDULES: Mapping[str, Setting] = {
    "schedule": Setting((Literal["constant", "cosine", "linear"],), "constant"),
    "clip_gradient": Setting((float, None), None),
}


def adjusted(
    make: Callable[[Any], optax.GradientTransformation],
    learning_rate: Any,
    updates: Any,
    *,
    schedule: Literal["constant", "cosine", "linear"] = "constant",
    clip_gradient: float | None = None,
) -> optax.GradientTransformation:
    """An optimiser with a learning-rate schedule and, if given, gradient clipping by global norm."""
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
