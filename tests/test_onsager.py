"""The solved Ising model against sums over every state."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp

import thalweg as tw
from thalweg.exact.onsager import critical_temperature, kaufman_energy, kaufman_log_z, magnetisation, onsager_energy

CRITICAL = 2 / np.log(1 + np.sqrt(2))


def bonds(shape):
    """``Σ_<ij> x_i x_j`` of every state of a torus."""
    x = np.array(list(itertools.product([-1, 1], repeat=int(np.prod(shape)))), np.int8).reshape(-1, *shape)
    return sum((x * np.roll(x, 1, axis)).sum(axis=(1, 2), dtype=int) for axis in (1, 2))


@pytest.mark.parametrize("shape", [(4, 4), (3, 4), (4, 3), (3, 3), (2, 5)])
def test_kaufman_is_the_sum_over_all_states(shape):
    total = bonds(shape)
    for coupling in (0.1, 0.44, 1 / CRITICAL, 0.9):
        log_weights = coupling * total
        log_z = logsumexp(log_weights)
        assert kaufman_log_z(shape, coupling) == pytest.approx(log_z, rel=1e-13)
        energy = -np.sum(total * np.exp(log_weights - log_z)) / np.prod(shape)
        assert kaufman_energy(shape, 1 / coupling) == pytest.approx(energy, rel=1e-12)


def test_kaufman_of_an_antiferromagnet():
    log_z = logsumexp(-0.3 * bonds((4, 4)))
    assert kaufman_log_z((4, 4), -0.3) == pytest.approx(log_z, rel=1e-13)


def test_energy_is_the_slope_of_log_z():
    shape, coupling, h = (32, 64), 0.43, 1e-5
    slope = (kaufman_log_z(shape, coupling + h) - kaufman_log_z(shape, coupling - h)) / (2 * h)
    assert kaufman_energy(shape, 1 / coupling) == pytest.approx(-slope / (32 * 64), rel=1e-7)


@pytest.mark.parametrize("temperature", [1.5, 2.0, 3.0, 6.0])
def test_a_large_torus_is_onsagers_lattice(temperature):
    assert kaufman_energy((256, 256), temperature) == pytest.approx(onsager_energy(temperature), rel=1e-12)


def test_critical_point():
    assert onsager_energy(CRITICAL) == pytest.approx(-np.sqrt(2), rel=1e-12)
    # smooth there on a finite torus: either side of γ₀ = 0 agrees with it
    here = kaufman_energy((32, 32), CRITICAL)
    around = [kaufman_energy((32, 32), CRITICAL + shift) for shift in (-1e-6, 1e-6)]
    assert here == pytest.approx(np.mean(around), rel=1e-10)


def test_magnetisation_has_its_known_values():
    assert tw.exact.onsager.magnetisation is magnetisation
    assert critical_temperature() == pytest.approx(CRITICAL, rel=1e-15)
    for temperature in (0.5, 1.0, 2.0, 2.2):
        formula = (1 - np.sinh(2 / temperature) ** -4.0) ** 0.125
        assert magnetisation(temperature) == pytest.approx(formula, rel=1e-13)
    assert magnetisation(1.0) == pytest.approx(0.9992757519570612, rel=1e-12)
    assert magnetisation(1e-3) == 1.0
    assert [magnetisation(each) for each in (CRITICAL, 2.3, 1e300)] == [0.0] * 3


def test_magnetisation_of_low_temperatures_is_its_series():
    # overturned islands of one, two and three or four spins: m = 1 - 2z⁴ - 8z⁶ - 34z⁸ - …, z = exp(-2K)
    z = np.exp(-2 / 0.6)
    assert 1 - magnetisation(0.6) == pytest.approx(2 * z**4 + 8 * z**6 + 34 * z**8, rel=1e-3)


def test_magnetisation_falls_with_the_critical_exponent_one_eighth():
    near, nearer = (magnetisation(CRITICAL * (1 - gap)) for gap in (1e-6, 1e-8))
    assert np.log(near / nearer) / np.log(100) == pytest.approx(1 / 8, rel=1e-4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: onsager_energy(0.0), "temperature > 0"),
        (lambda: magnetisation(-1.0), "temperature > 0"),
        (lambda: kaufman_energy((4, 4), -1.0), "temperature > 0"),
        (lambda: kaufman_energy((1, 4), 1.0), "two sides"),
        (lambda: kaufman_log_z((3, 4), -0.1), "odd side"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(ValueError, match=words):
        call()
