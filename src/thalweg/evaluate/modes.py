"""Known modes: which of them the samples cover, and with which weights."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import bdtrc, chdtri, rel_entr

from thalweg.core import compiled, positive, static_number, whole_number
from thalweg.core.html import html_table
from thalweg.energies import GaussianMixture
from thalweg.evaluate.flat_samples import as_finite_points, flatten
from thalweg.evaluate.intervals import check_confidence, wilson

# the share of a Gaussian's samples outside the default radius
_TAIL = 1e-3
# the number of samples compared with all modes at once
_POINTS = 1024
# the number of modes shown by name in a text
_SHOWN = 10


class ModeCoverage(NamedTuple):
    """Which of the known modes have samples.

    ``covered`` of ``modes`` modes have samples, ``share`` is their quotient; ``expected`` is the mean number that as
    many independent samples with the true weights would cover; ``counts`` ``(modes,)`` are the samples of each mode,
    ``missing`` the numbers of modes that are not covered, and ``outside`` samples of ``samples`` belong to no mode.

    >>> import numpy as np, thalweg as tw
    >>> tw.evaluate.mode_coverage(3, np.array([0, 2, 2])).missing
    (1,)
    """

    covered: int
    modes: int
    share: float
    expected: float
    counts: np.ndarray
    missing: tuple[int, ...]
    outside: int
    samples: int

    def __str__(self) -> str:
        return (
            f"{self.covered} of {self.modes} modes covered ({self.expected:.1f} expected of {self.samples} samples), "
            f"{self.outside} samples outside"
        )

    def _repr_html_(self) -> str:
        gone = ", ".join(map(str, self.missing[:_SHOWN])) + (", …" if len(self.missing) > _SHOWN else "")
        rows = [("covered", f"{self.covered} of {self.modes}"), ("expected", f"{self.expected:.1f}")]
        rows += [("outside", f"{self.outside} of {self.samples} samples")]
        return html_table(rows + ([("missing", gone)] if gone else []), title="Modes")


class ModeWeights(NamedTuple):
    """The weights of known modes among the samples that belong to one of them.

    ``weights``, ``low``, ``high`` and ``true`` have shape ``(modes,)``; every interval covers the weight with
    probability ``confidence``. ``kl`` is ``Σ ŵ log(ŵ/w)`` of the estimated and the true weights in nats, and
    ``outside`` samples of ``samples`` belong to no mode. Without any sample in a mode the weights are NaN.

    >>> import numpy as np, thalweg as tw
    >>> tw.evaluate.mode_weights(2, np.array([0, 1, 1, 1])).weights.tolist()
    [0.25, 0.75]
    """

    weights: np.ndarray
    low: np.ndarray
    high: np.ndarray
    true: np.ndarray
    kl: float
    outside: int
    samples: int
    confidence: float
    method: str

    def __str__(self) -> str:
        pairs = zip(self.weights, self.true, strict=True)
        shown = ", ".join(f"{weight:.3g} (true {true:.3g})" for weight, true in list(pairs)[:_SHOWN])
        more = ", …" if len(self.weights) > _SHOWN else ""
        return f"{shown}{more}; KL {self.kl:.3g} nats, {self.outside} of {self.samples} samples outside, {self.method}"

    def _repr_html_(self) -> str:
        columns = zip(self.weights, self.low, self.high, self.true, strict=True)
        rows = [
            (number, f"{weight:.4g}", f"[{low:.4g}, {high:.4g}]", f"{true:.4g}")
            for number, (weight, low, high, true) in enumerate(columns)
        ]
        note = f"KL {self.kl:.4g} nats, {self.outside} of {self.samples} samples outside, {self.method}"
        return html_table(rows, ("mode", "weight", f"at {self.confidence:.0%}", "true"), "Weights of modes", note)


def mode_coverage(
    modes: Any, samples: Any, *, radius: float | None = None, weights: Any = None, least: int = 1
) -> ModeCoverage:
    """How many of the known modes the samples cover, and how many samples belong to none.

    A sample belongs to its nearest mode if it lies within ``radius`` of it. A mode is covered if at least ``least``
    samples belong to it. Few samples miss rare modes by chance: compare with ``expected``.

    Args:
        modes: a `GaussianMixture`, whose components are the modes; or centres ``(K, *event)``; or the number K of
            classes, if ``samples`` are class numbers, as a classifier of stacked images gives them.
        samples: ``(n, *event)``, or class numbers ``(n,)`` from 0 to K - 1.
        radius: for a mixture in units of each component's own deviation (Mahalanobis distance), by default the radius
            that holds 99.9 % of a Gaussian's samples (3.7 in two dimensions); for centres a Euclidean distance, by
            default half the smallest distance between two centres; none for classes.
        weights: the true weights ``(K,)`` for ``expected``; by default the mixture's own, or equal ones.
        least: the number of samples that cover a mode.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> centres = jnp.array([[i, j] for i in range(5) for j in range(5)], float)
    >>> grid = tw.energies.GaussianMixture(means=centres, covariances=0.01)
    >>> print(tw.evaluate.mode_coverage(grid, centres[:20]))
    20 of 25 modes covered (13.9 expected of 20 samples), 0 samples outside
    """
    least = whole_number("least", least, hint="1 is usual")
    assigned, _, true = _assign(modes, samples, radius, weights)
    inside = assigned[assigned >= 0]
    counts = np.bincount(inside, minlength=len(true))
    hit = counts >= least
    expected = float(np.sum(bdtrc(least - 1, len(assigned), true)))
    return ModeCoverage(
        covered=int(hit.sum()),
        modes=len(true),
        share=float(hit.mean()),
        expected=expected,
        counts=counts,
        missing=tuple(np.flatnonzero(~hit).tolist()),
        outside=len(assigned) - len(inside),
        samples=len(assigned),
    )


def mode_weights(
    modes: Any, samples: Any, *, radius: float | None = None, weights: Any = None, confidence: float = 0.95
) -> ModeWeights:
    """The weight of every known mode among the samples, with intervals, beside the true weights.

    For a `GaussianMixture` it is the mean responsibility ``w_k N(x; μ_k, Σ_k) / Σ_j w_j N(x; μ_j, Σ_j)``, which is the
    true weight if the samples come from the mixture; with modes apart, it is the share of samples in the mode. For
    centres and classes it is that share. Samples outside every mode are left out and counted. The intervals are
    Wilson's, for independent samples; draws of a chain need thinning first.

    Args:
        modes: as in `mode_coverage`.
        samples: as in `mode_coverage`.
        radius: as in `mode_coverage`.
        weights: the true weights ``(K,)``; by default the mixture's own, or equal ones.
        confidence: of each interval.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> bumps = tw.energies.two_bumps()
    >>> x = bumps.sample(jax.random.key(0), (4000,))
    >>> result = tw.evaluate.mode_weights(bumps, x)
    >>> bool((result.low < result.true).all() and (result.true < result.high).all()), result.true.round(3).tolist()
    (True, [0.6, 0.4])
    """
    confidence = check_confidence(confidence)
    assigned, shares, true = _assign(modes, samples, radius, weights)
    counted = assigned >= 0
    inside = int(counted.sum())
    counts = np.bincount(assigned[counted], minlength=len(true)) if shares is None else shares[counted].sum(axis=0)
    sums = counts.astype(float) if inside else np.full(len(true), np.nan)
    found = sums / max(inside, 1)
    low, high = wilson(sums, max(inside, 1), confidence)
    method = "mean responsibilities" if isinstance(modes, GaussianMixture) else "shares of samples"
    return ModeWeights(
        weights=found,
        low=low,
        high=high,
        true=true,
        kl=float(rel_entr(found, true).sum()),
        outside=len(assigned) - inside,
        samples=len(assigned),
        confidence=confidence,
        method=method,
    )


def _assign(modes: Any, samples: Any, radius: Any, weights: Any) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """The number of every sample's mode (-1 for none), responsibilities ``(n, K)`` for a mixture, the true weights."""
    if radius is not None:
        radius = static_number("radius", radius, positive)
    if isinstance(modes, GaussianMixture):
        x = as_finite_points(modes.space, samples, "samples")
        reach = float(np.sqrt(chdtri(max(1, modes.means[0].size), _TAIL))) if radius is None else radius
        distances, shares = (np.asarray(each) for each in _mixture(modes, x))
        own = np.asarray(jax.nn.softmax(modes.log_weights), float)
        nearest = distances.argmin(axis=1)
        assigned = np.where(distances.min(axis=1) <= reach, nearest, -1)
        return assigned, shares, _true_weights(weights, own)
    if np.ndim(modes) == 0:
        return _classes(whole_number("the number of classes", modes, 2), samples, radius, weights)
    centres = as_finite_points(None, modes, "modes")
    x = as_finite_points(None, samples, "samples")
    shapes = [jax.tree.map(lambda leaf: leaf.shape[1:], each) for each in (centres, x)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"expected samples and modes of one shape, got points of shapes {shapes[1]} and {shapes[0]}; "
            "give the centres as (K, *event)"
        )
    rows, middles = flatten(x), flatten(centres)
    if radius is None:
        apart = np.asarray(_distances(middles, middles)) + np.diag(np.full(len(middles), np.inf))
        radius = float(apart.min()) / 2
        if not 0 < radius < np.inf:
            raise ValueError(
                "expected at least two centres, all different, got others; give radius, or the centres once"
            )
    distances = np.asarray(_distances(rows, middles))
    assigned = np.where(distances.min(axis=1) <= radius, distances.argmin(axis=1), -1)
    return assigned, None, _true_weights(weights, np.full(len(middles), 1 / len(middles)))


def _classes(classes: int, samples: Any, radius: Any, weights: Any) -> tuple[np.ndarray, None, np.ndarray]:
    if radius is not None:
        raise ValueError("expected no radius with classes, got one; leave it out, or give centres as modes")
    labels = np.asarray(as_finite_points(None, samples, "samples"))
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= classes:
        raise ValueError(
            f"expected class numbers (n,) from 0 to {classes - 1} as samples, got {labels.dtype} of shape "
            f"{labels.shape} from {labels.min():g} to {labels.max():g}; classify the samples first"
        )
    return labels, None, _true_weights(weights, np.full(classes, 1 / classes))


def _true_weights(weights: Any, usual: np.ndarray) -> np.ndarray:
    if weights is None:
        return usual
    given = np.asarray(positive("weights", weights), float)
    if given.shape != usual.shape:
        raise ValueError(f"expected one weight for each of {len(usual)} modes, got shape {given.shape}; give them all")
    return given / given.sum()


@compiled
def _mixture(mixture: GaussianMixture, x: Any) -> Any:
    """Mahalanobis distances and responsibilities ``(n, K)``."""

    peaks = jax.vmap(mixture.component_log_probs)(mixture.means).diagonal()

    def one(point: Any) -> Any:
        log_probs = mixture.component_log_probs(point)
        # up to the constants of each component, the log density is minus half the squared distance
        return jnp.sqrt(jnp.maximum(2 * (peaks - log_probs), 0)), jax.nn.softmax(log_probs)

    return jax.lax.map(one, x, batch_size=_POINTS)


@compiled
def _distances(x: Any, centres: Any) -> Any:
    one = lambda point: jnp.sqrt(jnp.sum((point - centres) ** 2, axis=1))
    return jax.lax.map(one, x, batch_size=_POINTS)
