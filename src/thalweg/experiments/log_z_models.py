"""Models with known log Z, from easy to hard, for measuring how often an interval covers it."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from thalweg import exact
from thalweg.energies import RBM, Funnel, GaussianMixture, Grid, Ising, Potts


class KnownModel(NamedTuple):
    """A model of a family with its exact log Z, and its arrays for other libraries, see `peers_log_z`."""

    family: str
    energy: Any
    log_z: float
    arrays: dict[str, Any]


def _single(array: Any) -> np.ndarray:
    return np.asarray(array, np.float32)


def _rbm(random: np.random.Generator, number: int) -> KnownModel:
    """Sizes in turn; the weights' scale from mild (0.5/√n) to hard (3/√n)."""
    visible, hidden = ((30, 8), (60, 14), (100, 20))[number % 3]
    scale = random.uniform(0.5, 3.0) * 2 / np.sqrt(hidden)
    weights = _single(scale * random.normal(size=(visible, hidden)))
    biases = [_single(0.5 * random.normal(size=size)) for size in (visible, hidden)]
    rbm = RBM(visible, hidden, weights)
    rbm = _with_biases(rbm, *biases)
    fields = {"kind": "rbm", "weights": weights, "visible": biases[0], "hidden": biases[1]}
    return KnownModel("RBM", rbm, float(rbm.log_z), fields)


def _with_biases(rbm: RBM, visible: np.ndarray, hidden: np.ndarray) -> RBM:
    parts = lambda machine: (machine.visible.bias, machine.hidden.bias)
    return eqx.tree_at(parts, rbm, (jnp.asarray(visible), jnp.asarray(hidden)))


def _lattice(random: np.random.Generator, number: int) -> KnownModel:
    """4×5 lattices from disordered to ordered, with and without a field; every third is a glass of 18 spins."""
    if number % 3 == 2:
        couplings = np.triu(random.normal(size=(18, 18)), 1) * random.uniform(0.3, 2.0) / np.sqrt(18)
        weights = _single(couplings + couplings.T)
        energy = Ising(weights, bias=_single(0.2 * random.normal(size=18)))
    else:
        field = 0.0 if number % 2 else float(random.uniform(0, 0.3))
        energy = Ising(Grid((4, 5), weight=float(random.uniform(0.1, 0.9))), bias=field)
        weights = _single(energy.coupling.field(jnp.eye(20)))
    fields = {"kind": "ising", "couplings": weights, "bias": np.asarray(energy.bias)}
    return KnownModel("Ising", energy, float(exact.log_z(energy)), fields)


def _potts(random: np.random.Generator, number: int) -> KnownModel:
    """3×3 lattices of 3 or 4 labels, from disordered to ordered."""
    k = 3 + number % 2
    bias = _single(0.2 * random.normal(size=(9, k)))
    energy = Potts(Grid((3, 3), weight=float(random.uniform(0.2, 1.6))), k, bias=bias)
    couplings = np.asarray(energy.coupling.field(jnp.eye(9)))
    fields = {"kind": "potts", "couplings": couplings, "levels": np.asarray(k), "bias": bias}
    return KnownModel("Potts", energy, float(exact.log_z(energy)), fields)


def _mixture_model(family: str, weights: Any, means: Any, covariances: Any) -> KnownModel:
    arrays = [_single(part) for part in (weights, means, covariances)]
    fields = dict(zip(("weights", "means", "covariances"), arrays, strict=True))
    return KnownModel(family, GaussianMixture(*arrays), 0.0, {"kind": "mixture", **fields})


def _mixture(random: np.random.Generator, number: int) -> KnownModel:
    """Five Gaussians in 2, 4, 8 or 16 dimensions, with centres one to four standard deviations apart per dimension."""
    d = (2, 4, 8, 16)[number % 4]
    roots = random.normal(size=(5, d, d)) / np.sqrt(d)
    covariances = 0.3 * np.eye(d) + np.einsum("kij,klj->kil", roots, roots)
    means = random.uniform(1.0, 4.0) * random.normal(size=(5, d))
    return _mixture_model("mixture", random.dirichlet(2 * np.ones(5)), means, covariances)


def _funnel(random: np.random.Generator, number: int) -> KnownModel:
    """Neal's funnel in 2, 5 or 10 dimensions, with scales from 1 to 3."""
    d, scale = (2, 5, 10)[number % 3], float(random.uniform(1.0, 3.0))
    energy = Funnel(d, scale)  # pyright: ignore[reportCallIssue]
    fields = {"kind": "funnel", "dim": np.asarray(d), "scale": np.asarray(scale)}
    return KnownModel("funnel", energy, float(energy.log_z), fields)


def _spike(random: np.random.Generator, number: int) -> KnownModel:
    """A spike with 30 to 95 % of the mass in a unit slab, of 1/10 to 1/50 of its width, in 2 to 10 dimensions, at the
    centre or (in 2 and 4 dimensions) beside it."""
    d = (2, 4, 7, 10)[number % 4]
    width, share = float(np.exp(random.uniform(np.log(0.02), np.log(0.1)))), float(random.uniform(0.3, 0.95))
    away = random.normal(size=d)
    away *= random.uniform(0.0, 1.5 if d <= 4 else 0.0) / np.linalg.norm(away)
    covariances = np.stack([width**2 * np.eye(d), np.eye(d)])
    return _mixture_model("spike in slab", [share, 1 - share], np.stack([away, np.zeros(d)]), covariances)


FAMILIES: dict[str, Callable[[np.random.Generator, int], KnownModel]] = {
    "RBM": _rbm,
    "Ising": _lattice,
    "Potts": _potts,
    "mixture": _mixture,
    "funnel": _funnel,
    "spike in slab": _spike,
}


def known_models(seed: int, each: int) -> Iterator[KnownModel]:
    """``each`` models of every family, the same for a seed whatever the number.

    >>> model = next(known_models(0, 1))
    >>> model.family, model.energy.space.shape
    ('RBM', (30,))
    """
    for place, make in enumerate(FAMILIES.values()):
        for number in range(each):
            yield make(np.random.default_rng([seed, place, number]), number)
