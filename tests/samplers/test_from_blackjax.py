"""Every MCMC algorithm of blackjax that fits is a kernel that leaves its target as it is; the others are refused."""

import inspect
import re

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.mcmc.marginal_latent_gaussian import svd_from_covariance
from blackjax.mcmc.random_walk import normal

import thalweg as tw
from thalweg.core import PerChain
from thalweg.samplers import from_blackjax

ONE = jnp.ones(2)
GAUSS = tw.energies.Gaussian(jnp.array([0.5, -1.0]), jnp.array([[1.0, 0.6], [0.6, 0.8]]))
RATES = tw.energies.Exponential(jnp.array([1.0, 2.0]))
HMC = dict(step_size=0.4, inverse_mass_matrix=ONE, num_integration_steps=4)
ROWS = {
    "hmc": HMC,
    "mhmc": HMC,
    "nuts": dict(step_size=0.5, inverse_mass_matrix=ONE, max_num_doublings=4),
    "dhmc": dict(step_size=0.4, inverse_mass_matrix=ONE),
    "dmhmc": dict(step_size=0.4, inverse_mass_matrix=ONE),
    "mala": dict(step_size=0.2),
    "rmhmc": dict(step_size=0.4, mass_matrix=ONE, num_integration_steps=3),
    "ghmc": dict(step_size=0.4, momentum_inverse_scale=ONE, alpha=0.4, delta=0.3),
    "barker": dict(step_size=0.5),
    "elliptical_slice": dict(mean=jnp.zeros(2), cov=2 * ONE),
    "slice_sampling": dict(width=2.0, max_expansions=4),
    "coordinate_slice": dict(initial_widths=2.0, max_expansions=4),
    "gist_step_size": dict(inverse_mass_matrix=ONE, initial_step_size=0.5, num_integration_steps=2),
    "gist_trajectory_length": dict(inverse_mass_matrix=ONE, step_size=0.4, max_num_steps=64),
    "mclmc": dict(L=1.0, step_size=0.2),  # unadjusted: its bias is too small to be seen here
    "adjusted_mclmc": dict(step_size=0.5, num_integration_steps=3),
    "adjusted_mclmc_dynamic": dict(step_size=0.5),
    "orbital_hmc": dict(step_size=0.4, inverse_mass_matrix=ONE, period=4),
    "mgrad_gaussian": dict(covariance=2 * jnp.eye(2), mean=jnp.ones(2), step_size=1.0),
    "rmh": dict(proposal_generator=lambda key, z: z + 0.7 * jax.random.normal(key, z.shape)),
    "irmh": dict(
        proposal_distribution=lambda key: 2 * jax.random.normal(key, (2,)),
        proposal_logdensity_fn=lambda here, there: -jnp.sum(there.position**2) / 8,
    ),
    "additive_step_random_walk": dict(random_step=normal(0.7 * ONE)),
}
REFUSED = {name for name, value in vars(blackjax).items() if isinstance(value, blackjax.GenerateSamplingAPI)}
REFUSED = {name for name in REFUSED if not any(getattr(blackjax, row) is getattr(blackjax, name) for row in ROWS)}
OTHERS = {"meanfield_vi", "fullrank_vi", "schrodinger_follmer", "pathfinder", "multipathfinder", "window_adaptation"}
QUICK = {"hmc", "ghmc", "elliptical_slice", "orbital_hmc", "mgrad_gaussian", "mala", "irmh"}
CASES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ROWS]


def kernel_of(name, **changed):
    return from_blackjax(getattr(blackjax, name), **{**ROWS[name], **changed})


@pytest.mark.parametrize("name", CASES)
def test_the_law_of_a_correlated_gaussian_stays(key, name):
    verdict = tw.check_sampler(kernel_of(name), GAUSS, key=key, chains=4000, steps=8)
    assert verdict.passed, verdict


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_the_law_on_a_support_stays(key, name):
    verdict = tw.check_sampler(kernel_of(name), RATES, key=key, chains=4000, steps=8)
    assert verdict.passed, verdict


def test_an_unadjusted_algorithm_is_biased_by_design(key):
    verdict = tw.check_sampler(kernel_of("mclmc", step_size=1.5), GAUSS, key=key, chains=20_000, steps=20)
    assert not verdict.passed, verdict


def test_momenta_begin_at_their_own_law(key):
    """Blackjax's own start, momenta of ``N(0, I)``, fails this by 60 standard errors."""
    kernel = kernel_of("ghmc", step_size=0.2, momentum_inverse_scale=3 * ONE)
    assert tw.check_sampler(kernel, GAUSS, key=key, chains=4000, steps=2).passed


def test_a_random_walk_has_its_width_as_an_array(key):
    kernel = from_blackjax(blackjax.additive_step_random_walk.normal_random_walk, sigma=0.7 * ONE)
    assert tw.check_sampler(kernel, GAUSS, key=key, chains=4000, steps=8).passed


@pytest.mark.parametrize("prior", ["elliptical_slice", "mgrad_gaussian"])
def test_the_gaussian_of_an_algorithm_does_not_change_the_target(key, prior):
    """A Gaussian far from the target, full, off its centre: taken out of the likelihood, it does not change the law."""
    covariance = jnp.array([[3.0, 1.0], [1.0, 2.0]])
    changed = dict(cov=covariance) if prior == "elliptical_slice" else dict(covariance=covariance)
    kernel = kernel_of(prior, mean=jnp.array([-1.0, 0.5]), **changed)
    assert tw.check_sampler(kernel, GAUSS, key=key, chains=4000, steps=8).passed


def test_a_decomposed_covariance_is_as_good_as_the_matrix(key):
    covariance = jnp.array([[3.0, 1.0], [1.0, 2.0]])
    one = kernel_of("mgrad_gaussian", covariance=covariance)
    two = from_blackjax(blackjax.mgrad_gaussian, cov_svd=svd_from_covariance(covariance), mean=ONE, step_size=1.0)
    run = lambda kernel: tw.sample(GAUSS, kernel, jnp.zeros((3, 2)), key=key, draws=5).draws
    np.testing.assert_allclose(run(one), run(two), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_a_chain_goes_on_where_it_stopped(key, name):
    """Retargeted to its own energy a state stays as it is; to another one, its momenta and random numbers do."""
    kernel = kernel_of(name)
    state = tw.sample(GAUSS, kernel, jnp.ones((3, 2)), key=key, draws=2).state
    same, other = kernel.retarget(GAUSS, state), kernel.retarget(tw.tempered(GAUSS, 2.0), state)
    for field, old, new in zip(state.inner._fields, state.inner, same.inner, strict=True):
        np.testing.assert_allclose(old, new, rtol=1e-3, atol=1e-4, err_msg=field)
    np.testing.assert_array_equal(other.x, state.x)
    fresh = kernel.init(jax.random.key(1), tw.tempered(GAUSS, 2.0), state.x).inner
    for field, old, new in zip(state.inner._fields, state.inner, other.inner, strict=True):
        of_energy = field.startswith("logdensit") or field == "U_grad_x"
        np.testing.assert_allclose(new, getattr(fresh, field) if of_energy else old, rtol=1e-4, err_msg=field)


@pytest.mark.parametrize("name", ["ghmc", "orbital_hmc", "dhmc"])
@pytest.mark.parametrize("wrap", ["ParallelTempering", "SimulatedAnnealing"])
@pytest.mark.slow
def test_inside_tempering_and_annealing_the_law_stays(key, name, wrap):
    kernel, heats = kernel_of(name), [1.0]
    if wrap == "ParallelTempering":
        heats = [1.0, 2.0, 4.0]
        kernel = tw.samplers.ParallelTempering(kernel, heats)
    else:
        kernel = tw.samplers.SimulatedAnnealing(kernel, 1.0001, 1.0, 5)
    wide = [tw.energies.Gaussian(jnp.zeros(2), heat * jnp.eye(2)) for heat in heats]
    exact = [each.sample for each in wide] if len(heats) > 1 else wide[0].sample
    assert tw.check_sampler(kernel, wide[0], key=key, exact=exact, chains=4000, steps=8).passed


def test_another_step_size_compiles_nothing(key):
    compilations = []
    run = lambda kernel: jax.block_until_ready(tw.sample(GAUSS, kernel, jnp.zeros((3, 2)), key=key, draws=3).draws)
    one, two = kernel_of("hmc"), kernel_of("hmc", step_size=0.3, inverse_mass_matrix=2 * ONE)
    run(one)
    listen = lambda event, *_, **__: compilations.append(event) if "backend_compile" in event else None
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        run(two)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert not compilations


@pytest.mark.parametrize("name", ["hmc", "ghmc", "orbital_hmc", "slice_sampling", "mclmc", "nuts"])
def test_trees_energies_of_their_own_and_metrics(key, name):
    """Points that are trees; chains with an energy each; every array has the chains first."""
    kernel = kernel_of(name)
    tree = {"a": jnp.zeros((5, 1)), "b": jnp.zeros(5)}
    energy = PerChain(lambda _, c: lambda x: jnp.sum((x["a"] - c) ** 2) + x["b"] ** 2, None, jnp.arange(5.0))

    def run(key):
        state = kernel.init(key, energy, tree)
        new, info = kernel.step(key, energy, state)
        return state, new, info, new.x

    state, new, info, x = jax.eval_shape(run, key)
    assert x["b"].shape == (5,) and jax.tree.structure(new) == jax.tree.structure(state)
    assert all(leaf.shape[:1] == (5,) for leaf in jax.tree.leaves((state, new, info)))
    assert (info.acceptance is None) == (name in ("mclmc", "orbital_hmc"))
    assert (info.divergent is None) == (name in ("orbital_hmc", "slice_sampling"))


def test_far_up_in_energy_an_orbit_still_has_weights(key):
    """Blackjax takes ``exp(-E)`` itself, which is zero here; relative to the present point it is not."""
    high = lambda x: 1000.0 + 0.5 * jnp.sum(x**2)
    draws = tw.sample(high, kernel_of("orbital_hmc"), jnp.ones((500, 2)), key=key, draws=1, burn_in=50).draws
    assert bool(jnp.all(jnp.isfinite(draws))) and abs(draws.var() - 1) < 0.2


def test_a_density_that_is_no_number_is_not_entered(key):
    wall = lambda x: 0.5 * jnp.sum(x**2) + jnp.where(x[0] > 0.5, jnp.nan, 0.0)
    for name in ("elliptical_slice", "slice_sampling"):
        draws = tw.sample(wall, kernel_of(name), jnp.zeros((50, 2)), key=key, draws=10).draws
        assert bool(jnp.all(draws[..., 0] <= 0.5)), name


def refusal(call):
    with pytest.raises(ValueError) as caught:
        call()
    assert re.match("expected .+, got .+; .+", str(caught.value)), caught.value
    return str(caught.value)


def test_every_algorithm_of_blackjax_has_a_row_or_is_refused():
    kinds = "smc|tuning|nss|sg|svgd|laplace"
    assert all(re.search(kinds, name) for name in REFUSED), REFUSED
    for name in sorted(REFUSED | OTHERS):
        text = refusal(lambda name=name: from_blackjax(getattr(blackjax, name)))
        assert re.match(f"expected an MCMC algorithm of blackjax, got {name}: (it|nested sampling) ", text), text


@pytest.mark.parametrize(
    "thing", [len, "hmc", blackjax.mcmc.hmc, jnp.sum, tw.samplers.HMC, blackjax.mcmc.hmc.init, None]
)
def test_what_is_no_algorithm_of_blackjax_is_refused(thing):
    assert "expected an MCMC algorithm of blackjax" in refusal(lambda: from_blackjax(thing))


PARAMETERS = {
    "unknown": (dict(HMC, steps=3), "got an unknown steps"),
    "missing": (dict(step_size=0.1), "got no inverse_mass_matrix, num_integration_steps"),
    "the density": (dict(HMC, logdensity_fn=jnp.sum), "got an unknown logdensity_fn"),
    "negative": (dict(HMC, step_size=-0.1), "expected step_size > 0"),
    "not a number": (dict(HMC, step_size="small"), "expected step_size to be real numbers"),
    "NaN": (dict(HMC, inverse_mass_matrix=jnp.array([1.0, jnp.nan])), "expected inverse_mass_matrix without NaN"),
    "half a step": (dict(HMC, num_integration_steps=2.5), "expected num_integration_steps to be a whole number"),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_that_do_not_fit_are_refused(name):
    parameters, sentence = PARAMETERS[name]
    assert sentence in refusal(lambda: from_blackjax(blackjax.hmc, **parameters))


def test_covariances_that_are_none_are_refused():
    assert "positive-definite" in refusal(lambda: kernel_of("elliptical_slice", cov=jnp.array([[1.0, 2], [2, 1.0]])))
    assert "expected a covariance of shape (d, d)" in refusal(lambda: kernel_of("mgrad_gaussian", covariance=ONE))
    assert "expected a covariance for mgrad_gaussian, got none" in refusal(
        lambda: from_blackjax(blackjax.mgrad_gaussian)
    )


def test_points_that_do_not_fit_are_refused(key):
    run = lambda energy, kernel, x: tw.sample(energy, kernel, x, key=key, draws=1)
    ising = tw.energies.Ising(jnp.zeros((2, 2)))
    assert "expected a continuous space for hmc" in refusal(lambda: run(ising, kernel_of("hmc"), jnp.ones((1, 2), int)))
    with pytest.raises(ValueError, match="hmc: expected an energy, got the score network"):
        run(tw.as_score(lambda x: -x), kernel_of("hmc"), jnp.zeros((1, 2)))
    plain = lambda x: jnp.sum(x**2)
    assert "in it: " in refusal(lambda: run(plain, kernel_of("hmc"), jnp.zeros((1, 3))))
    assert "two or more real coordinates" in refusal(lambda: run(plain, kernel_of("mclmc"), jnp.zeros((1, 1))))
    assert "a covariance for 3" in refusal(lambda: run(plain, kernel_of("elliptical_slice"), jnp.zeros((1, 3))))


def test_the_numbers_of_a_kernel_are_its_leaves():
    kernel = kernel_of("hmc")
    assert sorted(leaf.shape for leaf in jax.tree.leaves(eqx.filter(kernel, eqx.is_array))) == [(), (2,)]
    assert kernel.parameters["num_integration_steps"] == 4 and inspect.isfunction(kernel.build)
