"""`Run`, what a training returns: the trained model, its history, and methods to sample and evaluate it."""

from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from thalweg.core.html import html_table
from thalweg.samplers import Chains
from thalweg.samplers.starts import Noise
from thalweg.train.doctor import Finding
from thalweg.train.evaluation import evaluate_run
from thalweg.train.sampling import sample_run
from thalweg.train.source import Source


class Run(eqx.Module):
    """What `fit` returns.

    ``energy`` is the trained model, with averaged weights if ``ema`` was given; ``last`` is the model without
    averaging. ``params`` and ``state`` belong to the objective. ``history`` maps each metric to an array with one
    number per update, ``evaluations`` lists what the callbacks returned, ``findings`` what the doctor found.
    ``folder`` is the run folder, if there is one; ``source`` holds the objective, the data and the sampling settings.
    """

    energy: Any
    last: Any
    params: PyTree
    state: PyTree
    step: int
    history: dict[str, np.ndarray]
    evaluations: list[dict[str, float]]
    findings: tuple[Finding, ...] = eqx.field(static=True, default=())
    source: Source = eqx.field(static=True, default_factory=Source)

    @property
    def folder(self) -> Path | None:
        """The run folder; None if nothing was written."""
        return self.source.folder

    def sample(
        self,
        kernel: Any = None,
        *,
        key: PRNGKeyArray,
        chains: int = 100,
        draws: int = 1,
        burn_in: int | None = None,
        thin: int = 1,
        noise: Noise | None = None,
        conditions: PyTree | None = None,
        progress: bool = False,
    ) -> Chains:
        """Sample the trained model with chains that start from fresh noise.

        Args:
            kernel: by default the one it was trained with, or else a suitable one for its space.
            key: random key for all randomness.
            chains: the number of chains.
            draws: the number of draws kept per chain.
            burn_in: steps before the first kept draw; by default enough to pass all noise levels, or to take as many
                steps as in short-run training, or 499.
            thin: steps per kept draw.
            noise: where chains start; by default as in training.
            conditions: of a conditional model, one for each chain; by default the labels it was trained with, in turn.
            progress: show a progress bar.

        >>> import jax, optax, thalweg as tw
        >>> key_data, key_model, key_fit, key_chains = jax.random.split(jax.random.key(0), 4)
        >>> data, energy = tw.data.two_moons(key_data, 100), tw.energies.MLP(2, 8, key=key_model)
        >>> run = tw.fit(energy, data, tw.objectives.MaximumLikelihood(), optimizer=optax.adam(1e-3), steps=2,
        ...              batch_size=10, key=key_fit)
        >>> run.sample(key=key_chains, chains=5, draws=3, burn_in=10).draws.shape
        (5, 3, 2)
        """
        return sample_run(
            self,
            kernel,
            key=key,
            chains=chains,
            draws=draws,
            burn_in=burn_in,
            thin=thin,
            noise=noise,
            conditions=conditions,
            progress=progress,
        )

    def evaluate(
        self,
        data: PyTree = None,
        *,
        key: PRNGKeyArray,
        kernel: Any = None,
        chains: int | None = None,
        steps: int | None = None,
    ) -> dict[str, Any]:
        """Evaluate the trained model: the mean energies of training rows, test rows and samples, the gap between
        training rows and samples, and, if the data have classes, the scores of the samples under a classifier.

        ``thalweg train`` writes the same numbers to ``results.json``.

        Args:
            data: as `fit` takes them; by default those the run was trained on.
            key: random key of the samples.
            kernel: as in `sample`.
            chains: the number of samples; by default as configured, or else 100.
            steps: the number of steps from noise to a sample; by default as in `sample`.

        >>> import jax, optax, thalweg as tw
        >>> key_data, key_model, key_fit, key_chains = jax.random.split(jax.random.key(0), 4)
        >>> data, energy = tw.data.two_moons(key_data, 100), tw.energies.MLP(2, 8, key=key_model)
        >>> run = tw.fit(energy, data, tw.objectives.MaximumLikelihood(), optimizer=optax.adam(1e-3), steps=2,
        ...              batch_size=10, key=key_fit)
        >>> sorted(run.evaluate(key=key_chains, chains=5, steps=10))
        ['chains', 'energy_data', 'energy_gap', 'energy_samples', 'steps']
        """
        return evaluate_run(self, data, key=key, kernel=kernel, chains=chains, steps=steps)

    def _repr_html_(self) -> str:
        last = lambda values: f"{np.mean(values[-max(1, len(values) // 10) :]):.4g}"
        rows = [("energy", type(self.energy).__name__), ("updates", self.step)]
        rows += [(f"{name}, mean of the last tenth", last(values)) for name, values in self.history.items()]
        evaluated = self.evaluations[-1] if self.evaluations else {}
        rows += [(f"{name}, last evaluation", f"{value:.4g}") for name, value in evaluated.items() if name != "step"]
        return html_table(rows, title="Run")
