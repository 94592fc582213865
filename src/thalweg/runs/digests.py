"""Digests of models and data, by which results are recognised as still valid."""

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np


def digest_arrays(arrays: Iterable[Any]) -> str:
    """A hash of the shapes, dtypes and numbers of arrays; None counts too.

    >>> digest_arrays([np.zeros(2)]) == digest_arrays([np.zeros(2)]), digest_arrays([None]) == digest_arrays([])
    (True, False)
    """
    total = hashlib.sha256()
    for each in arrays:
        if each is None:
            total.update(b"none")
            continue
        array = np.asarray(each)
        total.update(f"{array.dtype}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def digest_model(model: Any) -> str:
    """A hash of a model's weights and of its structure as printed.

    >>> import thalweg as tw
    >>> digest_model(tw.energies.Banana()) == digest_model(tw.energies.Banana())
    True
    """
    leaves, structure = jax.tree.flatten(model)
    arrays = [leaf for leaf in leaves if isinstance(leaf, (jax.Array, np.ndarray))]
    # a function is printed with its address in memory
    printed = re.sub(r" at 0x[0-9a-f]+", "", str(structure))
    return digest_values(printed, digest_arrays(arrays))


def digest_values(*values: Any) -> str:
    """A short hash of plain values.

    >>> digest_values(1, "a") == digest_values(1, "b")
    False
    """
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
