"""The parts of `log_z`: resampling, ladders, runs in both directions, the bridge, paths, minima, bases, tails."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.evaluate.annealing import Budget, Rounds, _collect, disagreement, summarise
from thalweg.evaluate.bases import fit_base
from thalweg.evaluate.finite_paths import SitesPath, UniformPath, fit_field, path_on_sites
from thalweg.evaluate.minima import find_minima
from thalweg.evaluate.nested import nested_log_z
from thalweg.evaluate.paths import GaussianPath, mixture
from thalweg.evaluate.smc import Ladder, Works, _correlation, _next_beta, bridge, systematic, travel
from thalweg.evaluate.tails import check_tails
from thalweg.samplers import Gibbs

E = tw.energies
ISING = E.Ising(E.Grid((2, 3), weight=0.5, periodic=False), bias=0.3)


def ladder_of(betas, moves):
    count = len(betas) - 1
    padded = jnp.concatenate([jnp.array(betas, float), jnp.ones(2001 - len(betas))])
    return Ladder(padded, jnp.ones(2001), jnp.full(2001, moves), jnp.asarray(count))


def test_systematic_resampling_keeps_every_expected_count(key):
    weights = np.array([0.05, 0.4, 0.0, 0.25, 0.3])
    logs = jnp.log(jnp.asarray(weights))
    ancestors = np.asarray(jax.vmap(systematic, (0, None))(jax.random.split(key, 4000), logs))
    counts = np.stack([np.sum(ancestors == place, axis=1) for place in range(5)], axis=1)
    assert np.all(counts >= np.floor(5 * weights - 1e-6)) and np.all(counts <= np.ceil(5 * weights + 1e-6))
    error = np.std(counts, axis=0) / math.sqrt(len(counts)) + 1e-9
    assert np.all(np.abs(np.mean(counts, axis=0) - 5 * weights) < 5 * error)


@pytest.mark.parametrize("keep", [0.9, 0.5])
def test_the_next_rung_keeps_the_asked_relative_sample_size(key, keep):
    slope = 30 + 7 * jax.random.normal(key, (4096,))
    slope = slope.at[:100].set(1e30)  # beyond a wall: neither counted nor kept
    beta = _next_beta(jnp.asarray(0.1), slope, jnp.asarray(keep))
    weights = np.exp(-(float(beta) - 0.1) * (np.asarray(slope[100:], float) - 30))
    assert math.isclose(weights.sum() ** 2 / (weights**2).sum() / len(weights), keep, abs_tol=2e-3)
    assert float(_next_beta(jnp.asarray(0.999), slope / 100, jnp.asarray(keep))) == 1.0


def test_correlation_is_one_of_itself_and_zero_of_constants(key):
    values = jax.random.normal(key, (1000,))
    other = jax.random.normal(jax.random.fold_in(key, 1), (1000,))
    assert math.isclose(float(_correlation(values, values)), 1.0, rel_tol=1e-5)
    assert abs(float(_correlation(values, other))) < 5 / math.sqrt(1000)
    assert float(_correlation(jnp.full(1000, 3.0), values)) == 0.0


def exact_draws(energy, key, count):
    states = energy.space.states(0, energy.space.size)
    return states[jax.random.categorical(key, -jax.vmap(energy)(states), shape=(count,))]


@pytest.mark.parametrize("moves", [0, 1])
@pytest.mark.parametrize("backward", [False, True])
def test_each_direction_is_unbiased_even_if_nothing_mixes(moves, backward):
    # three rungs of a strongly coupled lattice: groups of 8 chains miss most of the mass, their mean does not
    path, groups = path_on_sites(ISING, None), 2048
    keys = jax.random.split(jax.random.key(3), 2)
    start = exact_draws(ISING, keys[0], 8 * groups) if backward else path.draw(keys[0], 8 * groups)
    found = _travel(path, ladder_of([0.0, 0.3, 0.6, 1.0], moves), keys[1], start, groups, backward)
    log_ratio = float(tw.exact.log_z(ISING)) - float(path.log_z_base)
    ratios = np.exp(np.asarray(found.log_ratio, float) + (log_ratio if backward else -log_ratio))
    error = ratios.std(ddof=1) / math.sqrt(groups)
    assert error < 0.1
    assert abs(ratios.mean() - 1) < 4.5 * error
    assert np.all(np.asarray(found.roots) >= 1) and np.all(np.asarray(found.roots) <= 8)


def _travel(path, ladder, key, start, groups, backward):
    zero = jnp.zeros((), int)
    run = jax.jit(travel, static_argnums=5)
    return run(Gibbs(), path, ladder, key, start, groups, jnp.asarray(backward), zero, zero)


def test_cooling_ends_in_the_ground_state_and_then_forgets_it():
    path = path_on_sites(ISING, None)
    draws = path.draw(jax.random.key(0), 256)
    run = lambda extra: (
        travel(
            Gibbs(),
            path,
            ladder_of([1.0], 0),
            jax.random.key(1),
            draws,
            2,
            jnp.asarray(True),
            jnp.asarray(extra),
            jnp.asarray(20),
        ).x
    )
    assert float(jnp.mean(run(20) == 1)) > 0.99
    # p(all up) is far from 1 at the model's own temperature
    exact_mean = float(jnp.sum(tw.exact.probabilities(ISING) * jnp.mean(ISING.space.states(0, 64), axis=1)))
    assert abs(float(jnp.mean(run(40))) - exact_mean) < 0.1


def test_the_bridge_has_the_closed_form_of_two_gaussians(key):
    # U_0 = x²/2 and U_1 = (x-1)²/(2·0.5²): log (Z_1/Z_0) = log 0.5
    groups, size = 16, 1024
    keys = jax.random.split(key)
    low, high = (lambda x: 0.5 * x**2), (lambda x: 2.0 * (x - 1) ** 2)
    ahead = jax.random.normal(keys[0], (1, groups * size))
    back = 1 + 0.5 * jax.random.normal(keys[1], (1, groups * size))
    flat = jnp.zeros_like(ahead)
    found = bridge(Works(high(ahead) - low(ahead), flat), Works(low(back) - high(back), flat), jnp.asarray(1), groups)
    deviations = np.asarray(found.deviations, float)
    error = deviations.std(ddof=1) / math.sqrt(groups)
    # Bennett's variance: (4/overlap' - 2)/n with the overlap of the two densities, by quadrature
    x = np.linspace(-8, 8, 20001)
    p, q = np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi), np.exp(-2 * (x - 1) ** 2) * 2 / math.sqrt(2 * math.pi)
    overlap = np.trapezoid(2 * p * q / (p + q), x)
    assert math.isclose(float(found.overlap), overlap, abs_tol=0.01)
    assert abs(float(found.log_ratio) - math.log(0.5)) < 4 * math.sqrt((2 / overlap - 2) / (groups * size))
    assert 0.5 < error / math.sqrt((2 / overlap - 2) / (groups * size)) < 2.0
    # rungs beyond the ladder count for nothing
    twice = lambda works: Works(*(jnp.concatenate([leaf, 100 + leaf]) for leaf in works))
    padded = bridge(
        twice(Works(high(ahead) - low(ahead), flat)), twice(Works(low(back) - high(back), flat)), jnp.asarray(1), groups
    )
    assert math.isclose(float(padded.log_ratio), float(found.log_ratio), rel_tol=1e-5)


def machines():
    weights = 0.7 * jax.random.normal(jax.random.key(5), (8, 3))
    for visible in (E.BernoulliUnits(4), E.SpinUnits(4), E.CategoricalUnits(3, 3)):
        for hidden in (E.BernoulliUnits(3), E.SpinUnits(3)):
            rows = 9 if isinstance(visible, E.CategoricalUnits) else 4
            matrix = jnp.resize(weights, (rows, 3))
            rbm = E.RBM(visible, hidden, matrix)
            yield rbm
    yield ISING
    yield E.Ising(0.3 * (1 - jnp.eye(4)), bias=jnp.arange(4) / 4, space=tw.Binary(4))
    yield E.Potts(0.4 * (1 - jnp.eye(3)), 3, bias=jnp.arange(9).reshape(3, 3) / 9)


@pytest.mark.parametrize("energy", list(machines()), ids=lambda energy: f"{type(energy).__name__}-{energy.space}")
def test_a_path_of_sites_begins_at_its_field_and_ends_at_the_model(energy):
    space = energy.space
    states = space.states(0, space.size)
    levels = (space.k,) if isinstance(space, tw.Categorical) else ()
    field = 0.5 * jax.random.normal(jax.random.key(6), (*space.shape, *levels))
    path = SitesPath(energy, field)
    values = np.asarray(jax.vmap(path.at(jnp.zeros(())))(states), float)
    if levels:
        fields = np.asarray(field)[np.arange(space.shape[0]), np.asarray(states)].sum(axis=1)
    else:
        fields = np.asarray(states, float) @ np.asarray(field, float)
    assert np.ptp(values + fields) < 1e-4
    assert math.isclose(float(path.log_z_base), np.logaddexp.reduce(-values), abs_tol=1e-4)
    assert np.allclose(jax.vmap(path.at(jnp.ones(())))(states), jax.vmap(energy)(states), atol=1e-4)
    assert np.allclose(jax.vmap(path.cooled(jnp.ones(())))(states), jax.vmap(energy)(states), atol=1e-4)
    # draws of the base have the probabilities of its energy
    draws = np.asarray(path.draw(jax.random.key(7), 20000))
    log_p = -values - float(path.log_z_base)
    first = np.asarray(states)[:, 0]
    for level in np.unique(first):
        p = np.exp(log_p[first == level]).sum()
        assert abs(np.mean(draws[:, 0] == level) - p) < 5 * math.sqrt(p * (1 - p) / 20000)


def test_a_fitted_field_has_the_frequencies_of_the_samples():
    samples = np.array([[0, 2], [0, 1], [1, 2], [0, 2]])
    field = np.asarray(fit_field(jnp.asarray(samples), tw.Categorical(2, 3)))
    assert np.allclose(np.exp(field), [[4 / 7, 2 / 7, 1 / 7], [1 / 7, 2 / 7, 4 / 7]])
    spins = np.array([[1, -1], [1, 1], [1, -1], [1, 1]])
    field = np.asarray(fit_field(jnp.asarray(spins), tw.Spin(2)))
    assert np.allclose(1 / (1 + np.exp(-2 * field)), [5 / 6, 0.5])


def test_a_uniform_path_keeps_the_model_at_its_end():
    energy = tw.as_energy(lambda x: 0.7 * x[0] * x[1] + jnp.where(x[2] == 1, jnp.inf, 0.0), tw.Binary(3))
    path = UniformPath(energy)
    assert math.isclose(float(path.log_z_base), 3 * math.log(2), rel_tol=1e-6)
    states = energy.space.states(0, 8)
    values = np.asarray(jax.vmap(path.at(jnp.ones(())))(states))
    assert np.all(values[np.asarray(states)[:, 2] == 1] > 1e20)
    assert np.all(np.asarray(jax.vmap(path.at(jnp.zeros(())))(states)) == 0)


def two_gaussians(x):
    logs = jnp.array([0.7, 0.3]), jnp.array([[2.0, 0.0], [-2.0, 1.0]]), jnp.array([0.5, 0.8])
    shares, means, scales = logs
    each = jnp.log(shares) - 0.5 * jnp.sum(((x - means) / scales[:, None]) ** 2, -1) - 2 * jnp.log(scales)
    return -jax.nn.logsumexp(each)


def test_descents_find_both_minima_and_their_masses(key):
    minima = find_minima(two_gaussians, 3 * jax.random.normal(key, (64, 2)), 4)
    assert np.asarray(minima.used).tolist() == [True, True, False, False]
    assert np.allclose(minima.points[:2], [[2.0, 0.0], [-2.0, 1.0]], atol=0.01)
    assert np.allclose(minima.log_mass[:2], np.log([0.7, 0.3]) + math.log(2 * math.pi), atol=0.05)
    assert np.allclose(minima.factors[0], 0.5 * np.eye(2), atol=0.01)


def test_expectation_maximisation_finds_a_known_mixture(key):
    true = mixture(jnp.log(jnp.array([0.7, 0.3])), jnp.array([[3.0, 0.0], [-3.0, 1.0]]), jnp.stack([jnp.eye(2)] * 2))
    keys = jax.random.split(key, 3)
    y = true.sample(keys[0], (2048,))
    base = fit_base(keys[1], y, None, 2, True)
    # a wide Gaussian with half of the mass, then the components, widened
    assert math.isclose(float(jnp.exp(base.log_weights[0])), 0.5, rel_tol=1e-5)
    first = 1 + int(jnp.argmax(base.means[1:, 0]))
    assert np.allclose(base.means[first], [3.0, 0.0], atol=0.15)
    assert math.isclose(float(jnp.exp(base.log_weights[first])), 0.35, abs_tol=0.03)
    assert np.allclose(base.factors[first], 1.15 * np.eye(2), atol=0.12)
    # a density: its own draws have mean 1 of q/p
    z = base.sample(keys[2], (20000,))
    ratio = np.exp(np.asarray(jax.vmap(true.log_prob)(z) - jax.vmap(base.log_prob)(z), float))
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / math.sqrt(len(ratio))


def student(freedom, size):
    return lambda x: 0.5 * (freedom + size) * jnp.log1p(jnp.sum(x**2))


@pytest.mark.parametrize("size", [1, 4, 30])
def test_the_tails_of_students_densities(key, size):
    check_tails(student(0.5, size), size, key, None, False)
    for freedom in (0.0, -0.5):
        with pytest.raises(ValueError, match=f"grows faster than {size}·log‖x‖.*Z is infinite"):
            check_tails(student(freedom, size), size, key, None, False)
    # a wide one is not refused for its width
    check_tails(lambda x: student(1.0, size)(x / 1e4), size, key, None, False)


def test_tails_in_one_direction_alone_are_seen(key):
    with pytest.raises(ValueError, match="Z is infinite"):
        check_tails(lambda x: jnp.where(x[0] > 0, jnp.sum(x**2), 0.0), 3, key, None, False)
    check_tails(lambda x: jnp.sum(jnp.abs(x)), 3, key, None, False)
    check_tails(lambda x: jnp.where(jnp.sum(x**2) < 1, 0.0, jnp.inf), 3, key, None, False)
    for power in (4, 20):  # the second is -inf at both distances
        with pytest.raises(ValueError, match="Z is infinite"):
            check_tails(lambda x, power=power: -jnp.sum(x**power), 3, key, None, False)
    check_tails(lambda x: jnp.sum(x**20), 3, key, None, False)


@pytest.mark.slow
def test_nested_sampling_of_a_gaussian_is_within_its_error():
    base = mixture(jnp.zeros(1), jnp.zeros((1, 3)), 3 * jnp.eye(3)[None])
    run = jax.jit(lambda key: nested_log_z(lambda y: 0.5 * jnp.sum((y - 1) ** 2), base, key))
    found = run(jax.random.key(0))
    values = np.asarray(found.log_z)
    assert bool(found.complete) and 0 < values.std() < 0.3
    assert abs(values.mean() - 1.5 * math.log(2 * math.pi)) < 4 * values.std()


def rounds(forward, backward, bridged=None, cold=None, overlap=0.5, complete=True, roots=20.0):
    bridged = 0.5 * (np.mean(forward) + np.mean(backward)) + 0.0 * forward if bridged is None else bridged
    cold = backward if cold is None else cold
    return Rounds(forward, backward, bridged, cold, overlap, complete, 10, roots)


def test_the_interval_holds_both_directions_where_they_disagree():
    noise = 0.05 * np.random.default_rng(0).normal(size=16)
    agreed = summarise(rounds(10 + noise, 10 - noise, 10 + noise), 0.95)
    assert agreed.warning is None and agreed.high - agreed.low < 0.1
    apart = summarise(rounds(10 + noise, 11 + noise), 0.95)
    assert apart.low < 10 and apart.high > 11 and "disagree by 1.0" in apart.warning
    assert math.isclose(apart.bound, 10.0 - math.log(20), abs_tol=0.05)
    # groups that differ by nats do not excuse a distance of nats
    wild = 3 * np.random.default_rng(1).normal(size=16)
    assert disagreement(rounds(10 + wild, 13 + noise)) > 3
    # Z = 0 in a group is a number; in all groups the path has not reached the model
    lost = summarise(rounds(np.full(16, -np.inf), 10 + noise, np.full(16, np.nan)), 0.95)
    assert lost.low == -np.inf and lost.high == np.inf and "did not reach" in lost.warning


def test_the_rounding_of_single_precision_widens_the_interval():
    ones = np.full(16, 1e6, np.float32)
    single = summarise(rounds(ones, ones, ones), 0.95)
    assert 0.1 < single.standard_error < 0.2
    double = summarise(rounds(ones.astype(float), ones.astype(float), ones.astype(float)), 0.95)
    assert double.standard_error < 1e-8


def test_rounds_from_the_same_samples_do_not_narrow_the_interval_of_groups():
    # every group has its own samples, which shift it by the same amount in every round
    shift = np.random.default_rng(0).normal(size=16)
    found = [(10 + 0 * shift, 10 + shift, 10 + shift, 10 + shift, np.asarray(0.5), np.asarray(20.0))] * 25
    ladder = ladder_of([0.0, 1.0], 1)
    independent, shared = (_collect(found, ladder, False, same)[0] for same in (False, True))
    assert independent.bridged.size == 400 and shared.bridged.size == 16 and shared.forward.size == 400
    assert np.allclose(shared.backward, 10 + shift) and np.allclose(shared.bridged, 10 + shift)


def test_every_reason_for_doubt_is_a_warning():
    noise = 0.05 * np.random.default_rng(0).normal(size=16)
    fine = (10 + noise, 10 - noise, 10 + noise)
    assert "descend from one draw" in summarise(rounds(*fine, roots=1.0), 0.95).warning
    assert "hardly overlap" in summarise(rounds(*fine, overlap=0.05), 0.95).warning
    assert "did not reach" in summarise(rounds(*fine, complete=False), 0.95).warning
    cold = summarise(rounds(*fine, cold=14 + noise), 0.95)
    assert "low energies find 4.0" in cold.warning and cold.low < 10 and cold.high > 14
    # less than the others found: no mass was missed
    assert summarise(rounds(*fine, cold=7 + noise), 0.95).warning is None


def test_a_budget_of_evaluations_counts_rounds():
    none, some = Budget(), Budget(evaluations=100.0)
    assert none.allows(1, 0.0, 10.0, 1.0) and not none.allows(1, 0.0, 10.0, 0.05) and not none.allows(4, 0.0, 10.0, 1.0)
    assert some.allows(4, 0.0, 80.0, 0.01) and not some.allows(5, 0.0, 100.0, 1.0)


def test_a_gaussian_path_runs_from_its_base_to_the_energy():
    base = mixture(jnp.zeros(1), jnp.zeros((1, 2)), 2 * jnp.eye(2)[None])
    path = GaussianPath(lambda y: jnp.where(y[0] > 0, jnp.sum(y**2), jnp.inf), base)
    y = jnp.array([0.5, -1.0])
    assert math.isclose(float(path.at(jnp.zeros(()))(y)), -float(base.log_prob(y)), rel_tol=1e-6)
    assert math.isclose(float(path.at(jnp.ones(()))(y)), 1.25, rel_tol=1e-6)
    assert math.isclose(float(path.cooled(jnp.asarray(4.0))(y)), 5.0, rel_tol=1e-6)
    assert float(path.at(jnp.asarray(0.5))(-y)) > 1e20 and not math.isnan(float(jax.grad(path.at(jnp.ones(())))(-y)[0]))
