"""What `thalweg train` takes: presets, TOML files and paths to the user's own data."""

from importlib import resources
from pathlib import Path
from typing import Any

from thalweg.runs.hints import did_you_mean


def presets() -> dict[str, str]:
    """The text of every preset, by name."""
    folder = resources.files("thalweg.cli") / "presets"
    files = sorted(folder.iterdir(), key=lambda each: each.name)
    return {each.name.removesuffix(".toml"): each.read_text("utf-8") for each in files if each.name.endswith(".toml")}


def about(text: str) -> str:
    """The description of a preset: the comment in its first line."""
    return text.partition("\n")[0].removeprefix("#").strip()


def own_data(name: str) -> Path | None:
    """The path of the user's own data, if ``name`` is a folder or a file that is not TOML; else None."""
    path = Path(name).expanduser()
    if name in presets() or not path.exists() or (path.is_file() and path.suffix.lower() in ("", ".toml")):
        return None
    return path


def find(name: str) -> dict[str, Any]:
    """The configuration of a preset or in a TOML file, not completed yet."""
    from thalweg.core.toml import parse_toml, read_toml

    known = presets()
    if name in known:
        return parse_toml(known[name], f"preset {name}")
    path = Path(name).expanduser()
    if path.is_file() or path.suffix == ".toml" or len(path.parts) > 1:
        return read_toml(path)
    raise ValueError(
        f"{name}: expected a preset ({', '.join(known)}), a TOML file, a CSV file or a folder of pictures, got none; "
        f"{did_you_mean(name, known)}"
    )
