"""Create `.venv-peers` from `peers-requirements.txt`; options are passed on to pip.

    python benchmarks/make_peers.py [pip options]

If the default package index has only CUDA builds of torch, give the index of the CPU builds in the options.
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
    # torch first, so that the other packages use this build and do not download another one
    for wanted in ([torch], ["-r", str(REQUIREMENTS)]):
        subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", *options, *wanted], check=True)
    return _check(torch.removeprefix("torch=="))


def _check(version: str) -> int:
    """Check that the environment has the pinned torch and no GPU packages."""
    listing = subprocess.run(
        [PYTHON, "-m", "pip", "list", "--format", "json"], check=True, capture_output=True, text=True
    ).stdout
    installed = {entry["name"].lower(): entry["version"] for entry in json.loads(listing)}
    if installed["torch"].partition("+")[0] != version:
        print(f"expected torch {version}, got {installed['torch']}; remove {ENVIRONMENT.name} and build it again")
        return 1
    cuda = [name for name in installed if name.startswith("nvidia-") or name == "triton"]
    if cuda:
        print(f"expected a CPU build of torch, got one with {', '.join(cuda)}; name a CPU index in the options")
        return 1
    print(", ".join(f"{name} {installed[name]}" for name in ("torch", "torchebm", "ebmkit")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
