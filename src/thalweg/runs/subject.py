"""What the metrics of a run are computed from: its model, its held-out data, its samples."""

import functools
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg import evaluate
from thalweg.core import (
    ConditionalEnergy,
    Energy,
    Estimate,
    HasFreeEnergy,
    HasLogZ,
    LatentEnergy,
    Space,
    given,
    is_score,
    space_of,
)
from thalweg.data import Dataset
from thalweg.energies import marginal
from thalweg.evaluate.normalisable import find_escape
from thalweg.noise import Uniform
from thalweg.plot.points import is_image
from thalweg.runs.digests import digest_arrays, digest_values
from thalweg.runs.progress import working
from thalweg.samplers import MALA, AnnealedLangevin, Langevin
from thalweg.spaces import Discrete, Finite, Interval, Real, as_points
from thalweg.train import Run
from thalweg.train.drawing import energies, model_of_points
from thalweg.train.evaluation import spread_rows
from thalweg.train.sampling import training_kernel

_LEAST_POINTS, _MOST_POINTS = 100, 2000  # training rows that the estimate of log Z is given


class Rows(NamedTuple):
    """Rows of data ``x`` ``(n, *event)`` with their labels, if they have any; what they are in words; their name."""

    x: np.ndarray
    y: np.ndarray | None
    words: str
    name: str = ""


class _OnInterval(Energy):
    """An energy on R^d, restricted to the interval that its chains are clipped to."""

    energy: Any
    space: Interval = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return self.energy(x)


class Subject:
    """A run to be evaluated.

    ``data`` are the run's own data, ``rows`` rows to evaluate on in place of its test rows, ``other`` those of another
    kind, to be told apart from them; ``name`` is that of the run's data. ``draw()`` returns the arrays of
    ``samples.npz``; it is called when samples are first asked for.
    """

    def __init__(
        self,
        run: Run,
        data: Dataset | None,
        draw: Callable[[], dict[str, np.ndarray]],
        *,
        rows: Rows | None = None,
        other: Rows | None = None,
        name: str = "data",
        seed: int = 0,
        confidence: float = 0.95,
        progress: bool = False,
    ):
        self.run, self.data, self.given, self.other = run, data, rows, other
        self.name, self.seed, self.confidence, self.progress, self._draw = name, seed, confidence, progress, draw
        self._log_z: dict[int | None, Estimate] = {}

    def key_of(self, name: str) -> PRNGKeyArray:
        """The random key of a metric, which does not depend on the other metrics that are computed."""
        return jax.random.fold_in(jax.random.key(self.seed), zlib.crc32(f"evaluate {name}".encode()))

    @property
    def kernel(self) -> Any:
        """The kernel that samples the run, as configured or as it was trained; None if it has none of its own."""
        source = self.run.source
        return training_kernel(source.objective, self.run.state) if source.kernel is None else source.kernel

    @property
    def sigmas(self) -> np.ndarray | None:
        """The noise levels of a noise-conditional model; None for any other."""
        return np.asarray(self.kernel.sigmas) if isinstance(self.kernel, AnnealedLangevin) else None

    @functools.cached_property
    def model(self) -> Any:
        """The model as a function of one point, and of its label if it is conditional on labels.

        A noise-conditional model is taken at its last noise level, a latent energy as its free energy. An energy whose
        chains are clipped to an interval is a density on that interval: outside, nothing is ever drawn.
        """
        model = model_of_points(self.run.energy, self.kernel)
        if isinstance(model, HasFreeEnergy):
            return marginal(model)
        bounds, space = self.kernel.clip_x if isinstance(self.kernel, Langevin) else None, space_of(model)
        if bounds is None or not isinstance(space, Real) or is_score(model) or isinstance(model, ConditionalEnergy):
            return model
        return _OnInterval(model, Interval(float(bounds[0]), float(bounds[1]), space.shape))  # pyright: ignore

    @property
    def space(self) -> Space | None:
        """Where the points of the model live."""
        return space_of(self.model)

    @property
    def is_score(self) -> bool:
        """Whether the model is a score network, which has no energy."""
        return is_score(self.model)

    @property
    def is_conditional(self) -> bool:
        """Whether the model is conditional on labels."""
        return isinstance(self.model, ConditionalEnergy)

    @property
    def is_latent(self) -> bool:
        """Whether the energy of a point without its latent value is unknown."""
        return isinstance(self.model, LatentEnergy)

    @property
    def is_discrete(self) -> bool:
        """Whether the points are discrete."""
        return isinstance(self.space, Discrete)

    @property
    def is_image(self) -> bool:
        """Whether the points are images."""
        return self.data is not None and len(self.data.x_train.shape) == 4 and is_image(self.data.x_train.shape[1:])

    @functools.cached_property
    def pixel_levels(self) -> int | None:
        """The number of values of a pixel, if pixels are the middles of equal bins of [-1, 1]; None if they are not."""
        if not self.is_image or self.data is None:
            return None
        values = np.unique(self.data.x_train[spread_rows(len(self.data.x_train), _MOST_POINTS)]).astype(float)
        levels = round(2 / np.diff(values).min()) if len(values) > 1 else 0
        places = (values + 1) / 2 * levels - 0.5
        on_bins = levels >= 2 and np.abs(values).max() < 1 and np.abs(places - places.round()).max() < 0.01
        return levels if on_bins else None

    @property
    def has_classes(self) -> bool:
        """Whether every row of the data has one class."""
        labels = None if self.data is None else self.data.y_train
        return labels is not None and labels.ndim == 1 and 2 <= len(np.unique(labels)) <= len(labels) / 5

    @property
    def is_held_out(self) -> bool:
        """Whether there are rows that the run was not trained on."""
        return self.given is not None or (self.data is not None and self.data.x_test is not None)

    @functools.cached_property
    def rows(self) -> Rows:
        """The given rows, else the test rows, else the training rows; their words say which."""
        if self.given is not None:
            return self.given._replace(x=self.as_points(self.given.x))
        assert self.data is not None  # metrics that use rows require them
        test, words = self.is_held_out, "test rows" if self.is_held_out else "training rows"
        x, y = (self.data.x_test, self.data.y_test) if test else (self.data.x_train, self.data.y_train)
        assert x is not None
        return Rows(self.as_points(x), None if y is None else np.asarray(y), f"{len(x)} {words}")

    @functools.cached_property
    def training_rows(self) -> Rows:
        """As many training rows as there are test rows, evenly spaced."""
        assert self.data is not None
        chosen = spread_rows(len(self.data.x_train), len(self.rows.x))
        labels = None if self.data.y_train is None else np.asarray(self.data.y_train)[chosen]
        return Rows(self.as_points(self.data.x_train[chosen]), labels, f"{len(chosen)} training rows")

    @functools.cached_property
    def samples(self) -> dict[str, np.ndarray]:
        """The arrays of ``samples.npz``: ``x``, and ``conditions`` of a conditional model."""
        return self._draw()

    def log_z(self, condition: int | None = None) -> Estimate:
        """log Z of the model, or of a conditional one given its condition; a ValueError if Z is infinite.

        Its random key is its own, so that every metric that needs log Z uses the same estimate.
        """
        if condition not in self._log_z:
            model = self.model if condition is None else given(self.model, condition)
            self._refuse_infinite(model)
            name, space = "log_z" if condition is None else f"log_z {condition}", space_of(model)
            how: dict[str, Any] = {"samples": self._known_points(condition)}
            if isinstance(space, Interval):
                # the uniform density is near: energies of images differ little for so many dimensions, so that a few
                # temperatures are enough, and the longer trajectories of the default kernel would be wasted
                how = {"base": Uniform(space.low, space.high, space.shape), "kernel": MALA(0.1)}
            self._log_z[condition] = evaluate.log_z(
                model, key=self.key_of(name), confidence=self.confidence, progress=self.progress, **how
            )
        return self._log_z[condition]

    def _known_points(self, condition: int | None) -> np.ndarray | None:
        """Training rows, of one class if a condition is given: where the mass of the model should be; None if few."""
        if self.data is None:
            return None
        x = self.data.x_train
        if condition is not None and self.data.y_train is not None:
            x = x[self.data.y_train == condition]
        return self.as_points(x[spread_rows(len(x), _MOST_POINTS)]) if len(x) >= _LEAST_POINTS else None

    def _refuse_infinite(self, model: Any) -> None:
        """Raise if the energy falls without end in some direction of R^d."""
        space = space_of(model)
        if not isinstance(space, Real) or isinstance(model, HasLogZ):
            return
        norms = np.sqrt(np.sum(self.rows.x.reshape(len(self.rows.x), -1).astype(float) ** 2, axis=1))
        scale = float(np.mean(norms)) or 1.0
        with working("checking that Z is finite", self.progress):
            escape = find_escape(model, space.shape, scale, key=self.key_of("escape"))
        if escape is not None:
            raise ValueError(
                "expected an energy that grows in every direction, as a finite Z needs, got one that falls without end "
                "in some; train a confined model (energy.type=ConfinedMLP, tw.energies.confined), or clip the chains "
                "(clip_x)"
            )

    def class_probabilities(self, x: np.ndarray) -> np.ndarray:
        """``p(y | x) ∝ exp(-E(x, y))`` of a model conditional on classes, ``(rows, classes)``."""
        logits = -self._energies_by_class(x)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def detection_energies(self, x: np.ndarray) -> np.ndarray:
        """The energy of every row; of a model conditional on classes, summed over them: ``-log Σ_y exp(-E(x, y))``."""
        if not self.is_conditional:
            return self.energies(x)
        values = -self._energies_by_class(x)
        top = values.max(axis=1)
        return -(top + np.log(np.exp(values - top[:, None]).sum(axis=1)))

    def _energies_by_class(self, x: np.ndarray) -> np.ndarray:
        space = self.model.condition_space
        if not isinstance(space, Finite) or space.shape != ():
            raise ValueError("expected a model conditional on classes, got one with other conditions; leave this out")
        return np.stack([self.energies(x, np.full(len(x), each)) for each in space.levels], axis=1).astype(float)

    def digest(self, what: str) -> str:
        """A digest of one of the inputs: ``rows``, ``training``, ``samples`` or ``other``."""
        if what == "samples":
            return digest_arrays([self.samples["x"], self.samples.get("conditions")])
        if what == "training":
            return digest_arrays(self.data or [])
        rows = self.rows if what == "rows" else self.other
        assert rows is not None
        return digest_values(rows.words, digest_arrays([rows.x, rows.y]))

    def as_points(self, x: Any) -> np.ndarray:
        """Rows as points of the model's space; discrete data are often stored in another type."""
        return np.asarray(as_points(space_of(self.run.energy), x))

    def energies(self, x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        """The energy of every row."""
        return energies(self.model, x, y if self.is_conditional else None)
