"""``-log g(f)`` for every g, against quadrature, formulas and far from zero."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg import exact

FORMS = {"square": np.square, "absolute": np.abs, "softplus": lambda f: np.logaddexp(f, 0), "exponential": np.exp}
forms = pytest.mark.parametrize("form", FORMS)


def wave(x):
    return jnp.sum(jnp.sin(3 * x) - 0.4)


@forms
def test_the_energy_is_minus_log_g(form):
    x = np.linspace(-2, 2, 41)
    found = jax.jit(jax.vmap(tw.energies.PositiveForm(wave, form)))(jnp.asarray(x, float))
    np.testing.assert_allclose(found, -np.log(FORMS[form](np.sin(3 * x) - 0.4)), rtol=2e-4, atol=1e-5)


@forms
def test_log_z_by_quadrature_is_the_integral_of_g(form):
    energy = tw.energies.PositiveForm(lambda x: x**2 + 0.5, form, space=tw.Interval(-1.0, 2.0))
    nodes, weights = np.polynomial.legendre.leggauss(64)
    x = 0.5 + 1.5 * nodes
    expected = math.log(1.5 * np.sum(weights * FORMS[form](x**2 + 0.5)))
    np.testing.assert_allclose(exact.log_z(energy), expected, atol=1e-5)


@pytest.mark.parametrize(("form", "expected"), [("square", math.log(2 / 3)), ("absolute", 0.0)])
def test_a_zero_of_g_inside_the_space_has_no_mass(form, expected):
    energy = tw.energies.PositiveForm(lambda x: x, form, space=tw.Interval(-1.0, 1.0))
    np.testing.assert_allclose(exact.log_z(energy), expected, atol=1e-4)


@pytest.mark.parametrize("form", ["square", "absolute"])
def test_where_g_is_zero_the_energy_is_infinite_and_no_nan_comes_back(form):
    energy = tw.energies.PositiveForm(lambda x: x**2, form)
    value, slope = jax.value_and_grad(energy)(jnp.array(0.0))
    assert float(value) == math.inf and float(slope) == 0
    value, slope = jax.value_and_grad(energy)(jnp.array(1e-10))
    power = 4 if form == "square" else 2
    np.testing.assert_allclose([value, slope], [-power * math.log(1e-10), -power * 1e10], rtol=1e-5)


def test_softplus_far_below_zero_is_the_exponential_and_far_above_the_identity():
    energy = tw.energies.PositiveForm(lambda x: x, "softplus")
    f = np.array([-1e30, -500.0, -60.0, -10.01, -10.0, -9.99, -1.0, 0.0, 30.0, 500.0, 1e30])
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(energy)))(jnp.asarray(f, float))
    with np.errstate(over="ignore"):
        t = np.exp(np.minimum(f, 0))
        log_g = np.where(f < -30, f, np.log(np.where(f < -30, 1, np.logaddexp(f, 0))))
        sigmoid = np.where(f < 0, t / (1 + t), 1 / (1 + np.exp(-np.abs(f))))
    np.testing.assert_allclose(values, -log_g, rtol=1e-5)
    np.testing.assert_allclose(slopes[3:], -sigmoid[3:] / np.logaddexp(f[3:], 0), rtol=1e-4)
    np.testing.assert_array_equal(np.asarray(slopes[:3]), -1)


def test_softplus_in_double_precision():
    with jax.enable_x64(True):
        energy = tw.energies.PositiveForm(lambda x: x, "softplus")
        for f in (-10 - 1e-9, -10 + 1e-9):
            np.testing.assert_allclose(energy(jnp.array(f)), -math.log(math.log1p(math.exp(f))), rtol=1e-13)


def test_a_nan_of_the_function_is_not_hidden():
    for form in FORMS:
        assert math.isnan(tw.energies.PositiveForm(lambda x: x, form)(jnp.array(math.nan)))


@forms
def test_the_arrays_of_a_module_are_trained(form):
    key = jax.random.key(0)
    network = eqx.nn.MLP(1, "scalar", 8, 1, key=key)
    energy = tw.energies.PositiveForm(network, form, space=tw.Interval(0.0, 1.0, 1))
    data = tw.energies.Beta(4.0, 2.0).sample(key, (256, 1))
    objective = tw.objectives.ExactLikelihood(points=256)
    run = tw.fit(energy, data, objective, optimizer=optax.adam(0.02), steps=60, batch_size=256, key=key)
    assert type(run.energy) is tw.energies.PositiveForm and run.energy.form == form
    assert run.history["log_likelihood"][-1] > run.history["log_likelihood"][0] + 0.05


def test_the_space_of_an_energy_is_taken_over():
    function = tw.energies.MLP(2, width=4, key=jax.random.key(0))
    energy = tw.energies.PositiveForm(function, "square")
    assert energy.space == tw.Real(2)
    with pytest.raises(ValueError, match=r"expected one point of shape \(2,\), got \(5, 2\); batch by jax.vmap"):
        energy(jnp.zeros((5, 2)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda e: e.PositiveForm(3.0), "expected a callable x -> scalar, got float; wrap it in one"),
        (lambda e: e.PositiveForm(wave, "cube"), "expected a form among square, absolute, softplus, exponential, got"),
        (lambda e: e.PositiveForm(wave, None), "got None; choose one of them"),
        (lambda e: e.PositiveForm(lambda x: x)(jnp.zeros(2)), r"expected a scalar from the function, got shape \(2,\)"),
        (
            lambda e: e.PositiveForm(e.Normal(0.0, 1.0), space=tw.Positive(())),
            "expected one space, got Positive.* leave out `space`",
        ),
    ],
)
def test_impossible_forms_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make(tw.energies)
