"""Reproductions of published experiments: each writes a figure and its numbers.

An experiment is a function ``(key, progress) -> (figure, numbers)`` in a file of this folder, and a row in
`EXPERIMENTS`. If it has more results, such as an animation, it also returns a dictionary from file endings to bytes.
Its other arguments are options with defaults; an experiment of many trainings takes ``runs``, the folder in which each
training is kept and not repeated (see `run_folders`). The table contains the names of functions instead of importing
them, so that it can be listed without loading JAX.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from jaxtyping import PRNGKeyArray
    from matplotlib.figure import Figure


class Experiment(NamedTuple):
    """An experiment: its name, its title, its source, and its function as ``"module:function"``."""

    name: str
    title: str
    source: str
    function: str

    def run(self, key: "PRNGKeyArray", folder: str | Path, progress: bool = False, **options: Any) -> dict[str, Any]:
        """Run it: writes ``<folder>/<name>.png`` and ``<folder>/<name>.json`` and returns the numbers.

        ``options`` are arguments of its function; raises for an unknown one. An experiment of many trainings keeps them
        in ``<folder>/<name>/runs`` and goes on where it was stopped.

        >>> import jax, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     numbers = EXPERIMENTS["two-bumps"].run(jax.random.key(0), folder)
        >>> round(numbers["log_z"]["quadrature"], 3)  # log 5√(2π)
        2.528
        """
        module, _, name = self.function.partition(":")
        function: Callable[..., tuple[Any, ...]] = getattr(importlib.import_module(module), name)
        parameters = inspect.signature(function).parameters
        taken = [each for each in parameters if each not in ("key", "progress", "runs")]
        unknown = [each for each in options if each not in taken]
        if unknown:
            raise ValueError(
                f"{self.name}: expected options among {', '.join(taken) or 'none at all'}, got {', '.join(unknown)}; "
                "leave the others out"
            )
        if "runs" in parameters:
            options["runs"] = Path(folder) / self.name / "runs"
        figure, numbers, *files = function(key, progress, **options)
        save(folder, self.name, figure, numbers, *files)
        return numbers


EXPERIMENTS: dict[str, Experiment] = {
    "log-z-coverage": Experiment(
        "log-z-coverage",
        "the 95 % interval of log Z over 240 models with known log Z, from easy to hard",
        "evaluation: how often the interval covers",
        "thalweg.experiments.log_z_coverage:log_z_coverage",
    ),
    "two-bumps": Experiment(
        "two-bumps",
        "a 1-D density of two bumps: normalised, sampled exactly and by MCMC",
        "slides, p̃(x) = 3exp(-(x+2)²/2) + exp(-(x-4)²/8)",
        "thalweg.experiments.slides:two_bumps",
    ),
    "mh-example": Experiment(
        "mh-example",
        "Metropolis-Hastings on the 1-D density: its histogram against the normalised density",
        "slides, 1e5 samples, 1e3 burn-in, proposal N(x, 1)",
        "thalweg.experiments.slides:mh_example",
    ),
    "mh-proposal-width": Experiment(
        "mh-proposal-width",
        "acceptance and effective draws over the width of the proposal, on the 1-D density",
        "slides, what the proposal of Metropolis-Hastings does",
        "thalweg.experiments.mixing:mh_proposal_width",
    ),
    "mala-banana": Experiment(
        "mala-banana",
        "MALA on a bent Gaussian against exact samples",
        "slides, 1e4 samples, 200 burn-in",
        "thalweg.experiments.banana:mala_banana",
    ),
    "slow-mixing": Experiment(
        "slow-mixing",
        "mode weights 0.8 and 0.2 by Langevin, annealed Langevin and tempering",
        "slides, after Song and Ermon (2019), figure 3",
        "thalweg.experiments.mixing:slow_mixing",
    ),
    "objective-table": Experiment(
        "objective-table",
        "every objective on a mixture, a banana and a ring: KL, time and memory",
        "lecture notes, all training methods",
        "thalweg.experiments.learning:objective_table",
    ),
    "separated-modes": Experiment(
        "separated-modes",
        "eight separated modes of unequal weights: which objectives learn the weights",
        "lecture notes, where score matching and contrastive divergence fail",
        "thalweg.experiments.learning:separated_modes",
    ),
    "score-field": Experiment(
        "score-field",
        "the score of 1-D and 2-D mixtures, exact and learned, with the error",
        "slides, score of a 1-D mixture and score field of a 2-D one",
        "thalweg.experiments.score_fields:score_field",
    ),
    "noisy-marginals": Experiment(
        "noisy-marginals",
        "a mixture with more and more noise: its densities over a ladder of noise levels",
        "slides, noisy marginals, after Song and Ermon (2019)",
        "thalweg.experiments.score_fields:noisy_marginals",
    ),
    "manifold-hypothesis": Experiment(
        "manifold-hypothesis",
        "sliced score matching on data on a curve, with and without noise N(0, 1e-4)",
        "slides, after Song and Ermon (2019), figure 1",
        "thalweg.experiments.score_limits:manifold_hypothesis",
    ),
    "low-density-score": Experiment(
        "low-density-score",
        "where a learned score is wrong: its error against the density",
        "slides, after Song and Ermon (2019), figure 2",
        "thalweg.experiments.score_limits:low_density_score",
    ),
    "ncsn-modes": Experiment(
        "ncsn-modes",
        "mode weights from a learned score: wrong with Langevin, right with annealed Langevin",
        "slides, after Song and Ermon (2019), figure 3",
        "thalweg.experiments.score_modes:ncsn_modes",
    ),
    "cd-landscape": Experiment(
        "cd-landscape",
        "an energy landscape under updates of contrastive divergence, as an animation",
        "lecture notes, contrastive divergence",
        "thalweg.experiments.landscape:cd_landscape",
    ),
    "ncsn-digits": Experiment(
        "ncsn-digits",
        "a noise-conditional score network on the embedded 8×8 digits: samples, classes, chains",
        "after Song and Ermon (2019, 2020)",
        "thalweg.experiments.ncsn:ncsn_digits",
    ),
    "ncsn-mnist": Experiment(
        "ncsn-mnist",
        "the same on MNIST at 28×28; slow without an accelerator",
        "after Song and Ermon (2019, 2020)",
        "thalweg.experiments.ncsn:ncsn_mnist",
    ),
    "thesis-table-5-2": Experiment(
        "thesis-table-5-2",
        "inception score and Fréchet distance over the interval of AdaNCE, three seeds, with sample grids",
        "thesis (Xu 2022), Table 5.2 and Figures 5.3-5.5",
        "thalweg.experiments.thesis_scores:table_5_2",
    ),
    "thesis-intervals": Experiment(
        "thesis-intervals",
        "why longer intervals of AdaNCE are worse: one trained model trained on, over the rate and the interval",
        "beyond the thesis (Xu 2022): its Table 5.2",
        "thalweg.experiments.thesis_intervals:interval_rates",
    ),
    "thesis-figure-3-1": Experiment(
        "thesis-figure-3-1",
        "long-run samples over the rejuvenation of the buffer: energies and classes",
        "thesis (Xu 2022), Figure 3.1",
        "thalweg.experiments.thesis_rejuvenation:figure_3_1",
    ),
    "thesis-figure-3-2": Experiment(
        "thesis-figure-3-2",
        "the gradient along the chains over training, without spectral normalisation",
        "thesis (Xu 2022), Figure 3.2",
        "thalweg.experiments.thesis_signal:figure_3_2",
    ),
    "thesis-figure-3-3": Experiment(
        "thesis-figure-3-3",
        "the gradient along the chains over training, with spectral normalisation",
        "thesis (Xu 2022), Figure 3.3",
        "thalweg.experiments.thesis_signal:figure_3_3",
    ),
    "mutual-information": Experiment(
        "mutual-information",
        "5 to 80 nats of mutual information as a density ratio: one contrast fails, telescoping succeeds",
        "thesis (Xu 2022), outlook; after Rhodes, Xu and Gutmann (2020)",
        "thalweg.experiments.information:mutual_information",
    ),
    "thesis-table-3-1": Experiment(
        "thesis-table-3-1",
        "conditional, adversarial, flow and self-adapting NCE on one task, over its dimension",
        "thesis (Xu 2022), Table 3.1",
        "thalweg.experiments.thesis_methods:table_3_1",
    ),
    "adaptive-reuse": Experiment(
        "adaptive-reuse",
        "AdaNCE with fresh negatives and with shared ones, over the interval: KL against seconds",
        "beyond the thesis (Xu 2022)",
        "thalweg.experiments.adaptive:adaptive_reuse",
    ),
    "adaptive-control": Experiment(
        "adaptive-control",
        "how much control variates reduce the variance of AdaNCE's gradient, over the updates since the freezing",
        "beyond the thesis (Xu 2022): its outlook",
        "thalweg.experiments.control:adaptive_control",
    ),
    "adaptive-chains": Experiment(
        "adaptive-chains",
        "AdaNCE with short-run, noise-free, momentum and convergent chains: the bias of each",
        "beyond the thesis (Xu 2022): its outlook",
        "thalweg.experiments.adaptive:adaptive_chains",
    ),
    "adaptive-psi": Experiment(
        "adaptive-psi",
        "AdaBregman over the convex function and the interval",
        "beyond the thesis (Xu 2022): its outlook",
        "thalweg.experiments.adaptive:adaptive_psi",
    ),
    "bars-and-stripes": Experiment(
        "bars-and-stripes",
        "an RBM 16×16 on bars and stripes: CD, persistent chains, tempering and exact learning against the bound",
        "MacKay (2003); the benchmark of PyDeep and of Fischer and Igel (2014)",
        "thalweg.experiments.bars_and_stripes:bars_and_stripes",
    ),
    "rbm-mnist-small": Experiment(
        "rbm-mnist-small",
        "an RBM 784×16 on binary MNIST, plain and centred, with its exact log-likelihood",
        "Melchior, Fischer and Wiskott (2016); the tutorial of PyDeep",
        "thalweg.experiments.rbm_mnist_small:rbm_mnist_small",
    ),
    "hopfield-capacity": Experiment(
        "hopfield-capacity",
        "how many random patterns a Hopfield network holds: 0.138 n by Hebb's rule, more by the others",
        "Amit, Gutfreund and Sompolinsky (1985, 1987)",
        "thalweg.experiments.hopfield_capacity:hopfield_capacity",
    ),
    "hopfield-completion": Experiment(
        "hopfield-completion",
        "digits with a half hidden, completed by three storage rules and the modern network",
        "lecture notes, Hopfield networks; after Hopfield (1982) and Ramsauer et al. (2020)",
        "thalweg.experiments.hopfield_completion:hopfield_completion",
    ),
    "softplus-free-energy": Experiment(
        "softplus-free-energy",
        "the free energy of an RBM as a sum of softplus units, beside a Hopfield network of the same patterns",
        "lecture notes, free energy of the Bernoulli RBM (lemma 1.2, figure 4)",
        "thalweg.experiments.free_energy:softplus_free_energy",
    ),
    "maxent-dice": Experiment(
        "maxent-dice",
        "Jaynes's dice: the probabilities of maximum entropy for a mean that is not 3.5",
        "lecture 10, maximum entropy; after Jaynes (1963)",
        "thalweg.experiments.maximum_entropy:maxent_dice",
    ),
}


def save(
    folder: str | Path,
    name: str,
    figure: "Figure",
    numbers: Mapping[str, Any],
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Write ``<folder>/<name>.png``, ``<folder>/<name>.json`` and any other files, each atomically.

    >>> import tempfile
    >>> from thalweg.report.figures import canvas
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(folder, "empty", canvas(2, 1), {"answer": 42})
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['empty.json', 'empty.png']
    """
    from thalweg.core.files import write_json, write_whole
    from thalweg.report.figures import png

    write_whole(Path(folder) / f"{name}.png", png(figure))
    write_json(Path(folder) / f"{name}.json", numbers)
    for ending, content in (files or {}).items():
        write_whole(Path(folder) / f"{name}{ending}", content)
