"""log Z of any energy: exact where that is possible, otherwise annealed, with an interval."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg import exact
from thalweg.core import (
    Estimate,
    HasExactLogZ,
    HasLogZ,
    Kernel,
    Space,
    compiled,
    flag,
    one_of,
    typed_key,
)
from thalweg.core.progress import progress_bar
from thalweg.core.random import normal, split
from thalweg.evaluate.annealing import Budget, anneal, summarise
from thalweg.evaluate.finite_paths import kernel_on_sites, path_on_sites
from thalweg.evaluate.intervals import check_confidence, normal_quantile
from thalweg.evaluate.log_z_input import (
    check_base,
    check_budget,
    check_moves,
    check_samples,
    check_values,
    prepare_energy,
)
from thalweg.evaluate.nested import nested_log_z
from thalweg.evaluate.paths import Affine, Flat, GaussianPath, Trajectories, UserBase
from thalweg.evaluate.real_paths import GROUPS, MOST_MOVES, SIZE, WIDTH, path_on_reals
from thalweg.evaluate.tails import check_tails
from thalweg.spaces import Finite, Product, Real, coordinates_of, on_reals, to_real

_METHODS = ("auto", "exact", "annealing", "nested")
_MOST_NESTED = 10  # dimensions up to which nested sampling checks an annealed estimate
_MOST_QUADRATURE = 3
_MOST_MODELS = 16  # annealed at once; the works of one take some hundred megabytes
_DRAWN = GROUPS * SIZE  # points at which an energy is looked at first


def log_z(
    energy: Any,
    *,
    key: PRNGKeyArray,
    space: Space | None = None,
    samples: Any = None,
    confidence: float = 0.95,
    method: str = "auto",
    base: Any = None,
    kernel: Kernel | None = None,
    seconds: float | None = None,
    evaluations: float | None = None,
    progress: bool = False,
) -> Estimate:
    r"""``log Z = log ∫ exp(-E(x)) dx`` (a sum on finite spaces) with a confidence interval.

    What is exact is used where there is such: the energy's own ``log_z``, the sum over the smaller side of a restricted
    Boltzmann machine, the sum over at most 2^25 states, quadrature in at most three dimensions. Everything else is
    annealed along ``U_β = -(1-β) log p₀ + β E`` from a base p₀ that can be sampled:

    1. On R^d (constrained spaces in their real coordinates) pilot runs fit a mixture of Gaussians as the base, with a
       component at each minimum that descents find. On finite spaces the base has independent sites: with the energy's
       own biases, with the marginals of ``samples`` (and then once more without them), or uniform.
    2. A pilot run chooses the temperatures so that each step keeps 0.9 of the effective sample size, tunes the step
       size at each, and counts the moves until the chains forget.
    3. On that ladder, now fixed, 16 independent groups of 128 chains run forward from the base and backward from the
       model (from ``samples``, if given). ``Ẑ`` forward is unbiased at any mixing, so ``ln Z ≥ ln Ẑ - ln(1/δ)`` with
       probability ``1 - δ``: the estimate's ``bound``. The value is the bridge of both directions, the interval
       Student's over the groups, widened by the distance of the two directions. If they disagree, the ladder is made
       finer; if they still do, the interval holds both and ``warning`` says so.
    4. A third run cools the chains to low energies, lets them move on the model and goes backward from there. If it
       finds more mass, annealing may have stayed in the wrong phase: the interval holds both, and ``warning`` says so.
    5. On R^d with at most 10 dimensions nested sampling looks for mass that annealing has missed, as it may at a
       first-order transition; ``warning`` says if it found more.

    No method that only evaluates the energy finds a narrow mode far from everything else. Samples of the model do:
    give them if you have them. References: Neal (2001); Del Moral, Doucet and Jasra (2006); Bennett (1976); Grosse,
    Ancha and Roy (2016); Skilling (2006).

    Args:
        energy: an energy, or any callable of one point with ``space`` given.
        key: the random key.
        space: where ``x`` lives, if the energy has no space.
        samples: points of the model (or data it was trained on), ``(n, *event)``: the base is fitted to them, and the
            backward runs start there.
        confidence: of the interval.
        method: ``"auto"``, ``"exact"`` (an error if nothing exact exists), ``"annealing"`` or ``"nested"``.
        base: a density to anneal from, with ``sample(key, shape)`` and ``log_prob(x)``; on finite spaces, none.
        kernel: the kernel of the moves; its step size is tuned at each temperature.
        seconds: go on for about so long, after the pilot runs; the interval narrows with it.
        evaluations: go on for about so many evaluations of the energy or its gradient, pilot runs not counted.
        progress: show a bar.

    Returns:
        The estimate; ``parts`` has ``forward``, ``reverse`` and, if it ran, ``nested``; ``cold`` if low energies had
        more mass.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> print(tw.evaluate.log_z(tw.energies.two_bumps(), key=jax.random.key(0)))
    2.52838  [2.52838, 2.52838] at 95%, the energy's own log Z
    >>> lattice = tw.energies.Ising(tw.energies.Grid((4, 4), weight=0.4))
    >>> estimate = tw.evaluate.log_z(lattice, key=jax.random.key(1), method="annealing")
    >>> estimate.low < tw.exact.log_z(lattice) < estimate.high
    Array(True, dtype=bool)
    """
    key, confidence = typed_key(key), check_confidence(confidence)
    one_of("method", method, _METHODS)
    flag("progress", progress)
    check_moves(kernel)
    budget = Budget(
        *(check_budget(name, value) for name, value in (("seconds", seconds), ("evaluations", evaluations)))
    )
    energy, known = prepare_energy(energy, space)
    points = None if samples is None else check_samples(samples, known)
    found = None if method in ("annealing", "nested") else _exact(energy, known, method == "exact")
    if found is not None:
        value, how = found
        return Estimate(value, value, value, confidence, how, standard_error=0.0, bound=value)
    with progress_bar("log Z", 6, shown=progress) as advance:
        if isinstance(known, Finite):
            return _on_sites(energy, known, key, points, confidence, method, base, kernel, budget, advance)
        return _on_reals(energy, known, key, points, confidence, method, base, kernel, budget, advance)


def log_z_many(
    energies: Any,
    *,
    key: PRNGKeyArray,
    space: Space | None = None,
    confidence: float = 0.95,
    seconds: float | None = None,
    evaluations: float | None = None,
    progress: bool = False,
) -> list[Estimate]:
    """`log_z` of a stack of models of one kind at once, by ``vmap``: annealed, without nested sampling.

    Args:
        energies: one model whose arrays have the models as their leading axis, as ``jax.vmap`` of its constructor or
            ``fit_many`` makes them.
        key: the random key.
        space: where points live, if the model has no space.
        confidence: of the intervals.
        seconds: as in `log_z`, for all models together.
        evaluations: as in `log_z`, for each model.
        progress: show a bar.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> lattices = jax.vmap(lambda w: tw.energies.Ising(tw.energies.Grid((3, 3), weight=w)))(jnp.array([0.1, 0.3]))
    >>> [round(each.value, 0) for each in tw.evaluate.log_z_many(lattices, key=jax.random.key(0))]
    [6.0, 7.0]
    """
    key, confidence = typed_key(key), check_confidence(confidence)
    flag("progress", progress)
    budget = Budget(
        *(check_budget(name, value) for name, value in (("seconds", seconds), ("evaluations", evaluations)))
    )
    leaves = [leaf for leaf in jax.tree.leaves(energies) if eqx.is_array(leaf)]
    counts = {leaf.shape[0] if leaf.ndim else None for leaf in leaves}
    if len(counts) != 1 or counts == {None}:
        raise ValueError(
            f"expected models stacked along the leading axis of every array, got lengths {counts or 'of no array'}; "
            "make them by jax.vmap or fit_many"
        )
    count = int(counts.pop() or 0)
    if count > _MOST_MODELS:
        starts = range(0, count, _MOST_MODELS)
        seconds = None if budget.seconds is None else budget.seconds / len(starts)
        found = []
        for start, own in zip(starts, split(key, len(starts)), strict=True):
            # the last piece is filled up with the last model, so that all have one program
            places = np.minimum(np.arange(start, start + _MOST_MODELS), count - 1)
            piece = jax.tree.map(lambda leaf, at=places: leaf[at] if eqx.is_array(leaf) else leaf, energies)
            options = {"space": space, "confidence": confidence, "seconds": seconds, "evaluations": evaluations}
            found += log_z_many(piece, key=own, progress=progress, **options)
        return found[:count]
    # the first model has the space of all; a stack may show the shape of its arrays
    first = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, energies)
    first, known = prepare_energy(first, space)
    keys = jax.random.split(key, (2, count))  # pyright: ignore[reportArgumentType]
    with progress_bar(f"log Z of {count} models", 6, shown=progress) as advance:
        if isinstance(known, Finite):
            path = path_on_sites(_alike(first, energies), None)
            kernel, moves, cost = kernel_on_sites(first), _moves_on_sites(first, known), 1.0
        else:
            flat, size, _ = _flatten(first, known)
            kernel = Trajectories(jnp.full(count, 0.3))
            moves, cost = MOST_MOVES, _cost(kernel)
            path = path_on_reals(_alike(flat, energies), size, kernel, keys[0], None, True, advance)
        found = anneal(kernel, path, keys[1], None, moves, budget, cost, True, advance)
    return [summarise(each, confidence) for each in found]


def _alike(one: Any, stacked: Any) -> Any:
    """``one`` model, as it was prepared, with the arrays of the stacked models."""
    leaves, structure = jax.tree.flatten(one)
    arrays = iter([leaf for leaf in jax.tree.leaves(stacked) if eqx.is_array(leaf)])
    return jax.tree.unflatten(structure, [next(arrays) if eqx.is_array(leaf) else leaf for leaf in leaves])


def _exact(energy: Any, space: Space, required: bool) -> tuple[float, str] | None:
    """The exact value and how it was found; ``None`` if nothing exact exists, or an error if it is required."""
    if isinstance(energy, HasExactLogZ):
        value = energy.exact_log_z()
        if value is not None:
            return float(value), "the sum over the smaller side"
    elif isinstance(energy, HasLogZ):
        return float(energy.log_z), "the energy's own log Z"
    if isinstance(space, Finite) and space.size <= 2**25:
        return float(exact.log_z(energy)), f"the sum over {space.size} states"
    if not isinstance(space, (Finite, Product)) and int(np.prod(space.shape)) <= _MOST_QUADRATURE:
        try:
            return float(exact.log_z(energy)), "quadrature"
        except ValueError:
            if required:
                raise
            return None
    if required:
        raise ValueError(
            f"expected at most 2^25 states, at most {_MOST_QUADRATURE} dimensions or a known log Z for an exact value, "
            f"got {type(energy).__name__} on {space}; leave out method='exact'"
        )
    return None


def _cost(kernel: Kernel) -> float:
    """The evaluations of one move of one chain."""
    if isinstance(kernel, Trajectories):
        return 2 * (kernel.steps + 0.5) + 1
    return float(getattr(kernel, "steps", 1.0))


def _moves_on_sites(energy: Any, space: Finite) -> int:
    """How many moves a rung may take: a step of Gibbs with gradients changes one site, a sweep all of them."""
    one_site = type(kernel_on_sites(energy)).__name__ == "GibbsWithGradients"
    return max(MOST_MOVES, int(np.prod(space.shape))) if one_site else MOST_MOVES


def _on_sites(
    energy: Any,
    space: Finite,
    key: PRNGKeyArray,
    samples: Array | None,
    confidence: float,
    method: str,
    base: Any,
    kernel: Kernel | None,
    budget: Budget,
    advance: Any,
) -> Estimate:
    if method == "nested":
        raise ValueError(f"expected a continuous space for nested sampling, got {space}; use method='annealing'")
    if base is not None:
        raise ValueError(
            "expected no base on a finite space, where it has independent sites, got one; give samples instead"
        )
    key, key_values, key_again = split(key, 3)
    check_values(energy, space.noise(key_values, (_DRAWN,)), samples, False)
    kernel = kernel_on_sites(energy) if kernel is None else kernel
    moves = _moves_on_sites(energy, space)
    advance(2)

    def annealed(key, samples, budget):
        spread = None if samples is None else _spread(samples)
        path = path_on_sites(energy, samples)
        return summarise(anneal(kernel, path, key, spread, moves, budget, _cost(kernel), False, advance)[0], confidence)

    estimate = annealed(key, samples, budget)
    return estimate if samples is None else _with_other_phase(estimate, annealed(key_again, None, Budget()))


def _with_other_phase(estimate: Estimate, alone: Estimate) -> Estimate:
    """The estimate from samples; if annealing without them finds more mass, the samples miss a phase, and the interval
    holds both."""
    parts = {**(estimate.parts or {}), "without samples": alone}
    if not alone.value - 3 * (alone.standard_error or 0.0) > estimate.high:
        return estimate._replace(parts=parts)
    warning = (
        f"annealing without the samples finds {alone.value - estimate.value:.2f} nats more, so the samples miss a "
        "phase of the model, and the interval holds both; draw samples from other starts"
    )
    warning = warning if estimate.warning is None else f"{estimate.warning}; {warning}"
    low, high = min(estimate.low, alone.low), max(estimate.high, alone.high)
    error = (high - low) / (2 * normal_quantile(estimate.confidence))
    return alone._replace(low=low, high=high, ess=1 / error**2, warning=warning, standard_error=error, parts=parts)


def _spread(samples: PyTree) -> PyTree:
    """Samples for all chains of a round, repeated where there are too few, each group with its own."""
    count = len(jax.tree.leaves(samples)[0])
    own = np.arange(count - count % GROUPS).reshape(-1, GROUPS).T
    places = np.concatenate([np.resize(np.roll(each, -group), SIZE) for group, each in enumerate(own)])
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[places], samples)


def _flatten(energy: Any, space: Space) -> tuple[Any, int, Any]:
    """The energy as a function of flat real vectors, their size, and the map from points to them."""
    example = jax.tree.map(lambda leaf: leaf[None], _one_point(space))
    coordinates = coordinates_of("log_z", energy, example)
    on_line = to_real(coordinates, example)
    shape = on_line.shape[1:]
    moved = on_reals(energy, coordinates)
    flat = Flat(moved, shape)

    def to_flat(points):
        z = to_real(coordinates, points)
        return z.reshape(len(z), -1)

    return flat, int(np.prod(shape)), (coordinates, to_flat)


def _one_point(space: Space) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[0], space.noise(jax.random.key(0), (1,)))


def _on_reals(
    energy: Any,
    space: Space,
    key: PRNGKeyArray,
    samples: PyTree | None,
    confidence: float,
    method: str,
    base: Any,
    kernel: Kernel | None,
    budget: Budget,
    advance: Any,
) -> Estimate:
    keys = split(key, 5)
    flat, size, (coordinates, to_flat) = _flatten(energy, space)
    points = None if samples is None else to_flat(samples)
    drawn = WIDTH * normal(keys[4], (_DRAWN, size))
    check_values(flat, drawn, points, samples is None and base is None)
    check_tails(flat, size, keys[0], points, coordinates is not None and not isinstance(space, Real))
    moves = Trajectories(jnp.asarray(0.3)) if kernel is None else kernel
    starts = None if points is None else _spread(points)
    if base is None:
        path = path_on_reals(flat, size, Trajectories(jnp.asarray(0.3)), keys[1], starts, False, advance)
    else:
        check_base(base, space)
        path = GaussianPath(flat, UserBase(base, coordinates, flat.shape))
        advance(2)
    if method == "nested":
        return _nested(path, keys[3], confidence)
    white = (
        None
        if starts is None
        else (starts if base is not None else _to_white(path.energy.shift, path.energy.factor, starts))
    )
    found = anneal(moves, path, keys[2], white, MOST_MOVES, budget, _cost(moves), False, advance)[0]
    estimate = summarise(found, confidence)
    if size <= _MOST_NESTED and base is None:
        estimate = _compare(estimate, _nested(path, keys[3], confidence))
    return estimate


@compiled
def _to_white(shift: Array, factor: Array, x: Array) -> Array:
    return jax.vmap(Affine(None, shift, factor).inverse)(x)


_run_nested = compiled(nested_log_z)


def _nested(path: GaussianPath, key: PRNGKeyArray, confidence: float) -> Estimate:
    found = _run_nested(path.energy, path.base, key)
    values = np.asarray(found.log_z, float)
    value, error = float(np.mean(values)), float(np.std(values, ddof=1))
    reach = normal_quantile(confidence) * error
    warning = None if bool(found.complete) else "nested sampling did not come to its end"
    return Estimate(
        value, value - reach, value + reach, confidence, "nested sampling", 1 / error**2, warning, standard_error=error
    )


def _compare(estimate: Estimate, nested: Estimate) -> Estimate:
    """The annealed estimate, with a warning and a wider interval if nested sampling found more mass."""
    parts = {**(estimate.parts or {}), "nested": nested}
    more = nested.value - 3 * (nested.standard_error or 0.0) - max(estimate.high, estimate.value)
    if not more > 0.3:
        return estimate._replace(parts=parts)
    warning = (
        f"nested sampling finds {nested.value - estimate.value:.2f} nats more, so annealing has missed a mode, as at a "
        "first-order transition; give samples of the model"
    )
    high = max(estimate.high, nested.high)
    return estimate._replace(high=high, warning=_join(estimate.warning, warning), parts=parts)


def _join(first: str | None, second: str) -> str:
    return second if first is None else f"{first}; {second}"
