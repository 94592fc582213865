"""`load`: any data set, by its name in the catalogue or by a path."""

import difflib
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from thalweg.core import as_path
from thalweg.data.checks import Dataset, check_array, check_labels, hold_out
from thalweg.data.folders import read_image_folder
from thalweg.data.formats import read_cifar10, read_idx
from thalweg.data.images import celeba, cifar10, digits, fashion_mnist, mnist, scale_pixels
from thalweg.data.mixed_tables import read_table
from thalweg.data.pictures import Crop, Size
from thalweg.data.sources import CATALOGUE
from thalweg.data.tables import read_csv, read_npy, read_npz
from thalweg.data.toys import TOYS

_IMAGES: dict[str, Callable[..., Dataset]] = {
    "digits": digits,
    "mnist": mnist,
    "fashion_mnist": fashion_mnist,
    "cifar10": cifar10,
    "celeba": celeba,
}
_X_NAMES = ("x", "X", "data", "images", "arr_0")
_Y_NAMES = ("y", "Y", "labels", "label", "target", "targets")


def load(source: str | Path, **options: Any) -> Dataset:
    """Load a data set, by its name in the catalogue or from a file or folder, and check it.

    | source | options |
    |---|---|
    | a toy (`two_moons`, …) | `n=10000`, `n_test=2000`, `key=None`, and those of the toy, such as `sigma` |
    | `digits`, `mnist`, `fashion_mnist`, `cifar10`, `celeba` | those of the function of that name |
    | `.npy`, `.npz` | `raw`, `test_fraction`, `key`; for `.npz` also `x` and `y`, the names of the arrays to take |
    | `.csv`, `.tsv` | `label`, `delimiter`, `drop`, `standardise`, `test_fraction`, `key` |
    | an IDX file, a `.tar.gz` of CIFAR-10 | `raw` |
    | a folder: MNIST-style IDX files, CIFAR-10 batches, CelebA, or images | `raw` and those of the reader |

    Values are float32 unless `raw`. Byte arrays with image axes, (n, height, width) or (n, height, width, 1 or 3), are
    scaled to (-1, 1), or kept if all values are 0 and 1; other integers keep their values. `test_fraction` holds out
    random rows if the source has no test rows; `key=None` means `jax.random.key(0)`, so the same rows every time. From
    an `.npz` file, `x_train`, `y_train`, `x_test` and `y_test` are taken by name, or else `x` and `y` or another common
    name; validation arrays are ignored (`read_npz` reads them). From a CSV file, columns named in `drop` are left out;
    numbers are not changed, or with `standardise=True` encoded as by `read_table`, which also takes categories and
    missing values. Pictures have one channel if all of them are grey.

    >>> load("checkerboard", n=100).x_train.shape
    (100, 2)
    >>> load("checkrboard")
    Traceback (most recent call last):
    ValueError: checkrboard: expected a data set's name or a path, got neither; did you mean 'checkerboard'?
    """
    name, path = str(source), as_path("source", source)
    if name in TOYS:
        return _check(_toy(name, options), name)
    if name in _IMAGES:
        return _check(_call(_IMAGES[name], name, options), name)
    reader = path_reader(path)
    if reader is None:
        raise ValueError(unknown_name(name, path))
    return _check(_call(reader, name, options, path), name)


def unknown_name(name: str, path: Path) -> str:
    if path.exists():
        return (
            f"{name}: expected .npy, .npz, .csv, .tsv, an IDX file, a CIFAR-10 .tar.gz or a folder, "
            "got another kind of file; convert it to .npz"
        )
    if len(path.parts) > 1 or path.suffix:
        return f"{name}: expected a file or folder, got nothing there; check the path"
    near = difflib.get_close_matches(name, CATALOGUE, n=1, cutoff=0.5)
    fix = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(CATALOGUE)}"
    return f"{name}: expected a data set's name or a path, got neither; {fix}"


def _call(function: Callable[..., Dataset], name: str, options: dict[str, Any], *args: Any) -> Dataset:
    """Call a function with options; an unknown option is a ValueError."""
    known = [p.name for p in inspect.signature(function).parameters.values()][len(args) :]
    _check_options(name, options, known)
    return function(*args, **options)


def _check_options(name: str, options: dict[str, Any], known: list[str]) -> None:
    unknown = [option for option in options if option not in known]
    if unknown:
        raise ValueError(f"{name}: expected options among {', '.join(known)}, got {unknown[0]!r}; correct or remove it")


def _toy(name: str, options: dict[str, Any]) -> Dataset:
    draw = TOYS[name]
    own = [p for p in inspect.signature(draw).parameters if p not in ("key", "n")]
    _check_options(name, options, ["n", "n_test", "key", *own])
    sizes = {"n": 10_000, "n_test": 2_000, "key": None} | options
    train, test = jax.random.split(_key(sizes["key"]))
    shape = {option: value for option, value in options.items() if option in own}
    return Dataset(
        np.asarray(draw(train, sizes["n"], **shape)), None, np.asarray(draw(test, sizes["n_test"], **shape)), None
    )


def _key(key: jax.Array | None) -> jax.Array:
    return jax.random.key(0) if key is None else key


def path_reader(path: Path) -> Callable[..., Dataset] | None:
    if path.is_dir():
        return _folder_reader(path)
    if not path.is_file():
        return None
    lower = path.name.lower()
    if lower.endswith((".tar.gz", ".tgz")):
        return _cifar10_archive
    if lower.removesuffix(".gz").endswith(("ubyte", ".idx")):
        return _idx_file
    return {".npy": _npy, ".npz": _npz, ".csv": _csv, ".tsv": _csv}.get(path.suffix.lower())


def _folder_reader(folder: Path) -> Callable[..., Dataset]:
    if any(folder.glob("train-images*idx3-ubyte*")):
        return mnist
    if any((folder / name).exists() for name in ("cifar-10-batches-py", "data_batch_1", "cifar-10-python.tar.gz")):
        return cifar10
    if (folder / "list_attr_celeba.txt").is_file():
        return celeba
    return _image_folder


def _image_folder(
    folder: Path,
    *,
    size: Size = None,
    crop: Crop = None,
    grey: bool | None = None,
    raw: bool = False,
    progress: bool = False,
    test_fraction: float = 0.0,
    key: jax.Array | None = None,
) -> Dataset:
    data = read_image_folder(folder, size=size, crop=crop, grey=grey, progress=progress)
    if not raw:
        x_test = None if data.x_test is None else scale_pixels(data.x_test)
        data = data._replace(x_train=scale_pixels(data.x_train), x_test=x_test)
    return _split(data, test_fraction, key)


def _cifar10_archive(path: Path, *, raw: bool = False) -> Dataset:
    return _as_floats(read_cifar10(path), raw)


def _idx_file(path: Path, *, raw: bool = False) -> Dataset:
    return _as_floats(Dataset(read_idx(path)), raw)


def _npy(path: Path, *, raw: bool = False, test_fraction: float = 0.0, key: jax.Array | None = None) -> Dataset:
    return _split(_as_floats(Dataset(read_npy(path)), raw), test_fraction, key)


def _npz(
    path: Path,
    *,
    x: str | None = None,
    y: str | None = None,
    raw: bool = False,
    test_fraction: float = 0.0,
    key: jax.Array | None = None,
) -> Dataset:
    arrays = read_npz(path)
    for name in (x, y):
        if name is not None and name not in arrays:
            raise ValueError(f"{path}: expected an array {name!r}, got {', '.join(arrays)}; choose one of these")
    if x is None and "x_train" in arrays:
        data = Dataset(*(arrays.get(name) for name in Dataset._fields))  # pyright: ignore[reportArgumentType]
    else:
        chosen = x or next((name for name in _X_NAMES if name in arrays), None)
        if chosen is None:
            raise ValueError(
                f"{path}: expected an array x_train or {', '.join(_X_NAMES)}, got {', '.join(arrays) or 'no arrays'}; "
                "say which to take with x="
            )
        labels = y or (None if x else next((name for name in _Y_NAMES if name in arrays), None))
        data = Dataset(arrays[chosen], None if labels is None else arrays[labels])
    return _split(_as_floats(data, raw), test_fraction, key)


def _csv(
    path: Path,
    *,
    label: str | int | None = None,
    delimiter: str | None = None,
    drop: Sequence[str] = (),
    standardise: bool = False,
    test_fraction: float = 0.0,
    key: jax.Array | None = None,
) -> Dataset:
    if standardise:
        if label is not None:
            raise ValueError(
                f"{path}: expected no label where the columns are standardised, since labels are a column like the "
                f"others, got {label!r}; leave out one of the two"
            )
        return _split(Dataset(read_table(path, drop=drop, delimiter=delimiter).x), test_fraction, key)
    table = read_csv(path, label=label, delimiter=delimiter, drop=drop)
    return _split(Dataset(table.x, table.y), test_fraction, key)


def _as_floats(data: Dataset, raw: bool) -> Dataset:
    """Numbers as float32, image bytes scaled; training and test rows in the same way."""
    if raw:
        return data
    train = data.x_train
    pictures = train.dtype == np.uint8 and (train.ndim == 3 or (train.ndim == 4 and train.shape[-1] in (1, 3)))
    binary = pictures and train.size > 0 and train.max() <= 1

    def convert(values: np.ndarray) -> np.ndarray:
        if pictures and values.ndim == 3:
            values = values[..., None]
        if pictures and not binary and values.dtype == np.uint8:
            return scale_pixels(values)
        # complex numbers and text are left for the check to refuse
        return values.astype(np.float32) if values.dtype.kind in "fiub" else values

    return data._replace(x_train=convert(train), x_test=None if data.x_test is None else convert(data.x_test))


def _split(data: Dataset, fraction: float, key: jax.Array | None) -> Dataset:
    if fraction == 0:
        return data
    if data.x_test is not None:
        raise ValueError(
            f"test_fraction: expected 0 where the source has its own {len(data.x_test)} test rows, got {fraction}; "
            "remove it"
        )
    return hold_out(data.x_train, data.y_train, fraction=fraction, key=_key(key))


def _check(data: Dataset, name: str) -> Dataset:
    """Check that there are rows of finite numbers, of one event shape, with one label each if there are labels."""
    for part in ("train", "test"):
        x, y = getattr(data, f"x_{part}"), getattr(data, f"y_{part}")
        if x is not None:
            check_array(x, integers=True, event_shape=data.x_train.shape[1:], name=f"{name}, x_{part}")
        if y is not None:
            check_labels(y, 0 if x is None else len(x), name=f"{name}, y_{part}")
    return data
