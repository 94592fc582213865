"""The report of a run: its configuration, results and figures on one self-contained HTML page."""

import importlib.metadata
import platform
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from thalweg import __version__
from thalweg.core.files import write_whole
from thalweg.report import figures
from thalweg.report.evaluation import evaluation_section, likelihood_tile
from thalweg.report.files import Folder, read_folder
from thalweg.report.sections import picture, placeholder, section
from thalweg.report.template import PAGE, STYLE

_LIBRARIES = ("jax", "equinox", "optax", "blackjax", "numpy", "scikit-learn", "matplotlib")
_CLASS_NUMBERS = frozenset(
    ("classes_covered", "classes", "mean_top_probability", "mean_top_probability_held_out", "classifier_accuracy")
)


def write_report(run_dir: str | Path) -> Path:
    """Write ``report.html`` into a run folder and return its path.

    The page is self-contained: style and figures are inside, nothing is fetched, and it follows the reader's light or
    dark setting. It is built only from the folder's ``config.toml``, ``metrics.jsonl``, ``results.json``,
    ``samples/samples.npz`` and ``samples/evaluation.npz``, so it can be rebuilt without training; the page says so if
    the run was not sampled or evaluated yet. ``samples.npz`` holds ``x`` (n, *event), and optionally ``data`` (m,
    *event), ``path`` (frames, chains, *event), ``path_steps`` (frames,), ``energy_trace`` (chains, frames),
    ``energy_data``, ``energy_test``, ``energy_samples``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "config.toml").write_text('[data]\\nname = "digits"')
    ...     page = write_report(folder).read_text(encoding="utf-8")
    >>> "No samples yet" in page
    True
    """
    folder = read_folder(run_dir)
    sections = [_samples(folder), _classes(folder), evaluation_section(folder), _training(folder)]
    sections += [
        _energies(folder),
        _chain(folder),
        _numbers(folder),
        section("Configuration", "", f"<pre>{escape(folder.config)}</pre>"),
    ]
    page = PAGE.substitute(
        title=escape(folder.path.resolve().name),
        style=STYLE,
        findings=_findings(folder.results),
        lead=_lead(folder),
        tiles=_tiles(folder.results),
        sections="\n".join(each for each in sections if each),
        versions=escape(_versions()),
    )
    return write_whole(folder.path / "report.html", page.encode("utf-8"))


def _class_block(results: dict[str, Any]) -> dict[str, Any] | None:
    block = results.get("classes")
    return block if isinstance(block, dict) and block.keys() >= _CLASS_NUMBERS else None


def _findings(results: dict[str, Any]) -> str:
    """The findings of the doctor, at the top of the page."""
    found = results.get("findings")
    found = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    if not found:
        return ""
    ended = any(each.get("stops") for each in found)
    title = "This training ran away and was stopped" if ended else "This training finished, but something is wrong"
    items = "".join(f"<li>{escape(str(each.get('words', each.get('name'))))}</li>" for each in found)
    return f'<div class="findings" role="alert"><strong>{title}.</strong><ul>{items}</ul></div>'


def _lead(folder: Folder) -> str:
    """The main results in words."""
    classes = _class_block(folder.results)
    if classes is not None:
        covered, count = classes["classes_covered"], classes["classes"]
        how_many = f"all {count}" if covered == count else f"{covered} of {count}"
        words = (
            f"Samples drawn from fresh noise, not from the buffer, cover {how_many} classes, with a mean top-class "
            f"probability of {classes['mean_top_probability']:.3f} under a classifier trained on the real data; "
            f"held-out real data get {classes['mean_top_probability_held_out']:.3f}. The classifier is right on "
            f"{classes['classifier_accuracy']:.1%} of them."
        )
    elif "x" in folder.samples:
        words = f"{len(folder.samples['x'])} samples drawn from fresh noise."
    else:
        words = "This run has no samples yet."
    return f'<p class="lead">{escape(words)}</p>'


def _tiles(results: dict[str, Any]) -> str:
    tiles = []
    classes = _class_block(results)
    if classes is not None:
        tiles.append(("Classes covered", f"{classes['classes_covered']} of {classes['classes']}", "by the samples"))
        real = f"held-out real data: {classes['mean_top_probability_held_out']:.3f}"
        tiles.append(("Mean top-class probability", f"{classes['mean_top_probability']:.3f}", real))
    likelihood = likelihood_tile(results)
    if likelihood is not None:
        tiles.append(likelihood)
    if "training_seconds" in results:
        tiles.append(("Training", _duration(results["training_seconds"]), f"{results.get('updates', '?')} updates"))
    if "sampling_seconds" in results:
        tiles.append(("Sampling", _duration(results["sampling_seconds"]), f"{results.get('chains', '?')} chains"))
    cells = [
        f'<div class="tile"><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(beside)}</small></dd></div>'
        for name, value, beside in tiles
    ]
    return f'<dl class="tiles">{"".join(cells)}</dl>' if cells else ""


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def _samples(folder: Folder) -> str:
    x = folder.samples.get("x")
    if x is None:
        return placeholder("Samples", "No samples yet: thalweg sample draws them from the newest checkpoint.")
    data = folder.samples.get("data")
    beside = "" if data is None else " Real data beside them."
    words = f"Where chains that started from fresh noise ended.{beside}"
    return section("Samples", words, picture("Samples", lambda theme: figures.sample_grid(x, data, theme=theme)))


def _classes(folder: Folder) -> str:
    block = _class_block(folder.results)
    if block is None or not block.get("class_shares"):
        return ""
    shares = block["class_shares"]
    labels = block.get("labels", list(range(len(shares))))
    words = (
        f"The most probable class of each of {block.get('samples', 'the')} samples. "
        f"Classifier: {block.get('classifier', 'not named')}. A class is covered where at least one sample has it with "
        "probability above one half."
    )
    drawn = picture("Class shares", lambda theme: figures.class_shares(shares, labels, theme=theme))
    return section("Classes", words, drawn)


def _training(folder: Folder) -> str:
    if not folder.history and not folder.evaluations:
        return placeholder("Training", "No numbers of training yet: metrics.jsonl is not there or empty.")
    words = "Each update's value is faint, the running mean strong. The loss of an energy gap may be negative."
    words = words if "energy_gap" in folder.history else words.split(". ")[0] + "."
    drawn = picture(
        "Training curves", lambda theme: figures.training_curves(folder.history, folder.evaluations, theme=theme)
    )
    return section("Training", words, drawn)


def _energies(folder: Folder) -> str:
    arrays = folder.samples
    if not {"energy_data", "energy_samples"} <= arrays.keys():
        return placeholder("Energies", "No energies of data and samples yet: they are computed when samples are drawn.")
    data, samples, held_out = arrays["energy_data"], arrays["energy_samples"], arrays.get("energy_test")
    words = (
        "Where the model fits, the energies of data and samples agree. Samples lower than the data: the chains found "
        "places the data do not have. Held-out data higher than training data: the model remembers rows."
    )
    drawn = picture("Energy histograms", lambda theme: figures.energy_histograms(data, samples, held_out, theme=theme))
    return section("Energies", words, drawn)


def _chain(folder: Folder) -> str:
    arrays = folder.samples
    if not {"energy_trace", "path_steps"} <= arrays.keys():
        return placeholder("Chain", "No chain to follow yet: it is recorded when samples are drawn.")
    trace, steps, path = arrays["energy_trace"], arrays["path_steps"], arrays.get("path")
    words = "From fresh noise to a sample: the energy of each chain, and its states along the way."
    drawn = picture(
        "Chain trace",
        lambda theme: figures.chain_trace(trace, steps, path, energy_data=arrays.get("energy_data"), theme=theme),
    )
    return section("Chain", words, drawn)


def _numbers(folder: Folder) -> str:
    if not folder.results:
        return placeholder("Numbers", "No results yet: results.json is not there or empty.")
    shown = {name: value for name, value in folder.results.items() if name not in ("findings", "evaluation")}
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in _flat(shown))
    return section("Numbers", "", f'<div class="wide"><table>{rows}</table></div>')


def _flat(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Names and values as text, nested names joined by dots."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, list):
            yield before + name, ", ".join(map(_text, value))
        else:
            yield before + name, _text(value)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _versions() -> str:
    libraries = [f"{name} {importlib.metadata.version(name)}" for name in _LIBRARIES]
    return f"Written with thalweg {__version__}, Python {platform.python_version()}, {', '.join(libraries)}."
