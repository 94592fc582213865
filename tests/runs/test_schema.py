"""The declared keys of a configuration, their types and defaults, agree with what the constructors take."""

import inspect
from pathlib import Path

import pytest
from tests.runs.signatures import settings

from thalweg import data
from thalweg.core import Kernel
from thalweg.data import loading
from thalweg.runs.data_tables import _EVERY_TOY, _READERS, _TOYS, data_keys
from thalweg.runs.energy_table import ENERGIES
from thalweg.runs.objective_table import OBJECTIVES, TRAIN
from thalweg.runs.optimizer_tables import OPTIMIZERS, SCHEDULES, adjusted
from thalweg.runs.sampler_tables import CHOICES, KERNELS, SAMPLE, STARTS, UNIFORM
from thalweg.samplers.starts import Noise, uniform_noise
from thalweg.train import fit
from thalweg.train.drawing import draw

# what follows from the data and the seed stands in no configuration
GIVEN = ("key", "shape")
TABLES = {"energy": ENERGIES, "objective": OBJECTIVES, "kernel": KERNELS, "start": STARTS, "optimizer": OPTIMIZERS}
ENTRIES = [(table, name) for table, entries in TABLES.items() for name in entries]


def of(maker):
    """What a constructor takes; objectives take any object as a kernel, since a user's need not be of our class."""
    return settings(maker, *CHOICES, Noise, given=GIVEN, named={"kernel": Kernel})


@pytest.mark.parametrize(("table", "name"), ENTRIES)
def test_every_entry_agrees_with_its_constructor(table, name):
    maker, keys = TABLES[table][name]
    assert dict(keys) == of(maker)


def test_the_keys_of_training_are_those_of_fit():
    assert dict(TRAIN) == settings(fit, given=("run_dir", "resume", "progress"))
    assert dict(SCHEDULES) == settings(adjusted)
    assert settings(uniform_noise) == UNIFORM


def test_the_keys_of_sampling_are_those_of_drawing():
    drawn = of(draw)
    assert SAMPLE.keys() == drawn.keys()
    # a configuration may leave the kernel to the run, and draw may not
    assert SAMPLE["kernel"].types == (*drawn["kernel"].types, None)
    assert all(SAMPLE[name] == drawn[name] for name in drawn if name != "kernel")


@pytest.mark.parametrize("name", data.CATALOGUE)
def test_the_keys_of_data_sets_are_those_of_their_loaders(name):
    if name in data.TOYS:
        assert {**_EVERY_TOY, **settings(data.TOYS[name], given=("key", "n"))} == data_keys(name)
        assert _TOYS.keys() == data.TOYS.keys()
    else:
        assert settings(getattr(data, name), given=("key", "progress")) == data_keys(name)


def test_every_reader_of_files_is_declared(tmp_path):
    import numpy as np

    np.save(tmp_path / "a.npy", np.zeros((3, 2)))
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2)))
    (tmp_path / "a.csv").write_text("1,2\n")
    (tmp_path / "a.idx").write_bytes(b"")
    (tmp_path / "a.tar.gz").write_bytes(b"")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(b"")
    readers = set()
    for path in (*tmp_path.iterdir(), Path(tmp_path, "pictures")):
        reader = loading.path_reader(path)
        assert reader is not None
        first = next(iter(inspect.signature(reader).parameters))
        assert settings(reader, given=("key", "progress", first)) == data_keys(str(path))
        readers.add(reader.__name__)
    assert readers | {"digits", "fashion_mnist", "cifar10", "celeba"} == _READERS.keys()
