"""Integrals in up to three dimensions against closed forms, and what has no integral refused."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import thalweg as tw
from thalweg import exact

LOG_2PI = math.log(2 * math.pi)


def two_modes(x):
    """Modes at ±10 of width 0.1, the right one three times the left."""
    return -jnp.logaddexp(jnp.log(3.0) - 0.5 * jnp.sum(((x - 10) / 0.1) ** 2), -0.5 * jnp.sum(((x + 10) / 0.1) ** 2))


def shifted_funnel(x):
    """A funnel whose neck lies on no edge of the mesh."""
    return x[0] ** 2 / 18 + 0.5 * jnp.exp(-x[0]) * jnp.sum((x[1:] - 0.3) ** 2) + 0.5 * (x.size - 1) * x[0]


def wide_banana(x):
    """Haario's, with b = 0.1 and scale 10."""
    return x[0] ** 2 / 200 + 0.5 * (x[1] - 0.1 * (x[0] ** 2 - 100)) ** 2


class Polynomial(eqx.Module):
    """``a(x-c)² + bx + l log|x|``: one shape, so one compiled program for all."""

    a: jax.Array
    c: jax.Array
    b: jax.Array
    l: jax.Array  # noqa: E741

    def __call__(self, x):
        return self.a * (x - self.c) ** 2 + self.b * x + self.l * jnp.log(jnp.abs(x))


def polynomial(a, c=0.0, b=0.0, log=0.0):
    return Polynomial(*(jnp.asarray(value, jnp.float32) for value in (a, c, b, log)))


def reversed_funnel(x):
    """A funnel whose neck is far from zero: no node of the first mesh sees the far end of it."""
    return x[0] ** 2 / 18 + 0.5 * jnp.exp(x[0]) * (x[1] - 7.3) ** 2 - 0.5 * x[0]


def hidden_mode(x):
    """A mode of width 0.05 at 10.17 that only a guess between the nodes finds, beside one of width 1 at -7."""
    narrow = -0.5 * jnp.sum(((x - 10.17) / 0.05) ** 2) - x.size * math.log(0.05)
    return -jnp.logaddexp(narrow, -0.5 * jnp.sum((x + 7) ** 2))


INTEGRALS = {
    "a far narrow mode": (polynomial(0.5, 300), tw.Real(()), 0.5 * LOG_2PI),
    "a very narrow mode": (polynomial(0.5e8), tw.Real(()), 0.5 * LOG_2PI + math.log(1e-4)),
    "two modes": (two_modes, tw.Real((1, 2)), LOG_2PI + math.log(0.04)),
    "heavy tails": (lambda x: jnp.log1p(x**2), tw.Real(()), math.log(math.pi)),
    "a kink": (lambda x: jnp.abs(x - 0.3), tw.Real(()), math.log(2)),
    "a singularity": (polynomial(0.0, b=1.0, log=0.5), tw.Positive(()), math.lgamma(0.5)),
    "an interval": (
        lambda x: -jnp.sum(jnp.log(x) + 2 * jnp.log1p(-x)),
        tw.Interval(0.0, 1.0, shape=2),
        2 * math.log(1 / 12),
    ),
    "a shifted funnel": (shifted_funnel, tw.Real(3), 1.5 * LOG_2PI + math.log(3)),
    "a reversed funnel": (reversed_funnel, tw.Real(2), LOG_2PI + math.log(3)),
    "a hidden mode": (hidden_mode, tw.Real(3), 1.5 * LOG_2PI + math.log(2)),
    "a wide banana": (wide_banana, tw.Real(2), LOG_2PI + math.log(10)),
}


@pytest.mark.parametrize("name", INTEGRALS)
def test_closed_forms_of_log_z(name):
    energy, space, expected = INTEGRALS[name]
    np.testing.assert_allclose(exact.log_z(energy, space), expected, atol=1e-5)


class Normal(eqx.Module):
    mean: jax.Array
    factor: jax.Array

    def __call__(self, x):
        return 0.5 * jnp.sum((self.factor @ (x - self.mean)) ** 2)


FACTOR = np.array([[1.5, 0.0], [-1.0, 0.7]])
COVARIANCE = np.linalg.inv(FACTOR.T @ FACTOR)
MEAN = np.array([0.5, -2.0])
NORMAL = tw.as_energy(Normal(jnp.asarray(MEAN, jnp.float32), jnp.asarray(FACTOR, jnp.float32)), tw.Real(2))
STANDARD = tw.as_energy(Normal(jnp.zeros(2), jnp.eye(2)), tw.Real(2))


def test_moments_entropy_and_divergence_of_normals():
    mean, covariance = exact.moments(NORMAL)
    np.testing.assert_allclose(mean, MEAN, rtol=1e-5)
    np.testing.assert_allclose(covariance, COVARIANCE, rtol=1e-5)
    log_det = np.linalg.slogdet(COVARIANCE)[1]
    np.testing.assert_allclose(exact.entropy(NORMAL), 1 + LOG_2PI + 0.5 * log_det, rtol=1e-5)
    expected = 0.5 * (np.trace(COVARIANCE) + MEAN @ MEAN - 2 - log_det)
    np.testing.assert_allclose(exact.kl(NORMAL, STANDARD), expected, rtol=1e-5)
    # backwards it is another number
    precision = FACTOR.T @ FACTOR
    backwards = 0.5 * (np.trace(precision) + MEAN @ precision @ MEAN - 2 + log_det)
    np.testing.assert_allclose(exact.kl(STANDARD, NORMAL), backwards, rtol=1e-5)


def test_an_expectation_widens_the_mesh_for_what_is_averaged():
    # the 1e-7 of N(0, 1) beyond x = 5.2 hold 1.4 % of E[exp(3x)]; at x = 30 exp(3x) is beyond single precision
    answer = exact.expectation(lambda x: 0.5 * x**2, lambda x: [jnp.exp(3 * x), x], tw.Real(()))
    np.testing.assert_allclose(answer[0], math.exp(4.5), rtol=1e-5)
    np.testing.assert_allclose(answer[1], 0, atol=1e-5)
    # a variance of 40² reaches beyond the first mesh
    wide = exact.moments(lambda x: 0.5 * jnp.sum((x / 40) ** 2), tw.Real(1))
    np.testing.assert_allclose(wide.covariance, 1600, rtol=1e-5)


def test_one_infinite_bound_gives_a_distribution_function():
    def log_mass(low, high):
        return exact.log_z(STANDARD, bounds=(jnp.array(low), jnp.array(high))) - LOG_2PI

    below = log_mass([-jnp.inf, -jnp.inf], [-1.2, jnp.inf])
    np.testing.assert_allclose(jnp.exp(below), stats.norm.cdf(-1.2), rtol=1e-5)
    corner = log_mass([0.3, -jnp.inf], [jnp.inf, 0.7])
    np.testing.assert_allclose(jnp.exp(corner), stats.norm.sf(0.3) * stats.norm.cdf(0.7), rtol=1e-5)


def test_log_z_is_differentiable_between_bounds():
    gradient = eqx.filter_jit(eqx.filter_grad(lambda e: exact.log_z(e, bounds=(-15.0, 15.0), points=2**16)))(NORMAL)
    # log Z = const - log|det factor|
    np.testing.assert_allclose(gradient.factor, -np.linalg.inv(FACTOR).T, atol=1e-4)
    np.testing.assert_allclose(gradient.mean, 0, atol=1e-4)


def test_the_even_mesh_converges_with_the_order_of_its_rule():
    # inside jit the mesh is the composite rule of 8 Gauss-Legendre nodes, of order 16
    def mass(a, boxes):
        energy = tw.as_energy(lambda x: a * (x - 0.3) ** 2, tw.Interval(0.0, 1.0))
        return jnp.exp(exact.log_z(energy, points=8 * boxes))

    expected = 0.5 * math.sqrt(math.pi / 3000) * (math.erf(0.7 * math.sqrt(3000)) + math.erf(0.3 * math.sqrt(3000)))
    boxes = np.array([8, 10, 12, 16])
    masses = jax.jit(lambda a: [mass(a, int(n)) for n in boxes])(3000.0)
    slope = np.polyfit(np.log(boxes), np.log(np.abs(np.array(masses) / expected - 1)), 1)[0]
    assert -20 < slope < -10


def test_new_weights_do_not_recompile_the_measuring_of_boxes():
    traces = []

    class Counted(Normal):
        def __call__(self, x):
            traces.append(1)
            return super().__call__(x)

    def log_z(scale):
        return exact.log_z(Counted(jnp.zeros(2), scale * jnp.eye(2)), tw.Real(2))

    log_z(1.0)
    first = len(traces)
    np.testing.assert_allclose(log_z(2.0), LOG_2PI - 2 * math.log(2), rtol=1e-5)
    assert len(traces) == first + 1  # the look at the shape of the answer


# refusals


def quadratic(x):
    return 0.5 * jnp.sum(x**2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: exact.log_z(quadratic), r"expected a space .* got an energy that carries none; give one"),
        (
            lambda: exact.log_z(lambda x: x**2, tw.Real(2)),
            r"return a scalar .* got shape \(2,\); sum over",
        ),
        (lambda: exact.log_z(quadratic, tw.Real(4)), "expected at most 3 dimensions for quadrature, got 4"),
        (lambda: exact.log_z(quadratic, tw.Simplex(3)), r"Real, Positive or Interval space, got Simplex"),
        (lambda: exact.log_z(quadratic, tw.Real(2), bounds=(1, 0)), r"-inf <= low < high <= inf, got \(1, 0\)"),
        (lambda: exact.log_z(quadratic, tw.Positive(2), bounds=(-1, 1)), r"0.0 <= low < high <= inf, got"),
        (lambda: exact.log_z(quadratic, tw.Real(2), bounds=(-1,)), r"expected bounds=\(low, high\), got \(-1,\)"),
        (lambda: exact.log_z(quadratic, tw.Real(2), bounds=(np.zeros(3), 1)), r"of shape \(2,\), got shape \(3,\)"),
        (lambda: exact.log_z(quadratic, tw.Real(2), points=10), "expected points >= 64 in 2 dimensions, got 10"),
        (lambda: exact.log_z(quadratic, tw.Real(2), tolerance=2.0), "expected a tolerance between 0 and 1, got 2.0"),
        (lambda: exact.kl(STANDARD, tw.as_energy(quadratic, tw.Real(1))), "expected two energies on one space"),
        (lambda: jax.jit(lambda: exact.log_z(STANDARD))(), "expected finite bounds inside jit, grad or vmap"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


LINE = {
    "flat": (polynomial(0.0), "expected mass that ends somewhere, got some beyond x"),
    "upside down": (polynomial(-1.0), "expected mass that ends somewhere, got some beyond x"),
    "half-bounded": (polynomial(0.0, b=1.0), "expected mass that ends somewhere, got some beyond x"),
    "minus infinity": (polynomial(-math.inf), "got NaN or -inf from the energy"),
    "not a number": (polynomial(math.nan), "got NaN or -inf from the energy"),
    "nowhere finite": (polynomial(math.inf), r"finite somewhere, got \+inf at every node"),
    "no integral at a point": (polynomial(1.0, log=2.0), "expected a density that 2048 boxes"),
}


@pytest.mark.parametrize("name", LINE)
def test_what_has_no_integral_is_refused(name):
    energy, message = LINE[name]
    with pytest.raises(ValueError, match=message):
        exact.log_z(energy, tw.Real(()))


def test_moments_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="expected mass that ends somewhere"):
        exact.moments(lambda x: jnp.log1p(x**2), tw.Real(()))


def test_more_points_resolve_more():
    def wiggly(x):
        return 0.5 * x**2 + jnp.sin(300 * x)

    with pytest.raises(ValueError, match=r"expected a density that 128 boxes .* raise points"):
        exact.log_z(wiggly, tw.Real(()), points=2**10)
    # the mean of exp(-sin) is the Bessel function I_0(1)
    np.testing.assert_allclose(exact.log_z(wiggly, tw.Real(())), 0.5 * LOG_2PI + np.log(special.i0(1)), atol=1e-5)
