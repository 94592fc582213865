"""What kernels refuse, in one sentence with the way out, and what they reject and count."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw

PLANE = tw.energies.Gaussian(jnp.zeros(2), jnp.eye(2))
STEP_SIZES = {
    "Langevin": tw.samplers.Langevin,
    "UnderdampedLangevin": tw.samplers.UnderdampedLangevin,
    "GradientDescent": tw.samplers.GradientDescent,
    "MALA": tw.samplers.MALA,
    "HMC": tw.samplers.HMC,
    "NUTS": tw.samplers.NUTS,
    "RandomWalk": tw.samplers.RandomWalk,
    "RandomWalk, one width of several": lambda size: tw.samplers.RandomWalk(jnp.array([1.0, size])),
    "AnnealedLangevin": lambda size: tw.samplers.AnnealedLangevin(jnp.array([1.0, 0.1]), epsilon=size),
}
GRADIENT_KERNELS = [
    tw.samplers.Langevin(0.1),
    tw.samplers.UnderdampedLangevin(0.1),
    tw.samplers.GradientDescent(0.1),
    tw.samplers.MALA(0.1),
    tw.samplers.HMC(0.1, steps=2),
    tw.samplers.NUTS(0.1, max_doublings=2),
    tw.samplers.RandomWalk(0.1),
]
ADJUSTED = (tw.samplers.MALA, tw.samplers.HMC, tw.samplers.NUTS, tw.samplers.RandomWalk)


def refusal(call):
    """The sentence of a refusal: what was expected, what came, and after a semicolon the way out."""
    with pytest.raises(ValueError) as caught:
        call()
    text = str(caught.value)
    assert re.fullmatch(r"(\w+: )?expected .+, got .+; .+", text, re.DOTALL), text
    assert len(text) < 400 and not text.endswith(".")
    return text


@pytest.mark.parametrize("size", [0.0, -0.1, jnp.nan, jnp.inf])
@pytest.mark.parametrize("kernel", STEP_SIZES)
def test_step_sizes_that_are_not_positive_are_refused(kernel, size):
    assert re.search("expected (step_size|scale|epsilon) > 0", refusal(lambda: STEP_SIZES[kernel](size)))


@pytest.mark.parametrize(
    "mass",
    [
        -1.0,
        jnp.array([1.0, 0.0]),
        jnp.array([[1.0, 2.0], [2.0, 1.0]]),
        jnp.array([[1.0, 0.5], [0.0, 1.0]]),  # not symmetric
        jnp.array([[1.0, jnp.nan], [jnp.nan, 1.0]]),
        jnp.zeros((2, 3)),
    ],
)
@pytest.mark.parametrize("kernel", [tw.samplers.HMC, tw.samplers.NUTS])
def test_a_mass_matrix_that_is_not_positive_definite_is_refused(kernel, mass):
    assert "mass matrix" in refusal(lambda: kernel(0.1, mass_matrix=mass))


@pytest.mark.parametrize("kernel", [tw.samplers.HMC, tw.samplers.NUTS])
def test_a_mass_matrix_of_the_wrong_size_is_refused(key, kernel):
    text = refusal(lambda: tw.sample(PLANE, kernel(0.1, mass_matrix=jnp.ones(3)), jnp.zeros((1, 2)), key=key, draws=1))
    assert "expected a mass matrix for 2 coordinates, got shape (3,)" in text


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: tw.samplers.Langevin(0.1, noise_scale=-1.0), "expected noise_scale >= 0"),
        (lambda: tw.samplers.Langevin(0.1, clip_x=(1.0, -1.0)), "expected clip_x"),
        (lambda: tw.samplers.Langevin(0.1, clip_gradient=0.0), "expected clip_gradient > 0"),
        (lambda: tw.samplers.HMC(0.1, steps=0), "expected steps to be a whole number >= 1"),
        (lambda: tw.samplers.HMC(0.1, steps=1.5), "expected steps to be a whole number >= 1"),
        (lambda: tw.clamp(PLANE, jnp.ones(2, bool), jnp.zeros(2)), "expected a mask that leaves something free"),
    ],
)
def test_bad_settings_are_refused(make, sentence):
    assert sentence in refusal(make)


class Like(tw.samplers.Proposal):
    """Proposes what ``change`` makes of the point, with what ``ratio`` makes of it as its log ratio."""

    change: object
    ratio: object = jnp.sum

    def propose(self, key, x):
        return self.change(x)

    def log_ratio(self, x, proposed):
        return self.ratio(x)


@pytest.mark.parametrize(
    "kernel, sentence",
    [
        (tw.samplers.MetropolisHastings(Like(lambda x: jnp.concatenate([x, x]))), r"type \(\(2,\), .*, got \(\(4,\)"),
        (tw.samplers.MetropolisHastings(Like(lambda x: x[0])), r"type \(\(2,\), .*, got \(\(\)"),
        (tw.samplers.MetropolisHastings(Like(lambda x: x.astype(int))), "float32.*, got .* 'int32"),
        (tw.samplers.MetropolisHastings(Like(lambda x: x, lambda x: x)), r"log_ratio to be a scalar .* got shape \(2,"),
        (tw.samplers.Independence(tw.energies.Gaussian(jnp.zeros(3), 1.0)), r"type \(\(2,\), .*, got \(\(3,\)"),
    ],
)
def test_a_proposal_of_the_wrong_shape_is_refused(key, kernel, sentence):
    text = refusal(lambda: tw.sample(PLANE, kernel, jnp.ones((3, 2)), key=key, draws=1))
    assert re.search(sentence, text), text


@pytest.mark.parametrize("kernel", GRADIENT_KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_bad_pairings_are_refused_by_name(key, kernel):
    name = type(kernel).__name__
    spins = tw.as_energy(lambda x: jnp.sum(x), tw.Spin(2))
    text = refusal(lambda: tw.sample(spins, kernel, jnp.ones((2, 2), int), key=key, draws=1))
    assert f"continuous space for {name}, got Spin" in text
    text = refusal(lambda: tw.sample(lambda x: jnp.sum(x), kernel, jnp.ones((2, 2), int), key=key, draws=1))
    assert f"floating-point numbers for {name}" in text
    if isinstance(kernel, ADJUSTED):
        text = refusal(lambda: tw.sample(tw.as_score(lambda x: -x), kernel, jnp.ones((2, 2)), key=key, draws=1))
        assert text.startswith(f"{name}: expected an energy, got the score network")


def test_annealed_langevin_is_refused_on_spins(key):
    kernel = tw.samplers.AnnealedLangevin(jnp.array([1.0, 0.1]))
    noisy = lambda x, sigma: jnp.sum(x) / sigma
    text = refusal(lambda: tw.sample(noisy, kernel, jnp.ones((2, 2), int), key=key, draws=1))
    assert "floating-point numbers for AnnealedLangevin" in text


def test_gibbs_without_conditionals_is_refused(key):
    plain = tw.as_energy(jnp.sum, tw.Binary(2))
    text = refusal(lambda: tw.sample(plain, tw.samplers.Gibbs(), jnp.ones((1, 2), int), key=key, draws=1))
    assert "expected an energy with conditionals for Gibbs" in text


@pytest.mark.parametrize("progress", [False, True])
def test_a_start_with_no_energy_is_said_at_once_with_the_point(key, progress):
    """Before the two thousand million steps that were asked for."""
    pole = tw.as_energy(lambda x: x[0] - jnp.log(x[0]), tw.Real(1))
    settings = {"key": key, "draws": 1, "burn_in": 2 * 10**9, "progress": progress}
    text = refusal(lambda: tw.sample(pole, tw.samplers.MALA(0.1), jnp.array([[1.0], [2.0], [-3.5]]), **settings))
    assert "chain 2 at x = [-3.5]" in text


# non-finite proposals

KERNELS = {
    "RandomWalk": tw.samplers.RandomWalk(1.0),
    "Independence": tw.samplers.Independence(tw.energies.Gaussian(jnp.zeros(1), 4.0)),
    "MetropolisHastings": tw.samplers.MetropolisHastings(Like(lambda x: x + 1.0, lambda x: 0.0 * x[0])),
    "MALA": tw.samplers.MALA(1.0),
    "HMC": tw.samplers.HMC(0.5, steps=3),
    "NUTS": tw.samplers.NUTS(0.5, max_doublings=3),
}


class Island(eqx.Module):
    """Finite at ones alone."""

    elsewhere: jax.Array

    def __call__(self, x):
        return jnp.where(jnp.all(x == 1), 0.5 * jnp.sum(x**2), self.elsewhere)


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_proposal_of_non_finite_energy_is_rejected_and_counted(key, kernel, bad):
    """On an energy that is finite at the start alone every proposal is bad, each is counted, and no chain moves."""
    chains = tw.sample(Island(jnp.array(bad)), KERNELS[kernel], jnp.ones((5, 1)), key=key, draws=7)
    assert jnp.all(chains.draws == 1.0)
    assert chains.stats["divergences"].tolist() == [7] * 5
    assert jnp.all(chains.stats["acceptance"] == 0)


def test_a_proposal_of_non_finite_energy_is_rejected_and_counted_on_spins(key):
    island = tw.as_energy(Island(jnp.array(jnp.nan)), tw.Spin(3))
    chains = tw.sample(island, tw.samplers.GibbsWithGradients(), jnp.ones((5, 3), int), key=key, draws=7)
    assert jnp.all(chains.draws == 1)
    assert chains.stats["divergences"].tolist() == [7] * 5


@pytest.mark.slow
def test_the_law_beside_a_cliff_is_right(key):
    """An exponential density with nothing below zero: proposals beyond the cliff are rejected, and nothing else."""
    cliff = lambda x: jnp.where(x[0] > 0, x[0], jnp.nan)
    exact = lambda key, shape: jax.random.exponential(key, (*shape, 1))
    for kernel in (KERNELS["RandomWalk"], KERNELS["HMC"]):
        verdict = tw.check_sampler(kernel, cliff, key=key, exact=exact, chains=20_000)
        assert verdict.passed, verdict
    chains = tw.sample(cliff, KERNELS["RandomWalk"], jnp.ones((500, 1)), key=key, draws=50)
    assert jnp.all(chains.draws > 0)
    assert 0 < float(jnp.mean(chains.stats["divergences"])) < 50
    assert np.isfinite(chains.draws).all()
