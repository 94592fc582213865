"""Choose settings for the user's own data: a table in a CSV file, or a folder of pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from thalweg.core.assignments import assign
from thalweg.data import load, measure_pictures, read_table
from thalweg.data.columns import describe
from thalweg.data.loading import path_reader, unknown_name
from thalweg.runs.config import takes
from thalweg.runs.settings import NONE

_TABLES = (".csv", ".tsv")
_LEAST_ROWS = 10
_MOST_LINES = 40  # columns described on the screen
_MOST_SIDE = 64  # pixels; larger pictures are resized
_OPERATIONS = 7e12  # of a training: about a minute on two cores
_CHAIN_STEPS = 20
_BATCH = 64


class Choice(NamedTuple):
    """A configuration, not completed yet, and sentences that say what was found and chosen."""

    config: dict[str, Any]
    sentences: list[str]


def choose_settings(path: Path, assignments: Sequence[str] = ()) -> Choice:
    """Look at the data and choose a model, an objective and the number of updates.

    Args:
        path: a CSV or TSV file, or anything that `thalweg.data.load` reads as images.
        assignments: settings by the user; those of the data, such as ``data.drop``, are used when the data are read.
    """
    options = assign({}, list(assignments), takes).get("data", {})
    options = {name: value for name, value in options.items() if value != NONE}
    if path.suffix.lower() in _TABLES and not path.is_dir():
        return _choose_for_table(path, options)
    reader = path_reader(path)
    if reader is None:
        raise ValueError(
            f"{unknown_name(str(path), path)}; to train on it, give a table (.csv, .tsv) or a folder of pictures"
        )
    if reader.__name__ == "_image_folder":
        return _choose_for_folder(path, options)
    shape = load(path, **options).x_train.shape
    if len(shape) != 4 or shape[-1] not in (1, 3):
        raise ValueError(
            f"{path}: expected a table (.csv, .tsv) or pictures, got rows of shape {shape[1:]}; save them as CSV, or "
            "write a configuration, beginning with `thalweg train two-moons --dry-run`"
        )
    found = f"{path.name}: {shape[0]} pictures of {shape[2]} × {shape[1]} pixels, {_colours(shape[-1])}"
    return _choose_for_pictures(path, dict(options), shape[0], shape[1:], [found])


def _choose_for_table(path: Path, options: Mapping[str, Any]) -> Choice:
    known = {name: options[name] for name in ("drop", "delimiter") if name in options}
    table = read_table(path, **known)
    rows, width = table.x.shape
    if rows < _LEAST_ROWS:
        raise ValueError(f"{path}: expected at least {_LEAST_ROWS} rows to train on, got {rows}; add some")
    batch = min(128, rows)
    config = {
        "data": {"name": str(path), "standardise": True, **options},
        "energy": {"type": "ConfinedMLP", "width": 64, "depth": 2},
        "objective": {
            "type": "MaximumLikelihood",
            "steps": 40,
            # keeps energies near zero: without it the energies diverged on tables of a few hundred rows
            "energy_penalty": 0.01,
            "kernel": {"type": "Langevin", "step_size": 0.03},
            "start": {"type": "ReplayBuffer", "size": 2000, "rejuvenation": 0.05},
        },
        # the weight decay prevents overfitting of small tables
        "optimizer": {"type": "adamw", "learning_rate": 1e-3, "weight_decay": 1.0, "schedule": "cosine"},
        "train": {"steps": 1500, "batch_size": batch, "ema": 0.99},
        "sample": {"chains": 1000, "steps": 500},
    }
    columns = table.columns.columns
    coordinates = "coordinate" if width == 1 else "coordinates"
    sentences = [
        f"{path.name}: {rows} rows, {len(columns)} columns as {width} {coordinates} of mean 0 and spread 1",
        *(f"  {column.name}: {describe(column)}" for column in columns[:_MOST_LINES]),
        *([f"  and {len(columns) - _MOST_LINES} more columns"] if len(columns) > _MOST_LINES else []),
    ]
    return Choice(config, sentences)


def _choose_for_folder(path: Path, options: Mapping[str, Any]) -> Choice:
    given = dict(options)
    if "size" in given and "grey" in given:  # pictures of any size and kind are converted
        size, count, channels = given["size"], None, 1 if given["grey"] else 3
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        found = f"{path.name}: pictures made {width} × {height} pixels, {_colours(channels)}"
        return _choose_for_pictures(path, given, count, (height, width, channels), [found])
    pictures = measure_pictures(path, same_size="size" not in given, same_kind="grey" not in given)
    given.setdefault("grey", pictures.grey)
    channels = 1 if given["grey"] else 3
    sentences = [
        f"{path.name}: {pictures.count} pictures of {pictures.width} × {pictures.height} pixels, {_colours(channels)}"
    ]
    height, width = pictures.height, pictures.width
    if "size" in given:
        size = given["size"]
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        sentences.append(f"  resized to {width} × {height} (data.size)")
    elif isinstance(given.get("crop"), int) or given.get("crop") == "square":
        side = given["crop"] if isinstance(given["crop"], int) else min(height, width)
        height, width = side, side
    elif min(height, width) > _MOST_SIDE:
        scale = _MOST_SIDE / min(height, width)
        height, width = round(height * scale), round(width * scale)
        given["size"] = [height, width]
        sentences.append(f"  resized to {width} × {height}, as larger ones train slowly; data.size sets another size")
    return _choose_for_pictures(path, given, pictures.count, (height, width, channels), sentences)


def _colours(channels: int) -> str:
    return "grey" if channels == 1 else "in colour"


def _choose_for_pictures(
    path: Path, options: dict[str, Any], count: int | None, shape: tuple[int, ...], sentences: list[str]
) -> Choice:
    height, width, channels = shape
    layers = choose_layers(height, width)
    batch = _BATCH if count is None else min(_BATCH, count)
    # chains of twenty steps, each a forward and a backward pass, and the update itself
    operations = 2 * count_products(layers, height, width, channels) * batch * (2 * _CHAIN_STEPS + 6)
    updates = int(min(max(_OPERATIONS / operations, 100), 1000))
    # the more pixels, the longer the way from noise to a picture, so steps are as long as they may be
    step_size = round(max(3.0, 0.18 * (height * width * channels) ** 0.5), 1)
    noise = 1.0 if min(height, width) <= 16 else 0.3
    config = {
        "data": {"name": str(path), **options},
        "energy": {"type": "ConvNet", "layers": [list(layer) for layer in layers], "dense": [128]},
        "objective": {
            "type": "MaximumLikelihood",
            "steps": _CHAIN_STEPS,
            "kernel": {"type": "Langevin", "step_size": step_size, "noise_scale": 0.005, "clip_x": [-1.0, 1.0]},
            "start": {"type": "from_noise", "noise": {"low": -noise, "high": noise}},
        },
        "optimizer": {"type": "adam", "learning_rate": 6e-3, "schedule": "cosine"},
        "train": {"steps": updates, "batch_size": batch, "ema": 0.99},
        # as many steps as in training: a short-run model is its chain
        "sample": {"chains": 100, "steps": _CHAIN_STEPS},
    }
    return Choice(config, [*sentences, "  pixels scaled to -1 … 1"])


def choose_layers(height: int, width: int) -> list[tuple[int, int, int, int]]:
    """Convolutions ``(kernel, stride, padding, channels)`` that reduce pictures of any size to at most four pixels.

    Each halves the side of the picture, except the first, which does so only for large pictures.

    >>> choose_layers(8, 8)
    [(3, 1, 1, 32), (4, 2, 1, 64)]
    >>> choose_layers(64, 85)
    [(4, 2, 1, 16), (4, 2, 1, 32), (4, 2, 1, 64), (4, 2, 1, 128)]
    """
    side = min(height, width)
    if side > 40:
        layers, side = [(4, 2, 1, 16)], side // 2
    else:
        layers = [(3, 1, 1, 32 if side <= 16 else 16)]
    while side > 4:
        layers.append((4, 2, 1, min(2 * layers[-1][3], 128)))
        side //= 2
    return layers


def count_products(layers: list[tuple[int, int, int, int]], height: int, width: int, channels: int) -> int:
    """The number of multiplications in the convolutions of one picture.

    >>> count_products([(3, 1, 1, 2)], 4, 4, 1)
    288
    """
    total = 0
    for kernel, stride, padding, outputs in layers:
        height, width = ((side + 2 * padding - kernel) // stride + 1 for side in (height, width))
        total += height * width * kernel**2 * channels * outputs
        channels = outputs
    return total


def describe_settings(config: Mapping[str, Any]) -> str:
    """A sentence that says what will be trained, for how long, and how to change it."""
    energy, train = config["energy"], config["train"]
    if energy["type"] == "ConvNet" and isinstance(energy["layers"], list):
        size = f" of {len(energy['layers'])} convolutions (energy.layers)"
    elif "width" in energy and "depth" in energy:
        size = f" of {energy['depth']} layers of {energy['width']} units (energy.depth, energy.width)"
    else:
        size = ""
    return (
        f"model: {energy['type']}{size} by {config['objective']['type']}, {train['steps']} updates of "
        f"{train['batch_size']} (train.steps, train.batch_size); change any with --set, see all with --dry-run"
    )
