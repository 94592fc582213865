"""Builds `.venv-peers` from `peers-requirements.txt`; options given here go to pip.

    python benchmarks/make_peers.py [pip options]

Where the default package index carries torch with CUDA only, name the index of its CPU builds in the options.
"""

import json
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENT = HERE.parent / ".venv-peers"
REQUIREMENTS = HERE / "peers-requirements.txt"
PYTHON = ENVIRONMENT / "bin" / "python"


def main(options: list[str]) -> int:
    if not PYTHON.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    pinned = [line for line in REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]
    torch = next(line for line in pinned if line.startswith("torch=="))
    # alone first, so that a torch that is already there satisfies the others and none is fetched for them
    for wanted in ([torch], ["-r", str(REQUIREMENTS)]):
        subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", *options, *wanted], check=True)
    return _check(torch.removeprefix("torch=="))


def _check(version: str) -> int:
    """The environment as it turned out: the pinned torch, and nothing made for a GPU."""
    listing = subprocess.run(
        [PYTHON, "-m", "pip", "list", "--format", "json"], check=True, capture_output=True, text=True
    ).stdout
    installed = {entry["name"].lower(): entry["version"] for entry in json.loads(listing)}
    if installed["torch"].partition("+")[0] != version:
        print(f"expected torch {version}, got {installed['torch']}; remove {ENVIRONMENT.name} and build it anew")
        return 1
    cuda = [name for name in installed if name.startswith("nvidia-") or name == "triton"]
    if cuda:
        print(f"expected a CPU build of torch, got one with {', '.join(cuda)}; name a CPU index in the options")
        return 1
    print(", ".join(f"{name} {installed[name]}" for name in ("torch", "torchebm", "ebmkit")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
