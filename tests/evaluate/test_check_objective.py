"""`check_objective`: right objectives pass, wrong ones fail."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import objectives, samplers
from thalweg.core import Objective, Step
from thalweg.objectives.denoising import add_noise
from thalweg.objectives.score import AbstractScoreObjective, scores, squares

MIXTURE = tw.energies.GaussianMixture(
    jnp.array([0.7, 0.3]), jnp.array([[-1.0, 0.0], [1.5, 0.5]]), jnp.array([[[1.0, 0.3], [0.3, 0.6]], 0.5 * np.eye(2)])
)
TILTED = tw.energies.Gaussian(jnp.array([0.5, -1.0]), jnp.array([[1.0, 0.4], [0.4, 0.7]]))
RIGHT = {
    "explicit": objectives.ExplicitScoreMatching(MIXTURE),
    "implicit": objectives.ImplicitScoreMatching(),
    "hutchinson": objectives.HutchinsonScoreMatching(law="gaussian"),
    "sliced": objectives.SlicedScoreMatching(projections=2, law="sphere"),
    "finite difference": objectives.FiniteDifferenceScoreMatching(),
    "denoising": objectives.DenoisingScoreMatching(0.5),
    "denoising, levels": objectives.DenoisingScoreMatching(jnp.array([0.3, 1.0])),
    "noise-conditional": objectives.NoiseConditionalScoreMatching([1.0, 0.3], shares=[1.0, 3.0]),
    "likelihood": objectives.MaximumLikelihood(samplers.MALA(0.5), steps=2, start=samplers.from_data()),
}


# the others of each kind, for the longer run
SLOW = ("explicit", "implicit", "sliced", "finite difference", "denoising, levels", "noise-conditional", "likelihood")


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in RIGHT])
def test_right_objectives_pass_on_a_mixture(name, key):
    verdict = tw.check_objective(RIGHT[name], key=key, energy=MIXTURE)
    assert verdict.passed, verdict.text
    assert verdict.detectable < 0.15


@pytest.mark.parametrize("objective", [objectives.PseudoLikelihood(), objectives.RatioMatching()])
def test_discrete_objectives_pass_on_an_ising_model(objective, key):
    verdict = tw.check_objective(objective, key=key)
    assert verdict.passed, verdict.text
    assert verdict.detectable < 0.15


@pytest.mark.slow
def test_likelihoods_pass_on_enumerable_spins(key):
    generator = np.random.default_rng(1)
    weights = np.triu(generator.normal(scale=0.5, size=(4, 4)), 1)
    spins = tw.energies.Ising(weights + weights.T, bias=generator.normal(scale=0.3, size=4))
    chain = objectives.MaximumLikelihood(samplers.Gibbs(), steps=1, start=samplers.from_data())
    for objective in (objectives.ExactLikelihood(), chain):
        verdict = tw.check_objective(objective, key=key, energy=spins)
        assert verdict.passed, verdict.text


@pytest.mark.slow
def test_regularised_learns_what_its_equation_says(key):
    """On a Gaussian with full covariance, where the truth solves a linear system."""
    verdict = tw.check_objective(objectives.RegularisedScoreMatching(0.1), key=key)
    assert verdict.passed, verdict.text
    diagonal = tw.energies.Gaussian(jnp.zeros(2), jnp.array([1.0, 3.0]))
    truth = objectives.RegularisedScoreMatching(0.1).truth(diagonal)
    np.testing.assert_allclose(truth.covariance, jnp.diag(jnp.array([1.2, 3.2])), rtol=1e-5)
    with pytest.raises(ValueError, match="expected a Gaussian, got GaussianMixture"):
        objectives.RegularisedScoreMatching(0.1).truth(MIXTURE)


class Mutant(AbstractScoreObjective):
    """Score matching with something wrong."""

    minimised_at_truth = False

    def curvature(self, key, model, batch):
        v = jax.random.rademacher(key, batch.shape, batch.dtype)
        s, change = jax.jvp(lambda x: scores(model, x), (batch,), (v,))
        return s, jnp.sum(v * change, axis=1)


class DividedByDimension(Mutant):
    def points(self, key, model, batch):
        s, curvature = self.curvature(key, model, batch)
        return 0.5 * squares(s) + curvature / batch.shape[1]


class DroppedTerm(Mutant):
    def points(self, key, model, batch):
        return 0.5 * squares(self.curvature(key, model, batch)[0])


class WrongSign(Mutant):
    def points(self, key, model, batch):
        s, curvature = self.curvature(key, model, batch)
        return 0.5 * squares(s) - curvature


class HalfTheTrace(Mutant):
    def points(self, key, model, batch):
        s, curvature = self.curvature(key, model, batch)
        return 0.5 * squares(s) + 0.5 * curvature


class SigmaSquared(Mutant):
    """Denoising with the target ``-z/σ²`` in place of ``-z/σ``."""

    sigma: float = 0.5

    def points(self, key, model, batch):
        noisy, z, sigma = add_noise(key, batch, self.sigma)
        return 0.5 * squares(scores(model, noisy) + z / sigma**2)

    def truth(self, energy):
        return energy.smoothed(self.sigma)


class Constant(Objective):
    """Nothing pulls, anywhere."""

    def loss(self, key, energy, params, state, batch):
        return 0.0 * jnp.mean(jax.vmap(energy)(batch)), Step(state, {})


class NoStep(Objective):
    """A user's objective that forgets its step."""

    def loss(self, key, energy, params, state, batch):
        return jnp.mean(jax.vmap(energy)(batch))


class Upside(AbstractScoreObjective):
    """The Fisher divergence upside down: its gradient vanishes at the truth, where the loss is largest."""

    def points(self, key, model, batch):
        return -0.5 * squares(scores(model, batch) - scores(TILTED, batch))


class WrongExpectation(objectives.HutchinsonScoreMatching):
    """Right at the truth, in gradient and minimum, yet scaled: only the comparison with its expectation sees it."""

    def points(self, key, model, batch):
        return 1.5 * super().points(key, model, batch)


@pytest.mark.parametrize(
    ("mutant", "said"),
    [
        (DividedByDimension(), "at the truth the largest"),
        (DroppedTerm(), "at the truth the largest"),
        (WrongSign(), "at the truth the largest"),
        (HalfTheTrace(), "at the truth the largest"),
        (SigmaSquared(), "at the truth the largest"),
        (Constant(), "nothing would be learned"),
        (Upside(), "the loss falls when the model moves"),
        (WrongExpectation(), "its expectation"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Objective) else "",
)
def test_wrong_objectives_fail(mutant, said, key):
    verdict = tw.check_objective(mutant, key=key, energy=TILTED)
    assert not verdict.passed and said in verdict.text, verdict.text


def test_short_unadjusted_chains_are_found_biased(key):
    objective = objectives.MaximumLikelihood(samplers.Langevin(0.5), steps=2, start=samplers.from_data())
    assert not tw.check_objective(objective, key=key, energy=TILTED).passed


def test_bad_input_is_refused(key):
    objective = objectives.ImplicitScoreMatching()
    with pytest.raises(ValueError, match="expected batches to be a whole number >= 30, got 3"):
        tw.check_objective(objective, key=key, batches=3)
    with pytest.raises(ValueError, match="expected an objective, got the class NCE"):
        tw.check_objective(objectives.NCE, key=key)
    with pytest.raises(ValueError, match="expected a random key, got 0"):
        tw.check_objective(objective, key=0)
    with pytest.raises(ValueError, match=r"expected NoStep.loss to return \(loss, Step"):
        tw.check_objective(NoStep(), key=key)
    with pytest.raises(ValueError, match="expected a false_alarm between 0 and 1"):
        tw.check_objective(objective, key=key, false_alarm=0.0)
    with pytest.raises(ValueError, match="expected a truth with parameters"):
        fixed = tw.as_energy(lambda x: 0.5 * jnp.sum(x**2), tw.Real(2))
        tw.check_objective(
            objective, key=key, energy=fixed, exact=lambda key, shape: jax.random.normal(key, (*shape, 2))
        )
    with pytest.raises(ValueError, match="expected a way to sample"):
        tw.check_objective(objective, key=key, energy=tw.energies.MLP(2, width=4, depth=1, key=key))
