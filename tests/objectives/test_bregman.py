"""Convex functions, their derivatives from log u, and density ratios by them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import objectives
from thalweg.core import Energy
from thalweg.objectives.noise_contrastive import LogZ

# ψ and ψ''(1), as SPEC has them
PSIS = {
    "logistic": (objectives.Logistic(), lambda u: u * jnp.log(u) - (1 + u) * jnp.log1p(u), 0.5),
    "KL": (objectives.KullbackLeibler(), lambda u: u * jnp.log(u), 1.0),
    "squared": (objectives.Squared(), lambda u: u**2 / 2, 1.0),
    "Itakura-Saito": (objectives.ItakuraSaito(), lambda u: -jnp.log(u), 1.0),
    "power 0.5": (objectives.Power(0.5), lambda u: (u**1.5 - 1.5 * u + 0.5) / 0.75, 1.0),
    "power -2": (objectives.Power(-2.0), lambda u: (u**-1 + u - 2) / 2, 1.0),
    "power 0": (objectives.Power(0.0), lambda u: u * jnp.log(u) - u + 1, 1.0),
    "power -1": (objectives.Power(-1.0), lambda u: -jnp.log(u) + u - 1, 1.0),
    "custom": (objectives.Custom(lambda u: jnp.cosh(u / 4)), lambda u: jnp.cosh(u / 4), float(np.cosh(0.25) / 16)),
    "custom pair": (objectives.Custom(s1=lambda v: 1 + v, s0=jnp.exp), lambda u: u * jnp.log(u), 1.0),
}
TRUTH = tw.energies.Gaussian(jnp.array([0.5, -1.0]), jnp.array([[1.0, 0.4], [0.4, 0.7]]))
WIDE = tw.energies.Gaussian(jnp.array([0.5, -1.0]), jnp.array([[2.0, 0.5], [0.5, 1.4]]))
NARROW = tw.energies.Gaussian(jnp.array([0.4, -1.0]), jnp.array([[0.8, 0.3], [0.3, 0.5]]))


@pytest.mark.parametrize("name", PSIS)
def test_s1_and_s0_are_those_of_psi(name):
    psi, formula, curvature = PSIS[name]
    u = jnp.geomspace(0.05, 20.0, 9)
    values, slopes = jax.vmap(jax.value_and_grad(formula))(u)
    # powers leave out what is constant in the loss, no more
    assert np.allclose(psi.s1(jnp.log(u)), slopes, rtol=2e-4, atol=1e-4)
    assert np.allclose(psi.s0(jnp.log(u)), u * slopes - values, rtol=1e-3, atol=1e-4)
    assert float(psi.curvature) == pytest.approx(curvature, rel=1e-4)


def test_powers_pass_smoothly_through_their_limits():
    log_u = jnp.array([-3.0, -1e-3, 0.0, 1e-3, 2.0])
    for beta in (0.0, -1.0):
        near = objectives.Power(beta + 1e-4)
        for s in ("s1", "s0"):
            exact, close = (getattr(psi, s)(log_u) for psi in (objectives.Power(beta), near))
            assert np.allclose(exact, close, rtol=1e-3, atol=1e-6)
            slope = jax.vmap(jax.grad(getattr(objectives.Power(beta), s)))(log_u)
            assert np.isfinite(slope).all()
    # at each limit the loss S0(noise) - S1(data) is that of the named function up to a constant
    for beta, named in ((0.0, objectives.KullbackLeibler()), (-1.0, objectives.ItakuraSaito())):
        power = objectives.Power(beta)
        difference = (power.s0(log_u) - power.s1(log_u[::-1])) - (named.s0(log_u) - named.s1(log_u[::-1]))
        assert np.allclose(difference, difference[0], atol=1e-5)


class Steep(Energy):
    """``E = slope·x``, of any size."""

    slope: jax.Array
    space: tw.Real = eqx.field(static=True, default=tw.Real(1))

    def __call__(self, x):
        return self.slope * x[0]


def at_extremes(objective, size):
    """The loss and gradient where log g is ±size on data and on noise alike."""
    batch = jnp.array([[1.0], [-1.0]])
    state = objective.init(jax.random.key(0), Steep(jnp.array(1.0)), batch)[1]
    state = state._replace(points=batch, log_probs=jnp.zeros(2))

    @eqx.filter_value_and_grad(has_aux=True)
    def loss(pair):
        return objective.loss(jax.random.key(1), pair[0], pair[1], state, batch)

    (value, step), gradient = loss((Steep(jnp.array(size)), LogZ(jnp.zeros(()))))
    return value, step.metrics["not_finite"], gradient


class Flat(eqx.Module):
    """Noise of log density zero."""

    def sample(self, key, shape=()):
        return jnp.zeros((*shape, 1))

    def log_prob(self, x):
        return 0.0 * x[0]


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_the_logistic_loss_is_finite_at_ten_thousand_nats(size):
    for objective in (objectives.NCE(Flat(), fixed=2), objectives.BregmanRatio(objectives.Logistic(), Flat(), fixed=2)):
        value, not_finite, (energy, params) = at_extremes(objective, size)
        # on each side one of two points is on the wrong side by 10⁴
        assert float(value) == pytest.approx(1e4, rel=1e-5)
        assert not_finite == 0
        # d/dslope: data at ±1 and noise at ±1, each wrong one with weight a half
        assert float(energy.slope) == pytest.approx(np.sign(size) * 1.0, rel=1e-5)
        assert float(params.log_z) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("psi", [objectives.Squared(), objectives.KullbackLeibler(), objectives.ItakuraSaito()])
def test_an_overflow_is_kept_and_reported(psi):
    value, not_finite, _ = at_extremes(objectives.BregmanRatio(psi, Flat(), fixed=2), 1e4)
    assert not np.isfinite(value)
    assert 0 < float(not_finite) <= 0.5
    value, not_finite, _ = at_extremes(objectives.BregmanRatio(psi, Flat(), fixed=2), 5.0)
    assert np.isfinite(value)
    assert not_finite == 0


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        pytest.param("KL", WIDE, marks=pytest.mark.slow),
        ("squared", WIDE),
        ("Itakura-Saito", NARROW),
        pytest.param("power 0.5", WIDE, marks=pytest.mark.slow),
        pytest.param("custom", WIDE, marks=pytest.mark.slow),
    ],
)
def test_the_truth_is_where_the_loss_is_smallest(name, noise, key):
    objective = objectives.BregmanRatio(PSIS[name][0], noise, nu=0.5)
    verdict = tw.check_objective(objective, key=key, energy=TRUTH, batches=200)
    assert verdict.passed, verdict.text
    assert verdict.detectable < 0.2


def test_psi_may_be_a_function_or_left_out():
    assert isinstance(objectives.BregmanRatio().psi, objectives.Logistic)
    assert isinstance(objectives.BregmanRatio(lambda u: u**2).psi, objectives.Custom)
    # convex beyond what single precision can hold at the ends
    assert float(objectives.Custom(lambda u: u**20).curvature) == pytest.approx(380.0)
    assert float(objectives.Custom(lambda u: -jnp.sqrt(u)).curvature) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: objectives.Custom(jnp.sin), r"expected a convex psi, got psi''\(u\) < 0 at u = "),
        (lambda: objectives.Custom(jnp.sqrt), "expected a convex psi"),
        (lambda: objectives.Custom(lambda u: -(u**2)), "expected a convex psi"),
        (lambda: objectives.Custom(lambda u: (u - 1) ** 4 - 0.1 * (u - 1) ** 2), "got psi''.* at u = "),
        (lambda: objectives.BregmanRatio(lambda u: 3 * u + 1), "psi'' = 0 everywhere"),
        (lambda: objectives.Custom(s1=lambda v: -v, s0=lambda v: -jnp.exp(v)), "expected a convex psi"),
        (lambda: objectives.Custom(s1=lambda v: 1 + v, s0=lambda v: jnp.exp(2 * v)), "expected s0 and s1 of one psi"),
        (lambda: objectives.Custom(s1=lambda v: v), "expected psi, or s1 and s0 together"),
        (lambda: objectives.Custom(), "expected psi, or s1 and s0 together"),
        (lambda: objectives.BregmanRatio(objectives.Squared), "expected a psi such as Squared"),
        (lambda: objectives.BregmanRatio(nu=0.0), "expected nu > 0, got 0.0"),
        (lambda: objectives.BregmanRatio(fixed=0), "expected fixed to be a whole number >= 1, got 0"),
    ],
)
def test_bad_input_gets_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
