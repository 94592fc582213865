"""Out-of-distribution detection: how well a score of a model tells two data sets apart."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.errors import JAXTypeError
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import (
    Estimate,
    ScoreNetwork,
    check_scalar,
    compiled,
    count_chains,
    norm,
    one_of,
    point_like,
    require_model,
    space_of,
)
from thalweg.core import (
    score as score_at,
)
from thalweg.core.html import html_table
from thalweg.evaluate.roc import check_scores, detection
from thalweg.spaces import as_points
from thalweg.spaces.product import is_continuous

_SCORES = ("energy", "gradient_norm", "likelihood_ratio", "typicality")
_BLOCK = 500  # points evaluated at once


class OutOfDistribution(NamedTuple):
    """AUROC, AUPR and FPR95 of a score, each an `Estimate`, with the scores of all points; made by `ood`.

    >>> import jax.numpy as jnp, numpy as np
    >>> from thalweg.evaluate import ood
    >>> points = np.random.default_rng(0).normal(size=(2, 50, 2))
    >>> result = ood(lambda x: jnp.sum(x**2), points[0], points[1] + 5)
    >>> print(str(result).splitlines()[0])
    energy of 50 points inside and 50 outside
    >>> result.auroc.value, result.auroc.low < 1, result.fpr95.value
    (1.0, True, 0.0)
    """

    auroc: Estimate
    aupr: Estimate
    fpr95: Estimate
    score: str
    inside: np.ndarray
    outside: np.ndarray

    def __str__(self) -> str:
        about = f"{self.score} of {len(self.inside)} points inside and {len(self.outside)} outside"
        return "\n".join([about, f"AUROC  {self.auroc}", f"AUPR   {self.aupr}", f"FPR95  {self.fpr95}"])

    def _repr_html_(self) -> str:
        rows = [("AUROC", str(self.auroc)), ("AUPR", str(self.aupr)), ("FPR95", str(self.fpr95))]
        return html_table(rows, title=str(self).splitlines()[0])


def ood(
    model: Any,
    inside: PyTree,
    outside: PyTree,
    *,
    score: str | Callable[[Any], Array] = "energy",
    background: Any = None,
    reference: PyTree = None,
    key: PRNGKeyArray | None = None,
    confidence: float = 0.95,
    resamples: int = 1000,
) -> OutOfDistribution:
    r"""AUROC, AUPR and FPR95 of a model's score between points inside its distribution and points outside.

    A higher score means further outside. The score of a point x is one of

    - ``"energy"``: ``E(x)``, which is ``-log p(x)`` up to a constant. A simple image may have a lower energy than any
      of the training set (Nalisnick et al. 2019, "Do deep generative models know what they don't know?").
    - ``"gradient_norm"``: ``‖∇E(x)‖``, also ``‖s(x)‖`` for a score network (Grathwohl et al. 2020, JEM).
    - ``"likelihood_ratio"``: ``E(x) - E_background(x)``, where the background model was trained on perturbed or more
      general data (Ren et al. 2019).
    - ``"typicality"``: ``|E(x) - mean E(reference)|`` with training data as reference: points of too low an energy are
      outside too (Nalisnick et al. 2019, "Detecting out-of-distribution inputs … using typicality").
    - any function of one point that returns a scalar, written with ``jax.numpy``. For scores computed elsewhere use
      `detection`.

    The AUPR has the outside points as its positive class. The FPR95 is the share of outside points accepted by the
    threshold that accepts 95 % of the inside points. `detection` has the definitions and how the intervals are made
    and what they cover.

    Args:
        model: an energy of one point; for ``"gradient_norm"`` also a score network. With a function as the score it
            only says the space of the points, and may be ``None``.
        inside: at least 20 points ``(n, *event)``, or a tree of such arrays, that the model was not trained on.
        outside: at least 2 points ``(m, *event)`` of another data set.
        score: a name or a function of one point.
        background: the second model of ``"likelihood_ratio"``.
        reference: the points of ``"typicality"``.
        key: the random key of the bootstrap; by default ``jax.random.key(0)``.
        confidence: of the intervals.
        resamples: the number of bootstrap replicates.

    >>> import jax.numpy as jnp, numpy as np, thalweg as tw
    >>> x, y, training = np.random.default_rng(0).normal(size=(3, 200, 50))
    >>> model = tw.energies.Gaussian(jnp.zeros(50), jnp.eye(50))
    >>> too_close = 0.8 * y
    >>> tw.evaluate.ood(model, x, too_close).auroc.value < 0.2
    True
    >>> tw.evaluate.ood(model, x, too_close, score="typicality", reference=training).auroc.value > 0.8
    True
    """
    name = _check_score(model, score, background, reference)
    sets = {"inside": inside, "outside": outside} | ({} if reference is None else {"reference": reference})
    space = space_of(model)
    points = {label: as_points(space, x, label) for label, x in sets.items()}
    for label in list(points)[1:]:
        _check_alike(points["inside"], points[label], label)
    if name == "gradient_norm":
        _check_gradients(space, points["inside"])
    scored = {label: _score_points(model, score, background, x, label) for label, x in points.items()}
    if name == "typicality":
        middle = float(np.mean(scored["reference"]))
        if not np.isfinite(middle):
            raise ValueError(
                f"reference: expected points of finite energy, got a mean of {middle}; leave out those without support"
            )
        scored = {label: np.abs(values - middle) for label, values in scored.items()}
    found = detection(scored["inside"], scored["outside"], key=key, confidence=confidence, resamples=resamples)
    return OutOfDistribution(*found, name, scored["inside"], scored["outside"])


def _check_score(model: Any, score: Any, background: Any, reference: Any) -> str:
    """The name of the score; raises if the model does not have it, or if something it needs is missing or too much."""
    if callable(score) and not isinstance(score, type):
        name = getattr(score, "__name__", type(score).__name__)
    else:
        name = one_of("score", score, _SCORES)
        require_model("ood", model)
        if isinstance(model, ScoreNetwork) and name != "gradient_norm":
            raise ValueError(
                f"score: expected 'gradient_norm' for the score network {type(model).__name__}, which has no energy, "
                f"got {name!r}; choose 'gradient_norm'"
            )
    for label, value, user, what in (
        ("background", background, "likelihood_ratio", "a second energy"),
        ("reference", reference, "typicality", "training points"),
    ):
        if (value is not None) != (score == user):
            wanted, got = (what, "none") if score == user else ("none", "one")
            fix = f"give {label}=" if score == user else f"leave it out, or choose {user!r}"
            raise ValueError(f"{label}: expected {wanted} for the score {name!r}, got {got}; {fix}")
    if background is not None:
        require_model("background", background)
        if isinstance(background, ScoreNetwork):
            raise ValueError(
                f"background: expected an energy, got the score network {type(background).__name__}; "
                "train an energy, or choose score='gradient_norm'"
            )
    return name


def _check_alike(inside: PyTree, other: PyTree, label: str) -> None:
    """Raise if two sets of points differ in structure or in the shape of a point."""
    first, second = point_like(inside), point_like(other)
    shapes = [jax.tree.map(lambda leaf: leaf.shape, each) for each in (first, second)]
    if jax.tree.structure(first) != jax.tree.structure(second) or shapes[0] != shapes[1]:
        raise ValueError(
            f"{label}: expected points of shape {shapes[0]} as inside has, got {shapes[1]}; bring both to one shape"
        )


def _check_gradients(space: Any, points: PyTree) -> None:
    """Raise if there is no gradient in the points."""
    whole = not all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(points))
    if whole or (space is not None and not is_continuous(space)):
        got = "whole numbers" if space is None else str(space)
        raise ValueError(
            f"score: expected a continuous space for 'gradient_norm', got {got} without gradients; choose 'energy'"
        )


def _score_points(model: Any, score: Any, background: Any, points: PyTree, label: str) -> np.ndarray:
    """The score of every point, in double precision; for ``"typicality"`` the energy."""
    if score == "gradient_norm":
        return check_scores(_evaluate(_gradient_norms, model, points), label)
    if callable(score):
        try:
            return check_scores(_evaluate(_values, score, points), label)
        except JAXTypeError:
            raise ValueError(
                "score: expected a function written with jax.numpy, got one that cannot be compiled; compute the "
                "scores of all points yourself and give them to tw.evaluate.detection"
            ) from None
    scores = check_scores(_evaluate(_values, model, points), label)
    if background is None:
        return scores
    with np.errstate(invalid="ignore"):  # the difference of two infinite energies is refused
        return check_scores(scores - _evaluate(_values, background, points), label)


def _evaluate(function: Callable[..., Array], model: Any, points: PyTree) -> np.ndarray:
    """``function(model, block)`` over all points; the last block is filled up, so that all share one program."""
    check_scalar(model, points)
    count = count_chains(points)
    values = []
    for start in range(0, count, _BLOCK):
        rows = np.minimum(np.arange(start, start + min(_BLOCK, count)), count - 1)
        block = jax.tree.map(lambda leaf, rows=rows: leaf[rows], points)
        values.append(np.asarray(function(model, block))[: count - start])
    return np.concatenate(values).astype(np.float64)


@compiled
def _values(model: Any, points: PyTree) -> Array:
    return jax.vmap(model)(points)


@compiled
def _gradient_norms(model: Any, points: PyTree) -> Array:
    return jax.vmap(lambda x: norm(score_at(model, x)))(points)
