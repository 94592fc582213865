"""A statistical test of a sampler: chains that start at exact samples of the target must not drift."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import PRNGKeyArray, PyTree

from thalweg import exact as exact_sums
from thalweg.core import (
    ConditionalEnergy,
    Energy,
    HasSampler,
    LatentEnergy,
    ScoreNetwork,
    Space,
    Verdict,
    as_energy,
    check_function,
    compiled,
    energies,
    real,
    require_energy,
    space_of,
    typed_key,
    whole_number,
)
from thalweg.energies.compose import Clamped, tempered
from thalweg.evaluate.check_matrix import check_matrix
from thalweg.samplers.run import advance, check_kernel, inspect, is_kernel
from thalweg.samplers.single_chain import init_chains
from thalweg.samplers.tempering import ParallelTempering
from thalweg.spaces import Finite, as_points

# the probability with which a bias of the size reported as detectable would have been found
_POWER = 0.99

Sampler = Callable[[PRNGKeyArray, tuple[int, ...]], Any]


def check_sampler(
    kernel: Any,
    energy: Any,
    *,
    key: PRNGKeyArray,
    space: Space | None = None,
    exact: Sampler | Sequence[Sampler] | None = None,
    chains: int = 50_000,
    steps: int = 20,
    false_alarm: float = 1e-6,
) -> Verdict:
    r"""Test whether ``kernel`` leaves ``p ∝ exp(-E)`` invariant.

    ``chains`` chains start at exact, independent samples of the target and run ``steps`` kernel steps. If the kernel is
    correct, every statistic f has ``E[f(x_steps)] = E[f(x_0)]`` whatever the mixing time, so the paired differences
    ``f(x_steps) - f(x_0)`` of the independent chains have mean zero: each is tested at ``false_alarm`` divided by the
    number of statistics. The statistics are bounded (smooth steps, squares and random waves of the standardised point,
    and steps in the energy), so that the normal approximation also holds for heavy tails. On a finite space of up to
    4096 states, a kernel with a transition matrix T must also have ``πT = π`` and reach every state; the text then says
    whether the chain is irreducible, aperiodic and reversible, and gives its spectral gap (see
    `exact.chain_properties`).

    Each rung of `ParallelTempering` has its own distribution, ``∝ exp(-E/T_i)``, and must start there. On a finite
    space this happens automatically; elsewhere give ``exact`` as one sampler per temperature. Then all rungs are tested
    together, as one point ``(rungs, *event)``, and a pair of neighbours that never swaps fails the test. With a sampler
    for the target only, all rungs start at the target, which is not stationary, and only the coldest rung is tested:
    ``steps`` must then be large enough for all rungs to reach their distributions, as the verdict says.

    Points may be trees of arrays. The first two arguments may be given in either order.

    References: the stationarity test of RestrictedBoltzmannMachines.jl; Geweke (2004), JASA 99, for the same idea in
    Bayesian models.

    Args:
        kernel: any kernel, from this library or your own.
        energy: any energy.
        space: where the points live, if the energy has no space.
        exact: ``exact(key, shape)``, exact samples; by default the energy's own, or by enumeration of a finite space.
            For `ParallelTempering` a sequence of such functions, one per temperature, from the coldest up.
        chains: the number of chains; more chains detect smaller biases.
        steps: the number of kernel steps; with more steps a bias builds up.
        false_alarm: the probability that a correct kernel fails.

    Returns:
        `Verdict`; ``detectable`` is the smallest drift of a statistic, in units of its standard deviation under the
        target, that would have been detected with probability 0.99.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> target = tw.energies.Gaussian(jnp.zeros(2), jnp.eye(2))
    >>> tw.check_sampler(tw.samplers.MALA(0.5), target, key=jax.random.key(0)).passed
    True
    >>> tw.check_sampler(tw.samplers.Langevin(0.5), target, key=jax.random.key(1)).passed  # biased by design
    False
    """
    if not is_kernel(kernel) and is_kernel(energy):
        kernel, energy = energy, kernel
    check_kernel(kernel)
    require_energy("check_sampler", energy)
    chains, steps = whole_number("chains", chains, 1000), whole_number("steps", steps)
    real("false_alarm", false_alarm, scalar=True)
    if not 0 < false_alarm < 1:
        raise ValueError(f"expected a false_alarm between 0 and 1, got {false_alarm}; 1e-6 is usual")
    energy = as_energy(energy, space)
    key_start, key_run, key_waves = jax.random.split(typed_key(key), 3)
    inspect(kernel, energy)
    start, tempers, note = _starts(key_start, kernel, energy, exact, chains)
    ended, energy_before, energy_after, swaps = _run(key_run, kernel, energy, start, _Settings(tempers, steps))
    before, after = _flat(start), _flat(ended)
    lost = int(np.sum(~np.isfinite(after).all(axis=1)))
    if lost:
        text = f"FAILED: {lost} of {chains} chains that started at the target ran off to non-finite values."
        return Verdict(False, false_alarm, 0.0, text)
    drift, error, spread, names = _drifts(key_waves, before, after, energy_before, energy_after)
    threshold = float(-norm.ppf(false_alarm / (2 * len(names))))
    z = np.where(error > 0, drift / np.where(error > 0, error, 1), 0.0)
    worst = int(np.argmax(np.abs(z)))
    # a statistic in which nothing moved has a zero error and does not contribute
    detectable = float(np.max((threshold + float(norm.ppf(_POWER))) * error / spread))
    exactly_right, exactly = check_matrix(kernel, energy)
    passed = bool(abs(z[worst]) <= threshold) and exactly_right
    moved = float(np.mean(np.any(after != before, axis=1)))
    text = (
        f"{'passed' if passed else 'FAILED'}: of {len(names)} statistics the largest drift is that of {names[worst]}, "
        f"{z[worst]:+.1f} standard errors (limit {threshold:.1f}, false-alarm rate {false_alarm:g}); "
        f"a drift of {detectable:.2g} standard deviations would have been detected; "
        f"{moved:.0%} of {chains} chains moved in {steps} steps.{note}{exactly}"
    )
    if moved == 0:
        return Verdict(
            False, false_alarm, detectable, f"FAILED: no chain moved in {steps} steps, so nothing was tested."
        )
    if steps > 1 and np.any(np.asarray(swaps) == 0):
        pair = int(np.argmin(swaps)) + 1
        text = f"FAILED: rungs {pair} and {pair + 1} never swapped in {steps} steps, so hotter rungs have no effect."
        return Verdict(False, false_alarm, detectable, text)
    return Verdict(passed, false_alarm, detectable, text)


def _flat(points: PyTree) -> np.ndarray:
    """All coordinates of every chain, ``(chains, d)``."""
    return np.concatenate([np.asarray(leaf, np.float64).reshape(len(leaf), -1) for leaf in jax.tree.leaves(points)], 1)


class _Settings(NamedTuple):
    tempers: bool
    steps: int


def _starts(
    key: PRNGKeyArray, kernel: Any, energy: Any, exact: Sampler | Sequence[Sampler] | None, chains: int
) -> tuple[Any, bool, str]:
    """Exact samples, whether there are samples for every rung ``(chains, rungs, *event)``, and a note for the
    verdict."""
    several = isinstance(exact, Sequence)
    if not isinstance(kernel, ParallelTempering):
        if several:
            raise ValueError(
                f"expected one exact sampler for {type(kernel).__name__}, got a sequence of {len(exact)}; give a "
                "function of (key, shape)"
            )
        return exact_sampler(energy, exact)(key, (chains,)), False, ""
    temperatures = kernel.temperatures
    if several and len(exact) != len(temperatures):
        raise ValueError(
            f"expected an exact sampler for each of {len(temperatures)} temperatures, got {len(exact)}; give as many"
        )
    laws = [tempered(energy, temperature) for temperature in temperatures]
    if several:
        samplers = list(exact)
    elif exact is None and all(isinstance(law, HasSampler) or isinstance(space_of(law), Finite) for law in laws):
        samplers = [exact_sampler(law, None) for law in laws]
    else:
        note = (
            " All rungs started at the target, which is not stationary: in too few steps a right kernel may fail; "
            "give `exact` one sampler per temperature."
        )
        return exact_sampler(energy, exact)(key, (chains,)), False, note
    keys = jax.random.split(key, len(samplers))
    rungs = [sampler(key, (chains,)) for key, sampler in zip(keys, samplers, strict=True)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=1), *rungs), True, ""


def exact_sampler(energy: Any, exact: Sampler | None) -> Sampler:
    """``exact`` if it is given, otherwise the energy's own sampler, otherwise enumeration of a finite space."""
    space = space_of(energy)
    if exact is not None:
        check_function("exact(key, shape) -> points", exact, "energy.sample")
        if isinstance(exact, (Energy, ConditionalEnergy, LatentEnergy, ScoreNetwork)):
            raise ValueError(f"expected exact(key, shape) -> points, got a {type(exact).__name__}; give its `sample`")
        whole = space_of(energy.energy) if isinstance(energy, Clamped) else space
        return lambda key, shape: as_points(whole, exact(key, shape), "exact")
    if isinstance(energy, HasSampler):
        return energy.sample
    if isinstance(space, Finite):
        return lambda key, shape: exact_sums.sample(energy, shape, key=key)
    raise ValueError(
        f"expected a way to sample {type(energy).__name__} exactly, got none; give exact=function(key, shape), "
        "or an energy with `sample`, or a finite space"
    )


@compiled
def _run(key, kernel, energy, x, settings):
    """The final points (of all rungs, if those started separately), the energies before and after, and swap rates."""
    key_start, key_run = jax.random.split(key)
    init = kernel.init_rungs if settings.tempers else lambda *args: init_chains(kernel, *args)
    state = init(key_start, energy, x)
    coldest = lambda state: state.rung(0).x if isinstance(kernel, ParallelTempering) else state.x
    first = coldest(state)
    swaps = lambda info: {"swap_rate": info.extra.get("swap_rate", jnp.ones((1, 1)))}
    state, means = advance(energy, kernel, state, key=key_run, steps=settings.steps, measure=swaps)
    last = coldest(state)
    ended = state.points if settings.tempers else last
    return ended, energies(energy, first), energies(energy, last), jnp.mean(means["swap_rate"], axis=0)


def _drifts(key, before, after, energy_before, energy_after):
    """The mean and standard error of the paired differences of all statistics, their standard deviations under the
    target, and their names."""
    count, x, y = len(before), before, after
    centre = np.median(x, axis=0)
    scale = np.std(np.clip(x, *np.percentile(x, [1, 99], axis=0)), axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    x, y = (x - centre) / scale, (y - centre) / scale
    # if there are many coordinates, a sample of them and random waves across all are used
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    shown = np.sort(generator.choice(x.shape[1], min(8, x.shape[1]), replace=False))
    waves = generator.normal(size=(16, x.shape[1])) * generator.choice([0.5, 1.0, 3.0], size=(16, 1))
    waves /= np.sqrt(min(8, x.shape[1]))
    phases = generator.uniform(0, 2 * np.pi, 16)
    levels = np.percentile(np.asarray(energy_before, np.float64), [10, 50, 90])
    width = max(levels[2] - levels[0], 1e-6)

    def statistics(points, energies):
        coordinates = points[:, shown]
        pairs = coordinates[:, :, None] * coordinates[:, None, :]
        upper = np.triu_indices(len(shown), 1)
        return np.concatenate(
            [
                np.tanh(coordinates),
                np.tanh(coordinates**2 / 2),
                np.tanh(pairs[:, upper[0], upper[1]]),
                np.cos(points @ waves.T + phases),
                np.tanh((np.asarray(energies, np.float64)[:, None] - levels) * 3 / width),
            ],
            axis=1,
        )

    pairs = [(i, j) for n, i in enumerate(shown) for j in shown[n + 1 :]]
    names = [f"tanh x[{i}]" for i in shown] + [f"tanh x[{i}]²/2" for i in shown]
    names += [f"tanh x[{i}]x[{j}]" for i, j in pairs] + [f"wave {n}" for n in range(len(waves))]
    names += [f"the energy about its {percent} % point" for percent in (10, 50, 90)]
    start = statistics(x, energy_before)
    difference = statistics(y, energy_after) - start
    spread = np.std(start, axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    return difference.mean(axis=0), difference.std(axis=0, ddof=1) / np.sqrt(count), spread, names
