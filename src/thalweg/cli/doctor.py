"""The checks of `thalweg doctor`: versions, the machine, data, optional packages, and whether a chain runs.

Packages are imported only inside their checks, so that a broken one is reported instead of ending the program.
"""

import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from thalweg import __version__

# the package that shows whether an extra is installed
EXTRAS = {"arviz": "arviz", "cuda": "jax-cuda13-plugin", "fid": "torch-fidelity"}
_OLDEST_PYTHON = (3, 11)
_LITTLE_MEMORY = 2e9
# settings that make everything slower, without making it wrong
_SLOW = {
    "JAX_DISABLE_JIT": "programs are not compiled",
    "JAX_DEBUG_NANS": "every operation is looked at for NaN",
    "JAX_DEBUG_KEY_REUSE": "every key is looked at",
}


class Finding(NamedTuple):
    """One row: what was checked, what was found, and the problem, if there is one."""

    what: str
    found: str
    problem: str = ""


def examine(environment: Mapping[str, str] | None = None) -> list[Finding]:
    """Run all checks, in the order of the table; ``environment`` is by default ``os.environ``."""
    environment = os.environ if environment is None else environment
    looks: list[Callable[[], Iterator[Finding]]] = [
        _versions,
        _requirements,
        _machine,
        lambda: _settings(environment),
        _devices,
        _data,
        _extras,
        _chain,
    ]
    findings = []
    for look in looks:
        try:
            findings += look()
        except Exception as problem:  # any failure of a check is a finding
            what = look.__name__.strip("_")
            findings.append(Finding(what, "failed", f"{type(problem).__name__}: {problem}"))
    return findings


def _versions() -> Iterator[Finding]:
    yield Finding("thalweg", __version__)
    old = sys.version_info < _OLDEST_PYTHON
    wanted = ".".join(map(str, _OLDEST_PYTHON))
    yield Finding("python", platform.python_version(), f"expected {wanted} or later" if old else "")
    yield Finding("system", platform.platform(terse=True))
    for name in ("jax", "jaxlib", "equinox", "optax", "blackjax"):
        version = _version(name)
        yield Finding(name, version or "missing", "" if version else f"pip install {name}")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _requirements() -> Iterator[Finding]:
    from packaging.requirements import Requirement

    try:
        wanted = [Requirement(line) for line in metadata.requires("thalweg") or []]
    except metadata.PackageNotFoundError:
        yield Finding("packages", "not compared, since thalweg itself is not installed")
        return
    wrong = []
    for requirement in wanted:
        version = _version(requirement.name)
        if requirement.marker is None and (version is None or not requirement.specifier.contains(version, True)):
            wrong.append(f"{requirement} (here: {version or 'none'})")
    found = f"{len(wrong)} not as required" if wrong else "all as required"
    yield Finding("packages", found, f"expected {', '.join(wrong)}; pip install --upgrade thalweg" if wrong else "")


def _machine() -> Iterator[Finding]:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Finding("cores", str(allowed))
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        yield Finding("memory", "unknown on this system")
        return
    page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    free = _free_memory()
    little = free is not None and free < _LITTLE_MEMORY
    yield Finding(
        "memory",
        f"{page * pages / 1e9:.1f} GB" + ("" if free is None else f", {free / 1e9:.1f} GB free"),
        "little is free: training images may not fit; end other programs" if little else "",
    )


def _free_memory() -> float | None:
    """The bytes of memory that a new program can use; None if the system does not say."""
    table = Path("/proc/meminfo")
    if not table.exists():
        return None
    lines = dict(line.split(":", 1) for line in table.read_text().splitlines() if ":" in line)
    return float(lines["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in lines else None


def _settings(environment: Mapping[str, str]) -> Iterator[Finding]:
    for name, consequence in _SLOW.items():
        value = environment.get(name, "")
        if value.lower() not in ("", "0", "false"):
            yield Finding("setting", f"{name}={value}", f"{consequence}, which is slow; unset it")
    flags = environment.get("XLA_FLAGS", "")
    if "xla_backend_optimization_level=0" in flags:
        yield Finding("setting", "XLA_FLAGS", "programs are compiled without optimisation, which is slow; unset it")


def _devices() -> Iterator[Finding]:
    import jax

    devices = jax.devices()
    graphics = shutil.which("nvidia-smi") is not None and devices[0].platform == "cpu"
    kinds = ", ".join(f"{count} {kind}" for kind, count in _counts(device.device_kind for device in devices).items())
    yield Finding(
        "devices", kinds, "there is an NVIDIA card that JAX does not use: pip install thalweg[cuda]" if graphics else ""
    )
    double = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    yield Finding("numbers", "double precision" if double else "single precision")


def _counts(words: Iterator[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return counts


def _data() -> Iterator[Finding]:
    from thalweg.data import data_folder, listing

    folder = data_folder()
    nearest = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    fetched = [row.name for row in listing() if row.size and row.present]
    blocked = not nearest.is_dir() or not os.access(nearest, os.W_OK)
    yield Finding(
        "data",
        f"{folder} ({', '.join(fetched) or 'nothing fetched yet'})",
        f"{nearest} cannot be written to: set THALWEG_DATA to another folder" if blocked else "",
    )


def _extras() -> Iterator[Finding]:
    for extra, package in EXTRAS.items():
        version = _version(package)
        yield Finding(f"extra {extra}", f"{package} {version}" if version else f"no: pip install thalweg[{extra}]")


def _chain() -> Iterator[Finding]:
    """Run a hundred short chains on a Gaussian twice, once with compilation, and check their mean."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from thalweg.energies import Gaussian
    from thalweg.samplers import MALA, sample

    keys = jax.random.split(jax.random.key(0))
    target, start = Gaussian(jnp.array([1.0, -1.0])), jnp.zeros((100, 2))
    seconds = []
    for key in keys:
        begin = time.perf_counter()
        chains = sample(target, MALA(1.0), start, key=key, draws=100, burn_in=50)
        draws = np.asarray(chains.draws, np.float64)
        seconds.append(time.perf_counter() - begin)
        # independent chains: five standard errors of their means
        means = draws.mean(axis=1)
        error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
        if not np.all(np.abs(means.mean(axis=0) - np.asarray(target.mean)) < 5 * error):
            yield Finding("chain", f"mean {means.mean(axis=0)}", "expected a mean of [1, -1]: the numbers are wrong")
            return
    compiling = max(seconds[0] - seconds[1], 0.0)
    yield Finding(
        "chain", f"right; compiled in {compiling:.2f} s, 100 chains of 150 steps in {seconds[1] * 1e3:.1f} ms"
    )
