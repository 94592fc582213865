"""log Z of whole models: against closed forms and exact sums, every argument, first-order transitions, bad input."""

import math

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from scipy.special import gammaln, logsumexp, multigammaln

import thalweg as tw
from thalweg.core import Module
from thalweg.evaluate import log_z, log_z_many

E, S = tw.energies, tw.samplers
KEY = jax.random.key(0)
LATTICE = E.Ising(E.Grid((3, 3), weight=0.4), bias=0.1)
EXACT = float(tw.exact.log_z(LATTICE))
_COMPILED = []


def _listen(event, *_, **__):
    if event == "/jax/core/compile/backend_compile_duration":
        _COMPILED.append(event)


jax.monitoring.register_event_duration_secs_listener(_listen)


@pytest.fixture
def unchecked():
    """Types as a user has them, without the checker of the tests, which would refuse bad input before us."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def agrees(estimate, true, most=0.3):
    """Within five standard errors, which are small, and nothing to warn of."""
    assert estimate.warning is None, estimate
    assert estimate.low <= estimate.value <= estimate.high and estimate.standard_error < most, estimate
    assert abs(estimate.value - true) < 5 * estimate.standard_error + 1e-4, (estimate, true)
    assert estimate.bound < true


@pytest.fixture(scope="module")
def annealed():
    return log_z(LATTICE, key=KEY, method="annealing")


class Quadratic(Module):
    """``½ Σ ((x - centre)/scale)² + offset``: one program for all its numbers."""

    centre: jax.Array
    scale: jax.Array
    offset: jax.Array

    def __call__(self, x):
        return 0.5 * jnp.sum(((x - self.centre) / self.scale) ** 2) + self.offset


def quadratic(centre=0.0, scale=1.0, offset=0.0):
    return Quadratic(jnp.asarray(centre, float), jnp.asarray(scale, float), jnp.asarray(offset, float))


def gaussian_log_z(size, scale=1.0, offset=0.0):
    return size * (0.5 * math.log(2 * math.pi) + math.log(scale)) - offset


# what is exact


def test_exact_values_are_taken_where_they_exist():
    machine = E.RBM(30, 3, 0.1 * jnp.ones((30, 3)))
    cases = [
        (E.Gaussian(jnp.zeros(5)), None, gaussian_log_z(5), "the energy's own log Z"),
        (machine, None, float(machine.exact_log_z()), "the sum over the smaller side"),
        (LATTICE, None, EXACT, "the sum over 512 states"),
        (lambda x: 0.5 * x @ x, tw.Real(1), gaussian_log_z(1), "quadrature"),
    ]
    for energy, space, true, how in cases:
        estimate = log_z(energy, key=KEY, space=space)
        assert math.isclose(estimate.value, true, rel_tol=1e-4) and estimate.method == how
        assert estimate.low == estimate.value == estimate.high == estimate.bound
        assert estimate.standard_error == 0.0 and estimate.warning is None
    held = tw.clamp(LATTICE, np.arange(9) < 4, np.ones(9, int))
    states = held.space.states(0, held.space.size)
    true = float(jax.nn.logsumexp(-jax.vmap(held)(states)))
    assert math.isclose(log_z(held, key=KEY).value, true, rel_tol=1e-5)


# finite spaces


def test_a_lattice_agrees_with_its_exact_sum(annealed):
    agrees(annealed, EXACT)
    assert set(annealed.parts) == {"forward", "reverse"} and "rungs" in annealed.method
    forward = annealed.parts["forward"]
    assert math.isclose(annealed.bound, forward.value - math.log(20), rel_tol=1e-6)
    assert "\n" not in str(annealed) and "95%" in str(annealed)


def test_one_key_gives_one_number_and_nothing_is_compiled_again(annealed):
    before = len(_COMPILED)
    again = log_z(LATTICE, key=KEY, method="annealing")
    other = log_z(E.Ising(E.Grid((3, 3), weight=0.3), bias=0.2), key=jax.random.key(1), method="annealing")
    assert len(_COMPILED) == before
    assert again == annealed and other.value != annealed.value


def test_another_confidence_changes_the_interval_and_the_bound(annealed):
    wide = log_z(LATTICE, key=KEY, method="annealing", confidence=0.99)
    assert wide.value == annealed.value and wide.high - wide.low > 1.2 * (annealed.high - annealed.low)
    assert math.isclose(annealed.bound - wide.bound, math.log(5), rel_tol=1e-4)


def test_more_evaluations_narrow_the_interval(annealed):
    few = log_z(LATTICE, key=KEY, method="annealing", evaluations=1.0)
    many = log_z(LATTICE, key=KEY, method="annealing", evaluations=1.3e6)
    assert few.value == annealed.value  # one round is always made
    agrees(many, EXACT)
    assert many.standard_error < 0.85 * few.standard_error
    # seconds that are over at once make one round, too
    assert log_z(LATTICE, key=KEY, method="annealing", seconds=1e-6).value == few.value


def test_a_bar_changes_nothing(annealed, capsys):
    assert log_z(LATTICE, key=KEY, method="annealing", progress=True) == annealed


def test_samples_of_the_model_start_the_backward_runs():
    states = LATTICE.space.states(0, 512)
    chosen = jax.random.categorical(jax.random.key(1), -jax.vmap(LATTICE)(states), shape=(500,))
    agrees(log_z(LATTICE, key=KEY, method="annealing", samples=states[chosen]), EXACT)
    # few samples are repeated
    agrees(log_z(LATTICE, key=KEY, method="annealing", samples=np.asarray(states)[chosen[:32]]), EXACT)


@pytest.mark.slow
@pytest.mark.parametrize(
    "energy",
    [
        E.RBM(E.BernoulliUnits(6), E.BernoulliUnits(4), jnp.linspace(-1, 1, 24).reshape(6, 4)),
        E.RBM(E.SpinUnits(6), E.GaussianUnits(4), jnp.linspace(-0.4, 0.4, 24).reshape(6, 4)),
        E.Potts(0.4 * (1 - jnp.eye(4)), 3, bias=jnp.arange(12).reshape(4, 3) / 12),
        tw.tempered(LATTICE, 2.0),
        tw.clamp(LATTICE, np.arange(9) < 4, np.ones(9, int)),
        tw.as_energy(lambda x: 0.3 * jnp.sum(x) ** 2 - x[0] * x[1], tw.Binary(10)),
        tw.as_energy(lambda x: jnp.where(x[0] * x[1] == 1, jnp.inf, -0.3 * jnp.sum(x)), tw.Binary(10)),
    ],
    ids=["rbm", "gaussian hidden", "potts", "tempered", "clamped", "callable", "forbidden states"],
)
def test_finite_models_agree_with_their_exact_sums(energy):
    space = energy.space
    states = space.states(0, space.size)
    true = float(logsumexp(-np.asarray(jax.vmap(energy)(states), float)))
    agrees(log_z(energy, key=KEY, method="annealing"), true)


@pytest.mark.slow
def test_any_kernel_that_keeps_the_energy_serves():
    agrees(log_z(LATTICE, key=KEY, method="annealing", kernel=S.GibbsWithGradients()), EXACT)
    agrees(log_z(LATTICE, key=KEY, method="annealing", kernel=S.Gibbs("random")), EXACT)


def test_many_models_at_once_agree_with_their_exact_sums():
    weights = jnp.array([0.1, 0.4, -0.3])
    stack = jax.vmap(lambda weight: E.Ising(E.Grid((3, 3), weight=weight), bias=0.1))(weights)
    found = log_z_many(stack, key=KEY)
    for weight, each in zip(weights, found, strict=True):
        agrees(each, float(tw.exact.log_z(E.Ising(E.Grid((3, 3), weight=weight), bias=0.1))))


def test_a_large_stack_is_annealed_piece_by_piece(monkeypatch):
    monkeypatch.setattr("thalweg.evaluate.partition._MOST_MODELS", 3)
    weights = jnp.array([0.1, 0.4, -0.3, 0.2])
    found = log_z_many(jax.vmap(lambda weight: E.Ising(E.Grid((3, 3), weight=weight), bias=0.1))(weights), key=KEY)
    assert len(found) == 4
    agrees(found[3], float(tw.exact.log_z(E.Ising(E.Grid((3, 3), weight=0.2), bias=0.1))))


# first-order transitions and phases


def curie_weiss(sites, coupling, field):
    energy = E.Ising(coupling / sites * (1 - jnp.eye(sites)), bias=field)
    up = np.arange(sites + 1)
    total = 2 * up - sites
    logs = gammaln(sites + 1) - gammaln(up + 1) - gammaln(sites - up + 1)
    return energy, float(logsumexp(logs + coupling / (2 * sites) * (total**2 - sites) + field * total))


def covers(estimate, true):
    assert estimate.low - 0.1 < true < estimate.high + 0.1, (estimate, true)


@pytest.mark.slow
def test_a_ferromagnet_in_a_field_is_right_also_with_samples_of_the_wrong_phase():
    for coupling, field in ((2.5, 0.02), (1.5, -0.01)):
        energy, true = curie_weiss(40, coupling, field)
        covers(log_z(energy, key=KEY), true)
    energy, true = curie_weiss(40, 2.5, 0.05)
    wrong = log_z(energy, key=KEY, samples=-np.ones((64, 40), int))
    covers(wrong, true)
    assert wrong.warning is not None or wrong.high - wrong.low < 1


def mean_field_potts(sites, labels, coupling):
    energy = E.Potts(coupling / sites * (1 - jnp.eye(sites)), labels)
    counts = np.arange(sites + 1)
    one = coupling / (2 * sites) * counts**2 - gammaln(counts + 1)
    logs = np.where(counts == 0, 0.0, -np.inf)
    for _ in range(labels):
        logs = np.array([logsumexp(logs[: n + 1] + one[: n + 1][::-1]) for n in counts])
    return energy, float(logs[-1] + gammaln(sites + 1) - coupling / 2)


@pytest.mark.slow
def test_a_first_order_transition_is_never_narrow_and_wrong():
    # above the transition, at 7.5, annealing never leaves the disordered phase; the other one has 19 nats more
    energy, true = mean_field_potts(30, 40, 9.0)
    estimate = log_z(energy, key=KEY)
    covers(estimate, true)
    assert estimate.warning is not None
    energy, true = mean_field_potts(20, 40, 6.0)
    agrees(log_z(energy, key=KEY), true)


@pytest.mark.slow
def test_a_narrow_spike_in_a_wide_slab_is_found_or_warned_of():
    size, scale = 40, 0.1

    def spike(x):
        slab = gaussian_log_z(size)
        logs = jnp.array([-0.5 * x @ x - slab, -0.5 * x @ x / scale**2 - slab - size * math.log(scale) + math.log(9)])
        return -jax.nn.logsumexp(logs)

    estimate = log_z(spike, key=KEY, space=tw.Real(size))
    covers(estimate, math.log(10))
    assert estimate.warning is not None or estimate.high - estimate.low < 1


# continuous spaces


@pytest.mark.slow
def test_gaussians_anywhere_and_of_any_scale():
    for centre, scale, offset in ((50.0, 1.0, 0.0), (0.0, 1e-3, 0.0), (-3.0, 1e3, 0.0), (0.0, 1.0, -1e3)):
        estimate = log_z(quadratic(centre, scale, offset), key=KEY, space=tw.Real(4), method="annealing")
        agrees(estimate, gaussian_log_z(4, scale, offset))


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 40, 200])
def test_gaussians_of_any_dimension(size):
    agrees(log_z(quadratic(1.0), key=KEY, space=tw.Real(size), method="annealing"), gaussian_log_z(size))


@pytest.mark.slow
def test_nested_sampling_agrees_and_is_a_part():
    whole = log_z(quadratic(), key=KEY, space=tw.Real(4))
    agrees(whole, gaussian_log_z(4))
    nested = log_z(quadratic(), key=KEY, space=tw.Real(4), method="nested")
    assert whole.parts["nested"].method == nested.method == "nested sampling"
    assert abs(nested.value - gaussian_log_z(4)) < 4 * nested.standard_error < 1.0


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [S.HMC(0.3, steps=4), S.MALA(0.1), S.NUTS(0.3), S.RandomWalk(0.5)], ids=str)
def test_any_kernel_serves_on_real_numbers(kernel):
    agrees(log_z(quadratic(0.5), key=KEY, space=tw.Real(4), method="annealing", kernel=kernel), gaussian_log_z(4))


@pytest.mark.slow
def test_a_base_or_samples_can_be_given():
    base = E.Gaussian(jnp.ones(4), 4.0)
    agrees(log_z(quadratic(0.5), key=KEY, space=tw.Real(4), base=base), gaussian_log_z(4))
    samples = 50 + jax.random.normal(jax.random.key(1), (300, 4))
    agrees(log_z(quadratic(50.0), key=KEY, space=tw.Real(4), method="annealing", samples=samples), gaussian_log_z(4))


def gamma(x):
    return jnp.sum(x - 1.5 * jnp.log(x))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("energy", "space", "true"),
    [
        (gamma, tw.Positive(2), 2 * gammaln(2.5)),
        (lambda x: -jnp.sum(jnp.log(x) + 2 * jnp.log1p(-x)), tw.Interval(0.0, 1.0, shape=2), -2 * math.log(12)),
        (lambda x: -jnp.sum(jnp.array([0.5, 1.0, 2.0]) * jnp.log(x)), tw.Simplex(3), None),
        (lambda x: 0.5 * jnp.trace(x) - 1.5 * jnp.linalg.slogdet(x)[1], tw.PositiveDefinite(2), None),
        (
            lambda x: 0.5 * x["a"] @ x["a"] + gamma(x["b"]),
            tw.Product(a=tw.Real(2), b=tw.Positive(1)),
            gaussian_log_z(2) + gammaln(2.5),
        ),
    ],
    ids=["positive", "interval", "simplex", "positive definite", "product"],
)
def test_constrained_spaces_agree_with_closed_forms(energy, space, true):
    if isinstance(space, tw.Simplex):  # Dirichlet(1.5, 2, 3)
        true = gammaln(1.5) + gammaln(2.0) + gammaln(3.0) - gammaln(6.5)
    if isinstance(space, tw.PositiveDefinite):  # Wishart with 6 degrees of freedom and unit scale
        true = 6 * math.log(2) + multigammaln(3.0, 2)
    agrees(log_z(energy, key=KEY, space=space, method="annealing"), float(true))


@pytest.mark.slow
def test_hard_walls_are_kept():
    wall = lambda x: jnp.where(x[0] > 0, 0.5 * x @ x, jnp.inf)
    agrees(log_z(wall, key=KEY, space=tw.Real(4), method="annealing"), gaussian_log_z(4) - math.log(2))


@pytest.mark.slow
def test_double_precision():
    with jax.enable_x64(True):
        estimate = log_z(quadratic(offset=1e6), key=jax.random.key(0), space=tw.Real(4), method="annealing")
    agrees(estimate, gaussian_log_z(4, offset=1e6))


@pytest.mark.slow
def test_many_gaussians_at_once():
    stack = jax.vmap(quadratic)(jnp.array([0.0, 3.0]), jnp.array([1.0, 0.2]), jnp.zeros(2))
    for scale, each in zip((1.0, 0.2), log_z_many(stack, key=KEY, space=tw.Real(4)), strict=True):
        agrees(each, gaussian_log_z(4, scale))


# bad input

PLAIN = quadratic()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"energy": lambda x: x @ x}, "an energy with a space.*space=tw.Real"),
        ({"energy": lambda x: x[0] + 0 * x @ x}, "Z is infinite"),
        ({"energy": lambda x: jnp.nan * x[0]}, "got NaN at 2048 of 2048"),
        ({"energy": lambda x: jnp.inf + x[0]}, "finite somewhere"),
        ({"energy": lambda x: jnp.where(x[0] > 0, -jnp.inf, x @ x)}, "above minus infinity|Z is infinite"),
        ({"energy": lambda x: x}, "a scalar"),
        ({"samples": np.zeros((100, 3))}, r"shape \(n, 4\), got \(100, 3\)"),
        ({"samples": np.zeros((10, 4))}, "at least 32 samples.*got 10"),
        ({"samples": np.zeros((100, 4))}, "samples that differ"),
        ({"samples": jnp.full((100, 4), jnp.nan).at[0].set(0.0)}, "NaN"),
        ({"samples": "rows"}, "samples"),
        ({"confidence": 95}, "confidence"),
        ({"method": "ais"}, "method"),
        ({"method": "exact"}, "leave out method='exact'"),
        ({"seconds": -1}, "seconds"),
        ({"evaluations": 0}, "evaluations"),
        ({"progress": "yes"}, "progress"),
        ({"kernel": "HMC"}, "a kernel"),
        ({"kernel": S.HMC}, "create an instance"),
        ({"kernel": S.Langevin(0.1)}, "invariant.*Langevin"),
        ({"kernel": S.RandomWalk(jnp.full(4, 0.1))}, "one step size"),
        ({"kernel": S.Gibbs()}, "Gibbs"),
        ({"base": "normal"}, "a density with sample and log_prob"),
        ({"base": E.Gaussian(jnp.zeros(3))}, "base"),
        ({"energy": LATTICE, "base": E.Gaussian(jnp.zeros(3))}, "no base on a finite space"),
        ({"energy": LATTICE, "method": "nested"}, "continuous space for nested"),
        ({"energy": LATTICE, "method": "annealing", "samples": np.zeros((99, 9), int)}, "samples"),
        ({"energy": LATTICE, "method": "annealing", "kernel": S.HMC(0.1)}, "HMC"),
        ({"energy": E.RBM(4, 3, jnp.ones((4, 3))).joint, "space": None}, "one finite space.*the machine itself"),
        ({"space": tw.Counts(3)}, "a finite or a continuous space"),
        ({"key": "a"}, "key"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[:20],
)
def test_bad_input_is_refused_in_one_sentence(unchecked, options, words):
    given = {"energy": PLAIN, "key": KEY, "method": "annealing"} | options
    bare = given["energy"] is LATTICE or words.startswith("an energy with a space")
    given = given if bare or "space" in given else given | {"space": tw.Real(4)}
    if "base" in options and given["energy"] is LATTICE:
        given["method"] = "annealing"
    with pytest.raises(ValueError, match=words) as caught:
        log_z(given.pop("energy"), **given)
    assert "\n" not in str(caught.value)


def test_stacks_that_are_none_are_refused(unchecked):
    for energies in (LATTICE, lambda x: x @ x, quadratic()):
        with pytest.raises(ValueError, match="stacked along the leading axis"):
            log_z_many(energies, key=KEY, space=tw.Real(4))
